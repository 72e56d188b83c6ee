//! A lock whose target computes: one-sided means that it makes no difference.

use std::hint::{black_box, spin_loop};
use std::time::{Duration, Instant};

use onesided_windows::Window;

use crate::bench::operations::lock_put_unlock;
use crate::bench::rank::RankOfBench;
use crate::bench::report::Metric;
use crate::bench::spread::Spread;
use crate::bench::worker::Effort;
use crate::failure::Failure;

/// Operations of a batch.
const BATCH: u64 = 1000;
/// Until the target is surely at it, and before it is through.
const MARGIN: Duration = Duration::from_millis(10);
/// Operations that are the first after a pause, and how long that is.
const FIRSTS: usize = 15;
const PAUSE: Duration = Duration::from_millis(1);

pub(crate) fn run(rank: &RankOfBench, effort: Effort) -> Result<(), Failure> {
    let (world, peer) = (&rank.world, rank.peer());
    if peer == 0 {
        return Ok(()); // nobody to compute
    }
    let window = Window::<u64>::allocate(world, 64).wait()?;
    let mut firsts = [Vec::new(), Vec::new()];
    let mut medians = [Vec::new(), Vec::new()];
    for _ in 0..effort.runs() {
        for computes in [false, true] {
            if world.rank() == 0 {
                lock_put_unlock(&window, peer, BATCH)?; // the first of all maps the peer's part
            }
            world.barrier().wait()?;
            if world.rank() == 0 {
                let (first, median) = measure(&window, peer, effort.computing())?;
                firsts[usize::from(computes)].push(first);
                medians[usize::from(computes)].push(median);
            } else if world.rank() == peer && computes {
                compute(effort.computing());
            }
            world.barrier().wait()?;
            rank.step()?;
        }
    }
    if world.rank() == 0 {
        for (what, [idle, busy]) in [("first lock + put 8 B + unlock", firsts), ("lock + put 8 B + unlock", medians)] {
            let idle_target = format!("{what}, target idle");
            rank.limit(&idle_target, Metric::Latency, &idle)?;
            rank.result(&format!("{what}, target computes"), Metric::Latency, &busy, &idle_target)?;
        }
    }
    Ok(window.close().wait()?)
}

/// The first operation after a pause, and one of many in a row, while the target is at it: medians in nanoseconds.
fn measure(window: &Window<u64>, peer: u32, long: Duration) -> Result<(f64, f64), Failure> {
    let begin = Instant::now();
    pause(MARGIN);
    let batch = |n| -> Result<f64, Failure> {
        let start = Instant::now();
        lock_put_unlock(window, peer, n)?;
        Ok(start.elapsed().as_nanos() as f64 / n as f64)
    };
    let mut firsts = Vec::new();
    for _ in 0..FIRSTS {
        pause(PAUSE);
        firsts.push(batch(1)?);
    }
    let mut batches = Vec::new();
    while batches.is_empty() || begin.elapsed() + MARGIN < long {
        batches.push(batch(BATCH)?);
    }
    Ok((Spread::of(&firsts).median, Spread::of(&batches).median))
}

/// Waits without giving up the core, which would then have to wake up first.
fn pause(long: Duration) {
    let begin = Instant::now();
    while begin.elapsed() < long {
        spin_loop();
    }
}

/// What a program does that calls no library for a while.
pub(crate) fn compute(long: Duration) {
    let begin = Instant::now();
    let mut value = 1_u64;
    while begin.elapsed() < long {
        for _ in 0..10_000 {
            value = black_box(value.wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ value >> 29);
        }
    }
}
