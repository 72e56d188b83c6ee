//! Who does not hold a lock, and releases it: an error, and nothing changes.

use lock_algos::{Held, LockAlgorithm, Mode, Owner, Wish};
use lock_kit::modelled::drive;
use lock_kit::program::{lock_and_data, open, region_words};
use lock_kit::wrong::{mcs, right, ticket};
use lock_kit::{Exploration, Ground, ModelMemory, Slots};
use remote_memory::{Fault, FaultKind, Rank};

use crate::explored::{S, X};

const SLOTS: Slots = Slots { each: 2, nodes: true, deaf: false, tallied: false };

fn acquire<A: LockAlgorithm>(lock: &A, memory: &ModelMemory, owner: Owner, mode: Mode) {
    let place = Ground::<_, A>::new(memory, owner, SLOTS);
    let held = drive(memory, async {
        let words = lock.words(place)?;
        lock.finish(memory, place, words, mode, lock.start(memory, place, words, mode)?, || Wish::LOCK).await
    });
    assert_eq!(held, Ok(Held::cleanly(mode)));
}

fn release<A: LockAlgorithm>(lock: &A, memory: &ModelMemory, owner: Owner, mode: Mode) -> Result<(), Fault> {
    let place = Ground::<_, A>::new(memory, owner, SLOTS);
    drive(memory, async {
        let words = lock.words(place)?;
        lock.finish_release(memory, place, words, mode, lock.start_release(memory, place, words, mode)?).await
    })
}

/// A holder, and others who release what is his; then he does, twice.
fn refuses<A: LockAlgorithm>(lock: &A) {
    for held in [Mode::Exclusive, Mode::Shared] {
        let memory = ModelMemory::new(2, region_words::<A>(SLOTS));
        let all: Vec<_> = (0..2).map(|rank| memory.of(rank)).collect();
        for memory in &all {
            open::<_, A>(memory, SLOTS).unwrap();
        }
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

/// Whom another one has inherited the lock from, and who goes on nevertheless; an earlier use of the same slot; the other
/// mode.
#[test]
fn test_and_set_knows_each_acquire() {
    let lock = right().checked();
    let memory = ModelMemory::new(3, region_words::<lock_algos::TestAndSet>(SLOTS));
    let all: Vec<_> = (0..3).map(|rank| memory.of(rank)).collect();
    let owner = |rank, generation| Owner { rank: Rank(rank), slot: 0, generation };
    let not_held = Err(Fault::new(FaultKind::NotHeld));
    acquire(&lock, &all[1], owner(1, 7), Mode::Exclusive);
    let word = || lock_and_data::<lock_algos::TestAndSet>(&memory.region()).0[0];
    let mine = word();
    for (generation, mode) in [(6, Mode::Exclusive), (7, Mode::Shared)] {
        assert_eq!(release(&lock, &all[1], owner(1, generation), mode), not_held);
        assert_eq!(word(), mine);
    }
    // The heir's word.
    memory.net().words[lock_kit::program::LOCK] = mine ^ owner(1, 7).to_bits() ^ owner(2, 1).to_bits();
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
fn tickets() {
    refuses(&ticket::<15>());
    refuses(&ticket::<2>());
}

/// With compare-swap for every release it is a lock as well.
#[test]
fn test_and_set_that_checks() {
    let lock = right().checked();
    for programs in [&[&[X, S][..], &[S, X]][..], &[&[X], &[X], &[S]]] {
        Exploration::of(&lock).preemptions(3).at_least(1_000).run(programs);
    }
    Exploration::of(&lock).preemptions(1).at_least(500).run_abandoned();
}
