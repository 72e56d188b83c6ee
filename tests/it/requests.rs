//! Lock requests that are waited for later, cancelled, dropped, leaked; and run-time checks.

use std::time::{Duration, Instant};

use onesided::{Error, LockDesign, Mode, Op, Window};

use crate::jobs::Role;
use crate::support::{DEADLINE, eventually, ranks};

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
