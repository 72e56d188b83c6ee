//! Owners that are stopped for longer than their lease, and go on then.

use std::time::Duration;

use onesided::fabric::remote_memory::RemoteMemory as _;
use onesided::{
    Epoch, Error, FaultKind, LeasePolicy, LockDesign, LockTable, Mutex, PreviousOwner, Window, WindowError, World,
};
use rustix::process::Signal;

use crate::jobs::{self, Role, ok, send, state};
use crate::support::{DEADLINE, eventually, ranks};

pub(crate) const ROLES: &[Role] =
    &[("late commit", commits), ("late killed", killed), ("late revoked", revoked), ("late waited for", waited_for)];

const LEASE: Duration = Duration::from_millis(150);

/// Where rank 1 finds the process of rank 0, and rank 0 what rank 1 has done.
fn board(world: &World) -> Window<u64> {
    let board = Window::<u64>::allocate(world, 2).wait().unwrap();
    if world.rank() == 0 {
        board.no_check().at(1).unwrap().put(1, &[std::process::id().into()]).unwrap();
    }
    world.barrier().wait().unwrap();
    board
}

fn scores(world: &World, policy: LeasePolicy) -> Window<u64> {
    let builder = Window::<u64>::builder().lock(LockDesign::TestAndSet).name("scores");
    builder.lease_policy(policy, LEASE).allocate(world, 16).wait().unwrap()
}

/// Stops this process until somebody lets it go on.
fn stop() {
    send(std::process::id().into(), Signal::STOP);
    std::thread::sleep(Duration::from_millis(50)); // another thread may get the signal, and this one run until then
}

/// Rank 0 is stopped while it holds the lock of rank 2's part, rank 1 takes it over and commits, and rank 0 goes on.
fn commits(world: World) {
    let (board, window) = (board(&world), scores(&world, LeasePolicy::VersionedCommit));
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
            let told = "commit on rank 2 of window \"scores\": the lease expired, and another owner has taken the lock";
            assert_eq!(error.to_string(), told);
            let error = epoch.unlock().wait().unwrap_err();
            assert!(matches!(error, WindowError::Late { operation: "unlock", .. }), "{error}");
            // As any other now; and rank 1's lock was not harmed.
            let epoch = window.lock_exclusive(2).wait().unwrap();
            assert_eq!((epoch.previous_owner(), epoch.committed().wait().unwrap()), (None, 4));
            epoch.commit(5).wait().unwrap();
            epoch.unlock().wait().unwrap();
            drop(window.lock_shared(2).wait().unwrap());
        }
        1 => {
            world.barrier().wait().unwrap();
            let late = board.local().read(1..2)[0];
            eventually(DEADLINE / 2, "rank 0 has stopped", || state(late) == Some('T'));
            // A reader who meets a late owner has the lock alone, as every heir.
            let epoch = window.lock_shared(2).wait().unwrap();
            assert_eq!(
                (epoch.previous_owner(), epoch.mode()),
                (Some(PreviousOwner::LeaseExpired(0)), onesided::Mode::Exclusive)
            );
            assert_eq!(epoch.committed().wait().unwrap(), 1);
            epoch.commit(2).wait().unwrap();
            send(late, Signal::CONT);
            // It is late, and finds the lock held.
            eventually(DEADLINE / 2, "rank 0 goes on", || state(late) != Some('T'));
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

/// The same, but rank 1 kills rank 0, and has the lock as after any death.
fn killed(world: World) {
    let (board, window) = (board(&world), scores(&world, LeasePolicy::Kill));
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
        let late = board.local().read(1..2)[0];
        eventually(DEADLINE / 2, "rank 0 has stopped", || state(late) == Some('T'));
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

/// The same, but rank 1 has rank 2 close its queue pair to rank 0, and has the lock after that. Over mapped memory nobody can be
/// kept out, and that is told.
fn revoked(world: World) {
    let board = board(&world);
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
    let done = |rank: u32| board.no_check().at(1).unwrap().fetch_add(0, 1 << (8 * rank)).wait().map(drop);
    match world.rank() {
        0 => {
            let epoch = window.lock_exclusive(2).wait().unwrap();
            epoch.put(0, &[1; 8]).unwrap();
            epoch.flush().wait().unwrap();
            world.barrier().wait().unwrap();
            stop();
            assert_eq!(epoch.lease_left(), Some(Duration::ZERO));
            epoch.put(0, &[7; 8]).unwrap();
            let began = std::time::Instant::now();
            let error = epoch.unlock().wait().unwrap_err();
            let why = "rank 2: access was revoked, because a lock was kept for longer than its lease";
            assert_eq!(error.to_string(), format!("unlock on rank 2 of window \"scores\": {why}"));
            assert!(began.elapsed() < Duration::from_secs(2), "{:?}", began.elapsed());
            assert!(window.lock_exclusive(2).wait().unwrap_err().is_revoked());
            assert!(world.barrier().wait().is_err());
            assert!(world.is_alive(2) && world.is_alive(1));
            done(0).unwrap(); // it goes on with rank 1
        }
        1 => {
            world.barrier().wait().unwrap();
            let late = board.local().read(1..2)[0];
            eventually(DEADLINE / 2, "rank 0 has stopped", || state(late) == Some('T'));
            let epoch = window.lock_exclusive(2).recover().wait().unwrap();
            assert_eq!(epoch.previous_owner(), Some(PreviousOwner::LeaseExpired(0)));
            let mut found = [0; 8];
            epoch.get(0, &mut found).wait().unwrap();
            assert_eq!(found, [1; 8]);
            epoch.put(0, &[2; 8]).unwrap();
            epoch.flush().wait().unwrap();
            send(late, Signal::CONT);
            eventually(DEADLINE / 2, "rank 0 has gone on", || board.local().read(0..1) == [1]);
            epoch.get(0, &mut found).wait().unwrap();
            assert_eq!(found, [2; 8]);
            epoch.unlock().wait().unwrap();
            window.no_check().at(2).unwrap().fetch_add(15, 1).wait().unwrap();
            eventually(DEADLINE / 2, "rank 2 is done", || board.local().read(0..1) == [1 + (1 << 16)]);
        }
        _ => {
            world.barrier().wait().unwrap();
            eventually(DEADLINE / 2, "rank 1 is done", || window.local().read(15..16) == [1]);
            assert_eq!(window.local().read(0..8), [2; 8]);
            assert_eq!(world.fabric().failed_rank(), None); // rank 0 may have left by now
            drop(window.lock_exclusive(2).wait().unwrap());
            done(2).unwrap();
        }
    }
    ok();
}

/// No policy: rank 1 waits until rank 0 goes on.
fn waited_for(world: World) {
    let (board, window) = (board(&world), scores(&world, LeasePolicy::None));
    match world.rank() {
        0 => {
            let epoch = window.lock_exclusive(2).wait().unwrap();
            assert_eq!(epoch.lease_left(), None);
            world.barrier().wait().unwrap();
            stop();
            epoch.put(0, &[1]).unwrap();
            epoch.unlock().wait().unwrap();
        }
        1 => {
            world.barrier().wait().unwrap();
            let late = board.local().read(1..2)[0];
            eventually(DEADLINE / 2, "rank 0 has stopped", || state(late) == Some('T'));
            let error = window.lock_exclusive(2).deadline(3 * LEASE).wait().unwrap_err();
            assert!(error.is_timed_out(), "{error}");
            send(late, Signal::CONT);
            let epoch = window.lock_exclusive(2).wait().unwrap();
            let mut found = [0];
            epoch.get(0, &mut found).wait().unwrap();
            assert_eq!((epoch.previous_owner(), found), (None, [1]));
            epoch.unlock().wait().unwrap();
        }
        _ => world.barrier().wait().unwrap(),
    }
    world.barrier().wait().unwrap();
    window.close().wait().unwrap();
    ok();
}

#[test]
fn what_a_late_owner_commits_fails() {
    let ended = jobs::start(3, "late commit").wait();
    assert_eq!((ended.code, ended.ok()), (0, vec![0, 1, 2]), "{ended:#?}");
}

#[test]
fn a_late_owner_is_killed() {
    let ended = jobs::start(3, "late killed").wait();
    assert_eq!((ended.code, ended.ok()), (128 + 9, vec![1, 2]), "{ended:#?}");
}

#[test]
fn a_late_owner_is_kept_out() {
    let ended = jobs::start(3, "late revoked").wait();
    assert_eq!((ended.code, ended.ok()), (0, vec![0, 1, 2]), "{ended:#?}");
}

#[test]
fn without_a_policy_a_late_owner_is_waited_for() {
    let ended = jobs::start(3, "late waited for").wait();
    assert_eq!((ended.code, ended.ok()), (0, vec![0, 1, 2]), "{ended:#?}");
}

/// What cannot be had is told when the window is made, and so is a disagreement.
#[test]
fn policies_that_cannot_be_had_are_told() {
    ranks(2, |world| {
        let make = |design, policy| {
            let builder = Window::<u64>::builder().lock(design).lease_policy(policy, LEASE);
            builder.allocate(&world, 1).wait().map(drop).map_err(|error| error.to_string())
        };
        for design in LockDesign::ALL {
            for policy in [LeasePolicy::Kill, LeasePolicy::Revoke, LeasePolicy::VersionedCommit, LeasePolicy::None] {
                let made = make(*design, policy);
                // Ranks that are threads cannot be killed one by one.
                let commits = policy == LeasePolicy::VersionedCommit && *design == LockDesign::TestAndSet;
                assert_eq!(made.is_ok(), policy == LeasePolicy::None || commits, "{design} {policy} {made:?}");
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

/// Rank 0 has the lock for longer than its lease, and rank 1 takes it over and gives it back: then rank 0 does this.
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
                let heir = window.lock_exclusive(1).wait().unwrap();
                assert_eq!(heir.previous_owner(), Some(PreviousOwner::LeaseExpired(0)));
                heir.unlock().wait().unwrap();
                world.barrier().wait().unwrap();
            }
        }
        window.close().wait().map_err(Error::from)
    })
}

/// A guard that is dropped late is told of by the window's end, and costs nothing: there are more of them than slots.
#[test]
fn guards_that_are_dropped_late_are_told_of() {
    let closed = after_the_lease(Duration::from_millis(2), 50, |epoch| {
        let _dropped = epoch;
    });
    assert!(closed[1].is_ok(), "{closed:?}");
    let told = "unlock on rank 1 of window \"scores\": the lease expired, and another owner has taken the lock";
    assert!(closed[0].as_ref().is_err_and(|error| error.to_string() == told), "{closed:?}");
}

/// A token that is drawn late would be larger than that of whoever has the lock by then.
#[test]
fn late_owners_draw_no_token() {
    let closed = after_the_lease(Duration::from_millis(2), 3, |epoch| {
        let error = epoch.fencing_token().wait().unwrap_err();
        assert!(matches!(error, WindowError::Late { operation: "fencing_token", .. }), "{error}");
        assert!(epoch.unlock().wait().is_err());
    });
    assert!(closed.iter().all(Result::is_ok), "{closed:?}");
    // Who is not late gets it, asked for with the lock or under it, and so does a reader.
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

/// A late writer and its heir would tear what is read.
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

/// Many owners, none of them late: the leases cost no lock.
#[test]
fn who_is_not_late_keeps_the_lock() {
    ranks(3, |world| {
        let builder = Window::<u64>::builder().lease_policy(LeasePolicy::VersionedCommit, DEADLINE);
        let window = builder.allocate(&world, 1).wait().unwrap();
        for round in 0..300 {
            let epoch = window.lock_exclusive(0).wait().unwrap();
            let count = epoch.committed().wait().unwrap();
            epoch.commit(count + 1).wait().unwrap();
            if round % 2 == 0 { epoch.unlock().wait().unwrap() } else { drop(epoch) }
        }
        world.barrier().wait().unwrap();
        assert_eq!(window.lock_shared(0).wait().unwrap().committed().wait().unwrap(), 900);
        window.close().wait().unwrap();
    });
}

/// Each of them has the first slot, which is as the others, and gives it back.
#[test]
fn a_rank_has_as_many_locks_as_it_has_slots() {
    ranks(2, |world| {
        let (window, me) = (scores(&world, LeasePolicy::VersionedCommit), world.rank());
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
        assert_eq!(error.fault().map(|fault| fault.kind()), Some(FaultKind::Full), "{error}");
        drop(held);
        world.barrier().wait().unwrap();
        window.close().wait().unwrap();
    });
}
