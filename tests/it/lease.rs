//! Owners that are stopped for longer than their lease, and then continue.

use std::time::Duration;

use onesided::fabric::remote_memory::RemoteMemory as _;
use onesided::{
    Epoch, Error, FaultKind, LeasePolicy, LockDesign, LockTable, Mutex, PreviousOwner, Window, WindowError, World,
};
use rustix::process::Signal;

use crate::jobs::{self, Role, ok, send, state};
use crate::support::{DEADLINE, eventually, ranks};

pub(crate) const ROLES: &[Role] = &[("lease commit", commits), ("lease kill", killed), ("lease revoke", revoked)];

const LEASE: Duration = Duration::from_millis(150);

/// Where rank 1 finds the process id of rank 0, and rank 0 the progress of rank 1.
fn status(world: &World) -> Window<u64> {
    let status = Window::<u64>::allocate(world, 2).wait().unwrap();
    if world.rank() == 0 {
        status.no_check().at(1).unwrap().put(1, &[std::process::id().into()]).unwrap();
    }
    world.barrier().wait().unwrap();
    status
}

fn scores(world: &World, policy: LeasePolicy) -> Window<u64> {
    let builder = Window::<u64>::builder().lock(LockDesign::TestAndSet).name("scores");
    builder.lease_policy(policy, LEASE).allocate(world, 16).wait().unwrap()
}

/// Stops this process until it gets SIGCONT.
fn stop() {
    send(std::process::id().into(), Signal::STOP);
    std::thread::sleep(Duration::from_millis(50)); // another thread may get the signal, and this one runs until then
}

/// Rank 0 is stopped while it holds the lock of rank 2, rank 1 takes it over and commits, and rank
/// 0 continues.
fn commits(world: World) {
    let (status, window) = (status(&world), scores(&world, LeasePolicy::VersionedCommit));
    match world.rank() {
        0 => {
            let epoch = window.lock_exclusive(2).wait().unwrap();
            assert!(epoch.lease_left().unwrap() > Duration::ZERO);
            assert_eq!(epoch.committed().wait().unwrap(), 0);
            epoch.put(0, &[1; 8]).unwrap();
            epoch.commit(1).wait().unwrap();
            assert!(epoch.commit(1 << 40).wait().is_err());
            world.barrier().wait().unwrap();
            stop();
            assert_eq!(epoch.lease_left(), Some(Duration::ZERO));
            let error = epoch.commit(3).wait().unwrap_err();
            assert!(matches!(error, WindowError::Late { target: 2, .. }), "{error}");
            let expected =
                "commit on rank 2 of window \"scores\": the lease expired, and another owner has taken the lock";
            assert_eq!(error.to_string(), expected);
            let error = epoch.unlock().wait().unwrap_err();
            assert!(matches!(error, WindowError::Late { operation: "unlock", .. }), "{error}");
            // The lock works as any other; and rank 1's lock was unaffected.
            let epoch = window.lock_exclusive(2).wait().unwrap();
            assert_eq!((epoch.previous_owner(), epoch.committed().wait().unwrap()), (None, 4));
            epoch.commit(5).wait().unwrap();
            epoch.unlock().wait().unwrap();
            drop(window.lock_shared(2).wait().unwrap());
        }
        1 => {
            world.barrier().wait().unwrap();
            let pid = status.local().read(1..2)[0];
            eventually(DEADLINE / 2, "rank 0 has stopped", || state(pid) == Some('T'));
            // A reader that takes over from an expired owner holds the lock exclusively, as after
            // any recovery.
            let epoch = window.lock_shared(2).wait().unwrap();
            assert_eq!(
                (epoch.previous_owner(), epoch.mode()),
                (Some(PreviousOwner::LeaseExpired(0)), onesided::Mode::Exclusive)
            );
            assert_eq!(epoch.committed().wait().unwrap(), 1);
            epoch.commit(2).wait().unwrap();
            send(pid, Signal::CONT);
            // Its lease has expired, and it finds the lock held.
            eventually(DEADLINE / 2, "rank 0 goes on", || state(pid) != Some('T'));
            std::thread::sleep(Duration::from_millis(50));
            assert!(window.try_lock_exclusive(2).wait().unwrap().is_none());
            epoch.commit(4).wait().unwrap();
            epoch.unlock().wait().unwrap();
        }
        _ => world.barrier().wait().unwrap(),
    }
    world.barrier().wait().unwrap();
    window.close().wait().unwrap();
    ok();
}

/// The same, but rank 1 kills rank 0, and recovers the lock as after any death. The window is the program's
/// first: the others may not have joined when a rank begins to make it.
fn killed(world: World) {
    let (window, status) = (scores(&world, LeasePolicy::Kill), status(&world));
    let builder = Window::<u64>::builder().lock(LockDesign::TestAndSet).lease_policy(LeasePolicy::Kill, LEASE);
    let table = LockTable::with(builder, &world, 1).wait().unwrap();
    let guard = table.lock_exclusive(u64::from(world.rank())).wait().unwrap();
    assert!(guard.lease_left().is_some_and(|left| left <= LEASE));
    guard.unlock().wait().unwrap();
    if world.rank() == 0 {
        let epoch = window.lock_exclusive(2).wait().unwrap();
        world.barrier().wait().unwrap();
        stop();
        panic!("it goes on: {epoch:?}");
    }
    world.barrier().wait().unwrap();
    if world.rank() == 1 {
        let pid = status.local().read(1..2)[0];
        eventually(DEADLINE / 2, "rank 0 has stopped", || state(pid) == Some('T'));
        let error = Error::from(window.lock_exclusive(2).wait().unwrap_err());
        assert!(error.is_owner_died() && !world.is_alive(0), "{error}");
        let epoch = window.lock_exclusive(2).recover().wait().unwrap();
        assert_eq!(epoch.previous_owner(), Some(PreviousOwner::Owner(0)));
        assert!(epoch.commit(1).wait().is_err());
        epoch.unlock().wait().unwrap();
        window.no_check().at(2).unwrap().fetch_add(15, 1).wait().unwrap();
    } else {
        eventually(DEADLINE / 2, "rank 1 is done", || window.local().read(15..16) == [1]);
        drop(window.lock_exclusive(2).wait().unwrap());
    }
    ok();
}

/// The same, but rank 1 has rank 2 close its queue pair to rank 0 before it gets the lock. Over
/// mapped memory access cannot be revoked, and the window is refused.
fn revoked(world: World) {
    let status = status(&world);
    let builder = Window::<u64>::builder().lock(LockDesign::TestAndSet).name("scores");
    let window = match builder.lease_policy(LeasePolicy::Revoke, LEASE).allocate(&world, 16).wait() {
        Err(error @ WindowError::LeasePolicy { .. }) => {
            assert!(
                !jobs::is_on_cards() && error.to_string().contains("access to mapped memory cannot be revoked"),
                "{error}"
            );
            return ok();
        }
        made => made.unwrap(),
    };
    assert!(jobs::is_on_cards());
    let done = |rank: u32| status.no_check().at(1).unwrap().fetch_add(0, 1 << (8 * rank)).wait().map(drop);
    match world.rank() {
        0 => {
            let epoch = window.lock_exclusive(2).wait().unwrap();
            epoch.put(0, &[1; 8]).unwrap();
            epoch.flush().wait().unwrap();
            world.barrier().wait().unwrap();
            stop();
            assert_eq!(epoch.lease_left(), Some(Duration::ZERO));
            epoch.put(0, &[7; 8]).unwrap();
            let error = epoch.unlock().wait().unwrap_err();
            let why = "rank 2: access was revoked: a lock was kept for longer than its lease, or the rank counts as dead there";
            assert_eq!(error.to_string(), format!("unlock on rank 2 of window \"scores\": {why}"));
            assert!(window.lock_exclusive(2).wait().unwrap_err().is_revoked());
            assert!(world.barrier().wait().is_err());
            assert!(world.is_alive(2) && world.is_alive(1));
            done(0).unwrap(); // it can still reach rank 1
        }
        1 => {
            world.barrier().wait().unwrap();
            let pid = status.local().read(1..2)[0];
            eventually(DEADLINE / 2, "rank 0 has stopped", || state(pid) == Some('T'));
            let epoch = window.lock_exclusive(2).recover().wait().unwrap();
            assert_eq!(epoch.previous_owner(), Some(PreviousOwner::LeaseExpired(0)));
            let mut found = [0; 8];
            epoch.get(0, &mut found).wait().unwrap();
            assert_eq!(found, [1; 8]);
            epoch.put(0, &[2; 8]).unwrap();
            epoch.flush().wait().unwrap();
            send(pid, Signal::CONT);
            eventually(DEADLINE / 2, "rank 0 has gone on", || status.local().read(0..1) == [1]);
            epoch.get(0, &mut found).wait().unwrap();
            assert_eq!(found, [2; 8]);
            epoch.unlock().wait().unwrap();
            window.no_check().at(2).unwrap().fetch_add(15, 1).wait().unwrap();
            eventually(DEADLINE / 2, "rank 2 is done", || status.local().read(0..1) == [1 + (1 << 16)]);
        }
        _ => {
            world.barrier().wait().unwrap();
            eventually(DEADLINE / 2, "rank 1 is done", || window.local().read(15..16) == [1]);
            assert_eq!(window.local().read(0..8), [2; 8]);
            assert_eq!(world.fabric().failure(0), None); // rank 0 may have left by now
            drop(window.lock_exclusive(2).wait().unwrap());
            done(2).unwrap();
        }
    }
    ok();
}

#[test]
fn a_commit_after_the_lease_fails() {
    let ended = jobs::start(3, "lease commit").wait();
    assert_eq!((ended.code, ended.ok()), (0, vec![0, 1, 2]), "{ended:#?}");
}

#[test]
fn an_owner_with_an_expired_lease_is_killed() {
    let ended = jobs::start(3, "lease kill").wait();
    assert_eq!((ended.code, ended.ok()), (128 + 9, vec![1, 2]), "{ended:#?}");
}

#[test]
fn an_owner_with_an_expired_lease_is_revoked() {
    let ended = jobs::start(3, "lease revoke").wait();
    assert_eq!((ended.code, ended.ok()), (0, vec![0, 1, 2]), "{ended:#?}");
}

/// Unsupported policies are refused when the window is created, and so is a disagreement.
#[test]
fn unsupported_policies_are_refused() {
    ranks(2, |world| {
        let make = |design, policy| {
            let builder = Window::<u64>::builder().lock(design).lease_policy(policy, LEASE);
            builder.allocate(&world, 1).wait().map(drop).map_err(|error| error.to_string())
        };
        for design in LockDesign::ALL {
            for policy in [LeasePolicy::Kill, LeasePolicy::Revoke, LeasePolicy::VersionedCommit] {
                let made = make(*design, policy);
                // Ranks that are threads cannot be killed one by one.
                let commits = policy == LeasePolicy::VersionedCommit && *design == LockDesign::TestAndSet;
                assert_eq!(made.is_ok(), commits, "{design} {policy} {made:?}");
            }
        }
        let error = make(LockDesign::Mcs, LeasePolicy::VersionedCommit).unwrap_err();
        assert!(error.ends_with("for mcs locks here: only the word of a test-and-set lock names its owner"), "{error}");
        let builder = Window::<u64>::builder().lease_policy(LeasePolicy::VersionedCommit, LEASE);
        assert!(matches!(Mutex::with(builder, &world, 0, 0).wait().unwrap_err(), WindowError::LeasePolicy { .. }));
        let builder = Window::<u64>::builder().lock(LockDesign::TestAndSet);
        let builder = builder.lease_policy(LeasePolicy::VersionedCommit, Duration::ZERO);
        let error = builder.allocate(&world, 1).wait().map(drop).unwrap_err().to_string();
        assert!(error.ends_with("the lease must be longer than zero"), "{error}");
        let lease = LEASE * (1 + world.rank());
        let builder = Window::<u64>::builder().lease_policy(LeasePolicy::VersionedCommit, lease);
        let error = builder.allocate(&world, 1).wait().map(drop).unwrap_err().to_string();
        assert!(error.contains("lease policy: versioned commit after 300ms against"), "{error}");
    });
}

/// Rank 0 holds the lock for longer than its lease, and rank 1 takes it over and releases it: then
/// rank 0 runs `late`.
fn after_the_lease(
    lease: Duration,
    times: u32,
    end: impl Fn(Epoch<'_, u64, onesided::Any>) + Send + Sync + 'static,
) -> Vec<Result<(), Error>> {
    ranks(2, move |world| {
        let builder = Window::<u64>::builder().lease_policy(LeasePolicy::VersionedCommit, lease).name("scores");
        let window = builder.lock(LockDesign::TestAndSet).allocate(&world, 8).wait().unwrap();
        for _ in 0..times {
            if world.rank() == 0 {
                let epoch = window.lock_exclusive(1).wait().unwrap();
                world.barrier().wait().unwrap();
                world.barrier().wait().unwrap();
                end(epoch);
            } else {
                world.barrier().wait().unwrap();
                let epoch = window.lock_exclusive(1).wait().unwrap();
                assert_eq!(epoch.previous_owner(), Some(PreviousOwner::LeaseExpired(0)));
                epoch.unlock().wait().unwrap();
                world.barrier().wait().unwrap();
            }
        }
        window.close().wait().map_err(Error::from)
    })
}

/// A guard that is dropped after its lease is reported when the window ends, and costs no slot:
/// there are more of them than slots.
#[test]
fn guards_dropped_after_the_lease_are_reported() {
    let closed = after_the_lease(Duration::from_millis(2), 50, |epoch| {
        let _dropped = epoch;
    });
    assert!(closed[1].is_ok(), "{closed:?}");
    let expected = "unlock on rank 1 of window \"scores\": the lease expired, and another owner has taken the lock";
    assert!(closed[0].as_ref().is_err_and(|error| error.to_string() == expected), "{closed:?}");
}

/// A token that is drawn after the lease could be larger than that of the next owner.
#[test]
fn owners_with_an_expired_lease_draw_no_token() {
    let closed = after_the_lease(Duration::from_millis(2), 3, |epoch| {
        let error = epoch.fencing_token().wait().unwrap_err();
        assert!(matches!(error, WindowError::Late { operation: "fencing_token", .. }), "{error}");
        assert!(epoch.unlock().wait().is_err());
    });
    assert!(closed.iter().all(Result::is_ok), "{closed:?}");
    // An owner within its lease gets a token, with the acquire or under the lock, and so does a
    // reader.
    ranks(2, |world| {
        let builder = Window::<u64>::builder().lease_policy(LeasePolicy::VersionedCommit, DEADLINE);
        let window = builder.lock(LockDesign::TestAndSet).allocate(&world, 1).wait().unwrap();
        for _ in 0..50 {
            let (epoch, token) = window.lock_exclusive(0).fenced().wait().unwrap();
            assert!(epoch.fencing_token().wait().unwrap() > token);
            epoch.unlock().wait().unwrap();
            let (epoch, later) = window.lock_shared(0).fenced().wait().unwrap();
            assert!(later > token && epoch.fencing_token().wait().unwrap() > later);
        }
        window.close().wait().unwrap();
    });
}

/// A writer with an expired lease and the next owner would tear what is read.
#[test]
fn versioned_windows_take_no_policy_that_lets_two_write() {
    ranks(2, |world| {
        let builder = Window::<u64>::builder().lock(LockDesign::TestAndSet);
        let policy = LeasePolicy::VersionedCommit;
        let table = builder.lease_policy(policy, LEASE).allocate(&world, 1).wait().unwrap().versioned();
        let error = table.write(1).wait().map(drop).unwrap_err();
        assert!(error.fault().is_some_and(|fault| fault.kind() == FaultKind::Unsupported), "{error}");
        table.close().wait().unwrap();
    });
}

/// Each of them has the first slot and releases it.
#[test]
fn a_rank_has_as_many_locks_as_it_has_slots() {
    ranks(2, |world| {
        let builder = Window::<u64>::builder().lock(LockDesign::TestAndSet).lock_slots(33);
        let builder = builder.lease_policy(LeasePolicy::VersionedCommit, LEASE);
        let (window, me) = (builder.allocate(&world, 16).wait().unwrap(), world.rank());
        let alone = || window.lock_exclusive(me).wait().unwrap();
        for _ in 0..10 {
            alone().unlock().wait().unwrap();
            drop(alone());
            drop(window.lock_exclusive(me));
            drop(window.try_lock_exclusive(me).wait().unwrap().unwrap());
            window.locked(me).put(0, &[1]).wait().unwrap();
            window.lock_shared(me).wait().unwrap().unlock().wait().unwrap();
            std::thread::scope(|scope| drop(scope.spawn(alone).join().unwrap()));
        }
        let held: Vec<_> = (0..33).map(|_| window.lock_shared(me).wait().unwrap()).collect();
        let error = Error::from(window.lock_shared(me).wait().map(drop).unwrap_err());
        assert_eq!(error.fault().map(|fault| fault.kind()), Some(FaultKind::NoSlot), "{error}");
        drop(held);
        world.barrier().wait().unwrap();
        window.close().wait().unwrap();
    });
}
