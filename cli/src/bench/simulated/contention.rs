//! Simulated origins that contend for one lock.

use std::time::Duration;

use onesided_fabric::ServerThread;
use onesided_lock_kit::bench::{Outcome, ThroughputRun};
use onesided_lock_kit::lock_algos::{AnyLock, DedicatedThread, LockAlgorithm, WithLock};
use onesided_sim::Network;

use crate::bench::prelude::*;
use crate::bench::results::report::Measured;
use crate::bench::simulated::footprint;

const BENCHMARK: &str = "simulated contended lock";
const SIMULATOR: &str = "simulator, contended lock";

const SENTENCE: &str = "Origins at one lock of another rank, a modelled microsecond away.";

pub(super) static DESCRIPTIONS: [Description; 3] = [
    Description::of(
        BENCHMARK,
        &[
            Shown::new(Quantity::Acquisitions, "acquired").key().heading("Simulated: acquisitions a second"),
            Shown::new(Quantity::Interval, "apart"),
            Shown::new(Quantity::P99, "p99 wait").key().heading("Simulated: wait, 99 of 100 at most"),
            Shown::new(Quantity::Jain, "jain").heading("Simulated: Jain's index of fairness"),
            Shown::new(Quantity::Operations, "operations").key().heading("Simulated: operations an acquisition"),
        ],
    )
    .saying(SENTENCE),
    // With readers, or with a bound on hand-overs.
    Description::named(Name::StartsWith(BENCHMARK), &[Shown::new(Quantity::Acquisitions, "acquired")]).saying(SENTENCE),
    Description::of(
        SIMULATOR,
        &[
            Shown::new(Quantity::Memory, "memory").heading("Simulator: bytes a rank"),
            Shown::new(Quantity::Events, "events").heading("Simulator: events a second"),
        ],
    )
    .saying("What the simulation itself takes of this machine: memory with the state of the benchmark."),
];

/// What the origins do, in nanoseconds.
pub(super) struct Load {
    /// How long they hold the lock.
    pub(super) section: u64,
    /// How long they are idle between a release and the next acquire.
    pub(super) idle: u64,
    pub(super) per_host: u32,
    /// For how long; `None` depends on the number of origins.
    pub(super) duration: Option<Duration>,
    pub(super) seed: u64,
}

/// Jain's index says nothing about ranks with fewer acquisitions on average.
const ACQUISITIONS_OF_JAIN: u64 = 5;
/// Of fewer ranks, the memory is mostly that of the program.
const MANY: u32 = 1_000;
/// Of fewer waits, the p99.9 is a single one.
const WAITS_OF_P999: u64 = 1_000;

impl Load {
    /// Long enough for 20 acquisitions by each origin at the fastest possible hand-overs, but
    /// bounded: 100 ms of virtual time take about a second.
    fn duration(&self, origins: u32) -> Duration {
        const ACQUISITIONS: u64 = 20;
        /// From one owner to the next: a release, and an acquire that waits for it.
        const HANDOVER: u64 = 3_000;
        let nanos =
            ACQUISITIONS.saturating_mul(u64::from(origins)).saturating_mul(self.section.saturating_add(HANDOVER));
        self.duration.unwrap_or(Duration::from_nanos(nanos.clamp(10_000_000, 500_000_000)))
    }

    /// The results with so many origins, of whose acquisitions `readers` % are to read. With
    /// `handovers`, the point of the sweep is that number, else it is the number of origins. With
    /// `simulator`, also what the simulation takes.
    pub(super) fn measure(
        &self,
        lock: &AnyLock,
        name: &str,
        (origins, readers): (u32, u32),
        handovers: Option<u16>,
        simulator: bool,
    ) -> Vec<Measured> {
        let network = Network { jitter: Duration::from_nanos(200), ..Network::default() };
        let conditions = Conditions { origins, readers, ..Conditions::on(network) };
        let footprint = footprint::Peak::begin();
        let begun = footprint::cpu_time();
        let outcome = self.run(lock, &conditions);
        let (took, bytes) = (footprint::cpu_time() - begun, footprint.bytes());
        let quantile = |part| outcome.waits.quantile(part).map(|nanos| nanos as f64);
        let acquisitions_each = outcome.acquisitions() / u64::from(origins);
        let what = match handovers {
            Some(_) => format!("{BENCHMARK}, {origins} origins, {} on a host", self.per_host),
            None if readers == 0 => BENCHMARK.to_owned(),
            None => format!("{BENCHMARK}, {readers} % to read"),
        };
        let parameter = match handovers {
            Some(most) => Parameter::new("hand-overs on a host", f64::from(most), "1"),
            None => Parameter::new("origins", f64::from(origins), "1"),
        };
        let measured = |what: &str, (quantity, value): (Quantity, Option<f64>)| {
            Some(Point::of(what, quantity).at(&parameter).simulated(name, origins + 1, value?))
        };
        let of_lock = [
            (Quantity::Acquisitions, Some(outcome.rate())),
            (Quantity::Interval, Some(1e9 / outcome.rate()).filter(|_| outcome.acquisitions() > 0)),
            (Quantity::P50, quantile(0.5)),
            (Quantity::P99, quantile(0.99)),
            (Quantity::P999, quantile(0.999).filter(|_| outcome.waits.count() >= WAITS_OF_P999)),
            (Quantity::WorstP99, Some(outcome.worst_p99 as f64)),
            (Quantity::LongestBypass, Some(outcome.bypasses.largest() as f64)),
            (Quantity::Jain, (acquisitions_each >= ACQUISITIONS_OF_JAIN).then(|| outcome.jain())),
            (Quantity::Operations, Some(outcome.operations_each())),
        ];
        let of_simulator = [
            (Quantity::Memory, bytes.filter(|_| origins >= MANY).map(|bytes| bytes as f64 / f64::from(origins + 1))),
            (Quantity::Events, Some(outcome.events as f64 / took.as_secs_f64()).filter(|_| !took.is_zero())),
        ];
        let of_simulator = of_simulator.into_iter().filter(|_| simulator && readers == 0 && handovers.is_none());
        let of_lock = of_lock.into_iter().filter_map(|one| measured(&what, one));
        of_lock.chain(of_simulator.filter_map(|one| measured(SIMULATOR, one))).collect()
    }

    /// Of the lock's own type: a simulated rank is then as small as that allows.
    pub(super) fn run(&self, lock: &AnyLock, conditions: &Conditions) -> Outcome {
        lock.with(Run(self, conditions))
    }
}

struct Run<'a>(&'a Load, &'a Conditions);

impl WithLock for Run<'_> {
    type Output = Outcome;

    fn with<A: LockAlgorithm + Copy>(self, lock: A) -> Outcome {
        let Self(load, conditions) = self;
        let by = if A::NAME == DedicatedThread::NAME { ServerThread::Polls } else { ServerThread::Sleeps };
        let run = ThroughputRun::of(&lock)
            .network(conditions.network.clone())
            .origins(conditions.origins)
            .readers(conditions.readers)
            .section(Duration::from_nanos(load.section))
            .idle(Duration::from_nanos(load.idle))
            .lasting(conditions.lasting.unwrap_or_else(|| load.duration(conditions.origins)))
            .per_host(conditions.per_host.unwrap_or(load.per_host))
            .seed(load.seed)
            .events(conditions.events)
            .served(by);
        match conditions.owner {
            Owner::GoesOn => run,
            Owner::Stops { after, long } => run.stops(after, long),
            Owner::Dies { after } => run.dies(after),
        }
        .simulated()
    }
}

/// The circumstances of a run.
#[derive(Clone, Debug)]
pub(super) struct Conditions {
    pub(super) network: Network,
    pub(super) origins: u32,
    pub(super) readers: u32,
    pub(super) owner: Owner,
    /// Instead of the load's.
    pub(super) lasting: Option<Duration>,
    /// How many events it takes at most.
    pub(super) events: u64,
    pub(super) per_host: Option<u32>,
}

/// What an owner does, once.
#[derive(Clone, Copy, Debug)]
pub(super) enum Owner {
    GoesOn,
    Stops { after: Duration, long: Duration },
    Dies { after: Duration },
}

impl Conditions {
    pub(super) const fn on(network: Network) -> Self {
        Self { network, origins: 2, readers: 0, owner: Owner::GoesOn, lasting: None, events: u64::MAX, per_host: None }
    }
}
