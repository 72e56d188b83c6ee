//! Where the words of a window's locks lie, in the hidden region beside each rank's part.
//!
//! A lock of few words has them in the line at the region's beginning. What does not fit there lies behind the nodes, and so
//! do the words that a lock has at every rank, one for each rank whose lock it belongs to.

use lock_algos::Chosen;

use crate::window::LOCK_BYTES;
use crate::{nodes, served};

/// Words of a lock that lie in the line. Behind them, in the same line: the version of the part, the last word.
const IN_LINE: usize = 4;
const _: () = assert!(8 * IN_LINE as u64 <= LOCK_BYTES - 8);

/// The word that counts fencing tokens of a part's lock, in the line as well.
const TOKEN: u64 = LOCK_BYTES - 16;
/// The word that owners commit in.
const COMMIT: u64 = LOCK_BYTES - 24;
const _: () = assert!(8 * IN_LINE as u64 <= COMMIT);

/// Which of a rank's locks: that of its part, or one of a table.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) struct Which(u32);

impl Which {
    /// The lock of the rank's part.
    pub(crate) const PART: Self = Self(u32::MAX);
    /// How many locks of a table a rank may have.
    pub(crate) const MOST: u64 = u32::MAX as u64;

    /// Number `index`, below [`MOST`](Self::MOST), of the rank's locks in a table.
    pub(crate) const fn of_table(index: u32) -> Self {
        Self(index)
    }

    #[inline]
    pub(crate) const fn is_part(self) -> bool {
        self.0 == Self::PART.0
    }

    /// Tells it from the others of the rank: 0 is the part's.
    #[inline]
    pub(crate) const fn number(self) -> u64 {
        self.0.wrapping_add(1) as u64
    }
}

/// What the locks of a table take of each rank's memory.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Table {
    /// Words of one lock, its token among them.
    pub(crate) stride: u64,
    /// Where its token is, if it has one.
    pub(crate) token: Option<u64>,
}

impl Table {
    pub(crate) fn new(lock: &Chosen, fenced: bool) -> Self {
        let words = lock.home_words() as u64;
        Self { stride: words + u64::from(fenced), token: fenced.then_some(words) }
    }

    /// Where a word of a lock lies among the table's words, in bytes.
    #[inline]
    pub(crate) const fn word(self, which: Which, index: u64) -> u64 {
        8 * (self.stride * which.0 as u64 + index)
    }
}

/// Where they lie: the same at every rank.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Homes {
    /// The words that do not fit into the line.
    more: u64,
    /// A word for each rank's lock.
    spread: u64,
    /// The [lines](crate::served) of a lock that a thread here serves: the first one of each rank, then the second ones.
    lines: u64,
    size: u32,
    end: u64,
}

impl Homes {
    /// In a world of this size.
    pub(crate) fn new(size: u32, lock: &Chosen) -> Self {
        let more = nodes::hidden_bytes(size);
        let spread = more + 8 * lock.home_words().saturating_sub(IN_LINE).next_multiple_of(8) as u64;
        let words = if lock.is_spread() { u64::from(size).next_multiple_of(8) } else { 0 };
        let lines = spread + 8 * words;
        let count = if lock.is_served() { u64::from(size) * u64::from(served::lines(size)) } else { 0 };
        Self { more, spread, lines, size, end: (lines + count * served::stride(size)).next_multiple_of(64) }
    }

    /// A word of the rank's own lock.
    #[inline]
    pub(crate) const fn word(self, index: usize) -> u64 {
        if index < IN_LINE { 8 * index as u64 } else { self.more + 8 * (index - IN_LINE) as u64 }
    }

    /// The word that the lock of a rank has here.
    pub(crate) const fn spread(self, of: u32) -> u64 {
        self.spread + 8 * of as u64
    }

    /// A line of a rank.
    pub(crate) const fn line(self, of: u32, line: u16) -> u64 {
        self.lines + (line as u64 * self.size as u64 + of as u64) * served::stride(self.size)
    }

    /// The word that owners commit in, beside the rank's own lock.
    pub(crate) const fn commit(self) -> u64 {
        COMMIT
    }

    /// The word that counts the tokens of the rank's own lock.
    pub(crate) const fn token(self) -> u64 {
        TOKEN
    }

    /// Where all of it ends.
    pub(crate) const fn end(self) -> u64 {
        self.end
    }
}

#[cfg(test)]
mod tests {
    use lock_algos::{Mcs, TestAndSet};

    use super::*;

    #[test]
    fn a_lock_of_few_words_takes_nothing_beside_its_line() {
        for lock in [Chosen::TestAndSet(TestAndSet::default()), Chosen::Mcs(Mcs::default())] {
            let homes = Homes::new(7, &lock);
            assert_eq!(homes.end(), nodes::hidden_bytes(7));
            assert_eq!(homes.word(0), 0);
        }
    }

    #[test]
    fn words_do_not_overlap() {
        let homes = Homes { more: 128, spread: 256, lines: 320, size: 8, end: 320 };
        let offsets: Vec<_> = (0..IN_LINE + 16).map(|index| homes.word(index)).collect();
        assert!(offsets.windows(2).all(|two| two[1] >= two[0] + 8));
        assert!(offsets[IN_LINE - 1] + 8 < LOCK_BYTES && offsets[IN_LINE] == 128 && offsets[IN_LINE + 15] + 8 == 256);
        assert_eq!((homes.spread(0), homes.spread(7) + 8), (256, homes.end()));
    }
}
