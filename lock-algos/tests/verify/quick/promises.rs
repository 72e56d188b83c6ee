//! The properties that an algorithm reports, checked by its behaviour: one rank alone acquires and
//! releases the lock, a second one comes, or tries.

use std::pin::Pin;

use crate::right::{distributed, global, mcs, queue, right, ticket, two_level};
use onesided_lock_algos::{Held, Intent, LockAlgorithm, LockUse, Mode, Owner, Rest};
use onesided_lock_kit::program::{idle, lock_and_data, per_rank_word, region_words};
use onesided_lock_kit::random::drive;
use onesided_lock_kit::{Layout, ModelMemory, Slots};
use onesided_remote_memory::{Fault, FaultKind, Rank};

use crate::stopped::{ENDLESS, SLOTS, acquire, run};
use crate::users::{User, slotted};

/// How much of an uncontended acquire and release the first operation completes.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Takes {
    /// Both, and the release need not be waited for.
    Link,
    /// Both.
    One,
    /// Not both.
    More,
}

/// Rank 0 holds the lock at its home.
fn keeps<A: LockAlgorithm>(lock: &A, (exclusive, shared): (Takes, Takes)) {
    for (mode, takes) in [(Mode::Exclusive, exclusive), (Mode::Shared, shared)] {
        let slots = Slots::new(1);
        let case = format!("{} {mode:?}", A::NAME);
        let memory = ModelMemory::new(2, region_words::<A>(slots));
        let owner = Owner { rank: Rank(0), slot: 0, generation: 3 };
        let context = Layout::new::<A>(&memory, owner, slots);
        let is_free = || A::is_free(lock_and_data::<A>(&memory.region()).0);
        let words = lock.words(context, Intent::LOCK).unwrap();
        assert!(is_free() && idle::<A>(slots, &memory.region()), "{case}");

        let first = drive(&memory, lock.start(LockUse::new(&memory, context, words, mode)).unwrap());
        let at_once = first.is_ok_and(|first| lock.holds(words.1, mode, first));
        assert!(at_once || takes == Takes::More, "{case}: more than an operation");
        if !at_once {
            let held =
                drive(&memory, lock.contend(LockUse::new(&memory, context, words, mode), first, &|| Intent::LOCK));
            assert_eq!(held, Ok(Held::cleanly(mode)), "{case}");
        }
        let reads_apart = A::PER_RANK_WORD && per_rank_word::<A>(&memory.region()) != 0;
        assert!(!is_free() || reads_apart, "{case}: free while it is held");
        let counts = !idle::<A>(slots, &memory.region());
        assert!(!counts || lock.uses_node(mode), "{case}: a node that nobody takes");

        let held = LockUse::new(&memory, context, words, mode);
        let released = drive(&memory, lock.start_release(held).unwrap());
        let in_one_step = lock.released(held, None) == Ok(Rest::Nothing);
        let done = in_one_step || lock.released(held, released.ok()) == Ok(Rest::Nothing);
        assert!(done || takes == Takes::More, "{case}: a release of more than an operation");
        if !done {
            let rest = lock.finish_release(held, released);
            assert_eq!(drive(&memory, rest), Ok(()), "{case}");
        }
        assert!(is_free() && idle::<A>(slots, &memory.region()), "{case}: not free after its release");
        assert_eq!(in_one_step, takes == Takes::Link, "{case}: one step");
    }
}

#[test]
fn test_and_set() {
    keeps(&right(), (Takes::Link, Takes::One));
    keeps(&right().checked(), (Takes::One, Takes::One));
}

#[test]
fn the_queue_lock() {
    keeps(&mcs(), (Takes::One, Takes::One));
}

#[test]
fn tickets() {
    keeps(&ticket::<15>(), (Takes::One, Takes::One));
}

#[test]
fn queues_by_fetch_add() {
    keeps(&queue::<15, 16>(), (Takes::One, Takes::One));
}

#[test]
fn distributed_counters() {
    keeps(&distributed::<15>(), (Takes::More, Takes::One));
}

#[test]
fn two_levels() {
    keeps(&two_level(8), (Takes::More, Takes::One));
    keeps(&two_level(8).bypasses(1), (Takes::One, Takes::One));
}

/// An exclusive owner announces itself first; readers lock all targets.
#[test]
fn all_targets() {
    keeps(&global::<_, 15>(right()), (Takes::More, Takes::More));
    keeps(&global::<_, 15>(mcs()), (Takes::More, Takes::More));
}

/// Rank 1 arrives while rank 0 holds the lock, and is stopped at any step: rank 0's release
/// completes without it, unless it reports that it waits. Counts how often it did either.
fn waits_as_it_says<A: LockAlgorithm>(lock: &A) -> (usize, usize) {
    /// More events than queueing takes.
    const EVENTS: usize = 40;
    let slots = SLOTS;
    let (mut waited, mut ended) = (0, 0);
    for events in 0..EVENTS {
        let memory = ModelMemory::new(2, region_words::<A>(slots));
        let [holds, comes] = [0, 1].map(|rank| memory.of(rank));
        let held = run(&memory, &mut acquire(lock, &holds, slotted(0), Mode::Exclusive), ENDLESS).unwrap().unwrap();
        let mut coming = acquire(lock, &comes, slotted(1), Mode::Exclusive);
        assert!(run(&memory, &mut coming, events).is_none());
        memory.world().stopped = Some(Rank(1));

        let context = Layout::new::<A>(&holds, slotted(0), slots);
        let words = lock.words(context, Intent::LOCK).unwrap();
        let used = LockUse::new(&holds, context, words, held.mode);
        let started = lock.start_release(used).unwrap();
        let mut started: Pin<Box<dyn Future<Output = _>>> = Box::pin(started);
        let found: Result<u64, Fault> = run(&memory, &mut started, ENDLESS).unwrap();
        let waits = match lock.released(used, found.ok()).unwrap() {
            Rest::Nothing | Rest::Unknown => continue,
            rest => rest == Rest::Waits,
        };
        let rest = lock.finish_release(used, found);
        let mut rest: Pin<Box<dyn Future<Output = _>>> = Box::pin(rest);
        let outcome = run(&memory, &mut rest, ENDLESS);
        assert_eq!(outcome, (!waits).then_some(Ok(())), "{}: after {events} events", A::NAME);
        *if waits { &mut waited } else { &mut ended } += 1;
        memory.world().stopped = None;
        if waits {
            assert!(run(&memory, &mut coming, EVENTS).is_none());
            assert_eq!(run(&memory, &mut rest, ENDLESS), Some(Ok(())), "{}: after {events} events", A::NAME);
        }
        assert!(run(&memory, &mut coming, ENDLESS).is_some_and(|held| held.is_ok()), "{}: {events} events", A::NAME);
    }
    (waited, ended)
}

#[test]
fn releases_wait_as_they_say() {
    let (waited, ended) = waits_as_it_says(&mcs());
    assert!(waited > 0 && ended == 0, "{waited} and {ended}"); // an owner that finds its successor hands over at once
    for (waited, ended) in [waits_as_it_says(&two_level(8)), waits_as_it_says(&distributed::<15>())] {
        assert!(waited == 0 && ended > 0, "{waited} and {ended}");
    }
}

/// A reader that tries shares the lock with readers, and no other owner gets it.
fn tries<A: LockAlgorithm>(lock: &A) {
    const MODES: [Mode; 2] = [Mode::Exclusive, Mode::Shared];
    for (held, tried) in MODES.into_iter().flat_map(|held| MODES.map(|tried| (held, tried))) {
        let memory = ModelMemory::new(2, region_words::<A>(SLOTS));
        let all = [0, 1].map(|rank| memory.of(rank));
        let ask = |rank: u32, mode| {
            let user = User { lock, memory: &all[rank as usize], owner: slotted(rank), slots: SLOTS };
            drive(&memory, user.asks(mode, Intent::TRY))
        };
        assert_eq!(ask(0, held), Ok(Held::cleanly(held)), "{}", A::NAME);
        let shares = (held, tried) == (Mode::Shared, Mode::Shared);
        let expected = if shares { Ok(Held::cleanly(tried)) } else { Err(Fault::new(FaultKind::TimedOut)) };
        assert_eq!(ask(1, tried), expected, "{} {held:?} {tried:?}", A::NAME);
    }
}

#[test]
fn tries_share_with_readers_only() {
    tries(&right());
    tries(&mcs());
    tries(&ticket::<2>());
    tries(&queue::<15, 16>());
    tries(&distributed::<15>());
    tries(&two_level(8));
}
