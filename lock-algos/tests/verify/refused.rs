//! A release by a rank that does not hold the lock: it fails, and changes nothing.

use crate::right::{distributed, free_at, mcs, queue, right, ticket, two_level};
use crate::users::User;
use onesided_lock_algos::{Held, Intent, LockAlgorithm, Mode, Owner};
use onesided_lock_kit::program::{LOCK, lock_and_data, region_words};
use onesided_lock_kit::random::drive;
use onesided_lock_kit::{ModelMemory, Slots};
use onesided_remote_memory::{Fault, FaultKind, Rank};

const SLOTS: Slots = Slots::new(2);
/// Words whose counters of readers or of owners wrap soon.
const WRAP_SOON: [u64; 3] = [0, free_at(15, 0x7fff, 0x7ffe), free_at(15, 0x7ffe, 0x7fff)];

fn acquire<A: LockAlgorithm>(lock: &A, memory: &ModelMemory, owner: Owner, mode: Mode) {
    let held = drive(memory, User { lock, memory, owner, slots: SLOTS }.asks(mode, Intent::LOCK));
    assert_eq!(held, Ok(Held::cleanly(mode)));
}

fn release<A: LockAlgorithm>(lock: &A, memory: &ModelMemory, owner: Owner, mode: Mode) -> Result<(), Fault> {
    drive(memory, User { lock, memory, owner, slots: SLOTS }.releases(mode))
}

/// A holder, and other ranks that release its lock; then it releases twice.
fn refuses<A: LockAlgorithm>(lock: &A) {
    refuses_at(lock, 0);
}

/// The same with another word of the free lock.
fn refuses_at<A: LockAlgorithm>(lock: &A, start: u64) {
    for held in [Mode::Exclusive, Mode::Shared] {
        let memory = ModelMemory::new(2, region_words::<A>(SLOTS));
        memory.world().words[LOCK] = start;
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
    refuses(&ticket::<2>());
    for start in WRAP_SOON {
        refuses_at(&ticket::<15>(), start);
    }
}

#[test]
fn queues_by_fetch_add() {
    for start in WRAP_SOON {
        refuses_at(&queue::<15, 16>(), start);
    }
}

#[test]
fn distributed_counters() {
    refuses(&distributed::<15>());
}
