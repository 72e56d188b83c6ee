//! The queue of a host, as a lock of its own, and what a cohort writes to the lock's word: below the
//! two-level lock, and test-and-set, whose waiters find such words.

mod owner;

use onesided_remote_memory::{Fault, Rank, RemoteMemory};

pub(crate) use self::owner::{CohortOwner, GlobalState, State};
use crate::backoff::mixed;
use crate::recovery::{ANNOUNCED, Trace, are_cut, ended_participant, has_ended, none_announced, participant_ended};
use crate::{LockAlgorithm, LockContext, LockUse, Owner, Ticket};

// Host words.
/// The queue of the host's ranks.
const QUEUE: usize = 0;
/// The state of the lock on this host.
pub(crate) const STATE: usize = QUEUE + <Ticket as LockAlgorithm>::HOME_WORDS;

/// The word of a node that announces an owner in the queue of its host.
pub(crate) const AT_HOST: usize = ANNOUNCED + 1;

/// How long an owner word of a cohort may stay unchanged, after a rank has died, before the host's
/// ranks are scanned for a live holder, in nanoseconds.
const PATIENCE: u64 = 10_000_000;

/// The context of a host's queue: at the cohort home `leader`, with a word of each node for itself.
#[derive(Clone, Copy, Debug)]
pub(crate) struct AtHost<P> {
    pub(crate) context: P,
    pub(crate) leader: Rank,
}

impl<P> AtHost<P> {
    /// The state of the lock on this host, as a word.
    pub(crate) fn state<'m, M: RemoteMemory>(&self) -> Result<M::Word<'m>, Fault>
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
    none_announced(memory, AtHost { context, leader }).await
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
    match ended_participant(memory, AtHost { context, leader }).await {
        Some(ended) if ended.trace != Trace::None => ended.fault(memory),
        _ => participant_ended(memory, ended_on(memory, context, leader).next().unwrap_or(leader)),
    }
}
