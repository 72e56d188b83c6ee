//! A lane of packets from one rank to another. It has one writer and one reader, so a writer that
//! dies between two stores blocks no other rank.
//!
//! A packet takes consecutive cells of a cache line each: a header word, then 56 bytes. The header
//! of its first cell holds its number and its length, and storing it publishes the packet. The
//! headers of its other cells are zero, so no byte of a packet is ever taken for a header. The
//! number is the cell's, counted from the start, so cells are never cleared.

use crate::sync::atomic::{AtomicU64, Ordering};

/// The words of a cell: the header, then the bytes.
pub(crate) const CELL_WORDS: usize = 8;
const CELL_BYTES: usize = 8 * (CELL_WORDS - 1);

/// A header has the cell's number above these bits, and the length in them.
const LENGTH_BITS: u32 = 16;

pub(crate) type Cell = [AtomicU64; CELL_WORDS];

/// The memory of a lane.
#[derive(Clone, Copy)]
pub(crate) struct Lane<'m> {
    /// The number of cells that the reader has taken out.
    pub(crate) taken: &'m AtomicU64,
    pub(crate) cells: &'m [Cell],
}

impl Lane<'_> {
    /// The longest packet in bytes. Half of the lane, so that two may be under way.
    pub(crate) const fn packet_max(cells: usize) -> usize {
        cells / 2 * CELL_BYTES
    }
}

/// A place in a lane.
#[derive(Clone, Copy, Debug, Default)]
struct Place {
    /// The number of cells before it, since the start.
    number: u64,
    index: usize,
}

impl Place {
    fn advance(&mut self, by: usize, cells: usize) {
        self.number += by as u64;
        self.index += by;
        if self.index >= cells {
            self.index -= cells;
        }
    }

    /// The header of the packet that begins here, without its length.
    const fn header(self) -> u64 {
        (self.number + 1) << LENGTH_BITS
    }
}

const fn cells_of(len: usize) -> usize {
    if len <= CELL_BYTES { 1 } else { len.div_ceil(CELL_BYTES) }
}

/// The eight bytes of two slices in a row from `at` on, zeroes behind their end.
#[inline]
fn word_of(head: &[u8], body: &[u8], at: usize) -> u64 {
    if let Some(word) = head.get(at..at + 8).or_else(|| body.get(at.checked_sub(head.len())?..)?.get(..8))
        && let Ok(word) = word.try_into()
    {
        return u64::from_le_bytes(word);
    }
    let byte = |at: usize| *head.get(at).or_else(|| body.get(at.checked_sub(head.len())?)).unwrap_or(&0);
    u64::from_le_bytes(std::array::from_fn(|offset| byte(at + offset)))
}

/// The writer's end.
#[derive(Debug, Default)]
pub(crate) struct Writer {
    next: Place,
    /// The last known number of cells taken out.
    taken: u64,
}

impl Writer {
    /// Whether nothing was put in yet.
    pub(crate) const fn is_new(&self) -> bool {
        self.next.number == 0
    }

    /// Puts a packet in, of at most [`packet_max`](Lane::packet_max) bytes; `false` if there is no
    /// room.
    pub(crate) fn push(&mut self, lane: Lane<'_>, head: &[u8], body: &[u8]) -> bool {
        let (len, cells) = (head.len() + body.len(), lane.cells.len());
        let count = cells_of(len);
        let has_room = |taken: u64| self.next.number.wrapping_sub(taken) <= (cells - count) as u64;
        if !has_room(self.taken) {
            // Acquire: the reader's loads come before the next stores to the cells.
            self.taken = lane.taken.load(Ordering::Acquire);
            // A reader that claims more than was put in is broken; the lane then counts as full.
            if !has_room(self.taken) {
                return false;
            }
        }
        let first = self.next;
        for at in 0..count {
            let [header, words @ ..] = &lane.cells[self.next.index];
            if at > 0 {
                header.store(0, Ordering::Relaxed);
            }
            let start = at * CELL_BYTES;
            for (word, at) in words.iter().zip((start..len).step_by(8)) {
                word.store(word_of(head, body, at), Ordering::Relaxed);
            }
            self.next.advance(1, cells);
        }
        lane.cells[first.index][0].store(first.header() | len as u64, Ordering::Release);
        true
    }
}

/// The reader's end.
#[derive(Debug, Default)]
pub(crate) struct Reader {
    next: Place,
}

impl Reader {
    /// The length of the next packet, if there is one.
    #[inline]
    pub(crate) fn peek(&self, lane: Lane<'_>) -> Option<usize> {
        let header = lane.cells[self.next.index][0].load(Ordering::Acquire);
        let len = header ^ self.next.header();
        (len >> LENGTH_BITS == 0).then_some(len as usize)
    }

    /// Copies bytes of the packet that [`peek`](Self::peek) has just seen, from `offset` on.
    pub(crate) fn read(&self, lane: Lane<'_>, offset: usize, into: &mut [u8]) {
        let (mut cell, mut at) = (self.next, offset % CELL_BYTES);
        cell.advance(offset / CELL_BYTES % lane.cells.len(), lane.cells.len());
        let mut rest = into;
        while !rest.is_empty() {
            let count = rest.len().min(CELL_BYTES - at);
            let (part, later) = rest.split_at_mut(count);
            // Relaxed: `peek` acquired the packet, and the writer does not overwrite it before it
            // is counted as taken.
            let word = |at: usize| lane.cells[cell.index][1 + at / 8].load(Ordering::Relaxed).to_le_bytes();
            match at % 8 {
                0 => {
                    let mut words = part.chunks_exact_mut(8);
                    let mut at = at;
                    for bytes in &mut words {
                        bytes.copy_from_slice(&word(at));
                        at += 8;
                    }
                    let last = words.into_remainder();
                    if !last.is_empty() {
                        last.copy_from_slice(&word(at)[..last.len()]);
                    }
                }
                _ => (at..).zip(part).for_each(|(at, byte)| *byte = word(at)[at % 8]),
            }
            (rest, at) = (later, 0);
            cell.advance(1, lane.cells.len());
        }
    }

    /// Takes the packet of this length out.
    pub(crate) fn take(&mut self, lane: Lane<'_>, len: usize) {
        self.next.advance(cells_of(len), lane.cells.len());
        // Release: the loads of the words come before the writer's next stores to them.
        lane.taken.store(self.next.number, Ordering::Release);
    }
}

#[cfg(all(test, not(onesided_loom)))]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn memory(cells: usize) -> (AtomicU64, Vec<Cell>) {
        (AtomicU64::new(0), (0..cells).map(|_| Cell::default()).collect())
    }

    proptest! {
        /// Packets of any lengths, some with bytes that look like headers, through a lane that is
        /// often full.
        #[test]
        fn packets_go_through_a_lane_whole(
            cells in 2_usize..9,
            packets in prop::collection::vec((any::<u8>(), any::<u16>(), 0_usize..3), 1..200),
        ) {
            let (taken, cells) = memory(cells);
            let lane = Lane { taken: &taken, cells: &cells };
            let (mut writer, mut reader) = (Writer::default(), Reader::default());
            let mut inside = std::collections::VecDeque::new();
            let mut take = |inside: &mut std::collections::VecDeque<Vec<u8>>, offset: usize| {
                let Some(len) = reader.peek(lane) else { return false };
                let mut bytes = vec![0; len];
                let offset = offset.min(len);
                reader.read(lane, offset, &mut bytes[offset..]);
                reader.read(lane, 0, &mut bytes[..offset]);
                assert_eq!(Some(bytes), inside.pop_front());
                reader.take(lane, len);
                true
            };
            for (number, len, cut) in packets {
                let len = usize::from(len) % (Lane::packet_max(cells.len()) + 1);
                let bytes: Vec<u8> = match number % 2 {
                    0 => (0..len).map(|at| number.wrapping_add(at as u8)).collect(),
                    _ => (1_u64..).flat_map(|number| (number << LENGTH_BITS | 8).to_le_bytes()).take(len).collect(),
                };
                let (head, body) = bytes.split_at((cut * 13).min(len));
                while !writer.push(lane, head, body) {
                    prop_assert!(take(&mut inside, cut * 11), "a lane is full of nothing");
                }
                inside.push_back(bytes);
            }
            while take(&mut inside, 5) {}
            prop_assert!(inside.is_empty());
        }
    }

    #[test]
    fn a_reader_that_claims_too_much_makes_the_lane_full() {
        let (taken, cells) = memory(4);
        let lane = Lane { taken: &taken, cells: &cells };
        let mut writer = Writer::default();
        assert!((0..4).all(|_| writer.push(lane, b"x", &[])));
        for claimed in [0, 5, u64::MAX] {
            taken.store(claimed, Ordering::Relaxed);
            assert!(!writer.push(lane, b"x", &[]), "{claimed}");
        }
        taken.store(1, Ordering::Relaxed);
        assert!(writer.push(lane, b"x", &[]));
    }
}
