//! The queue of a host, as a lock of its own.

use onesided_remote_memory::{Fault, FaultKind, Liveness, Rank, RemoteMemory};

use super::mark::{Mark, State};
use super::{AT_HOST, QUEUE, STATE};
use crate::backoff::mixed;
use crate::recovery::nobody_counts;
use crate::test_and_set::dead_owner;
use crate::{LockContext, Owner};

/// For how long somebody keeps the lock before it is asked whether anybody of that host lives who may have it, in
/// nanoseconds, where some rank has died.
const PATIENCE: u64 = 10_000_000;

/// Where the queue of a host lies: at this rank of it, with a word of each node's own.
#[derive(Clone, Copy, Debug)]
pub(super) struct AtHost<P> {
    pub(super) place: P,
    pub(super) leader: Rank,
}

impl<P> AtHost<P> {
    /// How it stands with the lock here, as a word.
    pub(super) fn state<'m, M: RemoteMemory>(&self) -> Result<M::Word<'m>, Fault>
    where
        P: LockContext<'m, M>,
    {
        self.place.host_word(self.leader, STATE)
    }

    pub(super) async fn standing<'m, M: RemoteMemory>(&self, memory: &M) -> Result<State, Fault>
    where
        P: LockContext<'m, M>,
    {
        memory.read(self.state()?).await.map(State::of)
    }
}

impl<'m, M: RemoteMemory, P: LockContext<'m, M>> LockContext<'m, M> for AtHost<P> {
    fn home(&self, index: usize) -> Result<M::Word<'m>, Fault> {
        self.place.host_word(self.leader, QUEUE + index)
    }

    fn node_of(&self, rank: Rank, slot: u16, index: usize) -> Result<M::Word<'m>, Fault> {
        self.place.node_of(rank, slot, AT_HOST + index)
    }

    fn node(&self, index: usize) -> Result<M::Word<'m>, Fault> {
        self.place.node(AT_HOST + index)
    }

    fn has_node(&self) -> bool {
        self.place.has_node()
    }

    fn slots(&self) -> u16 {
        self.place.slots()
    }

    fn owners(&self) -> u64 {
        self.place.owners()
    }

    fn is_counted(&self) -> bool {
        self.place.is_counted()
    }

    fn participant_count(&self, rank: Rank) -> Result<Option<M::Word<'m>>, Fault> {
        self.place.participant_count(rank)
    }

    fn only_nodes_count(&self) -> bool {
        true
    }

    fn host_of(&self, rank: Rank) -> u32 {
        self.place.host_of(rank)
    }

    fn may_count(&self, rank: Rank) -> bool {
        self.place.host_of(rank) == self.place.host_of(self.leader)
    }

    /// Queues of one lock that lie at different ranks are different locks, but for chance: then recovery waits for owners of
    /// the other one as well.
    fn lock(&self) -> u64 {
        mixed(self.place.lock() ^ mixed(u64::from(self.leader.0) + 1)) >> 1
    }

    fn owner(&self) -> Owner {
        self.place.owner()
    }
}

/// Who has the lock may be a host: it has ended with it when none of those lives who wait in its queue or hold the lock.
#[derive(Debug, Default)]
pub(crate) struct ByHost {
    /// Which mark, and since when it is known.
    seen: Option<(Mark, u64)>,
}

impl ByHost {
    /// What ended with the lock, if whoever has it by the word that was found has ended. Who is not patient asks at once.
    pub(crate) async fn ended<'m, M: RemoteMemory>(
        &mut self,
        memory: &M,
        place: impl LockContext<'m, M>,
        found: u64,
        is_patient: bool,
    ) -> Option<Fault> {
        let Some(mark) = Mark::of(found) else { return dead_owner(memory, found) };
        memory.failed_rank()?;
        let now = memory.now();
        let since = match self.seen {
            Some((seen, since)) if seen == mark => since,
            _ => self.seen.insert((mark, now)).1,
        };
        if is_patient && now.saturating_sub(since) < PATIENCE {
            return None;
        }
        // First: who comes to that host's queue after its node was asked knows of the death.
        let dead = lost_on(memory, place, mark.leader())?;
        // Twice: who was overlooked because he came meanwhile counts by now, and has another mark when he passes the lock on.
        for _ in 0..2 {
            if !holds_nobody(memory, place, mark.leader()).await {
                self.seen = Some((mark, memory.now()));
                return None;
            }
        }
        Some(Fault::of(FaultKind::ParticipantDied, dead))
    }
}

/// Whether nobody lives who waits in a host's queue, or was let in by it. Where a rank of the host has died, whoever comes to it
/// later changes the mark before it holds the lock.
async fn holds_nobody<'m, M: RemoteMemory>(memory: &M, place: impl LockContext<'m, M>, leader: Rank) -> bool {
    place.slots() > 0 && nobody_counts(memory, AtHost { place, leader }).await
}

/// A rank of a host that has died; any of them where none lives any more.
pub(super) fn lost_on<'m, M: RemoteMemory>(memory: &M, place: impl LockContext<'m, M>, leader: Rank) -> Option<Rank> {
    memory.failed_rank()?;
    let host = place.host_of(leader);
    let mut there = (0..memory.size()).map(Rank).filter(|rank| place.host_of(*rank) == host);
    let is = |state| move |rank: &Rank| memory.liveness(*rank) == state;
    there.clone().find(is(Liveness::Dead)).or_else(|| there.all(|rank| !is(Liveness::Alive)(&rank)).then_some(leader))
}

/// Somebody of a host died inside: a rank of it that is dead, if one is, or the one that was told of.
pub(super) fn member_died<'m, M: RemoteMemory>(
    memory: &M,
    place: impl LockContext<'m, M>,
    leader: Rank,
    failed_rank: Rank,
) -> Fault {
    let host = place.host_of(leader);
    let gone = |rank: &Rank| place.host_of(*rank) == host && memory.liveness(*rank) != Liveness::Alive;
    let dead = (0..memory.size()).map(Rank).find(gone).unwrap_or(failed_rank);
    Fault::of(FaultKind::ParticipantDied, dead)
}
