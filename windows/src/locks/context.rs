//! The lock contexts of a window: where a lock finds its words.

use std::sync::atomic::Ordering;

use onesided_fabric::Fabric;
use onesided_fabric::remote_memory::{Fault, FaultKind, Liveness, Rank};
use onesided_lock_algos::{Kept, LockAlgorithm, LockContext, LockUse, Mcs, Mode, Owner, Owners, WordOf};

use crate::locks::layout::{LockId, request_slots_of_each};
use crate::locks::slots::{self, BIASED_SLOT};
use crate::locks::window_lock::Used;
use crate::window::inner::Inner;
use crate::window::target::Target;

/// The rank with the lock-all word of a [global](crate::LockAllDesign::Global) lock.
pub(crate) const LOCK_ALL_RANK: u32 = 0;

/// The context of one target's lock for one owner. The first `N` words of its node are known already:
/// all or none. A lock uses them so often that looking them up one by one takes a fifth of its time.
pub(crate) struct WindowLockContext<'w, F: Fabric, const N: usize = 0> {
    pub(crate) inner: &'w Inner<F>,
    pub(crate) target: &'w Target<F>,
    pub(crate) id: LockId,
    pub(crate) owner: u64,
    /// Those of the biased slot 0.
    node: [F::Word<'w>; N],
}

/// The words of a node that are used often; no lock with a biased slot has more.
const CACHED: usize = Mcs::NODE_WORDS;

impl<F: Fabric, const N: usize> Clone for WindowLockContext<'_, F, N> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<F: Fabric, const N: usize> Copy for WindowLockContext<'_, F, N> {}

impl<F: Fabric> Inner<F> {
    /// The lock context of a target, for an owner.
    #[inline]
    pub(crate) const fn lock_context<'w>(
        &'w self,
        target: &'w Target<F>,
        id: LockId,
        owner: u64,
    ) -> WindowLockContext<'w, F> {
        WindowLockContext { inner: self, target, id, owner, node: [] }
    }

    /// The use of a lock by an owner whose acquire has started.
    #[inline(always)] // a call is a tenth of an uncontended lock
    pub(crate) fn lock_use<'w>(
        &'w self,
        (target, id): (&'w Target<F>, LockId),
        owner: u64,
        mode: Mode,
    ) -> Result<Used<'w, F>, Fault> {
        let context = self.lock_context(target, id, owner);
        Ok(LockUse::new(self.fabric(), context, (context.home(0)?, owner), mode))
    }
}

impl<'w, F: Fabric> WindowLockContext<'w, F> {
    /// The first word at the home, and the context for the owner of the biased slot 0. `None` if one of
    /// the words is not there: which, a look-up tells that the usual path does without.
    #[inline(always)]
    pub(crate) fn biased(self) -> Option<(F::Word<'w>, WindowLockContext<'w, F, CACHED>)> {
        let Self { inner, target, id, owner, node: [] } = self;
        let [home] = inner.fabric().words_in(&target.locks, inner.locks.layout.word(0))?;
        let node = inner.fabric().words_in(&inner.memory.hidden, inner.locks.layout.node(BIASED_SLOT, 0))?;
        Some((home, WindowLockContext { inner, target, id, owner, node }))
    }
}

impl<'w, F: Fabric, const N: usize> WindowLockContext<'w, F, N> {
    /// The hidden region of a rank of the fabric.
    #[inline]
    fn hidden(&self, rank: Rank) -> Result<&'w F::Segment, Fault> {
        if rank == self.inner.fabric().rank() {
            return Ok(&self.inner.memory.hidden);
        }
        let target = self.inner.world.rank_of(rank).ok_or(Fault::of(FaultKind::NoSuchRegion, rank))?;
        Ok(&self.inner.target(target)?.locks)
    }

    /// The owner's slot.
    #[inline(always)] // as its callers
    fn slot(&self) -> u16 {
        if N > 0 { BIASED_SLOT } else { LockContext::owner(self).slot }
    }
}

impl<'w, F: Fabric, const N: usize> LockContext<'w, F> for WindowLockContext<'w, F, N> {
    #[inline(always)] // a call is a tenth of an uncontended lock
    fn home(&self, index: usize) -> Result<F::Word<'w>, Fault> {
        let Self { inner, target, id, .. } = *self;
        match id.is_window_lock() {
            true => inner.fabric().word_in(&target.locks, inner.locks.layout.word(index)),
            false if id.is_all() => self.word(WordOf::LockAll(index)),
            false => inner.fabric().word_in(&target.data, inner.locks.table.word(id, index as u64)),
        }
    }

    #[inline(always)] // each call is for one kind of word
    fn word(&self, of: WordOf) -> Result<F::Word<'w>, Fault> {
        let Self { inner, target, id, .. } = *self;
        let (fabric, world, layout) = (inner.fabric(), &inner.world, &inner.locks.layout);
        match of {
            WordOf::Rank(rank) | WordOf::Host(rank, _) if !id.is_window_lock() => {
                Err(Fault::of(FaultKind::Unsupported, rank)) // tables have no such words
            }
            WordOf::Rank(rank) => fabric.word_in(self.hidden(rank)?, layout.per_rank(target.rank)),
            WordOf::Host(rank, index) => fabric.same_host_word(self.hidden(rank)?, layout.per_host(target.rank, index)),
            WordOf::LockAll(index) => fabric.word_in(&inner.target(LOCK_ALL_RANK)?.locks, layout.lock_all(index)),
            WordOf::Request(rank, line) => fabric.word_in(&target.locks, layout.request_slot(world, rank, line)?),
            WordOf::SlotsInUse(rank) => fabric.word_in(self.hidden(rank)?, slots::in_use(world.size())),
        }
    }

    fn cohort_home(&self) -> Option<Rank> {
        let fabric = self.inner.fabric();
        self.inner.locks.neighbours.iter().copied().find(|rank| fabric.liveness(*rank) == Liveness::Alive)
    }

    fn host_of(&self, rank: Rank) -> u32 {
        self.inner.fabric().host_of(rank)
    }

    #[inline]
    fn node_of(&self, rank: Rank, slot: u16, index: usize) -> Result<F::Word<'w>, Fault> {
        self.inner.fabric().word_in(self.hidden(rank)?, self.inner.locks.layout.node(slot, index))
    }

    #[inline(always)] // as `home`
    fn node(&self, index: usize) -> Result<F::Word<'w>, Fault> {
        if let Some(word) = self.node.get(index) {
            return Ok(*word);
        }
        // The slot is one of those that exist.
        self.inner.fabric().word_in(&self.inner.memory.hidden, self.inner.locks.layout.node(self.slot(), index))
    }

    #[inline(always)] // as `home`
    fn owners(&self) -> Owners {
        let slots = &self.inner.locks.slots;
        Owners { slots: slots.slots, counted: slots.counted_of_all, is_counted: self.slot() < slots.counted }
    }

    fn home_rank(&self) -> Rank {
        self.target.fabric_rank()
    }

    #[inline]
    fn take_request_slot(&self) -> Option<u16> {
        self.target.request_slots.take(request_slots_of_each(self.inner.world.size()))
    }

    #[inline]
    fn release_request_slot(&self, line: u16) {
        self.target.request_slots.give_back(line);
    }

    fn lock_all_rank(&self) -> Rank {
        self.inner.world.fabric_rank(LOCK_ALL_RANK).unwrap_or_else(|| self.home_rank())
    }

    fn is_lock_all(&self) -> bool {
        self.id.is_all()
    }

    #[inline(always)] // as `word`
    fn kept(&self, what: Kept) -> Option<u8> {
        let slots = &self.inner.locks.slots;
        match what {
            // Where an attempt is an instruction, the owner of the core progresses while others pause:
            // the whole table is best.
            Kept::BackoffCap if self.inner.completes_at_post => None,
            Kept::BackoffCap => Some(slots.backoff_cap.load(Ordering::Relaxed)),
            Kept::Bypasses => Some(slots.bypasses(self.slot())),
            Kept::Inside => Some(slots.is_inside().into()),
        }
    }

    #[inline(always)] // as `word`
    fn keep(&self, what: Kept, value: u8) {
        let slots = &self.inner.locks.slots;
        match what {
            Kept::BackoffCap => slots.backoff_cap.store(value, Ordering::Relaxed),
            Kept::Bypasses => slots.set_bypasses(self.slot(), value),
            Kept::Inside => slots.mark_inside(self.owner().slot, value != 0),
        }
    }

    #[inline]
    fn lock(&self) -> u64 {
        self.id.number() << 24 | u64::from(self.target.rank)
    }

    #[inline]
    fn owner(&self) -> Owner {
        Owner::from_bits(self.owner)
    }
}
