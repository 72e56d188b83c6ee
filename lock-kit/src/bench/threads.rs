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
use onesided_remote_memory::{Fault, FaultKind, Rank};

use super::context::{LockMemory, Site, leader, words};
use super::throughput::{Beside, Common, Origin, Outcome, ThroughputRun};
use super::{Counted, Histogram};

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
        Ok(results.into_iter().flatten().reduce(Outcome::with).expect("an outcome of each origin"))
    }

    /// Waits for an acquire and its release; `TimedOut` if the lock is stuck.
    fn ended<D: Drive>(&self, drive: &D, once: impl Future<Output = Result<(), Fault>>) -> Result<(), Fault> {
        let mut once = pin!(once);
        match once.as_mut().poll(&mut Context::from_waker(Waker::noop())) {
            Poll::Ready(ended) => ended,
            Poll::Pending => wait_timeout(drive, &mut once, self.lasting.saturating_add(STUCK))
                .unwrap_or(Err(Fault::new(FaultKind::TimedOut))),
        }
    }

    fn origin(
        &self,
        world: &World<Any>,
        acquired: &AtomicU64,
        failed: &AtomicBool,
        over: &[AtomicBool; 2],
    ) -> Result<Outcome, Error> {
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
        let counted = Counted::new(fabric.clone());
        let common = &Common { run: self, acquired, failed: Some(failed) };
        let untimed = Thread::<_, false>::new(common, 0);
        let timed = Thread::<_, true>::new(common, clock_takes(&counted));
        world.barrier().wait()?;
        let mut origin = Origin::new(Site::new(fabric.clone(), place), &untimed);
        let (count, lasted) = self.repeats(&mut origin, &over[0]).map_err(Error::operation(A::NAME))?;
        world.barrier().wait()?;
        let generation = origin.site.generation; // the nodes are the same
        let mut origin = Origin::new(Site::new(counted.clone(), place), &timed);
        origin.site.generation = generation;
        self.repeats(&mut origin, &over[1]).map_err(Error::operation(A::NAME))?;
        world.barrier().wait()?; // no rank accesses a segment that is gone
        let (waits, bypasses) = (timed.waits.into_inner(), timed.bypasses.into_inner());
        Ok(Outcome {
            counts: vec![count],
            lasted,
            worst_p99: waits.quantile(0.99).unwrap_or(self.lasting.as_nanos() as u64),
            waits,
            bypasses,
            operations: counted.operations(),
            longest_gap: Duration::ZERO,
            events: 0,
            trace: 0,
        })
    }

    /// Acquires and releases until the time is over, which the home says. Returns how often, and how
    /// long that took.
    fn repeats<D: Drive, B: Beside<D, A>>(
        &self,
        origin: &mut Origin<'_, D, A, B>,
        over: &AtomicBool,
    ) -> Result<(u64, Duration), Fault> {
        let (fabric, begun, mut count) = (origin.site.fabric.clone(), Instant::now(), 0);
        let failed = origin.beside.common().failed;
        std::thread::scope(|scope| {
            if fabric.rank() == Rank(0) {
                scope.spawn(|| {
                    std::thread::sleep(self.lasting);
                    over.store(true, Ordering::Relaxed);
                });
            }
            while !over.load(Ordering::Relaxed) && !failed.is_some_and(|failed| failed.load(Ordering::Relaxed)) {
                self.ended(&fabric, origin.once())?;
                count += 1;
            }
            Ok((count, begun.elapsed()))
        })
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

/// What the origin of a thread does beside its operations. `TIMES`: its waits are timed.
struct Thread<'m, A, const TIMES: bool> {
    common: &'m Common<'m, A>,
    /// The time that reading the clock takes, in nanoseconds.
    clock: u64,
    waits: RefCell<Histogram>,
    bypasses: RefCell<Histogram>,
}

impl<'m, A, const TIMES: bool> Thread<'m, A, TIMES> {
    fn new(common: &'m Common<'m, A>, clock: u64) -> Self {
        Self { common, clock, waits: RefCell::default(), bypasses: RefCell::default() }
    }
}

impl<F: Fabric, A: LockAlgorithm, const TIMES: bool> Beside<F, A> for Thread<'_, A, TIMES> {
    const TIMES: bool = TIMES;

    fn common(&self) -> &Common<'_, A> {
        self.common
    }

    fn acquired(&self, _: &Site<'_, F, A>, waited: u64, others: u64) {
        self.waits.borrow_mut().add(waited.saturating_sub(self.clock));
        self.bypasses.borrow_mut().add(others);
    }

    /// Real time, busy.
    async fn spend(&self, _: &Site<'_, F, A>, long: Duration) -> Result<(), Fault> {
        let begin = Instant::now();
        while begin.elapsed() < long {
            spin_loop();
        }
        Ok(())
    }
}
