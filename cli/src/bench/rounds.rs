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
    /// What one operation moves, where it is the bandwidth that matters.
    bytes: Option<usize>,
    batch: Box<dyn FnMut(u64) -> Result<(), Failure> + 'p>,
}

impl<'p> Probe<'p> {
    /// A bare loop: so many times.
    pub(crate) fn limit(what: &str, mut batch: impl FnMut(u64) + 'p) -> Self {
        let batch = Box::new(move |n| {
            batch(n);
            Ok(())
        });
        Self { what: what.to_owned(), limit: None, bytes: None, batch }
    }

    /// Operations of ours: so many.
    pub(crate) fn ours(what: &str, limit: &str, mut batch: impl FnMut(u64) -> Result<(), windows::Error> + 'p) -> Self {
        let batch = Box::new(move |n| Ok(batch(n)?));
        Self { what: what.to_owned(), limit: Some(limit.to_owned()), bytes: None, batch }
    }

    pub(crate) fn moves(self, bytes: usize) -> Self {
        Self { bytes: Some(bytes), ..self }
    }

    /// How long one of `n` operations takes, in nanoseconds.
    fn time(&mut self, n: u64) -> Result<f64, Failure> {
        let start = Instant::now();
        (self.batch)(n)?;
        Ok(start.elapsed().as_nanos() as f64 / n as f64)
    }

    /// How many operations make a batch. The shortest of three counts, for the first is cold and any may lose its core.
    fn calibrate(&mut self) -> Result<u64, Failure> {
        let mut n = 1;
        loop {
            let shortest = self.time(n)?.min(self.time(n)?).min(self.time(n)?);
            if shortest * n as f64 * 2.0 >= BATCH.as_nanos() as f64 {
                return Ok(n);
            }
            n *= 2;
        }
    }

    fn value(&self, nanos: f64) -> f64 {
        self.bytes.map_or(nanos, |bytes| bytes as f64 / nanos)
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
        for ((probe, nanos), values) in probes.iter().zip(&batches).zip(&mut runs) {
            values.push(probe.value(Spread::of(nanos).median));
        }
        rank.step()?;
    }
    for (probe, values) in probes.iter().zip(&runs) {
        let metric = if probe.bytes.is_some() { Metric::Bandwidth } else { Metric::Latency };
        match &probe.limit {
            None => rank.limit(&probe.what, metric, values)?,
            Some(limit) => rank.result(&probe.what, metric, values, limit)?,
        }
    }
    Ok(())
}
