//! A lock whose target computes: one-sided operations do not depend on the target's processor.

use std::time::{Duration, Instant};

use onesided_windows::Window;

use crate::bench::prelude::*;
use crate::bench::worker::probes::lock_put_unlock;
use crate::bench::worker::timing::{compute, spin_for};

/// Operations of a batch.
const BATCH: u64 = 1000;
/// How long before the first and after the last operation the target computes.
const MARGIN: Duration = Duration::from_millis(10);
/// How many operations are measured right after a pause, and how long the pause is.
const FIRSTS: usize = 15;
const PAUSE: Duration = Duration::from_millis(1);

pub(super) fn run(rank: &BenchRank, effort: Effort) -> Result<(), Failure> {
    let (world, peer) = (&rank.world, rank.peer());
    if peer == 0 {
        return Ok(()); // no target that could compute
    }
    let window = Window::<u64>::allocate(world, 64).wait()?;
    let mut firsts = [Vec::new(), Vec::new()];
    let mut medians = [Vec::new(), Vec::new()];
    for _ in 0..effort.runs() {
        for computes in [false, true] {
            if world.rank() == 0 {
                lock_put_unlock(&window, peer, BATCH)?; // the very first maps the peer's window memory
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
            rank.limit(&idle_target, Quantity::Latency, &idle)?;
            rank.result(&format!("{what}, target computes"), Quantity::Latency, &busy, &idle_target)?;
        }
    }
    Ok(window.close().wait()?)
}

/// Medians in nanoseconds: of the first operation after a pause, and of one of many in a row.
fn measure(window: &Window<u64>, peer: u32, duration: Duration) -> Result<(f64, f64), Failure> {
    let begin = Instant::now();
    spin_for(MARGIN);
    let batch = |n| -> Result<f64, Failure> {
        let start = Instant::now();
        lock_put_unlock(window, peer, n)?;
        Ok(start.elapsed().as_nanos() as f64 / n as f64)
    };
    let mut firsts = Vec::new();
    for _ in 0..FIRSTS {
        spin_for(PAUSE);
        firsts.push(batch(1)?);
    }
    let mut batches = Vec::new();
    while batches.is_empty() || begin.elapsed() + MARGIN < duration {
        batches.push(batch(BATCH)?);
    }
    Ok((Summary::of(&firsts).median, Summary::of(&batches).median))
}
