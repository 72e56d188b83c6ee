//! A poisoned lock: acquires that do not recover fail, again and again, until one recovers. A dead
//! reader poisons nothing.

use crate::right::{distributed, global, mcs, queue, right, ticket, two_level};
use onesided_lock_algos::{Held, Intent, LockAlgorithm, Mode};
use onesided_lock_kit::ModelMemory;
use onesided_lock_kit::program::{idle, lock_and_data, region_words};
use onesided_lock_kit::random::drive;
use onesided_remote_memory::{Fault, FaultKind, Rank};

use crate::stopped::SLOTS;
use crate::users::{User, slotted};

impl<A: LockAlgorithm> User<'_, A> {
    fn ask(self, mode: Mode, intent: Intent) -> Result<Held, Fault> {
        drive(self.memory, self.asks(mode, intent))
    }

    fn release(self, mode: Mode) -> Result<(), Fault> {
        drive(self.memory, self.releases(mode))
    }
}

/// Rank 1 dies inside, or panics and lives.
fn poison<A: LockAlgorithm>(lock: &A, kind: FaultKind, recovering: Intent) {
    let memory = ModelMemory::new(4, region_words::<A>(SLOTS));
    let all: Vec<_> = (0..4).map(|rank| memory.of(rank)).collect();
    let user = |rank: u32| User { lock, memory: &all[rank as usize], owner: slotted(rank), slots: SLOTS };
    let died = Fault::of(kind, Rank(1));
    let case = format!("{} {kind:?} {recovering:?}", A::NAME);

    assert_eq!(user(1).ask(Mode::Exclusive, Intent::LOCK), Ok(Held::cleanly(Mode::Exclusive)), "{case}");
    let busy = Err(Fault::new(FaultKind::TimedOut));
    assert_eq!(user(2).ask(Mode::Exclusive, Intent::TRY), busy, "{case}: who tries does not wait for who lives");
    match kind {
        FaultKind::OwnerPanicked => assert_eq!(drive(&memory, user(1).releases_poisoned(died)), Ok(()), "{case}"),
        _ => memory.world().kill(Rank(1)),
    }

    for _ in 0..2 {
        for (rank, mode) in [(0, Mode::Exclusive), (2, Mode::Exclusive), (3, Mode::Shared)] {
            assert_eq!(user(rank).ask(mode, Intent::LOCK), Err(died), "{case}: rank {rank} {mode:?}");
            assert_eq!(user(rank).ask(mode, Intent::TRY), Err(died), "{case}: rank {rank} {mode:?} tries");
            let over = user(rank).ask(mode, Intent::CANCELLED);
            assert_eq!(over, Err(Fault::new(FaultKind::Closed)), "{case}: rank {rank} {mode:?} does not want it");
        }
    }
    assert_eq!(user(3).ask(Mode::Shared, recovering), Ok(Held::after(died, Mode::Exclusive)), "{case}");
    assert_eq!(
        user(0).ask(Mode::Shared, Intent::TRY.recovering()),
        busy,
        "{case}: nobody has it beside the recovering owner"
    );
    assert_eq!(user(3).release(Mode::Exclusive), Ok(()), "{case}");

    for mode in [Mode::Exclusive, Mode::Shared] {
        for intent in [Intent::LOCK, Intent::TRY, Intent::LOCK.recovering()] {
            assert_eq!(user(2).ask(mode, intent), Ok(Held::cleanly(mode)), "{case}: healed");
            assert_eq!(user(2).release(mode), Ok(()), "{case}: healed");
        }
    }
    assert!(A::is_free(lock_and_data::<A>(&memory.region()).0), "{case}");
    assert!([0, 2, 3].iter().all(|rank| idle::<A>(SLOTS, &all[*rank].region())), "{case}: somebody counts");
}

/// Rank 1 dies as a reader. Owners of each mode then get the lock, whether they recover or not.
fn dead_reader<A: LockAlgorithm>(lock: &A) {
    for intent in [Intent::LOCK, Intent::LOCK.recovering()] {
        for mode in [Mode::Exclusive, Mode::Shared] {
            let memory = ModelMemory::new(4, region_words::<A>(SLOTS));
            let all: Vec<_> = (0..4).map(|rank| memory.of(rank)).collect();
            let user = |rank: u32| User { lock, memory: &all[rank as usize], owner: slotted(rank), slots: SLOTS };
            assert_eq!(user(1).ask(Mode::Shared, Intent::LOCK), Ok(Held::cleanly(Mode::Shared)), "{}", A::NAME);
            memory.world().kill(Rank(1));
            for mode in [mode, Mode::Exclusive] {
                assert_eq!(user(2).ask(mode, intent), Ok(Held::cleanly(mode)), "{} {mode:?}", A::NAME);
                assert_eq!(user(2).release(mode), Ok(()), "{} {mode:?}", A::NAME);
            }
            assert!(A::is_free(lock_and_data::<A>(&memory.region()).0), "{}", A::NAME);
        }
    }
}

/// `named`: the word names an exclusive owner.
fn poison_all<A: LockAlgorithm>(lock: &A, named: bool) {
    let died = if named { FaultKind::OwnerDied } else { FaultKind::ParticipantDied };
    for kind in [died, FaultKind::OwnerPanicked] {
        for recovering in [Intent::LOCK.recovering(), Intent::TRY.recovering()] {
            poison(lock, kind, recovering);
        }
    }
    dead_reader(lock);
}

#[test]
fn test_and_set() {
    poison_all(&right(), true);
}

#[test]
fn the_queue_lock() {
    poison_all(&mcs(), false);
}

#[test]
fn tickets() {
    poison_all(&ticket::<15>(), false);
    poison_all(&ticket::<2>(), false);
}

#[test]
fn queues_by_fetch_add() {
    poison_all(&queue::<15, 16>(), false);
    poison_all(&queue::<2, 1>(), false);
}

#[test]
fn distributed_counters() {
    poison_all(&distributed::<15>(), false);
}

#[test]
fn two_levels() {
    poison_all(&two_level(8), false); // an owner word of a cohort names a host
    poison_all(&two_level(8).bypasses(1), true);
}

/// Its readers lock all targets: what they learn of a poisoned one is in `release_poisoned`.
#[test]
fn lock_all() {
    dead_reader(&global::<_, 15>(right()));
    dead_reader(&global::<_, 15>(mcs()));
}
