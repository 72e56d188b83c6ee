//! Several origins, each with its own window, at one target (jiang-2004, section 6.3).

use std::sync::atomic::Ordering;

use onesided_two_sided::ServedLock;
use onesided_windows::Window;

use crate::bench::baselines::bare;
use crate::bench::prelude::*;
use crate::bench::worker::served;
use crate::bench::worker::throughput::{Outcome, lock_unlock};

pub(super) static METRIC: LockMetric = LockMetric {
    name: "concurrency",
    help: "1 to 8 origins, each with its own window, at one target",
    jobs: &[(Suite::new("concurrency", Program::Plain(run)), Ranks::Always(&[2, 3, 5, 9]))],
    descriptions: &[
        Description::of(
            BENCHMARK,
            &[Shown::new(Quantity::Latency, "lock").heading("A window for each origin: lock + unlock")],
        )
        .saying("Each origin acquires and releases a lock of its own at one target, which sleeps."),
        Description::of(
            OVER_MESSAGES,
            &[Shown::new(Quantity::Latency, "over messages").heading("A lock for each origin, over messages")],
        )
        .saying("The same with locks that the target's thread serves over messages: they share its engine."),
    ],
};

const BENCHMARK: &str = "lock + unlock, a window for each origin";
const OVER_MESSAGES: &str = "lock + unlock over messages, a lock for each origin";
const LIMIT: &str = "lock: CAS + store, one for each";

/// The last rank is the target, and sleeps.
fn run(rank: &BenchRank, effort: Effort) -> Result<(), Failure> {
    let world = &rank.world;
    let (origins, target) = (world.size() - 1, world.size() - 1);
    let windows: Vec<_> = (0..origins).map(|_| Window::<u64>::allocate(world, 8).wait()).collect::<Result<_, _>>()?;
    let design = windows[0].info().lock;
    let served = (0..origins).map(|_| served::over_messages(rank, design, target)).collect::<Result<Vec<_>, _>>()?;
    let (mut throughput, mut samples) = (Throughput::new(rank), Samples::default());
    let parameter = Parameter::new("origins", origins.into(), "1");
    let limit = Point::limit(LIMIT, Quantity::Latency).at(&parameter);
    let [ours, messages] =
        [BENCHMARK, OVER_MESSAGES].map(|what| Point::of(what, Quantity::Latency).at(&parameter).beside(LIMIT));
    let mine = windows.get(world.rank() as usize);
    for _ in 0..effort.runs() {
        if rank.has_limits() {
            let word = rank.scratch_word(world.rank() as usize * 16);
            word.store(0, Ordering::Relaxed);
            let contend = |stop: Stop<'_>| bare::contend(word, stop.word, stop.number);
            let outcome = throughput.run(effort.sweeping(), |stop| Ok(mine.map_or(0, |_| contend(stop))))?;
            samples.add(&limit, latency(&outcome));
        }
        let outcome = throughput.run(effort.sweeping(), |stop| match mine {
            Some(window) => lock_unlock(window, target, stop),
            None => Ok(0),
        })?;
        samples.add(&ours, latency(&outcome));
        if served[0].is_some() {
            let mine = served.get(world.rank() as usize).and_then(Option::as_ref);
            let outcome = throughput.run(effort.sweeping(), |stop| match mine {
                Some(lock) => lock_unlock_over_messages(lock, stop),
                None => Ok(0),
            })?;
            samples.add(&messages, latency(&outcome));
        }
        rank.step()?;
    }
    rank.report_all(samples)?;
    for window in windows {
        window.close().wait()?;
    }
    Ok(())
}

#[inline(never)]
fn lock_unlock_over_messages(lock: &ServedLock, stop: Stop<'_>) -> Result<u64, Failure> {
    let mut acquired = 0;
    while !stop.is_set() {
        drop(lock.lock().wait()?);
        acquired += 1;
    }
    Ok(acquired)
}

/// The mean nanoseconds of an operation, over the ranks that have done some.
fn latency(outcome: &Outcome) -> f64 {
    let origins = outcome.counts.iter().filter(|count| **count > 0.0);
    let times: Vec<_> = origins.map(|count| outcome.seconds * 1e9 / count).collect();
    times.iter().sum::<f64>() / times.len().max(1) as f64
}
