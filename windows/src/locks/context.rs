//! The lock contexts of a window: where a lock finds its words.

use std::sync::atomic::Ordering;

use onesided_fabric::Fabric;
use onesided_fabric::remote_memory::{Fault, FaultKind, Liveness, Rank};
use onesided_lock_algos::{BackoffCap, LockAlgorithm, LockContext, LockUse, Mcs, Mode, Owner};

use crate::locks::layout::LockId;
use crate::locks::slots::{self, BIASED_SLOT};
use crate::locks::window_lock::Used;
use crate::window::inner::Inner;
use crate::window::target::Target;

/// The rank with the lock-all word of a [global](crate::LockAllDesign::Global) lock.
pub(crate) const LOCK_ALL_RANK: u32 = 0;

/// The context of one target's lock for one owner, whose node is looked up when needed or known
/// already.
pub(crate) struct WindowLockContext<'w, F: Fabric, N = LookedUp> {
    pub(crate) inner: &'w Inner<F>,
    pub(crate) target: &'w Target<F>,
    pub(crate) id: LockId,
    pub(crate) owner: u64,
    pub(crate) node: N,
}

/// How a context finds its owner's node.
pub(crate) trait Node<'w, F: Fabric>: Copy + Send + Sync {
    /// Whether the owner is known to have the biased slot 0.
    const BIASED: bool;

    /// A word of the node, if it is known.
    fn word(&self, index: usize) -> Option<F::Word<'w>>;
}

/// Looks up each word.
#[derive(Clone, Copy)]
pub(crate) struct LookedUp;

/// The words of slot 0's node; no lock has more. A lock uses them so often that looking them up one
/// by one takes a fifth of its time.
#[derive(Clone, Copy)]
pub(crate) struct CachedNode<W>([W; Mcs::NODE_WORDS]);

impl<'w, F: Fabric> Node<'w, F> for LookedUp {
    const BIASED: bool = false;

    #[inline]
    fn word(&self, _index: usize) -> Option<F::Word<'w>> {
        None
    }
}

impl<'w, F: Fabric> Node<'w, F> for CachedNode<F::Word<'w>> {
    const BIASED: bool = true;

    #[inline]
    fn word(&self, index: usize) -> Option<F::Word<'w>> {
        self.0.get(index).copied()
    }
}

impl<F: Fabric, N: Copy> Clone for WindowLockContext<'_, F, N> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<F: Fabric, N: Copy> Copy for WindowLockContext<'_, F, N> {}

impl<F: Fabric> Inner<F> {
    /// The lock context of a target, for an owner.
    #[inline]
    pub(crate) const fn lock_context<'w>(
        &'w self,
        target: &'w Target<F>,
        id: LockId,
        owner: u64,
    ) -> WindowLockContext<'w, F> {
        WindowLockContext { inner: self, target, id, owner, node: LookedUp }
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
    /// For the owner of the biased slot 0.
    #[inline(always)]
    pub(crate) fn with_cached_node(self) -> Result<WindowLockContext<'w, F, CachedNode<F::Word<'w>>>, Fault> {
        let Self { inner, target, id, owner, node: LookedUp } = self;
        let node = CachedNode(inner.fabric().words_in(&inner.memory.hidden, inner.locks.layout.node(BIASED_SLOT, 0))?);
        Ok(WindowLockContext { inner, target, id, owner, node })
    }
}

impl<'w, F: Fabric, N: Node<'w, F>> WindowLockContext<'w, F, N> {
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
        if N::BIASED { BIASED_SLOT } else { LockContext::owner(self).slot }
    }
}

impl<'w, F: Fabric, N: Node<'w, F>> LockContext<'w, F> for WindowLockContext<'w, F, N> {
    #[inline(always)] // a call is a tenth of an uncontended lock
    fn home(&self, index: usize) -> Result<F::Word<'w>, Fault> {
        let Self { inner, target, id, .. } = *self;
        match id.is_window_lock() {
            true => inner.fabric().word_in(&target.locks, inner.locks.layout.word(index)),
            false if id.is_all() => self.lock_all_word(index),
            false => inner.fabric().word_in(&target.data, inner.locks.table.word(id, index as u64)),
        }
    }

    fn per_rank_word(&self, rank: Rank) -> Result<F::Word<'w>, Fault> {
        if !self.id.is_window_lock() {
            return Err(Fault::of(FaultKind::Unsupported, rank)); // tables have no such words
        }
        self.inner.fabric().word_in(self.hidden(rank)?, self.inner.locks.layout.per_rank(self.target.rank))
    }

    fn host_word(&self, rank: Rank, index: usize) -> Result<F::Word<'w>, Fault> {
        if !self.id.is_window_lock() {
            return Err(Fault::of(FaultKind::Unsupported, rank)); // tables have no such words
        }
        self.inner
            .fabric()
            .same_host_word(self.hidden(rank)?, self.inner.locks.layout.per_host(self.target.rank, index))
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
        if let Some(word) = self.node.word(index) {
            return Ok(word);
        }
        // The slot is one of those that exist.
        self.inner.fabric().word_in(&self.inner.memory.hidden, self.inner.locks.layout.node(self.slot(), index))
    }

    #[inline]
    fn slots(&self) -> u16 {
        self.inner.locks.slots.slots
    }

    #[inline]
    fn owners(&self) -> u64 {
        match self.inner.locks.slots.counted {
            0 => u64::MAX, // no owner is
            counted => u64::from(self.inner.world.size()) * u64::from(counted),
        }
    }

    #[inline]
    fn is_counted(&self) -> bool {
        self.owner().slot < self.inner.locks.slots.counted
    }

    fn home_rank(&self) -> Rank {
        self.target.fabric_rank()
    }

    #[inline]
    fn request_slots(&self) -> u16 {
        crate::locks::layout::request_slots_of_each(self.inner.world.size())
    }

    #[inline]
    fn request_slot_of(&self, rank: Rank, line: u16) -> Result<F::Word<'w>, Fault> {
        let of = self.inner.world.rank_of(rank).ok_or(Fault::of(FaultKind::NoSuchRegion, rank))?;
        self.inner.fabric().word_in(&self.target.locks, self.inner.locks.layout.request_slot(of, line))
    }

    #[inline]
    fn take_request_slot(&self) -> Option<u16> {
        self.target.request_slots.take(self.request_slots())
    }

    #[inline]
    fn release_request_slot(&self, line: u16) {
        self.target.request_slots.give_back(line);
    }

    fn slots_in_use(&self, rank: Rank) -> Result<Option<F::Word<'w>>, Fault> {
        self.inner.fabric().word_in(self.hidden(rank)?, slots::in_use(self.inner.world.size())).map(Some)
    }

    fn lock_all_word(&self, index: usize) -> Result<F::Word<'w>, Fault> {
        self.inner.fabric().word_in(&self.inner.target(LOCK_ALL_RANK)?.locks, self.inner.locks.layout.lock_all(index))
    }

    fn lock_all_rank(&self) -> Rank {
        self.inner.world.fabric_rank(LOCK_ALL_RANK).unwrap_or_else(|| self.home_rank())
    }

    fn is_lock_all(&self) -> bool {
        self.id.is_all()
    }

    fn is_inside(&self) -> bool {
        self.inner.locks.slots.is_inside()
    }

    fn mark_inside(&self, inside: bool) {
        self.inner.locks.slots.mark_inside(self.owner().slot, inside);
    }

    fn backoff_cap(&self) -> BackoffCap {
        // Where an attempt is an instruction, the owner of the core progresses while others pause:
        // that is best.
        if self.inner.completes_at_post {
            BackoffCap::ALL
        } else {
            BackoffCap(self.inner.locks.slots.backoff_cap.load(Ordering::Relaxed))
        }
    }

    fn keep_backoff_cap(&self, BackoffCap(reach): BackoffCap) {
        self.inner.locks.slots.backoff_cap.store(reach, Ordering::Relaxed);
    }

    #[inline]
    fn bypasses(&self) -> u8 {
        self.inner.locks.slots.bypasses(self.slot())
    }

    #[inline]
    fn keep_bypasses(&self, passes: u8) {
        self.inner.locks.slots.set_bypasses(self.slot(), passes);
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
