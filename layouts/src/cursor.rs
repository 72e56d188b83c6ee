//! Copies between the elements of a shape and packed bytes.

use std::ops::Range;

use crate::{Runs, Shape};

/// Packs the elements of a shape, or unpacks into them, so many bytes at a time: a call goes on
/// where the last one stopped.
///
/// ```
/// use onesided_layouts::{Cursor, Shape};
///
/// let column = Shape::Vector { count: 3, block: 1, stride: 4 };
/// let mut packed = [0; 3];
/// assert_eq!(Cursor::new(column, 1, 12).unwrap().pack(b"abcdefghijkl", &mut packed), 3);
/// assert_eq!(&packed, b"aei");
/// let mut matrix = *b"............";
/// Cursor::new(column, 1, 12).unwrap().unpack(&packed, &mut matrix);
/// assert_eq!(&matrix, b"a...e...i...");
/// assert!(Cursor::new(column, 1, 8).is_none());
/// ```
#[derive(Clone, Debug)]
pub struct Cursor<'s> {
    runs: Runs<'s>,
    /// The rest of the current run, in bytes.
    run: Range<usize>,
    element: usize,
}

impl<'s> Cursor<'s> {
    /// At the first byte of a shape of elements of so many bytes, in memory of `len` bytes. `None` if
    /// the shape exceeds the memory.
    ///
    /// # Panics
    /// If the elements have no size.
    #[must_use]
    pub fn new(shape: Shape<'s>, element: usize, len: usize) -> Option<Self> {
        (shape.end() <= len / element).then(|| Self { runs: shape.runs(), run: 0..0, element })
    }

    /// Copies the next bytes of the elements in `from` to `into`: as many as there is room for, or
    /// as are left. Returns how many.
    ///
    /// # Panics
    /// If `from` is shorter than the memory is said to be.
    pub fn pack(&mut self, from: &[u8], into: &mut [u8]) -> usize {
        self.each(into.len(), |Blocks { places, packed, stride, len }| {
            copy(len, (&mut into[packed], len), (&from[places], stride));
        })
    }

    /// Copies packed bytes to the next bytes of the elements in `into`, in the order of the shape,
    /// as many as there are or as it has left. Returns how many. Where runs overlap, the later one
    /// stays; what lies between them is not written.
    ///
    /// # Panics
    /// If `into` is shorter than the memory is said to be.
    pub fn unpack(&mut self, from: &[u8], into: &mut [u8]) -> usize {
        self.each(from.len(), |Blocks { places, packed, stride, len }| {
            copy(len, (&mut into[places], stride), (&from[packed], len));
        })
    }

    /// Calls `copy` for the next so many bytes, or for those that are left. Returns how many.
    #[inline]
    fn each(&mut self, bytes: usize, mut copy: impl FnMut(Blocks)) -> usize {
        let mut done = 0;
        while done < bytes {
            let room = bytes - done;
            if self.run.is_empty() {
                if let Some(blocks) = self.blocks(done, room) {
                    done = blocks.packed.end;
                    copy(blocks);
                    continue;
                }
                let Some(run) = self.runs.next() else { break };
                self.run = run.start * self.element..run.end * self.element;
            }
            let len = self.run.len().min(room);
            let places = self.run.start..self.run.start + len;
            self.run.start = places.end;
            copy(Blocks { places, packed: done..done + len, stride: len, len });
            done += len;
        }
        done
    }

    /// The whole blocks of a vector that come next, as many as there is room for.
    fn blocks(&mut self, done: usize, room: usize) -> Option<Blocks> {
        let (first, count, block, stride) = self.runs.vector()?;
        let (len, stride) = (block * self.element, stride * self.element);
        let count = count.min(room / len);
        if count == 0 {
            return None;
        }
        self.runs.skip_blocks(count);
        let start = first * self.element;
        let places = start..start + (count - 1) * stride + len;
        Some(Blocks { places, packed: done..done + count * len, stride, len })
    }
}

/// Blocks of `len` bytes, `stride` bytes apart in the range `places`.
struct Blocks {
    places: Range<usize>,
    packed: Range<usize>,
    stride: usize,
    len: usize,
}

/// Copies blocks of so many bytes between memory in which they are so many bytes apart. Those of one
/// element are moves, not calls of `memcpy`.
fn copy(len: usize, into: (&mut [u8], usize), from: (&[u8], usize)) {
    match len {
        1 => moves::<1>(into, from),
        2 => moves::<2>(into, from),
        4 => moves::<4>(into, from),
        8 => moves::<8>(into, from),
        16 => moves::<16>(into, from),
        _ => each_block(into, from, |into, from| into[..len].copy_from_slice(&from[..len])),
    }
}

fn moves<const LEN: usize>(into: (&mut [u8], usize), from: (&[u8], usize)) {
    each_block(into, from, |into, from| into[..LEN].copy_from_slice(&from[..LEN]));
}

#[inline(always)]
fn each_block(
    (into, into_stride): (&mut [u8], usize),
    (from, from_stride): (&[u8], usize),
    mut copy: impl FnMut(&mut [u8], &[u8]),
) {
    into.chunks_mut(into_stride).zip(from.chunks(from_stride)).for_each(|(into, from)| copy(into, from));
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// A shape, whose blocks the caller keeps.
    fn shapes() -> impl Strategy<Value = (u8, [usize; 3], Vec<Range<usize>>)> {
        let range = (0..20_usize, 0..6_usize).prop_map(|(start, len)| start..start + len);
        (0..4_u8, [0..9_usize, 0..5, 0..8], prop::collection::vec(range, 0..6))
    }

    proptest! {
        #[test]
        fn bytes_go_where_the_runs_are(
            (kind, [count, block, stride], ranges) in shapes(),
            element in prop::sample::select(vec![1, 2, 3, 4, 8, 16, 24]),
            cuts in prop::collection::vec(0..40_usize, 0..9),
        ) {
            let starts: Vec<_> = ranges.iter().map(|range| range.start).collect();
            let shape = match kind {
                0 => Shape::Row(count),
                1 => Shape::Vector { count, block, stride },
                2 => Shape::Blocks { block, starts: &starts },
                _ => Shape::Indexed(&ranges),
            };
            let len = shape.end() * element;
            let memory: Vec<u8> = (0..len).map(|at| (at % 251) as u8).collect();
            let places: Vec<_> =
                shape.runs().flat_map(|run| run.start * element..run.end * element).collect();
            if len > 0 {
                prop_assert!(Cursor::new(shape, element, len - 1).is_none());
            }
            // In calls of these lengths, and one for the rest.
            let mut packed = vec![0; places.len() + 1];
            let (mut packs, mut unpacks) = (Cursor::new(shape, element, len).unwrap(), Cursor::new(shape, element, len).unwrap());
            let mut unpacked = vec![255; len];
            let mut expected = unpacked.clone();
            let mut at = 0_usize;
            for cut in cuts.into_iter().chain([usize::MAX]) {
                let end = packed.len().min(at.saturating_add(cut));
                let copied = packs.pack(&memory, &mut packed[at..end]);
                prop_assert_eq!(copied, (end - at).min(places.len() - at.min(places.len())));
                prop_assert_eq!(unpacks.unpack(&packed[at..end], &mut unpacked), copied);
                at = end.min(places.len());
            }
            let picked: Vec<_> = places.iter().map(|place| memory[*place]).collect();
            prop_assert_eq!(&packed[..places.len()], &picked[..]);
            places.iter().zip(picked).for_each(|(place, byte)| expected[*place] = byte);
            prop_assert_eq!(unpacked, expected);
        }
    }
}
