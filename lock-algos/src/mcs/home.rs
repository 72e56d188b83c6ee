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
    /// Put under recovery because this rank died in the queue, or cannot be reached there.
    pub(super) const LOST: u64 = 1 << 61;
    pub(super) const READER: u64 = 1 << 36;
    pub(super) const READERS: u64 = 0x1ff_ffff << 36;
    /// The tail of the queue.
    const LAST: u64 = (1 << 36) - 1;

    pub(super) const fn is(self, flag: u64) -> bool {
        self.0 & flag != 0
    }

    pub(super) const fn readers(self) -> u64 {
        (self.0 & Self::READERS) / Self::READER
    }

    pub(super) const fn has_readers(self) -> bool {
        self.readers() != 0
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
            Some(Rank(rank)) => Self::LOST | stamp & 0xfff << 24 | rank as u64 & 0xff_ffff,
            None => stamp & Self::LAST,
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

    /// The rank for which the queue of a word under recovery was given up.
    pub(super) const fn lost(self) -> Option<Rank> {
        if self.is(Self::LOST) { Some(self.rank()) } else { None }
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
        assert!(!last.frozen(None, 0).is(Home::LOST));
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
