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
        Description::of(
            BENCHMARK,
            &[
                Shown::new(Quantity::Acquisitions, "acquired").key().heading("Contended: acquisitions a second"),
                Shown::new(Quantity::Share, "share").key().heading("Contended: smallest over largest share"),
            ],
        )
        .saying("All ranks acquire and release the lock of one rank as often as they can."),
        Description::of(BESIDE_MUTEX, &[])
            .saying("The same as the contended lock, beside the C library's shared mutex."),
    ],
};

const BENCHMARK: &str = "lock + unlock, contended";
const BESIDE_MUTEX: &str = "lock + unlock, contended, beside a mutex";

fn run(rank: &BenchRank, effort: Effort) -> Result<(), Failure> {
    let world = &rank.world;
    let window = Window::<u64>::allocate(world, 8).wait()?;
    let design = window.info().lock.name();
    let limit = BareLock::of(design).map_or("", BareLock::name);
    let (mut throughput, mut samples) = (Throughput::new(rank), Samples::default());
    for _ in 0..effort.runs() {
        if rank.has_limits() {
            for lock in BareLock::beside(design) {
                if world.rank() == 0 {
                    lock.prepare(rank);
                }
                let contend = |stop: Stop<'_>| Ok(lock.contend(rank, stop.word, stop.number));
                let outcome = throughput.run(effort.contending(), contend)?;
                add(&mut samples, &outcome, |quantity| Point::limit(lock.name(), quantity));
            }
            if world.size() == 2 {
                samples.add(&Point::limit("store, seen by the other core", Quantity::Latency), ping_pong(rank)?);
            }
        }
        let outcome = throughput.run(effort.contending(), |stop| lock_unlock(&window, 0, stop))?;
        add(&mut samples, &outcome, |quantity| Point::of(BENCHMARK, quantity).beside(limit));
        if design == LockDesign::TestAndSet.name() && rank.has_limits() {
            let beside_mutex = Point::of(BESIDE_MUTEX, Quantity::Acquisitions).beside(BareLock::Mutex.name());
            samples.add(&beside_mutex, outcome.rate());
        }
        rank.step()?;
    }
    rank.report_all(samples)?;
    Ok(window.close().wait()?)
}

fn add(samples: &mut Samples, outcome: &Outcome, point: impl Fn(Quantity) -> Point) {
    samples.add(&point(Quantity::Acquisitions), outcome.rate());
    samples.add(&point(Quantity::Share), share(&outcome.counts));
    samples.add(&point(Quantity::Jain), jain(&outcome.counts));
}
