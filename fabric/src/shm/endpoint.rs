//! The endpoint of the shared-memory fabric.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex, OnceLock, Weak};

use onesided_job::Job;
use onesided_remote_memory::{Fault, FaultKind, Rank, RegionId};

use crate::shm::arena::{Arena, BLOCK, Owner};
use crate::shm::drive::DoorbellDriver;
use crate::shm::region::USER_MEMORY;
use crate::shm::serving::Service;
use crate::shm::transport::Lanes;
use crate::shm::user_region::{Between, UserRegion};
use crate::shm::{JobSegment, ShmSegment};
use crate::util::once_table::OnceTable;
use crate::waiting::oversubscription::Oversubscription;
use crate::waiting::tasks::Tasks;
use crate::{Error, WORLD_BYTES};

/// A rank's endpoint on shared memory. All clones are the same rank; dropping the last one leaves
/// the job.
#[derive(Clone, Debug)]
pub struct Shm(pub(super) Arc<Inner>);

#[derive(Debug)]
pub(super) struct Inner {
    pub(super) job: Job,
    pub(super) oversubscription: Oversubscription,
    next_region: AtomicU32,
    /// Regions resolved by [`At`], kept until the end: words borrow from them.
    pub(super) reached: Box<[OnceTable<ShmSegment>]>,
    /// The same for the blocks of each rank's arena, by slot.
    pub(super) pieces: Box<[OnceTable<ShmSegment>]>,
    /// This rank's arena, once it has allocated, and the opened ones of others.
    pub(super) arena: Mutex<Option<Arc<Owner>>>,
    pub(super) arenas: Box<[OnceLock<Arc<Arena>>]>,
    pub(super) worlds: Box<[ShmSegment]>,
    /// The ends of its lanes, while no transport has them.
    pub(super) lanes: Mutex<Option<Lanes>>,
    pub(super) endpoint: Tasks,
    /// This rank's user memory.
    pub(super) service: Arc<Service>,
    /// Opened user memory of peers, shared by all handles of this rank: they use one control line.
    pub(super) opened: Mutex<HashMap<(Rank, RegionId), Weak<UserRegion>>>,
}

impl Shm {
    /// The endpoint of a job's rank.
    ///
    /// # Errors
    /// - [`Error::NoFabric`]: the ranks are on several hosts.
    /// - [`Error::Operation`]: the job segment is invalid.
    pub fn new(job: Job) -> Result<Self, Error> {
        let hosts = job.hosts();
        if hosts > 1 {
            let what = format!("the job's ranks are on {hosts} hosts, and shm joins ranks of one host; use verbs");
            return Err(Error::NoFabric { name: "shm".into(), what });
        }
        let job_segment = Arc::clone(&job.job_segment);
        let ranks = || (0..job_segment.size()).map(Rank);
        let world = |rank| {
            let memory = Arc::clone(job_segment.memory());
            ShmSegment::new(memory, (job_segment.world(rank), WORLD_BYTES), (rank, RegionId(0)), job.rank, None)
        };
        let worlds =
            ranks().map(world).collect::<Result<_, _>>().map_err(Error::operation("map the world segments"))?;
        let shm = Self(Arc::new(Inner {
            oversubscription: Oversubscription::new(),
            next_region: AtomicU32::new(1),
            reached: ranks().map(|_| OnceTable::default()).collect(),
            pieces: ranks().map(|_| OnceTable::default()).collect(),
            arena: Mutex::default(),
            arenas: ranks().map(|_| OnceLock::new()).collect(),
            worlds,
            lanes: Mutex::new(Some(Lanes::default())),
            service: Arc::default(),
            opened: Mutex::default(),
            endpoint: Tasks::new(DoorbellDriver { job_segment, rank: job.rank }),
            job,
        }));
        shm.0.endpoint.is_of(shm.me());
        Ok(shm)
    }

    pub(super) fn job_segment(&self) -> &JobSegment {
        &self.0.job.job_segment
    }

    pub(super) fn shared_job_segment(&self) -> Arc<JobSegment> {
        Arc::clone(&self.0.job.job_segment)
    }

    pub(super) fn me(&self) -> Rank {
        self.0.job.rank
    }

    /// The next region number.
    pub(super) fn next_region(&self) -> RegionId {
        RegionId(self.0.next_region.fetch_add(1, Ordering::Relaxed) & !(USER_MEMORY | BLOCK))
    }

    pub(super) fn between(&self) -> Between {
        let Inner { job, service, .. } = &*self.0;
        Between { job_segment: self.shared_job_segment(), service: Arc::clone(service), me: job.rank }
    }

    /// `NotOwn` for a peer's.
    #[inline]
    pub(super) fn check_own(&self, owner: Rank) -> Result<(), Fault> {
        if owner == self.me() { Ok(()) } else { Err(Fault::of(FaultKind::NotOwn, owner)) }
    }
}

impl Inner {
    pub(super) fn leave(&self) {
        if std::thread::panicking() {
            self.job.job_segment.declare_dead(self.job.rank); // an unwinding rank has not done what the others wait for
        } else {
            self.job.job_segment.leave(self.job.rank);
        }
    }
}

impl Drop for Inner {
    fn drop(&mut self) {
        self.leave();
    }
}

/// Runs `ranks` threads, each with an endpoint of one job, and returns their results, for tests of
/// the layers above; others use [`crate::threads`].
///
/// # Errors
/// [`Error::Join`]: no memory for the job segment, or no threads.
///
/// # Panics
/// If a rank panics. The other ranks see it as dead; the panic resumes after all have ended.
pub fn threads<T: Send>(ranks: u32, run: impl Fn(Shm) -> T + Sync) -> Result<Vec<T>, Error> {
    onesided_job::local::threads(ranks, |job| Ok(run(Shm::new(job)?)))
}
