//! Ranks as threads that panic, and ranks that leave without closing: the others get an error
//! wherever they wait.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Barrier, Mutex};
use std::time::{Duration, Instant};

use onesided::{Error, Op, PreviousOwner, Window, World};

use crate::support::DEADLINE;

/// The end of rank 1 of three, and what the others do meanwhile, until they get an error.
struct Scenario {
    ends: fn(&World, &Window<u64>),
    /// Called repeatedly.
    meanwhile: fn(&World, &Window<u64>) -> Result<(), Error>,
}

/// Runs it, and returns the errors of the others.
fn errors(scenario: &Scenario, panics: bool) -> Vec<String> {
    let errors = Mutex::new(Vec::new());
    let start = Barrier::new(3);
    let run = |world: World| {
        let window = Window::<u64>::builder().name("scores").allocate(&world, 100).wait().unwrap();
        world.barrier().wait().unwrap();
        start.wait(); // otherwise a rank that is still in the barrier may learn the end of rank 1 there
        if world.rank() == 1 {
            return (scenario.ends)(&world, &window);
        }
        let begin = Instant::now();
        let error = loop {
            match (scenario.meanwhile)(&world, &window) {
                Ok(()) => assert!(begin.elapsed() < DEADLINE, "rank {} got no error", world.rank()),
                Err(error) => break error,
            }
        };
        errors.lock().unwrap().push(error.to_string());
        // The first rank to get the error stays: its leaving would be an error, too, and the other
        // must report the death.
        while errors.lock().unwrap().len() < 2 && begin.elapsed() < DEADLINE {
            std::thread::sleep(Duration::from_millis(1));
        }
    };
    let outcome = catch_unwind(AssertUnwindSafe(|| onesided::fabric::threads(3, run).map(drop)));
    match outcome {
        Err(panic) => assert_eq!((panics, panic.downcast_ref::<&str>()), (true, Some(&"on purpose"))),
        Ok(outcome) => {
            outcome.unwrap();
            assert!(!panics);
        }
    }
    let errors = errors.into_inner().unwrap();
    assert_eq!(errors.len(), 2, "{errors:?}");
    errors
}

fn all_report(scenario: &Scenario, panics: bool, expected: &[&str]) {
    let errors = errors(scenario, panics);
    assert!(errors.iter().all(|line| expected.contains(&&**line)), "{errors:?}");
}

fn barrier(world: &World, _: &Window<u64>) -> Result<(), Error> {
    Ok(world.barrier().wait()?)
}

const DIED: &str = "barrier: rank 1 died";

#[test]
fn a_panic_between_a_put_and_its_flush() {
    let ends = |_: &World, window: &Window<u64>| {
        let epoch = window.lock_shared(2).wait().unwrap();
        epoch.put(0, &[7; 100]).unwrap();
        drop(epoch.accumulate(0, &[7; 100], Op::Max));
        panic!("on purpose")
    };
    all_report(&Scenario { ends, meanwhile: barrier }, true, &[DIED]);
}

const PANICKED: &str =
    "lock_exclusive on rank 0 of window \"scores\": rank 1 panicked while it held the lock (`recover` takes it over)";

#[test]
fn a_panic_in_a_lock() {
    let ends = |_: &World, window: &Window<u64>| {
        let _epoch = window.lock_exclusive(0).wait().unwrap();
        let _read = window.lock_shared(2).wait().unwrap();
        let _request = window.lock_shared(2);
        panic!("on purpose")
    };
    let meanwhile = |_: &World, window: &Window<u64>| {
        // Shared guards and requests release as they are dropped.
        window.lock_exclusive(2).wait()?.unlock().wait()?;
        window.lock_exclusive(0).wait()?.unlock().wait().map_err(Error::from)
    };
    all_report(&Scenario { ends, meanwhile }, true, &[PANICKED]);
    let meanwhile = |world: &World, window: &Window<u64>| {
        let epoch = window.lock_exclusive(0).recover().wait()?;
        assert!(matches!(epoch.previous_owner(), None | Some(PreviousOwner::Panicked(1))), "{epoch:?}");
        epoch.unlock().wait()?;
        barrier(world, window)
    };
    all_report(&Scenario { ends, meanwhile }, true, &[DIED]);
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
    all_report(&Scenario { ends, meanwhile }, true, &[died]);
}

#[test]
fn a_panic_in_a_collective() {
    let ends = |world: &World, _: &Window<u64>| {
        // Begun, and not waited for: the first step is posted, the others are not.
        let mut entered = world.barrier().into_future();
        let _ = crate::support::poll_once(&mut entered);
        panic!("on purpose")
    };
    all_report(&Scenario { ends, meanwhile: barrier }, true, &[DIED]);
    let meanwhile = |world: &World, _: &Window<u64>| {
        Window::<u64>::builder().name("next").allocate(world, 1).wait()?.close().wait().map_err(Error::from)
    };
    let ends = |_: &World, _: &Window<u64>| panic!("on purpose");
    all_report(&Scenario { ends, meanwhile }, true, &["create window \"next\": rank 1 died"]);
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
    all_report(&Scenario { ends, meanwhile }, true, &["fence window \"scores\": rank 1 died"]);
}

/// A rank that returns with its windows open has left: ranks that wait for it get an error, the
/// others continue.
#[test]
fn leaving_without_close() {
    let ends = |_: &World, window: &Window<u64>| {
        window.lock_shared(2).wait().unwrap().put(0, &[1; 100]).unwrap();
    };
    let left = "barrier: rank 1 has left";
    let meanwhile = |world: &World, window: &Window<u64>| {
        window.lock_exclusive(2).wait()?.unlock().wait()?;
        barrier(world, window)
    };
    // One of them waits for a signal of the other, which gave up.
    all_report(&Scenario { ends, meanwhile }, false, &[left, "barrier: rank 0 has left", "barrier: rank 2 has left"]);
}

#[derive(Clone, Copy, onesided::bytemuck::Pod, onesided::bytemuck::Zeroable)]
#[bytemuck(crate = "onesided::bytemuck")]
#[repr(C)]
struct Row {
    row: [u64; 4],
}

/// A panic for the caller's mistake names the caller's line.
#[test]
fn a_mistake_is_told_at_the_line_that_makes_it() {
    use std::panic::{set_hook, take_hook};
    thread_local! {
        static IS_CALLER: std::cell::Cell<bool> = const { std::cell::Cell::new(false) };
    }
    let others = take_hook();
    set_hook(Box::new(move |panic| {
        IS_CALLER.set(panic.location().is_some_and(|place| place.file().ends_with(file!())));
        others(panic);
    }));
    crate::support::ranks(1, |world| {
        let window = Window::<[u64; 4]>::allocate(&world, 2).wait().unwrap();
        let value = onesided::Mutex::new(&world, 0, 0_u64).wait().unwrap();
        let mistakes: [&dyn Fn(); 3] = [
            &|| drop(window.local().read(1..3)),
            &|| {
                let mut lock = value.lock();
                assert!(lock.test().unwrap().is_some());
                drop(lock.recover());
            },
            &|| {
                let _ = onesided::field!(Row, row).element(std::hint::black_box(4));
            },
        ];
        for (index, mistake) in mistakes.into_iter().enumerate() {
            IS_CALLER.set(false);
            catch_unwind(AssertUnwindSafe(mistake)).unwrap_err();
            assert!(IS_CALLER.get(), "mistake {index}");
        }
    });
}
