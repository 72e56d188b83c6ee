//! Shared by the tests on a real device.
#![allow(clippy::print_stderr)] // reports skipped tests

use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use onesided_fabric::bootstrap::{Job, local};
use onesided_fabric::verbs::devices;
use onesided_fabric::{Drive, Error, Fabric, Segment, SegmentKey, World, block_on};

/// Runs one test at a time: Soft-RoCE drops completions with very many queue pairs.
static DEVICE: Mutex<()> = Mutex::new(());

pub(crate) fn device(test: &str) -> Option<MutexGuard<'static, ()>> {
    let found = devices();
    if matches!(&found, Ok(found) if !found.is_empty()) {
        return Some(DEVICE.lock().unwrap_or_else(PoisonError::into_inner));
    }
    assert!(std::env::var_os("ONESIDED_REQUIRE_VERBS").is_none_or(|must| must != "1"), "no RDMA device: {found:?}");
    eprintln!("skipped: {test}: no RDMA device; scripts/soft-roce has one");
    None
}

/// A barrier of threads, apart from the fabric's. If one of them does not come, because it has
/// panicked, the others panic too.
pub(crate) struct Barrier {
    size: usize,
    come: Mutex<usize>,
    all: Condvar,
}

impl Barrier {
    pub(crate) const fn new(size: usize) -> Self {
        Self { size, come: Mutex::new(0), all: Condvar::new() }
    }

    pub(crate) fn wait(&self) {
        let mut come = self.come.lock().unwrap();
        *come += 1;
        self.all.notify_all();
        let last = come.next_multiple_of(self.size);
        let waited = self.all.wait_timeout_while(come, Duration::from_secs(300), |come| *come < last).unwrap();
        assert!(!waited.1.timed_out(), "a rank has not come to the barrier");
    }
}

/// Runs `body` on `size` ranks, each a thread, and returns their results. A rank that panicked is
/// dead to the others.
pub(crate) fn ranks<F: Fabric, T: Send>(
    size: u32,
    join: impl Fn(Job) -> Result<F, Error> + Sync,
    body: impl Fn(World<F>) -> T + Sync,
) -> Vec<T> {
    ranks_of(local::jobs(size).expect("a board"), join, body)
}

/// The same with jobs of the caller's.
pub(crate) fn ranks_of<F: Fabric, T: Send>(
    jobs: Vec<Job>,
    join: impl Fn(Job) -> Result<F, Error> + Sync,
    body: impl Fn(World<F>) -> T + Sync,
) -> Vec<T> {
    let run = |job: Job| {
        let (rank, job_segment) = (job.rank, job.job_segment.clone());
        let result = catch_unwind(AssertUnwindSafe(|| body(World::new(join(job).expect("an endpoint")))));
        result.unwrap_or_else(|panic| {
            job_segment.declare_dead(rank);
            resume_unwind(panic)
        })
    };
    std::thread::scope(|scope| {
        let threads: Vec<_> = jobs.into_iter().map(|job| scope.spawn(|| run(job))).collect();
        threads.into_iter().map(|thread| thread.join().unwrap_or_else(|panic| resume_unwind(panic))).collect()
    })
}

/// Every rank's segment of `len` bytes, opened here.
pub(crate) fn segments<F: Drive>(world: &World<F>, len: u64) -> Vec<F::Segment> {
    let fabric = world.fabric();
    let own = fabric.allocate(len).expect("memory");
    let keys = block_on(fabric, world.all_gather(&own.key().to_bytes())).expect("keys");
    let mut all: Vec<_> = keys
        .iter()
        .map(|key| fabric.open(&SegmentKey::from_bytes(key).expect("a key")).expect("a peer's segment"))
        .collect();
    all[world.rank() as usize] = own; // the owner's handle keeps it alive
    all
}
