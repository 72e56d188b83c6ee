//! Processors: what a target that computes does to a lock, and what a lock takes of the target's (jiang-2004, section 6.5).

use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use onesided_windows::Window;
use rustix::time::{ClockId, clock_gettime};

use crate::bench::busy::compute;
use crate::bench::concurrency::lock_unlock;
use crate::bench::contest::Contests;
use crate::bench::rank::RankOfBench;
use crate::bench::report::{Metric, Parameter};
use crate::bench::worker::Effort;
use crate::failure::Failure;

/// How many threads of the target compute.
pub(crate) const THREADS: [u32; 4] = [0, 1, 2, 4];

/// Rank 0 is at the lock of rank 1, which computes in so many threads.
pub(crate) fn computing_threads(rank: &RankOfBench, effort: Effort) -> Result<(), Failure> {
    let world = &rank.world;
    let target = rank.peer();
    let window = Window::<u64>::allocate(world, 8).wait()?;
    let mut contests = Contests::new(rank);
    let mut times = vec![Vec::new(); THREADS.len()];
    let (mut idle, mut serving) = (Vec::new(), Vec::new());
    for _ in 0..effort.runs() {
        // What the target's process takes while nobody does anything.
        world.barrier().wait()?;
        let used = Used::begin();
        thread::sleep(effort.sweeping());
        idle.push(used.part());
        for (threads, times) in THREADS.into_iter().zip(&mut times) {
            let mut used_part = 0.0;
            let outcome = contests.run(effort.sweeping(), |over| {
                if !rank.is_target() {
                    return lock_unlock(&window, target, over);
                }
                let used = Used::begin();
                let stop = AtomicBool::new(false);
                thread::scope(|scope| {
                    for _ in 0..threads {
                        scope.spawn(|| {
                            while !stop.load(Ordering::Relaxed) {
                                compute(Duration::from_millis(1));
                            }
                        });
                    }
                    while !over.is() {
                        thread::sleep(Duration::from_millis(1));
                    }
                    stop.store(true, Ordering::Relaxed);
                });
                used_part = used.part();
                Ok(0)
            })?;
            times.push(outcome.seconds * 1e9 / outcome.counts[0].max(1.0));
            if threads == 0 {
                serving.push(used_part);
            }
        }
        rank.step()?;
    }
    let (idle, serving) = (told(rank, &idle)?, told(rank, &serving)?);
    if world.rank() == 0 {
        for (threads, times) in THREADS.into_iter().zip(&times) {
            let threads = Parameter::new("computing threads", threads.into(), "1");
            rank.alone(("lock + unlock, target computes in threads", Some(threads)), Metric::Latency, times)?;
        }
        rank.alone(("lock: processor time of an idle target", None), Metric::Cpu, &idle)?;
        rank.alone(("lock: processor time of a target locked by a peer", None), Metric::Cpu, &serving)?;
    }
    Ok(window.close().wait()?)
}

/// Ranks 0 and 1 are at the locks of ranks 2 and 3, first one pair alone, then both at once: where there are two cores, every
/// core then has an origin and a target ("one process per processor").
pub(crate) fn pairs(rank: &RankOfBench, effort: Effort) -> Result<(), Failure> {
    let world = &rank.world;
    let window = Window::<u64>::allocate(world, 8).wait()?;
    let mut contests = Contests::new(rank);
    let mut times = [Vec::new(), Vec::new()];
    for _ in 0..effort.runs() {
        for (pairs, times) in [1, 2].into_iter().zip(&mut times) {
            let mine = world.rank() < pairs;
            let outcome = contests.run(effort.sweeping(), |over| {
                if mine { lock_unlock(&window, world.rank() + 2, over) } else { Ok(0) }
            })?;
            let sum: f64 =
                outcome.counts[..pairs as usize].iter().map(|count| outcome.seconds * 1e9 / count.max(1.0)).sum();
            times.push(sum / f64::from(pairs));
        }
        rank.step()?;
    }
    if world.rank() == 0 {
        for (pairs, times) in [1.0, 2.0].into_iter().zip(&times) {
            let pairs = Parameter::new("pairs", pairs, "1");
            rank.alone(("lock + unlock, pairs of origin and target", Some(pairs)), Metric::Latency, times)?;
        }
    }
    Ok(window.close().wait()?)
}

/// The target's figures, for rank 0.
pub(crate) fn told(rank: &RankOfBench, parts: &[f64]) -> Result<Vec<f64>, Failure> {
    if rank.is_target() {
        for (i, part) in parts.iter().enumerate() {
            rank.noted(i).store(part.to_bits(), Ordering::Release);
        }
    }
    rank.world.barrier().wait()?;
    let parts = (0..parts.len()).map(|i| f64::from_bits(rank.noted(i).load(Ordering::Acquire))).collect();
    rank.world.barrier().wait()?;
    Ok(parts)
}

/// What all threads of this process have used of a core since then.
pub(crate) struct Used(Instant, Duration);

impl Used {
    pub(crate) fn begin() -> Self {
        Self(Instant::now(), processor_time())
    }

    /// The part of the time.
    pub(crate) fn part(&self) -> f64 {
        (processor_time() - self.1).as_secs_f64() / self.0.elapsed().as_secs_f64()
    }
}

fn processor_time() -> Duration {
    let time = clock_gettime(ClockId::ProcessCPUTime);
    Duration::new(time.tv_sec as u64, time.tv_nsec as u32)
}
