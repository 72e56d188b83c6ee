//! A thread that panics under a guard, in a rank that lives on: an exclusive guard of a window or a
//! table leaves the lock poisoned, and nothing else does.

use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::time::Duration;

use onesided::{
    Error, FaultKind, LeasePolicy, LockAllDesign, LockDesign, LockTable, Mode, Mutex, PreviousOwner, RwLock, Window,
};

use crate::support::{DEADLINE, poll_once, ranks};

/// Runs it, and panics at its end: what it returns is dropped as the stack unwinds.
fn panicking<R>(run: impl FnOnce() -> R) {
    let panic = catch_unwind(AssertUnwindSafe(|| {
        let _dropped = run();
        resume_unwind(Box::new("on purpose")); // without a message
    }));
    assert_eq!(panic.unwrap_err().downcast_ref(), Some(&"on purpose"));
}

/// Runs it in a destructor, as the stack unwinds.
fn unwinding(run: impl FnMut()) {
    struct Last<R: FnMut()>(R);
    impl<R: FnMut()> Drop for Last<R> {
        fn drop(&mut self) {
            (self.0)();
        }
    }
    panicking(|| Last(run));
}

/// What an acquire fails with after rank 1 has panicked.
fn is_told(error: Error, what: &str) {
    let fault = error.fault().map(|fault| (fault.kind(), fault.rank().map(|rank| rank.0)));
    assert_eq!(fault, Some((FaultKind::OwnerPanicked, Some(1))), "{error}");
    assert!(error.is_poisoned() && !error.is_owner_died() && !error.is_timed_out(), "{error}");
    assert_eq!(error.to_string(), format!("{what}: rank 1 panicked while it held the lock (`recover` takes it over)"));
}

/// The lock is free and not poisoned.
fn works(window: &Window<u64>, target: u32) {
    for _ in 0..2 {
        let epoch = window.lock_exclusive(target).recover().deadline(DEADLINE).wait().unwrap();
        assert_eq!((epoch.previous_owner(), epoch.mode()), (None, Mode::Exclusive), "{}", window.explain(target));
        epoch.unlock().wait().unwrap();
        window.lock_exclusive(target).deadline(DEADLINE).wait().unwrap().unlock().wait().unwrap();
        window.lock_shared(target).deadline(DEADLINE).wait().unwrap().unlock().wait().unwrap();
    }
}

/// Rank 1 panics under the lock of rank 0: all ranks are told, that one too, until rank 2 recovers
/// the lock.
fn is_poisoned_and_recovered(window: &Window<u64>) {
    let (world, at) = (window.world(), "on rank 0 of window \"scores\"");
    if world.rank() == 1 {
        panicking(|| {
            let epoch = window.lock_exclusive(0).deadline(DEADLINE).wait().unwrap();
            epoch.put(0, &[7]).unwrap();
            epoch
        });
    }
    world.barrier().wait().unwrap();
    for _ in 0..2 {
        // Concurrent tries find the lock busy; the ranks ask one after another.
        for rank in 0..world.size() {
            if world.rank() == rank {
                let told = |outcome: Result<_, _>| Error::from(Result::unwrap_err(outcome));
                is_told(told(window.lock_exclusive(0).wait().map(drop)), &format!("lock_exclusive {at}"));
                is_told(told(window.lock_shared(0).wait().map(drop)), &format!("lock_shared {at}"));
                is_told(
                    told(window.lock_exclusive(0).deadline(DEADLINE).wait().map(drop)),
                    &format!("lock_exclusive {at}"),
                );
                is_told(told(window.try_lock_exclusive(0).wait().map(drop)), &format!("lock_exclusive {at}"));
                is_told(told(window.try_lock_shared(0).wait().map(drop)), &format!("lock_shared {at}"));
            }
            world.barrier().wait().unwrap();
        }
    }
    if world.rank() == 2 {
        let epoch = window.lock_shared(0).recover().wait().unwrap();
        assert_eq!((epoch.previous_owner(), epoch.mode()), (Some(PreviousOwner::Panicked(1)), Mode::Exclusive));
        assert!(window.try_lock_shared(0).wait().unwrap().is_none());
        // What was put under the lock is complete.
        let mut found = [0];
        epoch.get(0, &mut found).wait().unwrap();
        assert_eq!(found, [7]);
        epoch.put(0, &[0]).unwrap();
        epoch.unlock().wait().unwrap();
    }
    world.barrier().wait().unwrap();
    works(window, 0);
    let all = window.lock_all().wait().unwrap();
    all.at(0).wait().unwrap();
    all.unlock_all().wait().unwrap();
    world.barrier().wait().unwrap();
}

#[test]
fn an_exclusive_guard_poisons_its_lock() {
    for design in LockDesign::ALL {
        for all in LockAllDesign::ALL {
            ranks(3, move |world| {
                let builder = Window::<u64>::builder().lock(*design).lock_all(*all).name("scores");
                let window = builder.allocate(&world, 2).wait().unwrap();
                for _ in 0..2 {
                    is_poisoned_and_recovered(&window);
                    works(&window, 1);
                    world.barrier().wait().unwrap(); // a word of all targets may be poisoned next
                }
                window.close().wait().unwrap();
            });
        }
    }
}

/// The same in a window with leases, of an owner within its lease.
#[test]
fn an_owner_within_its_lease_poisons_its_lock() {
    ranks(3, |world| {
        let builder = Window::<u64>::builder().lock(LockDesign::TestAndSet).name("scores");
        let builder = builder.lease_policy(LeasePolicy::VersionedCommit, DEADLINE);
        let window = builder.allocate(&world, 2).wait().unwrap();
        for _ in 0..50 {
            is_poisoned_and_recovered(&window); // more often than there are slots
        }
        window.close().wait().unwrap();
    });
}

/// An owner whose lock was taken over leaves nothing poisoned: it is not its lock any more.
#[test]
fn an_owner_with_an_expired_lease_poisons_nothing() {
    let closed = ranks(2, |world| {
        let builder = Window::<u64>::builder().lock(LockDesign::TestAndSet).name("scores");
        let builder = builder.lease_policy(LeasePolicy::VersionedCommit, Duration::from_millis(2));
        let window = builder.allocate(&world, 2).wait().unwrap();
        if world.rank() == 1 {
            panicking(|| {
                let epoch = window.lock_exclusive(0).wait().unwrap();
                world.barrier().wait().unwrap();
                world.barrier().wait().unwrap();
                epoch
            });
        } else {
            world.barrier().wait().unwrap();
            let epoch = window.lock_exclusive(0).wait().unwrap();
            assert_eq!(epoch.previous_owner(), Some(PreviousOwner::LeaseExpired(1)));
            epoch.unlock().wait().unwrap();
            world.barrier().wait().unwrap();
        }
        world.barrier().wait().unwrap();
        drop(window.lock_exclusive(0).wait().unwrap());
        world.barrier().wait().unwrap();
        window.close().wait().map_err(Error::from)
    });
    assert!(closed[0].is_ok(), "{closed:?}");
    let expected = "unlock on rank 0 of window \"scores\": the lease expired, and another owner has taken the lock";
    assert!(closed[1].as_ref().is_err_and(|error| error.to_string() == expected), "{closed:?}");
}

/// A guard that recovered the lock and is dropped by a panic: the next owner is told of the panic.
#[test]
fn a_recovering_owner_may_panic_too() {
    for design in LockDesign::ALL {
        ranks(2, move |world| {
            let window = Window::<u64>::builder().lock(*design).name("scores").allocate(&world, 1).wait().unwrap();
            if world.rank() == 0 {
                panicking(|| window.lock_exclusive(0).wait().unwrap());
            }
            world.barrier().wait().unwrap();
            if world.rank() == 1 {
                panicking(|| {
                    let epoch = window.lock_exclusive(0).recover().wait().unwrap();
                    assert_eq!(epoch.previous_owner(), Some(PreviousOwner::Panicked(0)), "{design}");
                    epoch
                });
            }
            world.barrier().wait().unwrap();
            if world.rank() == 0 {
                is_told(
                    window.lock_exclusive(0).wait().map(drop).unwrap_err().into(),
                    "lock_exclusive on rank 0 of window \"scores\"",
                );
                let epoch = window.lock_exclusive(0).recover().wait().unwrap();
                assert_eq!(epoch.previous_owner(), Some(PreviousOwner::Panicked(1)), "{design}");
                epoch.unlock().wait().unwrap();
            }
            world.barrier().wait().unwrap();
            works(&window, 0);
            window.close().wait().unwrap();
        });
    }
}

#[test]
fn a_guard_of_a_table_poisons_its_lock_alone() {
    for design in LockDesign::ALL.iter().filter(|design| design.fits_tables()) {
        ranks(3, move |world| {
            let builder = Window::<u64>::builder().lock(*design).name("records");
            let table = LockTable::with_tokens(builder, &world, 4).wait().unwrap();
            let mut last = 0;
            if world.rank() == 1 {
                panicking(|| {
                    let guards = table.lock_many(&[1, 9], Mode::Exclusive).wait().unwrap();
                    let read = table.lock_many(&[2, 8], Mode::Shared).wait().unwrap();
                    // It waits for a lock that this rank has, and has taken others.
                    let mut waits = table.lock_many(&[0, 3, 9], Mode::Exclusive);
                    assert!(poll_once(&mut waits).is_pending());
                    last = guards[1].fencing_token().wait().unwrap();
                    (waits, read, guards)
                });
            }
            world.barrier().wait().unwrap();
            for lock in [1, 9] {
                let what = format!("lock_exclusive of lock {lock} of table \"records\", at rank {}", lock / 4);
                is_told(table.lock_exclusive(lock).wait().map(drop).unwrap_err().into(), &what);
            }
            for lock in [0, 2, 3, 4, 8, 10, 11] {
                let guard = table.lock_exclusive(lock).recover().deadline(DEADLINE).wait().unwrap();
                assert_eq!(guard.previous_owner(), None, "{design} {lock}");
            }
            world.barrier().wait().unwrap();
            if world.rank() == 1 {
                for guard in table.lock_many(&[9, 1], Mode::Shared).recover().wait().unwrap() {
                    let lock = guard.lock();
                    let (previous, mode) = (guard.previous_owner(), guard.mode());
                    assert_eq!((previous, mode), (Some(PreviousOwner::Panicked(1)), Mode::Exclusive), "{design}");
                    assert!(lock == 1 || guard.fencing_token().wait().unwrap() > last);
                    guard.unlock().wait().unwrap();
                }
            }
            world.barrier().wait().unwrap();
            for lock in 0..12 {
                table.lock_exclusive(lock).wait().unwrap().unlock().wait().unwrap();
            }
            world.barrier().wait().unwrap();
            table.close().wait().unwrap();
        });
    }
}

/// The guards of values, shared guards, requests, and unlocks that have begun.
#[test]
fn nothing_else_poisons_a_lock() {
    for design in LockDesign::ALL {
        ranks(2, move |world| {
            let builder = || Window::<u64>::builder().lock(*design);
            let window = builder().name("scores").allocate(&world, 2).wait().unwrap();
            let mutex = Mutex::with(builder(), &world, 0, 5_u64).wait().unwrap();
            let limits = RwLock::with(builder(), &world, 0, 5_u64).wait().unwrap();
            if world.rank() == 1 {
                for _ in 0..2 {
                    panicking(|| {
                        let (mut guard, mut written) = (mutex.lock().wait().unwrap(), limits.write().wait().unwrap());
                        (*guard, *written) = (6, 6);
                        (guard, written)
                    });
                    panicking(|| limits.read().wait().unwrap());
                    panicking(|| mutex.lock().wait().unwrap().unlock()); // not waited for
                    panicking(|| window.lock_shared(0).wait().unwrap());
                    panicking(|| window.lock_all().wait().map(|all| all.at(0).wait().map(drop).map(|()| all)).unwrap());
                    panicking(|| window.lock_exclusive(0));
                    panicking(|| window.try_lock_exclusive(0));
                    panicking(|| window.lock_exclusive(0).wait().unwrap().unlock());
                    panicking(|| {
                        let mut unlock = window.lock_exclusive(0).wait().unwrap().unlock();
                        let _ = poll_once(&mut unlock);
                        unlock
                    });
                    panicking(|| {
                        let held = window.lock_exclusive(0).wait().unwrap();
                        let mut waits = window.lock_exclusive(0);
                        assert!(poll_once(&mut waits).is_pending());
                        held.unlock().wait().unwrap();
                        waits
                    });
                    panicking(|| {
                        let mut lock = Box::pin(mutex.lock().into_future());
                        let held = poll_once(&mut lock);
                        (lock, held)
                    });
                    panicking(|| {
                        let change = |elements: &mut [u64]| {
                            elements.fill(9);
                            resume_unwind(Box::new("on purpose"));
                        };
                        window.locked(0).update(0, &mut [0; 2], change).wait()
                    });
                }
                assert_eq!((*mutex.lock().wait().unwrap(), *limits.read().wait().unwrap()), (5, 5));
            }
            world.barrier().wait().unwrap();
            works(&window, 0);
            for guard in [mutex.lock().recover().wait(), limits.write().recover().wait()].map(Result::unwrap) {
                assert_eq!((guard.previous_owner(), *guard), (None, 5), "{design}");
            }
            assert_eq!(*mutex.lock().wait().unwrap(), 5);
            world.barrier().wait().unwrap();
            assert_eq!(window.local().read(0..2), [0; 2], "a change that panics puts nothing");
            window.close().wait().unwrap();
        });
    }
}

/// A guard that a destructor makes and drops while the stack unwinds is not half done.
#[test]
fn guards_of_destructors_poison_nothing() {
    for design in LockDesign::ALL {
        ranks(2, move |world| {
            let window = Window::<u64>::builder().lock(*design).name("scores").allocate(&world, 2).wait().unwrap();
            let mut runs = 0;
            unwinding(|| {
                for _ in 0..10 {
                    let epoch = window.lock_exclusive(0).wait().unwrap();
                    let mut found = [0];
                    epoch.get(0, &mut found).wait().unwrap();
                    epoch.put(0, &[found[0] + 1]).unwrap();
                    match runs % 2 {
                        0 => drop(epoch),
                        _ => epoch.unlock().wait().unwrap(),
                    }
                    runs += 1;
                }
            });
            assert_eq!(runs, 10);
            world.barrier().wait().unwrap();
            works(&window, 0);
            assert_eq!(window.lock_shared(0).wait().unwrap().fetch_one(0).wait().unwrap(), 20);
            world.barrier().wait().unwrap();
            // But not one that it found held.
            if world.rank() == 1 {
                let mut epoch = Some(window.lock_exclusive(0).wait().unwrap());
                unwinding(|| drop(epoch.take()));
                let error = window.lock_exclusive(0).wait().map(drop).unwrap_err();
                is_told(error.into(), "lock_exclusive on rank 0 of window \"scores\"");
                drop(window.lock_exclusive(0).recover().wait().unwrap());
            }
            world.barrier().wait().unwrap();
            works(&window, 0);
            window.close().wait().unwrap();
        });
    }
}

/// A half-written record is not published: readers get the error as well.
#[test]
fn a_versioned_window_shows_no_half_written_record() {
    ranks(3, |world| {
        let table = Window::<u64>::builder().name("scores").allocate(&world, 2).wait().unwrap().versioned();
        let mut record = [7; 2];
        table.read_into(0, 0, &mut record).wait().unwrap();
        assert_eq!(record, [0; 2]);
        world.barrier().wait().unwrap();
        if world.rank() == 1 {
            panicking(|| {
                let epoch = table.write(0).wait().unwrap();
                epoch.put(0, &[1]).unwrap();
                epoch
            });
        }
        world.barrier().wait().unwrap();
        for _ in 0..2 {
            let error = table.read_into(0, 0, &mut record).wait().unwrap_err();
            is_told(error.into(), "lock_shared on rank 0 of window \"scores\"");
        }
        is_told(table.write(0).wait().map(drop).unwrap_err().into(), "lock_exclusive on rank 0 of window \"scores\"");
        world.barrier().wait().unwrap();
        if world.rank() == 2 {
            let epoch = table.window().lock_exclusive(0).recover().wait().unwrap();
            assert_eq!(epoch.previous_owner(), Some(PreviousOwner::Panicked(1)));
            epoch.put(0, &[0]).unwrap();
            epoch.unlock().wait().unwrap();
        }
        world.barrier().wait().unwrap();
        table.read_into(0, 0, &mut record).wait().unwrap();
        assert_eq!(record, [0; 2]);
        world.barrier().wait().unwrap();
        if world.rank() == 2 {
            let epoch = table.write(0).wait().unwrap();
            epoch.put(0, &[3; 2]).unwrap();
            epoch.unlock().wait().unwrap();
        }
        world.barrier().wait().unwrap();
        table.read_into(0, 0, &mut record).wait().unwrap();
        assert_eq!(record, [3; 2]);
        world.barrier().wait().unwrap();
        table.close().wait().unwrap();
    });
}
