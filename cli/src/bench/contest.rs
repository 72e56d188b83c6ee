//! All ranks do something for a while, at the same time.

use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use onesided_fabric::{Drive, block_on};

use crate::bench::rank::RankOfBench;
use crate::failure::Failure;
use onesided_lock_kit::bench::Histogram;

// Bare words: who is ready, which contest goes on, which is over.
const READY: u64 = 1;
const BEGUN: u64 = 2;
const OVER: u64 = 3;

/// The contests of a job: every rank makes the same ones, in the same order.
pub(crate) struct Contests<'r, F: onesided_fabric::Fabric> {
    rank: &'r RankOfBench<F>,
    number: u64,
}

/// When a contest is over.
#[derive(Clone, Copy)]
pub(crate) struct Over<'r> {
    pub(crate) word: &'r AtomicU64,
    pub(crate) number: u64,
}

impl Over<'_> {
    #[inline]
    pub(crate) fn is(self) -> bool {
        self.word.load(Ordering::Relaxed) == self.number
    }
}

/// What came out of one.
pub(crate) struct Outcome {
    /// What each rank did, how often.
    pub(crate) counts: Vec<f64>,
    /// How long it took; of rank 0 alone.
    pub(crate) seconds: f64,
}

impl Outcome {
    /// Of all ranks, a second.
    pub(crate) fn rate(&self) -> f64 {
        self.counts.iter().sum::<f64>() / self.seconds
    }
}

impl<'r, F: Drive> Contests<'r, F> {
    pub(crate) const fn new(rank: &'r RankOfBench<F>) -> Self {
        Self { rank, number: 0 }
    }

    /// Has all ranks do something until it is over, which rank 0 says after so long; each gives how often it did it.
    pub(crate) fn run(
        &mut self,
        long: Duration,
        done: impl FnOnce(Over<'_>) -> Result<u64, Failure>,
    ) -> Result<Outcome, Failure> {
        let rank = self.rank;
        self.number += 1;
        let number = self.number;
        let (ready, begun, over) = (rank.word(READY), rank.word(BEGUN), rank.word(OVER));
        rank.world.barrier().wait()?;
        let size = u64::from(rank.world.size());
        let referee = || {
            while ready.load(Ordering::Acquire) < number * size {
                thread::yield_now();
            }
            begun.store(number, Ordering::Release);
            let start = Instant::now();
            thread::sleep(long);
            over.store(number, Ordering::Release);
            start.elapsed().as_secs_f64()
        };
        thread::scope(|scope| {
            let referee = (rank.world.rank() == 0).then(|| scope.spawn(referee));
            ready.fetch_add(1, Ordering::AcqRel);
            while begun.load(Ordering::Acquire) < number {
                thread::yield_now();
            }
            let count = done(Over { word: over, number })?;
            let seconds = referee.map_or(Ok(0.0), |referee| referee.join().map_err(|_| "the referee panicked"))?;
            let all = block_on(rank.world.fabric(), rank.world.all_gather(&count.to_le_bytes()))
                .map_err(onesided_fabric::Error::operation("gather the counts"))?;
            let counts = all.iter().map(|bytes| from_bytes(bytes) as f64).collect();
            Ok(Outcome { counts, seconds })
        })
    }

    /// The ranks' distributions, for rank 0; the others get their own.
    pub(crate) fn gathered(&self, mine: Histogram) -> Result<Vec<Histogram>, Failure> {
        let rank = self.rank;
        let place = |of: u32, word: usize| rank.noted(of as usize * (Histogram::BUCKETS + 1) + word);
        for (word, value) in mine.words().enumerate() {
            place(rank.world.rank(), word).store(value, Ordering::Relaxed);
        }
        rank.world.barrier().wait()?;
        let mut all = vec![mine];
        if rank.world.rank() == 0 {
            for other in 1..rank.world.size() {
                let words = (0..=Histogram::BUCKETS).map(|word| place(other, word).load(Ordering::Relaxed));
                all.push(Histogram::from_words(words));
            }
        }
        rank.world.barrier().wait()?;
        Ok(all)
    }
}

fn from_bytes(bytes: &[u8]) -> u64 {
    bytes.iter().rev().fold(0_u64, |count, byte| count << 8 | u64::from(*byte))
}
