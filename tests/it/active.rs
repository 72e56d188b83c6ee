//! Fences, and post, start, complete, wait, between processes; and run-time checks.

use std::sync::Barrier;
use std::time::{Duration, Instant};

use onesided::{Error, FaultKind, Op, Window, WindowError, World};

use crate::faults::status::Status;
use crate::jobs::{self, Role, die, is_short_on_cards, ok};
use crate::support::{DEADLINE, eventually, ranks, run_async};

pub(crate) const ROLES: &[Role] = &[("active", active), ("active death", one_dies)];

/// Every rank is a target of the one before it, and of itself, with fences between.
fn active(world: World) {
    const LEN: usize = 500;
    let (me, size) = (world.rank(), world.size());
    let (before, after) = ((me + size - 1) % size, (me + 1) % size);
    let window = Window::<u64>::allocate(&world, LEN).wait().unwrap();
    let sums = Window::<i32>::allocate(&world, 3).wait().unwrap();
    // An emulated device is slow.
    let rounds = if is_short_on_cards() { 20 } else { 100 };
    for round in 1..=rounds {
        let mut exposure = window.post(&[before, me]).unwrap();
        let epoch = window.start(&[after, me]).wait().unwrap();
        epoch.at(after).unwrap().put(0, &[round; LEN / 2]).unwrap();
        epoch.at(me).unwrap().put(LEN / 2, &[round + 1; LEN / 2]).unwrap();
        epoch.complete().wait().unwrap();
        match round % 3 {
            0 => exposure.wait().unwrap(),
            1 => eventually(DEADLINE, "all_to_all has completed", || exposure.test().unwrap().is_some()),
            _ => run_async(exposure.into_future()).unwrap(),
        }
        let local = window.local().read(0..LEN);
        assert_eq!(
            (local[0], local[LEN / 2 - 1], local[LEN / 2], local[LEN - 1]),
            (round, round, round + 1, round + 1)
        );
        if round % 10 == 0 {
            std::thread::sleep(Duration::from_millis(2 * u64::from(me))); // so that some ranks sleep while they wait
            let epoch = sums.fence().wait().unwrap();
            for target in 0..size {
                epoch.at(target).unwrap().accumulate(1, &[1, -1], Op::Sum).wait().unwrap();
            }
            epoch.end().wait().unwrap();
            let sum = (round / 10 * u64::from(size)) as i32;
            assert_eq!(sums.local().read(0..3), [0, sum, -sum]);
        }
    }
    sums.close().wait().unwrap();
    window.close().wait().unwrap();
    ok();
}

#[test]
fn processes_synchronise_actively() {
    for count in if is_short_on_cards() { vec![3] } else { vec![1, 2, 5] } {
        let ended = jobs::start(count, "active").wait();
        assert_eq!((ended.code, ended.ok()), (0, (0..count).collect()), "{ended:?}");
    }
}

/// Each rank but 0 waits for that one in a different way; the error, and its text before the window.
fn wait_for_0(world: &World, window: &Window<u64>) -> (WindowError, &'static str) {
    let begin = Instant::now();
    match world.rank() {
        1 => (window.start(&[0]).wait().map(drop).unwrap_err(), "start on rank 0 of"),
        2 => match window.post(&[0, 3]) {
            Ok(exposure) => (exposure.wait().unwrap_err(), "wait on rank 0 of"),
            Err(error) => (error, "post on rank 0 of"),
        },
        3 => {
            let mut exposure = match window.post(&[0]) {
                Ok(exposure) => exposure,
                Err(error) => return (error, "post on rank 0 of"),
            };
            let tested = loop {
                match exposure.test() {
                    Ok(done) => assert!(done.is_none()),
                    Err(error) => break error,
                }
                assert!(begin.elapsed() < DEADLINE);
                std::thread::yield_now();
            };
            (tested, "wait on rank 0 of")
        }
        4 => (window.fence().wait().map(drop).unwrap_err(), "fence"),
        5 => (window.local().wait_until_from(0, 0, |value| value > 0).wait().unwrap_err(), "wait_until on rank 5 of"),
        _ => (window.local().wait_until(0, |value| value > 0).wait().unwrap_err(), "wait_until on rank 6 of"),
    }
}

/// Rank 0 dies.
fn one_dies(world: World) {
    let status = Status::new(&world);
    let window = Window::<u64>::builder().name("mortal").allocate(&world, 1).wait().unwrap();
    world.barrier().wait().unwrap();
    if world.rank() == 0 {
        std::thread::sleep(Duration::from_millis(200));
        die();
    }
    let (error, what) = wait_for_0(&world, &window);
    assert_eq!(error.fault().unwrap().kind(), FaultKind::PeerDied);
    assert_eq!(Error::from(error).to_string(), format!("{what} window \"mortal\": rank 0 died"));
    status.all_done();
    ok();
}

#[test]
fn a_death_ends_every_active_wait() {
    let ended = jobs::start(7, "active death").wait();
    assert_eq!(ended.ok(), [1, 2, 3, 4, 5, 6], "{ended:?}");
}

/// Rank 0 leaves, before the waits or in them. The wait for a signal of any rank lasts until all have
/// left.
#[test]
fn a_rank_that_leaves_ends_every_active_wait() {
    for is_late in [false, true] {
        let over = Barrier::new(5);
        ranks(7, move |world| {
            let window = Window::<u64>::builder().name("left").allocate(&world, 1).wait().unwrap();
            if world.rank() == 0 {
                std::thread::sleep(Duration::from_millis(if is_late { 50 } else { 0 }));
                return;
            }
            let (error, what) = wait_for_0(&world, &window);
            let who = if world.rank() == 6 { "no other rank is left" } else { "rank 0 has left" };
            assert_eq!(Error::from(error).to_string(), format!("{what} window \"left\": {who}"));
            if world.rank() != 6 {
                over.wait();
            }
        });
    }
}

#[test]
fn active_waits_keep_their_deadlines() {
    const SHORT: Duration = Duration::from_millis(40);
    let over = Barrier::new(2);
    ranks(2, move |world| {
        let window = Window::<u64>::builder().name("late").allocate(&world, 1).wait().unwrap();
        if world.rank() == 0 {
            let begin = Instant::now();
            let error = window.start(&[1]).deadline(SHORT).wait().map(drop).unwrap_err();
            assert!(error.is_timed_out() && begin.elapsed() >= SHORT);
            let error = window.post(&[1]).unwrap().deadline(SHORT).wait().unwrap_err();
            assert!(error.is_timed_out() && begin.elapsed() >= 2 * SHORT);
            let error = window.fence().deadline(SHORT).wait().map(drop).unwrap_err();
            assert_eq!(error.to_string(), "fence window \"late\": the deadline passed, waiting for rank 1");
        }
        over.wait();
    });
}

/// A leaked or dropped epoch delays only ranks that wait for it.
#[test]
fn leaked_active_epochs_affect_no_other_rank() {
    ranks(2, |world| {
        let window = Window::<u64>::allocate(&world, 1).wait().unwrap();
        if world.rank() == 0 {
            std::mem::forget(window.post(&[1]).unwrap());
            drop(window.post(&[1]).unwrap());
            let exposure = window.post(&[1]).unwrap();
            world.barrier().wait().unwrap();
            exposure.wait().unwrap();
            assert_eq!(window.local().read(0..1), [3]);
        } else {
            world.barrier().wait().unwrap();
            for _ in 0..2 {
                drop(window.start(&[0]).wait().unwrap());
            }
            let epoch = window.start(&[0]).wait().unwrap();
            epoch.at(0).unwrap().put(0, &[3]).unwrap();
            epoch.complete().wait().unwrap();
        }
        // A leaked access keeps its target waiting, whatever comes after it.
        let leaky = Window::<u64>::allocate(&world, 1).wait().unwrap();
        if world.rank() == 0 {
            let (one, another) = (leaky.post(&[1]).unwrap(), leaky.post(&[1]).unwrap());
            world.barrier().wait().unwrap();
            for exposure in [one, another] {
                assert!(exposure.deadline(Duration::from_millis(20)).wait().unwrap_err().is_timed_out());
            }
        } else {
            std::mem::forget(leaky.start(&[0]).wait().unwrap());
            leaky.start(&[0]).wait().unwrap().complete().wait().unwrap();
            world.barrier().wait().unwrap();
        }
        leaky.close().wait().unwrap();
        std::mem::forget(window.fence().wait().unwrap());
        window.fence().wait().unwrap().end().wait().unwrap();
        window.close().wait().unwrap();
    });
}
