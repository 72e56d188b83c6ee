//! The queue of a host, as a lock of its own.

use onesided_remote_memory::{Fault, FaultKind, Liveness, Rank, RemoteMemory};

use super::cohort_owner::CohortOwner;
use super::note::AT_HOST;
use super::{QUEUE, STATE};
use crate::backoff::mixed;
use crate::recovery::{are_cut, has_ended, none_announced};
use crate::{LockContext, LockUse, Owner};

/// How long an owner word of a cohort may stay unchanged, after a rank has died, before the host's
/// ranks are scanned for a live holder, in nanoseconds.
const PATIENCE: u64 = 10_000_000;

/// The context of a host's queue: at the cohort home `leader`, with a word of each node for itself.
#[derive(Clone, Copy, Debug)]
pub(super) struct AtHost<P> {
    pub(super) context: P,
    pub(super) leader: Rank,
}

impl<P> AtHost<P> {
    /// The state of the lock on this host, as a word.
    pub(super) fn state<'m, M: RemoteMemory>(&self) -> Result<M::Word<'m>, Fault>
    where
        P: LockContext<'m, M>,
    {
        self.context.host_word(self.leader, STATE)
    }
}

impl<'m, M: RemoteMemory, P: LockContext<'m, M>> LockContext<'m, M> for AtHost<P> {
    fn home(&self, index: usize) -> Result<M::Word<'m>, Fault> {
        self.context.host_word(self.leader, QUEUE + index)
    }

    fn node_of(&self, rank: Rank, slot: u16, index: usize) -> Result<M::Word<'m>, Fault> {
        self.context.node_of(rank, slot, AT_HOST + index)
    }

    fn node(&self, index: usize) -> Result<M::Word<'m>, Fault> {
        self.context.node(AT_HOST + index)
    }

    fn slots(&self) -> u16 {
        self.context.slots()
    }

    fn owners(&self) -> u64 {
        self.context.owners()
    }

    fn is_counted(&self) -> bool {
        self.context.is_counted()
    }

    fn slots_in_use(&self, rank: Rank) -> Result<Option<M::Word<'m>>, Fault> {
        self.context.slots_in_use(rank)
    }

    fn home_rank(&self) -> Rank {
        self.leader
    }

    fn host_of(&self, rank: Rank) -> u32 {
        self.context.host_of(rank)
    }

    fn may_participate(&self, rank: Rank) -> bool {
        self.context.host_of(rank) == self.context.host_of(self.leader)
    }

    /// Queues of one lock at different ranks are different locks, with high probability; if two
    /// coincide, recovery waits for the owners of the other one as well.
    fn lock(&self) -> u64 {
        mixed(self.context.lock() ^ mixed(u64::from(self.leader.0) + 1)) >> 3
    }

    fn owner(&self) -> Owner {
        self.context.owner()
    }
}

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
    if lock.memory.failed_at(lock.context.home_rank()).is_none() {
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
    let Some(dead) = lost_on(memory, context, owner_word.leader()) else { return Ok(None) };
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
    Ok(Some(Fault::of(FaultKind::ParticipantDied, dead)))
}

/// Whether no live rank waits in a host's queue, or was admitted by it. If a rank of the host has
/// died, a later owner changes the cohort's owner word before it holds the lock.
async fn holds_nobody<'m, M: RemoteMemory>(
    memory: &M,
    context: impl LockContext<'m, M>,
    leader: Rank,
) -> Result<bool, Fault> {
    none_announced(memory, AtHost { context, leader }).await
}

/// A rank of a host that has failed at the lock's home; any of them if all have ended.
pub(super) fn lost_on<'m, M: RemoteMemory>(memory: &M, context: impl LockContext<'m, M>, leader: Rank) -> Option<Rank> {
    let home = context.home_rank();
    memory.failed_at(home)?;
    let host = context.host_of(leader);
    let mut there = (0..memory.size()).map(Rank).filter(|rank| context.host_of(*rank) == host);
    let failed = there.clone().find(|rank| memory.has_failed(home, *rank));
    failed.or_else(|| there.all(|rank| memory.liveness(rank) != Liveness::Alive).then_some(leader))
}

/// The fault of a holder on a host: a rank of it that has ended, if one has, or the one that was
/// reported.
pub(super) fn member_died<'m, M: RemoteMemory>(
    memory: &M,
    context: impl LockContext<'m, M>,
    leader: Rank,
    failed_rank: Rank,
) -> Fault {
    let host = context.host_of(leader);
    let gone = |rank: &Rank| context.host_of(*rank) == host && has_ended(memory, context, *rank);
    let dead = (0..memory.size()).map(Rank).find(gone).unwrap_or(failed_rank);
    Fault::of(FaultKind::ParticipantDied, dead)
}
