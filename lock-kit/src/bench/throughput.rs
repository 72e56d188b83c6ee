//! Many origins at one lock.

use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU64, Ordering};
use std::time::Duration;

use onesided_fabric::Fabric;
use onesided_lock_algos::{Intent, LockAlgorithm, LockUse, Mode, Owner};
use onesided_remote_memory::Fault;
use onesided_sim::Network;

use super::context::{Layout, Spot};
use super::{Histogram, Operations, Rng, jain, share};

/// A throughput run: origins that acquire and release one lock repeatedly, for a while. Not for a
/// [served](LockAlgorithm::SERVED) lock: there is no server.
#[derive(Clone, Debug)]
#[must_use = "a throughput run does nothing until it is run"]
pub struct ThroughputRun<'a, A> {
    pub(super) lock: &'a A,
    pub(super) origins: u32,
    pub(super) long: Duration,
    pub(super) readers: u32,
    pub(super) section: Duration,
    pub(super) idle: Duration,
    pub(super) seed: u64,
    pub(super) network: Network,
    pub(super) per_host: u32,
}

impl<'a, A: LockAlgorithm> ThroughputRun<'a, A> {
    /// Two origins, 100 ms, all exclusive, an empty section, no idle time.
    pub fn of(lock: &'a A) -> Self {
        Self {
            lock,
            origins: 2,
            long: Duration::from_millis(100),
            readers: 0,
            section: Duration::ZERO,
            idle: Duration::ZERO,
            seed: 1,
            network: Network { jitter: Duration::from_nanos(200), ..Network::default() },
            per_host: u32::MAX,
        }
    }

    /// The number of origins, at least one.
    pub fn origins(self, origins: u32) -> Self {
        Self { origins: origins.max(1), ..self }
    }

    /// The duration: real time of threads, virtual time of a simulation. With zero there are no
    /// acquisitions.
    pub const fn lasting(mut self, long: Duration) -> Self {
        self.long = long;
        self
    }

    /// The percentage of shared acquires, at most 100.
    pub const fn readers(mut self, of_a_hundred: u32) -> Self {
        self.readers = if of_a_hundred > 100 { 100 } else { of_a_hundred };
        self
    }

    /// How long the lock is held each time.
    pub const fn section(mut self, long: Duration) -> Self {
        self.section = long;
        self
    }

    /// How long an origin is idle after a release before its next acquire.
    pub const fn idle(mut self, long: Duration) -> Self {
        self.idle = long;
        self
    }

    /// The seed of the random choice of readers, and of a simulation.
    pub const fn seed(mut self, seed: u64) -> Self {
        self.seed = seed;
        self
    }

    /// The network of a simulation. By default 1 us one way and up to 0.2 us jitter: without
    /// jitter, the same rank would lose every race.
    pub fn network(self, network: Network) -> Self {
        Self { network, ..self }
    }

    /// How many consecutive ranks of a simulation share a host, the lock's home and the first
    /// origins the first one; all by default. Irrelevant to a lock without [host
    /// words](LockAlgorithm::HOST_WORDS).
    pub const fn per_host(mut self, ranks: u32) -> Self {
        self.per_host = ranks;
        self
    }
}

/// The outcome of a throughput run.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Outcome {
    /// The acquisitions of each origin.
    pub counts: Vec<u64>,
    /// The elapsed time.
    pub lasted: Duration,
    /// The waits of all origins, in nanoseconds, without the time that reading the clock takes. An
    /// origin that acquires often counts often, so a lock that starves some origins may look good
    /// here, but not in [`worst_p99`](Self::worst_p99).
    pub waits: Histogram,
    /// The largest of the origins' 99th percentiles of their own waits, in nanoseconds. An origin
    /// that never acquired waited all the time.
    pub worst_p99: u64,
    /// How often other origins acquired during each wait.
    pub bypasses: Histogram,
    /// Operations of all ranks for the timed waits.
    pub operations: Operations,
    /// A hash of the trace of a simulation, equal for equal runs. 0 for threads.
    pub trace: u64,
}

impl Outcome {
    /// The acquisitions of all origins.
    #[must_use]
    pub fn acquisitions(&self) -> u64 {
        self.counts.iter().sum()
    }

    /// Acquisitions per second; 0 if the run took no time.
    #[must_use]
    pub fn rate(&self) -> f64 {
        if self.lasted.is_zero() { 0.0 } else { self.acquisitions() as f64 / self.lasted.as_secs_f64() }
    }

    /// The fewest acquisitions of an origin over the most: 1 is fair.
    #[must_use]
    pub fn share(&self) -> f64 {
        share(&self.floats())
    }

    /// Jain's index of fairness.
    #[must_use]
    pub fn jain(&self) -> f64 {
        jain(&self.floats())
    }

    /// Operations of all ranks for one acquisition and its release; 0 without acquisitions.
    #[must_use]
    pub fn operations_each(&self) -> f64 {
        self.operations.total() as f64 / self.waits.count().max(1) as f64
    }

    fn floats(&self) -> Vec<f64> {
        self.counts.iter().map(|count| *count as f64).collect()
    }
}

/// The state of an origin.
pub(super) struct Origin<'m, F: Fabric, A> {
    pub(super) contest: &'m ThroughputRun<'m, A>,
    pub(super) fabric: &'m F,
    pub(super) layout: Layout<'m, F>,
    /// The memory of the lowest rank of this host.
    pub(super) leader: &'m F::Segment,
    /// The acquisitions of all origins.
    pub(super) acquired: &'m AtomicU64,
    /// How often in a row this origin bypassed a queue.
    pub(super) passes: &'m AtomicU8,
    /// Whether one has failed, and all others cancel.
    pub(super) failed: Option<&'m AtomicBool>,
    /// The next generation of its node.
    pub(super) generation: u32,
    pub(super) rng: Rng,
}

impl<'m, F: Fabric, A: LockAlgorithm> Origin<'m, F, A> {
    pub(super) fn new(
        contest: &'m ThroughputRun<'m, A>,
        fabric: &'m F,
        layout: Layout<'m, F>,
        leader: &'m F::Segment,
        (acquired, passes): (&'m AtomicU64, &'m AtomicU8),
    ) -> Self {
        let rng = Rng::new(contest.seed.wrapping_mul(0x2545_f491_4f6c_dd1d) ^ u64::from(fabric.rank().0));
        Self { contest, fabric, layout, leader, acquired, passes, failed: None, generation: 0, rng }
    }

    /// Acquires and releases once. `spend` lets the time of the section and of the idle phase pass.
    /// If `note` is given, the wait is recorded with the number of acquisitions of others
    /// meanwhile.
    pub(super) async fn once(
        &mut self,
        note: Option<&mut dyn FnMut(u64, u64)>,
        spend: impl AsyncFn(&Spot<'m, F>, Duration) -> Result<(), Fault>,
    ) -> Result<(), Fault> {
        let ThroughputRun { lock, readers, section, idle, .. } = self.contest;
        let mode = if *readers > 0 && self.rng.next_u64() % 100 < u64::from(*readers) {
            Mode::Shared
        } else {
            Mode::Exclusive
        };
        let owner = Owner { rank: self.fabric.rank(), slot: 0, generation: self.generation };
        self.generation = self.generation.wrapping_add(1) & 0x3ff_ffff;
        let words = (A::HOME_WORDS, A::NODE_WORDS);
        let leader = Some(self.leader).filter(|_| A::HOST_WORDS > 0);
        let spot = Spot { fabric: self.fabric, layout: self.layout, leader, words, owner, passes: self.passes };

        let asked_at = if note.is_some() { self.fabric.now() } else { 0 };
        let words = lock.words(spot)?;
        let started = lock.start(LockUse::new(self.fabric, spot, words, mode))?;
        let before = if note.is_some() { self.acquired.load(Ordering::Relaxed) } else { 0 };
        let failed = self.failed;
        let intent = move || {
            if failed.is_some_and(|failed| failed.load(Ordering::Relaxed)) { Intent::CANCELLED } else { Intent::LOCK }
        };
        let held = lock.finish(LockUse::new(self.fabric, spot, words, mode), started, intent).await?;
        if let Some(note) = note {
            let between = self.acquired.fetch_add(1, Ordering::Relaxed) - before;
            note(self.fabric.now() - asked_at, between);
        }
        if !section.is_zero() {
            spend(&spot, *section).await?;
        }
        let released = lock.start_release(LockUse::new(self.fabric, spot, words, held.mode))?;
        lock.finish_release(LockUse::new(self.fabric, spot, words, held.mode), released.await).await?;
        if !idle.is_zero() {
            spend(&spot, *idle).await?;
        }
        Ok(())
    }
}
