//! A release by a rank that does not hold the lock: it fails, and changes nothing.

use crate::right::{distributed, mcs, queue, right, ticket, two_level};
use onesided_lock_algos::{Held, Intent, LockAlgorithm, LockUse, Mode, Owner};
use onesided_lock_kit::program::{LOCK, lock_and_data, region_words};
use onesided_lock_kit::random::drive;
use onesided_lock_kit::{Layout, ModelMemory, Slots};
use onesided_remote_memory::{Fault, FaultKind, Rank};

const SLOTS: Slots = Slots::new(2);

fn acquire<A: LockAlgorithm>(lock: &A, memory: &ModelMemory, owner: Owner, mode: Mode) {
    let place = Layout::new::<A>(memory, owner, SLOTS);
    let held = drive(memory, async {
        let words = lock.words(place, Intent::LOCK)?;
        lock.finish(
            LockUse::new(memory, place, words, mode),
            lock.start(LockUse::new(memory, place, words, mode))?,
            || Intent::LOCK,
        )
        .await
    });
    assert_eq!(held, Ok(Held::cleanly(mode)));
}

fn release<A: LockAlgorithm>(lock: &A, memory: &ModelMemory, owner: Owner, mode: Mode) -> Result<(), Fault> {
    let place = Layout::new::<A>(memory, owner, SLOTS);
    drive(memory, async {
        let words = lock.words(place, Intent::LOCK)?;
        lock.finish_release(
            LockUse::new(memory, place, words, mode),
            lock.start_release(LockUse::new(memory, place, words, mode))?.await,
        )
        .await
    })
}

/// Rank 0 acquires the lock, whose word was `start`, and releases it twice, which fails. Returns
/// the memory before the second release and after it.
pub(crate) fn release_twice<A: LockAlgorithm>(lock: &A, mode: Mode, start: u64) -> [Vec<u64>; 2] {
    let owner = Owner { rank: Rank(0), slot: 0, generation: 0 };
    let slots = Slots::new(1);
    let memory = ModelMemory::new(1, region_words::<A>(slots));
    memory.world().words[LOCK] = start;
    let place = Layout::new::<A>(&memory, owner, slots);
    let mut before = Vec::new();
    let twice = async {
        let words = lock.words(place, Intent::LOCK)?;
        lock.finish(
            LockUse::new(&memory, place, words, mode),
            lock.start(LockUse::new(&memory, place, words, mode))?,
            || Intent::LOCK,
        )
        .await?;
        lock.finish_release(
            LockUse::new(&memory, place, words, mode),
            lock.start_release(LockUse::new(&memory, place, words, mode))?.await,
        )
        .await?;
        before = memory.region();
        match lock.start_release(LockUse::new(&memory, place, words, mode)) {
            Ok(started) => lock.finish_release(LockUse::new(&memory, place, words, mode), started.await).await,
            Err(fault) => Err(fault),
        }
    };
    let again = drive(&memory, twice);
    assert_eq!(again, Err(Fault::new(FaultKind::NotHeld)), "{} {mode:?}", A::NAME);
    [before, memory.region()]
}

/// A holder, and other ranks that release its lock; then it releases twice.
fn refuses<A: LockAlgorithm>(lock: &A) {
    for held in [Mode::Exclusive, Mode::Shared] {
        let memory = ModelMemory::new(2, region_words::<A>(SLOTS));
        let all: Vec<_> = (0..2).map(|rank| memory.of(rank)).collect();
        let owner = |rank, slot| Owner { rank: Rank(rank), slot, generation: 5 };
        let not_held = Err(Fault::new(FaultKind::NotHeld));
        let regions = || all.iter().map(ModelMemory::region).collect::<Vec<_>>();
        acquire(lock, &all[1], owner(1, 0), held);
        let before = regions();
        for (rank, slot) in [(1, 1), (0, 0), (0, 1)] {
            for mode in [Mode::Exclusive, Mode::Shared] {
                let refused = release(lock, &all[rank], owner(rank as u32, slot), mode);
                assert_eq!(refused, not_held, "{} held {held:?}: rank {rank} slot {slot} {mode:?}", A::NAME);
                assert_eq!(regions(), before, "{} held {held:?}: rank {rank} slot {slot} {mode:?}", A::NAME);
            }
        }
        assert_eq!(release(lock, &all[1], owner(1, 0), held), Ok(()));
        let before = regions();
        assert!(A::is_free(lock_and_data::<A>(&before[0]).0));
        assert_eq!(release(lock, &all[1], owner(1, 0), held), not_held, "{} twice", A::NAME);
        assert_eq!(regions(), before, "{} twice", A::NAME);
    }
}

#[test]
fn test_and_set() {
    refuses(&right().checked());
}

/// An owner whose lock another rank has recovered, and that goes on nevertheless; an earlier use of
/// the same slot; the other mode.
#[test]
fn test_and_set_knows_each_acquire() {
    let lock = right().checked();
    let memory = ModelMemory::new(3, region_words::<onesided_lock_algos::TestAndSet>(SLOTS));
    let all: Vec<_> = (0..3).map(|rank| memory.of(rank)).collect();
    let owner = |rank, generation| Owner { rank: Rank(rank), slot: 0, generation };
    let not_held = Err(Fault::new(FaultKind::NotHeld));
    acquire(&lock, &all[1], owner(1, 7), Mode::Exclusive);
    let word = || lock_and_data::<onesided_lock_algos::TestAndSet>(&memory.region()).0[0];
    let mine = word();
    for (generation, mode) in [(6, Mode::Exclusive), (7, Mode::Shared)] {
        assert_eq!(release(&lock, &all[1], owner(1, generation), mode), not_held);
        assert_eq!(word(), mine);
    }
    // The recovering owner's word.
    memory.world().words[LOCK] = mine ^ owner(1, 7).to_bits() ^ owner(2, 1).to_bits();
    let theirs = word();
    assert_eq!(release(&lock, &all[1], owner(1, 7), Mode::Exclusive), not_held);
    assert_eq!(word(), theirs);
    assert_eq!(release(&lock, &all[2], owner(2, 1), Mode::Exclusive), Ok(()));
    assert_eq!(word(), 0);
}

#[test]
fn the_queue_lock() {
    refuses(&mcs());
}

#[test]
fn two_levels() {
    refuses(&two_level(8));
    refuses(&two_level(8).bypasses(1));
}

#[test]
fn tickets() {
    refuses(&ticket::<15>());
    refuses(&ticket::<2>());
}

#[test]
fn queues_by_fetch_add() {
    refuses(&queue::<15, 16>());
}

#[test]
fn distributed_counters() {
    refuses(&distributed::<15>());
}
