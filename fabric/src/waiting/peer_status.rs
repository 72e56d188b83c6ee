//! The peer status that ends a wait.

use onesided_job::fork;
use onesided_remote_memory::{Fault, FaultKind, Patience, Rank, RemoteMemory, Watch};

/// The peer-status check of every wait on a real fabric.
pub(crate) trait PeerStatus: RemoteMemory {
    /// The fault of a wait whose peer died or left, if one did; or of any wait of a forked child.
    fn ended(&self, patience: Patience) -> Result<(), Fault> {
        fork::check()?;
        let rank = match patience.watch {
            Watch::NoRank => return Ok(()),
            // The same here: a death rings every doorbell, so every wait is polled at it.
            Watch::Rank(rank) | Watch::RankAndFailures(rank) => rank,
        };
        check_rank(self, rank)?;
        self.liveness(rank).needed(rank)
    }

    /// The state of an unsatisfied wait: past its deadline, ended by a peer's status, or pending.
    fn out_of_patience(&self, patience: Patience) -> Result<(), Fault> {
        self.ended(patience)?;
        if patience.deadline != u64::MAX && self.now() >= patience.deadline {
            return Err(Fault::new(FaultKind::TimedOut));
        }
        Ok(())
    }
}

impl<M: RemoteMemory> PeerStatus for M {}

/// `NoSuchRank` for a rank outside the world.
pub(crate) fn check_rank<M: RemoteMemory + ?Sized>(memory: &M, rank: Rank) -> Result<(), Fault> {
    if rank.0 < memory.size() { Ok(()) } else { Err(Fault::of(FaultKind::NoSuchRank, rank)) }
}
