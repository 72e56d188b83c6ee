//! A rank dies or leaves that holds nothing: the living are not suspected, however long they hold
//! the lock. And if another one has ended that does hold it, that one is named, and how it ended.

use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

use crate::right::{distributed, global, mcs, queue, right, ticket, two_level};
use onesided_lock_algos::{
    DistributedCounters, FetchAddQueue, Held, Intent, LockAlgorithm, Mcs, Mode, TestAndSet, Ticket, TwoLevel,
};
use onesided_lock_kit::ModelMemory;
use onesided_lock_kit::program::region_words;
use onesided_remote_memory::{Fault, FaultKind, Rank, RemoteMemory};

use crate::stopped::{ENDLESS, SLOTS, acquire, poll, release, run};
use crate::users::{User, slotted};

/// `leave`: a rank that ends leaves.
fn ranks<A: LockAlgorithm>(leave: bool) -> (ModelMemory, Vec<ModelMemory>) {
    let memory = ModelMemory::new(5, region_words::<A>(SLOTS));
    memory.world().leaves = leave;
    let all = (0..5).map(|rank| memory.of(rank)).collect();
    (memory, all)
}

/// Rank 4 ends. Rank 0 reads for long, and rank 1 waits for it, until it is cancelled. Rank 2 then
/// reads beside rank 0.
fn readers_go_on<A: LockAlgorithm>(lock: &A) {
    for leave in [false, true] {
        readers_go_on_after(lock, leave);
    }
}

fn readers_go_on_after<A: LockAlgorithm>(lock: &A, leave: bool) {
    let (memory, all) = ranks::<A>(leave);
    memory.world().kill(Rank(4));
    let reads = |rank: u32| run(&memory, &mut acquire(lock, &all[rank as usize], slotted(rank), Mode::Shared), ENDLESS);
    assert_eq!(reads(0), Some(Ok(Held::cleanly(Mode::Shared))), "{}", A::NAME);
    let wanted = AtomicBool::new(true);
    let intent = || if wanted.load(Relaxed) { Intent::LOCK.recovering() } else { Intent::CANCELLED };
    let waits = User { lock, memory: &all[1], owner: slotted(1), slots: SLOTS };
    let mut waits = waits.asks_as(Mode::Exclusive, Intent::LOCK, intent);
    let before = all[0].now();
    assert_eq!(run(&memory, &mut waits, 2 * ENDLESS), None, "{}", A::NAME);
    assert!(all[0].now() - before > 10_000_000_000, "{}: it has waited for long", A::NAME);
    wanted.store(false, Relaxed);
    assert_eq!(run(&memory, &mut waits, ENDLESS), Some(Err(Fault::new(FaultKind::Closed))), "{}", A::NAME);
    assert_eq!(reads(2), Some(Ok(Held::cleanly(Mode::Shared))), "{}: rank 2", A::NAME);
}

#[test]
fn readers_of_all_locks_go_on() {
    readers_go_on(&right());
    readers_go_on(&mcs());
    readers_go_on(&ticket::<15>());
    readers_go_on(&queue::<15, 16>());
    readers_go_on(&distributed::<15>());
    readers_go_on(&two_level(8));
    readers_go_on(&global::<_, 15>(right()));
}

/// Rank 4 ends. Rank 0 holds the lock for long, and the others wait for it one behind the other.
fn order_is_kept<A: LockAlgorithm>(lock: &A) {
    for leave in [false, true] {
        order_is_kept_after(lock, leave);
    }
}

fn order_is_kept_after<A: LockAlgorithm>(lock: &A, leave: bool) {
    let (memory, all) = ranks::<A>(leave);
    memory.world().kill(Rank(4));
    let asks = |rank: u32| acquire(lock, &all[rank as usize], slotted(rank), Mode::Exclusive);
    assert_eq!(run(&memory, &mut asks(0), ENDLESS), Some(Ok(Held::cleanly(Mode::Exclusive))), "{}", A::NAME);
    let mut waiting: Vec<_> = [3, 1, 2].into_iter().map(|rank| (rank, asks(rank))).collect();
    for (_, acquire) in &mut waiting {
        assert_eq!(run(&memory, acquire, 10), None); // it arrives
    }
    for _ in 0..2 * ENDLESS {
        assert!(waiting.iter_mut().all(|(_, acquire)| poll(acquire).is_none()), "{}", A::NAME);
        memory.world().step();
    }
    let mut holder = 0;
    for next in [3, 1, 2] {
        let mut released = release(lock, &all[holder as usize], slotted(holder), Mode::Exclusive);
        assert_eq!(run(&memory, &mut released, ENDLESS), Some(Ok(())), "{}", A::NAME);
        let entered = (0..ENDLESS).find_map(|_| {
            memory.world().step();
            waiting.iter_mut().find_map(|(rank, acquire)| poll(acquire).map(|held| (*rank, held)))
        });
        assert_eq!(entered, Some((next, Ok(Held::cleanly(Mode::Exclusive)))), "{}", A::NAME);
        waiting.retain(|(rank, _)| *rank != next);
        holder = next;
    }
}

#[test]
fn the_order_of_tickets_and_queues_is_kept() {
    order_is_kept(&ticket::<15>());
    order_is_kept(&queue::<15, 16>());
    order_is_kept(&mcs());
}

/// A rank ends with the lock, once before and once while another one waits. The memory of the dead
/// shows that it used the lock, so the waiter need not wait as long as for ranks that may live.
fn dead_owners_are_found_early<A: LockAlgorithm>(lock: &A, mode: Mode) {
    const EARLY: u64 = 100_000_000;
    for (dies_first, leave) in [(true, false), (false, false), (true, true), (false, true)] {
        let (memory, all) = ranks::<A>(leave);
        let asks = |rank: u32, mode| acquire(lock, &all[rank as usize], slotted(rank), mode);
        assert_eq!(run(&memory, &mut asks(3, mode), ENDLESS), Some(Ok(Held::cleanly(mode))), "{}", A::NAME);
        let mut waits = asks(0, Mode::Exclusive);
        if !dies_first {
            assert_eq!(run(&memory, &mut waits, 10), None, "{}: it arrives", A::NAME);
        }
        memory.world().kill(Rank(3));
        let before = all[0].now();
        let held = run(&memory, &mut waits, 2 * ENDLESS);
        let held = held.unwrap_or_else(|| panic!("{}: waits without end", A::NAME)).unwrap();
        let left = |fault: Fault| matches!(fault.kind(), FaultKind::OwnerLeft | FaultKind::ParticipantLeft);
        let told = held.recovered.map(|fault| (fault.rank(), left(fault)));
        assert_eq!(told, (mode == Mode::Exclusive).then_some((Some(Rank(3)), leave)), "{} {mode:?}", A::NAME);
        let took = all[0].now() - before;
        assert!(took < EARLY, "{} {mode:?}, it dies first: {dies_first}: {took} ns", A::NAME);
    }
}

#[test]
fn dead_owners_of_all_locks_are_found_early() {
    for mode in [Mode::Exclusive, Mode::Shared] {
        dead_owners_are_found_early(&TestAndSet::default(), mode);
        dead_owners_are_found_early(&Mcs::default(), mode);
        dead_owners_are_found_early(&<Ticket>::default(), mode);
        dead_owners_are_found_early(&<FetchAddQueue>::default(), mode);
        dead_owners_are_found_early(&DistributedCounters::default(), mode);
        dead_owners_are_found_early(&TwoLevel::default(), mode);
    }
}

/// Rank 1 ends outside, then rank 3 inside. `kinds`: of one that died, and of one that left.
/// `others`: how many more are said to be as likely if the memory of both is gone.
fn holder_is_named<A: LockAlgorithm>(lock: &A, kinds: [FaultKind; 2], others: u32) {
    let left_and_gone = [(false, false), (true, false), (false, true), (true, true)];
    for (leave, is_gone) in left_and_gone {
        let (memory, all) = ranks::<A>(leave);
        memory.world().kill(Rank(1));
        let asks =
            |rank: u32, mode| run(&memory, &mut acquire(lock, &all[rank as usize], slotted(rank), mode), 2 * ENDLESS);
        assert_eq!(asks(3, Mode::Exclusive), Some(Ok(Held::cleanly(Mode::Exclusive))), "{}", A::NAME);
        memory.world().kill(Rank(3));
        memory.world().memory_goes = is_gone;
        let ended = Fault::of(kinds[usize::from(leave)], Rank(3)).with_detail(if is_gone { others } else { 0 });
        let held = asks(0, Mode::Exclusive);
        assert_eq!(held, Some(Ok(Held::after(ended, Mode::Exclusive))), "{}: {leave} {is_gone}", A::NAME);
    }
}

#[test]
fn the_rank_that_held_the_lock_is_named() {
    const OWNER: [FaultKind; 2] = [FaultKind::OwnerDied, FaultKind::OwnerLeft];
    const PARTICIPANT: [FaultKind; 2] = [FaultKind::ParticipantDied, FaultKind::ParticipantLeft];
    holder_is_named(&right(), OWNER, 0);
    holder_is_named(&mcs(), PARTICIPANT, 0);
    holder_is_named(&ticket::<15>(), PARTICIPANT, 1);
    holder_is_named(&queue::<15, 16>(), PARTICIPANT, 1);
    holder_is_named(&distributed::<15>(), PARTICIPANT, 1);
    holder_is_named(&two_level(8), PARTICIPANT, 0);
    holder_is_named(&global::<_, 15>(right()), OWNER, 0);
}
