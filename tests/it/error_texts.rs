//! What errors say.

use std::error::Error as _;
use std::sync::Barrier;
use std::time::Duration;

use onesided::fabric::block_on;
use onesided::{
    Error, FaultKind, LeasePolicy, LockAllDesign, LockDesign, LockTable, Messages, Mode, Mutex, RwLock, Shape, Window,
    WindowError, World,
};

use crate::support::ranks;

#[test]
fn ranks_that_name_different_homes_of_a_value_read_both() {
    let errors = ranks(3, |world| {
        let home = u32::from(world.rank() == 1);
        Mutex::new(&world, home, 0_u64).wait().unwrap_err().to_string()
    });
    let why = "rank 1 differs from rank 0 in the home of the value: it passed 1, rank 0 passed 0";
    assert_eq!(errors, [(); 3].map(|()| format!("create window \"a mutex of u64\": {why}")));
}

#[test]
fn a_closed_window_names_the_rank_that_closed_it() {
    ranks(2, |world| {
        let window = Window::<u64>::builder().name("a").allocate(&world, 1).wait().unwrap();
        let again = window.clone();
        window.close().wait().unwrap();
        let me = world.rank();
        let error = again.lock_exclusive(1).wait().unwrap_err();
        assert_eq!(
            error.to_string(),
            format!("lock_exclusive on rank 1 of window \"a\": rank {me} has closed the window")
        );
        let error = again.close().wait().unwrap_err();
        assert_eq!(error.to_string(), format!("close on rank {me} of window \"a\": rank {me} has closed the window"));
    });
}

#[test]
fn a_lock_of_a_value_is_named_as_it_was_called() {
    ranks(2, |world| {
        let mutex = Mutex::new(&world, 0, 0_u64).wait().unwrap();
        let value = RwLock::with(Window::builder().name("v"), &world, 0, 0_u64).wait().unwrap();
        let text = |error: WindowError| error.to_string();
        if world.rank() == 0 {
            let held = (mutex.lock().wait().unwrap(), value.read().wait().unwrap());
            let late = [
                text(mutex.lock().deadline(SOON).wait().map(drop).unwrap_err()),
                text(value.write().deadline(SOON).wait().map(drop).unwrap_err()),
            ];
            let calls = [("lock", "a mutex of u64"), ("write", "v")];
            let expected =
                calls.map(|(call, of)| format!("{call} on rank 0 of window \"{of}\": the deadline passed{ITSELF}"));
            assert_eq!(late, expected);
            drop(held);
        }
        world.barrier().wait().unwrap();
        let (closed_mutex, closed) = (mutex.clone(), value.clone());
        mutex.close().wait().unwrap();
        value.close().wait().unwrap();
        let errors = [
            text(closed_mutex.lock().wait().map(drop).unwrap_err()),
            text(closed_mutex.try_lock().wait().map(drop).unwrap_err()),
            text(closed.read().wait().map(drop).unwrap_err()),
            text(closed.try_read().wait().map(drop).unwrap_err()),
            text(closed.write().wait().map(drop).unwrap_err()),
            text(closed.try_write().wait().map(drop).unwrap_err()),
        ];
        let me = world.rank();
        for (error, call) in errors.iter().zip(["lock", "try_lock", "read", "try_read", "write", "try_write"]) {
            assert!(error.starts_with(&format!("{call} on rank 0 of window ")), "{error}");
            assert!(error.ends_with(&format!(": rank {me} has closed the window")), "{error}");
        }
    });
}

#[test]
fn a_rank_whose_lock_cannot_be_had_is_named_to_the_others() {
    ranks(2, |world| {
        let builder = Window::<u64>::builder().name("a");
        let wrong = LeasePolicy::VersionedCommit;
        let builder = if world.rank() == 1 { builder.lease_policy(wrong, Duration::ZERO) } else { builder };
        let error = builder.allocate(&world, 1).wait().unwrap_err().to_string();
        let why =
            "its lock cannot be had (`ONESIDED_LOCK`, `ONESIDED_LOCK_ALL`, a lease policy): its own error says why";
        match world.rank() {
            0 => assert_eq!(error, format!("create window \"a\": rank 1 failed: {why}")),
            _ => assert!(error.starts_with("create window \"a\": lease policy versioned commit"), "{error}"),
        }
    });
}

/// Whether the call waits or is polled.
#[test]
fn a_call_that_takes_its_lock_is_named() {
    ranks(1, |world| {
        let window = Window::<u64>::builder().name("a").allocate(&world, 1).wait().unwrap();
        let again = window.clone();
        let mut into = [0];
        let nobody = [
            window.locked(7).get(0, &mut into).wait().unwrap_err(),
            block_on(world.fabric(), window.locked(7).put(0, &[1])).unwrap_err(),
        ];
        let expected =
            ["get", "put"].map(|call| format!("locked {call} on rank 7 of window \"a\": the world has 1 rank"));
        assert_eq!(nobody.map(|error| error.to_string()), expected);
        window.close().wait().unwrap();
        let errors = [
            again.locked(0).get(0, &mut into).wait().unwrap_err(),
            block_on(world.fabric(), again.locked(0).get(0, &mut [0])).unwrap_err(),
            again.locked(0).put(0, &[1]).wait().unwrap_err(),
            block_on(world.fabric(), again.locked(0).put(0, &[1])).unwrap_err(),
            again.locked(0).update(0, &mut into, |_| ()).wait().unwrap_err(),
            block_on(world.fabric(), again.locked(0).update(0, &mut [0], |_| ())).unwrap_err(),
        ];
        let calls = ["locked get", "locked get", "locked put", "locked put", "locked update", "locked update"];
        let expected = calls.map(|call| format!("{call} on rank 0 of window \"a\": rank 0 has closed the window"));
        assert_eq!(errors.map(|error| error.to_string()), expected);
    });
}

#[test]
fn memory_that_is_gone_says_who_may_have_closed_it() {
    ranks(2, |world| {
        let window = Window::<u64>::builder().name("a").allocate(&world, 1).wait().unwrap();
        let window = (world.rank() == 0).then_some(window);
        world.barrier().wait().unwrap();
        if let Some(window) = window {
            let error = window.lock_exclusive(1).wait().map(drop).unwrap_err();
            let gone = "rank 1 has no such memory: it closed or dropped the window, or detached the memory";
            assert_eq!(error.to_string(), format!("lock_exclusive on rank 1 of window \"a\": {gone}"));
        }
        world.barrier().wait().unwrap(); // a rank that has left is named as such
    });
}

const SOON: Duration = Duration::from_millis(5);

/// Whether or not the lock's words name the owner. An acquire that was cancelled, and that the
/// endpoint finishes, does not count.
#[test]
fn a_lock_that_its_own_rank_holds_says_so_at_the_deadline() {
    for design in LockDesign::ALL {
        for shared in [false, true] {
            ranks(2, move |world| {
                let window = Window::<u64>::builder().lock(*design).name("a").allocate(&world, 1).wait().unwrap();
                let exclusive = || window.lock_exclusive(0).deadline(SOON).wait().map(drop).unwrap_err().to_string();
                let held = match (world.rank(), shared) {
                    (0, false) => Some(window.lock_exclusive(0).wait().unwrap()),
                    (0, true) => Some(window.lock_shared(0).wait().unwrap()),
                    _ => None,
                };
                world.barrier().wait().unwrap();
                let lock = "lock_exclusive on rank 0 of window \"a\": the deadline passed";
                let other = format!("{lock}; rank 0 held the lock or waited for it");
                for round in 0..3 {
                    match (world.rank(), design) {
                        (0, _) => assert_eq!(exclusive(), format!("{lock}{ITSELF}"), "{design}"),
                        (_, LockDesign::TestAndSet | LockDesign::TwoLevel) if !shared => {
                            assert_eq!(exclusive(), other, "{design}");
                        }
                        // The last of the queue: whom rank 0 cancelled, or rank 1, may still be there.
                        (_, LockDesign::Mcs) if round == 0 && !shared => assert_eq!(exclusive(), other),
                        (_, LockDesign::Mcs) => assert!([lock, &*other].contains(&&*exclusive())),
                        _ => assert_eq!(exclusive(), lock, "{design}"),
                    }
                }
                world.barrier().wait().unwrap();
                drop(held);
                window.close().wait().unwrap();
            });
        }
    }
}

const ITSELF: &str = "; rank 0 itself held the lock or waited for it, perhaps in another thread";

/// Whichever call takes the lock.
#[test]
fn every_deadline_names_the_lock_that_was_waited_for() {
    for design in [LockDesign::TestAndSet, LockDesign::Ticket] {
        ranks(2, move |world| {
            let window = Window::<u64>::builder().lock(design).lock_all(LockAllDesign::OnDemand).name("a");
            let window = window.allocate(&world, 1).wait().unwrap();
            let table = LockTable::with(Window::builder().lock(design), &world, 4).wait().unwrap();
            if world.rank() == 0 {
                let held = (window.lock_exclusive(1).wait().unwrap(), table.lock_exclusive(6).wait().unwrap());
                let all = window.lock_all().wait().unwrap();
                let mut epochs = window.epochs();
                let late = [
                    all.at(1).deadline(SOON).wait().map(drop).unwrap_err(),
                    window.locked(1).put(0, &[1]).deadline(SOON).wait().unwrap_err(),
                    window.locked(1).get(0, &mut [0]).deadline(SOON).wait().unwrap_err(),
                    window.locked(1).update(0, &mut [0], |_| ()).deadline(SOON).wait().unwrap_err(),
                    window.lock_shared(1).fenced().deadline(SOON).wait().map(drop).unwrap_err(),
                    epochs.lock(1, Mode::Exclusive).deadline(SOON).wait().unwrap_err(),
                    table.lock_many(&[6, 2], Mode::Shared).deadline(SOON).wait().map(drop).unwrap_err(),
                ];
                let of =
                    |operation: &str| format!("{operation} on rank 1 of window \"a\": the deadline passed{ITSELF}");
                let table = "lock_shared of lock 6 of table \"unnamed, of locks\", at rank 1: the deadline passed";
                let expected = [
                    of("lock_all"),
                    of("locked put"),
                    of("locked get"),
                    of("locked update"),
                    of("lock_shared"),
                    of("lock_exclusive"),
                    format!("{table}{ITSELF}"),
                ];
                assert_eq!(late.map(|error| error.to_string()), expected, "{design}");
                drop(held);
            }
            world.barrier().wait().unwrap();
            window.close().wait().unwrap();
            table.close().wait().unwrap();
        });
    }
}

/// Every rank learns that one is in another collective, and which: also those that the barrier tells
/// nothing of that rank but by others.
#[test]
fn ranks_in_different_collectives_name_both() {
    let step = |world: &World, collective: usize| match collective {
        0 => world.barrier().wait().map_err(Error::from),
        1 => world.all_gather(&[1]).wait().map(drop).map_err(Error::from),
        2 => world.split(0, 0).wait().map(drop).map_err(Error::from),
        3 => Window::<u64>::builder().name("a").allocate(world, 1).wait().map(drop).map_err(Error::from),
        _ => Messages::new(world).wait().map(drop).map_err(Error::from),
    };
    let begin = ["barrier", "all_gather", "split a world", "create window \"a\"", "make a communicator"];
    let names = ["a barrier", "an all_gather", "a split", "the creation of a window", "the creation of a communicator"];
    let pairs = (0..5).flat_map(|one| (0..5).map(move |other| (one, other))).filter(|(one, other)| one != other);
    for (one, other) in pairs {
        let over = Barrier::new(6);
        ranks(6, move |world| {
            step(&world, 3).unwrap();
            let (mine, theirs, rank) = if world.rank() == 4 { (other, one, None) } else { (one, other, Some(4)) };
            let error = step(&world, mine).unwrap_err();
            assert_eq!(error.kind(), Some(FaultKind::OutOfStep), "{error}");
            let text = error.to_string();
            let why = format!(" is in {}, and this rank in {}", names[theirs], names[mine]);
            assert!(text.starts_with(begin[mine]) && text.ends_with(&why), "{text}");
            assert!(rank.is_none_or(|rank: u32| text.contains(&format!(": rank {rank} is in"))), "{text}");
            assert!(world.barrier().wait().is_err_and(|error| error.kind() == FaultKind::OutOfStep));
            over.wait();
        });
    }
}

#[test]
fn a_fence_and_a_close_name_each_other() {
    let over = Barrier::new(3);
    ranks(3, move |world| {
        let window = Window::<u64>::builder().name("a").allocate(&world, 1).wait().unwrap();
        let error = match world.rank() {
            2 => window.clone().close().wait().unwrap_err(),
            _ => window.fence().wait().map(drop).unwrap_err(),
        };
        let text = error.to_string();
        match world.rank() {
            2 => assert!(text.ends_with(" is in a fence, and this rank in the close of a window"), "{text}"),
            _ => assert_eq!(text, "fence window \"a\": rank 2 is in the close of a window, and this rank in a fence"),
        }
        over.wait();
    });
}

#[test]
fn errors_name_the_call_the_target_and_the_limit() {
    ranks(2, |world| {
        let window = Window::<u64>::builder().name("w").allocate(&world, 8).wait().unwrap();
        let all = window.no_check();
        let error = all.at(0).unwrap().put_signal(0, &[1], all.at(1).unwrap(), 1, 1).unwrap_err();
        assert_eq!(error.kind(), Some(FaultKind::Unsupported));
        let why = "the signal is at rank 1; data and signal have to be at one rank";
        assert_eq!(error.to_string(), format!("put_signal on rank 0 of window \"w\": {why}"));
        let error = all.at(9).map(drop).unwrap_err();
        assert_eq!(error.to_string(), "at on rank 9 of window \"w\": the world has 2 ranks");
        assert_eq!((window.len(9), world.is_alive(9)), (0, false));
        let two = Shape::Vector { count: 2, block: 1, stride: 2 };
        let error = all.at(1).unwrap().put_shaped(0, two, &[1, 2, 3]).wait().unwrap_err();
        assert_eq!(error.to_string(), "put_shaped on rank 1 of window \"w\": 3 elements given, 2 expected");
        let error = world.all_gather(&[0; 1025]).wait().unwrap_err();
        let text = "all_gather of at most 1024 bytes: the message is too long (1025 bytes)";
        assert_eq!(error.to_string(), text);
        all.end().wait().unwrap();
        window.close().wait().unwrap();
    });
}

#[test]
fn a_call_that_the_window_is_not_made_for_says_so() {
    ranks(1, |world| {
        let window = Window::<u64>::builder().name("w").allocate(&world, 8).wait().unwrap();
        let place = "on rank 0 of window \"w\"";
        let error = window.attach(vec![0_u64; 8]).unwrap_err();
        let why = "the window is not dynamic (`Window::dynamic` makes one that is)";
        assert_eq!(error.to_string(), format!("attach {place}: {why}"));
        let epoch = window.lock_exclusive(0).wait().unwrap();
        let error = epoch.commit(1).wait().unwrap_err();
        let why = "the window's leases do not end by commits (`LeasePolicy::VersionedCommit`)";
        assert_eq!(error.to_string(), format!("commit {place}: {why}"));
        drop(epoch);
        let error = window.close_into().wait().unwrap_err();
        let why = "its memory was not given by this rank as a value of this type (`close` ends any window)";
        assert_eq!(error.to_string(), format!("close_into {place}: {why}"));
        let two_level = Window::builder().name("t").lock(LockDesign::TwoLevel);
        let error = LockTable::with(two_level, &world, 4).wait().map(drop).unwrap_err();
        let why = "a table takes test-and-set, mcs, ticket or fetch-add-queue";
        assert_eq!(error.to_string(), format!("make a lock table on rank 0 of window \"t\": {why}"));
    });
}

#[test]
fn an_allocation_beyond_all_addresses_names_its_elements() {
    ranks(1, |world| {
        let len = usize::MAX / 4;
        let error = Window::<u64>::builder().name("w").allocate(&world, len).wait().unwrap_err();
        let why = format!("{len} elements of 8 bytes are not addressable");
        assert_eq!(error.to_string(), format!("create window \"w\": allocate too many bytes: {why}"));
    });
}

/// `unwrap` and a `main` that returns an error print its `Debug` form.
#[test]
fn the_debug_form_is_the_text_and_its_causes() {
    let refused = || std::io::Error::from_raw_os_error(24);
    let fabric = || onesided::fabric::Error::Join { what: "map it".into(), source: Some(refused()) };
    let text = format!("join the job: map it; no file descriptors left (raise `ulimit -n`): {}", refused());
    assert_eq!(format!("{:?}", fabric()), text);
    assert_eq!(format!("{:?}", Error::from(fabric())), text);
    let window = WindowError::Create { window: "a".into(), source: fabric() };
    assert!(window.source().is_some(), "its text says it, too");
    let text = format!("create window \"a\": {text}");
    assert_eq!(format!("{window:?}"), text);
    assert_eq!(format!("{:?}", Error::from(window)), text);
}

#[test]
fn every_error_answers_the_same_questions() {
    let asked = |kind| {
        let fault = onesided::Fault::new(kind);
        let fabric = || onesided::fabric::Error::operation("barrier")(fault);
        let window = || WindowError::Operation { operation: "get", target: 0, window: "a".into(), fault };
        macro_rules! answers {
            ($error:expr) => {{
                let error = $error;
                let lock = [error.is_poisoned(), error.is_owner_died(), error.is_revoked()];
                (lock, [error.is_peer_died(), error.is_timed_out(), error.is_unknown()])
            }};
        }
        assert_eq!((fabric().kind(), window().kind()), (kind, Some(kind)));
        assert_eq!(Error::from(fabric()).kind(), Some(kind));
        let answers = answers!(fabric());
        assert_eq!(answers!(window()), answers);
        assert_eq!(answers!(Error::from(fabric())), answers);
        assert_eq!(answers!(Error::from(window())), answers);
        answers
    };
    assert_eq!(asked(FaultKind::OwnerDied), ([true, true, false], [false; 3]));
    assert_eq!(asked(FaultKind::LeaseExpired), ([true, false, false], [false; 3]));
    assert_eq!(asked(FaultKind::Revoked), ([false, false, true], [false; 3]));
    assert_eq!(asked(FaultKind::PeerDied), ([false; 3], [true, false, false]));
    assert_eq!(asked(FaultKind::TimedOut), ([false; 3], [false, true, false]));
    assert_eq!(asked(FaultKind::Unknown), ([false; 3], [false, false, true]));
}
