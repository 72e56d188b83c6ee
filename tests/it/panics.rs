//! Thread-ranks that panic, and ranks that go without closing: the others hear of it, wherever they wait.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Barrier, Mutex};
use std::time::{Duration, Instant};

use onesided::{Error, Op, Window, World};

use crate::support::DEADLINE;

/// What rank 1 of three does at its end, and what the others do meanwhile, until they get an error.
struct Story {
    ends: fn(&World, &Window<u64>),
    /// Asked again and again.
    meanwhile: fn(&World, &Window<u64>) -> Result<(), Error>,
}

/// Plays it, and gives what the others were told.
fn told(story: &Story, panics: bool) -> Vec<String> {
    let told = Mutex::new(Vec::new());
    let met = Barrier::new(3);
    let run = |world: World| {
        let window = Window::<u64>::builder().name("scores").allocate(&world, 100).wait().unwrap();
        world.barrier().wait().unwrap();
        met.wait(); // else the end of rank 1 may be news to who is still in the barrier
        if world.rank() == 1 {
            return (story.ends)(&world, &window);
        }
        let begin = Instant::now();
        let error = loop {
            match (story.meanwhile)(&world, &window) {
                Ok(()) => assert!(begin.elapsed() < DEADLINE, "nobody told rank {}", world.rank()),
                Err(error) => break error,
            }
        };
        assert!(begin.elapsed() < Duration::from_secs(10), "{error}: after {:?}", begin.elapsed());
        told.lock().unwrap().push(error.to_string());
        // Who is told first stays: its leaving would be news too, and the other is asked about the death.
        while told.lock().unwrap().len() < 2 && begin.elapsed() < DEADLINE {
            std::thread::sleep(Duration::from_millis(1));
        }
    };
    let outcome = catch_unwind(AssertUnwindSafe(|| onesided::threads(3, run).map(drop)));
    match outcome {
        Err(panic) => assert_eq!((panics, panic.downcast_ref::<&str>()), (true, Some(&"on purpose"))),
        Ok(outcome) => {
            outcome.unwrap();
            assert!(!panics);
        }
    }
    let told = told.into_inner().unwrap();
    assert_eq!(told.len(), 2, "{told:?}");
    told
}

fn all_say(story: &Story, panics: bool, expected: &[&str]) {
    let told = told(story, panics);
    assert!(told.iter().all(|line| expected.contains(&&**line)), "{told:?}");
}

fn barrier(world: &World, _: &Window<u64>) -> Result<(), Error> {
    Ok(world.barrier().wait()?)
}

const DIED: &str = "barrier: rank 1: the peer died";

#[test]
fn a_panic_between_a_put_and_its_flush() {
    let ends = |_: &World, window: &Window<u64>| {
        let epoch = window.lock_shared(2).wait().unwrap();
        epoch.put(0, &[7; 100]).unwrap();
        drop(epoch.accumulate(0, &[7; 100], Op::Max));
        panic!("on purpose")
    };
    all_say(&Story { ends, meanwhile: barrier }, true, &[DIED]);
}

#[test]
fn a_panic_in_a_lock() {
    let ends = |_: &World, window: &Window<u64>| {
        let _epoch = window.lock_exclusive(0).wait().unwrap();
        let _all = window.lock_shared(2);
        panic!("on purpose")
    };
    let meanwhile = |world: &World, window: &Window<u64>| {
        // The guard released as it was dropped: nobody waits for the dead.
        window.lock_exclusive(0).wait()?.unlock().wait()?;
        barrier(world, window)
    };
    all_say(&Story { ends, meanwhile }, true, &[DIED]);
}

#[test]
fn a_panic_that_leaks_its_lock() {
    let ends = |_: &World, window: &Window<u64>| {
        std::mem::forget(window.lock_exclusive(0).wait().unwrap());
        panic!("on purpose")
    };
    let meanwhile = |_: &World, window: &Window<u64>| Ok(window.lock_exclusive(0).wait()?.unlock().wait()?);
    let died =
        "lock_exclusive on rank 0 of window \"scores\": rank 1 died while it held the lock (`recover` takes it over)";
    all_say(&Story { ends, meanwhile }, true, &[died]);
}

#[test]
fn a_panic_in_a_collective() {
    let ends = |world: &World, _: &Window<u64>| {
        // Entered, and not waited for: the first step is told, the others are not.
        let mut entered = world.barrier().into_future();
        let _ = crate::support::poll_once(&mut entered);
        panic!("on purpose")
    };
    all_say(&Story { ends, meanwhile: barrier }, true, &[DIED]);
    let meanwhile = |world: &World, _: &Window<u64>| {
        Window::<u64>::builder().name("next").allocate(world, 1).wait()?.close().wait().map_err(Error::from)
    };
    let ends = |_: &World, _: &Window<u64>| panic!("on purpose");
    all_say(&Story { ends, meanwhile }, true, &["create window \"next\": rank 1: the peer died"]);
}

#[test]
fn a_panic_in_a_fence() {
    let ends = |_: &World, window: &Window<u64>| {
        let epoch = window.fence().wait().unwrap();
        epoch.at(0).unwrap().put(0, &[1]).unwrap();
        panic!("on purpose")
    };
    let meanwhile = |_: &World, window: &Window<u64>| {
        window.fence().wait()?.end().wait()?;
        Ok(())
    };
    all_say(&Story { ends, meanwhile }, true, &["fence window \"scores\": rank 1: the peer died"]);
}

/// A rank that returns with its windows open has left: those who wait for it hear that, and those who do not go on.
#[test]
fn leaving_without_close() {
    let ends = |_: &World, window: &Window<u64>| {
        window.lock_shared(2).wait().unwrap().put(0, &[1; 100]).unwrap();
    };
    let left = "barrier: rank 1: the peer left the world";
    let meanwhile = |world: &World, window: &Window<u64>| {
        window.lock_exclusive(2).wait()?.unlock().wait()?;
        barrier(world, window)
    };
    // One of them waits for a signal of the other, which gave up.
    all_say(
        &Story { ends, meanwhile },
        false,
        &[left, "barrier: rank 0: the peer left the world", "barrier: rank 2: the peer left the world"],
    );
}
