//! Limits and results, interleaved batch by batch, so that other load on the machine hits both.

use std::time::{Duration, Instant};

use onesided_fabric::World;
use onesided_windows::{Error, Window};

use crate::bench::effort::Effort;
use crate::bench::results::quantity::Quantity;
use crate::bench::results::report::Point;
use crate::bench::results::summary::Summary;
use crate::bench::worker::rank::BenchRank;
use crate::failure::Failure;

/// The approximate duration of a batch: long compared with reading the clock, short compared with a
/// time slice.
const BATCH: Duration = Duration::from_micros(500);
/// Over a card a batch has so many iterations as well, unless it takes long: messages begin it.
const ITERATIONS: u64 = 64;
const LONG_BATCH: Duration = Duration::from_millis(10);
/// The batches of a run take no longer together, if one does: it is an average of much already.
const RUN: Duration = Duration::from_millis(200);

/// A loop whose time is measured.
pub(crate) struct Probe<'p> {
    /// Of the latency.
    point: Point,
    /// The limit to compare with; none if this is a limit.
    limit: Option<String>,
    quantities: &'static [Quantity],
    /// How many operations an iteration does.
    operations: u64,
    batch: Batch<'p>,
    /// What tells the other ranks of a batch, if they take part in it.
    tell: Option<Batch<'p>>,
}

type Batch<'p> = Box<dyn FnMut(u64) -> Result<(), Failure> + 'p>;

impl<'p> Probe<'p> {
    /// A loop over bare instructions. `batch` does so many iterations.
    pub(crate) fn limit(what: &str, mut batch: impl FnMut(u64) + 'p) -> Self {
        let batch = Box::new(move |n| {
            batch(n);
            Ok(())
        });
        Self::new(what, None, batch)
    }

    /// A loop over the library's operations. `batch` does so many iterations.
    pub(crate) fn ours<E: Into<Failure>>(
        what: &str,
        limit: &str,
        mut batch: impl FnMut(u64) -> Result<(), E> + 'p,
    ) -> Self {
        let batch = Box::new(move |n| batch(n).map_err(Into::into));
        Self::new(what, Some(limit.to_owned()), batch)
    }

    /// A [limit](Self::limit) in which two ranks take part.
    pub(crate) fn limit_of_two(what: &str, batch: impl FnMut(u64) -> Result<(), Failure> + 'p) -> Self {
        Self::new(what, None, Box::new(batch))
    }

    /// Measures the latency, with one operation an iteration.
    fn new(what: &str, limit: Option<String>, batch: Batch<'p>) -> Self {
        let point = Point::limit(what, Quantity::Latency);
        Self { point, limit, quantities: &[Quantity::Latency], operations: 1, batch, tell: None }
    }

    /// Each operation moves so many bytes.
    pub(crate) fn of_size(self, bytes: usize) -> Self {
        Self { point: self.point.of_size(bytes), ..self }
    }

    /// Reports the time as these quantities.
    pub(crate) fn measures(self, quantities: &'static [Quantity]) -> Self {
        Self { quantities, ..self }
    }

    /// Each iteration does so many operations.
    pub(crate) fn each_time(self, operations: usize) -> Self {
        Self { operations: operations as u64, ..self }
    }

    /// The nanoseconds of one operation, over `n` iterations.
    fn time(&mut self, n: u64) -> Result<f64, Failure> {
        self.tell.as_mut().map_or(Ok(()), |tell| tell(n))?;
        let start = Instant::now();
        (self.batch)(n)?;
        Ok(start.elapsed().as_nanos() as f64 / (n * self.operations) as f64)
    }

    /// How many iterations make a batch, and how many nanoseconds it takes. The shortest of three
    /// counts: the first is cold, and any may lose its core.
    fn calibrate(&mut self, iterations: u64) -> Result<(u64, f64), Failure> {
        let mut n = 1;
        loop {
            let operations = (n * self.operations) as f64;
            let mut taken = self.time(n)? * operations;
            if taken < RUN.as_nanos() as f64 {
                taken = taken.min(self.time(n)?.min(self.time(n)?) * operations);
            }
            let is_enough = n >= iterations || taken >= LONG_BATCH.as_nanos() as f64;
            if is_enough && taken * 2.0 >= BATCH.as_nanos() as f64 {
                return Ok((n, taken));
            }
            n *= 2;
        }
    }

    /// The nanoseconds of one operation, as a quantity.
    fn value(&self, quantity: Quantity, nanos: f64) -> f64 {
        match quantity {
            Quantity::Bandwidth => self.point.size.unwrap_or(0) as f64 / nanos,
            Quantity::MessageRate => 1e9 / nanos,
            _ => nanos,
        }
    }
}

/// Measures the probes, interleaved, and reports them. The value of a run is the median of its
/// batches.
pub(crate) fn run(rank: &BenchRank, effort: Effort, probes: Vec<Probe<'_>>) -> Result<(), Failure> {
    measure(rank, effort, probes).map(drop)
}

/// The same of loops in which all ranks of a world take part: each has the same probes. Rank 0 measures
/// them; the others give nothing.
pub(crate) fn run_together<'p>(
    (rank, world): (&BenchRank, &'p World),
    effort: Effort,
    mut probes: Vec<Probe<'p>>,
) -> Result<Vec<Vec<f64>>, Failure> {
    if world.rank() == 0 {
        let tell = move |number, n| told(world, [number, n]).map(drop);
        for (probe, number) in probes.iter_mut().zip(0..) {
            probe.tell = Some(Box::new(move |n| tell(number, n)));
        }
        let runs = measure(rank, effort, probes)?;
        tell(u64::MAX, 0)?;
        return Ok(runs);
    }
    loop {
        let [number, n] = told(world, [0; 2])?;
        let Some(probe) = probes.get_mut(number as usize) else { return Ok(Vec::new()) };
        (probe.batch)(n)?;
    }
}

/// What rank 0 has. Collective.
fn told(world: &World, mine: [u64; 2]) -> Result<[u64; 2], Failure> {
    let all = world.all_gather(mine.map(u64::to_le_bytes).as_flattened()).wait()?;
    let word = |at: usize| all[0][at..].first_chunk().map_or(0, |bytes| u64::from_le_bytes(*bytes));
    Ok([word(0), word(8)])
}

/// As [`run`]; gives the nanoseconds of each probe's operation, by run.
fn measure(rank: &BenchRank, effort: Effort, mut probes: Vec<Probe<'_>>) -> Result<Vec<Vec<f64>>, Failure> {
    let iterations = if rank.has_limits() { 1 } else { ITERATIONS };
    let sizes = probes.iter_mut().map(|probe| probe.calibrate(iterations)).collect::<Result<Vec<_>, _>>()?;
    let longest = sizes.iter().map(|(_, nanos)| *nanos).fold(1.0, f64::max);
    let most = (RUN.as_nanos() as f64 / longest).max(1.0) as usize;
    let mut runs = vec![Vec::new(); probes.len()];
    for _ in 0..effort.runs() {
        let mut batches = vec![Vec::new(); probes.len()];
        for _ in 0..effort.batches().min(most) {
            for ((probe, (n, _)), nanos) in probes.iter_mut().zip(&sizes).zip(&mut batches) {
                nanos.push(probe.time(*n)?);
            }
        }
        for (nanos, values) in batches.iter().zip(&mut runs) {
            values.push(Summary::of(nanos).median);
        }
        rank.step()?;
    }
    for (probe, nanos) in probes.iter().zip(&runs) {
        for quantity in probe.quantities {
            let values: Vec<_> = nanos.iter().map(|nanos| probe.value(*quantity, *nanos)).collect();
            let point = Point { quantity: *quantity, ..probe.point.clone() };
            rank.report(probe.limit.iter().fold(point, |point, limit| point.beside(limit)), &values)?;
        }
    }
    Ok(runs)
}

// Loops that several measurements time. Each is a function of its own, so that the compiler optimizes
// it alone.

#[inline(never)]
pub(crate) fn lock_exclusive(window: &Window<u64>, target: u32, n: u64) -> Result<(), Error> {
    for _ in 0..n {
        window.lock_exclusive(target).wait()?.unlock().wait()?;
    }
    Ok(())
}

#[inline(never)]
pub(crate) fn lock_put_unlock(window: &Window<u64>, target: u32, n: u64) -> Result<(), Error> {
    for i in 0..n {
        let epoch = window.lock_exclusive(target).wait()?;
        epoch.put(0, &[i])?;
        epoch.unlock().wait()?;
    }
    Ok(())
}
