//! Fences, and post, start, complete, wait, with ranks that die, leave, or leak an epoch.

use std::sync::Barrier;
use std::time::{Duration, Instant};

use onesided::{Error, FaultKind, Window, WindowError, World};

use crate::faults::status::Status;
use crate::jobs::{self, Role, die, ok};
use crate::support::{DEADLINE, ranks};

pub(crate) const ROLES: &[Role] = &[("active death", one_dies)];

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
