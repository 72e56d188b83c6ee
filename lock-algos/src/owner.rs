//! Who holds a lock, and how.

use onesided_remote_memory::{Fault, Rank};

/// How a lock is held.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Mode {
    /// By one owner.
    Exclusive,
    /// By any number of owners, none of them exclusive.
    Shared,
}

/// Who holds or waits: a rank has many slots, so that its threads and its several locks do not collide, and a slot's
/// generation rises with each use, so that a late operation of an earlier use is recognised.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Owner {
    /// The rank; 24 bits.
    pub rank: Rank,
    /// Which of the rank's slots; 12 bits. [`NO_SLOT`](Self::NO_SLOT) for one that uses no node.
    pub slot: u16,
    /// Which use of the slot; 26 bits, wrapping. Of those without a slot, which of the rank's; one that needs none may have 0
    /// where the outcome of every operation is known.
    pub generation: u32,
}

impl Owner {
    /// Bits of [`to_bits`](Self::to_bits): the two highest of a word are left to the algorithm.
    pub const BITS: u32 = 62;

    /// The slot of an owner without a node.
    pub const NO_SLOT: u16 = 0xfff;

    /// The owner in the low 62 bits of a word.
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

/// How an acquire came to hold the lock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Held {
    /// How it is held, and is to be released: as it was asked for, but whoever recovers from a dead owner has it alone,
    /// for what the owner left half done is for nobody else to see.
    pub mode: Mode,
    /// What ended without releasing: `OwnerDied` with the rank that held the lock alone, or `ParticipantDied` with a rank that
    /// may have been among the readers, for a count names nobody. Told to the first owner after it, and to no other.
    pub recovered: Option<Fault>,
}

impl Held {
    /// From nobody, or from an owner that released.
    #[must_use]
    #[inline]
    pub const fn cleanly(mode: Mode) -> Self {
        Self { mode, recovered: None }
    }

    /// From somebody who ended inside.
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
