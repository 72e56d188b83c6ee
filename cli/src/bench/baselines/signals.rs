//! Signals between two processes by a store, or by a futex wake: the limits of hand-overs and of
//! served locks.
#![allow(unsafe_code)] // a futex in shared memory

use std::hint::spin_loop;
use std::ops::RangeInclusive;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::time::Instant;

use rustix::thread::futex;

use crate::bench::baselines::bare;
use crate::bench::worker::rank::BenchRank;
use crate::failure::Failure;

// Bare words of the ping-pong.
const PING: u64 = 5;
const PONG: u64 = 6;
/// Round trips of one run of the ping-pong.
const ROUND_TRIPS: u64 = 5000;

// Bare words of the futex wakes.
const WAKE: u64 = 12;
const ANSWER: u64 = 13;

/// Half a round trip by stores between two ranks, in nanoseconds. Only these two call it.
pub(crate) fn ping_pong(rank: &BenchRank) -> Result<f64, Failure> {
    let first = rank.world.rank() == 0;
    let (ping, pong) = (rank.word(PING), rank.word(PONG));
    ping.store(0, Ordering::Relaxed);
    pong.store(0, Ordering::Relaxed);
    rank.world.barrier().wait()?;
    let start = Instant::now();
    if first {
        bare::ping_pong(ping, pong, ROUND_TRIPS, true);
    } else {
        bare::ping_pong(pong, ping, ROUND_TRIPS, false);
    }
    Ok(start.elapsed().as_nanos() as f64 / (2 * ROUND_TRIPS) as f64)
}

/// Wakes a sleeping process on another core and waits for its answer: the least that a lock costs
/// whose server sleeps. Returns the nanoseconds. Wakes are numbered from 1.
pub(crate) fn wake_and_wait(rank: &BenchRank, number: u64) -> f64 {
    let (word, answer) = (futex_word(rank.word(WAKE)), rank.word(ANSWER));
    let begin = Instant::now();
    word.store(number as u32, Ordering::SeqCst);
    wake(word);
    while answer.load(Ordering::Acquire) < number {
        spin_loop();
    }
    begin.elapsed().as_nanos() as f64
}

/// The sleeping side of [`wake_and_wait`]: answers the wakes with these numbers.
pub(crate) fn answer_wakes(rank: &BenchRank, numbers: RangeInclusive<u64>) {
    let (word, answer) = (futex_word(rank.word(WAKE)), rank.word(ANSWER));
    for number in numbers {
        loop {
            let seen = word.load(Ordering::SeqCst);
            if u64::from(seen) >= number {
                break;
            }
            sleep(word, seen);
        }
        answer.store(number, Ordering::Release);
    }
}

/// The low half of a word that is used as a futex alone.
pub(super) fn futex_word(word: &AtomicU64) -> &AtomicU32 {
    // SAFETY: 4 aligned bytes of a live word; each bare word has one use, and this one is never
    // accessed as 8 bytes.
    unsafe { AtomicU32::from_ptr(word.as_ptr().cast()) }
}

pub(super) fn sleep(word: &AtomicU32, value: u32) {
    // Woken, changed or interrupted: the caller reads the word again.
    let _ = futex::wait(word, futex::Flags::empty(), value, None);
}

pub(super) fn wake(word: &AtomicU32) {
    let _ = futex::wake(word, futex::Flags::empty(), 1);
}
