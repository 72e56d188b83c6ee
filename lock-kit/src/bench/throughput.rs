//! Many origins at one lock.

use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU64, Ordering};
use std::time::Duration;

use onesided_fabric::Fabric;
use onesided_lock_algos::{Intent, LockAlgorithm, Mode, Owner};
use onesided_remote_memory::Fault;
use onesided_sim::Network;

use super::context::{Layout, Spot};
use super::{Histogram, Operations, Rng, jain, share};

/// Origins that acquire and release one lock, over and over, for a while. Not for a lock that is
/// [served](LockAlgorithm::SERVED): nobody serves here.
#[derive(Clone, Debug)]
#[must_use = "nothing happens before it is run"]
pub struct ThroughputRun<'a, A> {
    pub(super) lock: &'a A,
    pub(super) origins: u32,
    pub(super) long: Duration,
    pub(super) readers: u32,
    pub(super) section: Duration,
    pub(super) rest: Duration,
    pub(super) seed: u64,
    pub(super) network: Network,
    pub(super) per_host: u32,
}

impl<'a, A: LockAlgorithm> ThroughputRun<'a, A> {
    /// Two origins, 100 ms, all to write, an empty section, no rest.
    pub fn of(lock: &'a A) -> Self {
        Self {
            lock,
            origins: 2,
            long: Duration::from_millis(100),
            readers: 0,
            section: Duration::ZERO,
            rest: Duration::ZERO,
            seed: 1,
            network: Network { jitter: Duration::from_nanos(200), ..Network::default() },
            per_host: u32::MAX,
        }
    }

    /// How many origins, at least one.
    pub fn origins(self, origins: u32) -> Self {
        Self { origins: origins.max(1), ..self }
    }

    /// For how long: real time of threads, virtual time of a simulation. In no time nobody acquires.
    pub const fn lasting(mut self, long: Duration) -> Self {
        self.long = long;
        self
    }

    /// How many of a hundred acquires share the lock; more than a hundred are a hundred.
    pub const fn readers(mut self, of_a_hundred: u32) -> Self {
        self.readers = if of_a_hundred > 100 { 100 } else { of_a_hundred };
        self
    }

    /// How long the lock is held each time.
    pub const fn section(mut self, long: Duration) -> Self {
        self.section = long;
        self
    }

    /// How long an origin waits after its release before it asks again.
    pub const fn rest(mut self, long: Duration) -> Self {
        self.rest = long;
        self
    }

    /// What the rng start from that tell who reads, and a simulation's.
    pub const fn seed(mut self, seed: u64) -> Self {
        self.seed = seed;
        self
    }

    /// What a simulation's network costs. If nothing is said, 1 us one way and up to 0.2 us more: where all ways take the same
    /// time for ever, whoever comes second comes second each time.
    pub fn network(self, network: Network) -> Self {
        Self { network, ..self }
    }

    /// How many ranks of a simulation share a host, the lock's home and the first origins the first one; all, if nothing is
    /// said. To a lock without words [near](LockAlgorithm::HOST_WORDS) that is all the same.
    pub const fn per_host(mut self, ranks: u32) -> Self {
        self.per_host = ranks;
        self
    }
}

/// How a contest went.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Outcome {
    /// How often each origin acquired.
    pub counts: Vec<u64>,
    /// In how long.
    pub lasted: Duration,
    /// From asking to having, in nanoseconds, without what the clock takes. Of all origins: who is served often counts often,
    /// so a lock that starves some may look good here, but not in [`worst_p99`](Self::worst_p99).
    pub waits: Histogram,
    /// The largest of the origins' 99th percentiles of their own waits, in nanoseconds. Who never acquired waited all the time.
    pub worst_p99: u64,
    /// How often others acquired between.
    pub bypasses: Histogram,
    /// Operations of all ranks for the waits that were timed.
    pub operations: Operations,
    /// Of a simulation, a hash of all that happened: the same for the same contest. 0 of threads.
    pub trace: u64,
}

impl Outcome {
    /// All origins' acquisitions.
    #[must_use]
    pub fn acquisitions(&self) -> u64 {
        self.counts.iter().sum()
    }

    /// All origins' acquisitions a second; 0 of a contest that took no time.
    #[must_use]
    pub fn rate(&self) -> f64 {
        if self.lasted.is_zero() { 0.0 } else { self.acquisitions() as f64 / self.lasted.as_secs_f64() }
    }

    /// The smallest origin's acquisitions over the largest's: 1 is fair.
    #[must_use]
    pub fn share(&self) -> f64 {
        share(&self.floats())
    }

    /// Jain's index of fairness.
    #[must_use]
    pub fn jain(&self) -> f64 {
        jain(&self.floats())
    }

    /// Operations for one acquisition and its release, by all ranks; 0 where there was none.
    #[must_use]
    pub fn operations_each(&self) -> f64 {
        self.operations.total() as f64 / self.waits.count().max(1) as f64
    }

    fn floats(&self) -> Vec<f64> {
        self.counts.iter().map(|count| *count as f64).collect()
    }
}

/// What an origin of a contest has.
pub(super) struct Origin<'m, F: Fabric, A> {
    pub(super) contest: &'m ThroughputRun<'m, A>,
    pub(super) fabric: &'m F,
    pub(super) layout: Layout<'m, F>,
    /// The memory of the lowest rank of this host.
    pub(super) leader: &'m F::Segment,
    /// How often the lock was acquired, by all.
    pub(super) acquired: &'m AtomicU64,
    /// How often in a row this origin passed a queue.
    pub(super) passes: &'m AtomicU8,
    /// That one has failed, and nobody wants the lock any more.
    pub(super) failed: Option<&'m AtomicBool>,
    /// Which use of its node is the next.
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

    /// Acquires and releases once. `spend` has the time pass that the section and the rest take. A wait is noted, with how
    /// many others acquired meanwhile, where `note` is given.
    pub(super) async fn once(
        &mut self,
        note: Option<&mut dyn FnMut(u64, u64)>,
        spend: impl AsyncFn(&Spot<'m, F>, Duration) -> Result<(), Fault>,
    ) -> Result<(), Fault> {
        let ThroughputRun { lock, readers, section, rest, .. } = self.contest;
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
        let started = lock.start(self.fabric, spot, words, mode)?;
        let before = if note.is_some() { self.acquired.load(Ordering::Relaxed) } else { 0 };
        let failed = self.failed;
        let intent = move || {
            if failed.is_some_and(|failed| failed.load(Ordering::Relaxed)) { Intent::CANCELLED } else { Intent::LOCK }
        };
        let held = lock.finish(self.fabric, spot, words, mode, started, intent).await?;
        if let Some(note) = note {
            let between = self.acquired.fetch_add(1, Ordering::Relaxed) - before;
            note(self.fabric.now() - asked_at, between);
        }
        if !section.is_zero() {
            spend(&spot, *section).await?;
        }
        let released = lock.start_release(self.fabric, spot, words, held.mode)?;
        lock.finish_release(self.fabric, spot, words, held.mode, released).await?;
        if !rest.is_zero() {
            spend(&spot, *rest).await?;
        }
        Ok(())
    }
}
