//! All ranks at one lock.

use std::sync::atomic::Ordering;
use std::thread;
use std::time::{Duration, Instant};

use fabric::block_on;
use windows::{Error, Window};

use crate::bench::bare;
use crate::bench::rank::RankOfBench;
use crate::bench::report::Metric;
use crate::bench::spread::{jain, share};
use crate::bench::worker::Effort;
use crate::failure::Failure;

// Bare words: who is ready, which contest goes on, which is over, the bare lock, and what the ping-pong uses.
const READY: u64 = 1;
const BEGUN: u64 = 2;
const OVER: u64 = 3;
const LOCK: u64 = 4;
const PING: u64 = 5;
const PONG: u64 = 6;

const SPIN: &str = "lock: CAS, spin and yield";
/// Round trips of one run of the ping-pong.
const ROUND_TRIPS: u64 = 5000;

pub(crate) fn run(rank: &RankOfBench, effort: Effort) -> Result<(), Failure> {
    let world = &rank.world;
    let window = Window::<u64>::allocate(world, 8).wait()?;
    let (mut bare, mut ours, mut ping_pongs) = (Contests::default(), Contests::default(), Vec::new());
    let mut number = 0;
    let mut contest = |contests: &mut Contests, acquire: &dyn Fn(u64) -> Result<u64, Error>| {
        number += 1;
        let contest = contend(rank, number, effort.contending(), acquire)?;
        contests.add(&contest);
        Ok::<_, Failure>(())
    };
    for _ in 0..effort.runs() {
        if rank.has_limits() {
            contest(&mut bare, &|number| Ok(bare::contend(rank.word(LOCK), rank.word(OVER), number)))?;
            if world.size() == 2 {
                ping_pongs.push(ping_pong(rank)?);
            }
        }
        contest(&mut ours, &|number| lock_unlock(rank, &window, number))?;
        rank.step()?;
    }
    if world.rank() == 0 {
        if !ping_pongs.is_empty() {
            rank.limit("store, seen by the other core", Metric::Latency, &ping_pongs)?;
        }
        if rank.has_limits() {
            bare.each(|metric, values| rank.limit(SPIN, metric, values))?;
        }
        ours.each(|metric, values| rank.result("lock + unlock, contended", metric, values, SPIN))?;
    }
    Ok(window.close().wait()?)
}

/// What came out of several contests.
#[derive(Default)]
struct Contests {
    acquisitions: Vec<f64>,
    shares: Vec<f64>,
    jains: Vec<f64>,
}

impl Contests {
    fn add(&mut self, (counts, seconds): &(Vec<f64>, f64)) {
        self.acquisitions.push(counts.iter().sum::<f64>() / seconds);
        self.shares.push(share(counts));
        self.jains.push(jain(counts));
    }

    fn each(&self, report: impl Fn(Metric, &[f64]) -> Result<(), Failure>) -> Result<(), Failure> {
        report(Metric::Acquisitions, &self.acquisitions)?;
        report(Metric::Share, &self.shares)?;
        report(Metric::Jain, &self.jains)
    }
}

/// Has all ranks acquire for a while; gives every rank's count, and the seconds that it took.
fn contend(
    rank: &RankOfBench,
    number: u64,
    long: Duration,
    acquire: &dyn Fn(u64) -> Result<u64, Error>,
) -> Result<(Vec<f64>, f64), Failure> {
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
        let acquired = acquire(number)?;
        let seconds = referee.map_or(Ok(0.0), |referee| referee.join().map_err(|_| "the referee panicked"))?;
        let all = block_on(rank.world.fabric(), rank.world.all_gather(&acquired.to_le_bytes()))
            .map_err(fabric::Error::operation("gather the counts"))?;
        let count =
            |bytes: &Vec<u8>| bytes.iter().rev().fold(0_u64, |count, byte| count << 8 | u64::from(*byte)) as f64;
        Ok((all.iter().map(count).collect(), seconds))
    })
}

#[inline(never)]
fn lock_unlock(rank: &RankOfBench, window: &Window<u64>, number: u64) -> Result<u64, Error> {
    let over = rank.word(OVER);
    let mut acquired = 0;
    while over.load(Ordering::Relaxed) != number {
        window.lock_exclusive(0).wait()?.unlock().wait()?;
        acquired += 1;
    }
    Ok(acquired)
}

/// Half a round trip between two ranks, in nanoseconds.
fn ping_pong(rank: &RankOfBench) -> Result<f64, Failure> {
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
