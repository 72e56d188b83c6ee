//! The words of post-start-complete-wait: ranks signal that window memory is exposed, and that an
//! access epoch is complete.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Mutex, MutexGuard};

use onesided_fabric::lock;

use crate::locks::{FIXED_BYTES, LOCK_BYTES};

/// The size of the signals in the hidden region of a rank, and what precedes them: the lock's line and
/// the first node, then two words for each peer, which only that peer writes.
pub(crate) const fn hidden_bytes(size: u32) -> u64 {
    FIXED_BYTES + 16 * size as u64
}

/// The offset of the window memory's version: in the lock's line, behind the lock's words.
pub(crate) const VERSION: u64 = LOCK_BYTES - 8;

/// The kinds of signals.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Signal {
    /// How often the peer has exposed its window memory to this rank.
    Exposed = 0,
    /// How many access epochs on this rank the peer has completed.
    Completed = 8,
}

impl Signal {
    pub(super) const fn offset(self, by: u32) -> u64 {
        FIXED_BYTES + 16 * by as u64 + self as u64
    }
}

/// The numbers of exposures to each peer, and of access epochs on it: both sides count, so that a
/// word that arrives early or late is still the right one.
#[derive(Debug, Default)]
pub(crate) struct Counts(Mutex<BTreeMap<u32, Count>>);

#[derive(Debug, Default)]
pub(super) struct Count {
    exposures: u64,
    accesses: u64,
    /// How many leading access epochs are complete, and the later ones that are complete too.
    pub(super) completed: u64,
    pub(super) early: BTreeSet<u64>,
}

impl Counts {
    /// Counts an exposure to a peer; returns its number, from 1 on.
    pub(crate) fn expose(&self, peer: u32) -> u64 {
        let mut counts = self.counts();
        let count = counts.entry(peer).or_default();
        count.exposures += 1;
        count.exposures
    }

    /// The number of the next access epoch on a peer.
    pub(crate) fn next_access(&self, peer: u32) -> u64 {
        self.counts().entry(peer).or_default().accesses + 1
    }

    /// Counts access epochs that begin, by peer and number, unless one of the numbers is taken.
    pub(crate) fn access(&self, numbers: impl Iterator<Item = (u32, u64)> + Clone) -> bool {
        let mut counts = self.counts();
        if numbers.clone().any(|(peer, number)| counts.entry(peer).or_default().accesses + 1 != number) {
            return false;
        }
        numbers.for_each(|(peer, number)| counts.entry(peer).or_default().accesses = number);
        true
    }

    pub(super) fn counts(&self) -> MutexGuard<'_, BTreeMap<u32, Count>> {
        lock(&self.0)
    }
}
