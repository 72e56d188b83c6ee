//! Messages between two ranks by bare instructions: what the library's messages are compared with.
#![allow(unsafe_code)] // copies to and from bare memory

use std::cell::Cell;
use std::hint::black_box;
use std::ptr::copy_nonoverlapping;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::bench::worker::rank::{BenchRank, TRANSFER_AREA};
use crate::bench::worker::timing::{await_word, poll_until};

/// Long messages are copied in pieces, so that both ends copy at the same time, in their caches.
const PIECE: usize = 32 << 10;
/// The most bytes of a ring's slots, and the most slots.
const SLOT_BYTES: usize = 512 << 10;
const SLOTS: usize = 64;
const LINE: usize = 64;
/// The page of a ring's word, which lies before its slots.
const WORDS: usize = 4096;
/// The most pairs of ranks: each ring has room for a piece.
pub(crate) const MOST_PAIRS: usize = 64;
const _: () = assert!(TRANSFER_AREA / 2 / (2 * MOST_PAIRS) >= WORDS + LINE + PIECE);

/// One of two ranks that send each other messages through bare memory.
///
/// Both ends run the same loops in the same order.
pub(crate) struct BareEnd<'r> {
    is_first: bool,
    out: Ring<'r>,
    into: Ring<'r>,
}

/// A queue from one end to the other. A slot has the number of its piece, then the piece: in the
/// same line if it fits there.
struct Ring<'r> {
    /// How many pieces were taken out.
    taken: &'r AtomicU64,
    slots: *mut u8,
    bytes: usize,
    /// The pieces that this end has put in or taken out, and how many the other end is known to have
    /// taken out.
    own: Cell<u64>,
    known: Cell<u64>,
}

impl<'r> BareEnd<'r> {
    /// The first or the other end of this pair, of at most [`MOST_PAIRS`]. Their rings lie in the
    /// second half of the transfer area.
    pub(crate) fn new(rank: &'r BenchRank, (pair, pairs): (usize, usize), is_first: bool) -> Self {
        let [there, back] = [0, 1].map(|direction| {
            let bytes = (TRANSFER_AREA / 2 / (2 * pairs) / WORDS * WORDS).min(WORDS + SLOT_BYTES);
            let at = TRANSFER_AREA / 2 + (2 * pair + direction) * bytes;
            Ring {
                taken: rank.scratch_word(at / 8),
                slots: rank.transfer_area().wrapping_add(at + WORDS),
                bytes: bytes - WORDS,
                own: Cell::new(0),
                known: Cell::new(0),
            }
        });
        let (out, into) = if is_first { (there, back) } else { (back, there) };
        Self { is_first, out, into }
    }

    /// Messages of this length there and back, `n` times. Up to 8 bytes are the number of the piece.
    pub(crate) fn ping_pong(&self, (own, got): (&[u8], &mut [u8]), n: u64) {
        let size = if own.len() <= 8 { 0 } else { own.len() };
        let (own, got) = (&own[..size], &mut got[..size]);
        self.alternate(size, n, |out| out.put(black_box(own)), |into| into.take(black_box(&mut *got)));
    }

    /// The same with messages that are packed before they are sent, and unpacked afterwards.
    pub(crate) fn ping_pong_packed(
        &self,
        (own, got): (&mut [u8], &mut [u8]),
        n: u64,
        pack: impl Fn(&mut [u8]),
        mut unpack: impl FnMut(&[u8]),
    ) {
        let size = own.len();
        let put = |out: &mut Slots<'_>| {
            pack(own);
            out.put(own);
        };
        let take = |into: &mut Slots<'_>| {
            into.take(got);
            unpack(got);
        };
        self.alternate(size, n, put, take);
    }

    fn alternate(
        &self,
        size: usize,
        n: u64,
        mut put: impl FnMut(&mut Slots<'_>),
        mut take: impl FnMut(&mut Slots<'_>),
    ) {
        let (mut out, mut into) = (self.out.to_put(size), self.into.to_take(size));
        for _ in 0..n {
            if self.is_first {
                put(&mut out);
            }
            take(&mut into);
            if !self.is_first {
                put(&mut out);
            }
        }
    }

    /// `n` times: `many` messages to the other end, each to a place of its own, and an answer.
    pub(crate) fn stream(&self, (own, got): (&[u8], &mut [u8]), many: usize, n: u64) {
        let (mut out, mut into) = (self.out.to_put(own.len()), self.into.to_take(own.len()));
        for _ in 0..n {
            if self.is_first {
                (0..many).for_each(|_| out.put(black_box(own)));
                into.take(&mut []);
            } else {
                got.chunks_exact_mut(own.len()).take(many).for_each(|piece| into.take(black_box(piece)));
                out.put(&[]);
            }
        }
    }

    /// `n` times: `many` messages to the other end, while it does the same.
    pub(crate) fn both_ways(&self, (own, got): (&[u8], &mut [u8]), many: usize, n: u64) {
        let (mut out, mut into) = (self.out.to_put(own.len()), self.into.to_take(own.len()));
        // As many as a ring has room for; of long messages it has not room for one.
        let (places, batch) = (&mut got[..many * own.len()], out.many * own.len());
        for _ in 0..n {
            if own.len() > PIECE {
                for place in places.chunks_exact_mut(own.len()) {
                    for (own, got) in black_box(own).chunks(PIECE).zip(black_box(place).chunks_mut(PIECE)) {
                        out.put(own);
                        into.take(got);
                    }
                }
                continue;
            }
            for batch in places.chunks_mut(batch) {
                (0..batch.len() / own.len()).for_each(|_| out.put(black_box(own)));
                batch.chunks_exact_mut(own.len()).for_each(|place| into.take(black_box(place)));
            }
        }
    }
}

impl Ring<'_> {
    /// The slots for messages of this length that this end puts in. The other end has taken out all
    /// earlier ones, which had slots of another length.
    fn to_put(&self, size: usize) -> Slots<'_> {
        await_word(self.taken, self.own.get());
        self.to_take(size)
    }

    /// The slots for messages of this length that this end takes out.
    fn to_take(&self, size: usize) -> Slots<'_> {
        let piece = size.min(PIECE);
        let begin = if piece + 8 <= LINE { 8 } else { LINE };
        let len = (begin + piece).next_multiple_of(LINE);
        Slots { ring: self, piece, begin, len, many: (self.bytes / len).min(SLOTS), next: 0 }
    }
}

/// The slots of a ring, as a loop uses them.
struct Slots<'r> {
    ring: &'r Ring<'r>,
    /// The most bytes of a piece, where they begin in a slot, and the length of a slot.
    piece: usize,
    begin: usize,
    len: usize,
    many: usize,
    next: usize,
}

impl<'r> Slots<'r> {
    /// The number of the next slot, and the memory of a piece of `len` bytes there.
    fn slot(&mut self, len: usize) -> (&'r AtomicU64, *mut u8) {
        assert!(len <= self.piece);
        let slot = self.ring.slots.wrapping_add(self.next * self.len);
        self.next = if self.next + 1 == self.many { 0 } else { self.next + 1 };
        // SAFETY: the first word of a slot, which lies in the transfer area as long as the rank
        // lives, and begins a line. Both ends access it by atomics alone.
        (unsafe { AtomicU64::from_ptr(slot.cast()) }, slot.wrapping_add(self.begin))
    }

    /// Puts a message in, no longer than the loop's. An empty one is a number alone.
    #[inline]
    fn put(&mut self, mut message: &[u8]) {
        let Ring { taken, own, known, .. } = self.ring;
        loop {
            let (piece, rest) = message.split_at(message.len().min(PIECE));
            let number = own.get() + 1;
            let room_from = number.saturating_sub(self.many as u64);
            if known.get() < room_from {
                await_word(taken, room_from);
                known.set(taken.load(Ordering::Acquire));
            }
            let (word, memory) = self.slot(piece.len());
            if let Ok(bytes) = <[u8; 8]>::try_from(piece) {
                // SAFETY: a slot has room for 8 bytes. The other end has taken out what was there,
                // and reads it again after the store of the number.
                unsafe { memory.cast::<[u8; 8]>().write(bytes) };
            } else {
                // SAFETY: as above; the slot has room for the piece.
                unsafe { copy_nonoverlapping(piece.as_ptr(), memory, piece.len()) };
            }
            word.store(number, Ordering::Release);
            own.set(number);
            message = rest;
            if message.is_empty() {
                return;
            }
        }
    }

    /// Takes a message of this length out.
    #[inline]
    fn take(&mut self, mut into: &mut [u8]) {
        let Ring { taken, own, .. } = self.ring;
        loop {
            let (piece, rest) = into.split_at_mut(into.len().min(PIECE));
            let (word, memory) = self.slot(piece.len());
            let number = own.get() + 1;
            await_number(word, number);
            if let Ok(bytes) = <&mut [u8; 8]>::try_from(&mut *piece) {
                // SAFETY: a slot has room for 8 bytes. The other end has written them before the
                // number, and writes there again after the store of `taken`.
                *bytes = unsafe { memory.cast::<[u8; 8]>().read() };
            } else {
                // SAFETY: as above; the slot has room for the piece.
                unsafe { copy_nonoverlapping(memory, piece.as_mut_ptr(), piece.len()) };
            }
            taken.store(number, Ordering::Release);
            own.set(number);
            into = rest;
            if into.is_empty() {
                return;
            }
        }
    }
}

/// Waits for the number of a piece. Before, the word has an older one, or bytes of a message (loops
/// of other lengths have their slots elsewhere), which are all 1 and no number that is ever reached.
fn await_number(word: &AtomicU64, number: u64) {
    poll_until(1000, || word.load(Ordering::Acquire) == number);
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The words and the exposed slots of both rings.
    struct Memory {
        taken: [AtomicU64; 2],
        slots: [usize; 2],
    }

    impl Memory {
        fn end(&self, is_first: bool) -> BareEnd<'_> {
            let ring = |at: usize| Ring {
                taken: &self.taken[at],
                slots: std::ptr::with_exposed_provenance_mut(self.slots[at]),
                bytes: 2 * (LINE + PIECE),
                own: Cell::new(0),
                known: Cell::new(0),
            };
            let [out, into] = if is_first { [0, 1] } else { [1, 0] };
            BareEnd { is_first, out: ring(out), into: ring(into) }
        }
    }

    fn byte(at: usize, of_first: bool) -> u8 {
        (at as u8 | 1) ^ if of_first { 0 } else { 0x80 }
    }

    /// Runs all loops at an end; checks what has arrived after each.
    fn run(end: &BareEnd<'_>, size: usize) {
        let own: Vec<u8> = (0..size).map(|at| byte(at, end.is_first)).collect();
        let check = |got: &mut [u8], arrived: usize| {
            for (place, bytes) in got.chunks_exact_mut(size).enumerate() {
                let expected = |at| if place < arrived { byte(at, !end.is_first) } else { 0 };
                assert!(bytes.iter().enumerate().all(|(at, byte)| *byte == expected(at)), "{size} B, place {place}");
                bytes.fill(0);
            }
        };
        let mut got = vec![0; 3 * size];
        end.ping_pong((&own, &mut got[..size]), 5);
        check(&mut got, usize::from(size > 8));
        end.stream((&own, &mut got), 3, 5);
        check(&mut got, if end.is_first { 0 } else { 3 });
        end.both_ways((&own, &mut got), 3, 5);
        check(&mut got, 3);
    }

    /// Of lengths beside those at which slots change, and of messages longer than a ring.
    #[test]
    fn messages_arrive_whole_in_their_places() {
        let words = || (0..2 * (LINE + PIECE) / 8).map(|_| AtomicU64::new(0)).collect::<Vec<_>>();
        let slots = [words(), words()];
        let exposed = slots.each_ref().map(|words| words.as_ptr().expose_provenance());
        let memory = Memory { taken: Default::default(), slots: exposed };
        std::thread::scope(|scope| {
            for is_first in [true, false] {
                let memory = &memory;
                scope.spawn(move || {
                    let end = memory.end(is_first);
                    for size in [8, 9, 56, 57, 64, PIECE, PIECE + 8, 4 * PIECE + 1] {
                        run(&end, size);
                    }
                });
            }
        });
    }
}
