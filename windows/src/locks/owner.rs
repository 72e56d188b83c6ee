//! The owners of this rank: their slots, and what peers read of them.

use std::sync::atomic::Ordering;
use std::task::Poll;

use onesided_fabric::remote_memory::{Fault, FaultKind, Rank};
use onesided_fabric::{Fabric, lock};
use onesided_lock_algos::{LockContext, Mode, Owner, announces};

use crate::LockDesign;
use crate::error::ITSELF;
use crate::locks::context::WindowLockContext;
use crate::locks::layout::LockId;
use crate::locks::slots::{self, BIASED_SLOT, has_slot};
use crate::window::inner::Inner;
use crate::window::retry::poll_once;

impl<F: Fabric> Inner<F> {
    /// The bits of an owner in this mode, with a slot if it needs one.
    ///
    /// # Errors
    /// `NoSlot` if none is free.
    pub(crate) fn owner(&self, mode: Mode) -> Result<u64, Fault> {
        let rank = self.fabric().rank();
        if !self.locks.algorithm.uses_node(mode) {
            return Ok(self.slotless());
        }
        let (slot, generation) = self.locks.slots.take().ok_or(Fault::of(FaultKind::NoSlot, rank))?;
        if let Some(leases) = &self.locks.leases {
            leases.begin_attempt(slot, self.fabric().now());
        }
        if u32::from(slot) >= self.locks.slots.in_use.load(Ordering::Acquire) {
            self.announce(slot)?;
        }
        Ok(Owner { rank, slot, generation }.to_bits())
    }

    /// The same for `owner`, that in slot 0, if this thread can take it, and peers know that it is in use.
    #[inline]
    pub(crate) fn biased_owner(&self, owner: u64) -> Option<u64> {
        let generation = self.locks.slots.take_biased()?;
        Some(owner | Owner { rank: Rank(0), slot: BIASED_SLOT, generation }.to_bits())
    }

    /// This rank as an owner that needs no slot. Where operations complete at post the outcome is
    /// known, and no generation is needed.
    fn slotless(&self) -> u64 {
        self.locks.slotless_owner.unwrap_or_else(|| {
            let generation = self.locks.slots.slotless.fetch_add(1, Ordering::Relaxed);
            Owner { rank: self.fabric().rank(), slot: Owner::NO_SLOT, generation }.to_bits()
        })
    }

    /// Frees an owner's slot, if it has one: no peer writes to its node any more.
    #[inline]
    pub(crate) fn give_back(&self, owner: u64) {
        if has_slot(owner) {
            self.locks.slots.give_back(Owner::from_bits(owner).slot);
        }
    }

    /// The fault of an acquire at its deadline. It names a rank that has the lock, or waits for it:
    /// this one, if another owner of it does; or else the owner, as far as the words of the library's
    /// locks tell at once, or the rank that the first operation found.
    #[cold]
    pub(crate) fn late(&self, (rank, id): (u32, LockId), owner: u64, found: Option<Rank>) -> Fault {
        let own = self.fabric().rank();
        // Where each owner has a node, it tells, and the last of a queue may be cancelled.
        let found = found.filter(|rank| *rank != own || !self.locks.algorithm.uses_node(Mode::Exclusive));
        let context = self.target(rank).map(|target| self.lock_context(target, id, owner)).ok();
        let context = context.filter(|_| self.locks.design != LockDesign::Own);
        let named = context.and_then(|context| {
            if self.has_another_owner(context, owner) {
                return Some(own);
            }
            match poll_once(self.fabric().read(context.home(0).ok().filter(|_| self.completes_at_post)?)) {
                Poll::Ready(found) => self.locks.algorithm.owner_in(found.ok()?).map(|owner| owner.rank),
                Poll::Pending => None,
            }
        });
        match named.or(found) {
            Some(rank) if rank == own || found == Some(own) => Fault::of(FaultKind::TimedOut, own).with_detail(ITSELF),
            Some(rank) => Fault::of(FaultKind::TimedOut, rank),
            None => Fault::new(FaultKind::TimedOut),
        }
    }

    /// Whether another owner of this rank is announced for the lock.
    fn has_another_owner(&self, context: WindowLockContext<'_, F>, owner: u64) -> bool {
        let word = |slot, index| -> Result<u64, Fault> {
            self.fabric().load(self.fabric().word_in(&self.memory.hidden, self.locks.layout.node(slot, index))?)
        };
        let number = context.lock();
        // That of a two-level lock is announced in its host's queue, too.
        let of_host = self.locks.algorithm.lock_words().at_each_host > 0;
        let is_announced = |slot| -> Result<bool, Fault> {
            Ok(announces(word(slot, 0)?, number) || of_host && announces(word(slot, 1)?, number))
        };
        let own = Owner::from_bits(owner).slot;
        let cancelled = self.locks.slots.cancelled();
        let mut slots = 0..self.locks.slots.in_use.load(Ordering::Relaxed) as u16;
        slots.any(|slot| slot != own && !cancelled.contains(&slot) && is_announced(slot) == Ok(true))
    }

    /// Announces to peers that a slot is in use from now on.
    #[cold]
    fn announce(&self, slot: u16) -> Result<(), Fault> {
        let _announcing = lock(&self.locks.slots.announcing);
        let in_use = self.locks.slots.in_use.load(Ordering::Relaxed).max(u32::from(slot) + 1);
        let word = self.fabric().word_in(&self.memory.hidden, slots::in_use(self.world.size()))?;
        self.fabric().store(word, in_use.into())?;
        self.locks.slots.in_use.store(in_use, Ordering::Release);
        Ok(())
    }
}
