//! The queue of a host, as a lock of its own, and what a cohort writes to the lock's word: below the
//! two-level lock, and test-and-set, whose waiters find such words.

mod owner;

use onesided_remote_memory::{Fault, Rank, RemoteMemory};

pub(crate) use self::owner::{CohortOwner, GlobalState, State};
use crate::part::Part;
use crate::recovery::{ANNOUNCED, Participants, Trace, participant_ended};
use crate::{LockAlgorithm, LockContext, LockUse, Ticket};

// Host words.
/// The queue of the host's ranks.
pub(crate) const QUEUE: usize = 0;
/// The state of the lock on this host.
pub(crate) const STATE: usize = QUEUE + <Ticket as LockAlgorithm>::HOME_WORDS;

/// The word of a node that announces an owner in the queue of its host.
pub(crate) const AT_HOST: usize = ANNOUNCED + 1;

/// How long an owner word of a cohort may stay unchanged, after a rank has died, before the host's
/// ranks are scanned for a live holder, in nanoseconds.
const PATIENCE: u64 = 10_000_000;

/// Whether a word names a cohort. A host holds the lock then, and has ended as its holder when no
/// live rank waits in its queue or holds the lock.
pub(crate) const fn is_cohort(word: u64) -> bool {
    CohortOwner::of(word).is_some()
}

/// Whether the cohort that holds the lock may have [ended](cohort_ended), so that its host is to be
/// scanned. `seen`: its owner word, and when it was first seen. An acquire that may not wait scans
/// at once.
pub(crate) fn cohort_may_have_ended<'m>(
    lock: &LockUse<'m, impl LockContext<'m>>,
    seen: &mut (u64, u64),
    found: u64,
    is_patient: bool,
) -> bool {
    if lock.memory.ends() == 0 {
        return false;
    }
    let now = lock.memory.now();
    if seen.0 != found {
        *seen = (found, now);
    }
    !is_patient || now.saturating_sub(seen.1) >= PATIENCE
}

/// The fault of the holder that the home's word names, if that cohort has ended.
pub(crate) async fn cohort_ended<'m>(
    lock: &LockUse<'m, impl LockContext<'m>>,
    seen: &mut (u64, u64),
    found: u64,
) -> Result<Option<Fault>, Fault> {
    let Some(owner_word) = CohortOwner::of(found) else { return Ok(None) };
    let cohort = cohort(lock, owner_word.leader());
    // First: an owner that joins the host's queue after its node was scanned knows of the death.
    if !cohort.has_ended_member() || !lock.participants().are_cut(|rank| cohort.context.may_participate(rank)).await? {
        return Ok(None);
    }
    // Twice: an owner that joined during the first scan is announced by now, and changes the owner
    // word when it hands over. If a rank of the host has died, a later owner changes the cohort's owner
    // word before it holds the lock.
    for _ in 0..2 {
        if !cohort.none_announced().await? {
            *seen = (found, lock.memory.now());
            return Ok(None);
        }
    }
    Ok(Some(cohort.ended_member().await))
}

/// The ranks of a host, as participants in its queue at `leader`.
pub(crate) fn cohort<'m, P: LockContext<'m>>(lock: &LockUse<'m, P>, leader: Rank) -> Participants<'m, Part<P>> {
    Participants { memory: lock.memory, context: Part::of_host(lock.context, leader) }
}

impl<'m, P: LockContext<'m>> Participants<'m, Part<P>> {
    /// The ranks of the host that have ended, as users of the lock's home or of the host's queue.
    fn ended_members(&self) -> impl Iterator<Item = Rank> {
        let at_home = Participants { memory: self.memory, context: self.context.context };
        self.all().filter(move |rank| at_home.has_ended(*rank) || self.has_ended(*rank))
    }

    /// Whether there is one.
    pub(crate) fn has_ended_member(&self) -> bool {
        self.memory.ends() != 0 && self.ended_members().next().is_some()
    }

    /// The fault of a holder on the host: of a rank of it that has ended and was in the queue, as far as
    /// the nodes tell, or else of any.
    pub(crate) async fn ended_member(&self) -> Fault {
        match self.ended().await {
            Some(ended) if ended.trace != Trace::None => ended.fault(self.memory),
            _ => {
                let ended = self.ended_members().next().unwrap_or(self.context.home_rank());
                participant_ended(self.memory, ended)
            }
        }
    }
}
