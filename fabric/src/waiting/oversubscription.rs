//! Detects oversubscription: more ranks on a host than cores.

use std::num::NonZero;
use std::sync::atomic::{AtomicU32, Ordering};
use std::thread::available_parallelism;

use onesided_remote_memory::Rank;
use rustix::process::Pid;
use rustix::thread::{CpuSet, sched_getaffinity};

use crate::Core;
use crate::shm::JobSegment;
use crate::waiting::server_threads;

/// Whether the host runs more ranks than it has cores for them. The union of the ranks' core sets
/// counts: a rank pinned to one core alone implies no oversubscription.
#[derive(Debug)]
pub(crate) struct Oversubscription {
    /// This rank's cores.
    cores: CpuSet,
    /// Whether this rank has one core.
    alone: bool,
    /// The CPU quota in cores, if it is less.
    limit: Option<u32>,
    /// The result, or the number of failed attempts.
    state: AtomicU32,
}

const NO: u32 = u32::MAX;
const YES: u32 = NO - 1;
/// The maximum number of attempts while ranks are missing; then the ranks present decide.
const ATTEMPTS: u32 = 100;

impl Oversubscription {
    /// For the calling rank's thread.
    pub(crate) fn new() -> Self {
        let time = available_parallelism().map_or(1, NonZero::get) as u32;
        let cores = sched_getaffinity(None).unwrap_or_else(|_| CpuSet::new());
        Self {
            alone: cores.count() == 1,
            cores,
            limit: (time < cores.count()).then_some(time),
            state: AtomicU32::new(0),
        }
    }

    /// Whether the host is oversubscribed.
    #[inline]
    pub(crate) fn is(&self, job_segment: &JobSegment, me: Rank) -> bool {
        match self.state.load(Ordering::Relaxed) {
            NO => false,
            YES => true,
            attempts => self.detect(job_segment, me, attempts),
        }
    }

    #[cold]
    fn detect(&self, job_segment: &JobSegment, me: Rank, attempts: u32) -> bool {
        let here =
            (0..job_segment.size()).map(Rank).filter(|rank| job_segment.host_of(*rank) == job_segment.host_of(me));
        let (mut cores, mut ranks, mut known) = (self.cores, 0, 0);
        for rank in here {
            ranks += 1;
            let Some(process) = job_segment.process(rank) else { continue };
            known += 1;
            let theirs = Pid::from_raw(process.pid as i32).and_then(|pid| sched_getaffinity(Some(pid)).ok());
            (0..CpuSet::MAX_CPU)
                .filter(|core| theirs.is_some_and(|set| set.is_set(*core)))
                .for_each(|core| cores.set(core));
        }
        let oversubscribed = self.limit.unwrap_or(u32::MAX).min(cores.count()) < ranks;
        let state = if known < ranks && attempts < ATTEMPTS {
            attempts + 1
        } else if oversubscribed {
            YES
        } else {
            NO
        };
        self.state.store(state, Ordering::Relaxed);
        oversubscribed
    }

    /// The core of this rank's threads: one may be shared with a server thread.
    #[inline]
    pub(crate) fn core(&self, job_segment: &JobSegment, me: Rank) -> Core {
        match self.is(job_segment, me) {
            true => Core::Oversubscribed,
            false if self.is_shared() => Core::Shared,
            false => Core::Own,
        }
    }

    fn is_shared(&self) -> bool {
        self.alone && server_threads::has_server_threads()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pinned_rank_alone_is_not_oversubscribed() {
        let all = sched_getaffinity(None).unwrap();
        let cores: Vec<_> = (0..CpuSet::MAX_CPU).filter(|core| all.is_set(*core)).collect();
        let oversubscription_of = |ranks: u32| {
            let job_segment = JobSegment::create(ranks).unwrap();
            (0..ranks).for_each(|rank| job_segment.introduce(Rank(rank), onesided_job::Process::own()));
            Oversubscription::new().is(&job_segment, Rank(0))
        };
        std::thread::spawn(move || {
            let mut one = CpuSet::new();
            one.set(cores[0]);
            rustix::thread::sched_setaffinity(None, &one).unwrap();
            assert!(!oversubscription_of(cores.len() as u32) && oversubscription_of(cores.len() as u32 + 1));
            let _serves = server_threads::RunningThread::begin();
            assert!(Oversubscription::new().is_shared());
        })
        .join()
        .unwrap();
        let _serves = server_threads::RunningThread::begin();
        assert_eq!(Oversubscription::new().is_shared(), all.count() == 1);
        let time = available_parallelism().unwrap().get() as u32;
        assert!(!oversubscription_of(time) && oversubscription_of(time + 1));
    }
}
