//! What a host leaves at the home and among its own words.

use onesided_remote_memory::Rank;

use crate::test_and_set::EXCLUSIVE;

/// Beside [`EXCLUSIVE`] in the home's word: a host has it, not an owner.
const BY_HOST: u64 = 1 << 62;
/// Bits of a generation.
const GENERATION: u32 = 37;

const fn masked(generation: u64) -> u64 {
    generation & ((1 << GENERATION) - 1)
}

/// What stands at the home while a host has the lock: the rank where the host's queue is, and which of its times this is. No
/// two holds of a host have the same mark, until 2<sup>37</sup> others have been.
///
/// From the lowest bit: generation 37 bits | nothing | rank 24 bits | by a host | exclusive.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Mark(pub(super) u64);

impl Mark {
    pub(super) const fn new(leader: Rank, generation: u64) -> Self {
        Self(EXCLUSIVE | BY_HOST | (leader.0 as u64 & 0xff_ffff) << 38 | masked(generation))
    }

    /// The mark that a word of the home is, if it is one.
    pub(super) const fn of(word: u64) -> Option<Self> {
        if word & (EXCLUSIVE | BY_HOST) == EXCLUSIVE | BY_HOST { Some(Self(word)) } else { None }
    }

    pub(super) const fn leader(self) -> Rank {
        Rank((self.0 >> 38) as u32 & 0xff_ffff)
    }
}

/// How it stands with the lock on a host. Whoever has the turn in the queue changes it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Standing {
    /// It is for who has the turn to fetch the lock from the home.
    Away {
        /// Others are to have the first try.
        yields: bool,
    },
    /// The host has it; it was handed over here so many times one after the other.
    Kept(u16),
    /// Somebody died who may have had it, and nobody has inherited it.
    Doubted,
}

/// The word beside the host's queue.
///
/// From the lowest bit: the last mark's generation 37 bits | standing 2 bits | nothing | how often handed over 16 bits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct State {
    pub(super) standing: Standing,
    pub(super) generation: u64,
}

impl State {
    pub(super) const fn of(word: u64) -> Self {
        let standing = match word >> GENERATION & 3 {
            0 => Standing::Away { yields: false },
            1 => Standing::Away { yields: true },
            2 => Standing::Kept((word >> 48) as u16),
            _ => Standing::Doubted,
        };
        Self { standing, generation: masked(word) }
    }

    pub(super) const fn word(self) -> u64 {
        let (kind, handed) = match self.standing {
            Standing::Away { yields } => (yields as u64, 0),
            Standing::Kept(handed) => (2, handed),
            Standing::Doubted => (3, 0),
        };
        masked(self.generation) | kind << GENERATION | (handed as u64) << 48
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Owner;

    #[test]
    fn marks_are_no_owners_and_their_fields_do_not_touch() {
        for leader in [Rank(0), Rank(Rank::LIMIT)] {
            for generation in [0, 1, (1 << GENERATION) - 1] {
                let mark = Mark::new(leader, generation);
                assert_eq!(Mark::of(mark.0), Some(mark));
                assert_eq!(mark.leader(), leader);
                assert_ne!(mark, Mark::new(leader, generation + 1));
            }
            assert_eq!(Mark::new(leader, 1 << GENERATION), Mark::new(leader, 0));
            let owner = Owner { rank: leader, slot: Owner::NO_SLOT, generation: 0x3ff_ffff };
            assert_eq!(Mark::of(EXCLUSIVE | owner.to_bits()), None);
        }
        // What readers leave, frozen or not.
        assert_eq!([0, 1, (1 << 62) | 5, (1 << 62) - 1].map(Mark::of), [None; 4]);
    }

    #[test]
    fn states_pack() {
        for generation in [0, (1 << GENERATION) - 1] {
            for standing in [
                Standing::Away { yields: false },
                Standing::Away { yields: true },
                Standing::Kept(1),
                Standing::Kept(u16::MAX),
                Standing::Doubted,
            ] {
                let state = State { standing, generation };
                assert_eq!(State::of(state.word()), state);
            }
        }
        assert_eq!(State::of(0).standing, Standing::Away { yields: false });
    }
}
