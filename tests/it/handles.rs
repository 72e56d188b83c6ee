//! Every handle has `test` and `wait_timeout` beside `wait`. Each is tested before it can be done,
//! waited for too short a time, and then until it is done.

use std::future::Future;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use onesided::{Error, LockAllDesign, Mode, Mutex, Op, RwLock, Shape, Window, WindowError, World};

use crate::support::{DEADLINE, eventually, poll_once, ranks};

const SHORT: Duration = Duration::from_millis(5);

/// Steps that synchronise ranks as threads, without the library.
#[derive(Clone, Default)]
pub(crate) struct Steps(Arc<AtomicU64>);

impl Steps {
    pub(crate) fn reach(&self, step: u64) {
        self.0.store(step, Ordering::Release);
    }

    pub(crate) fn wait(&self, step: u64) {
        eventually(DEADLINE, "the other rank's step", || self.0.load(Ordering::Acquire) >= step);
    }
}

/// Tests, waits too short, then tests until it is done; by the type's own `test` and
/// `wait_timeout`, which belong to no trait.
macro_rules! not_yet {
    ($handle:ident) => {{
        assert!($handle.test().unwrap().is_none());
        let begin = Instant::now();
        assert!($handle.wait_timeout(SHORT).unwrap().is_none());
        assert!(begin.elapsed() >= SHORT);
        assert!($handle.test().unwrap().is_none());
    }};
}

macro_rules! until_done {
    ($handle:ident) => {{
        let mut done = None;
        eventually(DEADLINE, "it is done", || {
            done = $handle.test().unwrap();
            done.is_some()
        });
        done.unwrap()
    }};
}

macro_rules! soon {
    ($handle:ident) => {
        $handle.wait_timeout(DEADLINE).unwrap().unwrap()
    };
}

/// Rank 1 joins a collective only after rank 0 has tested; then both again, with the other kind of
/// wait.
#[test]
fn collectives_are_tested() {
    let steps = Steps::default();
    ranks(2, move |world| {
        let window = Window::<u64>::allocate(&world, 1).wait().unwrap();
        if world.rank() == 0 {
            let mut barrier = world.barrier();
            not_yet!(barrier);
            steps.reach(1);
            until_done!(barrier);
            let mut barrier = world.barrier();
            not_yet!(barrier);
            steps.reach(2);
            barrier.wait().unwrap();

            let mut split = world.split(7, 0);
            not_yet!(split);
            steps.reach(3);
            let subworld = until_done!(split);
            assert_eq!((subworld.rank(), subworld.size()), (0, 2));

            let mut fence = window.fence();
            not_yet!(fence);
            steps.reach(4);
            let epoch = until_done!(fence);
            epoch.at(1).unwrap().put(0, &[5]).unwrap();
            let mut fence = epoch.fence();
            not_yet!(fence);
            steps.reach(5);
            let epoch = soon!(fence);
            epoch.end().wait().unwrap();
        } else {
            steps.wait(1);
            world.barrier().wait().unwrap();
            steps.wait(2);
            world.barrier().wait().unwrap();
            steps.wait(3);
            world.split(7, 0).wait().unwrap();
            steps.wait(4);
            let epoch = window.fence().wait().unwrap();
            steps.wait(5);
            let epoch = epoch.fence().wait().unwrap();
            assert_eq!(window.local().read(0..1), [5]);
            epoch.end().wait().unwrap();
        }
        window.close().wait().unwrap();
    });
}

#[test]
fn active_synchronisation_is_tested() {
    let steps = Steps::default();
    ranks(2, move |world| {
        let window = Window::<u64>::allocate(&world, 1).wait().unwrap();
        for round in 1..=2 {
            if world.rank() == 0 {
                let mut dropped = window.start(&[1]);
                not_yet!(dropped);
                drop(dropped); // has not begun
                let mut start = window.start(&[1]);
                not_yet!(start);
                steps.reach(2 * round - 1);
                let epoch = if round == 1 { until_done!(start) } else { soon!(start) };
                epoch.at(1).unwrap().put(0, &[round]).unwrap();
                steps.wait(2 * round);
                epoch.complete().wait().unwrap();
            } else {
                steps.wait(2 * round - 1);
                let mut exposure = window.post(&[0]).unwrap();
                not_yet!(exposure);
                steps.reach(2 * round);
                if round == 1 {
                    until_done!(exposure);
                } else {
                    soon!(exposure);
                }
                assert_eq!(window.local().read(0..1), [round]);
            }
        }
        window.close().wait().unwrap();
    });
}

#[test]
fn a_wait_for_a_signal_is_tested() {
    ranks(2, |world| {
        let window = Window::<u64>::allocate(&world, 2).wait().unwrap();
        let (local, other) = (window.local(), window.lock_shared(1 - world.rank()).wait().unwrap());
        if world.rank() == 0 {
            for round in 1..=3 {
                let mut handle = local.wait_until_from(1, 0, move |value| value >= round);
                not_yet!(handle);
                other.signal(1, round).unwrap();
                let seen = match round {
                    1 => until_done!(handle),
                    2 => soon!(handle),
                    _ => handle.wait().unwrap(),
                };
                assert_eq!(seen, round);
            }
            // A deadline also applies to a handle that is only tested.
            let mut handle = local.wait_until(0, |value| value > 3).deadline(SHORT);
            eventually(DEADLINE, "the deadline passed", || handle.test().is_err_and(|error| error.is_timed_out()));
        } else {
            for round in 1..=3 {
                local.wait_until(1, move |value| value >= round).wait().unwrap();
                other.signal(0, round).unwrap();
            }
        }
        other.unlock().wait().unwrap();
        window.close().wait().unwrap();
    });
}

/// Rank 0 holds a lock while rank 1 tests; what rank 1 begins, tests and drops leaves nothing
/// locked and nothing put.
fn while_locked(mode: Mode, run: impl Fn(&Window<u64>, &dyn Fn()) + Send + Sync + 'static) {
    while_locked_of((mode, None), run);
}

/// The same with a given design of `lock_all`.
fn while_locked_of(
    (mode, all): (Mode, Option<LockAllDesign>),
    run: impl Fn(&Window<u64>, &dyn Fn()) + Send + Sync + 'static,
) {
    let steps = Steps::default();
    ranks(2, move |world| {
        let builder = all.map_or_else(Window::<u64>::builder, |all| Window::<u64>::builder().lock_all(all));
        let window = builder.allocate(&world, 2).wait().unwrap();
        if world.rank() == 0 {
            let epoch = match mode {
                Mode::Exclusive => window.lock_exclusive(0).wait().unwrap(),
                Mode::Shared => window.lock_shared(0).wait().unwrap(),
            };
            world.barrier().wait().unwrap();
            steps.wait(1);
            epoch.unlock().wait().unwrap();
        } else {
            world.barrier().wait().unwrap();
            run(&window, &|| steps.reach(1));
        }
        world.barrier().wait().unwrap();
        for _ in 0..2 {
            window.lock_exclusive(0).deadline(DEADLINE).wait().unwrap().unlock().wait().unwrap();
        }
        window.close().wait().unwrap();
    });
}

#[test]
fn a_lock_of_all_is_tested() {
    for design in [LockAllDesign::EachTarget, LockAllDesign::Global] {
        while_locked_of((Mode::Exclusive, Some(design)), |window, release| {
            let mut dropped = window.lock_all();
            not_yet!(dropped);
            drop(dropped);
            let mut all = window.lock_all();
            not_yet!(all);
            release();
            let all = until_done!(all);
            all.at(0).wait().unwrap().put(0, &[1]).unwrap();
            all.unlock_all().wait().unwrap();
        });
        while_locked_of((Mode::Exclusive, Some(design)), |window, release| {
            let mut all = window.lock_all();
            not_yet!(all);
            release();
            all.wait().unwrap().unlock_all().wait().unwrap();
        });
    }
}

#[test]
fn a_target_that_is_locked_on_demand_is_tested() {
    while_locked_of((Mode::Exclusive, Some(LockAllDesign::OnDemand)), |window, release| {
        let mut all = window.lock_all();
        let all = all.test().unwrap().unwrap();
        let mut free = all.at(1);
        until_done!(free);
        drop(free);
        let mut dropped = all.at(0);
        not_yet!(dropped);
        drop(dropped);
        let (mut one, mut other) = (all.at(0), all.at(0));
        not_yet!(one);
        not_yet!(other);
        release();
        let access = until_done!(one);
        assert!(std::ptr::eq(access, soon!(other)));
        access.put(0, &[1]).unwrap();
        drop((one, other));
        all.unlock_all().wait().unwrap();
    });
}

#[test]
fn locked_operations_are_tested() {
    while_locked(Mode::Exclusive, |window, release| {
        let home = window.locked(0);
        let (mut got, mut changed) = ([7; 2], [7; 2]);
        let mut dropped = home.put(0, &[9, 9]);
        not_yet!(dropped);
        drop(dropped);
        let mut dropped = home.update(0, &mut changed, |_| panic!("without the lock"));
        not_yet!(dropped);
        drop(dropped);
        let mut get = home.get(0, &mut got);
        not_yet!(get);
        release();
        until_done!(get);
        drop(get);
        assert_eq!(got, [0, 0], "what was dropped has put nothing");
        let mut put = home.put(0, &[1, 2]);
        until_done!(put);
        let mut update = home.update(0, &mut changed, |elements| {
            elements[1] += 1;
            elements[0]
        });
        assert_eq!(soon!(update), 1);
        drop(update);
        home.get(0, &mut got).wait().unwrap();
        assert_eq!(got, [1, 3]);
    });
}

#[test]
fn versioned_calls_are_tested() {
    while_locked(Mode::Shared, |window, release| {
        let table = window.clone().versioned();
        let mut dropped = table.write(0);
        not_yet!(dropped);
        drop(dropped);
        let mut write = table.write(0);
        not_yet!(write);
        release();
        let epoch = until_done!(write);
        epoch.put(0, &[4, 4]).unwrap();
        let mut found = [0; 2];
        let mut read = table.read_into(0, 0, &mut found); // overlaps this writer
        not_yet!(read);
        drop(read);
        epoch.unlock().wait().unwrap();
        let mut read = table.read_into(0, 0, &mut found);
        until_done!(read);
        drop(read);
        assert_eq!(found, [4, 4]);
    });
}

/// Each is a future that may be polled in place, and a test in between changes nothing.
#[test]
fn handles_are_futures() {
    fn future<R>(handle: impl Future<Output = R> + Unpin + Send) {
        drop(handle);
    }
    ranks(1, |world: World| {
        let window = Window::<u64>::allocate(&world, 1).wait().unwrap();
        let (local, mut into) = (window.local(), [0]);
        future(world.barrier());
        future(world.split(0, 0));
        future(window.fence());
        future(window.start(&[0]));
        future(window.lock_exclusive(0));
        future(window.lock_all());
        future(window.lock_all().wait().unwrap().at(0));
        future(window.locked(0).get(0, &mut into));
        future(window.locked(0).put(0, &[1]));
        future(window.locked(0).update(0, &mut into, |_| ()));
        future(local.wait_until(0, |_| true));
        let mut barrier = world.barrier();
        assert!(poll_once(&mut barrier).is_ready());
        // A handle that was dropped before its first poll has not begun: the next one is in step.
        drop(world.barrier());
        world.barrier().wait().unwrap();
        // An error is returned as an error.
        let mut nobody = window.locked(3).get(0, &mut into);
        let error = nobody.test().unwrap_err();
        assert!(matches!(error, WindowError::Rank { target: 3, .. }), "{}", Error::from(error));
        drop(nobody);
        window.close().wait().unwrap();
    });
}

/// A try-lock of a value finds it free, or taken.
#[test]
fn values_are_locked_if_they_are_free() {
    ranks(2, |world| {
        let (value, limits) =
            (Mutex::new(&world, 1, 7_u64).wait().unwrap(), RwLock::new(&world, 0, 7_u64).wait().unwrap());
        let (same, here) = (value.clone(), world.rank() == 0);
        if here {
            *same.try_lock().wait().unwrap().unwrap() = 8;
            assert_eq!(*limits.try_read().wait().unwrap().unwrap(), 7);
        }
        world.barrier().wait().unwrap();
        let held = here.then(|| (value.lock().wait().unwrap(), limits.read().wait().unwrap()));
        world.barrier().wait().unwrap();
        if !here {
            assert!(value.try_lock().wait().unwrap().is_none());
            assert!(limits.try_write().recover().wait().unwrap().is_none());
            assert_eq!(*limits.try_read().wait().unwrap().unwrap(), 7);
        }
        world.barrier().wait().unwrap();
        drop(held);
        world.barrier().wait().unwrap();
        assert_eq!(*same.lock().wait().unwrap(), 8);
        world.barrier().wait().unwrap();
        same.close().wait().unwrap();
        assert!(value.lock().wait().is_err(), "another clone closed it");
        limits.close().wait().unwrap();
    });
}

/// A handle yields its result once.
#[test]
fn a_handle_that_is_over_panics() {
    fn once<R>(mut handle: impl Future<Output = R> + Unpin) {
        eventually(DEADLINE, "it is over", || poll_once(&mut handle).is_ready());
        let again = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| drop(poll_once(&mut handle))));
        assert!(again.is_err());
    }
    ranks(1, |world: World| {
        let window = Window::<u64>::allocate(&world, 4).wait().unwrap();
        once(window.lock_exclusive(0));
        once(window.lock_exclusive(9)); // also an error
        once(window.try_lock_shared(0));
        once(window.lock_exclusive(0).wait().unwrap().unlock());
        once(window.lock_all());
        let all = window.lock_all().wait().unwrap();
        once(all.at(0)); // locks it
        once(all.at(0));
        once(all.flush_all());
        once(all.unlock_all());
        let epoch = window.lock_exclusive(0).wait().unwrap();
        let mut into = [0; 2];
        once(epoch.get(0, &mut into));
        once(epoch.get(3, &mut into));
        once(epoch.flush());
        once(epoch.fetch_add(0, 1));
        once(epoch.fetch_and_op(0, 1, Op::Product));
        once(epoch.accumulate(0, &[1], Op::Sum));
        once(epoch.accumulate(0, &[1, 2], Op::Product));
        once(epoch.put_shaped(0, Shape::Row(2), &[1, 2]));
        once(epoch.fencing_token());
        once(epoch.unlock());
        once(window.post(&[]).unwrap());
        once(window.fence());
        once(window.close());
    });
}
