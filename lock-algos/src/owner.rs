//! Owners of a lock, and how they hold it.

use onesided_remote_memory::{Fault, Rank};

/// The mode of a lock.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Mode {
    /// One owner.
    Exclusive,
    /// Any number of owners, none of them exclusive.
    Shared,
}

impl Mode {
    pub(crate) const fn other(self) -> Self {
        match self {
            Self::Exclusive => Self::Shared,
            Self::Shared => Self::Exclusive,
        }
    }
}

/// An owner or waiter of a lock. A rank has many slots, so that its threads and its locks do not
/// collide. The generation of a slot rises with each use, so that a late operation of an earlier
/// use is recognised.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Owner {
    /// The rank; 24 bits.
    pub rank: Rank,
    /// The slot of the rank; 12 bits. [`NO_SLOT`](Self::NO_SLOT) for an owner that needs no node.
    pub slot: u16,
    /// The use of the slot; 26 bits, wrapping. Of owners without a slot, a number among those of
    /// the rank; it may be 0 if the owner needs no slot and the outcome of every operation is
    /// known.
    pub generation: u32,
}

impl Owner {
    /// The bits of [`to_bits`](Self::to_bits). The two highest bits of a word are left to the
    /// algorithm.
    pub const BITS: u32 = 62;

    /// How many of them are the generation's, the lowest.
    pub(crate) const GENERATION: u32 = 26;

    /// The slot of an owner that needs no node.
    pub const NO_SLOT: u16 = 0xfff;

    /// The owner in the low 62 bits of a word. They may be 0 (rank 0, slot 0): a word in which 0 is
    /// free stores `to_bits() + 1`.
    #[must_use]
    #[inline]
    pub const fn to_bits(self) -> u64 {
        (self.rank.0 as u64 & 0xff_ffff) << 38
            | (self.slot as u64 & 0xfff) << 26
            | (self.generation as u64 & 0x3ff_ffff)
    }

    /// The inverse of [`to_bits`](Self::to_bits); the two highest bits are ignored.
    #[must_use]
    #[inline]
    pub const fn from_bits(bits: u64) -> Self {
        Self {
            rank: Rank((bits >> 38) as u32 & 0xff_ffff),
            slot: (bits >> 26) as u16 & 0xfff,
            generation: bits as u32 & 0x3ff_ffff,
        }
    }
}

/// In a lock's word: the lower 62 bits name its exclusive owner.
pub(crate) const EXCLUSIVE: u64 = 1 << 63;

/// The result of a successful acquire.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Held {
    /// The mode in which the lock is held, and has to be released: the requested one, except that a
    /// recovering owner holds it exclusively, because the data may be inconsistent.
    pub mode: Mode,
    /// The fault of the previous owner, if it died or left: `OwnerDied` and `OwnerLeft` name the rank
    /// that held the lock exclusively; `ParticipantDied` and `ParticipantLeft` name a rank that may
    /// have been among the waiters, because a count does not tell which ranks hold the lock.
    /// `LeaseExpired` names an owner whose lock was
    /// taken from it. Reported to the first owner after the death, and to no other.
    pub recovered: Option<Fault>,
}

impl Held {
    /// Acquired from an owner that released, or from none.
    #[must_use]
    #[inline]
    pub const fn cleanly(mode: Mode) -> Self {
        Self { mode, recovered: None }
    }

    /// Acquired from an owner that died or whose lease expired.
    #[must_use]
    pub const fn after(death: Fault, mode: Mode) -> Self {
        Self { mode, recovered: Some(death) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn owners_pack_at_every_fields_edge() {
        for rank in [0, 1, Rank::LIMIT] {
            for slot in [0, 0xfff] {
                for generation in [0, 0x3ff_ffff] {
                    let owner = Owner { rank: Rank(rank), slot, generation };
                    assert_eq!(Owner::from_bits(owner.to_bits()), owner);
                    assert_eq!(owner.to_bits() >> Owner::BITS, 0);
                }
            }
        }
    }
}
