//! The queue nodes of a rank's owners in a window.
//!
//! A node is a cache line in the rank's hidden region, behind all other words there but for the first one. An owner takes
//! one of the rank's slots while it waits, holds and releases, so that threads, and several locks
//! at the same time, do not collide. An owner that finds no free slot gets `NoSlot`: to wait for
//! one while it holds others could deadlock.

use std::sync::atomic::{AtomicU8, AtomicU32, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Mutex, MutexGuard};

use onesided_fabric::{debug, lock};
use onesided_lock_algos::Owner;

use crate::active::signals;

/// Whether an owner has a slot.
#[inline]
pub(crate) const fn has_slot(owner: u64) -> bool {
    Owner::from_bits(owner).slot != Owner::NO_SLOT
}

/// Not the address of any thread.
const NOBODY: usize = usize::MAX;

/// The biased slot: one thread has it for itself.
pub(crate) const BIASED_SLOT: u16 = 0;

/// The size of a node.
pub(super) const NODE_BYTES: u64 = 64;
/// The most words of a node.
pub(crate) const NODE_WORDS: usize = 8;
const _: () = assert!(8 * NODE_WORDS as u64 == NODE_BYTES);

/// Slots beyond one for each rank, which a `lock_all` of each target takes.
const FOR_THREADS: u32 = 31;
/// The default number in all but the largest worlds: 64 KiB.
const USUAL: u16 = 1024;
/// The most slots of a rank.
pub(crate) const MOST: u16 = Owner::NO_SLOT - 1;

/// The default number of slots of a rank in a world of this size.
pub(crate) const fn default_slots(size: u32) -> u16 {
    let wanted = size.saturating_add(FOR_THREADS);
    if wanted <= USUAL as u32 {
        USUAL
    } else if wanted < MOST as u32 {
        wanted as u16
    } else {
        MOST
    }
}

/// How many owners with a slot, of all ranks, count where a lock's words have a bounded capacity.
/// The other owners check the capacity, and leave the last of it to those.
const COUNTED: u32 = 1 << 14;

/// How many slots of each rank those are, the lowest.
const fn counted(size: u32, slots: u16) -> u16 {
    let share = COUNTED / size;
    if share < slots as u32 { share as u16 } else { slots }
}

/// The offset in a rank's hidden region of the number of its slots that were ever in use.
pub(crate) const fn in_use(size: u32) -> u64 {
    signals::hidden_bytes(size).next_multiple_of(NODE_BYTES)
}

/// The end of that word's line.
pub(crate) const fn end_of_in_use(size: u32) -> u64 {
    in_use(size) + NODE_BYTES
}

/// The size of all nodes of a rank.
pub(crate) const fn bytes(slots: u16) -> u64 {
    NODE_BYTES * slots as u64
}

/// The offset of a word of a node, behind the first one.
#[inline]
pub(crate) const fn node(slot: u16, index: usize) -> u64 {
    NODE_BYTES * slot as u64 + 8 * index as u64
}

/// The slots of this rank.
pub(crate) struct Slots {
    /// The number of slots.
    pub(crate) slots: u16,
    /// How many of them, the lowest, count where a lock has a bounded capacity.
    pub(crate) counted: u16,
    /// How many owners those are, of all ranks.
    pub(crate) counted_of_all: u64,
    /// The thread that owns the biased slot 0, the first that used it: it alone takes the slot, so
    /// that takes no atomic read-modify-write. Without bias slot 0 is as the others.
    biased_thread: AtomicUsize,
    /// How often slot 0 was taken and released: odd while it is in use.
    biased_uses: AtomicU32,
    /// A bit for each other slot; that of a biased slot is always set.
    busy: Box<[AtomicU64]>,
    /// How often each slot was taken.
    generations: Box<[AtomicU32]>,
    /// The thread whose lock has the slot, recorded where `lock_all` is one operation.
    holders: Box<[AtomicUsize]>,
    /// How often in a row the owners of a slot bypassed a queue.
    bypasses: Box<[AtomicU8]>,
    /// The number of owners that needed no slot.
    pub(super) slotless: AtomicU32,
    /// The backoff cap for locks, where an attempt is a round trip.
    pub(crate) backoff_cap: AtomicU8,
    /// How many slots were ever in use, as peers know it.
    pub(super) in_use: AtomicU32,
    /// Held while that is announced.
    pub(super) announcing: Mutex<()>,
    /// The slots of cancelled acquires that the endpoint is finishing.
    cancelled: Mutex<Vec<u16>>,
}

/// A number that identifies this thread among the live ones.
#[inline]
fn this_thread() -> usize {
    thread_local!(static HERE: u8 = const { 0 });
    // A thread that reuses the address of one that ended runs after everything that one did.
    HERE.with(|here| std::ptr::from_ref(here).addr())
}

/// Takes the lowest of the first `count` bits that are not set, so that few ever are.
pub(super) fn take_lowest(bits: &AtomicU64, count: u16) -> Option<u16> {
    let mut found = bits.load(Ordering::Relaxed);
    loop {
        let bit = found.trailing_ones();
        if bit >= u32::from(count.min(64)) {
            return None;
        }
        // Its previous user has finished with it.
        match bits.compare_exchange_weak(found, found | 1 << bit, Ordering::Acquire, Ordering::Relaxed) {
            Ok(_) => return Some(bit as u16),
            Err(now) => found = now,
        }
    }
}

impl Slots {
    /// `biased`: a thread may own slot 0. `marks`: records which thread has a lock.
    pub(crate) fn new((size, slots): (u32, u16), biased: bool, marks: bool) -> Self {
        let counted = counted(size, slots);
        Self {
            slots,
            counted,
            counted_of_all: if counted == 0 { u64::MAX } else { u64::from(size) * u64::from(counted) }, // no owner is
            biased_thread: AtomicUsize::new(if biased { 0 } else { NOBODY }),
            biased_uses: AtomicU32::new(0),
            busy: (0..slots.div_ceil(64)).map(|at| AtomicU64::new((biased && at == 0).into())).collect(),
            generations: (0..slots).map(|_| AtomicU32::new(0)).collect(),
            holders: (0..if marks { slots } else { 0 }).map(|_| AtomicUsize::new(0)).collect(),
            bypasses: (0..slots).map(|_| AtomicU8::new(0)).collect(),
            slotless: AtomicU32::new(0),
            backoff_cap: AtomicU8::new(0),
            in_use: AtomicU32::new(0),
            announcing: Mutex::default(),
            cancelled: Mutex::default(),
        }
    }

    /// The slots of cancelled acquires that the endpoint is finishing.
    pub(crate) fn cancelled(&self) -> MutexGuard<'_, Vec<u16>> {
        lock(&self.cancelled)
    }

    /// Whether this thread has a lock of the window, as far as that is recorded: a guard may have
    /// moved between threads.
    pub(crate) fn is_inside(&self) -> bool {
        let here = this_thread();
        let used = self.holders.iter().take(self.in_use.load(Ordering::Relaxed) as usize);
        used.map(|thread| thread.load(Ordering::Relaxed)).any(|thread| thread == here)
    }

    /// Records that this thread has a lock by this slot, or that none has.
    pub(crate) fn mark_inside(&self, slot: u16, inside: bool) {
        if let Some(thread) = self.holders.get(usize::from(slot)) {
            thread.store(if inside { this_thread() } else { 0 }, Ordering::Relaxed);
        }
    }

    /// How often in a row the owners of this slot bypassed a queue.
    #[inline]
    pub(crate) fn bypasses(&self, slot: u16) -> u8 {
        self.bypasses.get(usize::from(slot)).map_or(0, |bypasses| bypasses.load(Ordering::Relaxed))
    }

    /// Records that for the next owner.
    #[inline]
    pub(crate) fn set_bypasses(&self, slot: u16, bypasses: u8) {
        if let Some(slot_bypasses) = self.bypasses.get(usize::from(slot)) {
            slot_bypasses.store(bypasses, Ordering::Relaxed);
        }
    }

    /// Takes slot 0 if this thread owns it and it is free; returns its generation.
    #[inline]
    pub(super) fn take_biased(&self) -> Option<u32> {
        let uses = self.biased_uses.load(Ordering::Acquire);
        if self.biased_thread.load(Ordering::Relaxed) != this_thread() || !uses.is_multiple_of(2) {
            return None;
        }
        self.biased_uses.store(uses.wrapping_add(1), Ordering::Relaxed);
        Some(uses.wrapping_add(2) / 2)
    }

    /// Takes a slot; returns it with its generation.
    pub(super) fn take(&self) -> Option<(u16, u32)> {
        let claims_bias =
            || self.biased_thread.compare_exchange(0, this_thread(), Ordering::Relaxed, Ordering::Relaxed).is_ok();
        if let Some(generation) = self.take_biased().or_else(|| claims_bias().then(|| self.take_biased()).flatten()) {
            return Some((0, generation));
        }
        let slot = self.take_unbiased()?;
        // The slot is exclusive to this owner.
        let generations = &self.generations[usize::from(slot)];
        let generation = generations.load(Ordering::Relaxed).wrapping_add(1);
        generations.store(generation, Ordering::Relaxed);
        Some((slot, generation))
    }

    fn take_unbiased(&self) -> Option<u16> {
        let mut words = self.busy.iter().zip((0..self.slots).step_by(64));
        words.find_map(|(busy, first)| Some(first + take_lowest(busy, self.slots - first)?))
    }

    #[inline]
    pub(crate) fn free_biased(&self) {
        self.biased_uses.store(self.biased_uses.load(Ordering::Relaxed).wrapping_add(1), Ordering::Release);
    }

    #[inline]
    pub(super) fn give_back(&self, slot: u16) {
        match slot {
            BIASED_SLOT if self.biased_thread.load(Ordering::Relaxed) != NOBODY => self.free_biased(),
            _ => drop(self.busy[usize::from(slot / 64)].fetch_and(!(1 << (slot % 64)), Ordering::Release)),
        }
    }
}

debug!([] Slots, |this| "{} of {} slots ever in use", this.in_use.load(Ordering::Relaxed), this.slots);

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn every_slot_is_taken_once_the_lowest_first() {
        let slots = Slots::new((100, 131), true, false);
        let all: Vec<_> = std::iter::from_fn(|| slots.take()).map(|(slot, _)| slot).collect();
        assert_eq!(all, (0..131).collect::<Vec<_>>());
        for slot in [64, 0, 130, 7] {
            slots.give_back(slot);
        }
        assert_eq!(std::iter::from_fn(|| slots.take()).collect::<Vec<_>>(), [(0, 2), (7, 2), (64, 2), (130, 2)]);
    }

    /// Also by threads that could not own slot 0.
    #[test]
    fn where_nobody_leads_the_first_slot_is_as_the_others() {
        let slots = Slots::new((2, 33), false, false);
        for generation in 1..4 {
            assert_eq!(slots.take(), Some((0, generation)));
            assert_eq!(std::iter::from_fn(|| slots.take()).count(), 32);
            std::thread::scope(|scope| {
                scope.spawn(|| (0..33).for_each(|slot| slots.give_back(slot)));
            });
        }
    }

    #[test]
    fn a_thread_is_inside_by_its_own_locks() {
        let slots = Slots::new((2, 33), true, true);
        slots.in_use.store(3, Ordering::Relaxed);
        slots.mark_inside(2, true);
        assert!(slots.is_inside());
        std::thread::scope(|scope| {
            scope.spawn(|| assert!(!slots.is_inside()));
        });
        slots.mark_inside(2, false);
        slots.mark_inside(Owner::NO_SLOT, true);
        assert!(!slots.is_inside());
    }

    #[test]
    fn threads_share_them() {
        let slots = Slots::new((1, 32), true, false);
        let taken: Vec<u16> = std::thread::scope(|scope| {
            let threads: Vec<_> = (0..4)
                .map(|_| {
                    scope.spawn(|| {
                        let mut mine: Vec<_> = (0..8).map(|_| slots.take().unwrap().0).collect();
                        for _ in 0..1000 {
                            slots.give_back(mine[3]);
                            mine[3] = std::iter::repeat_with(|| slots.take()).find_map(|taken| taken).unwrap().0;
                        }
                        mine
                    })
                })
                .collect();
            threads.into_iter().flat_map(|thread| thread.join().unwrap()).collect()
        });
        assert_eq!(taken.iter().collect::<BTreeSet<_>>().len(), 32);
    }

    #[test]
    fn worlds_of_every_size_have_a_bounded_number() {
        assert_eq!([1, 993, 994, 4062, 4063, u32::MAX].map(default_slots), [1024, 1024, 1025, 4093, 4094, 4094]);
        assert_eq!(end_of_in_use(2) % 64, 0);
        let counted_by_default = |size| counted(size, default_slots(size));
        assert_eq!([1, 16, 17, 1000, 1 << 14, 1 << 15].map(counted_by_default), [1024, 1024, 963, 16, 1, 0]);
        assert!((1..100_000).all(|size| size * u32::from(counted_by_default(size)) <= COUNTED));
    }
}
