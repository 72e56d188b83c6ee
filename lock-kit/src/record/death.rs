//! What must hold after a death.

use onesided_lock_algos::{LockAlgorithm, Mode};
use onesided_remote_memory::{Fault, FaultKind, Rank};

use super::{Record, Stage, State};
use crate::trace::hex;

/// The death of a rank.
#[derive(Clone, Debug, Hash)]
pub(super) struct Death {
    pub(super) rank: Rank,
    /// The stages of its owners that were not outside.
    pub(super) stages: Vec<Stage>,
    /// Whether it had operations in flight: a detached release.
    pub(super) posted: bool,
    /// The number of successful acquires of all ranks before it.
    pub(super) entered: usize,
}

impl Record {
    /// Checks the end of a run with deaths: the lock is free, and the first owner after a death
    /// inside an exclusive section learned of it, before any other. The death of a reader poisons
    /// nothing. `left`: the ranks left in order, and are said to have. `gave_up`: acquires gave up their
    /// places, and a lock may then take a reader that ended for an owner.
    ///
    /// # Errors
    /// The violation.
    pub fn check_after_deaths<A: LockAlgorithm>(&self, lock: &[u64], left: bool, gave_up: bool) -> Result<(), String> {
        let state = self.state();
        if let Some(violation) = &state.violation {
            return Err(violation.clone());
        }
        if !A::is_free(lock) {
            return Err(format!("the lock is not free at the end: {}", hex(lock)));
        }
        let named = |fault: Fault| {
            let kinds = match left {
                false => [FaultKind::OwnerDied, FaultKind::ParticipantDied],
                true => [FaultKind::OwnerLeft, FaultKind::ParticipantLeft],
            };
            kinds.contains(&fault.kind()) && state.deaths.iter().any(|death| fault.rank() == Some(death.rank))
        };
        let stranger = |(.., recovered): &&(Rank, Mode, Option<Fault>)| {
            self.lease_over(*recovered).is_none() && recovered.is_some_and(|fault| !named(fault))
        };
        if let Some(other) = state.entered.iter().find(stranger) {
            return Err(format!("recovered {other:?}"));
        }
        // After several deaths, or the end of a lease, recovering owners cannot be assigned to them.
        let over = state.entered.iter().any(|(.., recovered)| self.lease_over(*recovered).is_some());
        match &state.deaths[..] {
            [death] if !over => death.check(&state, gave_up),
            _ => Ok(()),
        }
    }
}

impl Death {
    fn check(&self, state: &State, gave_up: bool) -> Result<(), String> {
        let (before, after) = state.entered.split_at(self.entered);
        let recovering = after.iter().position(|(.., recovered)| recovered.is_some());
        let held = self.stages.contains(&Stage::Inside(Mode::Exclusive));
        let read = |stage: &Stage| *stage == Stage::Inside(Mode::Shared);
        let held_any = !self.stages.is_empty();
        let missed = if before.iter().any(|(.., recovered)| recovered.is_some()) {
            Some("recovered before the death")
        } else if held && recovering.is_none() {
            Some("no owner recovers")
        } else if held && recovering != Some(0) {
            Some("an acquire succeeded before the recovery from an exclusive owner")
        } else if recovering.is_some() && self.stages.iter().all(read) && !self.posted && !(gave_up && held_any) {
            Some("recovered from a reader, or from an owner that had released")
        } else {
            None
        };
        let hint = match state.gave_back {
            true => {
                "; a cancelled acquire had recovered the lock and called `release_poisoned`, whose default poisons nothing"
            }
            false => "",
        };
        missed.map_or(Ok(()), |what| Err(format!("{what}: {after:?}{hint}")))
    }
}
