//! Recovery: how a lock is restored after the end of a rank that its words do not show: it died, or
//! left and holds the lock still, or waits for it.
//!
//! ```text
//! announce   every owner: its node names the lock, from before its first operation until its last
//!            one is complete                                                       [announcement]
//! suspect    a waiter, 10 ms after a rank has ended that was announced, or 1 s if that rank's
//!            memory is gone: if fewer live owners are announced than the word counts,
//!            compare-swap(word, word, under recovery)                                 [suspicion]
//! leave      the word rejects arrivals; waiters retract themselves; holders release as usual
//! take over  a rank that finds no live owner announced, and every ended one cut           [scan]
//!            if the word may still have an exclusive owner: the lock is poisoned; fail, or recover
//!            compare-swap(word, under recovery, this owner alone)
//! ```
//!
//! No rank leads a recovery, so the death of a recovering rank does not matter: any rank may
//! suspect, scan and take over, and the compare-swap decides.
//!
//! # Poisoned locks
//!
//! A reader that ended changed nothing, so the lock is restored without notice. A lock whose exclusive
//! owner ended is *poisoned*: its data may be half written. It stays under recovery, and acquires
//! fail, until one [recovers](crate::Intent::recovers) it. An exclusive owner that lives can leave
//! it poisoned as well
//! ([`LockAlgorithm::release_poisoned`](crate::LockAlgorithm::release_poisoned)): it writes the
//! fault to the [`POISON`] word at the home and stays in the lock's word.
//!
//! # Ranks that are believed dead
//!
//! A rank whose host falls silent counts as dead, and may live on; a rank whose connection to the
//! home is lost does live. Each live rank cuts it, which ends its access to that rank's memory, but
//! not all at the same time. So a lock is taken from a failed rank only when the home has cut it,
//! and, where nodes are written by others or counts name no rank, every live rank that may
//! participate.
//!
//! # Ranks that leave
//!
//! A rank that leaves with an acquire that is cancelled and not finished gives up its place
//! ([`WaitPolicy::Leaving`](crate::WaitPolicy::Leaving)): it puts the word under recovery and
//! retracts itself, so that all waiters start over, and no rank is suspected. A rank that left and
//! is announced still, because a guard was leaked or there was no time for that, is found as a dead
//! one is. One answer for all scans: [`Participants::has_ended`].
//!
//! # Operations that fail
//!
//! An operation whose outcome is unknown costs its rank the connection to the memory concerned
//! ([`RemoteMemory`]). If that is the home, the rank has failed there: its acquire or release ends
//! with the fault, and the others recover the lock as after its death. If it is another rank's node
//! or counter, the rank puts the lock under recovery where the others might wait for it.
//!
//! # Late ranks
//!
//! A rank that scanned the participants, was stopped, and swaps late must fail: meanwhile the lock
//! may have been taken, released, and put under recovery again. So no two recoveries may use the
//! same word: a nonce ([`nonce`]) or the counts in the word distinguish them.

mod announcement;
mod bounded;
mod scan;
mod suspicion;

use std::future::Future;
use std::pin::Pin;

use onesided_remote_memory::{Fault, FaultKind, Notify, Rank, RemoteMemory};

pub use self::announcement::announces;
pub(crate) use self::announcement::{
    ANNOUNCED, Announcement, announce, announce_waiting, announcement_of, is_announced, retract,
};
pub(crate) use self::bounded::{CountingWord, join};
pub(crate) use self::scan::{Participants, Trace, is_lost, owner_ended, participant_ended};
pub(crate) use self::suspicion::Suspicion;
use crate::backoff::{Pauses, mixed};
use crate::{Held, IntentFn, LockContext, LockUse, Mode, Owner};

/// The word at the home with the fault for which an owner that lives left the lock poisoned, or 0.
/// Read only under recovery.
pub(crate) const POISON: usize = 1;

/// A future of its own. What is rare and large is boxed: in the future of an acquire it would take
/// room of every waiting rank.
pub(crate) type Boxed<'a, T> = Pin<Box<dyn Future<Output = T> + Send + 'a>>;

/// How long the news of a death may take once the memory of the rank is gone, in nanoseconds. A rank
/// whose memory is gone for longer has closed its window.
const DETECTION_TIMEOUT: u64 = 10_000_000_000;

/// The poll interval of a waiter, in nanoseconds.
pub(crate) const POLL_INTERVAL: u64 = 10_000_000;

/// A nonce that distinguishes a recovery of a word from every other one, with high probability. An
/// algorithm takes as many bits as fit.
pub(crate) fn nonce<M: RemoteMemory>(memory: &M, owner: Owner) -> u64 {
    mixed(owner.to_bits() ^ memory.now().rotate_left(Owner::BITS))
}

/// A lock's word that can be put under recovery.
pub(crate) trait RecoverableWord: Copy + Eq + Send + Sync {
    /// Whether others write to the node of a waiter, until no owner is announced.
    const NODE_IS_SHARED: bool = false;

    fn from_bits(bits: u64) -> Self;

    fn to_bits(self) -> u64;

    fn is_recovering(self) -> bool;

    /// The word under recovery, because owners that it counts are suspected.
    fn recovering(self, nonce: u64) -> Self;

    /// Of a word under recovery in which no live owner is left: whether an exclusive owner is.
    fn may_be_poisoned(self) -> bool;

    /// Of such a word: how many of the ended owners it explains by its readers, if it was put under
    /// recovery while an exclusive owner may have lived.
    fn explained(self) -> Option<u64> {
        None
    }

    /// The rank for which the word was put under recovery.
    fn suspected(self) -> Option<Rank> {
        None
    }

    /// Resets the node of an owner that is not in the word. No other rank writes to the node.
    fn reset_node<'m, P: LockContext<'m>>(_memory: &P::Memory, _context: P) -> Result<(), Fault> {
        Ok(())
    }
}

/// The end of a recovery, for one waiter.
pub(crate) enum Reopened<W> {
    /// This owner holds the lock.
    Taken(Held),
    /// The word is not under recovery.
    Open(W),
}

impl Announcement {
    /// Waits until the word is not under recovery, or takes the lock over. This owner is not in the
    /// word, and its announcement is retracted unless it takes over. `taken`: the word in which it
    /// alone holds the lock; it equals no earlier word under recovery.
    ///
    /// # Errors
    /// `Closed` and `TimedOut` by the intent, the fault of a poisoned lock, and those of the
    /// operations.
    pub(crate) fn await_reopening<'a, 'm: 'a, W: RecoverableWord + 'a>(
        &'a mut self,
        lock: &'a LockUse<'m, impl LockContext<'m>>,
        intent: IntentFn<'a>,
        pauses: &'a mut Pauses<'_>,
        taken: impl Fn(W, Mode) -> W + Send + 'a,
    ) -> Boxed<'a, Result<Reopened<W>, Fault>> {
        Box::pin(async move {
            let LockUse { memory, context, home: word, mode, .. } = *lock;
            self.retract(lock)?;
            pauses.restart();
            let mut gone_since = None;
            loop {
                let found = W::from_bits(memory.read(word).await?);
                if !found.is_recovering() {
                    return Ok(Reopened::Open(found));
                }
                let may_end = !W::NODE_IS_SHARED || intent().is_leaving(); // its node is not used again then
                if may_end && intent().is_over() {
                    return Err(Fault::new(FaultKind::Closed));
                }
                // An owner that is announced after the scan has changed the word.
                let waits = !lock.participants().none_announced().await?;
                if waits || lock.participants().will_end(found, &mut gone_since).await {
                    if !(intent().is_patient() || W::NODE_IS_SHARED && intent().is_over()) {
                        return Err(intent().given_up());
                    }
                    memory.pause(word, pauses.next_nanos()).await;
                    continue;
                }
                W::reset_node(memory, context)?;
                let (intent, left) = (intent(), lock.participants().poison(found).await?);
                if intent.is_over() {
                    return Err(Fault::new(FaultKind::Closed));
                }
                let held = match left {
                    Some(fault) if intent.recovers => Held::after(fault, Mode::Exclusive),
                    // Another owner may have recovered it meanwhile.
                    Some(fault) if W::from_bits(memory.read(word).await?) == found => return Err(fault),
                    Some(_) => continue,
                    None => Held::cleanly(mode),
                };
                self.announce(lock)?;
                let new = taken(found, held.mode).to_bits();
                if memory.compare_swap(word, found.to_bits(), new).await? == found.to_bits() {
                    if let Some(left) = left {
                        // Unless another owner of the lock-all word has noted its own meanwhile.
                        memory.compare_swap(context.home(POISON)?, left.to_bits(), 0).await?;
                    }
                    return Ok(Reopened::Taken(held));
                }
                self.retract(lock)?;
            }
        })
    }
}

impl<'m, P: LockContext<'m>> Participants<'m, P> {
    /// Whether the rank for which the word was put under recovery has gone, and its end may still become
    /// known.
    async fn will_end<W: RecoverableWord>(&self, found: W, gone_since: &mut Option<u64>) -> bool {
        match found.suspected() {
            Some(rank) if !self.has_ended(rank) && self.has_gone(rank).await => {
                let now = self.memory.now();
                now.saturating_sub(*gone_since.get_or_insert(now)) < DETECTION_TIMEOUT
            }
            _ => false,
        }
    }

    /// The fault of a poisoned lock.
    async fn poison<W: RecoverableWord>(&self, found: W) -> Result<Option<Fault>, Fault> {
        let Self { memory, context } = *self;
        if !found.may_be_poisoned() {
            return Ok(None);
        }
        let noted = Fault::from_bits(memory.read(context.home(POISON)?).await?);
        if noted.is_some() {
            return Ok(noted);
        }
        if let Some(explained) = found.explained()
            && self.ended_owners().await <= explained
        {
            return Ok(None);
        }
        Ok(match found.suspected() {
            Some(rank) if self.has_ended(rank) => Some(participant_ended(memory, rank)),
            // It has closed its window.
            Some(rank) if self.has_gone(rank).await => Some(Fault::of(FaultKind::ParticipantLeft, rank)),
            _ => self.ended().await.map(|ended| ended.fault(memory)),
        })
    }
}

/// Notes the fault for which this exclusive owner leaves the lock poisoned. It stays in the lock's
/// word, which it puts under recovery next.
pub(crate) async fn note_poison<'m>(lock: &LockUse<'m, impl LockContext<'m>>, why: Fault) -> Result<(), Fault> {
    lock.memory.write(lock.context.home(POISON)?, why.to_bits(), Notify::No).await.map(drop)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn announcements_of_locks_differ_from_idle() {
        assert_eq!([0, 1, 7, (1 << 61) - 1].map(announcement_of), [1, 2, 8, 1 << 61]);
    }
}
