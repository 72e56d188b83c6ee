//! Locks under recovery: a try fails without waiting. And an owner that releases into a queue that
//! was put under recovery while its successor had yet to link itself stays until that successor has
//! left, because its node may be written to, and no longer.

use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

use crate::right::{mcs, queue, right, ticket, two_level};
use onesided_lock_algos::{Held, Intent, LockAlgorithm, Mcs, Mode};
use onesided_lock_kit::ModelMemory;
use onesided_lock_kit::program::{idle, lock_and_data, region_words};
use onesided_remote_memory::{Fault, FaultKind, Rank};

use crate::stopped::{ENDLESS, SLOTS, acquire, poll, release, run};
use crate::users::{Release, User, slotted};

/// Enough events for every owner to wait, and for those that need not wait to end.
const A_WHILE: usize = 60;

/// Rank 3 leaves the queue: it held the lock, or, while rank 0 reads, it is cancelled. Rank 1 has
/// arrived behind it and does not know that yet; rank 2 waits behind rank 1, and dies.
fn leave(while_read: bool) {
    let lock = &mcs();
    let memory = ModelMemory::new(4, region_words::<Mcs>(SLOTS));
    let all: Vec<_> = (0..4).map(|rank| memory.of(rank)).collect();
    let exclusive = |rank: u32| acquire(lock, &all[rank as usize], slotted(rank), Mode::Exclusive);
    let wanted = AtomicBool::new(true);
    let intent = || if wanted.load(Relaxed) { Intent::LOCK } else { Intent::CANCELLED };
    let first = User { lock, memory: &all[3], owner: slotted(3), slots: SLOTS };
    let mut first = first.asks_as(Mode::Exclusive, Intent::LOCK, intent);
    if while_read {
        run(&memory, &mut acquire(lock, &all[0], slotted(0), Mode::Shared), ENDLESS).unwrap().unwrap();
        assert!(run(&memory, &mut first, A_WHILE).is_none());
    } else {
        assert_eq!(run(&memory, &mut first, ENDLESS), Some(Ok(Held::cleanly(Mode::Exclusive))));
    }
    let last = || Mcs::last_in(lock_and_data::<Mcs>(&memory.region()).0[0]);
    let mut second = exclusive(1);
    while last() != Some(Rank(1)) {
        assert!(poll(&mut second).is_none());
        memory.world().step();
    }
    assert!(run(&memory, &mut exclusive(2), A_WHILE).is_none() && last() == Some(Rank(2)));
    memory.world().kill(Rank(2));

    wanted.store(false, Relaxed);
    let mut leaves: Release<'_> = match while_read {
        true => Box::pin(async { first.await.map(drop) }),
        false => release(lock, &all[3], slotted(3), Mode::Exclusive),
    };
    assert_eq!(run(&memory, &mut leaves, ENDLESS), None, "nobody has linked himself, and it is gone");
    if while_read {
        assert_eq!(run(&memory, &mut release(lock, &all[0], slotted(0), Mode::Shared), ENDLESS), Some(Ok(())));
        assert_eq!(run(&memory, &mut leaves, ENDLESS), None, "a reader has gone, and it is gone as well");
    }
    let held = run(&memory, &mut second, ENDLESS).expect("rank 1 waits for who is about to leave").unwrap();
    assert!(held.recovered.is_some());
    let left = if while_read { Err(Fault::new(FaultKind::Closed)) } else { Ok(()) };
    assert_eq!(run(&memory, &mut leaves, A_WHILE), Some(left), "it waits for who has the lock now");
    let node = all[3].region();
    assert!(node[..node.len() - 1].iter().all(|word| *word == 0 || *word == 1), "what is left of it: {node:x?}");

    assert_eq!(run(&memory, &mut release(lock, &all[1], slotted(1), held.mode), ENDLESS), Some(Ok(())));
    assert!(Mcs::is_free(lock_and_data::<Mcs>(&memory.region()).0));
    assert!([0, 1, 3].iter().all(|rank| idle::<Mcs>(SLOTS, &all[*rank].region())));
}

#[test]
fn the_queue_lock_that_is_released() {
    leave(false);
}

#[test]
fn the_queue_lock_that_is_given_up() {
    leave(true);
}

/// Rank 1 dies as a reader, while rank 0 reads: rank 2 suspects the lock, and waits for rank 0.
/// Rank 3 only tries.
fn tries<A: LockAlgorithm>(lock: &A) {
    for mode in [Mode::Exclusive, Mode::Shared] {
        let memory = ModelMemory::new(4, region_words::<A>(SLOTS));
        let all: Vec<_> = (0..4).map(|rank| memory.of(rank)).collect();
        let asks = |rank: u32, mode| acquire(lock, &all[rank as usize], slotted(rank), mode);
        for rank in 0..2 {
            run(&memory, &mut asks(rank, Mode::Shared), ENDLESS).unwrap().unwrap();
        }
        memory.world().kill(Rank(1));
        let mut waits = asks(2, Mode::Exclusive);
        assert!(run(&memory, &mut waits, ENDLESS).is_none(), "{}: rank 2 came in beside a reader", A::NAME);

        let tries = User { lock, memory: &all[3], owner: slotted(3), slots: SLOTS };
        let told = run(&memory, &mut tries.asks(mode, Intent::TRY), A_WHILE);
        assert!(told.is_some_and(|told| told.is_err()), "{}, {mode:?}: {told:?}", A::NAME);

        assert_eq!(run(&memory, &mut release(lock, &all[0], slotted(0), Mode::Shared), ENDLESS), Some(Ok(())));
        let held = run(&memory, &mut waits, ENDLESS).expect("nobody reads any more").unwrap();
        assert_eq!(held, Held::cleanly(Mode::Exclusive), "{}", A::NAME);
        assert_eq!(run(&memory, &mut release(lock, &all[2], slotted(2), held.mode), ENDLESS), Some(Ok(())));
        assert!([0, 2, 3].iter().all(|rank| idle::<A>(SLOTS, &all[*rank].region())), "{}", A::NAME);
    }
}

#[test]
fn test_and_set_tried() {
    tries(&right());
}

#[test]
fn the_queue_lock_tried() {
    tries(&mcs());
}

#[test]
fn tickets_tried() {
    tries(&ticket::<15>());
}

#[test]
fn queues_by_fetch_add_tried() {
    tries(&queue::<15, 16>());
}

#[test]
fn two_levels_tried() {
    tries(&two_level(8));
    tries(&two_level(8).bypasses(1));
}
