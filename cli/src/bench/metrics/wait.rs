//! How long each rank waits for a contended lock, and how many ranks overtake it.

use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use onesided_lock_kit::bench::{Histogram, jain, share};
use onesided_windows::Window;

use crate::bench::prelude::*;

pub(super) static METRIC: LockMetric = LockMetric {
    name: "wait",
    help: "How long ranks wait for a contended lock (p50, p99, p99.9), and how many overtake them",
    jobs: &[(Suite::new("waits", Program::Plain(run)), Ranks::Default(&[2, 4, 8]))],
    descriptions: &[Description::of(
        BENCHMARK,
        &[
            Shown::new(Quantity::P99, "p99 wait").heading("Contended: wait, 99 of 100 at most"),
            Shown::new(Quantity::LongestBypass, "bypass"),
        ],
    )
    .saying("All ranks acquire the lock of one rank as often as they can; from the request to the acquisition.")],
};

const BENCHMARK: &str = "wait for a contended lock";
/// A bare word: how often all ranks have acquired the lock. Only the holder writes it.
const ACQUIRED: u64 = 20;

/// All ranks are at the lock of rank 0. Each wait is timed.
fn run(rank: &BenchRank, effort: Effort) -> Result<(), Failure> {
    let window = Window::<u64>::allocate(&rank.world, 8).wait()?;
    let (mut throughput, mut samples) = (Throughput::new(rank), Samples::default());
    for _ in 0..effort.runs() {
        let (mut waits, mut bypasses) = (Histogram::default(), Histogram::default());
        let outcome =
            throughput.run(effort.sweeping() * 2, |stop| timed(rank, &window, stop, &mut waits, &mut bypasses))?;
        let (each, bypasses) = (throughput.gather(waits)?, merged(&throughput.gather(bypasses)?));
        let waits = merged(&each);
        // A rank that never acquired the lock waited all the time.
        let all_the_time = (outcome.seconds * 1e9) as u64;
        let worst = each.iter().map(|waits| waits.quantile(0.99).unwrap_or(all_the_time)).max();
        for (quantity, value) in [
            (Quantity::P50, waits.quantile(0.5)),
            (Quantity::P99, waits.quantile(0.99)),
            (Quantity::P999, waits.quantile(0.999)),
            (Quantity::WorstP99, worst),
            (Quantity::LongestBypass, Some(bypasses.largest())),
            (Quantity::Bypass, bypasses.quantile(0.999)),
        ] {
            samples.add(&Point::of(BENCHMARK, quantity), value.unwrap_or(0) as f64);
        }
        samples.add(&Point::of(BENCHMARK, Quantity::Share), share(&outcome.counts));
        samples.add(&Point::of(BENCHMARK, Quantity::Jain), jain(&outcome.counts));
        rank.step()?;
    }
    rank.report_all(samples)?;
    Ok(window.close().wait()?)
}

fn merged(each: &[Histogram]) -> Histogram {
    let mut all = Histogram::default();
    each.iter().for_each(|one| all.merge(one));
    all
}

/// The median time to read the clock.
fn clock_overhead() -> Duration {
    let mut all = Histogram::default();
    for _ in 0..1000 {
        let begin = Instant::now();
        all.add(begin.elapsed().as_nanos() as u64);
    }
    Duration::from_nanos(all.quantile(0.5).unwrap_or(0))
}

fn timed(
    rank: &BenchRank,
    window: &Window<u64>,
    stop: Stop<'_>,
    waits: &mut Histogram,
    bypasses: &mut Histogram,
) -> Result<u64, Failure> {
    let acquired_by_all = rank.word(ACQUIRED);
    let mut acquired = 0;
    let clock = clock_overhead();
    while !stop.is_set() {
        let begin = Instant::now();
        let request = window.lock_exclusive(0); // posted: later acquisitions by others count as bypasses
        let before = acquired_by_all.load(Ordering::Relaxed);
        let epoch = request.wait()?;
        let waited = begin.elapsed().saturating_sub(clock);
        let all = acquired_by_all.load(Ordering::Relaxed);
        acquired_by_all.store(all + 1, Ordering::Relaxed);
        epoch.unlock().wait()?;
        waits.add(waited.as_nanos() as u64);
        bypasses.add(all - before);
        acquired += 1;
    }
    Ok(acquired)
}
