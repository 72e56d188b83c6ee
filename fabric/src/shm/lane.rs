//! A lane of packets from one rank to another. It has one writer and one reader, so a writer that
//! dies between two stores blocks no other rank.
//!
//! A packet takes consecutive cells of a cache line each: a header word, then its bytes without a gap,
//! from the lane's last cell on in its first one. The header holds the first cell's number and the
//! packet's length, and storing it publishes the packet. The number is counted from the start, so
//! cells are never cleared but one: where the next header comes and a long packet's bytes were, the
//! writer stores a zero before it publishes, so no byte of a packet is ever taken for a header.

use std::ops::Range;

use crate::SHORTEST_LIMIT;
use crate::util::sync::atomic::{AtomicU64, Ordering};

/// The words of a cell: the header, then the bytes.
pub(crate) const CELL_WORDS: usize = 8;
const CELL_BYTES: usize = 8 * CELL_WORDS;
const HEADER_BYTES: usize = 8;

/// The longest packet: 8 KiB behind a head of 16 bytes. Up to there, to copy a message twice takes
/// less time than to announce it.
const PACKET_MAX: usize = 16 + (8 << 10);
/// A lane holds four of its longest packets, if these are longer than this: 2 KiB behind a head.
const PACKET_MIN: usize = 16 + (2 << 10);

/// How far ahead of the next packet the writer fetches cells, which the reader's core has.
const AHEAD: usize = 8;

/// How many cells of the next packet its reader fetches, at most, before it has come.
const EXPECTED: usize = 16;

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
    /// The longest packet in bytes.
    pub(crate) const fn packet_max(cells: usize) -> usize {
        // A cell is left for the next header.
        match if cells > 1 { cells - 1 } else { 1 } * CELL_BYTES - HEADER_BYTES {
            all @ ..PACKET_MIN => all,
            all if all / 4 < PACKET_MIN => PACKET_MIN,
            all if all / 4 < PACKET_MAX => all / 4,
            _ => PACKET_MAX,
        }
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
    #[inline]
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
    if len <= CELL_BYTES - HEADER_BYTES { 1 } else { (HEADER_BYTES + len).div_ceil(CELL_BYTES) }
}

/// Stores bytes at words, which have room for them.
#[inline]
pub(crate) fn store_words(words: &[AtomicU64], bytes: &[u8]) {
    let (whole, last) = bytes.as_chunks();
    for (word, bytes) in words.iter().zip(whole) {
        word.store(u64::from_ne_bytes(*bytes), Ordering::Relaxed);
    }
    if !last.is_empty() {
        let mut bytes = [0; 8];
        bytes[..last.len()].copy_from_slice(last);
        words[whole.len()].store(u64::from_ne_bytes(bytes), Ordering::Relaxed);
    }
}

/// Loads bytes of words, which have as many. Relaxed: a load of the header acquired them, and the writer does
/// not overwrite them before they are counted as read.
#[inline]
pub(crate) fn load_words(words: &[AtomicU64], into: &mut [u8]) {
    let (whole, last) = into.as_chunks_mut();
    for (bytes, word) in whole.iter_mut().zip(words) {
        *bytes = word.load(Ordering::Relaxed).to_ne_bytes();
    }
    if !last.is_empty() {
        let bytes = words[whole.len()].load(Ordering::Relaxed).to_ne_bytes();
        last.copy_from_slice(&bytes[..last.len()]);
    }
}

/// Copies bytes to words, and from an offset of words, which have room for them.
#[cfg(not(onesided_loom))]
#[allow(unsafe_code)] // as fast as a window's bytes
mod bare {
    #[cfg(any(target_arch = "x86_64", target_arch = "aarch64"))]
    use std::arch::asm;
    use std::sync::atomic::AtomicU64;

    use onesided_job::segment::copy;

    use super::Cell;

    #[inline]
    pub(super) fn copy_into(words: &[AtomicU64], bytes: &[u8]) {
        assert!(bytes.len() <= size_of_val(words), "there is no room");
        // SAFETY: the words have room for the bytes, as was just checked. All ranks access them by
        // atomics of whole words, and by these copies.
        unsafe { copy::into_shared(words.as_ptr().cast_mut().cast(), bytes) };
    }

    /// Writes a function that fetches a cell, by the instruction of x86-64 or of ARM.
    macro_rules! prefetch {
        ($(#[$doc:meta])* $name:ident, $x86:literal, $arm:literal) => {
            $(#[$doc])*
            #[inline]
            pub(super) fn $name(cell: &Cell) {
                // SAFETY: the hint changes nothing that a program sees, and never faults.
                #[cfg(target_arch = "x86_64")]
                unsafe {
                    asm!($x86, in(reg) cell, options(nostack, preserves_flags, readonly));
                }
                // SAFETY: the same.
                #[cfg(target_arch = "aarch64")]
                unsafe {
                    asm!($arm, in(reg) cell, options(nostack, preserves_flags, readonly));
                }
                #[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
                let _ = cell;
            }
        };
    }

    prefetch! {
        /// Fetches a cell that will be written. Without it each packet waits for its cell, as stores take
        /// effect one after the other.
        prefetch, "prefetchw [{}]", "prfm pstl1keep, [{}]"
    }

    prefetch! {
        /// Fetches a cell that will be read.
        prefetch_to_read, "prefetcht0 [{}]", "prfm pldl1keep, [{}]"
    }

    #[inline]
    pub(super) fn copy_out(words: &[AtomicU64], offset: usize, into: &mut [u8]) {
        assert!(offset + into.len() <= size_of_val(words), "there are not so many bytes");
        // SAFETY: the words have the bytes, as was just checked. All ranks access them by atomics of
        // whole words, and by these copies.
        unsafe { copy::out_of_shared(into, words.as_ptr().cast::<u8>().wrapping_add(offset)) };
    }
}

/// The same by loom's words.
#[cfg(onesided_loom)]
mod bare {
    use super::{Cell, load_words, store_words};
    use crate::util::sync::atomic::AtomicU64;

    pub(super) fn prefetch(_: &Cell) {}

    pub(super) fn prefetch_to_read(_: &Cell) {}

    pub(super) fn copy_into(words: &[AtomicU64], bytes: &[u8]) {
        store_words(words, bytes);
    }

    pub(super) fn copy_out(words: &[AtomicU64], offset: usize, into: &mut [u8]) {
        assert!(offset.is_multiple_of(8), "tests read words");
        load_words(&words[offset / 8..], into);
    }
}

/// Calls `copy` with the words of a packet's bytes from an offset on, an offset in them, and a range
/// of the `len` bytes: those up to the lane's end, then those from its start.
fn runs(
    cells: &[Cell],
    first: usize,
    offset: usize,
    len: usize,
    mut copy: impl FnMut(&[AtomicU64], usize, Range<usize>),
) {
    let (start, end) = cells.as_flattened().split_at(first * CELL_WORDS + 1);
    let before = len.min((8 * end.len()).saturating_sub(offset));
    if before > 0 {
        copy(end, offset, 0..before);
    }
    if before < len {
        copy(start, (offset + before) - 8 * end.len(), before..len);
    }
}

/// Stores bytes of the packet that begins in a cell, from a whole word on.
fn store(cells: &[Cell], first: usize, offset: usize, bytes: &[u8]) {
    runs(cells, first, offset, bytes.len(), |words, offset, range| {
        bare::copy_into(&words[offset / 8..], &bytes[range])
    });
}

/// Stores all of a packet but its header, where it wraps around the lane's end or its head is no
/// whole number of words.
#[cold]
fn store_wrapping(cells: &[Cell], first: usize, head: &[u8], body: &[u8]) {
    if head.len().is_multiple_of(8) || body.is_empty() {
        store(cells, first, 0, head);
        store(cells, first, head.len(), body);
    } else {
        store(cells, first, 0, &[head, body].concat());
    }
}

/// The writer's end.
#[derive(Debug, Default)]
pub(crate) struct Writer {
    next: Place,
    /// The last known number of cells taken out.
    taken: u64,
    /// In cells before this number, the bytes of a packet may be where a header comes.
    clean: u64,
}

impl Writer {
    /// Whether nothing was put in yet.
    pub(crate) const fn is_new(&self) -> bool {
        self.next.number == 0
    }

    /// Puts a packet in, of at most [`packet_max`](Lane::packet_max) bytes; `false` if there is no
    /// room.
    #[inline]
    pub(crate) fn push(&mut self, lane: Lane<'_>, head: &[u8], body: &[u8]) -> bool {
        let (len, cells) = (head.len() + body.len(), lane.cells.len());
        let count = cells_of(len);
        let is_to_clean = self.next.number + (count as u64) < self.clean;
        let used = count + usize::from(is_to_clean);
        let has_room = |taken: u64| self.next.number.wrapping_sub(taken) <= (cells - used) as u64;
        if !has_room(self.taken) {
            // Acquire: the reader's loads come before the next stores to the cells.
            self.taken = lane.taken.load(Ordering::Acquire);
            // A reader that claims more than was put in is broken; the lane then counts as full.
            if !has_room(self.taken) {
                return false;
            }
        }
        let (first, header) = (self.next.index, self.next.header() | len as u64);
        self.next.advance(count, cells);
        match lane.cells.get(first..first + count) {
            Some(cells) if head.len().is_multiple_of(8) => {
                let (head_words, body_words) = cells.as_flattened()[1..].split_at(head.len() / 8);
                store_words(head_words, head);
                bare::copy_into(body_words, body);
            }
            _ => store_wrapping(lane.cells, first, head, body),
        }
        if count > 1 {
            // It may have left bytes in each cell up to here, which come again a lap later.
            self.clean = self.next.number + cells as u64;
        }
        if is_to_clean {
            lane.cells[self.next.index][0].store(0, Ordering::Relaxed);
        }
        lane.cells[first][0].store(header, Ordering::Release);
        let ahead = self.next.index + AHEAD;
        let ahead = if ahead < cells { ahead } else { ahead - cells };
        lane.cells.get(ahead..).into_iter().flatten().take(count.min(2)).for_each(bare::prefetch);
        true
    }
}

/// The reader's end.
#[derive(Debug, Default)]
pub(crate) struct Reader {
    next: Place,
    /// The number of cells that the writer was told of.
    told: u64,
    /// How many cells the last packet had, if few.
    expected: usize,
}

impl Reader {
    /// The length of the next packet, if there is one.
    #[inline]
    pub(crate) fn peek(&mut self, lane: Lane<'_>) -> Option<usize> {
        let header = lane.cells[self.next.index][0].load(Ordering::Acquire);
        let len = header ^ self.next.header();
        if len >> LENGTH_BITS == 0 {
            return Some(len as usize);
        }
        if self.told != self.next.number {
            self.tell(lane);
        }
        None
    }

    /// Fetches the cells that the next packet may have, if it is as long as the last one: they come at
    /// once then, where one would be fetched after the other.
    #[inline]
    pub(crate) fn prefetch(&self, lane: Lane<'_>) {
        let expected = lane.cells.get(self.next.index + 1..self.next.index + self.expected);
        expected.into_iter().flatten().for_each(bare::prefetch_to_read);
    }

    /// The first bytes of the packet that [`peek`](Self::peek) has just seen. Its cell has as many.
    #[inline]
    pub(crate) fn first(&self, lane: Lane<'_>) -> [u8; SHORTEST_LIMIT] {
        let mut first = [0; SHORTEST_LIMIT];
        load_words(&lane.cells[self.next.index][1..], &mut first);
        first
    }

    /// Copies bytes of the packet that [`peek`](Self::peek) has just seen, from `offset` on.
    #[inline]
    pub(crate) fn read(&self, lane: Lane<'_>, offset: usize, into: &mut [u8]) {
        let words = &lane.cells.as_flattened()[self.next.index * CELL_WORDS + 1..];
        if offset + into.len() <= size_of_val(words) {
            return bare::copy_out(words, offset, into);
        }
        runs(lane.cells, self.next.index, offset, into.len(), |words, offset, range| {
            bare::copy_out(words, offset, &mut into[range]);
        });
    }

    /// Takes the packet of this length out of a lane of so many cells. The writer is told when the
    /// lane is empty, and every quarter of it: a writer that waits for room looks at the count all the
    /// time. Only that needs the lane.
    #[inline]
    pub(crate) fn take<'m>(&mut self, cells: usize, len: usize, lane: impl FnOnce() -> Lane<'m>) {
        let count = cells_of(len);
        self.expected = count.min(EXPECTED);
        self.next.advance(count, cells);
        if self.next.number - self.told > cells as u64 / 4 {
            self.tell(lane());
        }
    }

    #[inline]
    fn tell(&mut self, lane: Lane<'_>) {
        self.told = self.next.number;
        // Release: the loads of the words come before the writer's next stores to them.
        lane.taken.store(self.told, Ordering::Release);
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
                reader.take(lane.cells.len(), len, || lane);
                true
            };
            for (number, len, cut) in packets {
                let len = usize::from(len) % (Lane::packet_max(cells.len()) + 1);
                let bytes: Vec<u8> = match number % 2 {
                    0 => (0..len).map(|at| number.wrapping_add(at as u8)).collect(),
                    // The header of each cell a lap later, in all its words.
                    _ => {
                        let next = writer.next.number + cells.len() as u64 + 1;
                        let header = |word: u64| (next + (1 + word) / CELL_WORDS as u64) << LENGTH_BITS | 8;
                        (0..).flat_map(|word| header(word).to_le_bytes()).take(len).collect()
                    }
                };
                let (head, body) = bytes.split_at((cut * 13).min(len));
                while !writer.push(lane, head, body) {
                    if !take(&mut inside, cut * 11) {
                        // The reader has looked, so the writer knows that the lane is empty.
                        prop_assert!(writer.push(lane, head, body), "a lane is full of nothing");
                        break;
                    }
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
