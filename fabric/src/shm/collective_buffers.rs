//! The collective buffers of a group whose ranks are on this host.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use onesided_job::fork::is_child;
use onesided_remote_memory::{Fault, FaultKind, Rank, debug};

use crate::shm::collective_buffer::{CollectiveBuffer, Contribution, HEAD_WORDS, ROOM, SLOT_WORDS, SLOTS};
use crate::shm::{JobSegment, ShmSegment};
use crate::{Fabric, Segment, SegmentKey};

/// The collective buffers of a group whose ranks are on this host: each rank publishes a short contribution to a
/// collective in its own one, and reads those of the others there.
pub struct CollectiveBuffers {
    job_segment: Arc<JobSegment>,
    me: usize,
    /// By rank of the group.
    all: Box<[ShmSegment]>,
    /// Up to which collective this rank may publish, as far as it knows.
    free: AtomicU64,
}

debug!([] CollectiveBuffers, |this| "collective buffers of {} ranks", this.all.len());

impl CollectiveBuffers {
    /// The most bytes of a contribution.
    pub const ROOM: usize = ROOM;

    /// The most ranks of a group. Each reads the buffers of all others; among more of them messages in the
    /// logarithm of their number take less.
    pub const RANKS: u32 = 32;

    const BYTES: u64 = 8 * (HEAD_WORDS + SLOTS * SLOT_WORDS) as u64;

    /// Memory for this rank's buffer; `None` on other fabrics, among too many ranks, or if there is none.
    pub fn allocate<F: Fabric>(fabric: &F, size: u32) -> Option<F::Segment> {
        let is_short = (2..=Self::RANKS).contains(&size);
        fabric.as_shm().filter(|_| is_short).and_then(|_| fabric.allocate(Self::BYTES).ok())
    }

    /// The buffers by their keys, in the order of the ranks.
    ///
    /// # Errors
    /// As of [`Fabric::open`]; `Protocol` if the own one is not among them.
    pub fn open<F: Fabric>(fabric: &F, own: &F::Segment, keys: &[SegmentKey]) -> Result<Self, Fault> {
        let wrong = Fault::of(FaultKind::Protocol, fabric.rank());
        let me = keys.iter().position(|key| key.rank == own.rank()).ok_or(wrong)?;
        let open = |key: &SegmentKey| {
            let opened =
                if key.rank == own.rank() { own.clone() } else { fabric.open(key).map_err(|error| error.fault())? };
            let segment = opened.as_shm().ok_or(wrong)?;
            segment.words().and_then(CollectiveBuffer::of).map(|_| segment.clone()).ok_or(wrong)
        };
        let all = keys.iter().map(open).collect::<Result<_, _>>()?;
        let job_segment = fabric.as_shm().ok_or(wrong)?.shared_job_segment();
        Ok(Self { job_segment, me, all, free: AtomicU64::new(SLOTS as u64) })
    }

    #[inline]
    fn of(&self, rank: usize) -> CollectiveBuffer<'_> {
        let words = self.all[rank].words();
        words.and_then(CollectiveBuffer::of).unwrap_or_else(|| unreachable!("it was checked when it was opened"))
    }

    fn others(&self) -> impl Iterator<Item = usize> {
        (0..self.all.len()).filter(|rank| *rank != self.me)
    }

    /// Publishes this rank's contribution to a collective, of at most [`ROOM`](Self::ROOM) bytes. `false`: others
    /// may still read what is in its slot.
    #[inline]
    pub fn publish(&self, number: u64, tag: u64, bytes: &[u8]) -> bool {
        if is_child() || number > self.free.load(Ordering::Acquire) && !self.is_free(number) {
            return false;
        }
        self.of(self.me).publish(number, tag, bytes);
        self.wake_others();
        true
    }

    #[inline]
    fn wake_others(&self) {
        self.others().for_each(|rank| self.job_segment.wake(self.rank(rank)));
    }

    /// This rank has reached a phase, 1 or 2, of a collective that it has published a contribution to.
    pub fn reach(&self, number: u64, phase: u64) {
        if !is_child() {
            self.of(self.me).reach(number, phase);
            self.wake_others();
        }
    }

    /// This rank gives up what the others read for a collective that it has published a contribution to.
    pub fn withdraw(&self, number: u64) {
        if !is_child() {
            self.of(self.me).withdraw(number);
        }
    }

    /// Whether a rank has reached a phase of a collective, 0 at first, and has not withdrawn: what was read of it
    /// before may be anything if it has.
    #[must_use]
    pub fn has_reached(&self, rank: u32, number: u64, phase: u64) -> bool {
        !is_child() && self.of(rank as usize).has_reached(number, phase)
    }

    #[inline]
    fn rank(&self, rank: usize) -> Rank {
        self.all[rank].rank()
    }

    #[cold]
    fn is_free(&self, number: u64) -> bool {
        let free = self.others().map(|rank| self.of(rank).frees()).min().unwrap_or(0);
        // Release: threads that find it so come after what the others have read.
        self.free.fetch_max(free, Ordering::Release);
        number <= free
    }

    /// The contribution of a rank, if it is there.
    #[inline]
    pub fn find(&self, rank: u32, number: u64) -> Option<Contribution<'_>> {
        if is_child() { None } else { self.of(rank as usize).find(number) }
    }

    /// A rank whose contribution to a collective has another tag, and that.
    pub fn find_other(&self, number: u64, is_other: impl Fn(u64) -> bool) -> Option<(Rank, u64)> {
        self.others().find_map(|rank| {
            let found = self.of(rank).find(number).filter(|found| is_other(found.tag))?;
            Some((self.rank(rank), found.tag))
        })
    }

    /// This rank reads no contribution to this collective or to an earlier one any more.
    #[inline]
    pub fn pass(&self, number: u64) {
        if !is_child() {
            self.of(self.me).pass(number);
        }
    }
}
