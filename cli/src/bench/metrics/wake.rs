//! An idle lock: what the first acquire costs, and what the target uses of its core meanwhile.
//! Where a sleeping thread serves the lock, the request has to wake it.

use std::time::{Duration, Instant};

use onesided_windows::{Error, Window};

use crate::bench::baselines::signals::{answer_wakes, wake_and_wait};
use crate::bench::prelude::*;
use crate::bench::worker::timing::{CpuUse, spin_for};

pub(super) static METRIC: LockMetric = LockMetric {
    name: "wake",
    help: "The first acquire of an idle lock, beside a bare futex wake where a thread has to be woken for it, and what an \
           idle target uses of its core",
    jobs: &[(Suite::new("wake", Program::Plain(run)), Ranks::Always(&[2]))],
    descriptions: &[
        Description::of(AFTER_IDLE, &[Shown::new(Quantity::Latency, "lock")]),
        Description::of(IN_BARRIER, &[Shown::new(Quantity::Latency, "in barrier")]),
        Description::of(CPU, &[Shown::new(Quantity::Cpu, "core")]),
    ],
};

/// How long the lock is idle before each acquire, and how many acquires a run has.
const IDLE: Duration = Duration::from_millis(3);
const TIMES: u64 = 20;

const LIMIT: &str = "futex wake, seen by the waker";
const AFTER_IDLE: &str = "lock, idle for 3 ms";
const IN_BARRIER: &str = "lock, idle for 3 ms, target waits in a barrier";
const CPU: &str = "lock, idle: processor time of the target";

/// Rank 0 acquires the lock of rank 1, which sleeps: first in a bare futex, interleaved with the
/// lock, then in a barrier, where events of its rank wake it as well.
fn run(rank: &BenchRank, effort: Effort) -> Result<(), Failure> {
    let (world, target) = (&rank.world, rank.peer());
    let window = Window::<u64>::allocate(world, 8).wait()?;
    if world.rank() == 0 {
        window.lock_exclusive(target).wait()?.unlock().wait()?; // resolves the target
    }
    // Other locks wake no thread.
    let limit = if window.info().lock.is_served() { LIMIT } else { "" };
    let [after_idle, in_barrier] =
        [AFTER_IDLE, IN_BARRIER].map(|what| Point::of(what, Quantity::Latency).beside(limit));
    let (mut cpu, mut samples, mut wakes) = (Vec::new(), Samples::default(), 0);
    for _ in 0..effort.runs() {
        world.barrier().wait()?;
        let cpu_use = CpuUse::begin();
        std::thread::sleep(effort.idle());
        cpu.push(cpu_use.fraction());
        world.barrier().wait()?;
        let numbers = wakes + 1..=wakes + TIMES;
        wakes += TIMES;
        if rank.is_target() {
            answer_wakes(rank, numbers);
        } else {
            let (mut woken, mut acquired) = (Vec::new(), Vec::new());
            for number in numbers {
                acquired.push(lock(&window, target)?);
                spin_for(IDLE);
                woken.push(wake_and_wait(rank, number));
            }
            if !limit.is_empty() && rank.has_limits() {
                samples.add(&Point::limit(LIMIT, Quantity::Latency), median(woken));
            }
            samples.add(&after_idle, median(acquired));
            let acquired: Result<Vec<_>, _> = (0..TIMES).map(|_| lock(&window, target)).collect();
            samples.add(&in_barrier, median(acquired?));
        }
        world.barrier().wait()?;
        rank.step()?;
    }
    let cpu = rank.values_of_target(&cpu)?;
    rank.report(Point::of(CPU, Quantity::Cpu), &cpu)?;
    rank.report_all(samples)?;
    Ok(window.close().wait()?)
}

/// The nanoseconds of an acquire of an idle lock.
fn lock(window: &Window<u64>, target: u32) -> Result<f64, Error> {
    spin_for(IDLE);
    let begin = Instant::now();
    let epoch = window.lock_exclusive(target).wait()?;
    let took = begin.elapsed().as_nanos() as f64;
    epoch.unlock().wait()?;
    Ok(took)
}
