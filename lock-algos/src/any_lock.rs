//! A lock that is selected at run time.

use crate::owner::EXCLUSIVE;
use crate::{
    DedicatedThread, DistributedCounters, EventThread, FetchAddQueue, LockAlgorithm, Mcs, Mode, Owner, TestAndSet,
    Ticket, TwoLevel,
};

/// One of the locks of this crate; all of them are here.
#[derive(Clone, Copy, Debug)]
pub enum AnyLock {
    /// See [`TestAndSet`].
    TestAndSet(TestAndSet),
    /// See [`Mcs`].
    Mcs(Mcs),
    /// See [`Ticket`].
    Ticket(Ticket),
    /// See [`FetchAddQueue`].
    FetchAddQueue(FetchAddQueue),
    /// See [`DistributedCounters`].
    DistributedCounters(DistributedCounters),
    /// See [`TwoLevel`].
    TwoLevel(TwoLevel),
    /// See [`DedicatedThread`].
    DedicatedThread(DedicatedThread),
    /// See [`EventThread`].
    EventThread(EventThread),
}

/// What is done with a lock of whatever type: see [`AnyLock::with`].
pub trait WithLock {
    /// Its result.
    type Output;

    /// Does it.
    fn with<A: LockAlgorithm + Copy>(self, lock: A) -> Self::Output;
}

impl AnyLock {
    /// Does something with the lock of its own type.
    pub fn with<W: WithLock>(self, does: W) -> W::Output {
        match self {
            Self::TestAndSet(lock) => does.with(lock),
            Self::Mcs(lock) => does.with(lock),
            Self::Ticket(lock) => does.with(lock),
            Self::FetchAddQueue(lock) => does.with(lock),
            Self::DistributedCounters(lock) => does.with(lock),
            Self::TwoLevel(lock) => does.with(lock),
            Self::DedicatedThread(lock) => does.with(lock),
            Self::EventThread(lock) => does.with(lock),
        }
    }
}

impl Default for AnyLock {
    fn default() -> Self {
        Self::TestAndSet(TestAndSet::default())
    }
}

/// Whether an owner with these bits and in this mode releases by [`TestAndSet::release_link`]
/// alone. No other lock marks its owners so.
#[inline]
#[must_use]
pub const fn held_by_word(owner: u64, mode: Mode) -> bool {
    const MARK: u64 = EXCLUSIVE | (Owner::NO_SLOT as u64) << 26;
    matches!(mode, Mode::Exclusive) && owner & MARK == MARK
}
