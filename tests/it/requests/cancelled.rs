//! Lock requests that are cancelled: dropped, tested and dropped, ended by a deadline.

use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use onesided::fabric::Drive as _;
use onesided::{Mode, Window, World};

use super::{SHORT, all_free, is_locked_by_another};
use crate::jobs;
use crate::support::{DEADLINE, compute, compute_until, eventually, poll_once, ranks, run_async};

/// What happens to a request for a lock that rank 0 holds; afterwards the lock must be free as soon
/// as rank 0 drops it: that rank, and rank 1, which gave up, compute until rank 2 has had the lock
/// twice.
fn given_up(give_up: fn(&Window<u64>)) {
    // In how many turns rank 1 has given up, and rank 2 has had the lock.
    let [given_up, had] = [const { AtomicUsize::new(0) }; 2];
    ranks(3, move |world| {
        let window = Window::<u64>::builder().name("given up").allocate(&world, 1).wait().unwrap();
        for (turn, mode) in [Mode::Exclusive, Mode::Shared].into_iter().enumerate() {
            let is_given_up = || given_up.load(Ordering::Relaxed) > turn;
            let computes = || {
                let is_had = compute_until(DEADLINE / 2, || had.load(Ordering::Relaxed) > turn);
                assert!(is_had, "the lock is free only when rank {} has time", world.rank());
            };
            if world.rank() == 0 {
                let mut epochs = window.epochs();
                epochs.lock(0, mode).wait().unwrap();
                world.barrier().wait().unwrap();
                eventually(DEADLINE, "it was given up", is_given_up);
                std::thread::sleep(Duration::from_millis(20)); // rank 2 waits by now
                drop(epochs);
                computes();
            } else {
                world.barrier().wait().unwrap();
                if world.rank() == 1 {
                    give_up(&window);
                    given_up.store(turn + 1, Ordering::Relaxed);
                    computes();
                } else {
                    eventually(DEADLINE, "it was given up", is_given_up);
                    window.lock_exclusive(0).deadline(DEADLINE).wait().unwrap().unlock().wait().unwrap();
                    window.lock_exclusive(0).deadline(DEADLINE).wait().unwrap().unlock().wait().unwrap();
                    had.store(turn + 1, Ordering::Relaxed);
                }
            }
            world.barrier().wait().unwrap();
        }
        all_free(&window);
        window.close().wait().unwrap();
        world.close(DEADLINE).unwrap();
    });
}

#[test]
fn a_request_that_is_dropped_at_once_leaves_nothing_locked() {
    given_up(|window| drop(window.lock_exclusive(0)));
    given_up(|window| drop(window.lock_shared(0)));
}

#[test]
fn a_request_that_is_tested_and_dropped_leaves_nothing_locked() {
    given_up(|window| {
        let mut request = window.lock_exclusive(0);
        for _ in 0..3 {
            assert!(request.test().unwrap().is_none());
            std::thread::sleep(Duration::from_millis(1));
        }
    });
}

#[test]
fn a_request_whose_timeout_passed_and_that_is_dropped_leaves_nothing_locked() {
    given_up(|window| {
        let begin = Instant::now();
        assert!(window.lock_exclusive(0).wait_timeout(SHORT).unwrap().is_none());
        assert!(begin.elapsed() >= SHORT);
    });
}

#[test]
fn a_deadline_ends_a_request_that_is_tested() {
    given_up(|window| {
        let mut request = window.lock_exclusive(0).deadline(SHORT);
        let mut error = None;
        eventually(DEADLINE, "the deadline passed", || {
            error = request.test().map(|epoch| assert!(epoch.is_none())).err();
            error.is_some()
        });
        assert!(error.unwrap().is_timed_out());
    });
}

#[test]
fn a_task_that_is_dropped_while_it_waits_leaves_nothing_locked() {
    given_up(|window| {
        let mut future = window.lock_exclusive(0).into_future();
        for _ in 0..3 {
            assert!(poll_once(&mut future).is_pending());
            std::thread::sleep(Duration::from_millis(1));
        }
    });
}

#[test]
fn a_deadline_leaves_nothing_locked() {
    given_up(|window| {
        let begin = Instant::now();
        let error = window.lock_exclusive(0).deadline(SHORT).wait().unwrap_err();
        assert!(error.is_timed_out() && !error.is_owner_died());
        let text = error.to_string();
        assert!(text.starts_with("lock_exclusive on rank 0 of window \"given up\": the deadline passed"), "{text}");
        assert!(begin.elapsed() >= SHORT);
    });
}

#[test]
fn a_lock_of_all_that_is_dropped_leaves_nothing_locked() {
    given_up(|window| match window.lock_all().test().unwrap() {
        Some(all) => drop(all.at(0)), // on demand
        None => drop(window.lock_all()),
    });
}

#[test]
fn a_free_lock_is_acquired_with_a_zero_deadline() {
    ranks(1, |world| {
        let window = Window::<u64>::allocate(&world, 1).wait().unwrap();
        if window.info().lock.is_served() {
            return window.close().wait().unwrap(); // this takes the time of another thread
        }
        window.lock_exclusive(0).deadline(Duration::ZERO).wait().unwrap().unlock().wait().unwrap();
        run_async(window.lock_shared(0).deadline(Duration::ZERO).into_future()).unwrap().unlock().wait().unwrap();
        drop(window.lock_exclusive(0));
        assert!(!is_locked_by_another(&window, 0));
    });
}

/// Rank 1 cancels an acquire just before the end.
pub(super) fn gives_up_last(world: World) {
    let window = Window::<u64>::allocate(&world, 1).wait().unwrap();
    if world.rank() == 0 {
        let epoch = window.lock_exclusive(0).wait().unwrap();
        world.barrier().wait().unwrap();
        compute(Duration::from_millis(2));
        epoch.unlock().wait().unwrap();
    } else {
        world.barrier().wait().unwrap();
        drop(window.lock_exclusive(0));
    }
    window.close().wait().unwrap();
    jobs::ok();
}

#[test]
fn a_cancelled_request_does_not_outlive_the_window() {
    for _ in 0..5 {
        let ended = jobs::start(2, "gives up last").wait();
        // If the endpoint were still trying, the rank would not have left the job.
        assert_eq!((ended.code, ended.ok()), (0, vec![0, 1]), "{ended:?}");
    }
}

#[test]
fn a_lock_that_is_never_released_delays_no_exit() {
    ranks(2, |world| {
        let window = Window::<u64>::allocate(&world, 1).wait().unwrap();
        if world.rank() == 0 {
            std::mem::forget(window.lock_exclusive(0).wait().unwrap());
        }
        world.barrier().wait().unwrap();
        if world.rank() == 1 {
            drop(window.lock_exclusive(0));
        }
        window.close().wait().unwrap();
        // A further attempt would write to memory that its rank may have freed.
        assert_eq!(world.fabric().tasks().unfinished(), 0);
        if world.rank() == 0 {
            eventually(DEADLINE, "the other has left", || !world.is_alive(1));
        }
    });
}

#[test]
fn a_panic_is_a_death_in_spite_of_cancelled_requests() {
    let error_text = Mutex::new(None);
    let run = |world: World| {
        let window = Window::<u64>::allocate(&world, 1).wait().unwrap();
        if world.rank() == 0 {
            std::mem::forget(window.lock_exclusive(0).wait().unwrap());
        }
        world.barrier().wait().unwrap();
        if world.rank() == 1 {
            drop(window.lock_exclusive(0));
            std::panic::resume_unwind(Box::new("on purpose"));
        }
        *error_text.lock().unwrap() = world.barrier().wait().err().map(|error| error.to_string());
    };
    assert!(std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| onesided::fabric::threads(2, run))).is_err());
    assert_eq!(error_text.lock().unwrap().as_deref(), Some("barrier: rank 1 died"));
}
