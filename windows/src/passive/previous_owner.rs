//! The previous owner of a recovered lock.

use std::fmt;

use onesided_fabric::remote_memory::{Fault, FaultKind, Rank};
use onesided_fabric::{Fabric, World};
use onesided_lock_algos::{Held, Mode};

/// The rank that a lock was recovered from: see
/// [`Epoch::previous_owner`](crate::Epoch::previous_owner).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum PreviousOwner {
    /// This rank held the lock exclusively when it died.
    Owner(u32),
    /// This rank died, and may have been an owner of the lock or a waiter: the lock does not record
    /// which. Others may have died with it.
    Participant(u32),
    /// This rank lives, and held the lock for longer than its lease: its commits fail
    /// ([`LeasePolicy::VersionedCommit`](crate::LeasePolicy::VersionedCommit)), or its access to
    /// the target was revoked ([`LeasePolicy::Revoke`](crate::LeasePolicy::Revoke)). The protected
    /// data may be inconsistent.
    LeaseExpired(u32),
}

impl fmt::Display for PreviousOwner {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Owner(rank) => write!(f, "rank {rank} died while it held the lock"),
            Self::LeaseExpired(rank) => write!(f, "rank {rank} held the lock for longer than its lease"),
            Self::Participant(rank) => write!(f, "rank {rank} died, and may have held the lock"),
        }
    }
}

/// How a lock is held, and whether it was recovered, in half a register: mode 1 bit | recovered 1
/// bit | named 1 bit | lease expired 1 bit | rank 24 bits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Holding(u32);

impl Holding {
    const SHARED: u32 = 1 << 31;
    const INHERITED: u32 = 1 << 30;
    const NAMED: u32 = 1 << 29;
    const LATE: u32 = 1 << 28;

    #[inline]
    pub(crate) const fn cleanly(mode: Mode) -> Self {
        Self(match mode {
            Mode::Exclusive => 0,
            Mode::Shared => Self::SHARED,
        })
    }

    pub(crate) fn of(held: Held) -> Self {
        let Self(mode) = Self::cleanly(held.mode);
        let Some(fault) = held.recovered else { return Self(mode) };
        let named = match fault.kind() {
            FaultKind::OwnerDied => Self::NAMED,
            FaultKind::LeaseExpired => Self::LATE,
            _ => 0,
        };
        let rank = fault.rank().map_or(0, |rank| rank.0);
        Self(mode | Self::INHERITED | named | rank & 0xff_ffff)
    }

    /// As the lock algorithm gave it.
    pub(crate) fn held(self) -> Held {
        if !self.is_recovered() {
            return Held::cleanly(self.mode());
        }
        let kind = match self.0 {
            holding if holding & Self::LATE != 0 => FaultKind::LeaseExpired,
            holding if holding & Self::NAMED != 0 => FaultKind::OwnerDied,
            _ => FaultKind::ParticipantDied,
        };
        Held::after(Fault::of(kind, Rank(self.0 & 0xff_ffff)), self.mode())
    }

    #[inline]
    pub(crate) const fn is_recovered(self) -> bool {
        self.0 & Self::INHERITED != 0
    }

    #[inline]
    pub(crate) const fn mode(self) -> Mode {
        if self.0 & Self::SHARED == 0 { Mode::Exclusive } else { Mode::Shared }
    }

    /// The same, but shared.
    pub(crate) const fn shared(self) -> Self {
        Self(self.0 | Self::SHARED)
    }

    pub(crate) fn previous_owner<F: Fabric>(self, world: &World<F>) -> Option<PreviousOwner> {
        let fault = self.held().recovered?;
        let rank = fault.rank()?;
        let rank = world.rank_of(rank).unwrap_or(rank.0);
        Some(match fault.kind() {
            FaultKind::LeaseExpired => PreviousOwner::LeaseExpired(rank),
            FaultKind::OwnerDied => PreviousOwner::Owner(rank),
            _ => PreviousOwner::Participant(rank),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_holding_keeps_what_it_is_given() {
        onesided_fabric::threads(2, |world| {
            for mode in [Mode::Exclusive, Mode::Shared] {
                assert_eq!(Holding::cleanly(mode).mode(), mode);
                assert_eq!(Holding::of(Held::cleanly(mode)), Holding::cleanly(mode));
                for (kind, inheritance) in [
                    (FaultKind::OwnerDied, PreviousOwner::Owner(1)),
                    (FaultKind::ParticipantDied, PreviousOwner::Participant(1)),
                    (FaultKind::LeaseExpired, PreviousOwner::LeaseExpired(1)),
                ] {
                    let holding = Holding::of(Held::after(Fault::of(kind, Rank(1)), mode));
                    assert_eq!((holding.mode(), holding.previous_owner(&world)), (mode, Some(inheritance)));
                    assert_eq!(holding.held(), Held::after(Fault::of(kind, Rank(1)), mode));
                    assert_eq!(holding.shared(), Holding::of(Held::after(Fault::of(kind, Rank(1)), Mode::Shared)));
                }
            }
        })
        .unwrap();
    }
}
