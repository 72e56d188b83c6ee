//! The queue nodes of a rank's owners in a window.
//!
//! A node is a cache line in the rank's hidden region, behind the signals. An owner takes one of
//! the rank's slots while it waits, holds and releases, so that threads, and several locks at the
//! same time, do not collide. There are as many slots as a [`lock_all`](crate::Window::lock_all)
//! needs, and some for threads. An owner that finds no free slot works without one (see
//! [`LockAlgorithm::uses_node`](onesided_lock_algos::LockAlgorithm::uses_node)), because waiting
//! for a slot while holding others could deadlock.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::atomic::{AtomicU8, AtomicU32, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};

use onesided_fabric::Fabric;
use onesided_fabric::remote_memory::{Fault, FaultKind};
use onesided_lock_algos::{AnyLock, LockAlgorithm, Mode, Owner, WithoutSlot};

use crate::signals;
use crate::window::Inner;

/// Whether an owner has a slot.
#[inline]
pub(crate) const fn has_slot(owner: u64) -> bool {
    Owner::from_bits(owner).slot != Owner::NO_SLOT
}

/// Not the address of any thread.
const NOBODY: usize = usize::MAX;

/// The biased slot: one thread has it for itself.
pub(crate) const LEAD: u16 = 0;

/// The size of a node.
const NODE_BYTES: u64 = 64;
const _: () = assert!(8 * AnyLock::NODE_WORDS as u64 <= NODE_BYTES);

/// Slots beyond one for each rank.
const FOR_THREADS: u32 = 31;
/// The maximum of a rank: more would waste memory.
const MOST: u32 = 1024;
const _: () = assert!(MOST < Owner::NO_SLOT as u32);

/// The number of slots of each rank in a world of this size.
pub(crate) const fn slots(size: u32) -> u16 {
    let wanted = size.saturating_add(FOR_THREADS);
    if wanted < MOST { wanted as u16 } else { MOST as u16 }
}

/// How many owners with a slot, of all ranks, count where a lock's words have a bounded capacity.
/// The other owners check the capacity, and leave the last of it to those.
const COUNTED: u32 = 1 << 14;

/// How many slots of each rank those are, the lowest.
const fn counted(size: u32) -> u16 {
    let share = COUNTED / size;
    if share < slots(size) as u32 { share as u16 } else { slots(size) }
}

/// The offset of the participant count in a rank's hidden region.
pub(crate) const fn tally(size: u32) -> u64 {
    signals::hidden_bytes(size).next_multiple_of(NODE_BYTES)
}

/// The offset of a word of a node, behind the participant count.
const fn node(tally: u64, slot: u16, index: usize) -> u64 {
    tally + NODE_BYTES * (slot as u64 + 1) + 8 * index as u64
}

/// The offset of a word of a slot's node in each rank's hidden region.
pub(crate) const fn node_of(size: u32, slot: u16, index: usize) -> u64 {
    node(tally(size), slot, index)
}

/// The size of the hidden region of a rank up to the end of its nodes.
pub(crate) const fn hidden_bytes(size: u32) -> u64 {
    node(tally(size), slots(size), 0)
}

/// The slots of this rank.
pub(crate) struct Nodes {
    /// The number of slots.
    pub(crate) slots: u16,
    /// How many of them, the lowest, count where a lock has a bounded capacity.
    pub(crate) counted: u16,
    /// The offset of the participant count in each rank's hidden region.
    pub(crate) tally: u64,
    /// The thread that owns the biased slot 0, the first that used it: it alone takes the slot, so
    /// that takes no atomic read-modify-write. Without bias slot 0 is as the others.
    lead: AtomicUsize,
    /// How often slot 0 was taken and released: odd while it is in use.
    lead_uses: AtomicU32,
    /// A bit for each other slot; that of a biased slot is always set.
    busy: Box<[AtomicU64]>,
    /// How often each slot was taken.
    generations: Box<[AtomicU32]>,
    /// The thread whose lock has the slot, recorded where `lock_all` is one operation.
    inside: Box<[AtomicUsize]>,
    /// How often in a row the owners of a slot bypassed a queue.
    passes: Box<[AtomicU8]>,
    /// The number of owners that had no slot.
    slotless: AtomicU32,
    /// The backoff cap for locks, where an attempt is a round trip.
    pub(crate) reach: AtomicU8,
    /// Announced to peers: how many slots were ever in use ...
    marked: AtomicU32,
    /// ... and how many owners without a slot count. For which locks is known to this rank only.
    without: Mutex<BTreeMap<u64, u32>>,
}

/// A number that identifies this thread among the live ones.
#[inline]
fn this_thread() -> usize {
    thread_local!(static HERE: u8 = const { 0 });
    // A thread that reuses the address of one that ended runs after everything that one did.
    HERE.with(|here| std::ptr::from_ref(here).addr())
}

impl Nodes {
    /// `led`: a thread may own slot 0. `marked`: records which thread has a lock.
    pub(crate) fn new(size: u32, led: bool, marked: bool) -> Self {
        let slots = slots(size);
        Self {
            slots,
            counted: counted(size),
            tally: tally(size),
            lead: AtomicUsize::new(if led { 0 } else { NOBODY }),
            lead_uses: AtomicU32::new(0),
            busy: (0..slots.div_ceil(64)).map(|at| AtomicU64::new((led && at == 0).into())).collect(),
            generations: (0..slots).map(|_| AtomicU32::new(0)).collect(),
            inside: (0..if marked { slots } else { 0 }).map(|_| AtomicUsize::new(0)).collect(),
            passes: (0..slots).map(|_| AtomicU8::new(0)).collect(),
            slotless: AtomicU32::new(0),
            reach: AtomicU8::new(0),
            marked: AtomicU32::new(0),
            without: Mutex::default(),
        }
    }

    /// Whether this thread has a lock of the window, as far as that is recorded: a guard may have
    /// moved between threads.
    pub(crate) fn is_inside(&self) -> bool {
        let here = this_thread();
        let used = self.inside.iter().take(self.marked.load(Ordering::Relaxed) as usize);
        used.map(|thread| thread.load(Ordering::Relaxed)).any(|thread| thread == here)
    }

    /// Records that this thread has a lock by this slot, or that none has.
    pub(crate) fn mark_inside(&self, slot: u16, inside: bool) {
        if let Some(thread) = self.inside.get(usize::from(slot)) {
            thread.store(if inside { this_thread() } else { 0 }, Ordering::Relaxed);
        }
    }

    /// How often in a row the owners of this slot bypassed a queue.
    #[inline]
    pub(crate) fn passes(&self, slot: u16) -> u8 {
        self.passes.get(usize::from(slot)).map_or(0, |passes| passes.load(Ordering::Relaxed))
    }

    /// Records that for the next owner.
    #[inline]
    pub(crate) fn keep_passes(&self, slot: u16, passes: u8) {
        if let Some(kept) = self.passes.get(usize::from(slot)) {
            kept.store(passes, Ordering::Relaxed);
        }
    }

    /// The offset of a word of a node.
    #[inline]
    pub(crate) const fn node(&self, slot: u16, index: usize) -> u64 {
        node(self.tally, slot, index)
    }

    /// Takes slot 0 if this thread owns it and it is free; returns its generation.
    #[inline]
    fn take_lead(&self) -> Option<u32> {
        let uses = self.lead_uses.load(Ordering::Acquire);
        if self.lead.load(Ordering::Relaxed) != this_thread() || !uses.is_multiple_of(2) {
            return None;
        }
        self.lead_uses.store(uses.wrapping_add(1), Ordering::Relaxed);
        Some(uses.wrapping_add(2) / 2)
    }

    /// Takes a slot; returns it with its generation.
    fn take(&self) -> Option<(u16, u32)> {
        let unled = || self.lead.compare_exchange(0, this_thread(), Ordering::Relaxed, Ordering::Relaxed).is_ok();
        if let Some(generation) = self.take_lead().or_else(|| unled().then(|| self.take_lead()).flatten()) {
            return Some((0, generation));
        }
        let slot = self.take_another()?;
        // The slot is exclusive to this owner.
        let generations = &self.generations[usize::from(slot)];
        let generation = generations.load(Ordering::Relaxed).wrapping_add(1);
        generations.store(generation, Ordering::Relaxed);
        Some((slot, generation))
    }

    fn take_another(&self) -> Option<u16> {
        // The lowest free slot, so that few were ever in use.
        for (at, busy) in self.busy.iter().enumerate() {
            let mut found = busy.load(Ordering::Relaxed);
            while found != u64::MAX {
                let bit = found.trailing_ones();
                let slot = 64 * at as u32 + bit;
                if slot >= u32::from(self.slots) {
                    return None;
                }
                match busy.compare_exchange_weak(found, found | 1 << bit, Ordering::Acquire, Ordering::Relaxed) {
                    Ok(_) => return Some(slot as u16),
                    Err(now) => found = now,
                }
            }
        }
        None
    }

    #[inline]
    pub(crate) fn give_back_lead(&self) {
        self.lead_uses.store(self.lead_uses.load(Ordering::Relaxed).wrapping_add(1), Ordering::Release);
    }

    #[inline]
    fn give_back(&self, slot: u16) {
        match slot {
            LEAD if self.lead.load(Ordering::Relaxed) != NOBODY => self.give_back_lead(),
            _ => drop(self.busy[usize::from(slot / 64)].fetch_and(!(1 << (slot % 64)), Ordering::Release)),
        }
    }
}

impl<F: Fabric> Inner<F> {
    /// The bits of an owner in this mode, with a slot if it needs one and one is free.
    pub(crate) fn owner(&self, mode: Mode) -> Result<u64, Fault> {
        let rank = self.fabric().rank();
        if !self.algorithm.uses_node(mode) {
            return Ok(self.slotless());
        }
        let taken = self.nodes.take();
        if let Some(late) = &self.late {
            // Without a slot, acquires would not be distinct; readers need one too, since they may
            // take the lock over exclusively.
            late.tries(taken.ok_or(Fault::of(FaultKind::Full, rank))?.0, self.fabric().now());
        }
        let Some((slot, generation)) = taken else { return Ok(self.found_none()) };
        if u32::from(slot) >= self.nodes.marked.load(Ordering::Acquire) {
            self.mark(slot)?;
        }
        Ok(Owner { rank, slot, generation }.to_bits())
    }

    /// The same for an owner that needs a slot, if this thread can take slot 0, peers know that it
    /// is in use, and operations complete at post.
    #[inline]
    pub(crate) fn lead_owner(&self, mode: Mode) -> Option<u64> {
        if !self.leads || !self.algorithm.uses_node(mode) {
            return None;
        }
        let generation = self.nodes.take_lead()?;
        Some(Owner { rank: self.fabric().rank(), slot: LEAD, generation }.to_bits())
    }

    /// This rank as an owner that needs no slot. Where operations complete at post the outcome is
    /// known, and no generation is needed.
    #[inline]
    pub(crate) fn slotless(&self) -> u64 {
        if self.completes_at_post { self.without_node(0) } else { self.found_none() }
    }

    /// This rank as an owner that found no free slot.
    fn found_none(&self) -> u64 {
        self.without_node(self.nodes.slotless.fetch_add(1, Ordering::Relaxed))
    }

    #[inline]
    fn without_node(&self, generation: u32) -> u64 {
        Owner { rank: self.fabric().rank(), slot: Owner::NO_SLOT, generation }.to_bits()
    }

    /// Frees an owner's slot, if it has one: no peer writes to its node any more.
    #[inline]
    pub(crate) fn give_back(&self, owner: u64) {
        if has_slot(owner) {
            self.nodes.give_back(Owner::from_bits(owner).slot);
        }
    }

    /// Announces to peers that a slot is in use from now on.
    #[cold]
    fn mark(&self, slot: u16) -> Result<(), Fault> {
        self.tell(|_, marked| *marked = (*marked).max(u32::from(slot) + 1))
    }

    /// Adds an owner without a slot to those that count for a lock, or removes one.
    #[cold]
    pub(crate) fn count_without_slot(&self, lock: u64, counts: bool) -> Result<(), Fault> {
        self.tell(|without, _| {
            let here = without.entry(lock).or_default();
            *here = if counts { here.saturating_add(1) } else { here.saturating_sub(1) };
            if *here == 0 {
                without.remove(&lock);
            }
        })
    }

    /// The owners of this rank that count without a slot, as seen from one lock.
    #[cold]
    pub(crate) fn without_slot(&self, lock: u64) -> WithoutSlot {
        let without = self.nodes.without.lock().unwrap_or_else(PoisonError::into_inner);
        let here = without.get(&lock).copied().unwrap_or(0);
        WithoutSlot { here, elsewhere: without.values().sum::<u32>() - here }
    }

    fn tell(&self, change: impl FnOnce(&mut BTreeMap<u64, u32>, &mut u32)) -> Result<(), Fault> {
        let mut without = self.nodes.without.lock().unwrap_or_else(PoisonError::into_inner);
        let mut marked = self.nodes.marked.load(Ordering::Relaxed);
        change(&mut without, &mut marked);
        let word = self.fabric().word_in(&self.own_locks, self.nodes.tally)?;
        let all = without.values().map(|owners| u64::from(*owners)).sum::<u64>();
        self.fabric().store(word, all << 32 | u64::from(marked))?;
        self.nodes.marked.store(marked, Ordering::Release);
        Ok(())
    }
}

impl fmt::Debug for Nodes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} of {} slots ever in use", self.marked.load(Ordering::Relaxed), self.slots)
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn every_slot_is_taken_once_the_lowest_first() {
        let nodes = Nodes::new(100, true, false);
        assert_eq!(nodes.slots, 131);
        let all: Vec<_> = std::iter::from_fn(|| nodes.take()).map(|(slot, _)| slot).collect();
        assert_eq!(all, (0..131).collect::<Vec<_>>());
        for slot in [64, 0, 130, 7] {
            nodes.give_back(slot);
        }
        assert_eq!(std::iter::from_fn(|| nodes.take()).collect::<Vec<_>>(), [(0, 2), (7, 2), (64, 2), (130, 2)]);
    }

    /// Also by threads that could not own slot 0.
    #[test]
    fn where_nobody_leads_the_first_slot_is_as_the_others() {
        let nodes = Nodes::new(2, false, false);
        for generation in 1..4 {
            assert_eq!(nodes.take(), Some((0, generation)));
            assert_eq!(std::iter::from_fn(|| nodes.take()).count(), 32);
            std::thread::scope(|scope| {
                scope.spawn(|| (0..33).for_each(|slot| nodes.give_back(slot)));
            });
        }
    }

    #[test]
    fn a_thread_is_inside_by_its_own_locks() {
        let nodes = Nodes::new(2, true, true);
        nodes.marked.store(3, Ordering::Relaxed);
        nodes.mark_inside(2, true);
        assert!(nodes.is_inside());
        std::thread::scope(|scope| {
            scope.spawn(|| assert!(!nodes.is_inside()));
        });
        nodes.mark_inside(2, false);
        nodes.mark_inside(Owner::NO_SLOT, true);
        assert!(!nodes.is_inside());
    }

    #[test]
    fn threads_share_them() {
        let nodes = Nodes::new(1, true, false);
        let taken: Vec<u16> = std::thread::scope(|scope| {
            let threads: Vec<_> = (0..4)
                .map(|_| {
                    scope.spawn(|| {
                        let mut mine: Vec<_> = (0..8).map(|_| nodes.take().unwrap().0).collect();
                        for _ in 0..1000 {
                            nodes.give_back(mine[3]);
                            mine[3] = std::iter::repeat_with(|| nodes.take()).find_map(|taken| taken).unwrap().0;
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
        assert_eq!([1, 2, 992, 993, 994, u32::MAX].map(slots), [32, 33, 1023, 1024, 1024, 1024]);
        assert_eq!(hidden_bytes(2) % 64, 0);
        assert_eq!([1, 2, 112, 113, 1000, 1 << 14, 1 << 15].map(counted), [32, 33, 143, 144, 16, 1, 0]);
        assert!((1..100_000).all(|size| size * u32::from(counted(size)) <= COUNTED));
    }
}
