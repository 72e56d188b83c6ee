//! Limits and results in turns, so that whatever else the machine does hits both.

use std::time::{Duration, Instant};

use crate::bench::rank::RankOfBench;
use crate::bench::report::Metric;
use crate::bench::spread::Spread;
use crate::bench::worker::Effort;
use crate::failure::Failure;

/// About as long as one batch takes: long against reading the clock, short against a time slice.
const BATCH: Duration = Duration::from_micros(500);

/// Something that is done over and over.
pub(crate) struct Probe<'p> {
    what: String,
    /// The limit to compare with; none if this is a limit itself.
    limit: Option<String>,
    /// How many bytes one operation moves, where that was chosen.
    size: Option<usize>,
    metrics: &'static [Metric],
    /// How many operations are done each time.
    operations: u64,
    batch: Batch<'p>,
}

type Batch<'p> = Box<dyn FnMut(u64) -> Result<(), Failure> + 'p>;

impl<'p> Probe<'p> {
    /// A bare loop: so many times.
    pub(crate) fn limit(what: &str, mut batch: impl FnMut(u64) + 'p) -> Self {
        let batch = Box::new(move |n| {
            batch(n);
            Ok(())
        });
        Self::new(what, None, batch)
    }

    /// Operations of ours: so many.
    pub(crate) fn ours(
        what: &str,
        limit: &str,
        mut batch: impl FnMut(u64) -> Result<(), onesided_windows::Error> + 'p,
    ) -> Self {
        let batch = Box::new(move |n| Ok(batch(n)?));
        Self::new(what, Some(limit.to_owned()), batch)
    }

    /// Its latency is measured; each time is one operation.
    fn new(what: &str, limit: Option<String>, batch: Batch<'p>) -> Self {
        Self { what: what.to_owned(), limit, size: None, metrics: &[Metric::Latency], operations: 1, batch }
    }

    /// Each operation moves so many bytes.
    pub(crate) fn of_size(self, bytes: usize) -> Self {
        Self { size: Some(bytes), ..self }
    }

    /// This is what its time is told as.
    pub(crate) fn measures(self, metrics: &'static [Metric]) -> Self {
        Self { metrics, ..self }
    }

    /// Each time is so many operations.
    pub(crate) fn each_time(self, operations: usize) -> Self {
        Self { operations: operations as u64, ..self }
    }

    /// How long one operation takes, of `n` times, in nanoseconds.
    fn time(&mut self, n: u64) -> Result<f64, Failure> {
        let start = Instant::now();
        (self.batch)(n)?;
        Ok(start.elapsed().as_nanos() as f64 / (n * self.operations) as f64)
    }

    /// How many times make a batch. The shortest of three counts, for the first is cold and any may lose its core.
    fn calibrate(&mut self) -> Result<u64, Failure> {
        let mut n = 1;
        loop {
            let shortest = self.time(n)?.min(self.time(n)?).min(self.time(n)?);
            if shortest * (n * self.operations) as f64 * 2.0 >= BATCH.as_nanos() as f64 {
                return Ok(n);
            }
            n *= 2;
        }
    }

    /// One operation's time in nanoseconds, told as a metric.
    fn value(&self, metric: Metric, nanos: f64) -> f64 {
        match metric {
            Metric::Bandwidth => self.size.unwrap_or(0) as f64 / nanos,
            Metric::MessageRate => 1e9 / nanos,
            _ => nanos,
        }
    }
}

/// Measures the probes in turns and reports them. A run's value is the median of its batches.
pub(crate) fn run(rank: &RankOfBench, effort: Effort, mut probes: Vec<Probe<'_>>) -> Result<(), Failure> {
    let sizes = probes.iter_mut().map(Probe::calibrate).collect::<Result<Vec<_>, _>>()?;
    let mut runs = vec![Vec::new(); probes.len()];
    for _ in 0..effort.runs() {
        let mut batches = vec![Vec::new(); probes.len()];
        for _ in 0..effort.batches() {
            for ((probe, n), nanos) in probes.iter_mut().zip(&sizes).zip(&mut batches) {
                nanos.push(probe.time(*n)?);
            }
        }
        for (nanos, values) in batches.iter().zip(&mut runs) {
            values.push(Spread::of(nanos).median);
        }
        rank.step()?;
    }
    for (probe, nanos) in probes.iter().zip(&runs) {
        for metric in probe.metrics {
            let values: Vec<_> = nanos.iter().map(|nanos| probe.value(*metric, *nanos)).collect();
            rank.measured((&probe.what, probe.size), *metric, &values, probe.limit.as_deref())?;
        }
    }
    Ok(())
}
