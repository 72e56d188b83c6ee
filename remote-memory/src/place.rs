//! Where a word lies.

use core::fmt;

/// A process (or thread, or simulated process) of a world: a name, apart from any network address.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Rank(pub u32);

impl Rank {
    /// Lock words and faults keep a rank in 24 bits, so a world has at most this many ranks.
    pub const LIMIT: u32 = (1 << 24) - 1;

    /// The rank as an index.
    #[must_use]
    #[inline]
    pub const fn index(self) -> usize {
        self.0 as usize
    }
}

impl fmt::Display for Rank {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "rank {}", self.0)
    }
}

/// A registered region of memory, counted by the rank that owns it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct RegionId(pub u32);

/// The place of an 8-byte word: whose memory, which region, how many bytes into it.
///
/// Plain data: it may travel in a message or lie in another word's neighbourhood (two words, see [`At::to_words`]).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct At {
    /// The owner of the memory.
    pub rank: Rank,
    /// The region at the owner.
    pub region: RegionId,
    /// Bytes from the region's start; a multiple of 8.
    pub offset: u64,
}

impl At {
    /// Two words that [`At::from_words`] turns back.
    #[must_use]
    #[inline]
    pub const fn to_words(self) -> [u64; 2] {
        [(self.rank.0 as u64) << 32 | self.region.0 as u64, self.offset]
    }

    /// The inverse of [`At::to_words`]. Nothing is checked here: [`RemoteMemory::word`](crate::RemoteMemory::word) does.
    #[must_use]
    #[inline]
    pub const fn from_words(words: [u64; 2]) -> Self {
        Self { rank: Rank((words[0] >> 32) as u32), region: RegionId(words[0] as u32), offset: words[1] }
    }
}
