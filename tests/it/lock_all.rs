//! `lock_all` by one operation: deaths inside it, and further tests that lock.

use std::time::Duration;

use onesided::{Error, FaultKind, LeasePolicy, LockAllDesign, LockDesign, Mode, Mutex, PreviousOwner, Window, World};

use crate::designs::those_that_lock_pass;
use crate::jobs::{self, Role, die, ok};
use crate::support::{DEADLINE, eventually, ranks};

pub(crate) const ROLES: &[Role] = &[
    ("all held by the dead", |world| dies(&world, true)),
    ("one held by the dead", |world| dies(&world, false)),
    ("one waited for by the dead", waiter_dies),
];

fn global(world: &World) -> Window<u64> {
    Window::builder().lock_all(LockAllDesign::Global).name("scores").allocate(world, 4).wait().unwrap()
}

/// Rank 0, which has the lock-all word, stays until rank 1 has continued.
fn both_end(window: &Window<u64>) {
    if window.world().rank() == 0 {
        eventually(DEADLINE, "rank 1 has gone on", || window.local().read(3..4)[0] == 1);
    } else {
        let epoch = window.lock_shared(0).wait().unwrap();
        epoch.put(3, &[1]).unwrap();
        epoch.unlock().wait().unwrap();
    }
    ok();
}

/// The last rank dies inside; rank 0, which has the lock-all word, and rank 1 continue.
fn dies(world: &World, all: bool) {
    let window = global(world);
    if world.rank() == 2 {
        let _all = all.then(|| window.lock_all().wait().unwrap());
        let _one = (!all).then(|| window.lock_exclusive(1).wait().unwrap());
        world.barrier().wait().unwrap();
        die();
    }
    let _ = world.barrier().wait(); // a rank that dies right after the barrier may be found dead in it
    eventually(DEADLINE, "the death is known", || !world.is_alive(2));
    let window = &window;
    let check_error = |error: Error, kinds: &[FaultKind]| {
        let fault = error.fault().filter(|fault| fault.rank().map(|rank| rank.0) == Some(2));
        assert!(error.is_poisoned() && fault.is_some_and(|fault| kinds.contains(&fault.kind())), "{error}");
    };
    let exclusive = |target: u32| window.lock_exclusive(target).wait().map(drop).map_err(Error::from);
    if world.rank() == 0 && all {
        // It waits for the dead `lock_all` until the suspicion timeout, and gets the lock.
        let epoch = window.lock_exclusive(1).recover().wait().unwrap();
        assert_eq!((epoch.previous_owner(), epoch.mode()), (None, Mode::Exclusive));
        assert!(window.try_lock_shared(1).wait().unwrap().is_none());
        epoch.unlock().wait().unwrap();
        // So do the others, for every target.
        for target in 0..2 {
            window.lock_exclusive(target).wait().unwrap().unlock().wait().unwrap();
            assert!(window.try_lock_exclusive(target).wait().unwrap().is_some());
        }
        let epoch = window.lock_exclusive(1).wait().unwrap();
        epoch.put(0, &[1]).unwrap(); // rank 1 goes on, and a try may fail
        epoch.unlock().wait().unwrap();
        window.lock_all().wait().unwrap().unlock_all().wait().unwrap();
    } else if world.rank() == 0 {
        check_error(exclusive(1).unwrap_err(), &[FaultKind::OwnerDied, FaultKind::ParticipantDied]);
        // A `lock_all` waits for a lock that was held exclusively, until the suspicion timeout.
        let error = Error::from(window.lock_all().wait().map(drop).unwrap_err());
        assert!(error.to_string().starts_with("lock_all on rank 0 of window \"scores\": "), "{error}");
        check_error(error, &[FaultKind::ParticipantDied]);
        // Repeatedly, also for a try, and for other targets.
        check_error(window.lock_all().wait().map(drop).unwrap_err().into(), &[FaultKind::ParticipantDied]);
        check_error(window.try_lock_exclusive(0).wait().map(drop).unwrap_err().into(), &[FaultKind::ParticipantDied]);
        let epoch = window.lock_exclusive(1).recover().wait().unwrap();
        assert!(
            matches!(epoch.previous_owner(), Some(PreviousOwner::Owner(2) | PreviousOwner::Participant(2))),
            "{epoch:?}"
        );
        epoch.put(0, &[1]).unwrap();
        epoch.unlock().wait().unwrap();
    } else {
        eventually(DEADLINE, "it is recovered", || window.local().read(0..1)[0] == 1);
    }
    for _ in 0..20 {
        let all = window.lock_all().wait().unwrap();
        all.at(2).wait().unwrap().put(world.rank() as usize, &[7]).unwrap();
        all.unlock_all().wait().unwrap();
        exclusive(world.rank()).unwrap();
        exclusive(1).unwrap();
    }
    both_end(window);
}

/// The last rank dies while it waits for the lock of rank 0, which rank 0 holds.
fn waiter_dies(world: World) {
    let window = global(&world);
    let held = (world.rank() == 0).then(|| window.lock_exclusive(0).wait().unwrap());
    world.barrier().wait().unwrap();
    if world.rank() == 2 {
        let _request = window.lock_exclusive(0);
        std::thread::sleep(Duration::from_millis(50)); // it is announced at the lock-all word, or waits for it
        die();
    }
    eventually(DEADLINE, "the death is known", || !world.is_alive(2));
    drop(held);
    if world.rank() == 1 {
        // It may have held the lock: a count does not tell.
        let recover = || window.lock_exclusive(0).recover().wait().map(drop);
        recover().unwrap();
        if let Err(error) = window.lock_all().wait().map(drop).map_err(Error::from) {
            assert!(error.is_poisoned(), "{error}");
            recover().unwrap();
        }
        window.lock_all().wait().unwrap().unlock_all().wait().unwrap();
        recover().unwrap();
    }
    both_end(&window);
}

#[test]
fn a_death_inside_is_reported_unless_it_only_read() {
    for design in [LockDesign::TestAndSet, LockDesign::Mcs, LockDesign::Ticket, LockDesign::FetchAddQueue] {
        for role in ["all held by the dead", "one held by the dead", "one waited for by the dead"] {
            let ended = jobs::start_under(3, role, ("ONESIDED_LOCK", design.name())).wait();
            assert_eq!((ended.code, ended.ok()), (128 + 9, vec![0, 1]), "{design} {role} {ended:#?}");
        }
    }
}

#[test]
fn unsupported_choices_are_refused() {
    ranks(2, |world| {
        let builder = || Window::<u64>::builder().lock_all(LockAllDesign::Global).name("scores");
        let leased = builder().lease_policy(LeasePolicy::VersionedCommit, Duration::from_secs(1));
        let error = leased.allocate(&world, 1).wait().map(drop).unwrap_err();
        assert!(error.to_string().contains("cannot tell whose lease has expired"), "{error}");
        let design = if world.rank() == 0 { LockAllDesign::Global } else { LockAllDesign::EachTarget };
        let error = Window::<u64>::builder().lock_all(design).allocate(&world, 1).wait().map(drop).unwrap_err();
        assert!(
            error.to_string().contains("test-and-set, lock_all each-target against test-and-set, lock_all global"),
            "{error}"
        );
        // More than there are slots.
        let window = builder().lock_slots(33).allocate(&world, 1).wait().unwrap();
        assert!(window.explain(1).ends_with("lock test-and-set, lock_all global"), "{}", window.explain(1));
        let shared: Vec<_> = (0..33).map(|_| window.lock_shared(1).wait().unwrap()).collect();
        for request in [window.lock_shared(1), window.lock_exclusive(0)] {
            let error = Error::from(request.wait().map(drop).unwrap_err());
            assert_eq!(error.fault().map(|fault| fault.kind()), Some(FaultKind::NoSlot), "{error}");
        }
        drop(shared);
        world.barrier().wait().unwrap();
        window.lock_exclusive(1).wait().unwrap().unlock().wait().unwrap();
        window.close().wait().unwrap();
        let mutex = Mutex::with(builder(), &world, 0, 7_u64).wait().unwrap();
        assert_eq!(*mutex.lock().wait().unwrap(), 7);
        world.barrier().wait().unwrap();
    });
}

/// The tests that lock, with this design of `lock_all`.
#[test]
fn the_tests_that_lock_pass() {
    use LockAllDesign::{EachTarget, Global, OnDemand};
    if std::env::var_os("ONESIDED_LOCK_ALL").is_some() {
        return; // it was started by this test
    }
    let (simple, fair) = (LockDesign::TestAndSet, LockDesign::Ticket);
    let all = [(simple, Global), (fair, Global), (simple, EachTarget), (fair, OnDemand)];
    let setting = |(design, all): (LockDesign, LockAllDesign)| {
        [("ONESIDED_LOCK", design.name()), ("ONESIDED_LOCK_ALL", all.name())]
    };
    those_that_lock_pass(&all.map(setting));
}
