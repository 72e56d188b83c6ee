//! Processors: what a computing target does to a lock, and what a lock uses of the target's
//! (jiang-2004, section 6.5).

use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use onesided_windows::Window;

use crate::bench::prelude::*;
use crate::bench::worker::throughput::lock_unlock;
use crate::bench::worker::timing::{CpuUse, compute};

pub(super) static METRIC: LockMetric = LockMetric {
    name: "cpu",
    help: "A target that computes in 0 to 4 threads; two pairs of origin and target at once; what the target's process uses",
    jobs: &[
        (Suite::new("computing-threads", Program::Plain(computing_threads)), Ranks::Always(&[2])),
        (Suite::new("pairs", Program::Plain(pairs)), Ranks::Always(&[4])),
    ],
    descriptions: &[
        Description::of(
            COMPUTING,
            &[Shown::new(Quantity::Latency, "computing").heading("Target computes: lock + unlock")],
        )
        .saying("One rank at the lock of another that computes in so many threads."),
        Description::of(PAIRS, &[Shown::new(Quantity::Latency, "pairs")])
            .saying("Pairs of an origin and its target at once: each core has one of both."),
        Description::of(IDLE, &[Shown::new(Quantity::Cpu, "core: idle")]),
        Description::of(LOCKED, &[Shown::new(Quantity::Cpu, "core: locked")]),
    ],
};

const COMPUTING: &str = "lock + unlock, target computes in threads";
const PAIRS: &str = "lock + unlock, pairs of origin and target";
const IDLE: &str = "lock: processor time of an idle target";
const LOCKED: &str = "lock: processor time of a target locked by a peer";

/// How many threads of the target compute.
const THREADS: [u32; 4] = [0, 1, 2, 4];

/// Rank 0 is at the lock of rank 1, which computes in so many threads.
fn computing_threads(rank: &BenchRank, effort: Effort) -> Result<(), Failure> {
    let world = &rank.world;
    let target = rank.peer();
    let window = Window::<u64>::allocate(world, 8).wait()?;
    let (mut throughput, mut samples) = (Throughput::new(rank), Samples::default());
    let (mut idle, mut locked) = (Vec::new(), Vec::new());
    for _ in 0..effort.runs() {
        // What the target's process uses while both ranks are idle.
        world.barrier().wait()?;
        let cpu_use = CpuUse::begin();
        thread::sleep(effort.sweeping());
        idle.push(cpu_use.fraction());
        for threads in THREADS {
            let mut used = 0.0;
            let outcome = throughput.run(effort.sweeping(), |stop| {
                if !rank.is_target() {
                    return lock_unlock(&window, target, stop);
                }
                let cpu_use = CpuUse::begin();
                let is_over = AtomicBool::new(false);
                thread::scope(|scope| {
                    for _ in 0..threads {
                        scope.spawn(|| {
                            while !is_over.load(Ordering::Relaxed) {
                                compute(Duration::from_millis(1));
                            }
                        });
                    }
                    while !stop.is_set() {
                        thread::sleep(Duration::from_millis(1));
                    }
                    is_over.store(true, Ordering::Relaxed);
                });
                used = cpu_use.fraction();
                Ok(0)
            })?;
            let parameter = Parameter::new("computing threads", threads.into(), "1");
            let nanos = outcome.seconds * 1e9 / outcome.counts[0].max(1.0);
            samples.add(&Point::of(COMPUTING, Quantity::Latency).at(&parameter), nanos);
            if threads == 0 {
                locked.push(used);
            }
        }
        rank.step()?;
    }
    let (idle, locked) = (rank.values_of_target(&idle)?, rank.values_of_target(&locked)?);
    rank.report_all(samples)?;
    rank.report(Point::of(IDLE, Quantity::Cpu), &idle)?;
    rank.report(Point::of(LOCKED, Quantity::Cpu), &locked)?;
    Ok(window.close().wait()?)
}

/// Ranks 0 and 1 are at the locks of ranks 2 and 3: first one pair alone, then both at once. With
/// two cores, each core then has an origin and a target ("one process per processor").
fn pairs(rank: &BenchRank, effort: Effort) -> Result<(), Failure> {
    let world = &rank.world;
    let window = Window::<u64>::allocate(world, 8).wait()?;
    let (mut throughput, mut samples) = (Throughput::new(rank), Samples::default());
    for _ in 0..effort.runs() {
        for pairs in [1, 2] {
            let mine = world.rank() < pairs;
            let outcome = throughput.run(effort.sweeping(), |stop| {
                if mine { lock_unlock(&window, world.rank() + 2, stop) } else { Ok(0) }
            })?;
            let sum: f64 =
                outcome.counts[..pairs as usize].iter().map(|count| outcome.seconds * 1e9 / count.max(1.0)).sum();
            let parameter = Parameter::new("pairs", pairs.into(), "1");
            samples.add(&Point::of(PAIRS, Quantity::Latency).at(&parameter), sum / f64::from(pairs));
        }
        rank.step()?;
    }
    rank.report_all(samples)?;
    Ok(window.close().wait()?)
}
