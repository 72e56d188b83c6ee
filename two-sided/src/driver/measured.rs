//! From which length on a slice is offered to another process of this host.
//!
//! The bound between a slice that its receiver copies by a system call and bytes that are copied
//! twice, by the sender into registered memory and by the receiver out of it, depends on the
//! machine: on one, two copies of 32 KiB take half of the time, on another three times as long. So
//! it is found by *tries*: messages between 4 and 128 KiB go either way, in turns, until in each
//! group of lengths (a power of two) each way has been timed [`ENOUGH`] times. What counts is the
//! best sum of the copies, at both ends, and not what lies between: a receiver may be late. One try
//! is under way at a time, so that the next one has warm memory. The bound is known as an interval,
//! which each decision makes shorter.

use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use onesided_fabric::lock;

use crate::Protocol;

/// The bound is in this interval.
pub(crate) const LOWEST: u32 = 4 << 10;
const HIGHEST: u32 = 128 << 10;
/// Powers of two in it.
const CLASSES: usize = (HIGHEST / LOWEST).ilog2() as usize;
/// Tries that decide: of each way.
const ENOUGH: u32 = 16;
/// After so many tries that were not all timed, slices are offered.
const TRIES: u32 = 256;

/// What is known of the bound.
#[derive(Debug)]
pub(crate) struct Measured {
    /// It is at least the low half, at most the high one.
    bound: AtomicU64,
    tries: Mutex<[Tries; CLASSES]>,
    /// Whether a try is under way.
    is_trying: AtomicBool,
}

/// Tries of lengths up to twice the shortest: how many, and of each way how many were timed and the
/// time of the best, in picoseconds a byte.
#[derive(Clone, Copy, Debug, Default)]
struct Tries {
    begun: u32,
    timed: [u32; 2],
    best: [u64; 2],
}

const fn bound(low: u32, high: u32) -> u64 {
    low as u64 | (high as u64) << 32
}

fn class(len: usize) -> Option<usize> {
    let class = (len / LOWEST as usize).checked_ilog2()? as usize;
    (class < CLASSES).then_some(class)
}

impl Default for Measured {
    fn default() -> Self {
        let bound = AtomicU64::new(bound(LOWEST, HIGHEST));
        Self { bound, tries: Mutex::default(), is_trying: AtomicBool::new(false) }
    }
}

impl Measured {
    /// The interval that the bound is in.
    pub(crate) fn bound(&self) -> (u32, u32) {
        let bound = self.bound.load(Ordering::Relaxed);
        (bound as u32, (bound >> 32) as u32)
    }

    /// Begins a try, which is to be [ended](Self::end_try): whether its slice is offered, or copied to
    /// where its receiver reads it. `None`: another is under way.
    pub(crate) fn begin_try(&self, len: usize) -> Option<Protocol> {
        let class = class(len).filter(|_| !self.is_trying.swap(true, Ordering::Relaxed))?;
        let tries = &mut lock(&self.tries)[class];
        tries.begun += 1;
        if tries.begun == TRIES {
            self.decide(class, Protocol::Offered);
        }
        Some(if tries.begun % 2 == 1 { Protocol::Rget } else { Protocol::Offered })
    }

    pub(crate) fn end_try(&self) {
        self.is_trying.store(false, Ordering::Relaxed);
    }

    /// The copies of a try took so long.
    pub(crate) fn learn(&self, by: Protocol, len: usize, nanos: u64) {
        let Some(class) = class(len) else { return };
        let tries = &mut lock(&self.tries)[class];
        let at = usize::from(by != Protocol::Offered);
        let (timed, best) = (&mut tries.timed[at], &mut tries.best[at]);
        let time = nanos.saturating_mul(1000) / len as u64;
        *best = if *timed == 0 { time } else { time.min(*best) };
        *timed += 1;
        if tries.timed.iter().all(|timed| *timed >= ENOUGH) {
            let [slice, copy] = tries.best;
            self.decide(class, if copy < slice { Protocol::Rget } else { Protocol::Offered });
        }
    }

    /// What is longer is offered too, what is shorter is copied.
    fn decide(&self, class: usize, by: Protocol) {
        let shortest = LOWEST << class;
        let _ = self.bound.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |now| {
            let (low, high) = (now as u32, (now >> 32) as u32);
            let is_open = low <= shortest && shortest < high;
            is_open.then(|| if by == Protocol::Offered { bound(low, shortest) } else { bound(2 * shortest, high) })
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn is_open(measured: &Measured, len: usize) -> bool {
        let (low, high) = measured.bound();
        (low as usize..high as usize).contains(&len)
    }

    /// Tries with these costs, in nanoseconds: fixed ones, and ones a KiB.
    fn found(slice: [u64; 2], copy: [u64; 2], lens: &[usize]) -> (u32, u32) {
        let measured = Measured::default();
        for round in 0..40 {
            for len in lens {
                if is_open(&measured, *len)
                    && let Some(by) = measured.begin_try(*len)
                {
                    assert_eq!(measured.begin_try(*len), None);
                    let [fixed, per_kib] = if by == Protocol::Offered { slice } else { copy };
                    // Some come late.
                    let late = if round % 3 == 0 { 50_000 } else { 0 };
                    measured.learn(by, *len, fixed + per_kib * (*len as u64 >> 10) + late);
                    measured.end_try();
                }
            }
        }
        measured.bound()
    }

    #[test]
    fn the_bound_is_between_the_costs() {
        let all = [4 << 10, 9_000, 20_000, 40_000, (64 << 10) - 1, 70_000, (128 << 10) - 1, 128 << 10];
        // A system call costs as much as to copy 10, 100 and 1 KiB once more.
        assert_eq!(found([1_000, 100], [0, 200], &all), (16 << 10, 16 << 10));
        assert_eq!(found([10_000, 100], [0, 200], &all), (64 << 10, 64 << 10));
        assert_eq!(found([100, 100], [0, 200], &all), (4 << 10, 4 << 10));
        // Of one length alone the bound is known on one side.
        assert_eq!(found([10_000, 100], [0, 200], &[20_000]), (32 << 10, 128 << 10));
        assert_eq!(found([100, 100], [0, 200], &[20_000]), (4 << 10, 16 << 10));
    }

    #[test]
    fn tries_that_nobody_times_end() {
        let measured = Measured::default();
        let begun = (0..1000).filter(|_| is_open(&measured, 5_000) && measured.begin_try(5_000).is_some());
        assert_eq!(begun.inspect(|_| measured.end_try()).count() as u32, TRIES);
        assert_eq!(measured.bound(), (4 << 10, 4 << 10));
    }
}
