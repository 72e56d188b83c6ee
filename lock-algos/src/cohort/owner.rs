//! The owner word of a cohort at the home, and the state word beside its queue.

use onesided_remote_memory::Rank;

use crate::owner::EXCLUSIVE;

/// Beside [`EXCLUSIVE`] in the home's word: a host holds the lock, not an owner.
const BY_HOST: u64 = 1 << 62;
/// Bits of a generation.
const GENERATION: u32 = 37;

const fn masked(generation: u64) -> u64 {
    generation & ((1 << GENERATION) - 1)
}

/// The owner word of a cohort, which is at the home while a host holds the lock: the rank of the
/// host's queue, and a generation. Two holds of a host have different words, until 2<sup>37</sup>
/// others have passed.
///
/// From the lowest bit: generation 37 bits | unused | rank 24 bits | by a host | exclusive.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct CohortOwner(pub(crate) u64);

impl CohortOwner {
    pub(crate) const fn new(leader: Rank, generation: u64) -> Self {
        Self(EXCLUSIVE | BY_HOST | (leader.0 as u64 & 0xff_ffff) << 38 | masked(generation))
    }

    /// The cohort's owner word in a word of the home, if it is one.
    pub(crate) const fn of(word: u64) -> Option<Self> {
        if word & (EXCLUSIVE | BY_HOST) == EXCLUSIVE | BY_HOST { Some(Self(word)) } else { None }
    }

    pub(crate) const fn leader(self) -> Rank {
        Rank((self.0 >> 38) as u32 & 0xff_ffff)
    }
}

/// The global state of the lock on a host. The owner whose turn it is in the queue changes it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum GlobalState {
    /// The owner whose turn it is has to acquire the lock at the home.
    Away {
        /// Owners on other hosts are to try first.
        yields: bool,
    },
    /// The host holds the lock, and has handed it over this many times in a row.
    Kept(u16),
    /// A possible holder died, and no owner has recovered the lock.
    Uncertain,
}

/// The word beside the host's queue.
///
/// From the lowest bit: generation of the last owner word 37 bits | global state 2 bits | unused |
/// hand-overs 16 bits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct State {
    pub(crate) global: GlobalState,
    pub(crate) generation: u64,
}

impl State {
    pub(crate) const fn of(word: u64) -> Self {
        let global = match word >> GENERATION & 3 {
            0 => GlobalState::Away { yields: false },
            1 => GlobalState::Away { yields: true },
            2 => GlobalState::Kept((word >> 48) as u16),
            _ => GlobalState::Uncertain,
        };
        Self { global, generation: masked(word) }
    }

    pub(crate) const fn word(self) -> u64 {
        let (kind, handed) = match self.global {
            GlobalState::Away { yields } => (yields as u64, 0),
            GlobalState::Kept(handed) => (2, handed),
            GlobalState::Uncertain => (3, 0),
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
                let owner_word = CohortOwner::new(leader, generation);
                assert_eq!(CohortOwner::of(owner_word.0), Some(owner_word));
                assert_eq!(owner_word.leader(), leader);
                assert_ne!(owner_word, CohortOwner::new(leader, generation + 1));
            }
            assert_eq!(CohortOwner::new(leader, 1 << GENERATION), CohortOwner::new(leader, 0));
            let owner = Owner { rank: leader, slot: Owner::NO_SLOT, generation: 0x3ff_ffff };
            assert_eq!(CohortOwner::of(EXCLUSIVE | owner.to_bits()), None);
        }
        // Words of readers, under recovery or not.
        assert_eq!([0, 1, (1 << 62) | 5, (1 << 62) - 1].map(CohortOwner::of), [None; 4]);
    }

    #[test]
    fn states_pack() {
        for generation in [0, (1 << GENERATION) - 1] {
            for global in [
                GlobalState::Away { yields: false },
                GlobalState::Away { yields: true },
                GlobalState::Kept(1),
                GlobalState::Kept(u16::MAX),
                GlobalState::Uncertain,
            ] {
                let state = State { global, generation };
                assert_eq!(State::of(state.word()), state);
            }
        }
        assert_eq!(State::of(0).global, GlobalState::Away { yields: false });
    }
}
