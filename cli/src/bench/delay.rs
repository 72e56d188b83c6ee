//! From one origin's release to the other's having the lock (jiang-2004, section 6.2).

use std::hint::spin_loop;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread::{sleep, yield_now};
use std::time::{Duration, Instant};

use onesided_windows::Window;
use rustix::time::{ClockId, clock_gettime};

use crate::bench::bare_locks::{answer_rings, ring};
use crate::bench::contended::ping_pong;
use crate::bench::rank::RankOfBench;
use crate::bench::report::{Metric, Parameter};
use crate::bench::spread::Spread;
use crate::bench::worker::Effort;
use crate::failure::Failure;

// Bare words: whose turn has been taken, who has asked, when the lock was released, what is done.
const HELD: u64 = 7;
const ASKED: u64 = 8;
const RELEASED_AT: u64 = 9;
const RELEASED: u64 = 10;
const DONE: u64 = 11;
const BELL: u64 = 12;
const ANSWER: u64 = 13;
/// Where the delays are noted.
const NOTED: usize = 1 << 18;

/// How long the lock is held: the waiter still looks for it after the first, and sleeps after the second.
const HELD_FOR: [Duration; 2] = [Duration::from_micros(20), Duration::from_millis(3)];
const WHAT: [&str; 2] = ["lock: release to acquired", "lock: release to acquired, long held"];
const LIMITS: [&str; 2] = ["store, seen by the other core", "futex wake, seen by the waker"];

/// Two origins take turns in coming first. The target is a third rank if there is a core for it.
pub(crate) fn run(rank: &RankOfBench, effort: Effort) -> Result<(), Failure> {
    let world = &rank.world;
    let target = world.size() - 1;
    let window = Window::<u64>::allocate(world, 8).wait()?;
    let (mut delays, mut limits) = ([Vec::new(), Vec::new()], [Vec::new(), Vec::new()]);
    let turns = [effort.turns(), effort.turns() / 4];
    let (mut turn, mut rings) = (0, 0);
    for _ in 0..effort.runs() {
        for which in 0..2 {
            world.barrier().wait()?;
            // On cards a lock takes longer than it is to be held for.
            let held_for =
                if rank.has_limits() { HELD_FOR[which] } else { HELD_FOR[which].max(Duration::from_millis(1)) };
            if world.rank() < 2 {
                take_turns(rank, &window, target, (turn, turns[which]), held_for)?;
            }
            turn += turns[which];
            world.barrier().wait()?;
            if world.rank() == 0 {
                let noted = (0..turns[which]).map(|i| rank.noted(NOTED + i as usize).load(Ordering::Acquire) as f64);
                delays[which].push(Spread::of(&noted.collect::<Vec<_>>()).median);
            }
        }
        if rank.has_limits() && world.size() == 2 {
            limits[0].push(ping_pong(rank)?);
            let counts = rings + 1..=rings + 10;
            rings += 10;
            if world.rank() == 0 {
                let ring = |count| {
                    sleep(Duration::from_millis(2)); // until the other sleeps
                    ring(rank, (BELL, ANSWER), count)
                };
                limits[1].push(Spread::of(&counts.map(ring).collect::<Vec<_>>()).median);
            } else {
                answer_rings(rank, (BELL, ANSWER), counts);
            }
        }
        rank.step()?;
    }
    if world.rank() == 0 {
        for which in 0..2 {
            let held = Parameter::new("held for", HELD_FOR[which].as_nanos() as f64, "ns");
            if limits[which].is_empty() {
                rank.alone((WHAT[which], Some(held)), Metric::Latency, &delays[which])?;
            } else {
                rank.at((LIMITS[which], Some(held.clone())), Metric::Latency, &limits[which], None)?;
                rank.at((WHAT[which], Some(held)), Metric::Latency, &delays[which], Some(LIMITS[which]))?;
            }
        }
    }
    Ok(window.close().wait()?)
}

fn take_turns(
    rank: &RankOfBench,
    window: &Window<u64>,
    target: u32,
    (first, turns): (u64, u64),
    held_for: Duration,
) -> Result<(), Failure> {
    let word = |number| rank.word(number);
    for turn in first + 1..=first + turns {
        if u64::from(rank.world.rank()) == turn % 2 {
            let epoch = window.lock_exclusive(target).wait()?;
            word(HELD).store(turn, Ordering::Release);
            await_word(word(ASKED), turn);
            let begin = Instant::now();
            while begin.elapsed() < held_for {
                spin_loop();
            }
            let released_at = now();
            epoch.unlock().wait()?;
            word(RELEASED_AT).store(released_at, Ordering::Relaxed);
            word(RELEASED).store(turn, Ordering::Release);
            await_word(word(DONE), turn);
        } else {
            await_word(word(HELD), turn);
            let request = window.lock_exclusive(target); // its first operation has left
            word(ASKED).store(turn, Ordering::Release);
            let epoch = request.wait()?;
            let acquired_at = now();
            await_word(word(RELEASED), turn);
            let delay = acquired_at.saturating_sub(word(RELEASED_AT).load(Ordering::Relaxed));
            rank.noted(NOTED + (turn - first - 1) as usize).store(delay, Ordering::Release);
            epoch.unlock().wait()?;
            word(DONE).store(turn, Ordering::Release);
        }
    }
    Ok(())
}

/// The clock that all processes share.
pub(crate) fn now() -> u64 {
    let time = clock_gettime(ClockId::Monotonic);
    time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64
}

pub(crate) fn await_word(word: &AtomicU64, value: u64) {
    let mut looks = 0;
    while word.load(Ordering::Acquire) < value {
        looks += 1;
        if looks % 1000 == 0 { yield_now() } else { spin_loop() }
    }
}
