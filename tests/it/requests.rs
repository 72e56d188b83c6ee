//! Lock requests that are waited for later, cancelled, dropped, leaked; and run-time checks.

use std::sync::{Barrier, Mutex};
use std::time::{Duration, Instant};

use onesided::{Error, LockAllDesign, LockDesign, Mode, Op, PreviousOwner, Window};

use crate::jobs::Role;
use crate::support::{DEADLINE, eventually, ranks, run_async};

mod cancelled;

pub(crate) const ROLES: &[Role] = &[("gives up last", cancelled::gives_up_last)];

const SHORT: Duration = Duration::from_millis(50);

/// The lock of every rank is free.
fn all_free(window: &Window<u64>) {
    for target in 0..window.world().size() {
        window.lock_exclusive(target).deadline(DEADLINE).wait().unwrap().unlock().wait().unwrap();
        window.world().barrier().wait().unwrap();
    }
}

fn is_locked_by_another(window: &Window<u64>, target: u32) -> bool {
    match window.lock_exclusive(target).deadline(SHORT).wait() {
        Ok(epoch) => {
            epoch.unlock().wait().unwrap();
            false
        }
        Err(error) => {
            assert!(Error::from(error).is_timed_out());
            true
        }
    }
}

#[test]
fn a_lock_is_asked_for_first_and_waited_for_later() {
    ranks(2, |world| {
        let window = Window::<u64>::builder().name("later").allocate(&world, 4).wait().unwrap();
        if world.rank() == 0 {
            let request = window.lock_exclusive(1);
            world.barrier().wait().unwrap(); // it was posted: no other rank gets the lock
            world.barrier().wait().unwrap();
            let epoch = request.wait().unwrap();
            assert_eq!((epoch.mode(), epoch.target(), epoch.len()), (Mode::Exclusive, 1, 4));
            epoch.unlock().wait().unwrap();
        } else {
            world.barrier().wait().unwrap();
            // A thread at the target may serve a later request first; and with a global `lock_all`
            // an acquire is only announced.
            let info = window.info();
            let is_later = info.lock.is_served() || info.lock_all == LockAllDesign::Global;
            assert!(is_locked_by_another(&window, 1) || is_later);
            world.barrier().wait().unwrap();
        }
        all_free(&window);
    });
}

#[test]
fn two_requests_to_two_targets_are_under_way_together() {
    ranks(3, |world| {
        let window = Window::<u64>::allocate(&world, 1).wait().unwrap();
        for _ in 0..200 {
            // Both orders of posting and of waiting; each rank holds one lock at a time, or there
            // would be a deadlock.
            let (near, far) = (world.rank(), (world.rank() + 1) % world.size());
            let (first, second) = (window.lock_shared(near), window.lock_shared(far));
            let (second, first) = (second.wait().unwrap(), first.wait().unwrap());
            first.fetch_add(0, 1).wait().unwrap();
            second.fetch_add(0, 1).wait().unwrap();
            first.unlock().wait().unwrap();
            second.unlock().wait().unwrap();
        }
        world.barrier().wait().unwrap();
        assert_eq!(window.local().read(0..1), [400]);
        window.close().wait().unwrap();
    });
}

#[test]
fn tasks_of_any_runtime_lock_and_wait() {
    ranks(4, |world| {
        run_async(async {
            let window = Window::<u64>::builder().name("async").allocate(&world, 2).await.unwrap();
            for round in 0..50 {
                let epoch = window.lock_exclusive(round % 2).await.unwrap();
                let mut value = [0];
                epoch.get(0, &mut value).await.unwrap();
                epoch.put(0, &[value[0] + 1]).unwrap();
                epoch.flush().await.unwrap();
                epoch.fetch_add(1, 1).await.unwrap();
                epoch.unlock().await.unwrap();
            }
            let all = window.lock_all().await.unwrap();
            all.flush_all().await.unwrap();
            all.unlock_all().await.unwrap();
            world.barrier().await.unwrap();
            if world.rank() < 2 {
                assert_eq!(window.local().read(0..2), [100, 100]);
            }
            window.close().await.unwrap();
        });
    });
}

#[test]
#[allow(clippy::forget_non_drop, reason = "which of them have something to drop is the library's business")]
fn leaked_handles_affect_no_other_rank() {
    ranks(2, |world| {
        let window = Window::<u64>::allocate(&world, 8).wait().unwrap();
        if world.rank() == 0 {
            let epoch = window.lock_exclusive(0).wait().unwrap();
            let mut buffer = [7; 8];
            epoch.put(0, &[1; 8]).unwrap();
            let get = epoch.get(0, &mut buffer);
            std::mem::forget(get);
            std::mem::forget(epoch.fetch_add(0, 5));
            std::mem::forget(epoch.flush());
            std::mem::forget(epoch.accumulate(1, &[0; 7], Op::Or));
            let mut results = [7; 8];
            std::mem::forget(epoch.get_accumulate(0, &[0; 8], &mut results, Op::Or));
            assert!(buffer == [7; 8] || buffer == [1; 8], "{buffer:?}");
            std::mem::forget(epoch);
            std::mem::forget(window.lock_shared(1));
        }
        world.barrier().wait().unwrap();
        // Both locks stay taken, without further effect.
        let tickets = [LockDesign::Ticket, LockDesign::FetchAddQueue, LockDesign::DistributedCounters];
        if tickets.contains(&window.info().lock) {
            // A cancelled ticket that others have queued behind keeps its place: here for good.
            assert!([0, 1].into_iter().all(|target| window.try_lock_exclusive(target).wait().unwrap().is_none()));
        } else {
            // A thread that serves a lock may see a later request first.
            let both = || is_locked_by_another(&window, 0) && is_locked_by_another(&window, 1);
            eventually(DEADLINE, "the leaked handles have their locks", both);
        }
        let epoch = window.lock_shared(1).wait().unwrap();
        epoch.fetch_add(0, 1).wait().unwrap();
        epoch.unlock().wait().unwrap();
        world.barrier().wait().unwrap();
        if world.rank() == 0 {
            assert_eq!(window.local().read(0..8)[1..], [1; 7]);
        }
        let fresh = Window::<u64>::allocate(&world, 1).wait().unwrap();
        all_free(&fresh);
        fresh.close().wait().unwrap();
    });
}

/// Every handle is tested until it is done.
#[test]
fn handles_are_tested_and_then_waited_for() {
    ranks(2, |world| {
        let window = Window::<u32>::builder().name("tested").allocate(&world, 40).wait().unwrap();
        let epoch = window.lock_shared(1 - world.rank()).wait().unwrap();
        let done = |test: &mut dyn FnMut() -> bool| eventually(DEADLINE, "done", test);
        epoch.put(0, &[3; 40]).unwrap();
        let mut flush = epoch.flush();
        done(&mut || flush.test().unwrap().is_some());
        drop(flush);

        let mut into = [0; 40];
        let mut get = epoch.get(0, &mut into);
        done(&mut || get.test().unwrap().is_some());
        drop(get);
        assert_eq!(into, [3; 40]);

        let operands = [2; 40];
        let mut accumulate = epoch.accumulate(0, &operands, Op::Product);
        done(&mut || accumulate.test().unwrap().is_some());
        drop(accumulate);
        let mut accumulate = epoch.get_accumulate(0, &operands, &mut into, Op::Product);
        done(&mut || accumulate.test().unwrap().is_some());
        drop(accumulate);
        assert_eq!(into, [6; 40]);

        for swaps in [true, false] {
            let expected = if swaps { 12 } else { 5 };
            let mut fetch = epoch.compare_and_swap(39, expected, 5);
            let mut found = None;
            done(&mut || {
                found = fetch.test().unwrap();
                found.is_some()
            });
            assert_eq!(found, Some(if swaps { 12 } else { 5 }));
        }

        assert!(epoch.accumulate(39, &[1, 2], Op::Min).test().is_err());
        assert!(epoch.get(30, &mut into).test().is_err());
        epoch.unlock().wait().unwrap();
        window.close().wait().unwrap();
    });
}

/// A handle that returns its result is tested until it does, and waited for no longer than its
/// timeout.
#[test]
fn requests_are_tested_and_waited_for_with_a_timeout() {
    ranks(2, |world| {
        let gate = Window::<u64>::allocate(&world, 1).wait().unwrap();
        let mut allocate = Window::<u64>::allocate(&world, 1);
        let mut window = None;
        eventually(DEADLINE, "allocated", || {
            window = allocate.test().unwrap();
            window.is_some()
        });
        drop(allocate);
        let window = window.unwrap();
        if world.rank() == 0 {
            let mut unlock = window.lock_exclusive(1).wait().unwrap().unlock();
            eventually(DEADLINE, "unlocked", || unlock.test().unwrap().is_some());
            drop(window.lock_exclusive(1).wait().unwrap().unlock());
            let mut unlock = window.lock_exclusive(1).wait().unwrap().unlock();
            assert_eq!(unlock.wait_timeout(DEADLINE).unwrap(), Some(()));
        }
        let mut close = window.close();
        if world.rank() == 0 {
            let begin = Instant::now();
            assert_eq!(close.wait_timeout(Duration::from_millis(20)).unwrap(), None);
            assert!(begin.elapsed() >= Duration::from_millis(20));
            gate.lock_shared(1).wait().unwrap().signal(0, 1).unwrap();
        } else {
            gate.local().wait_until_from(0, 0, |value| value == 1).wait().unwrap();
        }
        assert_eq!(close.wait_timeout(DEADLINE).unwrap(), Some(()));
        gate.close().wait().unwrap();
    });
}

#[test]
fn guards_release_when_they_are_dropped() {
    ranks(2, |world| {
        let window = Window::<u64>::allocate(&world, 1).wait().unwrap();
        for round in 0..100 {
            let target = round % 2;
            drop(window.lock_exclusive(target).wait().unwrap());
            let all = window.lock_all().wait().unwrap();
            all.at(target).wait().unwrap();
            drop(all);
            let mut epochs = window.epochs();
            epochs.lock(target, Mode::Exclusive).wait().unwrap();
        }
        world.barrier().wait().unwrap();
        let panicked = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
            let _epoch = window.lock_exclusive(0).wait().unwrap();
            std::panic::resume_unwind(Box::new(()));
        }));
        assert!(panicked.is_err());
        // That one is poisoned, by the rank that was the last.
        let error = window.lock_exclusive(0).wait().map(drop).map_err(Error::from).unwrap_err();
        assert!(error.to_string().contains("panicked while it held the lock"), "{error}");
        world.barrier().wait().unwrap();
        if world.rank() == 0 {
            let epoch = window.lock_exclusive(0).recover().wait().unwrap();
            assert!(matches!(epoch.previous_owner(), Some(PreviousOwner::Panicked(_))), "{epoch:?}");
            epoch.unlock().wait().unwrap();
        }
        world.barrier().wait().unwrap();
        all_free(&window);
        window.close().wait().unwrap();
    });
}

#[test]
fn epochs_check_what_mpi_leaves_undefined() {
    ranks(2, |world| {
        let window = Window::<u64>::builder().name("checked").allocate(&world, 2).wait().unwrap();
        let mut epochs = window.epochs();
        let text = |error: Error| error.to_string();
        let error = epochs.unlock(1).wait().unwrap_err();
        assert_eq!(text(error.into()), "unlock on rank 1 of window \"checked\": no lock is held there");
        let error = epochs.at(0).unwrap_err();
        assert_eq!(text(error.into()), "at on rank 0 of window \"checked\": no lock is held there");
        epochs.lock(1, Mode::Shared).wait().unwrap();
        let error = epochs.lock(1, Mode::Exclusive).wait().unwrap_err();
        assert_eq!(
            text(error.into()),
            "lock_exclusive on rank 1 of window \"checked\": this rank has locked it already"
        );
        epochs.at(1).unwrap().fetch_add(1, 1).wait().unwrap();
        epochs.unlock(1).wait().unwrap();
        assert!(epochs.unlock(1).wait().is_err() && epochs.at(1).is_err());
        let error = Error::from(epochs.lock(7, Mode::Exclusive).wait().unwrap_err());
        assert_eq!(text(error), "lock_exclusive on rank 7 of window \"checked\": the world has 2 ranks");
        assert!(epochs.unlock(7).wait().is_err());
        all_free(&window);
        drop(epochs);
        window.close().wait().unwrap();
    });
}

/// Another thread of the same rank can wait for a lock while one holds it, and gets it.
#[test]
fn threads_of_a_rank_wait_for_one_another() {
    ranks(1, |world| {
        let window = Window::<u64>::allocate(&world, 1).wait().unwrap();
        let (held, order) = (Barrier::new(2), Mutex::new(Vec::new()));
        std::thread::scope(|scope| {
            scope.spawn(|| {
                let epoch = window.lock_exclusive(0).wait().unwrap();
                held.wait();
                std::thread::sleep(SHORT);
                order.lock().unwrap().push("first");
                epoch.unlock().wait().unwrap();
            });
            held.wait();
            let epoch = window.lock_exclusive(0).wait().unwrap();
            order.lock().unwrap().push("second");
            epoch.unlock().wait().unwrap();
        });
        assert_eq!(*order.lock().unwrap(), ["first", "second"]);
    });
}
