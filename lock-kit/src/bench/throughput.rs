//! Many origins at one lock.

use std::future::Future;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use onesided_fabric::{Fabric, ServerThread};
use onesided_lock_algos::{Intent, LockAlgorithm, LockUse, Mode, Words};
use onesided_remote_memory::Fault;
use onesided_sim::Network;

use super::context::{Site, Spot};
use super::{Histogram, Operations, Rng, jain, share};

/// A throughput run: origins that acquire and release one lock repeatedly, for a while. A
/// [served](LockAlgorithm::SERVED) lock has a server in simulations [only](Self::served).
#[derive(Clone, Debug)]
#[must_use = "a throughput run does nothing until it is run"]
pub struct ThroughputRun<'a, A> {
    pub(super) lock: &'a A,
    pub(super) origins: u32,
    pub(super) lasting: Duration,
    pub(super) readers: u32,
    pub(super) section: Duration,
    pub(super) idle: Duration,
    pub(super) seed: u64,
    pub(super) network: Network,
    pub(super) per_host: u32,
    pub(super) at_home: bool,
    pub(super) events: u64,
    pub(super) server: Option<ServerThread>,
    pub(super) stop: Option<Stop>,
}

/// What befalls the first origin that acquires the lock after a time.
#[derive(Clone, Copy, Debug)]
pub(super) struct Stop {
    pub(super) after: Duration,
    /// How long it stands still in its section. `None`: it dies there.
    pub(super) long: Option<Duration>,
}

impl<'a, A: LockAlgorithm> ThroughputRun<'a, A> {
    /// Two origins, 100 ms, all exclusive, an empty section, no idle time.
    pub fn of(lock: &'a A) -> Self {
        Self {
            lock,
            origins: 2,
            lasting: Duration::from_millis(100),
            readers: 0,
            section: Duration::ZERO,
            idle: Duration::ZERO,
            seed: 1,
            network: Network { jitter: Duration::from_nanos(200), ..Network::default() },
            per_host: u32::MAX,
            at_home: false,
            events: u64::MAX,
            server: None,
            stop: None,
        }
    }

    /// The number of origins, at least one.
    pub fn origins(self, origins: u32) -> Self {
        Self { origins: origins.max(1), ..self }
    }

    setters! {
        /// The duration: real time of threads, virtual time of a simulation. With zero there are no
        /// acquisitions.
        lasting: Duration,
        /// How long the lock is held each time.
        section: Duration,
        /// How long an origin is idle after a release before its next acquire.
        idle: Duration,
        /// The seed of the random choice of readers, and of a simulation.
        seed: u64,
        /// The network of a simulation. By default 1 us one way and up to 0.2 us jitter: without
        /// jitter, the same rank would lose every race.
        network: Network,
        /// How many consecutive ranks of a simulation share a host, the lock's home and the first
        /// origins the first one; all by default. Irrelevant to a lock without [host
        /// words](LockAlgorithm::HOST_WORDS).
        per_host: u32,
        /// Ends a simulation after so many events, if its time is not over before.
        events: u64,
    }

    /// The percentage of shared acquires, at most 100.
    pub fn readers(self, of_a_hundred: u32) -> Self {
        Self { readers: of_a_hundred.min(100), ..self }
    }

    /// The lock's home is one of the origins of a simulation, rank 0: for a lock whose words count
    /// ranks from 0.
    pub fn at_home(self) -> Self {
        Self { at_home: true, ..self }
    }

    /// Has a thread of the home serve the lock of a simulation, if it is a
    /// [served](LockAlgorithm::SERVED) one.
    pub fn served(self, by: ServerThread) -> Self {
        Self { server: Some(by), ..self }
    }

    /// Stops an owner of a simulation: the first origin that acquires the lock after this time
    /// holds it for so much longer. The run ends 1,000 acquisitions later, if its time is not over
    /// before.
    pub fn stops(self, after: Duration, long: Duration) -> Self {
        Self { stop: Some(Stop { after, long: Some(long) }), ..self }
    }

    /// Kills an owner of a simulation: the first origin that acquires the lock after this time dies
    /// while it holds it. The other origins recover the lock. The run ends 1,000 acquisitions
    /// later, if its time is not over before.
    pub fn dies(self, after: Duration) -> Self {
        Self { stop: Some(Stop { after, long: None }), ..self }
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
    /// The longest time from one acquisition to the next one, by whichever origins, in a
    /// simulation. Zero for threads.
    pub longest_gap: Duration,
    /// The events of a simulation. 0 for threads.
    pub events: u64,
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

    /// The fewest acquisitions of an origin over the most: 1 is fair. Of threads it also tells how the
    /// system shared the cores: it is near 0 if one of them hardly ran.
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

    /// Of the same run of threads, with those of other origins.
    pub(super) fn with(mut self, others: Self) -> Self {
        self.counts.extend(others.counts);
        self.lasted = self.lasted.max(others.lasted);
        self.worst_p99 = self.worst_p99.max(others.worst_p99);
        self.waits.merge(&others.waits);
        self.bypasses.merge(&others.bypasses);
        self.operations = self.operations + others.operations;
        self
    }

    fn floats(&self) -> Vec<f64> {
        self.counts.iter().map(|count| *count as f64).collect()
    }
}

/// What an origin does beside its operations.
pub(super) trait Beside<F: Fabric, A> {
    /// Whether the waits are timed.
    const TIMES: bool;

    fn common(&self) -> &Common<'_, A>;

    /// Records a wait, in nanoseconds, and the number of acquisitions of others meanwhile.
    fn acquired(&self, site: &Site<'_, F, A>, waited: u64, others: u64);

    /// An owner enters or leaves a section that takes time.
    fn passes(&self, site: &Site<'_, F, A>, mode: Mode, enters: bool) {
        let _ = (site, mode, enters);
    }

    /// Lets the time of the section pass, or of the idle phase.
    async fn spend(&self, site: &Site<'_, F, A>, long: Duration) -> Result<(), Fault>;
}

/// What the origins share.
pub(super) struct Common<'m, A> {
    pub(super) run: &'m ThroughputRun<'m, A>,
    /// The acquisitions of all origins.
    pub(super) acquired: &'m AtomicU64,
    /// Whether one has failed, and all others cancel.
    pub(super) failed: Option<&'m AtomicBool>,
}

impl<A> Common<'_, A> {
    fn intent(&self) -> Intent {
        let over = self.failed.is_some_and(|failed| failed.load(Ordering::Relaxed));
        Intent { recovers: self.run.stop.is_some(), ..if over { Intent::CANCELLED } else { Intent::LOCK } }
    }
}

/// The state of an origin. There may be very many: small.
pub(super) struct Origin<'m, F: Fabric, A, B> {
    pub(super) site: Site<'m, F, A>,
    pub(super) beside: &'m B,
}

impl<'m, F: Fabric, A: LockAlgorithm, B: Beside<F, A>> Origin<'m, F, A, B> {
    pub(super) const fn new(site: Site<'m, F, A>, beside: &'m B) -> Self {
        Self { site, beside }
    }

    #[inline(always)] // the fast path of the lock
    fn run(&self) -> &ThroughputRun<'_, A> {
        self.beside.common().run
    }

    /// By chance.
    fn mode(&self) -> Mode {
        let ThroughputRun { readers, seed, .. } = *self.run();
        if readers == 0 {
            return Mode::Exclusive;
        }
        let origin = u64::from(self.site.fabric.rank().0) << 32 | u64::from(self.site.generation);
        let reads = Rng::new(seed.wrapping_mul(0x2545_f491_4f6c_dd1d) ^ origin).next_u64() % 100 < u64::from(readers);
        if reads { Mode::Shared } else { Mode::Exclusive }
    }

    #[inline(always)] // the fast path of the lock
    fn lock_use<'a>(&'a self, words: Words<'a, F>, mode: Mode) -> LockUse<'a, Spot<'a, F, A>> {
        LockUse::new(&self.site.fabric, Spot(&self.site), words, mode)
    }

    /// Acquires and releases once.
    pub(super) fn once(&mut self) -> impl Future<Output = Result<(), Fault>> {
        let mode = self.mode();
        self.site.generation = self.site.generation.wrapping_add(1) & 0x3ff_ffff;
        let this = &*self;
        // Not an `async fn`, which keeps its arguments twice.
        async move {
            let asked_at = if B::TIMES { this.site.fabric.now() } else { 0 };
            let words = this.run().lock.words(Spot(&this.site), Intent::LOCK)?;
            let started = this.run().lock.start(this.lock_use(words, mode))?;
            // Of very many origins the low bits are enough, and smaller.
            let before = if B::TIMES { this.beside.common().acquired.load(Ordering::Relaxed) as u32 } else { 0 };
            // As `finish`, without a future around that of `contend`.
            let first = started.await;
            let common = this.beside.common();
            let mode = if first.is_ok_and(|first| this.run().lock.holds(words.1, mode, first)) {
                mode
            } else {
                this.run().lock.contend(this.lock_use(words, mode), first, &|| common.intent()).await?.mode
            };
            if B::TIMES {
                let acquired = this.beside.common().acquired.fetch_add(1, Ordering::Relaxed) as u32;
                this.beside.acquired(
                    &this.site,
                    this.site.fabric.now() - asked_at,
                    acquired.wrapping_sub(before).into(),
                );
            }
            if !this.run().section.is_zero() || this.run().stop.is_some() {
                this.beside.passes(&this.site, mode, true);
                this.beside.spend(&this.site, this.run().section).await?;
                this.beside.passes(&this.site, mode, false);
            }
            let released = this.run().lock.start_release(this.lock_use(words, mode))?.await;
            this.run().lock.finish_release(this.lock_use(words, mode), released).await?;
            if !this.run().idle.is_zero() {
                this.beside.spend(&this.site, this.run().idle).await?;
            }
            Ok(())
        }
    }
}
