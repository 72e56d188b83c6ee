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
    let mut samples = Samples::default();
    for _ in 0..effort.runs() {
        for computes in [false, true] {
            if world.rank() == 0 {
                lock_put_unlock(&window, peer, BATCH)?; // the very first maps the peer's window memory
            }
            world.barrier().wait()?;
            if world.rank() == 0 {
                let nanos = measure(&window, peer, effort.computing())?;
                for (what, nanos) in ["first lock + put 8 B + unlock", "lock + put 8 B + unlock"].into_iter().zip(nanos)
                {
                    let idle = format!("{what}, target idle");
                    let point = match computes {
                        false => Point::limit(idle, Quantity::Latency),
                        true => Point::of(format!("{what}, target computes"), Quantity::Latency).beside(&idle),
                    };
                    samples.add(&point, nanos);
                }
            } else if world.rank() == peer && computes {
                compute(effort.computing());
            }
            world.barrier().wait()?;
            rank.step()?;
        }
    }
    rank.report_all(samples)?;
    Ok(window.close().wait()?)
}

/// Medians in nanoseconds: of the first operation after a pause, and of one of many in a row.
fn measure(window: &Window<u64>, peer: u32, duration: Duration) -> Result<[f64; 2], Failure> {
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
    Ok([firsts, batches].map(median))
}
