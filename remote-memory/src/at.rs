//! Ranks, regions and the addresses of words.

use crate::display;

/// A process (or thread, or simulated process) of a world: an id, independent of network addresses.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
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

display!([] Rank, |this| "rank {}", this.0);

/// A registered region of memory, numbered by the rank that owns it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct RegionId(pub u32);

/// The address of an 8-byte word: rank, region, byte offset.
/// Plain data: it may travel in a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct At {
    /// The rank that owns the memory.
    pub rank: Rank,
    /// The region of that rank.
    pub region: RegionId,
    /// Bytes from the start of the region; a multiple of 8.
    pub offset: u64,
}
