//! Several origins, each at a window of its own, at one target (jiang-2004, section 6.3).

use std::sync::atomic::{AtomicU64, Ordering};

use onesided_windows::Window;

use crate::bench::contest::{Contests, Outcome, Over};
use crate::bench::rank::RankOfBench;
use crate::bench::report::{Metric, Parameter};
use crate::bench::worker::Effort;
use crate::failure::Failure;

const WHAT: &str = "lock + unlock, a window for each origin";
const LIMIT: &str = "lock: CAS + store, one for each";

/// The last rank is the target, and sleeps.
pub(crate) fn run(rank: &RankOfBench, effort: Effort) -> Result<(), Failure> {
    let world = &rank.world;
    let (origins, target) = (world.size() - 1, world.size() - 1);
    let windows: Vec<_> = (0..origins).map(|_| Window::<u64>::allocate(world, 8).wait()).collect::<Result<_, _>>()?;
    let (mut ours, mut bare) = (Vec::new(), Vec::new());
    let mut contests = Contests::new(rank);
    let mine = windows.get(world.rank() as usize);
    for _ in 0..effort.runs() {
        if rank.has_limits() {
            let word = rank.noted(world.rank() as usize * 16);
            word.store(0, Ordering::Relaxed);
            let outcome = contests.run(effort.sweeping(), |over| Ok(mine.map_or(0, |_| cas_store(word, over))))?;
            bare.push(each(&outcome));
        }
        let outcome = contests.run(effort.sweeping(), |over| match mine {
            Some(window) => lock_unlock(window, target, over),
            None => Ok(0),
        })?;
        ours.push(each(&outcome));
        rank.step()?;
    }
    if world.rank() == 0 {
        let origins = Parameter::new("origins", origins.into(), "1");
        if rank.has_limits() {
            rank.at((LIMIT, Some(origins.clone())), Metric::Latency, &bare, None)?;
        }
        rank.at((WHAT, Some(origins)), Metric::Latency, &ours, Some(LIMIT))?;
    }
    for window in windows {
        window.close().wait()?;
    }
    Ok(())
}

/// How long one took, of those that did something.
fn each(outcome: &Outcome) -> f64 {
    let origins = outcome.counts.iter().filter(|count| **count > 0.0);
    let times: Vec<_> = origins.map(|count| outcome.seconds * 1e9 / count).collect();
    times.iter().sum::<f64>() / times.len().max(1) as f64
}

#[inline(never)]
pub(crate) fn lock_unlock(window: &Window<u64>, target: u32, over: Over<'_>) -> Result<u64, Failure> {
    let mut acquired = 0;
    while !over.is() {
        window.lock_exclusive(target).wait()?.unlock().wait()?;
        acquired += 1;
    }
    Ok(acquired)
}

#[inline(never)]
fn cas_store(word: &AtomicU64, over: Over<'_>) -> u64 {
    let mut acquired = 0;
    while !over.is() {
        while word.compare_exchange(0, 1, Ordering::Acquire, Ordering::Relaxed).is_err() {}
        word.store(0, Ordering::Release);
        acquired += 1;
    }
    acquired
}
