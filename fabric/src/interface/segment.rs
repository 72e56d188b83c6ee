//! Registered memory, and what a peer needs to reach it.

use std::fmt::Debug;
use std::sync::atomic::AtomicU64;

use onesided_remote_memory::{Fault, FaultKind, Rank, RegionId};

use crate::{Error, Path};

/// The detail of the fault of an address that has no word here, though it lies in its region.
pub const WORDLESS: u32 = 0x776f_7264;

/// Registered memory of some rank.
#[allow(clippy::len_without_is_empty, reason = "no segment is empty")]
pub trait Segment: Clone + Debug + Send + Sync + 'static {
    /// The owner.
    fn rank(&self) -> Rank {
        self.key().rank
    }

    /// Its length in bytes, as the owner registered it.
    fn len(&self) -> u64 {
        self.key().len
    }

    /// The key with which a peer opens it.
    fn key(&self) -> SegmentKey;

    /// The path of puts and gets.
    fn path(&self) -> Path;

    /// Its words if it is mapped here for its whole lifetime, for plain loads and stores. `None` if it
    /// is not mapped or may be reclaimed.
    fn mapped(&self) -> Option<&[AtomicU64]> {
        None
    }

    /// This segment, if it is one of shared memory whose words are [those of that
    /// fabric](crate::Fabric::as_shm).
    #[cfg(not(onesided_loom))]
    #[inline]
    fn as_shm(&self) -> Option<&crate::shm::ShmSegment> {
        None
    }

    /// Allocates all pages now, near the CPU that runs this, if they would be allocated at the first
    /// touch. Does nothing where memory is registered with a card.
    ///
    /// # Errors
    /// [`Error::Allocate`]: not enough memory.
    fn populate(&self) -> Result<(), Error> {
        Ok(())
    }

    /// Changes consecutive words, each atomically against all other atomics on it, for memory of
    /// this process without [`word_in`](crate::Fabric::word_in). `change` gets the index of the word,
    /// counted from `offset`, and its old value, and returns the new value. It may be called
    /// several times for a word; the last call counts.
    ///
    /// # Errors
    /// `NotOwn` for memory in another process, `OutOfRange`, `Misaligned`, `NoSuchRegion` if it was
    /// reclaimed, `Unsupported` for memory that has words.
    fn change(&self, offset: u64, words: usize, change: &mut dyn FnMut(usize, u64) -> u64) -> Result<(), Fault> {
        let _ = (offset, words, change);
        Err(Fault::of(FaultKind::Unsupported, self.rank()))
    }
}

/// The key of a segment: plain data to send in messages.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct SegmentKey {
    /// The owner.
    pub rank: Rank,
    /// The region at the owner, as in [`At`](onesided_remote_memory::At).
    pub region: RegionId,
    /// Length in bytes.
    pub len: u64,
    /// Fabric-specific: on verbs the virtual address, elsewhere the offset of a
    /// [part](crate::Fabric::part).
    pub address: u64,
    /// Fabric-specific: on verbs the remote key.
    pub rkey: u32,
}

impl SegmentKey {
    /// The length of [`to_bytes`](Self::to_bytes).
    pub const BYTES: usize = 28;

    /// The wire form, little endian: rank, region, length, address, rkey.
    #[must_use]
    pub fn to_bytes(&self) -> [u8; Self::BYTES] {
        let mut bytes = [0; Self::BYTES];
        bytes[..4].copy_from_slice(&self.rank.0.to_le_bytes());
        bytes[4..8].copy_from_slice(&self.region.0.to_le_bytes());
        bytes[8..16].copy_from_slice(&self.len.to_le_bytes());
        bytes[16..24].copy_from_slice(&self.address.to_le_bytes());
        bytes[24..].copy_from_slice(&self.rkey.to_le_bytes());
        bytes
    }

    /// The inverse of [`to_bytes`](Self::to_bytes); `None` if the length is wrong.
    /// [`Fabric::open`](crate::Fabric::open) checks the contents.
    #[must_use]
    pub fn from_bytes(bytes: &[u8]) -> Option<Self> {
        let bytes: &[u8; Self::BYTES] = bytes.try_into().ok()?;
        let word = |at: usize| u32::from_le_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]]);
        let long = |at: usize| u64::from(word(at)) | u64::from(word(at + 4)) << 32;
        Some(Self { rank: Rank(word(0)), region: RegionId(word(4)), len: long(8), address: long(16), rkey: word(24) })
    }
}

const _: () = assert!(SegmentKey::BYTES <= crate::SHORTEST_LIMIT, "a key fits into a packet");

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_travel() {
        let key =
            SegmentKey { rank: Rank(7), region: RegionId(9), len: 1 << 40, address: u64::MAX - 5, rkey: 0xdead_beef };
        assert_eq!(SegmentKey::from_bytes(&key.to_bytes()), Some(key));
        assert_eq!(SegmentKey::from_bytes(&key.to_bytes()[1..]), None);
    }
}
