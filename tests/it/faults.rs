//! Ranks that die, stop or compute: the errors that the others get, and that they continue. How
//! soon is tested in virtual time, in `tests/simulated/deaths.rs`.

use std::time::Duration;

use onesided::fabric::Fabric as _;
use onesided::{Error, FaultKind, LockDesign, Mode, PreviousOwner, Window, World};
use rustix::process::Signal;

use crate::jobs::{self, Ended, Role, die, ok, send, state};
use crate::support::{DEADLINE, eventually};

pub(crate) mod status;

use self::status::{DONE, INFORMED, PID, RECOVERED, SYNCHRONIZED, Status};

pub(crate) const ROLES: &[Role] = &[
    ("exclusive owner", owner_dies),
    ("shared owner", reader_dies),
    ("panics", panics),
    ("waiter", waiter_dies),
    ("barrier", barrier_dies),
    ("first look", first_look_at_the_dead),
    ("stopped", stopped_target),
];

/// A window that rank 0 has filled at every rank.
fn filled(world: &World) -> Window<u64> {
    let window = Window::<u64>::builder().name("scores").allocate(world, 100).wait().unwrap();
    if world.rank() == 0 {
        for target in 0..world.size() {
            let epoch = window.lock_exclusive(target).wait().unwrap();
            epoch.put(0, &[u64::from(target) + 7; 100]).unwrap();
            epoch.unlock().wait().unwrap();
        }
    }
    world.barrier().wait().unwrap();
    window
}

/// Whether a rank's memory is lost with it.
fn is_lost(world: &World, rank: u32) -> bool {
    !world.is_alive(rank) && !world.fabric().capabilities().memory_survives
}

/// The memory of every rank is intact, and all locks but those of `lost` work. Then waits for the
/// other survivors, without a barrier: barriers fail after a death.
fn check_survivors(status: &Status, window: &Window<u64>, lost: Option<u32>) {
    let world = window.world();
    assert_eq!(window.local().read(0..100), [u64::from(world.rank()) + 7; 100]);
    for target in (0..world.size()).filter(|target| Some(*target) != lost) {
        // A lock that a thread of its target serves ends with that rank.
        let unserved = window.info().lock.is_served() && !world.is_alive(target);
        if is_lost(world, target) || unserved {
            let error = Error::from(window.lock_exclusive(target).wait().unwrap_err());
            assert_eq!(error.fault().map(|fault| fault.kind()), Some(FaultKind::PeerDied), "{error}");
            continue;
        }
        let epoch = window.lock_exclusive(target).wait().unwrap();
        let mut all = [0; 100];
        epoch.get(0, &mut all).wait().unwrap();
        assert_eq!(all, [u64::from(target) + 7; 100]);
        epoch.put(0, &all).unwrap();
        epoch.unlock().wait().unwrap();
        drop(window.lock_shared(target).wait().unwrap());
    }
    status.all_done();
}

/// Rank 0 takes the lock of rank 1 exclusively and dies; the others wait for it and get an error.
/// Then rank 2 recovers the lock, and it works as any other.
fn owner_dies(world: World) {
    let (status, window) = (Status::new(&world), filled(&world));
    if world.rank() == 0 {
        let _epoch = window.lock_exclusive(1).wait().unwrap();
        world.barrier().wait().unwrap();
        std::thread::sleep(Duration::from_millis(200)); // the others wait by now
        die();
    }
    world.barrier().wait().unwrap();
    // A queue cannot publish which of the dead held it; a thread at the target can.
    let named = match window.info().lock {
        LockDesign::TestAndSet => true,
        LockDesign::TwoLevel => true, // the first owner did not queue
        design => design.is_served(),
    };
    match named {
        true => poisoned_by_rank_0(&status, &window, FaultKind::OwnerDied, PreviousOwner::Owner(0)),
        false => poisoned_by_rank_0(&status, &window, FaultKind::ParticipantDied, PreviousOwner::Participant(0)),
    }
    check_survivors(&status, &window, None);
    ok();
}

/// The lock of rank 1 is poisoned by rank 0, which ends: both survivors are told, and rank 2
/// recovers it.
fn poisoned_by_rank_0(status: &Status, window: &Window<u64>, kind: FaultKind, previous: PreviousOwner) {
    let world = window.world();
    let error = Error::from(window.lock_exclusive(1).wait().unwrap_err());
    let fault = error.fault().unwrap();
    assert_eq!((fault.kind(), fault.rank().map(|rank| rank.0)), (kind, Some(0)), "{error}");
    assert!(error.is_poisoned() && error.is_owner_died() == (kind == FaultKind::OwnerDied));
    let expected = format!("lock_exclusive on rank 1 of window \"scores\": {previous} (`recover` takes it over)");
    assert_eq!(error.to_string(), expected);
    // Over a network its connection may be lost before its end is known.
    eventually(DEADLINE, "rank 0 counts as dead", || !world.is_alive(0));
    assert!(world.is_alive(1));
    // A later acquire gets the same error immediately, as long as no rank has recovered the lock.
    assert!(Error::from(window.lock_shared(1).wait().unwrap_err()).is_poisoned());
    // While the other rank's acquire is in flight, a try finds the lock busy.
    eventually(DEADLINE, "a try fails", || match window.try_lock_exclusive(1).wait() {
        Ok(epoch) => {
            assert!(epoch.is_none(), "the try did not fail");
            false
        }
        Err(error) => Error::from(error).is_poisoned(),
    });
    status.publish(INFORMED, 1);
    if world.rank() == 2 {
        eventually(DEADLINE, "rank 1 got the error", || status.published(1, INFORMED) == 1);
        let epoch = window.lock_shared(1).recover().wait().unwrap();
        assert_eq!((epoch.previous_owner(), epoch.mode()), (Some(previous), Mode::Exclusive));
        assert!(window.try_lock_shared(1).wait().unwrap().is_none());
        epoch.unlock().wait().unwrap();
        status.publish(RECOVERED, 1);
    }
    eventually(DEADLINE, "it is recovered", || status.published(2, RECOVERED) == 1);
    let epoch = window.lock_exclusive(1).recover().wait().unwrap();
    assert_eq!(epoch.previous_owner(), None);
    epoch.unlock().wait().unwrap();
}

/// Rank 0 takes the lock of rank 1 shared and dies; the others wait for it and get it as after any
/// other reader.
fn reader_dies(world: World) {
    let (status, window) = (Status::new(&world), filled(&world));
    if world.rank() == 0 {
        let _epoch = window.lock_shared(1).wait().unwrap();
        world.barrier().wait().unwrap();
        std::thread::sleep(Duration::from_millis(200)); // the others wait by now
        die();
    }
    world.barrier().wait().unwrap();
    let epoch = window.lock_exclusive(1).wait().unwrap();
    assert_eq!((epoch.previous_owner(), epoch.mode()), (None, Mode::Exclusive));
    assert!(window.try_lock_shared(1).wait().unwrap().is_none());
    epoch.unlock().wait().unwrap();
    // A recovering request recovers nothing, and is shared as it asked.
    let epoch = window.lock_shared(1).recover().wait().unwrap();
    assert_eq!((epoch.previous_owner(), epoch.mode()), (None, Mode::Shared));
    epoch.unlock().wait().unwrap();
    eventually(DEADLINE, "rank 0 counts as dead", || !world.is_alive(0));
    check_survivors(&status, &window, None);
    ok();
}

/// Rank 0 panics while it holds the lock of rank 1: its guard leaves the lock poisoned as it is
/// dropped, and then rank 0 is dead.
fn panics(world: World) {
    let (status, window) = (Status::new(&world), filled(&world));
    let epoch = (world.rank() == 0).then(|| window.lock_exclusive(1).wait().unwrap());
    world.barrier().wait().unwrap();
    status.publish(SYNCHRONIZED, 1);
    if epoch.is_some() {
        // Otherwise a barrier may fail that is not over on every rank.
        eventually(DEADLINE, "all are past the barrier", || {
            (1..world.size()).all(|rank| status.published(rank, SYNCHRONIZED) == 1)
        });
        panic!("on purpose");
    }
    let error = Error::from(world.barrier().wait().unwrap_err());
    assert_eq!(error.to_string(), "barrier: rank 0 died");
    // Its windows were dropped, too.
    let error = Error::from(window.lock_exclusive(0).wait().unwrap_err());
    assert_eq!(error.to_string(), "lock_exclusive on rank 0 of window \"scores\": rank 0 died");
    poisoned_by_rank_0(&status, &window, FaultKind::OwnerPanicked, PreviousOwner::Panicked(0));
    check_survivors(&status, &window, Some(0));
    ok();
}

/// Rank 0 dies while it waits for the lock of rank 1, which rank 1 holds.
fn waiter_dies(world: World) {
    let (status, window) = (Status::new(&world), filled(&world));
    match world.rank() {
        0 => {
            world.barrier().wait().unwrap();
            let _ = window.lock_exclusive(1).wait();
            panic!("it was to be killed");
        }
        1 => {
            let epoch = window.lock_exclusive(1).wait().unwrap();
            world.barrier().wait().unwrap();
            std::thread::sleep(Duration::from_millis(150));
            send(status.published(0, PID), Signal::KILL);
            eventually(DEADLINE, "its death is known", || !world.is_alive(0));
            epoch.unlock().wait().unwrap();
            eventually(DEADLINE, "it is recovered", || status.published(2, RECOVERED) == 1);
        }
        _ => {
            world.barrier().wait().unwrap();
            let epoch = window.lock_exclusive(1).recover().wait().unwrap(); // waits, too
            let previous = epoch.previous_owner();
            epoch.unlock().wait().unwrap();
            let queues = window.info().lock != LockDesign::TestAndSet;
            assert!(previous.is_none() || queues, "{previous:?}");
            if queues && previous.is_none() {
                // It queued before the dead rank, which is still in the queue.
                eventually(DEADLINE, "its death is known", || !world.is_alive(0));
                drop(window.lock_exclusive(1).recover().wait().unwrap());
            }
            status.publish(RECOVERED, 1);
        }
    }
    check_survivors(&status, &window, None);
    ok();
}

/// Rank 0 dies while the others are in a barrier.
fn barrier_dies(world: World) {
    let (status, window) = (Status::new(&world), filled(&world));
    if world.rank() == 0 {
        std::thread::sleep(Duration::from_millis(200));
        die();
    }
    let error = Error::from(world.barrier().wait().unwrap_err());
    assert_eq!(error.to_string(), "barrier: rank 0 died");
    let error = Error::from(Window::<u8>::builder().name("next").allocate(&world, 1).wait().map(|_| ()).unwrap_err());
    assert_eq!(
        error.to_string(),
        "create window \"next\": an earlier collective of this world or window failed or was cancelled; a world that was split off before can go on"
    );
    check_survivors(&status, &window, None);
    let error = Error::from(window.close().wait().unwrap_err());
    assert_eq!(error.to_string(), "close window \"scores\": rank 0 died");
    ok();
}

/// A dead rank's memory stays, also for ranks that had not accessed it before.
fn first_look_at_the_dead(world: World) {
    let status = Status::new(&world);
    let window = Window::<u64>::builder().name("scores").allocate(&world, 100).wait().unwrap();
    window.local().write(0, &[u64::from(world.rank()) + 7; 100]).unwrap();
    world.barrier().wait().unwrap();
    if world.rank() == 0 {
        // The death must not occur during the barrier.
        let others = 1..world.size();
        eventually(DEADLINE, "the others have left the barrier", || {
            others.clone().all(|rank| status.published(rank, INFORMED) == 1)
        });
        die();
    }
    status.publish(INFORMED, 1);
    eventually(DEADLINE, "its death is known", || !world.is_alive(0));
    assert_ne!(status.published(0, PID), 0);
    check_survivors(&status, &window, None);
    ok();
}

/// The operations of ranks 1 and 2 on rank 0, repeated: all that must not need the target's help.
fn operate(window: &Window<u64>, rounds: u64) {
    for round in 0..rounds {
        let epoch = window.lock_exclusive(0).wait().unwrap();
        let mut value = [0; 2];
        epoch.get(10, &mut value).wait().unwrap();
        epoch.put(10, &[value[0] + 1, value[1] + 1]).unwrap();
        epoch.flush().wait().unwrap();
        epoch.fetch_add(20, 1).wait().unwrap();
        let found = epoch.compare_and_swap(30, 7 + round, 8 + round).wait().unwrap();
        assert!(found >= 7 + round);
        epoch.unlock().wait().unwrap();
        let epoch = window.lock_shared(0).wait().unwrap();
        epoch.fetch_add(20, 1).wait().unwrap();
        epoch.unlock().wait().unwrap();
    }
}

fn check_operated(window: &Window<u64>, rounds: u64) {
    let all = window.local().read(0..100);
    let [counted, added] = [7 + 2 * rounds, 7 + 4 * rounds];
    assert_eq!((all[10], all[11], all[20], all[30]), (counted, counted, added, 7 + rounds));
    assert!([0, 9, 12, 19, 21, 29, 31, 99].iter().all(|at| all[*at] == 7));
}

/// How often; emulated cards are slow.
fn rounds() -> u64 {
    if jobs::is_on_cards() { 30 } else { 500 }
}

fn stopped_target(world: World) {
    let (status, window) = (Status::new(&world), filled(&world));
    if world.rank() == 0 {
        send(std::process::id().into(), Signal::STOP);
    } else {
        let target = status.published(0, PID);
        eventually(DEADLINE, "the target has stopped", || state(target) == Some('T'));
        operate(&window, rounds());
        assert_eq!(state(target), Some('T'));
        status.publish(DONE, 1);
        eventually(DEADLINE, "both are done", || status.published(3 - world.rank(), DONE) == 1);
        if world.rank() == 1 {
            send(target, Signal::CONT);
        }
    }
    world.barrier().wait().unwrap();
    if world.rank() == 0 {
        check_operated(&window, rounds());
    }
    window.close().wait().unwrap();
    ok();
}

/// Runs a role with three ranks, of which 1 and 2 must end well.
fn survivors(role: &str, code: i32) -> Ended {
    survivors_under(LockDesign::default(), role, code)
}

fn survivors_under(design: LockDesign, role: &str, code: i32) -> Ended {
    let ended = jobs::start_under(3, role, ("ONESIDED_LOCK", design.name())).wait();
    assert_eq!(ended.code, code, "{design} {ended:#?}");
    assert_eq!(ended.ok().iter().filter(|rank| **rank != 0).count(), 2, "{design} {ended:#?}");
    ended
}

/// All of them. On cards, where a job takes seconds, those that the test names: how a design recovers
/// is the same on every fabric.
fn designs(on_cards: &[LockDesign]) -> Vec<LockDesign> {
    if jobs::is_short_on_cards() { on_cards.to_vec() } else { LockDesign::ALL.to_vec() }
}

const KILLED: i32 = 128 + 9;

/// On cards a design whose words tell the owner, one that queues, and one that a thread of the target
/// serves.
#[test]
fn waiters_learn_the_dead_exclusive_owner() {
    for design in designs(&[LockDesign::TestAndSet, LockDesign::Mcs, LockDesign::EventThread]) {
        let ended = survivors_under(design, "exclusive owner", KILLED);
        assert!(ended.lines.iter().any(|line| line.contains("was killed by SIGKILL")), "{ended:#?}");
    }
}

#[test]
fn a_dead_shared_owner_poisons_nothing() {
    for design in designs(&[LockDesign::TestAndSet]) {
        survivors_under(design, "shared owner", KILLED);
    }
}

#[test]
fn a_panic_is_a_death_and_poisons_the_lock() {
    for design in designs(&[LockDesign::TestAndSet]) {
        let ended = survivors_under(design, "panics", 101);
        assert!(ended.lines.iter().any(|line| line.contains("on purpose")), "{ended:#?}");
    }
}

#[test]
fn a_dead_waiter_affects_no_other_rank() {
    for design in designs(&[LockDesign::Mcs]) {
        survivors_under(design, "waiter", KILLED);
    }
}

#[test]
fn a_death_ends_a_barrier() {
    survivors("barrier", KILLED);
}

#[test]
fn the_memory_of_the_dead_can_be_reached() {
    survivors("first look", KILLED);
}

#[test]
fn a_stopped_target_is_not_needed() {
    survivors("stopped", 0);
}
