//! Operations that leave for a lock, counted on the fabric (jiang-2004, section 6.4).
//!
//! What counts is each read, write, compare-swap and fetch-add of a word, whoever's it is, and each message, posted by any
//! rank, a helper at the target included: not what a rank loads, stores and waits for in its own memory.

use std::thread::sleep;
use std::time::Duration;

use onesided_fabric::{Any, block_on};
use onesided_windows::{LockAllDesign, Window};

use crate::bench::contest::{Contests, Over};
use crate::bench::rank::RankOfBench;
use crate::bench::report::{Metric, Parameter};
use crate::bench::worker::Effort;
use crate::failure::Failure;
use onesided_lock_kit::bench::{Counted, Operations};

type CountedWindow = Window<u64, Counted<Any>>;

/// How often what nobody contends for is done.
const TIMES: u64 = 1000;

pub(crate) fn run(rank: &RankOfBench<Counted<Any>>, effort: Effort) -> Result<(), Failure> {
    let world = &rank.world;
    let window = CountedWindow::allocate(world, 8).wait()?;
    if world.rank() == 0 && world.size() <= 2 {
        uncontended(rank, &window)?;
    }
    lock_all(rank)?;
    contended(rank, &window, effort)?;
    Ok(window.close().wait()?)
}

/// What the origin posts, the acquire and the release apart.
fn uncontended(rank: &RankOfBench<Counted<Any>>, window: &CountedWindow) -> Result<(), Failure> {
    let counted = || rank.world.fabric().operations();
    let target = rank.peer();
    window.lock_exclusive(target).wait()?.unlock().wait()?; // the first reaches the target's part
    for exclusive in [true, false] {
        let (mut acquire, mut release) = (0, 0);
        for _ in 0..TIMES {
            let begin = counted();
            let request = if exclusive { window.lock_exclusive(target) } else { window.lock_shared(target) };
            let epoch = request.wait()?;
            let held = counted();
            epoch.unlock().wait()?;
            acquire += (held - begin).total();
            release += (counted() - held).total();
        }
        let mode = if exclusive { "exclusive" } else { "shared" };
        for (what, count) in [("an acquire", acquire), ("a release", release)] {
            let what = format!("{mode} lock: operations of {what}");
            rank.alone((&what, None), Metric::Operations, &[count as f64 / TIMES as f64])?;
        }
    }
    Ok(())
}

/// What the origin posts to lock all parts and to unlock them, on demand, one after the other or at once; and to reach one.
fn lock_all(rank: &RankOfBench<Counted<Any>>) -> Result<(), Failure> {
    let world = &rank.world;
    for design in LockAllDesign::ALL {
        let window = Window::<u64>::builder().lock_all(*design).allocate(world, 8).wait()?;
        for (what, reached) in [("lock_all + unlock_all", 0), ("lock_all + at + unlock_all", 1)] {
            let once = || {
                let all = window.lock_all().wait()?;
                (0..reached).try_for_each(|_| all.at(rank.peer()).wait().map(drop))?;
                all.unlock_all().wait()
            };
            if world.rank() == 0 {
                once()?; // the first reaches all parts
                let begin = world.fabric().operations();
                (0..TIMES).try_for_each(|_| once())?;
                let posted = (world.fabric().operations() - begin).total() as f64 / TIMES as f64;
                let ranks = Some(Parameter::new("ranks", f64::from(world.size()), "1"));
                rank.alone((&format!("{what}, {design}: operations"), ranks), Metric::Operations, &[posted])?;
            }
        }
        window.close().wait()?;
    }
    Ok(())
}

/// What all ranks post for one acquisition and its release. The last rank is the target alone, and sleeps.
fn contended(rank: &RankOfBench<Counted<Any>>, window: &CountedWindow, effort: Effort) -> Result<(), Failure> {
    let world = &rank.world;
    let target = rank.peer();
    let mut contests = Contests::new(rank);
    let (mut totals, mut atomics) = (Vec::new(), Vec::new());
    for _ in 0..effort.runs() {
        let mut mine = Operations::default();
        let contest = contests.run(effort.sweeping(), |over: Over<'_>| {
            let begin = world.fabric().operations();
            let mut acquired = 0;
            while !over.is() {
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
        let of_all = |value: u64| -> Result<f64, Failure> {
            let all = block_on(world.fabric(), world.all_gather(&value.to_le_bytes()))
                .map_err(onesided_fabric::Error::operation("gather the counts"))?;
            let number = |bytes: &Vec<u8>| bytes.iter().rev().fold(0_u64, |sum, byte| sum << 8 | u64::from(*byte));
            Ok(all.iter().map(number).sum::<u64>() as f64)
        };
        let acquired = contest.counts.iter().sum::<f64>().max(1.0);
        totals.push(of_all(mine.total())? / acquired);
        atomics.push(of_all(mine.compare_swaps + mine.fetch_adds)? / acquired);
        rank.step()?;
    }
    if world.rank() == 0 {
        let origins = || Some(Parameter::new("origins", f64::from(world.size().max(2) - 1), "1"));
        let what = "lock + unlock: operations of all ranks";
        rank.alone((what, origins()), Metric::Operations, &totals)?;
        rank.alone((&format!("{what}, atomics"), origins()), Metric::Operations, &atomics)?;
    }
    Ok(())
}
