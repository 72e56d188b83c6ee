//! A waiter that is stopped at any step of a recovery while others go on, and continues late.

use std::panic::catch_unwind;
use std::pin::Pin;
use std::task::{Context, Poll, Waker};

use crate::right::{mcs, queue, right, ticket, two_level};
use crate::users::{Acquire, Release, User, slotted};
use onesided_lock_algos::{Intent, LockAlgorithm, Mode, Owner};
use onesided_lock_kit::program::region_words;
use onesided_lock_kit::{ModelMemory, Op, Slots, posted};
use onesided_remote_memory::Rank;

pub(crate) const SLOTS: Slots = Slots::new(1);
/// More events than any future that ends takes here.
pub(crate) const ENDLESS: usize = 500;

pub(crate) fn acquire<'a, A: LockAlgorithm>(
    lock: &'a A,
    memory: &'a ModelMemory,
    owner: Owner,
    mode: Mode,
) -> Acquire<'a> {
    User { lock, memory, owner, slots: SLOTS }.asks(mode, Intent::LOCK.recovering())
}

pub(crate) fn release<'a, A: LockAlgorithm>(
    lock: &'a A,
    memory: &'a ModelMemory,
    owner: Owner,
    mode: Mode,
) -> Release<'a> {
    User { lock, memory, owner, slots: SLOTS }.releases(mode)
}

pub(crate) fn poll<T>(future: &mut Pin<Box<dyn Future<Output = T> + '_>>) -> Option<T> {
    match future.as_mut().poll(&mut Context::from_waker(Waker::noop())) {
        Poll::Ready(value) => Some(value),
        Poll::Pending => None,
    }
}

/// Runs one future for this many events.
pub(crate) fn run<T>(
    memory: &ModelMemory,
    future: &mut Pin<Box<dyn Future<Output = T> + '_>>,
    events: usize,
) -> Option<T> {
    for _ in 0..events {
        if let Some(value) = poll(future) {
            return Some(value);
        }
        memory.world().step();
    }
    poll(future)
}

/// Ranks 1 and 6 die as readers. Rank 0, which waits, is stopped after `events` events; rank 2
/// acquires and releases the lock, rank 3 reads for long, rank 5 dies as another reader, and rank 4
/// suspects that. Then rank 0 goes on: it must not acquire the lock before rank 3 has released.
/// Returns how far it got: whether it held
/// the lock before it was stopped, and whether rank 2 held it meanwhile.
fn stop<A: LockAlgorithm>(lock: &A, mutate: Option<fn(Op) -> Op>, events: usize) -> (bool, bool) {
    let memory = ModelMemory::new(7, region_words::<A>(SLOTS));
    memory.world().mutate = mutate;
    let all: Vec<_> = (0..7).map(|rank| memory.of(rank)).collect();
    let reads = |rank: u32| run(&memory, &mut acquire(lock, &all[rank as usize], slotted(rank), Mode::Shared), ENDLESS);
    for rank in [1, 6] {
        reads(rank).unwrap().unwrap();
    }
    [1, 6].into_iter().for_each(|rank| memory.world().kill(Rank(rank)));

    let mut late = acquire(lock, &all[0], slotted(0), Mode::Exclusive);
    if run(&memory, &mut late, events).is_some() {
        return (true, false);
    }
    memory.world().stopped = Some(Rank(0));
    let Some(held) = run(&memory, &mut acquire(lock, &all[2], slotted(2), Mode::Exclusive), ENDLESS) else {
        return (false, false); // it waits for rank 0
    };
    run(&memory, &mut release(lock, &all[2], slotted(2), held.unwrap().mode), ENDLESS).unwrap().unwrap();
    let (Some(held), Some(_)) = (reads(3), reads(5)) else {
        return (false, true); // it waits for rank 0
    };
    memory.world().kill(Rank(5));
    let mut suspects = acquire(lock, &all[4], slotted(4), Mode::Exclusive);
    assert!(run(&memory, &mut suspects, ENDLESS).is_none(), "rank 4 came in beside a reader");

    memory.world().stopped = None;
    for _ in 0..ENDLESS {
        assert!(
            poll(&mut late).is_none(),
            "{}: rank 0, stopped after {events} events, came in beside a reader",
            A::NAME
        );
        assert!(poll(&mut suspects).is_none(), "{}: rank 4 came in beside a reader", A::NAME);
        memory.world().step();
    }
    assert_eq!(run(&memory, &mut release(lock, &all[3], slotted(3), held.unwrap().mode), ENDLESS), Some(Ok(())));
    let mut waiting = vec![(0, late), (4, suspects)];
    for _ in 0..ENDLESS {
        let Some((rank, held)) =
            waiting.iter_mut().find_map(|(rank, acquire)| poll(acquire).map(|held| (*rank, held.unwrap())))
        else {
            memory.world().step();
            continue;
        };
        waiting.retain(|(other, _)| *other != rank);
        assert_eq!(
            run(&memory, &mut release(lock, &all[rank as usize], slotted(rank), held.mode), ENDLESS),
            Some(Ok(()))
        );
    }
    assert!(waiting.is_empty(), "{}: {} wait without end", A::NAME, waiting.len());
    (false, true)
}

pub(crate) fn stop_everywhere<A: LockAlgorithm>(lock: &A, mutate: Option<fn(Op) -> Op>) {
    let mut taken_meanwhile = 0;
    for events in 0..ENDLESS {
        match stop(lock, mutate, events) {
            (true, _) => break,
            (false, meanwhile) => taken_meanwhile += usize::from(meanwhile),
        }
    }
    assert!(taken_meanwhile >= 5, "{}: taken meanwhile at {taken_meanwhile} steps only", A::NAME);
}

#[test]
fn test_and_set() {
    stop_everywhere(&right(), None);
}

#[test]
fn the_queue_lock() {
    stop_everywhere(&mcs(), None);
}

#[test]
fn tickets() {
    stop_everywhere(&ticket::<15>(), None);
}

#[test]
fn queues_by_fetch_add() {
    stop_everywhere(&queue::<15, 16>(), None);
    stop_everywhere(&queue::<15, 1>(), None);
}

#[test]
fn two_levels() {
    stop_everywhere(&two_level(8), None);
    stop_everywhere(&two_level(8).bypasses(1), None);
}

/// Its counters restart when a lock under recovery is taken, so that its words repeat.
#[test]
#[should_panic(expected = "rank 0, stopped")]
fn tickets_that_begin_anew_are_caught() {
    const FROZEN: u64 = 1;
    let mutate = posted!(CompareSwap(expected, new) if expected & FROZEN != 0 && new & FROZEN == 0 =>
        CompareSwap(expected, 0x7fff << 49));
    stop_everywhere(&ticket::<15>(), Some(mutate));
}

/// Its recoveries have no nonce.
#[test]
#[should_panic(expected = "rank 0, stopped")]
fn recoveries_without_a_nonce_are_caught() {
    const FROZEN: u64 = 1 << 62;
    const STAMP: u64 = ((1 << 26) - 1) << 36;
    let mutate = posted!(CompareSwap(expected, new) if expected >> 62 == 0 && new & FROZEN != 0 =>
        CompareSwap(expected, new & !STAMP));
    stop_everywhere(&right(), Some(mutate));
}

/// The same for the queue lock.
#[test]
fn recoveries_of_the_queue_without_a_nonce_are_caught() {
    const FROZEN: u64 = 1 << 63;
    const READERS: u64 = 0x1ff_ffff << 36;
    let mutate = posted!(CompareSwap(expected, new) if expected & FROZEN == 0 && new & FROZEN != 0 =>
        CompareSwap(expected, FROZEN | new & READERS));
    let caught = catch_unwind(|| stop_everywhere(&mcs(), Some(mutate)));
    let panic = caught.expect_err("nothing is caught").downcast::<String>().unwrap();
    assert!(panic.contains("rank 0, stopped"), "{panic}");
}
