//! The operations of an acquire and a release, counted on the fabric (jiang-2004, section 6.4).
//!
//! Counted are reads, writes, compare-and-swaps and fetch-adds of a word at any rank, and messages,
//! posted by any rank, helper threads at the target included. What a rank loads, stores and waits
//! for in its own memory is not counted.

use std::thread::sleep;
use std::time::Duration;

use onesided_fabric::Any;
use onesided_lock_kit::bench::{Counted, Operations};
use onesided_windows::{LockAllDesign, Window};

use crate::bench::prelude::*;

pub(super) static METRIC: LockMetric = LockMetric {
    name: "operations",
    help: "Operations that are posted for an acquire and a release, with 1 to 7 origins at one lock",
    jobs: &[(Suite::new("operations", Program::Counted(run)), Ranks::Always(&[2, 3, 5, 8]))],
    descriptions: &[
        Description::of("exclusive lock: operations of an acquire", &[Shown::new(Quantity::Operations, "acquire")]),
        Description::of("exclusive lock: operations of a release", &[Shown::new(Quantity::Operations, "release")]),
        Description::of("shared lock: operations of an acquire", &[Shown::new(Quantity::Operations, "acquire shared")]),
        Description::of("shared lock: operations of a release", &[Shown::new(Quantity::Operations, "release shared")]),
        Description::of(
            CONTENDED,
            &[Shown::new(Quantity::Operations, "contended").heading("Contended: operations an acquisition")],
        )
        .saying("Reads, writes and atomics that all ranks post for one acquisition and its release."),
        Description::of(CONTENDED_ATOMICS, &[]).saying("Of these operations the compare-and-swaps and fetch-adds."),
    ],
};

const CONTENDED: &str = "lock + unlock: operations of all ranks";
const CONTENDED_ATOMICS: &str = "lock + unlock: operations of all ranks, atomics";

type CountedWindow = Window<u64, Counted<Any>>;

/// Repetitions of what is measured without contention.
const TIMES: u64 = 200;

fn run(rank: &BenchRank<Counted<Any>>, effort: Effort) -> Result<(), Failure> {
    let world = &rank.world;
    let window = CountedWindow::allocate(world, 8).wait()?;
    if world.rank() == 0 && world.size() <= 2 {
        uncontended(rank, &window)?;
    }
    lock_all(rank)?;
    contended(rank, &window, effort)?;
    Ok(window.close().wait()?)
}

/// What the origin posts, acquire and release apart.
fn uncontended(rank: &BenchRank<Counted<Any>>, window: &CountedWindow) -> Result<(), Failure> {
    let counted = || rank.world.fabric().operations();
    let target = rank.peer();
    window.lock_exclusive(target).wait()?.unlock().wait()?; // resolves the target
    for exclusive in [true, false] {
        let (mut acquire, mut release) = (0, 0);
        for _ in 0..TIMES {
            let begin = counted();
            let request = if exclusive { window.lock_exclusive(target) } else { window.lock_shared(target) };
            let epoch = request.wait()?;
            let acquired = counted();
            epoch.unlock().wait()?;
            acquire += (acquired - begin).total();
            release += (counted() - acquired).total();
        }
        let mode = if exclusive { "exclusive" } else { "shared" };
        for (what, count) in [("an acquire", acquire), ("a release", release)] {
            let what = format!("{mode} lock: operations of {what}");
            rank.report(Point::of(what, Quantity::Operations), &[count as f64 / TIMES as f64])?;
        }
    }
    Ok(())
}

/// What the origin posts to lock all ranks and to unlock them, by each lock-all design; without and
/// with an access to one rank in between.
fn lock_all(rank: &BenchRank<Counted<Any>>) -> Result<(), Failure> {
    let world = &rank.world;
    for design in LockAllDesign::ALL {
        let window = Window::<u64>::builder().lock_all(*design).allocate(world, 8).wait()?;
        for (what, accesses) in [("lock_all + unlock_all", 0), ("lock_all + at + unlock_all", 1)] {
            let once = || {
                let all = window.lock_all().wait()?;
                (0..accesses).try_for_each(|_| all.at(rank.peer()).wait().map(drop))?;
                all.unlock_all().wait()
            };
            if world.rank() == 0 {
                once()?; // resolves all ranks
                let begin = world.fabric().operations();
                (0..TIMES).try_for_each(|_| once())?;
                let posted = (world.fabric().operations() - begin).total() as f64 / TIMES as f64;
                let ranks = Parameter::new("ranks", f64::from(world.size()), "1");
                let what = format!("{what}, {design}: operations");
                rank.report(Point::of(what, Quantity::Operations).at(&ranks), &[posted])?;
            }
        }
        window.close().wait()?;
    }
    Ok(())
}

/// What all ranks post for one acquisition and its release. The last rank is the target only, and
/// sleeps.
fn contended(rank: &BenchRank<Counted<Any>>, window: &CountedWindow, effort: Effort) -> Result<(), Failure> {
    let world = &rank.world;
    let target = rank.peer();
    let (mut throughput, mut samples) = (Throughput::new(rank), Samples::default());
    let origins = Parameter::new("origins", f64::from(world.size().max(2) - 1), "1");
    let [totals, atomics] =
        [CONTENDED, CONTENDED_ATOMICS].map(|what| Point::of(what, Quantity::Operations).at(&origins));
    for _ in 0..effort.runs() {
        let mut mine = Operations::default();
        let outcome = throughput.run(effort.sweeping(), |stop: Stop<'_>| {
            let begin = world.fabric().operations();
            let mut acquired = 0;
            while !stop.is_set() {
                if rank.is_target() && target > 0 {
                    sleep(Duration::from_millis(1));
                    continue;
                }
                window.lock_exclusive(target).wait()?.unlock().wait()?;
                acquired += 1;
            }
            mine = world.fabric().operations() - begin;
            Ok(acquired)
        })?;
        let of_all = |value| Ok::<f64, Failure>(rank.counts_of_all(value)?.iter().sum());
        let acquired = outcome.counts.iter().sum::<f64>().max(1.0);
        samples.add(&totals, of_all(mine.total())? / acquired);
        samples.add(&atomics, of_all(mine.compare_swaps + mine.fetch_adds)? / acquired);
        rank.step()?;
    }
    rank.report_all(samples)
}
