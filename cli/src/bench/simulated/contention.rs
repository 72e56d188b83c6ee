//! Simulated origins that contend for one lock.

use std::time::Duration;

use onesided_lock_kit::bench::{Outcome, ThroughputRun};
use onesided_lock_kit::lock_algos::LockAlgorithm;

use crate::bench::results::description::{Description, Name, Shown};
use crate::bench::results::quantity::Quantity;
use crate::bench::results::report::{Against, Measured, Parameter};
use crate::bench::results::summary::Summary;

const BENCHMARK: &str = "simulated contended lock";

const SENTENCE: &str = "Origins at one lock of another rank, a modelled microsecond away.";

pub(super) static DESCRIPTIONS: [Description; 2] = [
    Description {
        benchmark: Name::Is(BENCHMARK),
        sentence: SENTENCE,
        shown: &[
            Shown::new(Quantity::Acquisitions, "acquired").key().heading("Simulated: acquisitions a second"),
            Shown::new(Quantity::P99, "p99 wait").key().heading("Simulated: wait, 99 of 100 at most"),
            Shown::new(Quantity::Jain, "jain").heading("Simulated: Jain's index of fairness"),
            Shown::new(Quantity::Operations, "operations").key().heading("Simulated: operations an acquisition"),
        ],
    },
    // With readers, or with a bound on hand-overs.
    Description {
        benchmark: Name::StartsWith(BENCHMARK),
        sentence: SENTENCE,
        shown: &[Shown::new(Quantity::Acquisitions, "acquired")],
    },
];

/// What the origins do, in nanoseconds.
pub(crate) struct Load {
    /// How long they hold the lock.
    pub(crate) section: u64,
    /// How long they are idle between a release and the next acquire.
    pub(crate) idle: u64,
    pub(crate) per_host: u32,
    /// For how long; `None` depends on the number of origins.
    pub(crate) duration: Option<Duration>,
    pub(crate) seed: u64,
}

/// Jain's index says nothing about ranks with fewer acquisitions on average.
const ACQUISITIONS_OF_JAIN: u64 = 5;
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
    /// `handovers`, the point of the sweep is that number, else it is the number of origins.
    pub(crate) fn measure<A: LockAlgorithm>(
        &self,
        lock: &A,
        name: &str,
        (origins, readers): (u32, u32),
        handovers: Option<u16>,
    ) -> Vec<Measured> {
        let outcome: Outcome = ThroughputRun::of(lock)
            .origins(origins)
            .readers(readers)
            .section(Duration::from_nanos(self.section))
            .idle(Duration::from_nanos(self.idle))
            .lasting(self.duration(origins))
            .per_host(self.per_host)
            .seed(self.seed)
            .simulated();
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
        let measured = |(quantity, value): (Quantity, Option<f64>)| {
            Some(Measured {
                what: what.clone(),
                size: None,
                parameter: Some(parameter.clone()),
                quantity,
                ranks: origins + 1,
                value: Summary::of(&[value?]),
                against: Against::Nothing,
                lock: name.to_owned(),
            })
        };
        [
            (Quantity::Acquisitions, Some(outcome.rate())),
            (Quantity::P50, quantile(0.5)),
            (Quantity::P99, quantile(0.99)),
            (Quantity::P999, quantile(0.999).filter(|_| outcome.waits.count() >= WAITS_OF_P999)),
            (Quantity::WorstP99, Some(outcome.worst_p99 as f64)),
            (Quantity::LongestBypass, Some(outcome.bypasses.largest() as f64)),
            (Quantity::Jain, (acquisitions_each >= ACQUISITIONS_OF_JAIN).then(|| outcome.jain())),
            (Quantity::Operations, Some(outcome.operations_each())),
        ]
        .into_iter()
        .filter_map(measured)
        .collect()
    }
}
