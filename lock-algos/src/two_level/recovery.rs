//! The recovery of the two-level lock, by the owner whose turn it is in the queue of its host.

use onesided_remote_memory::{Fault, FaultKind, Rank, RemoteMemory};

use super::queue::{Global, InQueue};
use crate::cohort::{CohortOwner, GlobalState, State, cohort};
use crate::recovery::participant_ended;
use crate::{Held, IntentFn, LockContext, LockUse, Mode};

impl<'m, P: LockContext<'m>> InQueue<'_, 'm, P> {
    /// Acquires the lock after a death in the queue, or with a state that is uncertain: the home's
    /// word tells whether this host may still hold the lock.
    pub(super) async fn recover(
        &self,
        state: State,
        died: Option<Rank>,
        intent: IntentFn<'_>,
    ) -> Result<Global, Fault> {
        let (LockUse { memory, home, .. }, leader) = (*self.used, self.leader);
        let state = State { global: GlobalState::Uncertain, ..state };
        self.set(state).await?;
        let left = memory.read(home).await?;
        if CohortOwner::of(left).is_none_or(|owner_word| owner_word.leader() != leader) {
            // Another owner has recovered it, or there was nothing to recover.
            return self.try_global(state, intent).await;
        }
        let cohort = cohort(self.used, leader);
        let ended = match died {
            Some(rank) => Some(participant_ended(memory, rank)),
            None if cohort.has_ended_member() => Some(cohort.ended_member().await),
            None => None,
        };
        if intent().is_over() {
            return Err(Fault::new(FaultKind::Closed));
        }
        let held = match ended {
            Some(why) if !intent().recovers => return Err(why),
            Some(why) => Held::after(why, Mode::Exclusive),
            None => Held::cleanly(Mode::Exclusive),
        };
        let (state, is_swapped) = self.change_owner_word(left, state.generation).await?;
        match is_swapped {
            true => Ok(Global::Held(self.owner_word(state), held)),
            false => self.try_global(state, intent).await,
        }
    }

    /// Changes the cohort's owner word after a hand-over on the host. Returns the state after that:
    /// another owner may hold the lock.
    pub(super) async fn renew(&self, kept: State) -> Result<State, Fault> {
        let (mut state, is_swapped) = self.change_owner_word(self.owner_word(kept).0, kept.generation).await?;
        state.global = if is_swapped { kept.global } else { GlobalState::Away { yields: false } };
        self.set(state).await?;
        Ok(state)
    }

    /// Swaps the owner word at the home, if it is this word, for one of the next generation.
    /// Returns the state, which is uncertain, and whether the word was swapped.
    async fn change_owner_word(&self, found: u64, generation: u64) -> Result<(State, bool), Fault> {
        let state = State { generation: generation + 1, global: GlobalState::Uncertain };
        self.set(state).await?;
        let is_swapped = self.used.memory.compare_swap(self.used.home, found, self.owner_word(state).0).await? == found;
        Ok((state, is_swapped))
    }
}

/// Whether a fault is of the queue's memory: the connection to its rank is lost, or it was out of reach
/// from the start.
pub(super) const fn is_gone(leader: Rank, fault: Fault) -> bool {
    use FaultKind::{ConnectionLost, NoSuchRegion, PeerDied, PeerLeft, PeerNeverJoined, Unknown};
    matches!(fault.kind(), NoSuchRegion | PeerDied | PeerLeft | PeerNeverJoined | ConnectionLost | Unknown)
        && matches!(fault.rank(), Some(rank) if rank.0 == leader.0)
}
