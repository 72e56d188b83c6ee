//! The word at the home of a queue lock.

use onesided_remote_memory::Rank;

use crate::{Mode, Owner};

/// Why a queue is put under recovery.
#[derive(Clone, Copy)]
pub(super) enum Why {
    /// This rank, in the queue, ended, cannot be reached, or left the lock poisoned: the holder may
    /// be gone.
    Lost(Rank),
    /// Readers are suspected, and the head of the queue waits for them.
    Readers,
    /// A waiter gives up its place.
    GivenUp,
}

/// The home's word: flags 3 bits | readers 25 bits | rank 24 bits | slot 12 bits of the queue's
/// tail, as in the bits of its [`Owner`].
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) struct Home(pub(super) u64);

impl Home {
    pub(super) const FREE: Self = Self(0);
    /// Under recovery: arrivals are rejected; see [`crate::recovery`].
    pub(super) const RECOVERING: u64 = 1 << 63;
    /// The queue is not empty, and the low bits name its tail.
    pub(super) const QUEUED: u64 = 1 << 62;
    /// Put under recovery because this rank, in the queue, died, cannot be reached, or left the
    /// lock poisoned: the holder may be gone.
    pub(super) const LOST: u64 = 1 << 61;
    pub(super) const READER: u64 = 1 << 36;
    pub(super) const READERS: u64 = 0x1ff_ffff << 36;
    /// The tail of the queue.
    const LAST: u64 = (1 << 36) - 1;
    /// Of a word under recovery that is not [`LOST`](Self::LOST): a waiter gave up its place, and
    /// with it the queue, whose head may have held the lock.
    const GIVEN_UP: u64 = 1 << 35;

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
        let last = owner.to_bits() >> Owner::GENERATION & Self::LAST;
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

    /// The same readers; the nonce of the recovery and why it began replace the tail.
    pub(super) const fn recovering(self, why: Why, nonce: u64) -> Self {
        let which = match why {
            Why::Lost(Rank(rank)) => Self::LOST | (rank as u64 & 0xff_ffff) << 12 | nonce & 0xfff,
            Why::Readers => nonce & Self::LAST & !Self::GIVEN_UP,
            Why::GivenUp => nonce & Self::LAST | Self::GIVEN_UP,
        };
        Self(Self::RECOVERING | self.0 & Self::READERS | which)
    }

    /// Whether the queue of a word under recovery was given up by a waiter.
    pub(super) const fn is_given_up(self) -> bool {
        self.is(Self::RECOVERING) && !self.is(Self::LOST) && self.is(Self::GIVEN_UP)
    }

    /// What an owner turns a free word into.
    pub(super) const fn taken(owner: Owner, mode: Mode) -> Self {
        match mode {
            Mode::Shared => Self::FREE.joined(),
            Mode::Exclusive => Self::FREE.behind(owner),
        }
    }

    /// Whether it is this word under recovery, except for readers that have left.
    pub(super) const fn is_same_recovery(self, recovering: Self) -> bool {
        self.0 & !Self::READERS == recovering.0 & !Self::READERS
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
        Rank((self.0 >> 12) as u32 & 0xff_ffff)
    }

    pub(super) const fn slot(self) -> u16 {
        self.0 as u16 & 0xfff
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
        assert!(last.has_readers() && last.is(Home::QUEUED) && !last.is(Home::RECOVERING | Home::LOST));
        assert!(last.unqueued() == all && Home::FREE.behind(owner).unqueued() == Home::FREE);
        let none = Owner { rank: Rank(0), slot: 0, generation: 0 };
        assert!(Home::FREE.behind(none) != Home::FREE && !Home::FREE.behind(none).has_readers());
        let recovering = last.recovering(Why::Lost(owner.rank), u64::MAX);
        assert!(recovering.is(Home::RECOVERING) && recovering.is(Home::LOST) && recovering.rank() == owner.rank);
        assert!(!last.recovering(Why::Readers, 0).is(Home::LOST));
        assert_eq!(last.recovering(Why::Lost(Rank(7)), u64::MAX).lost(), Some(Rank(7)));
        assert!(
            recovering.has_readers()
                && !recovering.is(Home::QUEUED)
                && !all.recovering(Why::Readers, u64::MAX).is(Home::LOST | Home::QUEUED)
        );
        let [seven, other] = [u64::MAX, 0].map(|nonce| last.recovering(Why::Lost(Rank(7)), nonce));
        assert!(seven != other && last.recovering(Why::Readers, 1) != last.recovering(Why::Readers, 2));
        let [left, read] =
            [Why::GivenUp, Why::Readers].map(|why| [0, u64::MAX].map(|nonce| last.recovering(why, nonce)));
        assert!(left.iter().all(|word| word.is_given_up() && word.lost().is_none() && word.has_readers()));
        assert!(read.iter().all(|word| !word.is_given_up()) && !seven.is_given_up() && !last.is_given_up());
        let fewer = Home(seven.0 - Home::READER);
        assert!(fewer.is_same_recovery(seven) && seven.is_same_recovery(fewer) && !other.is_same_recovery(seven));
        assert!(!Home::FREE.is_same_recovery(Home(Home::RECOVERING)) && !all.is_same_recovery(seven));
        assert!(Home::FREE.joined().has_readers() && !Home::FREE.joined().is(Home::QUEUED));
    }
}
