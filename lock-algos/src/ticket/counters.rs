//! The word of a ticket lock.

use crate::Mode;

/// From the lowest bit: under recovery 1 bit | tickets given out to readers `BITS` bits and a guard
/// | tickets given out to exclusive owners `BITS` bits and a guard | readers' tickets returned
/// `BITS` bits and a guard | unused, if `BITS` is below 15 | exclusive tickets returned `BITS`
/// bits.
///
/// Counters wrap, and only their differences matter. A guard catches the carry of a counter; its
/// value is meaningless, and it is cleared before a second carry can arrive. The carry of the
/// highest counter is lost.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Counters<const BITS: u32>(pub(crate) u64);

impl<const BITS: u32> Counters<BITS> {
    /// The most tickets of one mode that may be out at a time.
    pub(crate) const ROOM: u64 = {
        assert!(BITS >= 1 && BITS <= 15, "four counters, three guards and a flag in 64 bits");
        (1 << BITS) - 1
    };
    /// Under recovery: tickets mean nothing; see [`crate::recovery`].
    const RECOVERING: u64 = 1;
    const GUARDS: u64 = (1 | 1 << (BITS + 1) | 1 << (2 * BITS + 2)) << (BITS + 1);

    const fn given_at(mode: Mode) -> u32 {
        match mode {
            Mode::Shared => 1,
            Mode::Exclusive => BITS + 2,
        }
    }

    const fn returned_at(mode: Mode) -> u32 {
        match mode {
            Mode::Shared => 2 * BITS + 3,
            Mode::Exclusive => 64 - BITS,
        }
    }

    const fn at(self, shift: u32) -> u64 {
        self.0 >> shift & Self::ROOM
    }

    const fn with(self, shift: u32, value: u64) -> Self {
        Self(self.0 & !(Self::ROOM << shift) | (value & Self::ROOM) << shift)
    }

    /// Added to take a ticket.
    pub(crate) const fn taking(mode: Mode) -> u64 {
        1 << Self::given_at(mode)
    }

    /// Added to return one.
    pub(crate) const fn returning(mode: Mode) -> u64 {
        1 << Self::returned_at(mode)
    }

    /// The word after a ticket was taken by a fetch-add that found this one.
    pub(crate) const fn taken(self, mode: Mode) -> Self {
        Self(self.0.wrapping_add(Self::taking(mode)))
    }

    /// The word with one ticket more, without a carry.
    pub(crate) const fn joined(self, mode: Mode) -> Self {
        let shift = Self::given_at(mode);
        self.with(shift, self.at(shift) + 1)
    }

    /// The word with one ticket less, as if it had not been given out.
    pub(crate) const fn withdrawn(self, mode: Mode) -> Self {
        let shift = Self::given_at(mode);
        self.with(shift, self.at(shift).wrapping_sub(1))
    }

    /// The word without one return.
    pub(crate) const fn unreturned(self, mode: Mode) -> Self {
        let shift = Self::returned_at(mode);
        self.with(shift, self.at(shift).wrapping_sub(1))
    }

    pub(crate) const fn unguarded(self) -> Self {
        Self(self.0 & !Self::GUARDS)
    }

    pub(crate) const fn recovering(self) -> Self {
        Self(self.0 | Self::RECOVERING)
    }

    /// Reopened, with every ticket returned and one given out. It equals no earlier word under
    /// recovery until the counters have wrapped: a late compare-swap against one of those fails.
    pub(crate) const fn taken_over(self, mode: Mode) -> Self {
        let readers = self.at(Self::given_at(Mode::Shared));
        let owners = self.at(Self::given_at(Mode::Exclusive));
        let back = self
            .with(Self::returned_at(Mode::Shared), readers)
            .with(Self::returned_at(Mode::Exclusive), owners)
            .unguarded();
        Self(back.0 & !Self::RECOVERING).joined(mode)
    }

    pub(crate) const fn is_recovering(self) -> bool {
        self.0 & Self::RECOVERING != 0
    }

    pub(crate) const fn has_guards(self) -> bool {
        self.0 & Self::GUARDS != 0
    }

    /// How many tickets of a mode are out.
    pub(crate) const fn out(self, mode: Mode) -> u64 {
        self.missing(self, mode)
    }

    /// How many tickets of a mode are still out, of those that `before` had given out.
    const fn missing(self, before: Self, mode: Mode) -> u64 {
        before.at(Self::given_at(mode)).wrapping_sub(self.at(Self::returned_at(mode))) & Self::ROOM
    }

    pub(crate) const fn nothing_out(self) -> bool {
        self.out(Mode::Shared) == 0 && self.out(Mode::Exclusive) == 0
    }

    /// How many tickets are still out, of those that `before` had given out and that exclude an
    /// owner in this mode: exclusive ones, and readers' if it is exclusive.
    pub(crate) const fn ahead(self, before: Self, mode: Mode) -> u64 {
        let owners = self.missing(before, Mode::Exclusive);
        match mode {
            Mode::Shared => owners,
            Mode::Exclusive => owners + self.missing(before, Mode::Shared),
        }
    }

    /// Whether a ticket that was taken from this word holds the lock at once, and no guard has to
    /// be cleared first.
    pub(crate) const fn is_open(self, mode: Mode) -> bool {
        let after = self.taken(mode);
        !after.is_recovering() && !after.has_guards() && self.ahead(self, mode) == 0
    }

    /// Whether the same tickets are given out.
    pub(crate) const fn gave_as(self, other: Self) -> bool {
        self.at(Self::given_at(Mode::Shared)) == other.at(Self::given_at(Mode::Shared))
            && self.at(Self::given_at(Mode::Exclusive)) == other.at(Self::given_at(Mode::Exclusive))
    }

    /// How many tickets of a mode were given out: the number of the next one.
    pub(crate) const fn given(self, mode: Mode) -> u64 {
        self.at(Self::given_at(mode))
    }

    /// How many were returned.
    pub(crate) const fn came_back(self, mode: Mode) -> u64 {
        self.at(Self::returned_at(mode))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MODES: [Mode; 2] = [Mode::Shared, Mode::Exclusive];

    /// Each field alone, empty and full, and what a carry out of it reaches.
    fn fields_do_not_touch<const BITS: u32>() {
        let all = MODES
            .into_iter()
            .flat_map(|mode| [Counters::<BITS>::given_at(mode), Counters::<BITS>::returned_at(mode)])
            .map(|shift| Counters::<BITS>::ROOM << shift)
            .chain([Counters::<BITS>::RECOVERING, Counters::<BITS>::GUARDS]);
        let mut seen = 0_u64;
        for bits in all {
            assert_eq!(seen & bits, 0, "{BITS}: {bits:x}");
            seen |= bits;
        }
        assert_eq!(seen.count_ones(), 4 * BITS + 4);
        for mode in MODES {
            let full = Counters::<BITS>(Counters::<BITS>::ROOM << Counters::<BITS>::given_at(mode));
            assert!(full.taken(mode).has_guards() && full.taken(mode).unguarded() == Counters(0));
            assert!(full.joined(mode) == Counters(0) && Counters(0).withdrawn(mode) == full);
            let full = Counters::<BITS>(Counters::<BITS>::ROOM << Counters::<BITS>::returned_at(mode));
            let next = Counters::<BITS>(full.0.wrapping_add(Counters::<BITS>::returning(mode)));
            assert!(next.unguarded() == Counters(0) && Counters(0).unreturned(mode) == full);
        }
    }

    #[test]
    fn the_fields_do_not_touch() {
        fields_do_not_touch::<1>();
        fields_do_not_touch::<2>();
        fields_do_not_touch::<7>();
        fields_do_not_touch::<14>();
        fields_do_not_touch::<15>();
    }

    /// Each mode at every value of the counters, one ticket at a time.
    #[test]
    fn tickets_go_round() {
        for mode in MODES {
            let mut word = Counters::<15>(0);
            for round in 0_u64..3 << 15 {
                assert!(word.nothing_out() && !word.is_recovering(), "{round}: {word:x?}");
                let before = word;
                word = word.taken(mode);
                assert_eq!(before.is_open(mode), !word.has_guards());
                word = word.unguarded();
                assert_eq!((word.out(mode), word.ahead(before, mode)), (1, 0));
                assert_eq!(word.ahead(word, Mode::Exclusive), 1);
                assert!(!word.is_open(Mode::Exclusive));
                word = Counters(word.0.wrapping_add(Counters::<15>::returning(mode)));
            }
        }
    }

    /// As many tickets as fit, from every start value.
    #[test]
    fn all_tickets_may_be_out() {
        for begin in [0, 1, 0x3fff, 0x4000, 0x7ffe, 0x7fff] {
            let mut word = Counters::<15>(0);
            for mode in MODES {
                word = word.with(Counters::<15>::given_at(mode), begin);
                word = word.with(Counters::<15>::returned_at(mode), begin);
            }
            assert!(word.nothing_out());
            let free = word;
            for number in 0..Counters::<15>::ROOM {
                for mode in MODES {
                    assert_eq!((word.out(mode), free.ahead(word, mode) >= number), (number, true));
                    word = word.taken(mode).unguarded();
                }
            }
            let reopened = word.recovering().taken_over(Mode::Exclusive);
            assert!(!reopened.is_recovering() && reopened.out(Mode::Exclusive) == 1 && reopened.out(Mode::Shared) == 0);
            assert_eq!(reopened.ahead(reopened.withdrawn(Mode::Exclusive), Mode::Exclusive), 0);
        }
    }
}
