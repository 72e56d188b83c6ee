//! What errors say.

use std::error::Error as _;

use std::time::Duration;

use onesided::{Error, FaultKind, LockDesign, Mutex, Op, Window, WindowError};

use crate::support::ranks;

#[test]
fn ranks_that_name_different_homes_of_a_value_read_both() {
    let errors = ranks(3, |world| {
        let home = u32::from(world.rank() == 1);
        Mutex::new(&world, home, 0_u64).wait().unwrap_err().to_string()
    });
    let why = "rank 1 differs from rank 0 in the home of the value: it passed 1, rank 0 passed 0";
    assert_eq!(errors, [(); 3].map(|()| format!("create window \"unnamed, of u64\": {why}")));
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

#[test]
fn a_lock_that_its_own_rank_holds_says_so_at_the_deadline() {
    ranks(2, |world| {
        let window = Window::<u64>::builder().lock(LockDesign::TestAndSet).name("a");
        let window = window.allocate(&world, 1).wait().unwrap();
        let lock = "lock_shared on rank 0 of window \"a\": the deadline passed";
        let late = || window.lock_shared(0).deadline(Duration::from_millis(5)).wait().unwrap_err().to_string();
        let held = (world.rank() == 0).then(|| window.lock_exclusive(0).wait().unwrap());
        world.barrier().wait().unwrap();
        match world.rank() {
            0 => assert_eq!(late(), format!("{lock}; rank 0 asked while it held the lock")),
            _ => assert_eq!(late(), lock),
        }
        world.barrier().wait().unwrap();
        drop(held);
        window.close().wait().unwrap();
    });
}

#[test]
fn a_creation_names_the_rank_that_is_in_another_collective() {
    ranks(3, |world| {
        let create = || Window::<u64>::builder().name("a").allocate(&world, 1).wait().map(drop);
        create().unwrap();
        if world.rank() == 1 {
            return world.barrier().wait().unwrap();
        }
        let why = "rank 1 is in another collective: a barrier, a fence or a close";
        assert_eq!(create().unwrap_err().to_string(), format!("create window \"a\": {why}"));
    });
    ranks(2, |world| {
        if world.rank() == 1 {
            world.split(0, 0).wait().map(drop).unwrap_err();
            return;
        }
        let error = Window::<u64>::builder().name("a").allocate(&world, 1).wait().map(drop).unwrap_err();
        let why = "rank 1 broke the protocol: it is in another collective, or runs another version of the library";
        assert_eq!(error.to_string(), format!("create window \"a\": {why}"));
    });
}

/// One element is not "1 elements", and an operation that an element does not have is named.
#[test]
fn counts_and_operations_are_named() {
    ranks(1, |world| {
        let window = Window::<u64>::builder().name("a").allocate(&world, 1).wait().unwrap();
        let epoch = window.lock_exclusive(0).wait().unwrap();
        let error = epoch.put(1, &[1]).unwrap_err();
        assert_eq!(error.to_string(), "put of 1 element at 1 on rank 0 of window \"a\": it has 1 element there");
        let error = epoch.fetch_and_op(0, 1, Op::MinLoc).wait().unwrap_err();
        let place = "fetch_and_op (MinLoc) on rank 0 of window \"a\"";
        assert_eq!(error.to_string(), format!("{place}: not for elements of type u64"));
    });
}

/// `unwrap` and a `main` that returns an error print its `Debug` form.
#[test]
fn the_debug_form_is_the_text_and_its_causes() {
    let refused = || std::io::Error::from_raw_os_error(24);
    let job = || onesided::fabric::bootstrap::Error::Join { what: "map it".into(), source: Some(refused()) };
    let text = format!("join the job: map it; no file descriptors left (raise `ulimit -n`): {}", refused());
    assert_eq!(format!("{:?}", job()), text);
    let fabric = || onesided::fabric::Error::from(job());
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
