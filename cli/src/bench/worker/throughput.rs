//! Throughput runs: all ranks do something for a while, at the same time.

use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use onesided_fabric::Drive;
use onesided_lock_kit::bench::Histogram;
use onesided_windows::Window;

use crate::bench::worker::rank::BenchRank;
use crate::failure::Failure;

// Bare words: the number of ranks that were ever ready, the run that has begun, the run that is
// over.
const READY: u64 = 1;
const BEGUN: u64 = 2;
const OVER: u64 = 3;

/// The throughput runs of a job. All ranks make the same runs in the same order.
pub(crate) struct Throughput<'r, F: onesided_fabric::Fabric> {
    rank: &'r BenchRank<F>,
    number: u64,
}

/// Tells when a run is over.
#[derive(Clone, Copy)]
pub(crate) struct Stop<'r> {
    pub(crate) word: &'r AtomicU64,
    pub(crate) number: u64,
}

impl Stop<'_> {
    #[inline]
    pub(crate) fn is_set(self) -> bool {
        self.word.load(Ordering::Relaxed) == self.number
    }
}

/// The outcome of a run.
pub(crate) struct Outcome {
    /// How many operations each rank has done.
    pub(crate) counts: Vec<f64>,
    /// The duration; 0 at ranks other than 0.
    pub(crate) seconds: f64,
}

impl Outcome {
    /// Operations of all ranks a second.
    pub(crate) fn rate(&self) -> f64 {
        self.counts.iter().sum::<f64>() / self.seconds
    }
}

impl<'r, F: Drive> Throughput<'r, F> {
    pub(crate) const fn new(rank: &'r BenchRank<F>) -> Self {
        Self { rank, number: 0 }
    }

    /// Has all ranks do `work` until rank 0 stops them after `duration`. `work` returns how many
    /// operations it has done.
    pub(crate) fn run(
        &mut self,
        duration: Duration,
        work: impl FnOnce(Stop<'_>) -> Result<u64, Failure>,
    ) -> Result<Outcome, Failure> {
        let rank = self.rank;
        self.number += 1;
        let number = self.number;
        let (ready, begun, over) = (rank.word(READY), rank.word(BEGUN), rank.word(OVER));
        rank.world.barrier().wait()?;
        let size = u64::from(rank.world.size());
        let timer = || {
            while ready.load(Ordering::Acquire) < number * size {
                thread::yield_now();
            }
            begun.store(number, Ordering::Release);
            let start = Instant::now();
            thread::sleep(duration);
            over.store(number, Ordering::Release);
            start.elapsed().as_secs_f64()
        };
        thread::scope(|scope| {
            let timer = (rank.world.rank() == 0).then(|| scope.spawn(timer));
            ready.fetch_add(1, Ordering::AcqRel);
            while begun.load(Ordering::Acquire) < number {
                thread::yield_now();
            }
            let count = work(Stop { word: over, number })?;
            let seconds = timer.map_or(Ok(0.0), |timer| timer.join().map_err(|_| "the timer panicked"))?;
            Ok(Outcome { counts: rank.counts_of_all(count)?, seconds })
        })
    }

    /// The histograms of all ranks at rank 0; at the others, their own.
    pub(crate) fn gather(&self, mine: Histogram) -> Result<Vec<Histogram>, Failure> {
        let rank = self.rank;
        let len = mine.words().count();
        let slot = |of: u32, word: usize| rank.scratch_word(of as usize * len + word);
        for (word, value) in mine.words().enumerate() {
            slot(rank.world.rank(), word).store(value, Ordering::Relaxed);
        }
        rank.world.barrier().wait()?;
        let mut all = vec![mine];
        if rank.world.rank() == 0 {
            for other in 1..rank.world.size() {
                let words = (0..len).map(|word| slot(other, word).load(Ordering::Relaxed));
                all.push(Histogram::from_words(words));
            }
        }
        rank.world.barrier().wait()?;
        Ok(all)
    }
}

/// Acquires and releases the lock of `target` until the run is over.
#[inline(never)]
pub(crate) fn lock_unlock(window: &Window<u64>, target: u32, stop: Stop<'_>) -> Result<u64, Failure> {
    let mut acquired = 0;
    while !stop.is_set() {
        window.lock_exclusive(target).wait()?.unlock().wait()?;
        acquired += 1;
    }
    Ok(acquired)
}
