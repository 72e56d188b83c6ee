//! The owners of this rank: their slots, and what peers read of them.

use std::collections::BTreeMap;
use std::sync::PoisonError;
use std::sync::atomic::Ordering;

use onesided_fabric::Fabric;
use onesided_fabric::remote_memory::{Fault, FaultKind};
use onesided_lock_algos::{LockAlgorithm, Mode, Owner, WithoutSlot};

use crate::locks::slots::{BIASED_SLOT, has_slot};
use crate::window::inner::Inner;

impl<F: Fabric> Inner<F> {
    /// The bits of an owner in this mode, with a slot if it needs one and one is free.
    pub(crate) fn owner(&self, mode: Mode) -> Result<u64, Fault> {
        let rank = self.fabric().rank();
        if !self.locks.algorithm.uses_node(mode) {
            return Ok(self.slotless());
        }
        let taken = self.locks.slots.take();
        if let Some(leases) = &self.locks.leases {
            // Without a slot, acquires would not be distinct; readers need one too, since they may
            // take the lock over exclusively.
            leases.begin_attempt(taken.ok_or(Fault::of(FaultKind::Full, rank))?.0, self.fabric().now());
        }
        let Some((slot, generation)) = taken else { return Ok(self.owner_without_slot()) };
        if u32::from(slot) >= self.locks.slots.in_use.load(Ordering::Acquire) {
            self.announce(slot)?;
        }
        Ok(Owner { rank, slot, generation }.to_bits())
    }

    /// The same for an owner that needs a slot, if this thread can take slot 0, peers know that it
    /// is in use, and operations complete at post.
    #[inline]
    pub(crate) fn biased_owner(&self, mode: Mode) -> Option<u64> {
        if !self.locks.has_biased_slot || !self.locks.algorithm.uses_node(mode) {
            return None;
        }
        let generation = self.locks.slots.take_biased()?;
        Some(Owner { rank: self.fabric().rank(), slot: BIASED_SLOT, generation }.to_bits())
    }

    /// This rank as an owner that needs no slot. Where operations complete at post the outcome is
    /// known, and no generation is needed.
    #[inline]
    pub(crate) fn slotless(&self) -> u64 {
        if self.completes_at_post { self.slotless_owner(0) } else { self.owner_without_slot() }
    }

    /// This rank as an owner that found no free slot.
    fn owner_without_slot(&self) -> u64 {
        self.slotless_owner(self.locks.slots.slotless.fetch_add(1, Ordering::Relaxed))
    }

    #[inline]
    fn slotless_owner(&self, generation: u32) -> u64 {
        Owner { rank: self.fabric().rank(), slot: Owner::NO_SLOT, generation }.to_bits()
    }

    /// Frees an owner's slot, if it has one: no peer writes to its node any more.
    #[inline]
    pub(crate) fn give_back(&self, owner: u64) {
        if has_slot(owner) {
            self.locks.slots.give_back(Owner::from_bits(owner).slot);
        }
    }

    /// Announces to peers that a slot is in use from now on.
    #[cold]
    fn announce(&self, slot: u16) -> Result<(), Fault> {
        self.publish(|_, in_use| *in_use = (*in_use).max(u32::from(slot) + 1))
    }

    /// Adds an owner without a slot to those that count for a lock, or removes one.
    #[cold]
    pub(crate) fn count_without_slot(&self, lock: u64, counts: bool) -> Result<(), Fault> {
        self.publish(|without, _| {
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
        let without = self.locks.slots.without.lock().unwrap_or_else(PoisonError::into_inner);
        let here = without.get(&lock).copied().unwrap_or(0);
        WithoutSlot { here, elsewhere: without.values().sum::<u32>() - here }
    }

    fn publish(&self, change: impl FnOnce(&mut BTreeMap<u64, u32>, &mut u32)) -> Result<(), Fault> {
        let mut without = self.locks.slots.without.lock().unwrap_or_else(PoisonError::into_inner);
        let mut in_use = self.locks.slots.in_use.load(Ordering::Relaxed);
        change(&mut without, &mut in_use);
        let word = self.fabric().word_in(&self.memory.hidden, self.locks.slots.participants)?;
        let all = without.values().map(|owners| u64::from(*owners)).sum::<u64>();
        self.fabric().store(word, all << 32 | u64::from(in_use))?;
        self.locks.slots.in_use.store(in_use, Ordering::Release);
        Ok(())
    }
}
