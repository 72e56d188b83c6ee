//! The correct locks, with pauses so long that a few of them exceed the suspicion timeout.

use std::time::Duration;

use onesided_lock_algos::{Backoff, DistributedCounters, FetchAddQueue, Global, Mcs, TestAndSet, Ticket, TwoLevel};

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
