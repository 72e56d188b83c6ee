//! Where a lock finds its words in a window.

use std::sync::atomic::Ordering;

use onesided_fabric::Fabric;
use onesided_fabric::remote_memory::{Fault, FaultKind, Liveness, Rank};
use onesided_lock_algos::{AnyLock, BackoffCap, LockAlgorithm, LockContext, Owner, WithoutSlot};

use crate::homes::Which;
use crate::nodes::LEAD;
use crate::window::{Inner, Target};

/// The words of a target's lock: the home's first, and the owner's bits.
pub(crate) type Words<'w, F> = <AnyLock as LockAlgorithm>::Words<'w, F>;

/// The rank that has the room of a [global](crate::LockAllDesign::Global) lock.
pub(crate) const ROOM: u32 = 0;

/// Where a window keeps the lock of one target, for one owner, whose node is looked up when it is needed or known already.
pub(crate) struct Home<'w, F: Fabric, N = Sought> {
    pub(crate) inner: &'w Inner<F>,
    pub(crate) target: &'w Target<F>,
    pub(crate) which: Which,
    pub(crate) owner: u64,
    pub(crate) node: N,
}

/// How a home comes to its owner's node.
pub(crate) trait Node<'w, F: Fabric>: Copy + Send + Sync {
    /// Whether the owner is known to have slot 0.
    const LEADS: bool;

    /// A word of it, if it is known.
    fn word(&self, index: usize) -> Option<F::Word<'w>>;
}

/// Word by word.
#[derive(Clone, Copy)]
pub(crate) struct Sought;

/// All of slot 0's at once: a lock looks at them so often that to look them up one by one takes a fifth of it.
#[derive(Clone, Copy)]
pub(crate) struct Found<W>([W; AnyLock::NODE_WORDS]);

impl<'w, F: Fabric> Node<'w, F> for Sought {
    const LEADS: bool = false;

    #[inline]
    fn word(&self, _index: usize) -> Option<F::Word<'w>> {
        None
    }
}

impl<'w, F: Fabric> Node<'w, F> for Found<F::Word<'w>> {
    const LEADS: bool = true;

    #[inline]
    fn word(&self, index: usize) -> Option<F::Word<'w>> {
        self.0.get(index).copied()
    }
}

impl<F: Fabric, N: Copy> Clone for Home<'_, F, N> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<F: Fabric, N: Copy> Copy for Home<'_, F, N> {}

impl<'w, F: Fabric> Home<'w, F> {
    /// For an owner who has slot 0.
    #[inline(always)]
    pub(crate) fn of_lead(self) -> Result<Home<'w, F, Found<F::Word<'w>>>, Fault> {
        let Self { inner, target, which, owner, node: Sought } = self;
        let node = Found(inner.fabric().words_in(&inner.own_locks, inner.nodes.node(LEAD, 0))?);
        Ok(Home { inner, target, which, owner, node })
    }
}

impl<'w, F: Fabric, N: Node<'w, F>> Home<'w, F, N> {
    /// The hidden region of a rank of the fabric.
    #[inline]
    fn hidden(&self, rank: Rank) -> Result<&'w F::Segment, Fault> {
        if rank == self.inner.fabric().rank() {
            return Ok(&self.inner.own_locks);
        }
        let target = self.inner.world.rank_of(rank).ok_or(Fault::of(FaultKind::NoSuchRegion, rank))?;
        Ok(&self.inner.target(target)?.locks)
    }

    /// The owner's slot.
    #[inline(always)] // as what asks
    fn slot(&self) -> u16 {
        if N::LEADS { LEAD } else { LockContext::owner(self).slot }
    }

    /// The words of an acquire that was begun.
    pub(crate) fn words(&self) -> Result<Words<'w, F>, Fault> {
        Ok((self.home(0)?, self.owner))
    }
}

impl<'w, F: Fabric, N: Node<'w, F>> LockContext<'w, F> for Home<'w, F, N> {
    #[inline(always)] // a call is a tenth of an uncontended lock
    fn home(&self, index: usize) -> Result<F::Word<'w>, Fault> {
        let Self { inner, target, which, .. } = *self;
        match which.is_part() {
            true => inner.fabric().word_in(&target.locks, inner.homes.word(index)),
            false if which.is_all() => self.lock_all_word(),
            false => inner.fabric().word_in(&target.data, inner.table.word(which, index as u64)),
        }
    }

    fn per_rank_word(&self, rank: Rank) -> Result<F::Word<'w>, Fault> {
        if !self.which.is_part() {
            return Err(Fault::of(FaultKind::Unsupported, rank)); // tables have none
        }
        self.inner.fabric().word_in(self.hidden(rank)?, self.inner.homes.spread(self.target.rank))
    }

    fn host_word(&self, rank: Rank, index: usize) -> Result<F::Word<'w>, Fault> {
        if !self.which.is_part() {
            return Err(Fault::of(FaultKind::Unsupported, rank)); // tables have none
        }
        self.inner.fabric().same_host_word(self.hidden(rank)?, self.inner.homes.near(self.target.rank, index))
    }

    fn cohort_home(&self) -> Option<Rank> {
        let fabric = self.inner.fabric();
        self.inner.neighbours.iter().copied().find(|rank| fabric.liveness(*rank) == Liveness::Alive)
    }

    fn host_of(&self, rank: Rank) -> u32 {
        self.inner.fabric().host_of(rank)
    }

    #[inline]
    fn node_of(&self, rank: Rank, slot: u16, index: usize) -> Result<F::Word<'w>, Fault> {
        if slot >= self.slots() {
            return Err(Fault::of(FaultKind::OutOfRange, rank));
        }
        self.inner.fabric().word_in(self.hidden(rank)?, self.inner.nodes.node(slot, index))
    }

    #[inline]
    fn node(&self, index: usize) -> Result<F::Word<'w>, Fault> {
        if let Some(word) = self.node.word(index) {
            return Ok(word);
        }
        // Which was taken from those that there are.
        self.inner.fabric().word_in(&self.inner.own_locks, self.inner.nodes.node(self.slot(), index))
    }

    #[inline]
    fn has_node(&self) -> bool {
        N::LEADS || self.owner().slot < self.slots()
    }

    #[inline]
    fn slots(&self) -> u16 {
        self.inner.nodes.slots
    }

    #[inline]
    fn owners(&self) -> u64 {
        match self.inner.nodes.counted {
            0 => u64::MAX, // nobody is
            counted => u64::from(self.inner.world.size()) * u64::from(counted),
        }
    }

    #[inline]
    fn is_counted(&self) -> bool {
        self.owner().slot < self.inner.nodes.counted
    }

    fn home_rank(&self) -> Option<Rank> {
        Some(self.target.fabric_rank())
    }

    #[inline]
    fn request_slots(&self) -> u16 {
        crate::served::lines(self.inner.world.size())
    }

    #[inline]
    fn request_slot_of(&self, rank: Rank, line: u16) -> Result<F::Word<'w>, Fault> {
        let of = self.inner.world.rank_of(rank).ok_or(Fault::of(FaultKind::NoSuchRegion, rank))?;
        self.inner.fabric().word_in(&self.target.locks, self.inner.homes.line(of, line))
    }

    #[inline]
    fn take_request_slot(&self) -> Option<u16> {
        self.target.lines_in_use.take(self.request_slots())
    }

    #[inline]
    fn release_request_slot(&self, slot: u16) {
        self.target.lines_in_use.give_back(slot);
    }

    fn participant_count(&self, rank: Rank) -> Result<Option<F::Word<'w>>, Fault> {
        self.inner.fabric().word_in(self.hidden(rank)?, self.inner.nodes.tally).map(Some)
    }

    fn lock_all_word(&self) -> Result<F::Word<'w>, Fault> {
        self.inner.fabric().word_in(&self.inner.target(ROOM)?.locks, self.inner.homes.room())
    }

    fn is_lock_all(&self) -> bool {
        self.which.is_all()
    }

    fn is_inside(&self) -> bool {
        self.inner.nodes.is_inside()
    }

    fn mark_inside(&self, inside: bool) {
        self.inner.nodes.mark_inside(self.owner().slot, inside);
    }

    fn backoff_cap(&self) -> BackoffCap {
        // Where an attempt is an instruction, whoever has the core goes on while others pause: that is best.
        if self.inner.completes_at_post {
            BackoffCap::ALL
        } else {
            BackoffCap(self.inner.nodes.reach.load(Ordering::Relaxed))
        }
    }

    fn keep_backoff_cap(&self, BackoffCap(reach): BackoffCap) {
        self.inner.nodes.reach.store(reach, Ordering::Relaxed);
    }

    #[inline]
    fn bypasses(&self) -> u8 {
        self.inner.nodes.passes(self.slot())
    }

    #[inline]
    fn keep_bypasses(&self, bypasses: u8) {
        self.inner.nodes.keep_passes(self.slot(), bypasses);
    }

    fn announce_without_slot(&self, announced: bool) -> Result<(), Fault> {
        self.inner.count_without_slot(self.lock(), announced)
    }

    fn without_slot(&self) -> Option<WithoutSlot> {
        Some(self.inner.without_slot(self.lock()))
    }

    #[inline]
    fn lock(&self) -> u64 {
        self.which.number() << 24 | u64::from(self.target.rank)
    }

    #[inline]
    fn owner(&self) -> Owner {
        Owner::from_bits(self.owner)
    }
}
