//! The event queue: a binary heap of (time, sequence).

use std::cmp::Reverse;
use std::collections::BinaryHeap;

/// A future event.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Due {
    /// The operation in this slot reaches its next stage.
    Operation(u32),
    /// The card of this rank has received the first message of its queue.
    Card(u32),
    /// A pause or a deadline of this thread ends.
    Timer(u32),
    /// This thread checks again what it waits for.
    Wake(u32),
    /// This rank dies.
    Kill(u32),
    /// This rank has failed, or is believed to have: the others begin to learn of it.
    Detect(u32),
    /// A rank learns of a failure: the entry of the list of news.
    Learn(u32),
    /// The other ranks learn that this rank left.
    Leave(u32),
    /// The time slice of this thread ends.
    Slice(u32),
    /// This thread has polled for long enough, and sleeps.
    Sleep(u32),
    /// The datagram in this slot arrives.
    Datagram(u32),
    /// This rank returns, as another process.
    Restart(u32),
}

/// Bits of an entry, from the top: time in nanoseconds (2.2 years), sequence, kind, index. One
/// comparison orders entries, and 16 bytes an entry matter where every rank has one.
const INDEX_BITS: u32 = 28;
const KIND_BITS: u32 = 4;
const SEQUENCE_BITS: u32 = 40;
const TIME_BITS: u32 = 56;
const _: () = assert!(INDEX_BITS + KIND_BITS + SEQUENCE_BITS + TIME_BITS == 128);

/// The end of time.
pub(crate) const NEVER: u64 = (1 << TIME_BITS) - 1;

/// The events to come. Events of the same time occur in the order in which they were entered.
#[derive(Debug, Default)]
pub(crate) struct Agenda {
    heap: BinaryHeap<Reverse<u128>>,
    sequence: u64,
}

impl Agenda {
    /// Enters an event. An event past the end of time never happens.
    pub(crate) fn enter(&mut self, time: u64, due: Due) {
        if time >= NEVER {
            return;
        }
        let (kind, index) = match due {
            Due::Operation(slot) => (0, slot),
            Due::Card(rank) => (1, rank),
            Due::Timer(rank) => (2, rank),
            Due::Wake(rank) => (3, rank),
            Due::Kill(rank) => (4, rank),
            Due::Detect(rank) => (5, rank),
            Due::Leave(rank) => (6, rank),
            Due::Learn(index) => (7, index),
            Due::Slice(thread) => (8, thread),
            Due::Sleep(thread) => (9, thread),
            Due::Datagram(slot) => (10, slot),
            Due::Restart(rank) => (11, rank),
        };
        let what = (kind << INDEX_BITS) | index;
        let order = u128::from(time) << SEQUENCE_BITS | u128::from(self.sequence);
        self.heap.push(Reverse(order << (KIND_BITS + INDEX_BITS) | u128::from(what)));
        self.sequence += 1;
    }

    /// Takes the next event, unless it is later than `until`.
    pub(crate) fn next(&mut self, until: u64) -> Option<(u64, Due)> {
        if time(self.heap.peek()?.0) > until {
            return None;
        }
        let Reverse(entry) = self.heap.pop()?;
        Some((time(entry), due(entry)))
    }

    /// All events to come, in no order.
    pub(crate) fn pending(&self) -> impl Iterator<Item = (u64, Due)> {
        self.heap.iter().map(|Reverse(entry)| (time(*entry), due(*entry)))
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.heap.is_empty()
    }
}

const fn time(entry: u128) -> u64 {
    (entry >> (128 - TIME_BITS)) as u64
}

const fn due(entry: u128) -> Due {
    let index = entry as u32 & ((1 << INDEX_BITS) - 1);
    match (entry as u32) >> INDEX_BITS {
        0 => Due::Operation(index),
        1 => Due::Card(index),
        2 => Due::Timer(index),
        3 => Due::Wake(index),
        4 => Due::Kill(index),
        5 => Due::Detect(index),
        6 => Due::Leave(index),
        7 => Due::Learn(index),
        8 => Due::Slice(index),
        9 => Due::Sleep(index),
        10 => Due::Datagram(index),
        _ => Due::Restart(index),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn events_come_by_time_then_by_order_of_entry() {
        let mut agenda = Agenda::default();
        let last = (1 << INDEX_BITS) - 1;
        for (time, due) in [
            (9, Due::Leave(1)),
            (5, Due::Kill(2)),
            (5, Due::Operation(last)),
            (NEVER - 1, Due::Detect(0)),
            (5, Due::Timer(7)),
            (NEVER, Due::Wake(3)),
        ] {
            agenda.enter(time, due);
        }
        let mut seen = Vec::new();
        while let Some(next) = agenda.next(u64::MAX) {
            seen.push(next);
        }
        let expected = [
            (5, Due::Kill(2)),
            (5, Due::Operation(last)),
            (5, Due::Timer(7)),
            (9, Due::Leave(1)),
            (NEVER - 1, Due::Detect(0)),
        ];
        assert_eq!(seen, expected);
    }

    #[test]
    fn nothing_later_than_the_bound() {
        let mut agenda = Agenda::default();
        agenda.enter(10, Due::Wake(0));
        assert_eq!(agenda.next(9), None);
        assert_eq!(agenda.next(10), Some((10, Due::Wake(0))));
        assert!(agenda.is_empty());
    }
}
