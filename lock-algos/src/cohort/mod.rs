//! The queue of a host, as a lock of its own, and what a cohort writes to the lock's word: below the
//! two-level lock, and test-and-set, whose waiters find such words.

mod owner;

use onesided_remote_memory::{Fault, Rank, RemoteMemory};

pub(crate) use self::owner::{CohortOwner, GlobalState, State};
use crate::part::Part;
use crate::recovery::{ANNOUNCED, Trace, are_cut, ended_participant, has_ended, none_announced, participant_ended};
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
pub(crate) fn cohort_may_have_ended<'m, M: RemoteMemory>(
    lock: &LockUse<'m, M, impl LockContext<'m, M>>,
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
pub(crate) async fn cohort_ended<'m, M: RemoteMemory>(
    lock: &LockUse<'m, M, impl LockContext<'m, M>>,
    seen: &mut (u64, u64),
    found: u64,
) -> Result<Option<Fault>, Fault> {
    let LockUse { memory, context, .. } = *lock;
    let Some(owner_word) = CohortOwner::of(found) else { return Ok(None) };
    // First: an owner that joins the host's queue after its node was scanned knows of the death.
    if !has_ended_member(memory, context, owner_word.leader()) {
        return Ok(None);
    }
    if !are_cut(memory, context, |rank| context.host_of(rank) == context.host_of(owner_word.leader())).await? {
        return Ok(None);
    }
    // Twice: an owner that joined during the first scan is announced by now, and changes the owner
    // word when it hands over.
    for _ in 0..2 {
        if !holds_nobody(memory, context, owner_word.leader()).await? {
            *seen = (found, memory.now());
            return Ok(None);
        }
    }
    Ok(Some(member_ended(memory, context, owner_word.leader()).await))
}

/// Whether no live rank waits in a host's queue, or was admitted by it. If a rank of the host has
/// died, a later owner changes the cohort's owner word before it holds the lock.
async fn holds_nobody<'m, M: RemoteMemory>(
    memory: &M,
    context: impl LockContext<'m, M>,
    leader: Rank,
) -> Result<bool, Fault> {
    none_announced(memory, Part::of_host(context, leader)).await
}

/// The ranks of a host that have ended, as users of the lock's home or of the host's queue.
fn ended_on<'a, 'm, M: RemoteMemory>(
    memory: &'a M,
    context: impl LockContext<'m, M> + 'a,
    leader: Rank,
) -> impl Iterator<Item = Rank> + 'a {
    let host = context.host_of(leader);
    let has_ended = move |rank: &Rank| has_ended(memory, context, *rank) || memory.has_failed(leader, *rank);
    (0..memory.size()).map(Rank).filter(move |rank| context.host_of(*rank) == host).filter(has_ended)
}

/// Whether there is one.
pub(crate) fn has_ended_member<'m, M: RemoteMemory>(
    memory: &M,
    context: impl LockContext<'m, M>,
    leader: Rank,
) -> bool {
    memory.ends() != 0 && ended_on(memory, context, leader).next().is_some()
}

/// The fault of a holder on a host: of a rank of it that has ended and was in the queue, as far as
/// the nodes tell, or else of any.
pub(crate) async fn member_ended<'m, M: RemoteMemory>(
    memory: &M,
    context: impl LockContext<'m, M>,
    leader: Rank,
) -> Fault {
    match ended_participant(memory, Part::of_host(context, leader)).await {
        Some(ended) if ended.trace != Trace::None => ended.fault(memory),
        _ => participant_ended(memory, ended_on(memory, context, leader).next().unwrap_or(leader)),
    }
}
