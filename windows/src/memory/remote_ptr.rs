//! Remote pointers into attached memory, and the table by which peers resolve them.

use std::fmt;

use onesided_fabric::SegmentKey;

use crate::helper::RequestLayout;

/// The number of regions that a rank may have attached to one window at the same time.
pub(crate) const SLOTS: u32 = 256;

/// A remote pointer into attached memory: 8 bytes that may be stored in a window and be compared
/// and swapped, as the links of a list are.
///
/// It identifies the memory, not the rank, which is stored beside it or known. A pointer into
/// detached memory never refers to other memory until 65,535 other regions have used its slot. A
/// rank that has not resolved it before gets an error; for the others see
/// [`detach`](crate::Window::detach).
#[derive(Clone, Copy, PartialEq, Eq, Hash, bytemuck::Pod, bytemuck::Zeroable)]
#[repr(transparent)]
pub struct RemotePtr(pub(crate) u64); // slot 8 bits | generation 16 bits, never 0 | offset 40 bits

impl RemotePtr {
    /// The null pointer: the content of zeroed memory.
    pub const NULL: Self = Self(0);
    const OFFSET: u64 = (1 << 40) - 1;

    pub(crate) const fn new(slot: u32, generation: u16) -> Self {
        Self((slot as u64) << 56 | (generation as u64) << 40)
    }

    /// The pointer to the element this many elements further. `None` past 2^40.
    #[must_use]
    pub fn checked_add(self, elements: usize) -> Option<Self> {
        let offset = (self.index() as u64).checked_add(elements as u64).filter(|offset| *offset <= Self::OFFSET)?;
        Some(Self(self.0 & !Self::OFFSET | offset))
    }

    /// The index of the element in the attached memory.
    #[must_use]
    pub const fn index(self) -> usize {
        (self.0 & Self::OFFSET) as usize
    }

    /// The pointer to the first element of the attached memory.
    #[must_use]
    pub const fn start(self) -> Self {
        Self(self.0 & !Self::OFFSET)
    }

    /// Whether it is [`NULL`](Self::NULL), or refers to no memory otherwise.
    #[must_use]
    pub const fn is_null(self) -> bool {
        self.0 & !Self::OFFSET == 0
    }

    /// As an element of a window of `u64`.
    #[must_use]
    pub const fn to_word(self) -> u64 {
        self.0
    }

    /// The inverse of [`to_word`](Self::to_word). Unchecked:
    /// [`Access::attached`](crate::Access::attached) checks it.
    #[must_use]
    pub const fn from_word(word: u64) -> Self {
        Self(word)
    }

    pub(crate) const fn slot(self) -> usize {
        (self.0 >> 56) as usize
    }

    /// Tells the successive regions of a slot apart.
    pub(crate) const fn generation(self) -> u16 {
        (self.0 >> 40) as u16
    }
}

impl fmt::Debug for RemotePtr {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.is_null() {
            true => f.write_str("null"),
            false => write!(f, "element {} of memory {}.{}", self.index(), self.slot(), self.0 >> 40 & 0xffff),
        }
    }
}

/// A slot of the table in the hidden region, by which peers resolve remote pointers: 8 words.
///
/// | word | |
/// |---|---|
/// | 0 | the remote pointer to its first element |
/// | 1 | the length in bytes |
/// | 2 to 5 | the key |
/// | 7 | a seal over the others, which a half-changed entry does not match; 0: nothing is attached |
pub(crate) struct Entry;

impl Entry {
    pub(crate) const BYTES: usize = 64;

    /// The end of the table in a rank's hidden region.
    const fn end(layout: RequestLayout) -> u64 {
        Self::offset(layout, SLOTS as usize)
    }

    pub(crate) const fn offset(layout: RequestLayout, slot: usize) -> u64 {
        layout.end().next_multiple_of(64) + (slot * Self::BYTES) as u64
    }

    pub(crate) fn encode(place: RemotePtr, len: u64, key: &SegmentKey) -> [u8; Self::BYTES] {
        let mut bytes = [0; Self::BYTES];
        bytes[..8].copy_from_slice(&place.0.to_le_bytes());
        bytes[8..16].copy_from_slice(&len.to_le_bytes());
        bytes[16..16 + SegmentKey::BYTES].copy_from_slice(&key.to_bytes());
        let seal = Self::seal(&bytes);
        bytes[56..].copy_from_slice(&seal.to_le_bytes());
        bytes
    }

    /// The entry's content, if it is of the memory that starts at this remote pointer.
    pub(crate) fn decode(bytes: &[u8; Self::BYTES], place: RemotePtr) -> Option<(u64, SegmentKey)> {
        let word =
            |at: usize| bytes[8 * at..8 * at + 8].iter().rev().fold(0, |word, byte| word << 8 | u64::from(*byte));
        if word(7) != Self::seal(bytes) || word(0) != place.0 || place.is_null() {
            return None;
        }
        Some((word(1), SegmentKey::from_bytes(&bytes[16..16 + SegmentKey::BYTES])?))
    }

    fn seal(bytes: &[u8; Self::BYTES]) -> u64 {
        let mixed = bytes[..56]
            .iter()
            .fold(1_u64, |mixed, byte| (mixed ^ u64::from(*byte)).wrapping_mul(0x9e37_79b9_7f4a_7c15).rotate_left(29));
        mixed | 1
    }
}

/// The size of the hidden region of a dynamic window.
pub(crate) const fn hidden_bytes(layout: RequestLayout) -> u64 {
    Entry::end(layout)
}

#[cfg(test)]
mod tests {
    use onesided_fabric::remote_memory::{Rank, RegionId};

    use super::*;

    #[test]
    fn a_place_is_a_word_that_counts_elements() {
        let place = RemotePtr::new(255, 65_535);
        let further = place.checked_add(7).unwrap().checked_add(1 << 39).unwrap();
        assert_eq!((further.index(), further.start(), further.slot()), ((1 << 39) + 7, place, 255));
        assert_eq!(RemotePtr::from_word(further.to_word()), further);
        assert!(further.checked_add(1 << 39).is_none() && !place.is_null() && RemotePtr::NULL.is_null());
        assert_eq!(format!("{further:?} {:?}", RemotePtr::NULL), "element 549755813895 of memory 255.65535 null");
    }

    #[test]
    fn an_entry_is_believed_only_whole_and_for_its_place() {
        let key = SegmentKey { rank: Rank(3), region: RegionId(9), len: 800, address: 7, rkey: 11 };
        let place = RemotePtr::new(4, 2);
        let bytes = Entry::encode(place, 800, &key);
        assert_eq!(Entry::decode(&bytes, place), Some((800, key)));
        assert_eq!(Entry::decode(&bytes, RemotePtr::new(4, 3)), None);
        assert_eq!(Entry::decode(&[0; 64], RemotePtr::NULL), None);
        for at in 0..64 {
            let mut torn = bytes;
            torn[at] ^= 1 << (at % 8);
            assert_eq!(Entry::decode(&torn, place), None, "byte {at}");
        }
    }
}
