//! Clocks, waits without a system call, processor time and wake-ups.

use std::hint::{black_box, spin_loop};
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread::yield_now;
use std::time::{Duration, Instant};

use rustix::time::{ClockId, clock_gettime};

/// The monotonic clock, which all processes share, in nanoseconds.
pub(crate) fn now() -> u64 {
    let time = clock_gettime(ClockId::Monotonic);
    time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64
}

/// Polls until it is so. Yields once in so many polls, because the other side may need the core.
#[inline(always)] // into the loop of each limit
pub(crate) fn poll_until(polls: u32, mut is_so: impl FnMut() -> bool) {
    let mut polled = 0;
    while !is_so() {
        polled += 1;
        if polled % polls == 0 { yield_now() } else { spin_loop() }
    }
}

/// Waits until a word is at least `value`.
pub(crate) fn await_word(word: &AtomicU64, value: u64) {
    poll_until(1000, || word.load(Ordering::Acquire) >= value);
}

/// Waits without giving up the core, which would have to wake up first.
pub(crate) fn spin_for(duration: Duration) {
    if duration.is_zero() {
        return;
    }
    let begin = Instant::now();
    while begin.elapsed() < duration {
        spin_loop();
    }
}

/// What a program does that calls no library for a while.
pub(crate) fn compute(duration: Duration) {
    let begin = Instant::now();
    let mut value = 1_u64;
    while begin.elapsed() < duration {
        for _ in 0..10_000 {
            value = black_box(value.wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ value >> 29);
        }
    }
}

/// Measures how much of a core all threads of this process use.
pub(crate) struct CpuUse {
    begin: Instant,
    processor_time: Duration,
}

impl CpuUse {
    pub(crate) fn begin() -> Self {
        Self { begin: Instant::now(), processor_time: processor_time() }
    }

    /// The processor time since `begin`, of all threads of this process.
    pub(crate) fn time(&self) -> Duration {
        processor_time() - self.processor_time
    }

    /// The fraction of a core since `begin`.
    pub(crate) fn fraction(&self) -> f64 {
        self.time().as_secs_f64() / self.begin.elapsed().as_secs_f64()
    }
}

/// How often the threads of this process were woken so far: each sleep is a voluntary context
/// switch. Unlike a count in the library, this has the sleeps of every thread.
pub(crate) fn wake_ups() -> std::io::Result<u64> {
    let mut all = 0;
    for thread in std::fs::read_dir("/proc/self/task")? {
        // A thread may have ended meanwhile.
        let status = std::fs::read_to_string(thread?.path().join("status")).unwrap_or_default();
        let count = status.lines().find_map(|line| line.strip_prefix("voluntary_ctxt_switches:"));
        all += count.and_then(|count| count.trim().parse::<u64>().ok()).unwrap_or_default();
    }
    Ok(all)
}

fn processor_time() -> Duration {
    let time = clock_gettime(ClockId::ProcessCPUTime);
    Duration::new(time.tv_sec as u64, time.tv_nsec as u32)
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc;
    use std::thread;

    use super::*;

    #[test]
    fn a_sleep_is_a_wake_up() {
        // Of a thread that is there at both counts.
        let (ask, asked) = mpsc::channel::<()>();
        let (answer, answered) = mpsc::channel();
        let sleeper = thread::spawn(move || {
            while asked.recv().is_ok() {
                thread::sleep(Duration::from_millis(1));
                answer.send(()).unwrap();
            }
        });
        ask.send(()).unwrap();
        answered.recv().unwrap();
        let before = wake_ups().unwrap();
        for _ in 0..10 {
            ask.send(()).unwrap();
            answered.recv().unwrap();
        }
        assert!(wake_ups().unwrap() >= before + 10);
        drop(ask);
        sleeper.join().unwrap();
    }
}
