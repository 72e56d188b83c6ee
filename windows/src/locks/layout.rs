//! The layout of a window's lock words in the hidden region beside each rank's window memory.
//!
//! A lock of few words has them in the cache line at the start of the region. Words that do not fit
//! there lie behind the signals, as do the per-rank words of a lock (one for each rank's lock), its
//! host-local words and the nodes.

use onesided_fabric::remote_memory::{Fault, FaultKind, Rank};
use onesided_fabric::{Fabric, World, slot_bytes};
use onesided_lock_algos::{Global, TestAndSet};

use crate::locks::slots::BIASED_SLOT;
use crate::locks::window_lock::LockWords;
use crate::locks::{FIRST_NODE, LOCK_BYTES, slots};

const LOCK_ALL_WORDS: usize = Global::<TestAndSet>::LOCK_ALL_WORDS;

/// The number of lock words in the line. Behind them in the same line: the version of the window
/// memory, the last word.
const IN_LINE: usize = 4;
const _: () = assert!(8 * IN_LINE as u64 <= LOCK_BYTES - 8);

/// The word that counts fencing tokens of window memory's lock, in the line as well.
const TOKEN: u64 = LOCK_BYTES - 16;
/// The commit word.
const COMMIT: u64 = LOCK_BYTES - 24;
const _: () = assert!(8 * IN_LINE as u64 <= COMMIT);

/// The number of request slots of each rank at a target: 64 in small worlds, 8 in large ones.
pub(crate) const fn request_slots_of_each(size: u32) -> u16 {
    match 2048 / size {
        0..=8 => 8,
        many @ 9..=63 => many as u16,
        64.. => 64,
    }
}

/// The distance between request slots in bytes: a cache line, unless there are very many.
pub(crate) const fn stride(size: u32) -> u64 {
    if size <= 64 { 64 } else { 8 }
}

/// One of a rank's locks: that of its window memory, or one of a table.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) struct LockId(u32);

impl LockId {
    /// The lock of the rank's window memory.
    pub(crate) const WINDOW: Self = Self(u32::MAX);
    /// The lock of all ranks together: the lock-all word of a
    /// [global](crate::LockAllDesign::Global) lock.
    pub(crate) const ALL: Self = Self(u32::MAX - 1);
    /// The maximum number of locks of a table at a rank.
    pub(crate) const MAX_IN_TABLE: u64 = u32::MAX as u64 - 1;

    /// Lock number `index`, below [`MOST`](Self::MOST), of a table at the rank.
    pub(crate) const fn of_table(index: u32) -> Self {
        Self(index)
    }

    #[inline]
    pub(crate) const fn is_window_lock(self) -> bool {
        self.0 == Self::WINDOW.0
    }

    /// Whether it is the lock of all ranks.
    #[inline]
    pub(crate) const fn is_all(self) -> bool {
        self.0 == Self::ALL.0
    }

    /// The index of a lock of a table at its rank.
    pub(crate) const fn index(self) -> u64 {
        self.0 as u64
    }

    /// A number that is unique among the rank's locks: 0 for that of its window memory.
    #[inline]
    pub(crate) const fn number(self) -> u64 {
        self.0.wrapping_add(1) as u64
    }
}

/// The layout of a table's locks in each rank's memory.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Table {
    /// The number of words of one lock, including its token.
    pub(crate) stride: u64,
    /// The index of its token, if it has one.
    pub(crate) token: Option<u64>,
}

impl Table {
    pub(crate) fn new(lock: LockWords, fenced: bool) -> Self {
        let words = lock.home as u64;
        Self { stride: words + u64::from(fenced), token: fenced.then_some(words) }
    }

    /// The offset of a word of a lock within the table, in bytes.
    #[inline]
    pub(crate) const fn word(self, id: LockId, index: u64) -> u64 {
        8 * (self.stride * id.0 as u64 + index)
    }
}

/// The offsets of all words: the same at every rank.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct HiddenLayout {
    /// The words that do not fit into the line.
    overflow: u64,
    /// A word for each rank's lock.
    per_rank: u64,
    /// The host-local words of each rank's lock for the ranks of this host, one after the other.
    per_host: u64,
    per_host_words: u32,
    /// The request slots of a lock with a server thread here: the first one of each rank, then the
    /// second ones.
    request_slots: u64,
    /// The words for revocations: requests to this rank, and replies to its own requests; two for
    /// each rank.
    revoke_request: u64,
    /// The slots of the window's barriers.
    barrier: u64,
    /// How many words of a rank's own lock lie before the last ones, which at rank 0 are the
    /// lock-all words, where there are any.
    before_lock_all: usize,
    size: u32,
    /// The nodes of the rank's slots, if the [first one](FIRST_NODE) were there.
    nodes: u64,
    pub(crate) slots: u16,
}

impl HiddenLayout {
    /// For a world of this size, with this many slots of each rank; `revokes`: owners' access may
    /// be revoked.
    pub(crate) fn new((size, slots): (u32, u16), lock: LockWords, revokes: bool) -> Self {
        let overflow = slots::end_of_in_use(size);
        let per_rank = overflow + 8 * lock.home.saturating_sub(IN_LINE).next_multiple_of(8) as u64;
        let words = if lock.at_each_rank { u64::from(size).next_multiple_of(8) } else { 0 };
        let per_host = per_rank + 8 * words;
        let per_host_words = lock.at_each_host as u32;
        // In separate lines: owners that use the card do not access them.
        let request_slots = per_host + (8 * u64::from(size) * u64::from(per_host_words)).next_multiple_of(64);
        let count = if lock.has_requests { u64::from(size) * u64::from(request_slots_of_each(size)) } else { 0 };
        let revoke_request = (request_slots + count * stride(size)).next_multiple_of(64);
        let words = if revokes { 2 * u64::from(size) } else { 0 };
        let barrier = (revoke_request + 8 * words).next_multiple_of(64);
        let nodes = (barrier + slot_bytes(size)).next_multiple_of(64) - slots::NODE_BYTES;
        let before_lock_all = lock.home.saturating_sub(LOCK_ALL_WORDS);
        Self {
            overflow,
            per_rank,
            per_host,
            per_host_words,
            request_slots,
            revoke_request,
            barrier,
            before_lock_all,
            size,
            nodes,
            slots,
        }
    }

    /// A word of the rank's own lock.
    #[inline]
    pub(crate) const fn word(self, index: usize) -> u64 {
        if index < IN_LINE { 8 * index as u64 } else { self.overflow + 8 * (index - IN_LINE) as u64 }
    }

    /// A lock-all word, at rank 0.
    pub(crate) const fn lock_all(self, index: usize) -> u64 {
        self.word(self.before_lock_all + index)
    }

    /// The per-rank word that a rank's lock has here.
    pub(crate) const fn per_rank(self, of: u32) -> u64 {
        self.per_rank + 8 * of as u64
    }

    /// A host-local word that a rank's lock has here.
    pub(crate) const fn per_host(self, of: u32, index: usize) -> u64 {
        self.per_host + 8 * (self.per_host_words as u64 * of as u64 + index as u64)
    }

    /// A request slot of a rank, which the fabric names.
    ///
    /// # Errors
    /// `NoSuchRegion`: the rank has no such slot.
    pub(crate) fn request_slot<F: Fabric>(self, world: &World<F>, rank: Rank, request_slot: u16) -> Result<u64, Fault> {
        let of = world.rank_of(rank).filter(|_| request_slot < request_slots_of_each(self.size));
        let of = of.ok_or(Fault::of(FaultKind::NoSuchRegion, rank))?;
        Ok(self.request_slots + (u64::from(request_slot) * u64::from(self.size) + u64::from(of)) * stride(self.size))
    }

    /// The word by which a rank requests a revocation from this one.
    pub(crate) const fn revoke_request(self, by: u32) -> u64 {
        self.revoke_request + 16 * by as u64
    }

    /// The word by which a rank replies to a revocation request of this one.
    pub(crate) const fn revoke_reply(self, by: u32) -> u64 {
        self.revoke_request(by) + 8
    }

    /// The slots of the window's barriers.
    pub(crate) const fn barrier(self) -> u64 {
        self.barrier
    }

    /// The commit word, beside the rank's own lock.
    pub(crate) const fn commit(self) -> u64 {
        COMMIT
    }

    /// The token counter of the rank's own lock.
    pub(crate) const fn token(self) -> u64 {
        TOKEN
    }

    /// A word of a node.
    #[inline]
    pub(crate) const fn node(self, slot: u16, index: usize) -> u64 {
        let nodes = if slot == BIASED_SLOT { FIRST_NODE } else { self.nodes };
        nodes + slots::node(slot, index)
    }

    /// The end of the layout.
    pub(crate) const fn end(self) -> u64 {
        self.nodes + slots::bytes(self.slots)
    }
}

#[cfg(test)]
mod tests {
    use onesided_lock_algos::{Mcs, TestAndSet};

    use super::*;

    #[test]
    fn a_lock_of_few_words_takes_nothing_beside_its_line() {
        for lock in [LockWords::of(&TestAndSet::default()), LockWords::of(&Mcs::default())] {
            let layout = HiddenLayout::new((7, 32), lock, false);
            assert_eq!((layout.barrier, layout.end()), (slots::end_of_in_use(7), layout.node(32, 0)));
            assert_eq!(layout.node(1, 0), layout.barrier + 64);
            assert_eq!(layout.word(0), 0);
            let revoking = HiddenLayout::new((7, 32), lock, true);
            assert_eq!((revoking.revoke_request(0), revoking.revoke_reply(0)), (layout.barrier, layout.barrier + 8));
            assert!(revoking.revoke_reply(6) + 8 <= revoking.barrier && revoking.barrier + 24 <= revoking.node(1, 0));
        }
    }

    #[test]
    fn words_do_not_overlap() {
        let (per_host, request_slots) = (320, 448);
        let layout = HiddenLayout {
            overflow: 128,
            per_rank: 256,
            per_host,
            per_host_words: 2,
            request_slots,
            revoke_request: request_slots,
            barrier: request_slots,
            before_lock_all: 0,
            size: 8,
            nodes: request_slots,
            slots: 32,
        };
        let offsets: Vec<_> = (0..IN_LINE + 16).map(|index| layout.word(index)).collect();
        assert!(offsets.windows(2).all(|two| two[1] >= two[0] + 8));
        assert!(offsets[IN_LINE - 1] + 8 < LOCK_BYTES && offsets[IN_LINE] == 128 && offsets[IN_LINE + 15] + 8 == 256);
        assert_eq!((layout.per_rank(0), layout.per_rank(7) + 8), (256, layout.per_host(0, 0)));
        assert_eq!((layout.per_host(3, 1), layout.per_host(7, 1) + 8), (layout.per_host(4, 0) - 8, layout.nodes));
    }

    #[test]
    fn lines_are_bounded_in_worlds_of_every_size() {
        assert_eq!(
            [1, 2, 32, 33, 64, 228, 256, 1000, u32::MAX].map(request_slots_of_each),
            [64, 64, 64, 62, 32, 8, 8, 8, 8]
        );
        // 64 KiB for a thousand ranks.
        assert!(
            (1..2000).all(|size| u64::from(size) * u64::from(request_slots_of_each(size)) * stride(size) <= 128 << 10)
        );
    }
}
