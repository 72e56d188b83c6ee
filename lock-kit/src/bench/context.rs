//! The words of the lock of a throughput run: at rank 0, and behind them a node for each rank in
//! that rank's memory.

use std::sync::atomic::{AtomicU8, Ordering};

use onesided_fabric::{Fabric, Segment};
use onesided_lock_algos::{Global, LockAlgorithm, LockContext, Owner, TestAndSet};
use onesided_remote_memory::{At, Fault, FaultKind, Rank, RegionId};

/// The words in the memory of every rank: those of a home, those of a node, one that is never
/// written, to pause at, the per-rank word; and on a cache line of their own the host words.
pub(super) const fn words<A: LockAlgorithm>() -> usize {
    near_at((A::HOME_WORDS, A::NODE_WORDS)) + A::HOST_WORDS
}

const fn near_at((home, node): (usize, usize)) -> usize {
    (home + node + 2).next_multiple_of(8)
}

/// The lowest rank of this one's host.
pub(super) fn leader<F: Fabric>(fabric: &F) -> Rank {
    let here = |rank: &Rank| fabric.host_of(*rank) == fabric.host_of(fabric.rank());
    (0..fabric.size()).map(Rank).find(here).unwrap_or(fabric.rank())
}

/// How the ranks' memory is accessed.
#[derive(Debug)]
pub(super) enum Layout<'m, F: Fabric> {
    /// Every rank's segment, by rank.
    Opened(&'m [F::Segment]),
    /// The memory that every rank of a simulation has.
    World,
}

impl<F: Fabric> Clone for Layout<'_, F> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<F: Fabric> Copy for Layout<'_, F> {}

/// The [`LockContext`] of one acquire.
#[derive(Debug)]
pub(super) struct Spot<'m, F: Fabric> {
    pub(super) fabric: &'m F,
    pub(super) layout: Layout<'m, F>,
    /// The memory of the lowest rank of this host, if the lock has host words.
    pub(super) leader: Option<&'m F::Segment>,
    /// Words of the home, and of a node.
    pub(super) words: (usize, usize),
    pub(super) owner: Owner,
    /// See [`LockContext::bypasses`].
    pub(super) passes: &'m AtomicU8,
}

impl<F: Fabric> Clone for Spot<'_, F> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<F: Fabric> Copy for Spot<'_, F> {}

impl<'m, F: Fabric> Spot<'m, F> {
    fn word(&self, rank: Rank, index: usize) -> Result<F::Word<'m>, Fault> {
        let offset = 8 * index as u64;
        match self.layout {
            Layout::Opened(segments) => {
                let segment = segments.get(rank.index()).ok_or(Fault::of(FaultKind::NoSuchRank, rank))?;
                self.fabric.word_in(segment, offset)
            }
            Layout::World => self.fabric.word(At { rank, region: RegionId(0), offset }),
        }
    }

    /// A word that is never written, to pause at.
    pub(super) fn quiet(&self) -> Result<F::Word<'m>, Fault> {
        self.word(self.fabric.rank(), self.words.0 + self.words.1)
    }
}

impl<'m, F: Fabric> LockContext<'m, F> for Spot<'m, F> {
    fn home(&self, index: usize) -> Result<F::Word<'m>, Fault> {
        self.word(Rank(0), index)
    }

    fn node_of(&self, rank: Rank, slot: u16, index: usize) -> Result<F::Word<'m>, Fault> {
        if slot >= self.slots() {
            return Err(Fault::of(FaultKind::OutOfRange, rank));
        }
        self.word(rank, self.words.0 + index)
    }

    fn home_rank(&self) -> Rank {
        Rank(0)
    }

    fn slots(&self) -> u16 {
        u16::from(self.words.1 > 0)
    }

    fn owners(&self) -> u64 {
        u64::from(self.fabric.size())
    }

    fn per_rank_word(&self, rank: Rank) -> Result<F::Word<'m>, Fault> {
        self.word(rank, self.words.0 + self.words.1 + 1)
    }

    fn host_word(&self, rank: Rank, index: usize) -> Result<F::Word<'m>, Fault> {
        let leader =
            self.leader.filter(|leader| leader.rank() == rank).ok_or(Fault::of(FaultKind::Unsupported, rank))?;
        self.fabric.same_host_word(leader, 8 * (near_at(self.words) + index) as u64)
    }

    fn cohort_home(&self) -> Option<Rank> {
        self.leader.map(Segment::rank)
    }

    fn host_of(&self, rank: Rank) -> u32 {
        self.fabric.host_of(rank)
    }

    /// The last words of the home.
    fn lock_all_word(&self, index: usize) -> Result<F::Word<'m>, Fault> {
        let first = self.words.0.checked_sub(Global::<TestAndSet>::LOCK_ALL_WORDS);
        self.word(Rank(0), first.ok_or(Fault::new(FaultKind::Unsupported))? + index)
    }

    /// There is one target.
    fn is_lock_all(&self) -> bool {
        true
    }

    fn bypasses(&self) -> u8 {
        self.passes.load(Ordering::Relaxed)
    }

    fn keep_bypasses(&self, bypasses: u8) {
        self.passes.store(bypasses, Ordering::Relaxed);
    }

    fn lock(&self) -> u64 {
        0
    }

    fn owner(&self) -> Owner {
        self.owner
    }
}
