//! Exposures and completions told to peers, and the waits for theirs.

use onesided_fabric::remote_memory::{Fault, FaultKind, Notify, Patience, Rank};
use onesided_fabric::{Fabric, Wait, telling};

use crate::active::signals::Signal;
use crate::window::inner::Inner;
use crate::window::target::Target;

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
        let word = self.fabric().word_in(&self.memory.hidden, signal.offset(from));
        word.and_then(|word| self.fabric().load(word)).is_ok_and(|told| told >= number)
    }

    /// Waits until a peer has sent this number or a higher one.
    pub(crate) fn signalled<'f>(
        &'f self,
        from: u32,
        signal: Signal,
        number: u64,
    ) -> Result<impl Future<Output = Result<u64, Fault>> + Unpin + Send + use<'f, F>, Fault> {
        let word = self.fabric().word_in(&self.memory.hidden, signal.offset(from))?;
        let from = self.world.fabric_rank(from).ok_or(Fault::of(FaultKind::NoSuchRank, Rank(from)))?;
        let wait = self.fabric().wait_until(word, move |told| told >= number, Patience::on(from));
        Ok(telling(wait, move || {
            let what = match signal {
                Signal::Exposed => "the exposure (post) of",
                Signal::Completed => "the completion (complete) of an epoch on",
            };
            let what = format!("{what} window \"{}\"", self.name);
            Some(Wait { rank: self.fabric().rank(), awaited: vec![from], since: None, what })
        }))
    }
}

/// The distinct ranks of a group.
pub(crate) fn group(ranks: &[u32]) -> Vec<u32> {
    let mut ranks = ranks.to_vec();
    ranks.sort_unstable();
    ranks.dedup();
    ranks
}
