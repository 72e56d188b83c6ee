//! How long it takes until a waiter recovers a lock whose owner was killed.

use std::sync::atomic::Ordering;
use std::time::Duration;

use onesided_windows::Window;
use rustix::process::{Signal, getpid, kill_process};

use crate::bench::prelude::*;
use crate::bench::worker::timing::{await_word, now};

pub(super) static METRIC: LockMetric = LockMetric {
    name: "recovery",
    help: "From an owner's death to its lock's recovery by a waiter",
    jobs: &[(Suite { steps: |_| 1, ..Suite::new("recovery", Program::Killed(run)) }, Ranks::Always(&[6]))],
    descriptions: &[Description::of(BENCHMARK, &[Shown::new(Quantity::Latency, "recovered")])],
};

const BENCHMARK: &str = "lock: owner killed to recovered";

// Bare words: the rank that holds the lock, the victim whose lock rank 0 has requested, the time of
// the kill, and the next victim.
const HELD: u64 = 7;
const REQUESTED: u64 = 8;
const KILLED_AT: u64 = 9;
const VICTIM: u64 = 10;

/// All ranks but rank 0 acquire the lock of rank 0 one after the other and are killed with it,
/// while rank 0 waits for it.
///
/// The bare words are memory of the last rank, and outlive it because the other ranks have mapped
/// them.
fn run(rank: &BenchRank, _: Effort) -> Result<(), Failure> {
    let world = &rank.world;
    let window = Window::<u64>::allocate(world, 8).wait()?;
    world.barrier().wait()?;
    let me = u64::from(world.rank());
    if me > 0 {
        await_word(rank.word(VICTIM), me);
        let epoch = window.lock_exclusive(0).wait()?;
        rank.word(HELD).store(me, Ordering::Release);
        await_word(rank.word(REQUESTED), me);
        // Until rank 0 sleeps, or polls at its longest interval.
        std::thread::sleep(Duration::from_millis(5));
        rank.word(KILLED_AT).store(now(), Ordering::Release);
        kill_process(getpid(), Signal::KILL)?;
        epoch.unlock().wait()?; // not reached
        return Ok(());
    }
    let mut times = Vec::new();
    for victim in 1..u64::from(world.size()) {
        rank.word(VICTIM).store(victim, Ordering::Release);
        await_word(rank.word(HELD), victim);
        let request = window.lock_exclusive(0).recover();
        rank.word(REQUESTED).store(victim, Ordering::Release);
        let epoch = request.wait()?;
        let recovered_at = now();
        if epoch.previous_owner().is_none() {
            return Err(format!("the lock was acquired, but not recovered from rank {victim}").into());
        }
        times.push(recovered_at.saturating_sub(rank.word(KILLED_AT).load(Ordering::Acquire)) as f64);
        epoch.unlock().wait()?;
    }
    rank.step()?;
    rank.report(Point::of(BENCHMARK, Quantity::Latency), &times)
}
