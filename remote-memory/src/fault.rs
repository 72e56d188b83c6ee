//! Faults: why an operation failed, in one word.

use core::fmt;
use core::num::NonZeroU64;

use crate::collective::Collective;
use crate::{Rank, debug, entries};

/// Why an operation failed: a kind, the rank it concerns, and one number of detail.
///
/// A fault has 8 bytes, is `Copy` and has no drop glue, because every operation that succeeds pays
/// for a wider error. A caller that knows the operation and the address turns it into an error for
/// users.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct Fault(NonZeroU64); // kind 8 bits | rank + 1 24 bits (0: none) | detail 32 bits

entries! {
    /// The kinds of [`Fault`].
    #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
    #[non_exhaustive]
    #[repr(u8)]
    pub enum FaultKind {
        /// The address range, or a part of it, lies past the end of its region.
        OutOfRange = 1,
        /// The offset is not a multiple of the access size.
        Misaligned,
        /// The world has no such rank.
        NoSuchRank,
        /// The rank has no such region, or has deregistered it.
        NoSuchRegion,
        /// The operation requires the caller's own memory, and the word is a peer's.
        NotOwn,
        /// A peer that the operation needs died.
        PeerDied,
        /// A peer that the operation needs left the job in an orderly way.
        PeerLeft,
        /// The lock is held by a rank that died. The fault names that rank.
        OwnerDied,
        /// The same of a rank that left the job in an orderly way.
        OwnerLeft,
        /// A rank died that may have held the lock exclusively: its words do not tell which of the
        /// waiting ranks did. The detail is the number of other ranks of which the same can be said,
        /// because their memory is gone: the named one died last.
        ParticipantDied,
        /// The same of a rank that left the job in an orderly way.
        ParticipantLeft,
        /// The named rank lives, and its thread panicked while it held the lock exclusively.
        OwnerPanicked,
        /// The lock is held by a live rank whose lease has expired. The fault names that rank.
        LeaseExpired,
        /// The deadline passed first. With a rank: that one was waited for, and the detail is the number
        /// of others that were. Without: of the rank's own tasks that are not finished.
        TimedOut,
        /// **The outcome is indeterminate**: the fabric failed the operation after it left, so it may
        /// have taken effect. The connection to that rank is lost with it. The detail is the fabric's
        /// status (verbs: `ibv_wc_status`).
        Unknown,
        /// The connection to the named rank is lost, so the operation did not leave. The rank may live.
        ConnectionLost,
        /// The fabric refused the operation before it left, so it had no effect. The detail is the
        /// fabric's error number.
        Refused,
        /// A queue, a table or a counter is full.
        Full,
        /// The rank holds or waits for as many locks as it has slots.
        NoSlot,
        /// Memory could not be allocated or registered.
        NoMemory,
        /// No more file descriptors.
        NoDescriptors,
        /// The message exceeds the maximum length. The detail is its length in bytes, where known.
        TooLong,
        /// A peer violated the protocol.
        Protocol,
        /// The release found the lock in a state in which the caller does not hold it.
        NotHeld,
        /// The fabric does not support the operation.
        Unsupported,
        /// The named rank has closed what the operation needs. Without a rank: the request was
        /// cancelled, or has yielded its result.
        Closed,
        /// Access between this rank and the named one is revoked: the lease of one of them expired, or
        /// the named rank counts this one as dead. Operations that were in flight took effect before
        /// the revocation, or never will.
        Revoked,
        /// An earlier barrier or another collective of this world or window failed or was cancelled at this
        /// rank, so that its collectives no longer match those of the others. With a rank: that rank is in
        /// another collective than this one; the detail has both.
        OutOfStep,
        /// As `PeerLeft`, and wherever that is documented, for a peer that ended without joining the
        /// job: its program does not use the library.
        PeerNeverJoined,
        /// The process is a child made by `fork` of a rank's, and no rank itself. What it does has no effect
        /// on the job.
        Forked,
    }
    const ALL;
}

impl FaultKind {
    /// Whether its text is what a rank did: the rank begins the sentence.
    const fn is_of_rank(self) -> bool {
        self.is_poison() || matches!(self, Self::PeerDied | Self::PeerLeft | Self::PeerNeverJoined)
    }

    /// See [`Fault::is_poison`].
    const fn is_poison(self) -> bool {
        use FaultKind::{LeaseExpired, OwnerDied, OwnerLeft, OwnerPanicked, ParticipantDied, ParticipantLeft};
        matches!(self, OwnerDied | OwnerLeft | ParticipantDied | ParticipantLeft | OwnerPanicked | LeaseExpired)
    }
}

impl Fault {
    /// A fault of this kind that names no rank.
    #[must_use]
    #[inline]
    pub const fn new(kind: FaultKind) -> Self {
        Self::pack(kind, 0, 0)
    }

    /// A fault of this kind that concerns `rank`.
    #[must_use]
    #[inline]
    pub const fn of(kind: FaultKind, rank: Rank) -> Self {
        // A rank above the limit is left out rather than truncated to another rank.
        Self::pack(kind, if rank.0 < Rank::LIMIT { rank.0 + 1 } else { 0 }, 0)
    }

    /// The same fault with this detail.
    #[must_use]
    #[inline]
    pub const fn with_detail(self, detail: u32) -> Self {
        let bits = self.0.get();
        Self::pack(self.kind(), (bits >> 32) as u32 & 0xff_ffff, detail)
    }

    /// The fault of a rank that is in another collective than this one.
    #[must_use]
    pub const fn out_of_step(rank: Rank, [theirs, own]: [u8; 2]) -> Self {
        Self::of(FaultKind::OutOfStep, rank).with_detail((theirs as u32) << 8 | own as u32)
    }

    #[inline]
    const fn pack(kind: FaultKind, rank: u32, detail: u32) -> Self {
        let bits = (kind as u64) << 56 | (rank as u64) << 32 | detail as u64;
        match NonZeroU64::new(bits) {
            Some(bits) => Self(bits),
            None => unreachable!(), // kinds start at 1
        }
    }

    /// The fault as a word for a message or for shared memory; never 0.
    #[must_use]
    #[inline]
    pub const fn to_bits(self) -> u64 {
        self.0.get()
    }

    /// The inverse of [`to_bits`](Self::to_bits); `None` if the word is not a fault.
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

    /// The kind of the fault.
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

    /// The fabric's own error number; 0 if there is none.
    #[must_use]
    #[inline]
    pub const fn detail(self) -> u32 {
        self.0.get() as u32
    }

    /// Whether a lock is poisoned: its last exclusive owner died or left, may have, panicked, or
    /// exceeded its lease.
    #[must_use]
    pub const fn is_poison(self) -> bool {
        self.kind().is_poison()
    }

    /// Whether the operation is indeterminate: it may have taken effect.
    #[must_use]
    #[inline]
    pub const fn is_unknown(self) -> bool {
        matches!(self.kind(), FaultKind::Unknown)
    }
}

debug!([] Fault, |this| "Fault({this})");

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        use FaultKind::{OutOfStep, PeerLeft, TimedOut};
        match (self.kind(), self.rank()) {
            (PeerLeft, None) => return f.write_str("no other rank is left"),
            (OutOfStep, Some(rank)) => {
                let [.., theirs, own] = self.detail().to_be_bytes().map(Collective::text);
                return write!(f, "{rank} is in {theirs}, and this rank in {own}");
            }
            (TimedOut, Some(rank)) => {
                write!(f, "the deadline passed, waiting for {rank}")?;
                return match self.detail() {
                    others @ 1..Rank::LIMIT => write!(f, " and {others} more"),
                    _ => Ok(()),
                };
            }
            (kind, rank) => match (kind.is_of_rank(), rank) {
                (true, Some(rank)) => write!(f, "{rank} ")?,
                (true, None) => f.write_str("a rank ")?,
                (false, Some(rank)) => write!(f, "{rank}: ")?,
                (false, None) => {}
            },
        }
        f.write_str(match self.kind() {
            FaultKind::OutOfRange => "the place lies past the end of the region",
            FaultKind::Misaligned => "the offset is not aligned to the access",
            FaultKind::NoSuchRank => "the world has no such rank",
            FaultKind::NoSuchRegion => "no such region, or no longer",
            FaultKind::NotOwn => "the memory is not one's own",
            FaultKind::PeerDied => "died",
            PeerLeft => "has left",
            FaultKind::PeerNeverJoined => "never joined the job",
            FaultKind::OwnerDied => "died while it held the lock",
            FaultKind::OwnerLeft => "left while it held the lock",
            FaultKind::ParticipantDied => "died, and may have held the lock",
            FaultKind::ParticipantLeft => "left, and may have held the lock",
            FaultKind::OwnerPanicked => "panicked while it held the lock",
            FaultKind::LeaseExpired => "held the lock for longer than its lease",
            TimedOut => "the deadline passed",
            FaultKind::Unknown => "the operation failed on its way, it may have taken effect",
            FaultKind::ConnectionLost => "the connection to it is lost",
            FaultKind::Refused => "the fabric refused the operation",
            FaultKind::Full => "no room",
            FaultKind::NoSlot => "this rank has as many locks here as it has slots (`lock_slots` of the builder)",
            FaultKind::NoMemory => {
                "no memory, or a limit on it (`ulimit -v`, of files `ulimit -f`, of a card's memory `ulimit -l`)"
            }
            FaultKind::NoDescriptors => "no file descriptors left (raise `ulimit -n`)",
            FaultKind::TooLong => "the message is too long",
            FaultKind::Protocol => "the peer broke the protocol",
            FaultKind::NotHeld => "the lock is not held",
            FaultKind::Unsupported => "the fabric cannot do it",
            FaultKind::Closed if self.rank().is_some() => "the memory, the lock or the communicator is closed there",
            FaultKind::Closed => "the request was cancelled, or has yielded its result",
            FaultKind::Forked => "this process is a child made by `fork`, which is no rank",
            OutOfStep => {
                "an earlier collective of this world or window failed or was cancelled; a world that was split off before can go on"
            }
            FaultKind::Revoked => {
                "access was revoked: a lock was kept for longer than its lease, or the rank counts as dead there"
            }
        })?;
        match (self.kind(), self.detail()) {
            (_, 0) => Ok(()),
            (FaultKind::TooLong, bytes) => write!(f, " ({bytes} bytes)"),
            (FaultKind::ParticipantDied | FaultKind::ParticipantLeft, others) => {
                write!(f, " (as may {others} more that ended)")
            }
            (TimedOut, tasks) => write!(f, " ({tasks} tasks are not finished)"),
            (_, status) => write!(f, " (status {status})"),
        }
    }
}

impl core::error::Error for Fault {}

/// The questions that every error of the library answers, from its `fault`.
#[doc(hidden)]
#[macro_export]
macro_rules! questions {
    ($error:ty) => {
        impl $error {
            fn is_of(&self, kind: $crate::FaultKind) -> bool {
                Option::from(self.fault()).is_some_and(|fault: $crate::Fault| fault.kind() == kind)
            }

            /// Whether a lock request failed because the lock is poisoned: its exclusive owner
            /// died or left, may have, panicked, or exceeded its lease. [`fault`](Self::fault)
            /// names it. A request with `recover` takes the lock over, except from an expired owner that
            /// `LeasePolicy::Kill` could not kill.
            #[must_use]
            pub fn is_poisoned(&self) -> bool {
                Option::from(self.fault()).is_some_and($crate::Fault::is_poison)
            }

            /// Whether a lock request failed because the exclusive owner died, where the lock
            /// records that; [`fault`](Self::fault) names it.
            #[must_use]
            pub fn is_owner_died(&self) -> bool {
                self.is_of($crate::FaultKind::OwnerDied)
            }

            /// Whether a rank that the operation needs died; [`fault`](Self::fault) names it.
            #[must_use]
            pub fn is_peer_died(&self) -> bool {
                self.is_of($crate::FaultKind::PeerDied)
            }

            /// Whether access between this rank and another was revoked because one of them
            /// exceeded its lease (`LeasePolicy::Revoke`), or because the other rank counts this
            /// one as dead. [`fault`](Self::fault) names the other rank.
            #[must_use]
            pub fn is_revoked(&self) -> bool {
                self.is_of($crate::FaultKind::Revoked)
            }

            /// Whether a deadline passed.
            #[must_use]
            pub fn is_timed_out(&self) -> bool {
                self.is_of($crate::FaultKind::TimedOut)
            }

            /// Whether the operation is indeterminate: it may have taken effect.
            #[must_use]
            pub fn is_unknown(&self) -> bool {
                self.is_of($crate::FaultKind::Unknown)
            }
        }
    };
}

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

    #[test]
    fn an_end_says_which_it_was() {
        extern crate std;
        let text = |kind| std::string::ToString::to_string(&Fault::of(kind, Rank(3)));
        let ends = [FaultKind::PeerDied, FaultKind::PeerLeft, FaultKind::PeerNeverJoined].map(text);
        assert_eq!(ends, ["rank 3 died", "rank 3 has left", "rank 3 never joined the job"]);
        let owners = [FaultKind::OwnerDied, FaultKind::OwnerLeft, FaultKind::ParticipantLeft].map(text);
        assert_eq!(
            owners,
            [
                "rank 3 died while it held the lock",
                "rank 3 left while it held the lock",
                "rank 3 left, and may have held the lock"
            ]
        );
    }

    #[test]
    fn texts_say_what_the_detail_is() {
        extern crate std;
        let text = |fault: Fault| std::string::ToString::to_string(&fault);
        let late = Fault::of(FaultKind::TimedOut, Rank(3));
        assert_eq!(text(late), "the deadline passed, waiting for rank 3");
        assert_eq!(text(late.with_detail(2)), "the deadline passed, waiting for rank 3 and 2 more");
        assert_eq!(text(Fault::new(FaultKind::TimedOut)), "the deadline passed");
        let unfinished = Fault::new(FaultKind::TimedOut).with_detail(3);
        assert_eq!(text(unfinished), "the deadline passed (3 tasks are not finished)");
        let long = Fault::new(FaultKind::TooLong).with_detail(2000);
        assert_eq!(text(long), "the message is too long (2000 bytes)");
        let others = Fault::of(FaultKind::ParticipantDied, Rank(3)).with_detail(2);
        assert_eq!(text(others), "rank 3 died, and may have held the lock (as may 2 more that ended)");
        let both = [Collective::Fence as u8, Collective::Barrier as u8];
        let mismatch = Fault::out_of_step(Rank(3), both);
        assert_eq!(text(mismatch), "rank 3 is in a fence, and this rank in a barrier");
        let newer = Fault::out_of_step(Rank(3), [99, Collective::Split as u8]);
        assert_eq!(text(newer), "rank 3 is in another collective, and this rank in a split");
    }
}
