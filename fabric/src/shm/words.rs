//! Words of shared memory: an operation is an instruction.

use std::future::{Ready, ready};
use std::sync::atomic::{AtomicU64, Ordering, fence};

use onesided_remote_memory::{
    At, Chain, Fault, FaultKind, Link, Liveness, Notify, Patience, Rank, RegionId, RemoteMemory,
};

use crate::shm::region::{USER_MEMORY, is_block};
use crate::shm::waits::{ShmPause, ShmWait};
use crate::shm::{Shm, ShmSegment};
use crate::waiting::drive;
use crate::waiting::peer_status::check_rank;
use crate::{Drive, WORDLESS};

/// A word of shared memory, mapped here.
#[derive(Clone, Copy, Debug)]
pub struct ShmWord<'f> {
    pub(super) word: &'f AtomicU64,
    pub(super) owner: WordOwner,
}

/// Whose memory a word is in: a rank, with [`OWN`](Self::OWN) if it is the one that accesses it. Found out
/// when the memory is mapped, because each access to an own word asks.
#[derive(Clone, Copy, Debug)]
pub(super) struct WordOwner(u32);

impl WordOwner {
    const OWN: u32 = 1 << 31;

    pub(super) fn new(rank: Rank, me: Rank) -> Self {
        Self(if rank == me { rank.0 | Self::OWN } else { rank.0 })
    }

    #[inline]
    pub(super) const fn is_own(self) -> bool {
        self.0 & Self::OWN != 0
    }

    /// The same, for memory that is known to be the own.
    #[inline]
    pub(super) const fn own(self) -> Self {
        Self(self.0 | Self::OWN)
    }

    #[inline]
    pub(super) const fn rank(self) -> Rank {
        Rank(self.0 & !Self::OWN)
    }
}

impl<'f> ShmWord<'f> {
    /// The word in memory, if it is this rank's own.
    #[inline]
    pub(crate) fn own(self) -> Result<&'f AtomicU64, Fault> {
        if self.owner.is_own() { Ok(self.word) } else { Err(Fault::of(FaultKind::NotOwn, self.rank())) }
    }

    /// Whose memory it is in.
    #[inline]
    pub(crate) const fn rank(self) -> Rank {
        self.owner.rank()
    }

    /// The result of a read.
    #[inline]
    pub(crate) fn load(self) -> u64 {
        self.word.load(Ordering::Acquire)
    }

    /// A write.
    #[inline]
    pub(crate) fn store(self, value: u64) {
        self.word.store(value, Ordering::Release);
    }

    /// The result of a compare-swap.
    #[inline]
    pub(crate) fn compare_swap(self, expected: u64, new: u64) -> u64 {
        let (Ok(found) | Err(found)) = self.word.compare_exchange(expected, new, Ordering::AcqRel, Ordering::Acquire);
        found
    }

    /// The result of a fetch-add.
    #[inline]
    pub(crate) fn fetch_add(self, add: u64) -> u64 {
        self.word.fetch_add(add, Ordering::AcqRel)
    }
}

impl RemoteMemory for Shm {
    type Word<'f> = ShmWord<'f>;
    type Op = Ready<Result<u64, Fault>>;
    type Wait<'f, P: Fn(u64) -> bool + Unpin + Send + 'f> = ShmWait<'f, P>;
    type Pause<'f> = ShmPause<'f>;

    #[inline]
    fn rank(&self) -> Rank {
        self.me()
    }

    #[inline]
    fn size(&self) -> u32 {
        self.job_segment().size()
    }

    fn word(&self, at: At) -> Result<ShmWord<'_>, Fault> {
        check_rank(self, at.rank)?;
        if at.region == RegionId(0) {
            return self.0.worlds[at.rank.index()].word(at.offset);
        }
        if at.region.0 & USER_MEMORY != 0 {
            self.0.job.exchange.fetch(at.rank, at.region).map_err(|error| error.fault())?;
            return Err(Fault::of(FaultKind::Unsupported, at.rank).with_detail(WORDLESS));
        }
        if is_block(at.region) {
            return self.piece(at.rank, at.region)?.word(at.offset);
        }
        let reach = || {
            let memory = self.0.job.exchange.fetch(at.rank, at.region).map_err(|error| error.fault())?;
            let all = (0, memory.len() as u64);
            ShmSegment::new(memory, all, (at.rank, at.region), self.me(), None)
        };
        self.0.reached[at.rank.index()].get_or_try_init(at.region.0, reach)?.word(at.offset)
    }

    #[inline(always)]
    fn post_link(&self, link: Link<ShmWord<'_>>) -> Self::Op {
        ready(Ok(match link {
            Link::Read { word, .. } => word.load(),
            Link::Write { word, value, notify, .. } => {
                word.store(value);
                if notify == Notify::Yes {
                    self.job_segment().wake(word.rank());
                }
                0
            }
            Link::CompareSwap { word, expected, new, .. } => word.compare_swap(expected, new),
            Link::FetchAdd { word, add, .. } => word.fetch_add(add),
        }))
    }

    fn post<const N: usize>(&self, links: [Link<ShmWord<'_>>; N]) -> Chain<Self::Op, N> {
        Chain::of(links.map(|link| {
            if let Link::Read { .. } = link {
                fence(Ordering::SeqCst); // earlier links' writes may still be in this core's store buffer
            }
            link.waited().then_some(self.post_link(link))
        }))
    }

    #[inline]
    fn load(&self, own: ShmWord<'_>) -> Result<u64, Fault> {
        own.own().map(|own| own.load(Ordering::Acquire))
    }

    #[inline]
    fn store(&self, own: ShmWord<'_>, value: u64) -> Result<(), Fault> {
        own.own().map(|own| own.store(value, Ordering::Release))
    }

    fn wait_until<'f, P>(&'f self, own: ShmWord<'f>, predicate: P, patience: Patience) -> ShmWait<'f, P>
    where
        P: Fn(u64) -> bool + Unpin + Send + 'f,
    {
        ShmWait { shm: self, own, predicate, patience, looks: self.polls().looks }
    }

    #[inline]
    fn pause<'f>(&'f self, word: ShmWord<'f>, nanos: u64) -> ShmPause<'f> {
        ShmPause::new(self, word, nanos)
    }

    fn now(&self) -> u64 {
        drive::now()
    }

    fn liveness(&self, rank: Rank) -> Liveness {
        if rank.0 < self.size() { self.job_segment().liveness(rank) } else { Liveness::Left }
    }

    fn failure(&self, index: u32) -> Option<Rank> {
        self.job_segment().failure(index)
    }

    #[inline]
    fn ends(&self) -> u32 {
        self.job_segment().changes()
    }
}
