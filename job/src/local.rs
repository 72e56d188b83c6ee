//! Jobs inside one process: ranks as threads, and a world of one.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::io;
use std::os::fd::OwnedFd;
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::time::{Duration, Instant};

use crate::lock;
use onesided_remote_memory::{Fault, FaultKind, Rank, RegionId};

use crate::Error;
use crate::segment::{JobSegment, Mapping};
use crate::{Exchange, Job, Process};

/// How often a wait for a value checks for deaths.
const POLL_INTERVAL: Duration = Duration::from_millis(20);

/// A job for each of `size` ranks of this process.
///
/// # Errors
/// [`Error::Join`]: no memory or descriptors for the job segment, or an invalid size.
pub fn jobs(size: u32) -> Result<Vec<Job>, Error> {
    let failed =
        |source: io::Error| Error::Join { what: format!("make a job segment for {size} ranks"), source: Some(source) };
    let job_segment = Arc::new(JobSegment::create(size).map_err(failed)?);
    let place = Arc::new(SharedTables::default());
    (0..size)
        .map(Rank)
        .map(|rank| {
            job_segment.introduce(rank, Process::own());
            job_segment.join(rank).map_err(failed)?;
            let exchange = Arc::new(Local { rank, job_segment: Arc::clone(&job_segment), shared: Arc::clone(&place) });
            Ok(Job { rank, job_segment: Arc::clone(&job_segment), exchange })
        })
        .collect()
}

/// Runs a thread for each of `ranks` ranks, and returns their results by rank.
///
/// # Errors
/// [`Error::Join`]: no memory for the job segment, or no threads. Also the first error of `run`:
/// that rank counts as dead.
///
/// # Panics
/// If a rank panics. The other ranks see it as dead; the panic resumes after all have ended.
pub fn threads<T: Send, E: From<Error> + Send>(
    ranks: u32,
    run: impl Fn(Job) -> Result<T, E> + Sync,
) -> Result<Vec<T>, E> {
    let jobs = jobs(ranks)?;
    let mut results: Vec<Option<Result<T, E>>> = (0..ranks).map(|_| None).collect();
    let run = &run;
    let programs =
        results.iter_mut().map(|result| -> Program<'_> { Box::new(move |job| result.insert(run(job)).is_ok()) });
    let ended = run_each(jobs.into_iter().zip(programs).collect());
    let outcome = |(result, ended): (Option<_>, _)| match (result, ended) {
        (Some(result), Ok(Ok(()))) => result,
        (_, Ok(Err(panic))) => std::panic::resume_unwind(panic),
        (_, Err(error)) => Err(E::from(error)),
        (None, Ok(Ok(()))) => unreachable!("a program that ends has a result"),
    };
    results.into_iter().zip(ended).map(outcome).collect()
}

/// What a rank runs. Returns whether it succeeds.
type Program<'p> = Box<dyn FnOnce(Job) -> bool + Send + 'p>;

/// Runs a thread for each program; returns by rank how it ended, or why there was none. Compiled once, where
/// [`threads`] is for each caller.
fn run_each<'p>(programs: Vec<(Job, Program<'p>)>) -> Vec<Result<std::thread::Result<()>, Error>> {
    std::thread::scope(|scope| {
        let start = |(job, program): (Job, Program<'p>)| {
            let (job_segment, rank) = (Arc::clone(&job.job_segment), job.rank);
            let run = move || {
                let job_segment = Arc::clone(&job.job_segment);
                // A rank without an endpoint cannot leave, and the others must not wait for it.
                if !program(job) {
                    job_segment.declare_dead(rank);
                }
            };
            let thread = std::thread::Builder::new().name(rank.to_string()).spawn_scoped(scope, run);
            thread.map_err(|source| {
                job_segment.declare_dead(rank);
                Error::Join { what: format!("start a thread for {rank}"), source: Some(source) }
            })
        };
        // All threads are started, or their ranks declared dead, before any is joined.
        let threads: Vec<_> = programs.into_iter().map(start).collect();
        threads.into_iter().map(|thread| thread.map(std::thread::ScopedJoinHandle::join)).collect()
    })
}

impl Job {
    /// A world of one: the job of a program that nothing launched.
    ///
    /// # Errors
    /// [`Error::Join`]: no memory or descriptors for the job segment.
    pub fn alone() -> Result<Self, Error> {
        jobs(1)?.pop().ok_or(Error::Join { what: "make a job of one".into(), source: None })
    }
}

/// A rank's exchange with the other ranks of its process.
#[derive(Debug)]
struct Local {
    rank: Rank,
    job_segment: Arc<JobSegment>,
    shared: Arc<SharedTables>,
}

#[derive(Debug, Default)]
struct SharedTables {
    tables: Mutex<Tables>,
    put: Condvar,
}

#[derive(Debug, Default)]
struct Tables {
    values: HashMap<String, Vec<u8>>,
    regions: HashMap<(Rank, RegionId), Arc<Mapping>>,
}

impl Exchange for Local {
    fn put(&self, name: &str, value: &[u8]) -> Result<(), Error> {
        match lock(&self.shared.tables).values.entry(name.into()) {
            Entry::Occupied(_) => {
                return Err(Error::Join { what: format!("the name {name} is taken"), source: None });
            }
            Entry::Vacant(place) => drop(place.insert(value.into())),
        }
        self.shared.put.notify_all();
        Ok(())
    }

    fn get(&self, name: &str, patience: Duration) -> Result<Vec<u8>, Error> {
        let deadline = Instant::now().checked_add(patience);
        let mut tables = lock(&self.shared.tables);
        loop {
            if let Some(value) = tables.values.get(name) {
                return Ok(value.clone());
            }
            let left = deadline.map_or(Duration::MAX, |deadline| deadline.saturating_duration_since(Instant::now()));
            let fault = match self.job_segment.failed_rank() {
                Some(rank) => Some(Fault::of(FaultKind::PeerDied, rank)),
                None => left.is_zero().then(|| Fault::new(FaultKind::TimedOut)),
            };
            if let Some(fault) = fault {
                return Err(Error::Operation { operation: "wait for a value of the job", fault });
            }
            // A death does not notify this wait.
            tables =
                self.shared.put.wait_timeout(tables, left.min(POLL_INTERVAL)).unwrap_or_else(PoisonError::into_inner).0;
        }
    }

    fn publish(&self, region: RegionId, memory: &Arc<Mapping>) -> Result<(), Error> {
        lock(&self.shared.tables).regions.insert((self.rank, region), Arc::clone(memory));
        Ok(())
    }

    fn retract(&self, region: RegionId) {
        lock(&self.shared.tables).regions.remove(&(self.rank, region));
    }

    fn fetch(&self, rank: Rank, region: RegionId) -> Result<Arc<Mapping>, Error> {
        lock(&self.shared.tables).regions.get(&(rank, region)).cloned().ok_or_else(|| Error::Open {
            rank,
            what: format!("it has no region {}", region.0),
            fault: Fault::of(FaultKind::NoSuchRegion, rank),
            source: None,
        })
    }

    fn fetch_file(&self, rank: Rank, region: RegionId) -> Result<OwnedFd, Error> {
        let failed = |kind, of, source| {
            let fault = Fault::of(kind, of);
            Error::Open { rank, what: "have its file".into(), fault, source }
        };
        let memory = self.fetch(rank, region)?;
        let file = memory.file().ok_or_else(|| failed(FaultKind::NoSuchRegion, rank, None))?;
        file.try_clone_to_owned().map_err(|source| failed(FaultKind::NoDescriptors, self.rank, Some(source)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_is_given_once() {
        let job = Job::alone().unwrap();
        job.exchange.put("name", &[1]).unwrap();
        assert!(job.exchange.put("name", &[2]).unwrap_err().to_string().contains("taken"));
        assert_eq!(job.exchange.get("name", Duration::ZERO).unwrap(), [1]);
    }

    #[test]
    fn a_death_ends_a_wait_for_a_value() {
        let jobs = jobs(2).unwrap();
        std::thread::scope(|scope| {
            let waits = scope.spawn(|| jobs[0].exchange.get("what never comes", Duration::from_secs(3600)));
            jobs[1].job_segment.declare_dead(Rank(1));
            assert_eq!(waits.join().unwrap().unwrap_err().fault(), Fault::of(FaultKind::PeerDied, Rank(1)));
        });
        let error = Job::alone().unwrap().exchange.get("what never comes", Duration::from_millis(1)).unwrap_err();
        assert_eq!(error.fault().kind(), FaultKind::TimedOut);
    }

    #[test]
    fn too_many_ranks_and_none_are_errors() {
        for ranks in [0, u32::MAX] {
            assert!(matches!(threads::<(), Error>(ranks, |_| Ok(())), Err(Error::Join { .. })), "{ranks}");
        }
    }
}
