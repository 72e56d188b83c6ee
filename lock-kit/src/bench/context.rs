//! The words of the lock of a throughput run: at rank 0, and a node for each rank in that rank's
//! memory.

use std::marker::PhantomData;
use std::sync::atomic::{AtomicU8, Ordering};

use onesided_fabric::{Fabric, Segment};
use onesided_lock_algos::{Global, InMemory, Kept, LockAlgorithm, LockContext, Owner, Owners, TestAndSet, WordOf};
use onesided_remote_memory::{At, Fault, FaultKind, Rank, RegionId, copied};

/// Where the words lie in the memory of every rank: those of its node, one that is never written,
/// to pause at, the per-rank word; on a cache line of their own the host words; on another one
/// those of the home. The words that every rank writes come first, so that a simulated rank has
/// few.
#[derive(Clone, Copy, Debug)]
struct Words {
    node: u16,
    host: u16,
    home: u16,
}

impl Words {
    const fn of<A: LockAlgorithm>() -> Self {
        let host = (A::NODE_WORDS + 2).next_multiple_of(8);
        let home = (host + A::HOST_WORDS).next_multiple_of(8);
        Self { node: A::NODE_WORDS as u16, host: host as u16, home: home as u16 }
    }
}

/// The words in the memory of every rank.
pub(super) const fn words<A: LockAlgorithm>() -> usize {
    Words::of::<A>().home as usize + A::HOME_WORDS
}

/// The region of the request slots of a served lock: the first one that the home's rank allocates.
const REQUEST_SLOTS: RegionId = RegionId(1);

/// The lowest rank of this one's host.
pub(super) fn leader<F: Fabric>(fabric: &F) -> Rank {
    let here = |rank: &Rank| fabric.host_of(*rank) == fabric.host_of(fabric.rank());
    (0..fabric.size()).map(Rank).find(here).unwrap_or(fabric.rank())
}

/// The memory of a lock's words, as one host sees it.
#[derive(Debug)]
pub(super) struct LockMemory<S> {
    /// Every rank's segment, by rank; `None`: the memory that every rank of a simulation has.
    pub(super) segments: Option<Vec<S>>,
    /// The memory of the lowest rank of this host.
    pub(super) leader: Option<S>,
}

/// What the contexts of an origin's acquires share. There may be very many: small.
#[derive(Debug)]
pub(super) struct Site<'m, F: Fabric, A> {
    pub(super) fabric: F,
    place: &'m LockMemory<F::Segment>,
    /// [`Kept::BackoffCap`] and [`Kept::Bypasses`].
    kept: [AtomicU8; 2],
    /// Of the acquire under way.
    pub(super) generation: u32,
    of: PhantomData<fn() -> A>,
}

impl<'m, F: Fabric, A: LockAlgorithm> Site<'m, F, A> {
    const WORDS: Words = Words::of::<A>();

    pub(super) fn new(fabric: F, place: &'m LockMemory<F::Segment>) -> Self {
        Self { fabric, place, kept: Default::default(), generation: 0, of: PhantomData }
    }

    fn leader(&self) -> Option<&F::Segment> {
        self.place.leader.as_ref().filter(|_| A::HOST_WORDS > 0)
    }

    fn word(&self, rank: Rank, index: usize) -> Result<F::Word<'_>, Fault> {
        let offset = 8 * index as u64;
        match &self.place.segments {
            Some(segments) => {
                let segment = segments.get(rank.index()).ok_or(Fault::of(FaultKind::NoSuchRank, rank))?;
                self.fabric.word_in(segment, offset)
            }
            None => self.fabric.word(At { rank, region: RegionId(0), offset }),
        }
    }

    /// As windows keep it: the cap where an attempt is a round trip.
    fn kept(&self, what: Kept) -> Option<&AtomicU8> {
        let [cap, bypasses] = &self.kept;
        match what {
            Kept::BackoffCap => self.place.segments.is_none().then_some(cap),
            Kept::Bypasses => Some(bypasses),
            Kept::Inside => None,
        }
    }

    /// A word that is never written, to pause at.
    pub(super) fn quiet(&self) -> Result<F::Word<'_>, Fault> {
        self.word(self.fabric.rank(), Self::WORDS.node.into())
    }
}

/// The [`LockContext`] of one acquire. Small: the futures of an acquire have many copies of it.
#[derive(Debug)]
pub(super) struct Spot<'m, F: Fabric, A>(pub(super) &'m Site<'m, F, A>);

copied!([F: Fabric, A] Spot<'_, F, A>);

impl<F: Fabric, A> InMemory for Spot<'_, F, A> {
    type Memory = F;
}

impl<'m, F: Fabric, A: LockAlgorithm> LockContext<'m> for Spot<'m, F, A> {
    fn home(&self, index: usize) -> Result<F::Word<'m>, Fault> {
        self.0.word(Rank(0), usize::from(Site::<F, A>::WORDS.home) + index)
    }

    fn node_of(&self, rank: Rank, slot: u16, index: usize) -> Result<F::Word<'m>, Fault> {
        if slot >= self.owners().slots {
            return Err(Fault::of(FaultKind::OutOfRange, rank));
        }
        self.0.word(rank, index)
    }

    fn home_rank(&self) -> Rank {
        Rank(0)
    }

    fn owners(&self) -> Owners {
        Owners::all_counted(u16::from(Site::<F, A>::WORDS.node > 0), self.0.fabric.size().into())
    }

    fn word(&self, of: WordOf) -> Result<F::Word<'m>, Fault> {
        let unsupported = Fault::new(FaultKind::Unsupported);
        match (of, &self.0.place.segments) {
            (WordOf::Rank(rank), _) => self.0.word(rank, usize::from(Site::<F, A>::WORDS.node) + 1),
            (WordOf::Host(rank, index), _) => {
                let leader = self.0.leader().filter(|leader| leader.rank() == rank).ok_or(unsupported)?;
                self.0.fabric.same_host_word(leader, 8 * (usize::from(Site::<F, A>::WORDS.host) + index) as u64)
            }
            // The last words of the home.
            (WordOf::LockAll(index), _) => {
                let first = A::HOME_WORDS.checked_sub(Global::<TestAndSet>::LOCK_ALL_WORDS);
                self.home(first.ok_or(unsupported)? + index)
            }
            // Only of a simulated home: threads serve no lock.
            (WordOf::Request(rank, 0), None) => {
                self.0.fabric.word(At { rank: Rank(0), region: REQUEST_SLOTS, offset: 8 * u64::from(rank.0) })
            }
            _ => Err(unsupported),
        }
    }

    fn cohort_home(&self) -> Option<Rank> {
        self.0.leader().map(Segment::rank)
    }

    fn host_of(&self, rank: Rank) -> u32 {
        self.0.fabric.host_of(rank)
    }

    /// There is one target.
    fn is_lock_all(&self) -> bool {
        true
    }

    fn kept(&self, what: Kept) -> Option<u8> {
        self.0.kept(what).map(|kept| kept.load(Ordering::Relaxed))
    }

    fn keep(&self, what: Kept, value: u8) {
        if let Some(kept) = self.0.kept(what) {
            kept.store(value, Ordering::Relaxed);
        }
    }

    fn lock(&self) -> u64 {
        0
    }

    fn owner(&self) -> Owner {
        Owner { rank: self.0.fabric.rank(), slot: 0, generation: self.0.generation }
    }
}
