//! A throughput run of threads over shared memory, in real time.

use std::cell::RefCell;
use std::hint::spin_loop;
use std::pin::pin;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};
use std::task::{Context, Poll, Waker};
use std::time::{Duration, Instant};

use onesided_fabric::{Any, Drive, Error, Fabric, Segment, SegmentKey, World, threads, wait_timeout};
use onesided_lock_algos::LockAlgorithm;
use onesided_remote_memory::{Fault, FaultKind};

use super::context::{LockMemory, Site, leader, words};
use super::throughput::{Beside, Common, Origin, Outcome, ThroughputRun};
use super::{Counted, Histogram, Operations};

/// The result of one rank.
struct RankResult {
    count: u64,
    lasted: Duration,
    waits: Histogram,
    bypasses: Histogram,
    operations: Operations,
}

impl<A: LockAlgorithm> ThroughputRun<'_, A> {
    /// Runs twice, each origin a thread of this process, and the lock at the first one's memory:
    /// once to count, once with every wait timed, because reading the clock costs more than some
    /// locks. Uses the fabric that `ONESIDED_FABRIC` names, shared memory if it is not set. Assumes
    /// an otherwise idle machine.
    ///
    /// # Errors
    /// Those of the fabric, and those of the lock: if several ranks fail, that of the first one.
    /// The others then cancel their acquires. `TimedOut` if an acquire or a release does not end within
    /// 3 s more than the run takes. (A lock that spins without waiting ends nothing.)
    ///
    /// # Panics
    /// If a rank panics.
    pub fn threads(&self) -> Result<Outcome, Error> {
        let acquired = AtomicU64::new(0);
        let (failed, first) = (AtomicBool::new(false), Mutex::new(None));
        let over = [AtomicBool::new(false), AtomicBool::new(false)];
        let results = threads(self.origins, |world| {
            let result = self.origin(&world, &acquired, &failed, &over);
            // Before this rank leaves, which makes others fail.
            let its_own = |_: &Error| !failed.swap(true, Ordering::Relaxed);
            let note = |error| *first.lock().unwrap_or_else(PoisonError::into_inner) = Some(error);
            result.map_err(|error| its_own(&error).then(|| note(error))).ok()
        })?;
        if let Some(error) = first.into_inner().unwrap_or_else(PoisonError::into_inner) {
            return Err(error);
        }
        let results: Vec<RankResult> = results.into_iter().flatten().collect();
        let mut outcome = Outcome {
            counts: results.iter().map(|result| result.count).collect(),
            lasted: results.iter().map(|result| result.lasted).max().unwrap_or_default(),
            waits: Histogram::default(),
            worst_p99: results
                .iter()
                .map(|result| result.waits.quantile(0.99).unwrap_or(self.long.as_nanos() as u64))
                .max()
                .unwrap_or_default(),
            bypasses: Histogram::default(),
            operations: Operations::default(),
            longest_gap: Duration::ZERO,
            events: 0,
            trace: 0,
        };
        for result in &results {
            outcome.waits.merge(&result.waits);
            outcome.bypasses.merge(&result.bypasses);
            outcome.operations = outcome.operations + result.operations;
        }
        Ok(outcome)
    }

    /// Waits for an acquire and its release; `TimedOut` if the lock is stuck.
    fn ended<D: Drive>(&self, drive: &D, once: impl Future<Output = Result<(), Fault>>) -> Result<(), Fault> {
        let mut once = pin!(once);
        match once.as_mut().poll(&mut Context::from_waker(Waker::noop())) {
            Poll::Ready(ended) => ended,
            Poll::Pending => wait_timeout(drive, &mut once, self.long.saturating_add(STUCK))
                .unwrap_or(Err(Fault::new(FaultKind::TimedOut))),
        }
    }

    fn origin(
        &self,
        world: &World<Any>,
        acquired: &AtomicU64,
        failed: &AtomicBool,
        over: &[AtomicBool; 2],
    ) -> Result<RankResult, Error> {
        let fabric = world.fabric();
        let own = fabric.allocate(8 * words::<A>().next_multiple_of(16) as u64)?;
        let keys = world.all_gather(&own.key().to_bytes()).wait()?;
        let open = |key: &Vec<u8>| {
            let key = SegmentKey::from_bytes(key).ok_or(Error::operation("open")(Fault::new(FaultKind::Protocol)))?;
            fabric.open(&key)
        };
        let segments = keys.iter().map(open).collect::<Result<Vec<_>, _>>()?;
        let leader = segments[leader(fabric).index()].clone();
        let place = &LockMemory { segments: Some(segments), leader: Some(leader) };
        let referee = |flag: &AtomicBool| {
            std::thread::sleep(self.long);
            flag.store(true, Ordering::Relaxed);
        };
        let mut count = 0;
        let counted = Counted::new(fabric.clone());
        world.barrier().wait()?;
        let common = &Common { run: self, acquired, failed: Some(failed) };
        let timed =
            Timed { common, clock: clock_takes(&counted), waits: RefCell::default(), bypasses: RefCell::default() };
        let started = Instant::now();
        let mut lasted = Duration::ZERO;
        let rounds = std::thread::scope(|scope| {
            if world.rank() == 0 {
                scope.spawn(|| referee(&over[0]));
            }
            let untimed = Untimed(common);
            let mut origin = Origin::new(Site::new(fabric.clone(), place), &untimed);
            while !over[0].load(Ordering::Relaxed) && !failed.load(Ordering::Relaxed) {
                self.ended(fabric, origin.once())?;
                count += 1;
            }
            lasted = started.elapsed();
            Ok::<_, Fault>(origin.site.generation)
        });
        let generation = rounds.map_err(Error::operation(A::NAME))?;
        world.barrier().wait()?;
        let ended = std::thread::scope(|scope| {
            if world.rank() == 0 {
                scope.spawn(|| referee(&over[1]));
            }
            let mut origin = Origin::new(Site::new(counted.clone(), place), &timed);
            origin.site.generation = generation; // the nodes are the same
            while !over[1].load(Ordering::Relaxed) && !failed.load(Ordering::Relaxed) {
                self.ended(&counted, origin.once())?;
            }
            Ok::<_, Fault>(())
        });
        ended.map_err(Error::operation(A::NAME))?;
        world.barrier().wait()?; // no rank accesses a segment that is gone
        let (waits, bypasses) = (timed.waits.into_inner(), timed.bypasses.into_inner());
        Ok(RankResult { count, lasted, waits, bypasses, operations: counted.operations() })
    }
}

/// No acquire takes so long after the end of the run, in which the others stop.
const STUCK: Duration = Duration::from_secs(3);

/// The median time that reading the clock takes, in nanoseconds.
fn clock_takes(fabric: &impl Fabric) -> u64 {
    let mut all = Histogram::default();
    for _ in 0..1000 {
        let begin = fabric.now();
        all.add(fabric.now() - begin);
    }
    all.quantile(0.5).unwrap_or_default()
}

/// Lets real time pass, busy.
fn spin(long: Duration) {
    let begin = Instant::now();
    while begin.elapsed() < long {
        spin_loop();
    }
}

/// An origin that only counts.
struct Untimed<'m, A>(&'m Common<'m, A>);

impl<F: Fabric, A: LockAlgorithm> Beside<F, A> for Untimed<'_, A> {
    const TIMES: bool = false;

    fn common(&self) -> &Common<'_, A> {
        self.0
    }

    fn acquired(&self, _: &Site<'_, F, A>, _waited: u64, _others: u64) {}

    async fn spend(&self, _: &Site<'_, F, A>, long: Duration) -> Result<(), Fault> {
        spin(long);
        Ok(())
    }
}

/// An origin whose waits are timed.
struct Timed<'m, A> {
    common: &'m Common<'m, A>,
    /// The time that reading the clock takes, in nanoseconds.
    clock: u64,
    waits: RefCell<Histogram>,
    bypasses: RefCell<Histogram>,
}

impl<F: Fabric, A: LockAlgorithm> Beside<F, A> for Timed<'_, A> {
    const TIMES: bool = true;

    fn common(&self) -> &Common<'_, A> {
        self.common
    }

    fn acquired(&self, _: &Site<'_, F, A>, waited: u64, others: u64) {
        self.waits.borrow_mut().add(waited.saturating_sub(self.clock));
        self.bypasses.borrow_mut().add(others);
    }

    async fn spend(&self, _: &Site<'_, F, A>, long: Duration) -> Result<(), Fault> {
        spin(long);
        Ok(())
    }
}
