//! The collective buffer of a rank: its contributions to the last collectives of a group, which all others
//! read.
//!
//! A buffer has one writer, so a rank that dies between two stores blocks no other rank. A contribution lies in
//! the slot of its collective's number, and storing the header publishes it. The slot is written again once
//! every other rank has passed that collective, so nothing changes while others may read it.
//!
//! A long contribution says where a slice of its rank is. How far the rank is with the collective lies apart, in the
//! [phase](CollectiveBuffer::reach) of the slot.

use crate::shm::lane::{load_words, store_words};
use crate::util::sync::atomic::{AtomicU64, Ordering, fence};

/// The words before the slots. The first one is the number of the last collective that the rank has passed.
pub(crate) const HEAD_WORDS: usize = PHASES_AT + SLOTS;
/// Where the phases are, one a slot.
const PHASES_AT: usize = 8;
/// A power of two.
pub(crate) const SLOTS: usize = 16;
/// The words of a slot: the header, the tag, the bytes.
pub(crate) const SLOT_WORDS: usize = 32;
/// The most bytes of a contribution.
pub(crate) const ROOM: usize = 8 * (SLOT_WORDS - BYTES_AT);

const BYTES_AT: usize = 2;

/// A header has the collective's number above these bits, and the length in bytes in them.
const LENGTH_BITS: u32 = 8;
const _: () = assert!(ROOM < 1 << LENGTH_BITS && SLOTS.is_power_of_two());

/// A phase has the collective's number above these bits.
const PHASE_BITS: u32 = 2;
/// The last phase: the rank has given up what the others read.
const WITHDRAWN: u64 = 3;

type Slot = [AtomicU64; SLOT_WORDS];

#[derive(Clone, Copy)]
pub(crate) struct CollectiveBuffer<'m> {
    passed: &'m AtomicU64,
    phases: &'m [AtomicU64],
    slots: &'m [Slot],
}

/// What a rank has published.
#[derive(Clone, Copy, Debug)]
pub struct Contribution<'m> {
    /// Which collective it is to, as its rank says.
    pub tag: u64,
    /// Its length in bytes.
    pub len: usize,
    words: &'m [AtomicU64],
}

impl<'m> CollectiveBuffer<'m> {
    /// The buffer in these words, which are 0 at first. `None`: there are too few. The number of slots is a power
    /// of two.
    #[inline]
    pub(crate) fn of(words: &'m [AtomicU64]) -> Option<Self> {
        let (head, slots) = words.split_at_checked(HEAD_WORDS)?;
        let (slots, _) = slots.as_chunks();
        Some(Self { passed: &head[0], phases: &head[PHASES_AT..], slots }).filter(|buffer| !buffer.slots.is_empty())
    }

    #[inline]
    fn place(&self, number: u64) -> usize {
        number as usize & (self.slots.len() - 1)
    }

    #[inline]
    fn slot(&self, number: u64) -> &'m Slot {
        &self.slots[self.place(number)]
    }

    /// Owner: publishes at most [`ROOM`] bytes. All others have passed what the slot has.
    #[inline]
    pub(crate) fn publish(&self, number: u64, tag: u64, bytes: &[u8]) {
        let slot = self.slot(number);
        slot[1].store(tag, Ordering::Relaxed);
        store_words(&slot[BYTES_AT..], bytes);
        slot[0].store(number << LENGTH_BITS | bytes.len() as u64, Ordering::Release);
    }

    /// The contribution to a collective that this rank has not passed yet.
    #[inline]
    pub(crate) fn find(&self, number: u64) -> Option<Contribution<'m>> {
        let slot = self.slot(number);
        let header = slot[0].load(Ordering::Acquire);
        (header >> LENGTH_BITS == number).then(|| Contribution {
            tag: slot[1].load(Ordering::Relaxed),
            len: (header & ((1 << LENGTH_BITS) - 1)) as usize,
            words: &slot[BYTES_AT..],
        })
    }

    /// Owner: it has reached a phase, 1 or 2, of a collective that it has contributed to.
    pub(crate) fn reach(&self, number: u64, phase: u64) {
        // Release: what the owner wrote for the phase comes before. The most counts: the word may be of a later
        // collective already if this one has failed at all others.
        self.phases[self.place(number)].fetch_max(number << PHASE_BITS | phase, Ordering::Release);
    }

    /// Owner: it gives up what the others read for a collective.
    pub(crate) fn withdraw(&self, number: u64) {
        self.reach(number, WITHDRAWN);
        fence(Ordering::Release); // a rank that reads what is stored next finds the phase
    }

    /// Whether the owner has reached a phase of a collective, 0 at first, and has not withdrawn. If so, what was read
    /// before is certain.
    pub(crate) fn has_reached(&self, number: u64, phase: u64) -> bool {
        fence(Ordering::Acquire);
        let word = self.phases[self.place(number)].load(Ordering::Acquire);
        let reached = if word >> PHASE_BITS == number { word & WITHDRAWN } else { 0 };
        reached >= phase && reached != WITHDRAWN
    }

    /// Owner: it reads no contribution to this collective or to an earlier one any more.
    #[inline]
    pub(crate) fn pass(&self, number: u64) {
        // Release: the loads of the words come before the next stores to them.
        self.passed.store(number, Ordering::Release);
    }

    /// Up to which collective the others may publish, as far as the owner reads.
    pub(crate) fn frees(&self) -> u64 {
        self.passed.load(Ordering::Acquire) + self.slots.len() as u64
    }
}

impl Contribution<'_> {
    /// Copies its bytes from an offset on.
    ///
    /// # Panics
    /// If it does not have them.
    #[inline]
    pub fn read(&self, offset: usize, into: &mut [u8]) {
        if offset.is_multiple_of(8) {
            return load_words(&self.words[offset / 8..], into);
        }
        let mut bytes = [0; ROOM];
        load_words(self.words, &mut bytes[..offset + into.len()]);
        into.copy_from_slice(&bytes[offset..offset + into.len()]);
    }
}
