//! Patience: when a wait ends without success.

use crate::{Fault, FaultKind, Rank};

/// The state of a rank, as far as this rank knows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Liveness {
    /// No end is known.
    Alive,
    /// It left in an orderly way.
    Left,
    /// It ended in an orderly way without joining.
    NeverJoined,
    /// It ended without leaving.
    Dead,
}

impl Liveness {
    /// The fault of what needs this rank.
    ///
    /// # Errors
    /// `PeerDied`, `PeerLeft`, `PeerNeverJoined`.
    pub const fn needed(self, rank: Rank) -> Result<(), Fault> {
        match self {
            Self::Alive => Ok(()),
            Self::Dead => Err(Fault::of(FaultKind::PeerDied, rank)),
            Self::Left => Err(Fault::of(FaultKind::PeerLeft, rank)),
            Self::NeverJoined => Err(Fault::of(FaultKind::PeerNeverJoined, rank)),
        }
    }
}

/// Which rank's end ends the wait.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Watch {
    /// No rank's: only the deadline ends it.
    NoRank,
    /// The death or departure of this rank, the only one that can end the wait with success.
    Rank(Rank),
    /// The end of this rank. The wait is also polled again at the death or departure of any rank,
    /// for a predicate that depends on them (a barrier of some of the ranks).
    RankAndFailures(Rank),
}

/// When a wait ends without success. Every wait has one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Patience {
    /// The deadline in nanoseconds of [`RemoteMemory::now`](crate::RemoteMemory::now); `u64::MAX`
    /// is none.
    pub deadline: u64,
    /// Which rank's end ends the wait.
    pub watch: Watch,
}

impl Patience {
    /// Waits while `rank` is alive.
    #[must_use]
    #[inline]
    pub const fn on(rank: Rank) -> Self {
        Self { deadline: u64::MAX, watch: Watch::Rank(rank) }
    }

    /// Waits while `rank` is alive, and is polled at every death and departure.
    #[must_use]
    #[inline]
    pub const fn with_failures(rank: Rank) -> Self {
        Self { deadline: u64::MAX, watch: Watch::RankAndFailures(rank) }
    }

    /// Waits until a point in time, whichever ranks die.
    #[must_use]
    #[inline]
    pub const fn until(deadline: u64) -> Self {
        Self { deadline, watch: Watch::NoRank }
    }

    /// The same with a deadline; the earlier one applies if there was one already.
    #[must_use]
    #[inline]
    pub const fn and_until(self, deadline: u64) -> Self {
        let deadline = if deadline < self.deadline { deadline } else { self.deadline };
        Self { deadline, watch: self.watch }
    }
}
