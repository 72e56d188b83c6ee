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
    /// This rank held the lock exclusively when it left: its guard was leaked.
    OwnerLeft(u32),
    /// This rank died, and may have held the lock exclusively or waited to: the lock does not
    /// record which. Others may have died with it.
    Participant(u32),
    /// The same of a rank that left: its guard was leaked, or a cancelled request was not finished.
    ParticipantLeft(u32),
    /// This rank lives, and held the lock for longer than its lease: its commits fail
    /// ([`LeasePolicy::VersionedCommit`](crate::LeasePolicy::VersionedCommit)), or its access to
    /// the target was revoked ([`LeasePolicy::Revoke`](crate::LeasePolicy::Revoke)). The protected
    /// data may be inconsistent.
    LeaseExpired(u32),
    /// This rank lives, and its thread panicked while it held the lock exclusively: the guard was
    /// dropped as the stack unwound.
    Panicked(u32),
}

impl fmt::Display for PreviousOwner {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (Self::Owner(rank)
        | Self::OwnerLeft(rank)
        | Self::Participant(rank)
        | Self::ParticipantLeft(rank)
        | Self::LeaseExpired(rank)
        | Self::Panicked(rank)) = *self;
        let kind = RECOVERED.iter().find_map(|(kind, previous)| (previous(rank) == *self).then_some(*kind));
        Fault::of(kind.unwrap_or(FaultKind::OwnerDied), Rank(rank)).fmt(f)
    }
}

/// How a lock is held, and whether it was recovered, in half a register: mode 1 bit | acquired
/// while the thread panicked, or unlocking 1 bit | by the owner in the biased slot 1 bit | unused 1 bit |
/// 0, or from whom it was recovered 4 bits | rank 24 bits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Holding(u32);

/// From whom a lock may be recovered; counted from 1.
const RECOVERED: [(FaultKind, fn(u32) -> PreviousOwner); 6] = [
    (FaultKind::ParticipantDied, PreviousOwner::Participant),
    (FaultKind::OwnerDied, PreviousOwner::Owner),
    (FaultKind::LeaseExpired, PreviousOwner::LeaseExpired),
    (FaultKind::OwnerPanicked, PreviousOwner::Panicked),
    (FaultKind::OwnerLeft, PreviousOwner::OwnerLeft),
    (FaultKind::ParticipantLeft, PreviousOwner::ParticipantLeft),
];

impl Holding {
    const SHARED: u32 = 1 << 31;
    const UNWINDING: u32 = 1 << 30;
    const BIASED: u32 = 1 << 29;
    const UNCLAIMED: u32 = 1 << 28;
    const KIND: u32 = 24;

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
        let kind = RECOVERED.iter().position(|(kind, _)| *kind == fault.kind()).unwrap_or(0) as u32 + 1;
        Self(mode | kind << Self::KIND | fault.rank().map_or(0, |rank| rank.0) & 0xff_ffff)
    }

    /// The fault of the owner from which the lock was recovered.
    pub(crate) fn recovered(self) -> Option<Fault> {
        let (kind, _) = self.recovery()?;
        Some(Fault::of(kind, Rank(self.0 & 0xff_ffff)))
    }

    fn recovery(self) -> Option<(FaultKind, fn(u32) -> PreviousOwner)> {
        RECOVERED.get((self.0 >> Self::KIND & 0xf).checked_sub(1)? as usize).copied()
    }

    /// The same for a guard that is made now, perhaps by a destructor as the stack unwinds.
    #[inline(always)]
    pub(crate) fn of_guard(self) -> Self {
        if std::thread::panicking() { self.poisoning_nothing() } else { self }
    }

    /// The same for a guard whose drop poisons nothing.
    #[inline(always)]
    pub(crate) const fn poisoning_nothing(self) -> Self {
        Self(self.0 | Self::UNWINDING)
    }

    /// The same for a guard that has not reached the caller yet, or has.
    pub(crate) const fn unclaimed(self, unclaimed: bool) -> Self {
        Self(self.0 & !Self::UNCLAIMED | if unclaimed { Self::UNCLAIMED } else { 0 })
    }

    /// As what a drop of the guard leaves the lock poisoned. One that has not reached the caller counts as
    /// never recovered.
    #[inline(always)]
    pub(crate) fn poison(self, own: Rank) -> Option<Fault> {
        match self.0 & Self::UNCLAIMED {
            0 => self.is_half_done().then(|| Fault::of(FaultKind::OwnerPanicked, own)),
            _ => self.recovered(),
        }
    }

    /// Whether what the lock protects may be half written: the guard is dropped because its thread
    /// began to panic.
    pub(crate) fn is_half_done(self) -> bool {
        self.0 & (Self::SHARED | Self::UNWINDING) == 0 && std::thread::panicking()
    }

    #[inline]
    pub(crate) const fn mode(self) -> Mode {
        if self.0 & Self::SHARED == 0 { Mode::Exclusive } else { Mode::Shared }
    }

    /// The same, by an owner in the biased slot, or not.
    #[inline(always)]
    pub(crate) const fn biased(self, biased: bool) -> Self {
        Self(self.0 & !Self::BIASED | if biased { Self::BIASED } else { 0 })
    }

    /// Whether its owner has the biased slot.
    #[inline(always)]
    pub(crate) const fn is_biased(self) -> bool {
        self.0 & Self::BIASED != 0
    }

    /// The same, but shared.
    pub(crate) const fn shared(self) -> Self {
        Self(self.0 | Self::SHARED)
    }

    pub(crate) fn previous_owner<F: Fabric>(self, world: &World<F>) -> Option<PreviousOwner> {
        let (_, previous) = self.recovery()?;
        let rank = self.0 & 0xff_ffff;
        Some(previous(world.rank_of(Rank(rank)).unwrap_or(rank)))
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
                for (kind, previous) in [
                    (FaultKind::OwnerDied, PreviousOwner::Owner(1)),
                    (FaultKind::ParticipantDied, PreviousOwner::Participant(1)),
                    (FaultKind::OwnerLeft, PreviousOwner::OwnerLeft(1)),
                    (FaultKind::ParticipantLeft, PreviousOwner::ParticipantLeft(1)),
                    (FaultKind::LeaseExpired, PreviousOwner::LeaseExpired(1)),
                    (FaultKind::OwnerPanicked, PreviousOwner::Panicked(1)),
                ] {
                    let fault = Fault::of(kind, Rank(1));
                    let holding = Holding::of(Held::after(fault, mode));
                    assert_eq!((holding.mode(), holding.previous_owner(&world)), (mode, Some(previous)));
                    assert_eq!(holding.recovered(), Some(fault));
                    assert_eq!(holding.shared(), Holding::of(Held::after(fault, Mode::Shared)));
                }
            }
        })
        .unwrap();
    }
}
