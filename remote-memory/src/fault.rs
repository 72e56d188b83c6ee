//! What can go wrong on the path of an operation, in one word.

use core::fmt;
use core::num::NonZeroU64;

use crate::Rank;

/// What went wrong, which rank is to blame, and one number of detail: 8 bytes, `Copy`, no drop glue, because a wider
/// error is paid for by every operation that succeeds. Whoever knows the operation and the place turns it into the
/// error that a person reads.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct Fault(NonZeroU64); // kind 8 bits | rank + 1 24 bits (0: nobody) | detail 32 bits

/// The kinds of [`Fault`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
#[repr(u8)]
pub enum FaultKind {
    /// The place, or a part of it, lies past the end of its region.
    OutOfRange = 1,
    /// The offset is no multiple of the access's size.
    Misaligned,
    /// The world has no such rank.
    NoSuchRank,
    /// The rank has no such region, or has taken it back.
    NoSuchRegion,
    /// The operation is for one's own memory, and the place is a peer's.
    NotOwn,
    /// A peer that the operation needs died.
    PeerDied,
    /// A peer that the operation needs left the world in good order.
    PeerLeft,
    /// A waited-for lock is held by a rank that died; the fault's rank is that owner.
    OwnerDied,
    /// A rank died that may be among the holders of a waited-for shared lock: a count names nobody.
    ParticipantDied,
    /// A waited-for lock is held by a rank that lives, and keeps it for longer than it may; the fault's rank is that owner.
    LeaseExpired,
    /// The deadline passed first.
    TimedOut,
    /// **The outcome is unknown**: the fabric failed the operation after it left, it may have taken effect.
    /// The detail is the fabric's status (verbs: `ibv_wc_status`).
    Unknown,
    /// The fabric refused the operation before it left; it had no effect. The detail is the fabric's error number.
    Refused,
    /// A queue, a table or a count is full.
    Full,
    /// No memory, or no more of it can be registered.
    NoMemory,
    /// No more file descriptors.
    NoDescriptors,
    /// The message is longer than a message may be.
    TooLong,
    /// A peer sent what the protocol does not allow.
    Protocol,
    /// The lock is not held as the release assumed.
    NotHeld,
    /// This fabric cannot do it.
    Unsupported,
    /// This rank has closed its end.
    Closed,
    /// This rank and the fault's one may wait for each other: each has locks, and waits for one of which nobody can tell whether the
    /// other one has it.
    Deadlock,
    /// Between this rank and the fault's one nothing goes any more: one of them was late with a lock, and the other has revoked
    /// its access. What was under way then has taken effect before that, or never will.
    Revoked,
}

impl FaultKind {
    const ALL: [Self; 23] = [
        Self::OutOfRange,
        Self::Misaligned,
        Self::NoSuchRank,
        Self::NoSuchRegion,
        Self::NotOwn,
        Self::PeerDied,
        Self::PeerLeft,
        Self::OwnerDied,
        Self::ParticipantDied,
        Self::LeaseExpired,
        Self::TimedOut,
        Self::Unknown,
        Self::Refused,
        Self::Full,
        Self::NoMemory,
        Self::NoDescriptors,
        Self::TooLong,
        Self::Protocol,
        Self::NotHeld,
        Self::Unsupported,
        Self::Closed,
        Self::Deadlock,
        Self::Revoked,
    ];
}

impl Fault {
    /// A fault of this kind that no rank is to blame for.
    #[must_use]
    #[inline]
    pub const fn new(kind: FaultKind) -> Self {
        Self::pack(kind, 0, 0)
    }

    /// A fault of this kind that concerns `rank`.
    #[must_use]
    #[inline]
    pub const fn of(kind: FaultKind, rank: Rank) -> Self {
        // A rank that no world can have is not named rather than named wrongly.
        Self::pack(kind, if rank.0 < Rank::LIMIT { rank.0 + 1 } else { 0 }, 0)
    }

    /// The same fault with a number of detail.
    #[must_use]
    #[inline]
    pub const fn with_detail(self, detail: u32) -> Self {
        let bits = self.0.get();
        Self::pack(self.kind(), (bits >> 32) as u32 & 0xff_ffff, detail)
    }

    #[inline]
    const fn pack(kind: FaultKind, rank: u32, detail: u32) -> Self {
        let bits = (kind as u64) << 56 | (rank as u64) << 32 | detail as u64;
        match NonZeroU64::new(bits) {
            Some(bits) => Self(bits),
            None => unreachable!(), // kinds start at 1
        }
    }

    /// The fault as a word that travels; never 0.
    #[must_use]
    #[inline]
    pub const fn to_bits(self) -> u64 {
        self.0.get()
    }

    /// The inverse of [`to_bits`](Self::to_bits); `None` if the word is no fault.
    #[must_use]
    #[inline]
    pub const fn from_bits(bits: u64) -> Option<Self> {
        let kind = (bits >> 56) as usize;
        if kind == 0 || kind > FaultKind::ALL.len() {
            return None;
        }
        match NonZeroU64::new(bits) {
            Some(bits) => Some(Self(bits)),
            None => None,
        }
    }

    /// What went wrong.
    #[must_use]
    #[inline]
    pub const fn kind(self) -> FaultKind {
        FaultKind::ALL[(self.0.get() >> 56) as usize - 1]
    }

    /// The rank that the fault concerns.
    #[must_use]
    #[inline]
    pub const fn rank(self) -> Option<Rank> {
        match (self.0.get() >> 32) as u32 & 0xff_ffff {
            0 => None,
            above => Some(Rank(above - 1)),
        }
    }

    /// The fabric's own number for it, 0 where there is none.
    #[must_use]
    #[inline]
    pub const fn detail(self) -> u32 {
        self.0.get() as u32
    }

    /// Whether the operation may have taken effect all the same.
    #[must_use]
    #[inline]
    pub const fn is_unknown(self) -> bool {
        matches!(self.kind(), FaultKind::Unknown)
    }
}

impl fmt::Debug for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Fault({self})")
    }
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(rank) = self.rank() {
            write!(f, "{rank}: ")?;
        }
        f.write_str(match self.kind() {
            FaultKind::OutOfRange => "the place lies past the end of the region",
            FaultKind::Misaligned => "the offset is not aligned to the access",
            FaultKind::NoSuchRank => "the world has no such rank",
            FaultKind::NoSuchRegion => "no such region, or no longer",
            FaultKind::NotOwn => "the memory is not one's own",
            FaultKind::PeerDied => "the peer died",
            FaultKind::PeerLeft => "the peer left the world",
            FaultKind::OwnerDied => "the owner of the lock died",
            FaultKind::ParticipantDied => "a rank died that may hold the shared lock",
            FaultKind::LeaseExpired => "the owner of the lock is late",
            FaultKind::TimedOut => "the deadline passed",
            FaultKind::Unknown => "the operation failed on its way, it may have taken effect",
            FaultKind::Refused => "the fabric refused the operation",
            FaultKind::Full => "no room",
            FaultKind::NoMemory => {
                "no memory, or a limit on it (see `ulimit -a`; registered memory is locked memory, `ulimit -l`)"
            }
            FaultKind::NoDescriptors => "no file descriptors left (raise `ulimit -n`)",
            FaultKind::TooLong => "the message is too long",
            FaultKind::Protocol => "the peer broke the protocol",
            FaultKind::NotHeld => "the lock is not held",
            FaultKind::Unsupported => "the fabric cannot do it",
            FaultKind::Closed => "closed",
            FaultKind::Deadlock => {
                "this rank and that one may wait for each other, each with locks that the other may need"
            }
            FaultKind::Revoked => "access was revoked, because a lock was kept for longer than its lease",
        })?;
        match self.detail() {
            0 => Ok(()),
            detail => write!(f, " (status {detail})"),
        }
    }
}

impl core::error::Error for Fault {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn packs_and_unpacks_every_kind() {
        for kind in FaultKind::ALL {
            assert_eq!(Fault::new(kind).kind(), kind);
            assert_eq!(Fault::new(kind).rank(), None);
            for rank in [0, 1, 77, Rank::LIMIT - 1] {
                let fault = Fault::of(kind, Rank(rank)).with_detail(u32::MAX);
                assert_eq!(Fault::from_bits(fault.to_bits()), Some(fault));
                assert_eq!((fault.kind(), fault.rank(), fault.detail()), (kind, Some(Rank(rank)), u32::MAX));
            }
        }
        assert_eq!(Fault::of(FaultKind::NoSuchRank, Rank(u32::MAX)).rank(), None);
        assert_eq!(Fault::from_bits(0), None);
        assert_eq!(Fault::from_bits(u64::MAX), None);
        assert_eq!(size_of::<Result<u64, Fault>>(), 16);
        assert_eq!(size_of::<Result<(), Fault>>(), 8);
    }
}
