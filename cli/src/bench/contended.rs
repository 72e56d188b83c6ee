//! All ranks at one lock.

use std::sync::atomic::Ordering;
use std::time::Instant;

use onesided_windows::{Error, LockDesign, Window};

use crate::bench::bare;
use crate::bench::bare_locks::BareLock;
use crate::bench::contest::{Contests, Outcome, Over};
use crate::bench::rank::RankOfBench;
use crate::bench::report::Metric;
use crate::bench::worker::Effort;
use crate::failure::Failure;
use onesided_lock_kit::bench::{jain, share};

// Bare words of the ping-pong.
const PING: u64 = 5;
const PONG: u64 = 6;

/// Round trips of one run of the ping-pong.
const ROUND_TRIPS: u64 = 5000;

pub(crate) fn run(rank: &RankOfBench, effort: Effort) -> Result<(), Failure> {
    let world = &rank.world;
    let window = Window::<u64>::allocate(world, 8).wait()?;
    let design = window.info().lock.name();
    let same = BareLock::of(design).map_or("", BareLock::name); // or nothing
    let mut bare: Vec<_> = BareLock::beside(design).iter().map(|lock| (*lock, Figures::default())).collect();
    let (mut ours, mut ping_pongs) = (Figures::default(), Vec::new());
    let mut contests = Contests::new(rank);
    for _ in 0..effort.runs() {
        if rank.has_limits() {
            for (lock, figures) in &mut bare {
                if world.rank() == 0 {
                    lock.prepare(rank);
                }
                let contend = |over: Over<'_>| Ok(lock.contend(rank, over.word, over.number));
                figures.add(&contests.run(effort.contending(), contend)?);
            }
            if world.size() == 2 {
                ping_pongs.push(ping_pong(rank)?);
            }
        }
        ours.add(&contests.run(effort.contending(), |over| Ok(lock_unlock(over, &window)?))?);
        rank.step()?;
    }
    if world.rank() == 0 {
        if !ping_pongs.is_empty() {
            rank.limit("store, seen by the other core", Metric::Latency, &ping_pongs)?;
        }
        if rank.has_limits() {
            for (lock, figures) in &bare {
                figures.each(|metric, values| rank.limit(lock.name(), metric, values))?;
            }
        }
        ours.each(|metric, values| rank.result("lock + unlock, contended", metric, values, same))?;
        if design == LockDesign::TestAndSet.name() && rank.has_limits() {
            let what = "lock + unlock, contended, beside a mutex";
            rank.result(what, Metric::Acquisitions, &ours.acquisitions, BareLock::Mutex.name())?;
        }
    }
    Ok(window.close().wait()?)
}

/// What came out of several contests.
#[derive(Default)]
struct Figures {
    acquisitions: Vec<f64>,
    shares: Vec<f64>,
    jains: Vec<f64>,
}

impl Figures {
    fn add(&mut self, outcome: &Outcome) {
        self.acquisitions.push(outcome.rate());
        self.shares.push(share(&outcome.counts));
        self.jains.push(jain(&outcome.counts));
    }

    fn each(&self, report: impl Fn(Metric, &[f64]) -> Result<(), Failure>) -> Result<(), Failure> {
        report(Metric::Acquisitions, &self.acquisitions)?;
        report(Metric::Share, &self.shares)?;
        report(Metric::Jain, &self.jains)
    }
}

#[inline(never)]
fn lock_unlock(over: Over<'_>, window: &Window<u64>) -> Result<u64, Error> {
    let mut acquired = 0;
    while !over.is() {
        window.lock_exclusive(0).wait()?.unlock().wait()?;
        acquired += 1;
    }
    Ok(acquired)
}

/// Half a round trip between two ranks, in nanoseconds. The others do not come here.
pub(crate) fn ping_pong(rank: &RankOfBench) -> Result<f64, Failure> {
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
