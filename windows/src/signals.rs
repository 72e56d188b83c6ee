//! The words of post-start-complete-wait: ranks signal that window memory is exposed, and that an
//! access epoch is complete.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Mutex, MutexGuard, PoisonError};

use onesided_fabric::Fabric;
use onesided_fabric::remote_memory::{Fault, FaultKind, Notify, Patience, Rank};

use crate::window::{Inner, LOCK_BYTES, Target};

/// The size of the signals in the hidden region of a rank, and what precedes them: the lock's line,
/// then two words for each peer, which only that peer writes.
pub(crate) const fn hidden_bytes(size: u32) -> u64 {
    LOCK_BYTES + 16 * size as u64
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
    const fn offset(self, by: u32) -> u64 {
        LOCK_BYTES + 16 * by as u64 + self as u64
    }
}

/// The numbers of exposures to each peer, and of access epochs on it: both sides count, so that a
/// word that arrives early or late is still the right one.
#[derive(Debug, Default)]
pub(crate) struct Counts(Mutex<BTreeMap<u32, Count>>);

#[derive(Debug, Default)]
struct Count {
    exposures: u64,
    accesses: u64,
    /// How many leading access epochs are complete, and the later ones that are complete too.
    completed: u64,
    early: BTreeSet<u64>,
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

    fn counts(&self) -> MutexGuard<'_, BTreeMap<u32, Count>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<F: Fabric> Inner<F> {
    /// Sends a number to a peer. Posted; a rank that sees it also sees what this rank had completed
    /// before.
    pub(crate) fn signal(&self, to: &Target<F>, signal: Signal, number: u64) -> Result<(), Fault> {
        let word = self.fabric().word_in(&to.locks, signal.offset(self.world.rank()))?;
        drop(self.fabric().write(word, number, Notify::Yes));
        Ok(())
    }

    /// Counts an access epoch as complete, and sends the peer the number of leading complete ones:
    /// an open epoch holds the later ones back, because the peer could mistake them for it.
    pub(crate) fn signal_completed(&self, to: &Target<F>, number: u64) -> Result<(), Fault> {
        let mut counts = self.counts.counts();
        let count = counts.entry(to.rank).or_default();
        count.early.insert(number);
        let before = count.completed;
        while count.early.remove(&(count.completed + 1)) {
            count.completed += 1;
        }
        // Under the mutex, so that a lower number does not follow a higher one.
        if count.completed == before { Ok(()) } else { self.signal(to, Signal::Completed, count.completed) }
    }

    /// Whether a peer has sent this number or a higher one.
    pub(crate) fn has_signalled(&self, from: u32, signal: Signal, number: u64) -> bool {
        let word = self.fabric().word_in(&self.own_locks, signal.offset(from));
        word.and_then(|word| self.fabric().load(word)).is_ok_and(|told| told >= number)
    }

    /// Waits until a peer has sent this number or a higher one.
    pub(crate) fn signalled<'f>(
        &'f self,
        from: u32,
        signal: Signal,
        number: u64,
    ) -> Result<impl Future<Output = Result<u64, Fault>> + Unpin + Send + use<'f, F>, Fault> {
        let word = self.fabric().word_in(&self.own_locks, signal.offset(from))?;
        let from = self.world.fabric_rank(from).ok_or(Fault::of(FaultKind::NoSuchRank, Rank(from)))?;
        Ok(self.fabric().wait_until(word, move |told| told >= number, Patience::on(from)))
    }
}

/// The distinct ranks of a group.
pub(crate) fn group(ranks: &[u32]) -> Vec<u32> {
    let mut ranks = ranks.to_vec();
    ranks.sort_unstable();
    ranks.dedup();
    ranks
}
