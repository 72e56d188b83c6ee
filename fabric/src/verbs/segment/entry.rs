//! An entry of the table in which peers find a region.

use onesided_remote_memory::{Fault, FaultKind, Rank, RegionId};

use crate::verbs::segment::check;
use crate::{SegmentKey, WORLD_BYTES};

/// The maximum number of regions of a rank, as the bits of a region's number that are its index in
/// the table. The other bits distinguish successive regions of one index.
pub(super) const INDEX_BITS: u32 = 12;

pub(super) const MAX_REGIONS: usize = 1 << INDEX_BITS;

pub(super) const INDEX_MASK: u32 = MAX_REGIONS as u32 - 1;

/// An entry of the region table: four words, so that it never crosses a cache line.
///
/// | word | |
/// |---|---|
/// | 0 | region number, 32 bits; remote key, 32 bits |
/// | 1 | address |
/// | 2 | length |
/// | 3 | a checksum of the three before it, which invalidates an entry that is being changed; 0: no region |
#[derive(Clone, Copy, Debug)]
pub(in crate::verbs) struct Entry(pub(super) [u64; 4]);

impl Entry {
    pub(in crate::verbs) const BYTES: u64 = 32;

    pub(super) fn new(key: &SegmentKey) -> Self {
        let first = u64::from(key.region.0) << 32 | u64::from(key.rkey);
        Self([first, key.address, key.len, Self::seal([first, key.address, key.len])])
    }

    fn seal(words: [u64; 3]) -> u64 {
        let mixed =
            words.iter().fold(1_u64, |mixed, word| (mixed ^ word).wrapping_mul(0x9e37_79b9_7f4a_7c15).rotate_left(29));
        mixed | 1
    }

    /// The offset of a region's entry in its owner's home.
    pub(in crate::verbs) const fn offset(region: RegionId) -> u64 {
        WORLD_BYTES + (region.0 & INDEX_MASK) as u64 * Self::BYTES
    }

    /// Decodes an owner's entry for a region.
    pub(in crate::verbs) fn decode(
        bytes: &[u8; Self::BYTES as usize],
        rank: Rank,
        region: RegionId,
    ) -> Result<SegmentKey, Fault> {
        let mut words = [0; 4];
        for (word, bytes) in words.iter_mut().zip(bytes.chunks_exact(8)) {
            *word = bytes.iter().rev().fold(0, |word, byte| word << 8 | u64::from(*byte));
        }
        let [first, address, len, seal] = words;
        if seal != Self::seal([first, address, len]) || first >> 32 != u64::from(region.0) {
            return Err(Fault::of(FaultKind::NoSuchRegion, rank));
        }
        Ok(SegmentKey { rank, region, len, address, rkey: first as u32 })
    }
}

/// The offset of a key within the owner's table entry for its number: the whole, or a part of user
/// memory.
pub(in crate::verbs) fn check_within(there: &SegmentKey, key: &SegmentKey) -> Result<u64, Fault> {
    let offset = key.address.checked_sub(there.address).filter(|offset| offset % 8 == 0);
    let same = (key.region, key.rkey) == (there.region, there.rkey) && key.len > 0;
    match offset.filter(|offset| same && check(there, *offset, key.len).is_ok()) {
        Some(offset) => Ok(offset),
        None => Err(Fault::of(FaultKind::NoSuchRegion, there.rank)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_entry_is_believed_only_whole() {
        let key =
            SegmentKey { rank: Rank(3), region: RegionId(5 << 12 | 9), len: 1 << 33, address: 77 << 40, rkey: 11 };
        let entry = Entry::new(&key);
        let bytes = |words: [u64; 4]| {
            let mut bytes = [0; 32];
            bytes.chunks_exact_mut(8).zip(words).for_each(|(to, word)| to.copy_from_slice(&word.to_le_bytes()));
            bytes
        };
        assert_eq!(Entry::decode(&bytes(entry.0), key.rank, key.region), Ok(key));
        let none = Err(Fault::of(FaultKind::NoSuchRegion, key.rank));
        assert_eq!(Entry::decode(&bytes([0; 4]), key.rank, RegionId(0)), none);
        assert_eq!(Entry::decode(&bytes(entry.0), key.rank, RegionId(9)), none);
        let part = |offset: u64, len| SegmentKey { len, address: key.address.wrapping_add(offset), ..key };
        assert_eq!(check_within(&key, &key), Ok(0));
        assert_eq!(check_within(&key, &part(16, key.len - 16)), Ok(16));
        for wrong in [part(16, key.len - 15), part(4, 8), part(0, 0), part(u64::MAX - 7, 8), part(key.len, 8)] {
            assert_eq!(check_within(&key, &wrong), none.map(|_| 0), "{wrong:?}");
        }
        assert_eq!(check_within(&key, &SegmentKey { rkey: 12, ..key }), none.map(|_| 0));
        for at in 0..4 {
            let mut torn = entry.0;
            torn[at] ^= 1 << (at * 9 + 1);
            assert_eq!(Entry::decode(&bytes(torn), key.rank, key.region), none);
        }
    }
}
