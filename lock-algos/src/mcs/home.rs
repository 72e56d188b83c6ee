//! The word at the home of a queue lock.

use onesided_remote_memory::Rank;

use crate::{Mode, Owner};

/// The home's word: flags 3 bits | readers 25 bits | slot 12 bits | rank 24 bits of the queue's
/// tail.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) struct Home(pub(super) u64);

impl Home {
    pub(super) const FREE: Self = Self(0);
    /// Under recovery: arrivals are rejected; see [`crate::recovery`].
    pub(super) const FROZEN: u64 = 1 << 63;
    /// The queue is not empty, and the low bits name its tail.
    pub(super) const QUEUED: u64 = 1 << 62;
    /// Put under recovery while the queue was not empty: because this rank died there or was lost,
    /// or [because](Self::UNSURE) an operation was indeterminate.
    pub(super) const LOST: u64 = 1 << 61;
    /// No rank: the owners in the queue go on, and may die.
    pub(super) const UNSURE: Rank = Rank(Rank::LIMIT);
    pub(super) const READER: u64 = 1 << 36;
    pub(super) const READERS: u64 = 0x1ff_ffff << 36;
    /// The tail of the queue.
    const LAST: u64 = (1 << 36) - 1;

    pub(super) const fn is(self, flag: u64) -> bool {
        self.0 & flag != 0
    }

    pub(super) const fn has_readers(self) -> bool {
        self.0 & Self::READERS != 0
    }

    /// The same readers, and this owner at the tail of the queue.
    pub(super) const fn behind(self, owner: Owner) -> Self {
        let last = (owner.slot as u64 & 0xfff) << 24 | owner.rank.0 as u64 & 0xff_ffff;
        Self(Self::QUEUED | self.0 & Self::READERS | last)
    }

    /// One reader more.
    pub(super) const fn joined(self) -> Self {
        Self(self.0 + Self::READER)
    }

    /// The same readers, and an empty queue.
    pub(super) const fn unqueued(self) -> Self {
        Self(self.0 & Self::READERS)
    }

    /// The same readers; the nonce of the recovery and the lost rank replace the tail.
    pub(super) const fn frozen(self, lost: Option<Rank>, stamp: u64) -> Self {
        let which = match lost {
            Some(Rank(rank)) if rank < Rank::LIMIT || self.is(Self::QUEUED) => {
                Self::LOST | stamp & 0xfff << 24 | rank as u64 & 0xff_ffff
            }
            _ => stamp & Self::LAST,
        };
        Self(Self::FROZEN | self.0 & Self::READERS | which)
    }

    /// What an owner turns a free word into.
    pub(super) const fn taken(owner: Owner, mode: Mode) -> Self {
        match mode {
            Mode::Shared => Self::FREE.joined(),
            Mode::Exclusive => Self::FREE.behind(owner),
        }
    }

    /// Whether it is this word under recovery, except for readers that have left.
    pub(super) const fn is_as_frozen(self, frozen: Self) -> bool {
        self.0 & !Self::READERS == frozen.0 & !Self::READERS
    }

    /// Whether this owner is the tail.
    pub(super) const fn ends_with(self, owner: Owner) -> bool {
        self.is(Self::QUEUED) && self.0 & Self::LAST == self.behind(owner).0 & Self::LAST
    }

    /// Whether a swap of `found` for `new` by this owner, which is still announced, has taken
    /// effect, if the current word tells.
    pub(super) const fn was_swapped(self, found: Self, new: Self, owner: Owner) -> Option<bool> {
        let is_left = !self.is(Self::QUEUED | Self::FROZEN);
        match (found.ends_with(owner), new.ends_with(owner)) {
            // It leaves the queue. No other rank removes it, and its successor may be linked behind
            // another owner.
            (true, _) if self.ends_with(owner) => Some(false),
            (true, _) if is_left => Some(true),
            // It joins at the tail, and stays in the queue.
            (_, true) if self.ends_with(owner) => Some(true),
            (_, true) if is_left || self.0 == found.0 => Some(false),
            (_, true)
                if found.is(Self::QUEUED) && self.is(Self::QUEUED) && self.0 & Self::LAST == found.0 & Self::LAST =>
            {
                Some(false)
            }
            // It adds itself to the readers.
            (false, false) if self.0 & Self::READERS == 0 => Some(false),
            // No two recoveries have the same word.
            (false, false) if self.0 == found.0 && found.is(Self::FROZEN) => Some(false),
            _ => None,
        }
    }

    /// The rank that died in the queue of a word under recovery, or was lost there.
    pub(super) const fn lost(self) -> Option<Rank> {
        if self.is(Self::LOST) && self.rank().0 < Rank::LIMIT { Some(self.rank()) } else { None }
    }

    pub(super) const fn rank(self) -> Rank {
        Rank(self.0 as u32 & 0xff_ffff)
    }

    pub(super) const fn slot(self) -> u16 {
        (self.0 >> 24) as u16 & 0xfff
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_swap_is_settled_by_the_word() {
        let [a, b] = [1, 2].map(|rank| Owner { rank: Rank(rank), slot: 3, generation: 7 });
        let (free, mine, theirs) = (Home::FREE, Home::FREE.behind(a), Home::FREE.behind(b));
        let (one, two) = (Home::FREE.joined(), Home::FREE.joined().joined());
        let frozen = theirs.frozen(Some(b.rank), 5);
        let read = two.behind(b).frozen(Some(b.rank), 5);
        for (found, new, now, swapped) in [
            (free, mine, mine, Some(true)),
            (two, two.behind(a), one.behind(a), Some(true)), // a reader has left meanwhile
            (free, mine, free, Some(false)),
            (free, mine, one, Some(false)),
            (theirs, mine, theirs.joined(), Some(false)),
            (theirs, mine, Home::FREE.behind(Owner { slot: 4, ..b }), None), // the order is unknown
            (free, mine, theirs, None),
            (theirs, mine, frozen, None),
            (free, one, free, Some(false)),
            (free, one, theirs, Some(false)),
            (free, one, one, None), // of which owner is unknown
            (one, two, one, None),
            (frozen, one, frozen, Some(false)),
            (frozen, mine, frozen, Some(false)),
            (frozen, mine, theirs, None),
            (frozen, one, one, None), // of which owner is unknown
            (read, one, read, Some(false)),
            (mine, free, mine, Some(false)),
            (mine, free, free, Some(true)),
            (mine, free, one, Some(true)),
            (mine, free, theirs, None), // behind this owner, or after it
            (mine, free, frozen, None),
        ] {
            assert_eq!(now.was_swapped(found, new, a), swapped, "{:x} to {:x}: {:x}", found.0, new.0, now.0);
        }
    }

    #[test]
    fn the_homes_fields_do_not_touch() {
        let owner = Owner { rank: Rank(Rank::LIMIT), slot: 0xfff, generation: 0x3ff_ffff };
        let all = Home(Home::READERS);
        let last = all.behind(owner);
        assert_eq!((last.rank(), last.slot()), (owner.rank, owner.slot));
        assert!(last.has_readers() && last.is(Home::QUEUED) && !last.is(Home::FROZEN | Home::LOST));
        assert!(last.unqueued() == all && Home::FREE.behind(owner).unqueued() == Home::FREE);
        let none = Owner { rank: Rank(0), slot: 0, generation: 0 };
        assert!(Home::FREE.behind(none) != Home::FREE && !Home::FREE.behind(none).has_readers());
        let frozen = last.frozen(Some(owner.rank), u64::MAX);
        assert!(frozen.is(Home::FROZEN) && frozen.is(Home::LOST) && frozen.rank() == owner.rank);
        let unsure = last.frozen(Some(Home::UNSURE), 0);
        assert!(unsure.is(Home::LOST) && unsure.lost().is_none());
        assert!(!all.frozen(Some(Home::UNSURE), 0).is(Home::LOST) && !last.frozen(None, 0).is(Home::LOST));
        assert_eq!(last.frozen(Some(Rank(7)), u64::MAX).lost(), Some(Rank(7)));
        assert!(
            frozen.has_readers()
                && !frozen.is(Home::QUEUED)
                && !all.frozen(None, u64::MAX).is(Home::LOST | Home::QUEUED)
        );
        let [seven, other] = [u64::MAX, 0].map(|stamp| last.frozen(Some(Rank(7)), stamp));
        assert!(seven != other && last.frozen(None, 1) != last.frozen(None, 2));
        let fewer = Home(seven.0 - Home::READER);
        assert!(fewer.is_as_frozen(seven) && seven.is_as_frozen(fewer) && !other.is_as_frozen(seven));
        assert!(!Home::FREE.is_as_frozen(Home(Home::FROZEN)) && !all.is_as_frozen(seven));
        assert!(Home::FREE.joined().has_readers() && !Home::FREE.joined().is(Home::QUEUED));
    }
}
