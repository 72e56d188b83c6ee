//! The word of the room that all targets' locks share.

use crate::Mode;

/// How many of each group are inside and how many wait. From the lowest bit: inside of `lock_all` 15 bits | of the exclusive
/// ones 15 | waiting for `lock_all` 15 | for an exclusive lock 15 | the phase of each group 1 and 1 | whose turn it is 1 |
/// frozen 1. No more than 2<sup>`BITS`</sup> - 1 of a group come, so nothing carries.
///
/// Who has announced itself and must not come in yet is among those inside for one operation. A group's phase is another
/// one each time all who wait are let in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Room<const BITS: u32>(pub(super) u64);

/// Bits of a field.
const FIELD: u32 = 15;
const MASK: u64 = (1 << FIELD) - 1;
/// The turn is the exclusive ones'.
const TURN: u64 = 1 << 62;
/// Somebody is doubted, and nobody comes in; see [`crate::recovery`]. Nobody waits in a frozen word: its stamp is there.
const FROZEN: u64 = 1 << 63;
/// Of the waiting fields, the highest bit of each left out: who adds itself before it sees that the word is frozen carries
/// nothing.
const STAMP: u64 = (MASK >> 1) << waiting_at(Mode::Shared) | (MASK >> 1) << waiting_at(Mode::Exclusive);

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

/// The group that this one does not go with.
pub(super) const fn other(mode: Mode) -> Mode {
    match mode {
        Mode::Shared => Mode::Exclusive,
        Mode::Exclusive => Mode::Shared,
    }
}

/// What a waiter may make of the word.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Move<const BITS: u32> {
    pub(super) to: Room<BITS>,
    /// Whether it is inside then.
    pub(super) admits: bool,
}

impl<const BITS: u32> Room<BITS> {
    /// How many of a group there may be.
    pub(super) const MOST: u64 = {
        assert!(BITS >= 1 && BITS <= FIELD, "four counters and four flags in 64 bits");
        (1 << BITS) - 1
    };

    /// What is added to come in.
    pub(super) const fn entering(mode: Mode) -> u64 {
        1 << inside_at(mode)
    }

    /// What is added to leave.
    pub(super) const fn leaving(mode: Mode) -> u64 {
        Self::entering(mode).wrapping_neg()
    }

    /// What is added to wait.
    pub(super) const fn waiting_on(mode: Mode) -> u64 {
        1 << waiting_at(mode)
    }

    /// What is added to wait instead of being inside.
    pub(super) const fn stepping_back(mode: Mode) -> u64 {
        Self::waiting_on(mode).wrapping_add(Self::leaving(mode))
    }

    pub(super) const fn plus(self, add: u64) -> Self {
        Self(self.0.wrapping_add(add))
    }

    /// One of a group is inside, and nobody else is or waits.
    pub(super) const fn of_one(mode: Mode) -> Self {
        Self(Self::entering(mode))
    }

    pub(super) const fn inside(self, mode: Mode) -> u64 {
        self.0 >> inside_at(mode) & MASK
    }

    /// How many wait, if it is not frozen.
    pub(super) const fn waiting(self, mode: Mode) -> u64 {
        self.0 >> waiting_at(mode) & MASK
    }

    pub(super) const fn phase(self, mode: Mode) -> u64 {
        self.0 & phase_of(mode)
    }

    pub(super) const fn is_frozen(self) -> bool {
        self.0 & FROZEN != 0
    }

    pub(super) const fn is_empty(self) -> bool {
        self.inside(Mode::Shared) == 0 && self.inside(Mode::Exclusive) == 0
    }

    /// Whether nobody is inside or waits.
    pub(super) const fn is_free(self) -> bool {
        !self.is_frozen() && self.is_empty() && self.waiting(Mode::Shared) == 0 && self.waiting(Mode::Exclusive) == 0
    }

    /// Whether this group is so many that no more come.
    pub(super) const fn is_full(self, mode: Mode, most: u64) -> bool {
        let waiting = if self.is_frozen() { 0 } else { self.waiting(mode) };
        self.inside(mode) + waiting >= most
    }

    /// Whether who comes may come in: past those who wait, and into a frozen room, only if it `passes`.
    pub(super) const fn is_open(self, mode: Mode, passes: bool) -> bool {
        let waits = self.is_frozen() || self.waiting(other(mode)) > 0;
        self.inside(other(mode)) == 0 && (passes || !waits)
    }

    /// The same for one of those who wait. Where nobody is inside, all of a group are let in at once: whose turn it is, and
    /// anybody does it for them.
    pub(super) const fn next(self, mode: Mode, passes: bool) -> Option<Move<BITS>> {
        if self.inside(other(mode)) > 0 {
            return None;
        }
        let alone = passes || self.waiting(other(mode)) == 0;
        if self.inside(mode) > 0 {
            let to = self.plus(Self::stepping_back(mode).wrapping_neg());
            return if alone { Some(Move { to, admits: true }) } else { None };
        }
        let turn = if self.0 & TURN == 0 { Mode::Shared } else { Mode::Exclusive };
        let group = if alone { mode } else { turn };
        let admits = inside_at(group) == inside_at(mode);
        Some(Move { to: self.let_in(group), admits })
    }

    /// All who wait of a group are inside, and the turn is the other one's.
    const fn let_in(self, mode: Mode) -> Self {
        let moved = self.0 + self.waiting(mode) * Self::entering(mode) - self.waiting(mode) * Self::waiting_on(mode);
        let turn = match mode {
            Mode::Shared => TURN,
            Mode::Exclusive => 0,
        };
        Self((moved ^ phase_of(mode)) & !TURN | turn)
    }

    /// Frozen: who waits does so no more.
    pub(super) const fn frozen(self, stamp: u64) -> Self {
        Self(self.0 & !WAITING | FROZEN | stamp & STAMP)
    }

    /// With nobody who waits.
    pub(super) const fn thawed(self) -> Self {
        Self(self.0 & !WAITING & !FROZEN)
    }
}
