//! The lock contexts of a window: where a lock finds its words.

use std::sync::atomic::Ordering;

use onesided_fabric::remote_memory::{Fault, FaultKind, Liveness, Rank, RemoteMemory};
use onesided_fabric::shm::{OwnWords, Shm, ShmSegment, ShmWord};
use onesided_fabric::{Fabric, Segment, copied};
use onesided_lock_algos::{InMemory, Kept, LockAlgorithm, LockContext, Mcs, Owner, Owners, Word, WordOf};

use crate::locks::layout::{LockId, request_slots_of_each};
use crate::locks::slots::{self, BIASED_SLOT};
use crate::window::inner::Inner;
use crate::window::target::Target;

/// The rank with the lock-all word of a [global](crate::LockAllDesign::Global) lock.
pub(crate) const LOCK_ALL_RANK: u32 = 0;

/// The context of one target's lock for one owner.
pub(crate) struct WindowLockContext<'w, F: Fabric, R = ByFabric> {
    pub(crate) inner: &'w Inner<F>,
    pub(crate) target: &'w Target<F>,
    pub(crate) id: LockId,
    pub(crate) owner: u64,
    resolve: R,
}

/// How a context resolves words.
pub(crate) trait Resolve<'w, F: Fabric>: Copy + Send + Sync + 'w {
    type Memory: RemoteMemory;
    fn word_in(&self, fabric: &'w F, segment: &'w F::Segment, offset: u64) -> Result<WordIn<'w, Self, F>, Fault>;
    fn same_host_word(&self, fabric: &'w F, segment: &'w F::Segment, at: u64) -> Result<WordIn<'w, Self, F>, Fault> {
        self.word_in(fabric, segment, at)
    }
    /// The first word at the home, and those of the node of the owner in the biased slot, if it is that one's.
    fn known(&self) -> &[WordIn<'w, Self, F>];
}

type WordIn<'w, R, F> = <<R as Resolve<'w, F>>::Memory as RemoteMemory>::Word<'w>;

/// As words of the window's fabric.
#[derive(Clone, Copy)]
pub(crate) struct ByFabric;

/// As words of shared memory, so that the algorithm runs there without dispatch. `N` of them are known: a lock
/// uses them so often that looking them up one by one takes a fifth of its time.
#[derive(Clone, Copy)]
pub(crate) struct InShm<'w, const N: usize>([ShmWord<'w>; N]);

/// The context of a lock's use in shared memory by an owner without a node.
pub(crate) type ShmContext<'w, F> = WindowLockContext<'w, F, InShm<'w, 0>>;
/// The same by the owner in the biased slot. The first word of the home is known, and those of its node.
pub(crate) type BiasedContext<'w, F> = WindowLockContext<'w, F, InShm<'w, { 1 + BIASED_WORDS }>>;

/// The words of a node that are used often; no lock with a biased slot has more.
pub(crate) const BIASED_WORDS: usize = Mcs::NODE_WORDS;

impl<'w, F: Fabric> Resolve<'w, F> for ByFabric {
    type Memory = F;

    #[inline(always)] // as `WindowLockContext::home`
    fn word_in(&self, fabric: &'w F, segment: &'w F::Segment, offset: u64) -> Result<F::Word<'w>, Fault> {
        fabric.word_in(segment, offset)
    }

    fn same_host_word(&self, fabric: &'w F, segment: &'w F::Segment, offset: u64) -> Result<F::Word<'w>, Fault> {
        fabric.same_host_word(segment, offset)
    }

    #[inline(always)] // as `word_in`
    fn known(&self) -> &[F::Word<'w>] {
        &[]
    }
}

impl<'w, F: Fabric, const N: usize> Resolve<'w, F> for InShm<'w, N> {
    type Memory = Shm;

    #[inline(always)] // as `WindowLockContext::home`
    fn word_in(&self, fabric: &'w F, segment: &'w F::Segment, offset: u64) -> Result<ShmWord<'w>, Fault> {
        let (fabric, segment) = in_shm(fabric, segment)?;
        fabric.word_in(segment, offset)
    }

    #[inline(always)] // as `word_in`
    fn known(&self) -> &[ShmWord<'w>] {
        &self.0
    }
}

#[inline(always)] // as `word_in`
fn in_shm<'w, F: Fabric>(fabric: &'w F, segment: &'w F::Segment) -> Result<(&'w Shm, &'w ShmSegment), Fault> {
    fabric.as_shm().zip(segment.as_shm()).ok_or(Fault::new(FaultKind::NoSuchRegion))
}

copied!([F: Fabric, R: Copy] WindowLockContext<'_, F, R>);

impl<F: Fabric> Inner<F> {
    /// The lock context of a target, for an owner.
    #[inline]
    pub(crate) const fn lock_context<'w>(
        &'w self,
        target: &'w Target<F>,
        id: LockId,
        owner: u64,
    ) -> WindowLockContext<'w, F> {
        WindowLockContext { inner: self, target, id, owner, resolve: ByFabric }
    }

    /// The context in shared memory; `None` if the window is not there.
    #[inline(always)] // see `LockRequest::wait`
    pub(crate) fn shm_context<'w>(
        &'w self,
        target: &'w Target<F>,
        id: LockId,
        owner: u64,
    ) -> Option<(&'w Shm, ShmContext<'w, F>)> {
        let memory = self.fabric().as_shm()?;
        Some((memory, WindowLockContext { inner: self, target, id, owner, resolve: InShm([]) }))
    }

    /// The context of the owner in the biased slot, given its node. `None` if the home's word is not there:
    /// why, a look-up tells that the usual path does without.
    #[inline(always)] // see `LockRequest::wait`
    pub(crate) fn biased_context<'w>(
        &'w self,
        target: &'w Target<F>,
        owner: u64,
        (memory, node): (&'w Shm, &'w OwnWords<BIASED_WORDS>),
    ) -> Option<BiasedContext<'w, F>> {
        let [home] = memory.words_in(target.locks.as_shm()?, self.locks.layout.word(0))?;
        let [first, second, third] = node.get();
        let resolve = InShm([home, first, second, third]);
        Some(WindowLockContext { inner: self, target, id: LockId::WINDOW, owner, resolve })
    }
}

impl<'w, F: Fabric, R: Resolve<'w, F>> WindowLockContext<'w, F, R> {
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
        if self.resolve.known().is_empty() { LockContext::owner(self).slot } else { BIASED_SLOT }
    }
}

impl<'w, F: Fabric, R: Resolve<'w, F>> InMemory for WindowLockContext<'w, F, R> {
    type Memory = R::Memory;
}

impl<'w, F: Fabric, R: Resolve<'w, F>> LockContext<'w> for WindowLockContext<'w, F, R> {
    #[inline(always)] // a call is a tenth of an uncontended lock
    fn home(&self, index: usize) -> Result<Word<'w, Self>, Fault> {
        let Self { inner, target, id, resolve, .. } = *self;
        if index == 0
            && let Some(word) = resolve.known().first()
        {
            return Ok(*word);
        }
        match id.is_window_lock() {
            true => resolve.word_in(inner.fabric(), &target.locks, inner.locks.layout.word(index)),
            false if id.is_all() => self.word(WordOf::LockAll(index)),
            false => resolve.word_in(inner.fabric(), &target.data, inner.locks.table.word(id, index as u64)),
        }
    }

    #[inline(always)] // each call is for one kind of word
    fn word(&self, of: WordOf) -> Result<Word<'w, Self>, Fault> {
        let Self { inner, target, id, resolve, .. } = *self;
        let (fabric, world, layout) = (inner.fabric(), &inner.world, &inner.locks.layout);
        match of {
            WordOf::Rank(rank) | WordOf::Host(rank, _) if !id.is_window_lock() => {
                Err(Fault::of(FaultKind::Unsupported, rank)) // tables have no such words
            }
            WordOf::Rank(rank) => resolve.word_in(fabric, self.hidden(rank)?, layout.per_rank(target.rank)),
            WordOf::Host(rank, index) => {
                resolve.same_host_word(fabric, self.hidden(rank)?, layout.per_host(target.rank, index))
            }
            WordOf::LockAll(index) => {
                resolve.word_in(fabric, &inner.target(LOCK_ALL_RANK)?.locks, layout.lock_all(index))
            }
            WordOf::Request(rank, line) => {
                resolve.word_in(fabric, &target.locks, layout.request_slot(world, rank, line)?)
            }
            WordOf::SlotsInUse(rank) => resolve.word_in(fabric, self.hidden(rank)?, slots::in_use(world.size())),
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
    fn node_of(&self, rank: Rank, slot: u16, index: usize) -> Result<Word<'w, Self>, Fault> {
        self.resolve.word_in(self.inner.fabric(), self.hidden(rank)?, self.inner.locks.layout.node(slot, index))
    }

    #[inline(always)] // as `home`
    fn node(&self, index: usize) -> Result<Word<'w, Self>, Fault> {
        if let Some(word) = self.resolve.known().get(1 + index) {
            return Ok(*word);
        }
        // The slot is one of those that exist.
        let Self { inner, resolve, .. } = self;
        resolve.word_in(inner.fabric(), &inner.memory.hidden, inner.locks.layout.node(self.slot(), index))
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
