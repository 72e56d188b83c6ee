//! A rank's end of the shared-memory fabric.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex, OnceLock, Weak};
use std::time::Duration;

use crossbeam_utils::CachePadded;
use onesided_job::Job;
use onesided_remote_memory::{Fault, FaultKind, Rank, RegionId};

use crate::crowd::Crowd;
use crate::endpoint::Endpoint;
use crate::full::FullAfter;
use crate::once_table::OnceTable;
use crate::ports::Ports;
use crate::shm::arena::{Arena, Owner, PIECE};
use crate::shm::drive::Seat;
use crate::shm::lent::{Between, Lent};
use crate::shm::region::LENT;
use crate::shm::ring::{Reader, Writer};
use crate::shm::serving::Service;
use crate::shm::{Board, ShmSegment};
use crate::{Error, WORLD_BYTES};

/// A rank's end of the shared-memory fabric. All clones are the same rank; the last one that is
/// dropped leaves the job.
#[derive(Clone, Debug)]
pub struct Shm(pub(super) Arc<Inner>);

#[derive(Debug)]
pub(super) struct Inner {
    pub(super) job: Job,
    pub(super) crowd: Crowd,
    next_region: AtomicU32,
    /// Regions that were reached by [`At`], kept until the end: words are borrowed from them.
    pub(super) reached: Box<[OnceTable<ShmSegment>]>,
    /// The same of the pieces of each rank's arena, by slot.
    pub(super) pieces: Box<[OnceTable<ShmSegment>]>,
    /// This rank's arena, once it has allocated; those of the others that were met.
    pub(super) arena: Mutex<Option<Arc<Owner>>>,
    pub(super) arenas: Box<[OnceLock<Arc<Arena>>]>,
    pub(super) worlds: Box<[ShmSegment]>,
    pub(super) outboxes: Box<[CachePadded<Mutex<Writer>>]>,
    pub(super) inbox: Mutex<Box<[Reader]>>,
    pub(super) ports: Ports,
    pub(super) endpoint: Endpoint<Seat>,
    pub(super) full_after: FullAfter,
    /// What this rank has lent.
    pub(super) service: Arc<Service>,
    /// Peers' lent memory that was opened, once for all who reach it from here: they share one line
    /// to its owner.
    pub(super) opened: Mutex<HashMap<(Rank, RegionId), Weak<Lent>>>,
}

impl Shm {
    /// The endpoint of a job's rank.
    ///
    /// # Errors
    /// [`Error::NoFabric`] if the ranks are on several hosts. [`Error::Operation`] if the board
    /// does not hold what it should. [`Error::Join`] if [`FULL_AFTER`](crate::FULL_AFTER) makes no
    /// sense.
    pub fn new(job: Job) -> Result<Self, Error> {
        let hosts = job.hosts();
        if hosts > 1 {
            let what = format!("the job's ranks are on {hosts} hosts, and shm joins ranks of one host; use verbs");
            return Err(Error::NoFabric { name: "shm".into(), what });
        }
        let board = Arc::clone(&job.board);
        let ranks = || (0..board.size()).map(Rank);
        let world = |rank| {
            let memory = Arc::clone(board.memory());
            ShmSegment::new(memory, (board.world(rank), WORLD_BYTES), (rank, RegionId(0)), None)
        };
        let worlds =
            ranks().map(world).collect::<Result<_, _>>().map_err(Error::operation("map the world segments"))?;
        Ok(Self(Arc::new(Inner {
            crowd: Crowd::new(),
            next_region: AtomicU32::new(1),
            reached: ranks().map(|_| OnceTable::default()).collect(),
            pieces: ranks().map(|_| OnceTable::default()).collect(),
            arena: Mutex::default(),
            arenas: ranks().map(|_| OnceLock::new()).collect(),
            worlds,
            outboxes: ranks().map(|_| CachePadded::default()).collect(),
            inbox: Mutex::new(ranks().map(|_| Reader::default()).collect()),
            ports: Ports::default(),
            service: Arc::default(),
            opened: Mutex::default(),
            endpoint: Endpoint::new(Seat { board, rank: job.rank }),
            full_after: FullAfter::read()?,
            job,
        })))
    }

    /// Sets what [`FULL_AFTER`](crate::FULL_AFTER) says: for tests, which do not wait for a minute.
    #[doc(hidden)]
    pub fn set_full_after(&self, after: Duration) {
        self.0.full_after.set(after);
    }

    pub(super) fn board(&self) -> &Board {
        &self.0.job.board
    }

    pub(super) fn me(&self) -> Rank {
        self.0.job.rank
    }

    /// The next region's number, with a mark.
    pub(super) fn next_region(&self, mark: u32) -> RegionId {
        RegionId(self.0.next_region.fetch_add(1, Ordering::Relaxed) & !(LENT | PIECE) | mark)
    }

    pub(super) fn between(&self) -> Between {
        let Inner { job, service, .. } = &*self.0;
        Between { board: Arc::clone(&job.board), service: Arc::clone(service), me: job.rank }
    }

    /// `NotOwn` for what lies at a peer.
    #[inline]
    pub(super) fn check_own(&self, owner: Rank) -> Result<(), Fault> {
        if owner == self.me() { Ok(()) } else { Err(Fault::of(FaultKind::NotOwn, owner)) }
    }
}

impl Inner {
    pub(super) fn leave(&self) {
        if std::thread::panicking() {
            self.job.board.declare_dead(self.job.rank); // whoever unwinds has not done what the others wait for
        } else {
            self.job.board.leave(self.job.rank);
        }
    }
}

impl Drop for Inner {
    fn drop(&mut self) {
        self.leave();
    }
}

/// Runs `ranks` threads, each with an endpoint of one job, and gives what each returned: for tests
/// of what stands on this fabric; [`crate::threads`] is for everybody else.
///
/// # Errors
/// [`Error::Join`]: no memory for the board, or no threads.
///
/// # Panics
/// If a rank panics: the others see it as dead, and the panic goes on here when all have ended.
pub fn threads<T: Send>(ranks: u32, run: impl Fn(Shm) -> T + Sync) -> Result<Vec<T>, Error> {
    onesided_job::local::threads(ranks, |job| Ok(run(Shm::new(job)?)))
}
