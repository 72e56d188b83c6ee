//! The delay from one origin's release to another's acquisition (jiang-2004, section 6.2).

use std::sync::atomic::Ordering;
use std::thread::sleep;
use std::time::Duration;

use onesided_windows::Window;

use crate::bench::baselines::signals::{answer_wakes, ping_pong, wake_and_wait};
use crate::bench::prelude::*;
use crate::bench::worker::timing::{await_word, now, spin_for};

pub(super) static METRIC: LockMetric = LockMetric {
    name: "delay",
    help: "From one origin's release to another's acquisition, with short and long waits",
    jobs: &[(Suite::new("delay", Program::Plain(run)), Ranks::TwoOrigins)],
    descriptions: &[Description::named(
        Name::StartsWith(BENCHMARKS[0]),
        &[Shown::new(Quantity::Latency, "to acquired")],
    )
    .saying("Two ranks alternate; the time from one's release to the other's acquisition.")],
};

// Bare words: the last hand-over whose lock is held, the last that was requested, the time of the
// release, the last that was released, the last that is done.
const HELD: u64 = 7;
const REQUESTED: u64 = 8;
const RELEASED_AT: u64 = 9;
const RELEASED: u64 = 10;
const DONE: u64 = 11;
/// The scratch words of the delays.
const DELAYS: usize = 1 << 18;

/// How long the lock is held: after the first the waiter still polls, after the second it sleeps.
const HELD_FOR: [Duration; 2] = [Duration::from_micros(20), Duration::from_millis(3)];
const BENCHMARKS: [&str; 2] = ["lock: release to acquired", "lock: release to acquired, long held"];
const LIMITS: [&str; 2] = ["store, seen by the other core", "futex wake, seen by the waker"];
/// Futex wakes of a run.
const WAKES: u64 = 10;

/// Two origins alternate in acquiring first. The target is a third rank if there is a core for it.
fn run(rank: &BenchRank, effort: Effort) -> Result<(), Failure> {
    let world = &rank.world;
    let target = world.size() - 1;
    let window = Window::<u64>::allocate(world, 8).wait()?;
    let held = HELD_FOR.map(|held| Parameter::new("held for", held.as_nanos() as f64, "ns"));
    let has_limits = rank.has_limits() && world.size() == 2;
    let delays = [0, 1].map(|which| {
        let limit = if has_limits { LIMITS[which] } else { "" };
        Point::of(BENCHMARKS[which], Quantity::Latency).at(&held[which]).beside(limit)
    });
    let limits = [0, 1].map(|which| Point::limit(LIMITS[which], Quantity::Latency).at(&held[which]));
    let mut samples = Samples::default();
    let handovers = [effort.handovers(), effort.handovers() / 4];
    let (mut done, mut wakes) = (0, 0);
    for _ in 0..effort.runs() {
        for which in 0..2 {
            world.barrier().wait()?;
            // On cards an acquire takes longer than the shorter of these times.
            let held_for =
                if rank.has_limits() { HELD_FOR[which] } else { HELD_FOR[which].max(Duration::from_millis(1)) };
            if world.rank() < 2 {
                alternate(rank, &window, target, (done, handovers[which]), held_for)?;
            }
            done += handovers[which];
            world.barrier().wait()?;
            if world.rank() == 0 {
                let delay = |i| rank.scratch_word(DELAYS + i as usize).load(Ordering::Acquire) as f64;
                samples.add(&delays[which], median((0..handovers[which]).map(delay)));
            }
        }
        if has_limits {
            samples.add(&limits[0], ping_pong(rank)?);
            let numbers = wakes + 1..=wakes + WAKES;
            wakes += WAKES;
            if world.rank() == 0 {
                let wake = |number| {
                    sleep(Duration::from_millis(2)); // until the other rank sleeps
                    wake_and_wait(rank, number)
                };
                samples.add(&limits[1], median(numbers.map(wake)));
            } else {
                answer_wakes(rank, numbers);
            }
        }
        rank.step()?;
    }
    rank.report_all(samples)?;
    Ok(window.close().wait()?)
}

/// Does `count` hand-overs after the first `before`.
fn alternate(
    rank: &BenchRank,
    window: &Window<u64>,
    target: u32,
    (before, count): (u64, u64),
    held_for: Duration,
) -> Result<(), Failure> {
    let word = |number| rank.word(number);
    for handover in before + 1..=before + count {
        if u64::from(rank.world.rank()) == handover % 2 {
            let epoch = window.lock_exclusive(target).wait()?;
            word(HELD).store(handover, Ordering::Release);
            await_word(word(REQUESTED), handover);
            spin_for(held_for);
            let released_at = now();
            epoch.unlock().wait()?;
            word(RELEASED_AT).store(released_at, Ordering::Relaxed);
            word(RELEASED).store(handover, Ordering::Release);
            await_word(word(DONE), handover);
        } else {
            await_word(word(HELD), handover);
            let request = window.lock_exclusive(target); // its first operation is posted
            word(REQUESTED).store(handover, Ordering::Release);
            let epoch = request.wait()?;
            let acquired_at = now();
            await_word(word(RELEASED), handover);
            let delay = acquired_at.saturating_sub(word(RELEASED_AT).load(Ordering::Relaxed));
            rank.scratch_word(DELAYS + (handover - before - 1) as usize).store(delay, Ordering::Release);
            epoch.unlock().wait()?;
            word(DONE).store(handover, Ordering::Release);
        }
    }
    Ok(())
}
