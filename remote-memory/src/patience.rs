//! When a wait ends without what it waited for.

use crate::Rank;

/// How a rank is doing, as far as is known here.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Liveness {
    /// Nothing else is known.
    Alive,
    /// It closed its end in good order.
    Left,
    /// It ended without closing.
    Dead,
}

/// Whose end ends the wait.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Watch {
    /// Nobody's: only the deadline does.
    NoRank,
    /// This rank's death or leaving: what is waited for comes from it alone.
    Rank(Rank),
    /// This rank's end; at anybody's death the wait is polled again, for whoever knows whose death counts to him (a barrier
    /// of some of the ranks).
    RankAndFailures(Rank),
}

/// When a wait ends without what it waited for: every wait has one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Patience {
    /// In nanoseconds of [`RemoteMemory::now`](crate::RemoteMemory::now); `u64::MAX` is never.
    pub deadline: u64,
    /// Whose end ends it.
    pub watch: Watch,
}

impl Patience {
    /// Waits for as long as `rank` lives.
    #[must_use]
    #[inline]
    pub const fn on(rank: Rank) -> Self {
        Self { deadline: u64::MAX, watch: Watch::Rank(rank) }
    }

    /// Waits for as long as `rank` lives, and is polled at every death.
    #[must_use]
    #[inline]
    pub const fn with_failures(rank: Rank) -> Self {
        Self { deadline: u64::MAX, watch: Watch::RankAndFailures(rank) }
    }

    /// Waits until a point in time, whoever dies.
    #[must_use]
    #[inline]
    pub const fn until(deadline: u64) -> Self {
        Self { deadline, watch: Watch::NoRank }
    }

    /// The same with a deadline, the earlier one if there was one already.
    #[must_use]
    #[inline]
    pub const fn and_until(self, deadline: u64) -> Self {
        let deadline = if deadline < self.deadline { deadline } else { self.deadline };
        Self { deadline, watch: self.watch }
    }
}
