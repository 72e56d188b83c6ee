//! All ranks at one lock.

use onesided_lock_kit::bench::{jain, share};
use onesided_windows::{LockDesign, Window};

use crate::bench::baselines::locks::BareLock;
use crate::bench::baselines::signals::ping_pong;
use crate::bench::prelude::*;
use crate::bench::worker::throughput::{Outcome, lock_unlock};

pub(super) static METRIC: LockMetric = LockMetric {
    name: "contended",
    help: "Acquisitions a second when all ranks are at one lock, and how fair that is",
    jobs: &[(Suite::new("contended", Program::Plain(run)), Ranks::Default(&[2, 4, 8]))],
    descriptions: &[
        Description {
            benchmark: Name::Is(BENCHMARK),
            sentence: "All ranks acquire and release the lock of one rank as often as they can.",
            shown: &[
                Shown::new(Quantity::Acquisitions, "acquired").key().heading("Contended: acquisitions a second"),
                Shown::new(Quantity::Share, "share").key().heading("Contended: smallest over largest share"),
            ],
        },
        Description {
            benchmark: Name::Is(BESIDE_MUTEX),
            sentence: "The same as the contended lock, beside the C library's shared mutex.",
            shown: &[],
        },
    ],
};

const BENCHMARK: &str = "lock + unlock, contended";
const BESIDE_MUTEX: &str = "lock + unlock, contended, beside a mutex";

fn run(rank: &BenchRank, effort: Effort) -> Result<(), Failure> {
    let world = &rank.world;
    let window = Window::<u64>::allocate(world, 8).wait()?;
    let design = window.info().lock.name();
    let limit = BareLock::of(design).map_or("", BareLock::name);
    let mut bare: Vec<_> = BareLock::beside(design).iter().map(|lock| (*lock, Values::default())).collect();
    let (mut ours, mut ping_pongs) = (Values::default(), Vec::new());
    let mut throughput = Throughput::new(rank);
    for _ in 0..effort.runs() {
        if rank.has_limits() {
            for (lock, values) in &mut bare {
                if world.rank() == 0 {
                    lock.prepare(rank);
                }
                let contend = |stop: Stop<'_>| Ok(lock.contend(rank, stop.word, stop.number));
                values.add(&throughput.run(effort.contending(), contend)?);
            }
            if world.size() == 2 {
                ping_pongs.push(ping_pong(rank)?);
            }
        }
        ours.add(&throughput.run(effort.contending(), |stop| lock_unlock(&window, 0, stop))?);
        rank.step()?;
    }
    if world.rank() == 0 {
        if !ping_pongs.is_empty() {
            rank.limit("store, seen by the other core", Quantity::Latency, &ping_pongs)?;
        }
        if rank.has_limits() {
            for (lock, values) in &bare {
                values.each(|quantity, values| rank.limit(lock.name(), quantity, values))?;
            }
        }
        ours.each(|quantity, values| rank.result(BENCHMARK, quantity, values, limit))?;
        if design == LockDesign::TestAndSet.name() && rank.has_limits() {
            rank.result(BESIDE_MUTEX, Quantity::Acquisitions, &ours.acquisitions, BareLock::Mutex.name())?;
        }
    }
    Ok(window.close().wait()?)
}

/// The runs' values.
#[derive(Default)]
struct Values {
    acquisitions: Vec<f64>,
    shares: Vec<f64>,
    jains: Vec<f64>,
}

impl Values {
    fn add(&mut self, outcome: &Outcome) {
        self.acquisitions.push(outcome.rate());
        self.shares.push(share(&outcome.counts));
        self.jains.push(jain(&outcome.counts));
    }

    fn each(&self, report: impl Fn(Quantity, &[f64]) -> Result<(), Failure>) -> Result<(), Failure> {
        report(Quantity::Acquisitions, &self.acquisitions)?;
        report(Quantity::Share, &self.shares)?;
        report(Quantity::Jain, &self.jains)
    }
}
