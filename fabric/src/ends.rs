//! Whose end ends a wait.

use onesided_remote_memory::{Fault, FaultKind, Liveness, Patience, Rank, RemoteMemory, Watch};

use crate::fabric::check_rank;

/// The fault that a rank's end is for whoever needs it.
pub(crate) const fn ended(rank: Rank, liveness: Liveness) -> Result<(), Fault> {
    match liveness {
        Liveness::Alive => Ok(()),
        Liveness::Dead => Err(Fault::of(FaultKind::PeerDied, rank)),
        Liveness::Left => Err(Fault::of(FaultKind::PeerLeft, rank)),
    }
}

/// What every wait on a real fabric asks before it goes on waiting.
pub(crate) trait Ends: RemoteMemory {
    /// The fault of a wait that somebody's end ended, if it did.
    fn ended(&self, patience: Patience) -> Result<(), Fault> {
        let rank = match patience.watch {
            Watch::NoRank => return Ok(()),
            // A death rings every doorbell, so that all waits are polled then.
            Watch::Rank(rank) | Watch::RankAndFailures(rank) => rank,
        };
        check_rank(self, rank)?;
        ended(rank, self.liveness(rank))
    }

    /// What a wait reports that is not satisfied: the deadline, somebody's end, or nothing yet.
    fn out_of_patience(&self, patience: Patience) -> Result<(), Fault> {
        self.ended(patience)?;
        if patience.deadline != u64::MAX && self.now() >= patience.deadline {
            return Err(Fault::new(FaultKind::TimedOut));
        }
        Ok(())
    }
}

impl<M: RemoteMemory> Ends for M {}
