//! The correct locks, with pauses so long that a few of them exceed the suspicion timeout.

use std::time::Duration;

use onesided_lock_algos::{
    Backoff, DistributedCounters, FetchAddQueue, Global, Mcs, Mode, TestAndSet, Ticket, TwoLevel,
};

fn pauses() -> Backoff {
    Backoff::new([1_000, 1_000_000, 400_000_000].map(Duration::from_nanos))
}

pub(crate) fn right() -> TestAndSet {
    TestAndSet::new(pauses())
}

pub(crate) fn mcs() -> Mcs {
    Mcs::new(pauses())
}

/// With counters of `BITS` bits.
pub(crate) fn ticket<const BITS: u32>() -> Ticket<BITS> {
    Ticket::with_bits(pauses())
}

/// The same, with rings of `RING` entries.
pub(crate) fn queue<const BITS: u32, const RING: usize>() -> FetchAddQueue<BITS, RING> {
    FetchAddQueue::with_bits(pauses())
}

/// With room for 2<sup>`BITS`</sup> - 1 owners of a group.
pub(crate) fn global<A, const BITS: u32>(lock: A) -> Global<A, BITS> {
    Global::with_bits(lock, pauses())
}

pub(crate) fn distributed<const BITS: u32>() -> DistributedCounters<BITS> {
    DistributedCounters::with_bits(pauses())
}

/// A host hands it over this many times in a row, and all its owners queue.
pub(crate) fn two_level(handovers: u16) -> TwoLevel {
    TwoLevel::new(pauses(), pauses()).handovers(handovers).bypasses(0)
}

/// What a ticket, or a place in the queue, adds to the word, as the documentation says.
pub(crate) const fn taking(bits: u32, mode: Mode) -> u64 {
    match mode {
        Mode::Shared => 1 << 1,
        Mode::Exclusive => 1 << (bits + 2),
    }
}

pub(crate) const fn returning(bits: u32, mode: Mode) -> u64 {
    match mode {
        Mode::Shared => 1 << (2 * bits + 3),
        Mode::Exclusive => 1 << (64 - bits),
    }
}

/// A free lock with these counters.
pub(crate) const fn free_at(bits: u32, readers: u64, owners: u64) -> u64 {
    let full = (1 << bits) - 1;
    let readers = (readers & full) * (taking(bits, Mode::Shared) | returning(bits, Mode::Shared));
    let owners = (owners & full) * (taking(bits, Mode::Exclusive) | returning(bits, Mode::Exclusive));
    readers | owners
}
