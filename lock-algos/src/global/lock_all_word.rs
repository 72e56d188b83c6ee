//! The lock-all word.

use crate::Mode;

/// How many owners of each group are inside and how many wait. From the lowest bit: lock-all owners
/// inside 15 bits | exclusive owners inside 15 | waiting for lock-all 15 | waiting for an exclusive
/// lock 15 | the phase of each group 1 and 1 | whose turn it is 1 | under recovery 1. No more than
/// 2<sup>`BITS`</sup> - 1 owners of a group arrive, so no field carries.
///
/// An owner that has announced itself and is not admitted yet is among those inside for one
/// operation. A group's phase changes each time all its waiters are admitted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct LockAllWord<const BITS: u32>(pub(super) u64);

/// Bits of a field.
const FIELD: u32 = 15;
const MASK: u64 = (1 << FIELD) - 1;
/// It is the exclusive owners' turn.
const TURN: u64 = 1 << 62;
/// Under recovery: arrivals are rejected; see [`crate::recovery`]. The waiting fields then hold the
/// nonce.
const RECOVERING: u64 = 1 << 63;
/// The nonce: the waiting fields without the highest bit of each, so that an owner that adds itself
/// before it sees the recovery causes no carry.
const NONCE: u64 = (MASK >> 1) << waiting_at(Mode::Shared) | (MASK >> 1) << waiting_at(Mode::Exclusive);

const WAITING: u64 = MASK << waiting_at(Mode::Shared) | MASK << waiting_at(Mode::Exclusive);

const fn inside_at(mode: Mode) -> u32 {
    match mode {
        Mode::Shared => 0,
        Mode::Exclusive => FIELD,
    }
}

const fn waiting_at(mode: Mode) -> u32 {
    2 * FIELD + inside_at(mode)
}

const fn phase_of(mode: Mode) -> u64 {
    match mode {
        Mode::Shared => 1 << (4 * FIELD),
        Mode::Exclusive => 1 << (4 * FIELD + 1),
    }
}

/// A change of the word that a waiter may make.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Move<const BITS: u32> {
    pub(super) to: LockAllWord<BITS>,
    /// Whether the waiter is inside after it.
    pub(super) admits: bool,
}

impl<const BITS: u32> LockAllWord<BITS> {
    /// The most owners of a group.
    pub(super) const MOST: u64 = {
        assert!(BITS >= 1 && BITS <= FIELD, "four counters and four flags in 64 bits");
        (1 << BITS) - 1
    };

    /// Added to enter.
    pub(super) const fn entering(mode: Mode) -> u64 {
        1 << inside_at(mode)
    }

    /// Added to leave.
    pub(super) const fn leaving(mode: Mode) -> u64 {
        Self::entering(mode).wrapping_neg()
    }

    /// Added to wait.
    pub(super) const fn waiting_on(mode: Mode) -> u64 {
        1 << waiting_at(mode)
    }

    /// Added to wait instead of being inside.
    pub(super) const fn stepping_back(mode: Mode) -> u64 {
        Self::waiting_on(mode).wrapping_add(Self::leaving(mode))
    }

    pub(super) const fn plus(self, add: u64) -> Self {
        Self(self.0.wrapping_add(add))
    }

    /// One owner of a group is inside, and there are no other owners or waiters.
    pub(super) const fn of_one(mode: Mode) -> Self {
        Self(Self::entering(mode))
    }

    pub(super) const fn inside(self, mode: Mode) -> u64 {
        self.0 >> inside_at(mode) & MASK
    }

    /// The number of waiters, if the word is not under recovery.
    pub(super) const fn waiting(self, mode: Mode) -> u64 {
        self.0 >> waiting_at(mode) & MASK
    }

    /// All owners and waiters, if the word is not under recovery.
    pub(super) const fn owners(self) -> u64 {
        self.inside(Mode::Shared)
            + self.inside(Mode::Exclusive)
            + self.waiting(Mode::Shared)
            + self.waiting(Mode::Exclusive)
    }

    pub(super) const fn phase(self, mode: Mode) -> u64 {
        self.0 & phase_of(mode)
    }

    pub(super) const fn is_recovering(self) -> bool {
        self.0 & RECOVERING != 0
    }

    pub(super) const fn is_empty(self) -> bool {
        self.inside(Mode::Shared) == 0 && self.inside(Mode::Exclusive) == 0
    }

    /// Whether there are no owners and no waiters.
    pub(super) const fn is_free(self) -> bool {
        !self.is_recovering()
            && self.is_empty()
            && self.waiting(Mode::Shared) == 0
            && self.waiting(Mode::Exclusive) == 0
    }

    /// Whether an arriving owner is admitted. It bypasses waiters, and enters a word under
    /// recovery, only if it `bypasses`.
    pub(super) const fn is_open(self, mode: Mode, bypasses: bool) -> bool {
        let waits = self.is_recovering() || self.waiting(mode.other()) > 0;
        self.inside(mode.other()) == 0 && (bypasses || !waits)
    }

    /// The same for a waiter. If no owner is inside, all waiters of a group are admitted at once:
    /// the group whose turn it is, by any waiter.
    pub(super) const fn next(self, mode: Mode, bypasses: bool) -> Option<Move<BITS>> {
        if self.inside(mode.other()) > 0 {
            return None;
        }
        let alone = bypasses || self.waiting(mode.other()) == 0;
        if self.inside(mode) > 0 {
            let to = self.plus(Self::stepping_back(mode).wrapping_neg());
            return if alone { Some(Move { to, admits: true }) } else { None };
        }
        let turn = if self.0 & TURN == 0 { Mode::Shared } else { Mode::Exclusive };
        let group = if alone { mode } else { turn };
        let admits = inside_at(group) == inside_at(mode);
        Some(Move { to: self.let_in(group), admits })
    }

    /// All waiters of a group are inside, and it is the other group's turn.
    const fn let_in(self, mode: Mode) -> Self {
        let moved = self.0 + self.waiting(mode) * Self::entering(mode) - self.waiting(mode) * Self::waiting_on(mode);
        let turn = match mode {
            Mode::Shared => TURN,
            Mode::Exclusive => 0,
        };
        Self((moved ^ phase_of(mode)) & !TURN | turn)
    }

    /// Under recovery: there are no waiters.
    pub(super) const fn recovering(self, nonce: u64) -> Self {
        Self(self.0 & !WAITING | RECOVERING | nonce & NONCE)
    }
}
