//! A cancelled waiter blocks no other owner: its acquire fails, or succeeds and is released.

use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

use crate::right::{distributed, global, mcs, queue, right, ticket, two_level};
use onesided_lock_algos::{Held, Intent, LockAlgorithm, Mode};
use onesided_lock_kit::program::{idle, lock_and_data, region_words};
use onesided_lock_kit::{ModelMemory, Slots};
use onesided_remote_memory::{Fault, FaultKind};

use crate::stopped::{ENDLESS, poll, run};
use crate::users::{User, slotted};

/// Enough events for every owner to wait.
const A_WHILE: usize = 40;

/// The intent of an acquire that waits for the lock while it is wanted.
fn until(wanted: &AtomicBool, then: Intent) -> impl Fn() -> Intent + Send + Sync + '_ {
    move || if wanted.load(Relaxed) { Intent::LOCK } else { then }
}

/// Rank 1 holds the lock, and ranks 0 and 2 wait in that order. After `events` events rank 0 is
/// cancelled; once it has noticed, rank 1 releases. If rank 0 is last, rank 2 arrives only then. If
/// it waits `in_turn`, it may acquire the lock after that, and releases it. It acquires once more
/// later.
fn give_up<A: LockAlgorithm>(
    (lock, in_turn): (&A, bool),
    slots: Slots,
    modes: [Mode; 3],
    (events, is_last): (usize, bool),
) {
    let case = format!("{} {modes:?} {slots:?}, after {events} events, last: {is_last}", A::NAME);
    let memory = ModelMemory::new(3, region_words::<A>(slots));
    let all: Vec<_> = (0..3).map(|rank| memory.of(rank)).collect();
    let user = |rank: u32| User { lock, memory: &all[rank as usize], owner: slotted(rank), slots };
    let [leaves, holds, stays] = modes;
    let wanted = AtomicBool::new(true);
    assert_eq!(run(&memory, &mut user(1).asks(holds, Intent::LOCK), ENDLESS), Some(Ok(Held::cleanly(holds))), "{case}");
    let mut first = user(0).asks_as(leaves, Intent::LOCK, until(&wanted, Intent::CANCELLED));
    assert_eq!(run(&memory, &mut first, events), None, "{case}: it does not wait");
    let mut second = user(2).asks(stays, Intent::LOCK);
    if !is_last {
        assert_eq!(run(&memory, &mut second, A_WHILE), None, "{case}: rank 2 does not wait");
    }

    wanted.store(false, Relaxed);
    let mut told = run(&memory, &mut first, A_WHILE);
    let mut released = user(1).releases(holds);
    let mut passed_on = user(0).releases(leaves);
    let (mut has, mut done, mut passed) = (None, None, None);
    for _ in 0..ENDLESS {
        told = told.or_else(|| poll(&mut first));
        if told.is_some_and(|told| told.is_ok()) {
            passed = passed.or_else(|| poll(&mut passed_on));
        }
        has = has.or_else(|| poll(&mut second));
        done = done.or_else(|| poll(&mut released));
        memory.world().step();
    }
    match told {
        Some(Ok(held)) if in_turn => assert_eq!((held, passed), (Held::cleanly(leaves), Some(Ok(()))), "{case}"),
        told => assert_eq!(told, Some(Err(Fault::new(FaultKind::Closed))), "{case}: who gave up"),
    }
    assert_eq!((has, done), (Some(Ok(Held::cleanly(stays))), Some(Ok(()))), "{case}: the others");
    assert_eq!(run(&memory, &mut user(2).releases(stays), ENDLESS), Some(Ok(())), "{case}");
    // With the same slot.
    let again = run(&memory, &mut user(0).asks(leaves, Intent::LOCK), ENDLESS);
    assert_eq!(again, Some(Ok(Held::cleanly(leaves))), "{case}: who gave up comes again");
    assert_eq!(run(&memory, &mut user(0).releases(leaves), ENDLESS), Some(Ok(())), "{case}: who gave up comes again");
    assert!(A::is_free(lock_and_data::<A>(&memory.region()).0), "{case}: not free");
    assert!(all.iter().all(|memory| idle::<A>(slots, &memory.region())), "{case}: somebody counts");
}

/// Rank 1 holds the lock, and ranks 0 and 2 wait in that order. After `events` events rank 0 leaves:
/// its acquire ends while rank 1 still holds the lock. Rank 2 gets the lock as if rank 0 had never
/// asked.
fn leave<A: LockAlgorithm>(lock: &A, slots: Slots, modes: [Mode; 3], events: usize) {
    let case = format!("{} {modes:?} {slots:?}, left after {events} events", A::NAME);
    let memory = ModelMemory::new(3, region_words::<A>(slots));
    memory.world().leaves = true;
    let all: Vec<_> = (0..3).map(|rank| memory.of(rank)).collect();
    // The home stays.
    let user = |rank: u32| {
        let owner = slotted((rank + 1) % 3);
        User { lock, memory: &all[owner.rank.index()], owner, slots }
    };
    let [leaves, holds, stays] = modes;
    let wanted = AtomicBool::new(true);
    assert_eq!(run(&memory, &mut user(1).asks(holds, Intent::LOCK), ENDLESS), Some(Ok(Held::cleanly(holds))), "{case}");
    let mut first = user(0).asks_as(leaves, Intent::LOCK, until(&wanted, Intent::LEAVING));
    assert_eq!(run(&memory, &mut first, events), None, "{case}: it does not wait");
    let mut second = user(2).asks(stays, Intent::LOCK);
    assert_eq!(run(&memory, &mut second, A_WHILE), None, "{case}: rank 2 does not wait");
    wanted.store(false, Relaxed);
    let ended = (0..ENDLESS).find_map(|_| {
        assert_eq!(poll(&mut second), None, "{case}: rank 2");
        memory.world().step();
        poll(&mut first)
    });
    assert_eq!(ended, Some(Err(Fault::new(FaultKind::Closed))), "{case}");
    memory.world().kill(user(0).owner.rank);
    let (mut released, mut has) = (user(1).releases(holds), None);
    let mut done = None;
    for _ in 0..ENDLESS {
        done = done.or_else(|| poll(&mut released));
        has = has.or_else(|| poll(&mut second));
        memory.world().step();
    }
    assert_eq!((has, done), (Some(Ok(Held::cleanly(stays))), Some(Ok(()))), "{case}: the others");
    assert_eq!(run(&memory, &mut user(2).releases(stays), ENDLESS), Some(Ok(())), "{case}");
    assert!(A::is_free(lock_and_data::<A>(&memory.region()).0), "{case}: not free");
}

fn give_up_everywhere<A: LockAlgorithm>(lock: &A, in_turn: bool) {
    const X: Mode = Mode::Exclusive;
    const S: Mode = Mode::Shared;
    for per_host in [3, 1] {
        let slots = Slots { per_host, ..Slots::new(1) };
        for modes in [[X, X, X], [S, X, X], [X, X, S], [S, X, S], [X, S, X]] {
            for events in 0..A_WHILE {
                give_up((lock, in_turn), slots, modes, (events, false));
                give_up((lock, in_turn), slots, modes, (events, true));
                leave(lock, slots, modes, events);
            }
        }
    }
}

#[test]
fn test_and_set() {
    give_up_everywhere(&right(), false);
}

#[test]
fn the_queue_lock() {
    give_up_everywhere(&mcs(), true);
}

#[test]
fn tickets() {
    give_up_everywhere(&ticket::<15>(), true);
    give_up_everywhere(&ticket::<2>(), true);
}

#[test]
fn queues_by_fetch_add() {
    give_up_everywhere(&queue::<15, 16>(), true);
}

#[test]
fn distributed_counters() {
    give_up_everywhere(&distributed::<15>(), true);
}

#[test]
fn two_levels() {
    give_up_everywhere(&two_level(8), false);
    give_up_everywhere(&two_level(8).bypasses(1), false);
}

#[test]
fn all_targets() {
    give_up_everywhere(&global::<_, 15>(right()), false);
    give_up_everywhere(&global::<_, 1>(right()), false);
}
