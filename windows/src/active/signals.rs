//! The words by which ranks tell each other that a part is exposed, and that an access of it is complete.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Mutex, MutexGuard, PoisonError};

use crate::locks::layout::LOCK_BYTES;

/// How many bytes of its hidden region a rank of a world of this size has for signals, and before them: the lock's line,
/// then two words for each peer, which that peer alone writes.
pub(crate) const fn hidden_bytes(size: u32) -> u64 {
    LOCK_BYTES + 16 * size as u64
}

/// Where the version of the part lies: in the lock's line, behind whatever words a lock has.
pub(crate) const VERSION: u64 = LOCK_BYTES - 8;

/// What a peer tells.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Signal {
    /// How often it has exposed its part to this rank.
    Exposed = 0,
    /// How many accesses of this rank's part it has completed.
    Completed = 8,
}

impl Signal {
    pub(super) const fn offset(self, by: u32) -> u64 {
        LOCK_BYTES + 16 * by as u64 + self as u64
    }
}

/// How often this rank has exposed its part to each peer, and accessed the peer's: both sides count, so that a word that
/// comes early, or late, is still the right one.
#[derive(Debug, Default)]
pub(crate) struct Counts(Mutex<BTreeMap<u32, Count>>);

#[derive(Debug, Default)]
pub(super) struct Count {
    exposures: u64,
    accesses: u64,
    /// How many of the first accesses are complete, and those behind them that are complete as well.
    pub(super) completed: u64,
    pub(super) early: BTreeSet<u64>,
}

impl Counts {
    /// Counts an exposure to a peer; gives its number, from 1 on.
    pub(crate) fn expose(&self, peer: u32) -> u64 {
        let mut counts = self.counts();
        let count = counts.entry(peer).or_default();
        count.exposures += 1;
        count.exposures
    }

    /// The number that the next access of a peer's part will have.
    pub(crate) fn next_access(&self, peer: u32) -> u64 {
        self.counts().entry(peer).or_default().accesses + 1
    }

    /// Counts accesses that begin, by peer and number, unless one of the numbers has been taken meanwhile.
    pub(crate) fn access(&self, numbers: impl Iterator<Item = (u32, u64)> + Clone) -> bool {
        let mut counts = self.counts();
        if numbers.clone().any(|(peer, number)| counts.entry(peer).or_default().accesses + 1 != number) {
            return false;
        }
        numbers.for_each(|(peer, number)| counts.entry(peer).or_default().accesses = number);
        true
    }

    pub(super) fn counts(&self) -> MutexGuard<'_, BTreeMap<u32, Count>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
