//! A lock that nobody has wanted for a while: what it costs meanwhile, and what the first one pays who wants it. Where a thread
//! serves the lock that sleeps, a request has to wake it.

use std::hint::spin_loop;
use std::time::{Duration, Instant};

use onesided_windows::{Error, Window};

use crate::bench::bare_locks::{answer_rings, ring};
use crate::bench::cpu::{Used, told};
use crate::bench::rank::RankOfBench;
use crate::bench::report::Metric;
use crate::bench::spread::Spread;
use crate::bench::worker::Effort;
use crate::failure::Failure;

// Bare words.
const BELL: u64 = 12;
const ANSWER: u64 = 13;

/// How long nobody wants the lock before somebody does, and how often in a run.
const REST: Duration = Duration::from_millis(3);
const TIMES: u64 = 20;

const LIMIT: &str = "futex wake, seen by the waker";
const ALONE: &str = "lock, nobody wanted it for 3 ms";
const BESIDE: &str = "lock, nobody wanted it for 3 ms, target waits in a barrier";
const IDLE: &str = "lock: processor time of a target at rest";

/// Rank 0 is at the lock of rank 1, which sleeps: first by a bare futex, in turns with the lock, then in a barrier, where the
/// events of its rank wake it as well.
pub(crate) fn run(rank: &RankOfBench, effort: Effort) -> Result<(), Failure> {
    let (world, target) = (&rank.world, rank.peer());
    let window = Window::<u64>::allocate(world, 8).wait()?;
    if world.rank() == 0 {
        window.lock_exclusive(target).wait()?.unlock().wait()?; // the first reaches the target's part
    }
    let (mut idle, mut bare, mut alone, mut beside) = (Vec::new(), Vec::new(), Vec::new(), Vec::new());
    let mut rings = 0;
    for _ in 0..effort.runs() {
        world.barrier().wait()?;
        let used = Used::begin();
        std::thread::sleep(effort.resting());
        idle.push(used.part());
        world.barrier().wait()?;
        let counts = rings + 1..=rings + TIMES;
        rings += TIMES;
        if rank.is_target() {
            answer_rings(rank, (BELL, ANSWER), counts);
        } else {
            let (mut woken, mut acquired) = (Vec::new(), Vec::new());
            for count in counts {
                acquired.push(lock(&window, target)?);
                rest();
                woken.push(ring(rank, (BELL, ANSWER), count));
            }
            bare.push(Spread::of(&woken).median);
            alone.push(Spread::of(&acquired).median);
            let acquired: Result<Vec<_>, _> = (0..TIMES).map(|_| lock(&window, target)).collect();
            beside.push(Spread::of(&acquired?).median);
        }
        world.barrier().wait()?;
        rank.step()?;
    }
    let idle = told(rank, &idle)?;
    if world.rank() == 0 {
        rank.alone((IDLE, None), Metric::Cpu, &idle)?;
        // Nobody is woken where no thread serves the lock.
        let wakes = window.info().lock.is_served();
        if wakes && rank.has_limits() {
            rank.limit(LIMIT, Metric::Latency, &bare)?;
        }
        for (what, times) in [(ALONE, alone), (BESIDE, beside)] {
            match wakes {
                true => rank.result(what, Metric::Latency, &times, LIMIT)?,
                false => rank.alone((what, None), Metric::Latency, &times)?,
            }
        }
    }
    Ok(window.close().wait()?)
}

/// How long an acquire takes after a rest, in nanoseconds.
fn lock(window: &Window<u64>, target: u32) -> Result<f64, Error> {
    rest();
    let begin = Instant::now();
    let epoch = window.lock_exclusive(target).wait()?;
    let took = begin.elapsed().as_nanos() as f64;
    epoch.unlock().wait()?;
    Ok(took)
}

/// Without giving up the core, which would then have to wake up itself.
fn rest() {
    let begin = Instant::now();
    while begin.elapsed() < REST {
        spin_loop();
    }
}
