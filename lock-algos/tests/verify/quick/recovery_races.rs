//! Two concurrent recoveries: wherever one overtakes the other, and at whatever step that other
//! then is, one of them acquires the lock, and learns of the death of an exclusive owner, and the
//! other acquires it afterwards.

use crate::right::{distributed, mcs, queue, right, ticket, two_level};
use onesided_lock_algos::{Held, LockAlgorithm, Mode};
use onesided_lock_kit::ModelMemory;
use onesided_lock_kit::program::{idle, lock_and_data, region_words};
use onesided_remote_memory::Rank;

use crate::stopped::{ENDLESS, SLOTS, acquire, poll, release, run};
use crate::users::{Acquire, slotted};

/// Enough events for any possible admission.
const A_WHILE: usize = 60;

/// Rank 1 dies, `dying`. The first rank runs for `events[0]` events, then the second one for
/// `events[1]`, then the first one again as far as it can, and then both. Returns which of them
/// reached the lock before it was stopped.
fn race<A: LockAlgorithm>(lock: &A, dying: Mode, ranks: [u32; 2], events: [usize; 2]) -> [bool; 2] {
    let case = format!("{} {dying:?}: ranks {ranks:?} after {events:?} events", A::NAME);
    let memory = ModelMemory::new(4, region_words::<A>(SLOTS));
    let all: Vec<_> = (0..4).map(|rank| memory.of(rank)).collect();
    run(&memory, &mut acquire(lock, &all[1], slotted(1), dying), ENDLESS).unwrap().unwrap();
    memory.world().kill(Rank(1));

    let mut waits = ranks.map(|rank| (rank, acquire(lock, &all[rank as usize], slotted(rank), Mode::Exclusive)));
    let mut holder: Option<(usize, Held)> = None;
    let mut early = [false; 2];
    let goes = |waits: &mut [(u32, Acquire<'_>); 2], holder: &mut Option<(usize, Held)>, which: usize, events| {
        memory.world().stopped = Some(Rank(ranks[1 - which]));
        for _ in 0..events {
            if let Some(held) = poll(&mut waits[which].1) {
                assert!(holder.is_none(), "{case}: rank {} came in beside another", ranks[which]);
                *holder = Some((which, held.unwrap()));
                return true;
            }
            memory.world().step();
        }
        false
    };
    for (which, events) in [0, 1].into_iter().zip(events) {
        if goes(&mut waits, &mut holder, which, events) {
            early[which] = true;
            break;
        }
    }
    let has = |holder: &Option<(usize, Held)>, which: usize| holder.is_some_and(|(has, _)| has == which);
    if !has(&holder, 0) {
        goes(&mut waits, &mut holder, 0, A_WHILE);
    }
    memory.world().stopped = None;
    let mut order = Vec::new();
    for _ in 0..2 {
        let mut patience = 0;
        while holder.is_none() {
            for which in [0, 1] {
                if !order.contains(&which) && holder.is_none() {
                    holder = poll(&mut waits[which].1).map(|held| (which, held.unwrap()));
                }
            }
            memory.world().step();
            patience += 1;
            assert!(patience < ENDLESS, "{case}: {} wait without end", 2 - order.len());
        }
        let (which, held) = holder.take().unwrap();
        let recovers = order.is_empty() && dying == Mode::Exclusive;
        assert_eq!(held.recovered.is_some(), recovers, "{case}: the first owner recovers, and no other");
        order.push(which);
        let other = 1 - which;
        for _ in 0..A_WHILE {
            let beside = !order.contains(&other) && poll(&mut waits[other].1).is_some();
            assert!(!beside, "{case}: rank {} came in beside another", ranks[other]);
            memory.world().step();
        }
        let owner = slotted(ranks[which]);
        let mut released = release(lock, &all[ranks[which] as usize], owner, held.mode);
        assert_eq!(run(&memory, &mut released, ENDLESS), Some(Ok(())), "{case}");
    }
    assert!(A::is_free(lock_and_data::<A>(&memory.region()).0), "{case}: not free");
    assert!([0, 2, 3].iter().all(|rank| idle::<A>(SLOTS, &all[*rank].region())), "{case}: somebody counts");
    early
}

/// On the dead rank's host, or on another one.
fn race_everywhere<A: LockAlgorithm>(lock: &A) {
    for dying in [Mode::Exclusive, Mode::Shared] {
        for ranks in [[0, 2], [2, 0], [2, 3]] {
            for first in 0.. {
                let mut early = false;
                for second in 0.. {
                    let [whole, ends] = race(lock, dying, ranks, [first, second]);
                    early = whole;
                    // Or it waits for the stopped rank.
                    if whole || ends || second > A_WHILE {
                        break;
                    }
                }
                if early {
                    break;
                }
            }
        }
    }
}

#[test]
fn test_and_set() {
    race_everywhere(&right());
}

#[test]
fn the_queue_lock() {
    race_everywhere(&mcs());
}

#[test]
fn tickets() {
    race_everywhere(&ticket::<15>());
}

#[test]
fn queues_by_fetch_add() {
    race_everywhere(&queue::<15, 16>());
}

#[test]
fn distributed_counters() {
    race_everywhere(&distributed::<15>());
}

#[test]
fn two_levels() {
    race_everywhere(&two_level(8));
    race_everywhere(&two_level(8).bypasses(1));
}
