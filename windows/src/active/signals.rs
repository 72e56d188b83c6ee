//! The words by which ranks tell each other that a part is exposed, and that an access of it is complete.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Mutex, MutexGuard, PoisonError};

use onesided_fabric::Fabric;
use onesided_fabric::remote_memory::{Fault, FaultKind, Notify, Patience, Rank};

use crate::locks::layout::LOCK_BYTES;
use crate::window::inner::Inner;
use crate::window::target::Target;

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
    const fn offset(self, by: u32) -> u64 {
        LOCK_BYTES + 16 * by as u64 + self as u64
    }
}

/// How often this rank has exposed its part to each peer, and accessed the peer's: both sides count, so that a word that
/// comes early, or late, is still the right one.
#[derive(Debug, Default)]
pub(crate) struct Counts(Mutex<BTreeMap<u32, Count>>);

#[derive(Debug, Default)]
struct Count {
    exposures: u64,
    accesses: u64,
    /// How many of the first accesses are complete, and those behind them that are complete as well.
    completed: u64,
    early: BTreeSet<u64>,
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

    fn counts(&self) -> MutexGuard<'_, BTreeMap<u32, Count>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<F: Fabric> Inner<F> {
    /// Tells a peer a number. Posted; whoever sees it sees what this rank had completed before.
    pub(crate) fn signal(&self, to: &Target<F>, signal: Signal, number: u64) -> Result<(), Fault> {
        let word = self.fabric().word_in(&to.locks, signal.offset(self.world.rank()))?;
        drop(self.fabric().write(word, number, Notify::Yes));
        Ok(())
    }

    /// Counts an access as complete, and tells the peer how many of the first are: one that is open keeps those behind it
    /// back, whose exposures it might else be taken for.
    pub(crate) fn signal_completed(&self, to: &Target<F>, number: u64) -> Result<(), Fault> {
        let mut counts = self.counts.counts();
        let count = counts.entry(to.rank).or_default();
        count.early.insert(number);
        let before = count.completed;
        while count.early.remove(&(count.completed + 1)) {
            count.completed += 1;
        }
        // Under the mutex, so that a lower number does not come behind a higher one.
        if count.completed == before { Ok(()) } else { self.signal(to, Signal::Completed, count.completed) }
    }

    /// Whether a peer has told this number, or one above it.
    pub(crate) fn has_signalled(&self, from: u32, signal: Signal, number: u64) -> bool {
        let word = self.fabric().word_in(&self.memory.hidden, signal.offset(from));
        word.and_then(|word| self.fabric().load(word)).is_ok_and(|told| told >= number)
    }

    /// Waits until a peer has told this number, or one above it.
    pub(crate) fn signalled<'f>(
        &'f self,
        from: u32,
        signal: Signal,
        number: u64,
    ) -> Result<impl Future<Output = Result<u64, Fault>> + Unpin + Send + use<'f, F>, Fault> {
        let word = self.fabric().word_in(&self.memory.hidden, signal.offset(from))?;
        let from = self.world.fabric_rank(from).ok_or(Fault::of(FaultKind::NoSuchRank, Rank(from)))?;
        Ok(self.fabric().wait_until(word, move |told| told >= number, Patience::on(from)))
    }
}

/// The ranks of a group, each once.
pub(crate) fn group(ranks: &[u32]) -> Vec<u32> {
    let mut ranks = ranks.to_vec();
    ranks.sort_unstable();
    ranks.dedup();
    ranks
}
