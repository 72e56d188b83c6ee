//! A poisoned lock: acquires that do not recover fail, again and again, until one recovers.

use onesided_lock_algos::{Held, Intent, LockAlgorithm, LockContext, Mode, Owner};
use onesided_lock_kit::program::{idle, lock_and_data, open, region_words};
use onesided_lock_kit::random::drive;
use onesided_lock_kit::wrong::{distributed, mcs, queue, right, ticket, two_level};
use onesided_lock_kit::{Layout, ModelMemory, Slots};
use onesided_remote_memory::{Fault, FaultKind, Rank, RemoteMemory};

use crate::stopped::{Acquire, ENDLESS, run};

const SLOTS: Slots = Slots { slotless: true, ..Slots::new(1) };

/// One rank's use of a lock.
#[derive(Clone, Copy)]
struct User<'a, A> {
    lock: &'a A,
    memory: &'a ModelMemory,
    owner: Owner,
}

impl<'a, A: LockAlgorithm> User<'a, A> {
    fn ask(&self, mode: Mode, intent: Intent) -> Result<Held, Fault> {
        let Self { lock, memory, owner } = *self;
        let context = Layout::<_, A>::new(memory, owner, SLOTS);
        drive(memory, async {
            let words = if intent.is_patient() { lock.words(context)? } else { lock.words_to_try(context)? };
            lock.finish(memory, context, words, mode, lock.start(memory, context, words, mode)?, || intent).await
        })
    }

    fn release(&self, mode: Mode) -> Result<(), Fault> {
        let Self { lock, memory, owner } = *self;
        let context = Layout::<_, A>::new(memory, owner, SLOTS);
        drive(memory, async {
            let words = lock.words(context)?;
            lock.finish_release(memory, context, words, mode, lock.start_release(memory, context, words, mode)?).await
        })
    }
}

/// Rank 1 dies inside, in mode `dying`. All owners have `slot`. `named`: the word names an
/// exclusive owner.
fn poison<A: LockAlgorithm>(lock: &A, (slot, named): (u16, bool), dying: Mode, recovering: Intent) {
    let memory = ModelMemory::new(4, region_words::<A>(SLOTS));
    let all: Vec<_> = (0..4).map(|rank| memory.of(rank)).collect();
    for memory in &all {
        open::<_, A>(memory, SLOTS).unwrap();
    }
    let user = |rank: u32| {
        let owner = Owner { rank: Rank(rank), slot, generation: 0 };
        User { lock, memory: &all[rank as usize], owner }
    };
    let of_owner = named && dying == Mode::Exclusive;
    let kind = if of_owner { FaultKind::OwnerDied } else { FaultKind::ParticipantDied };
    let died = Fault::of(kind, Rank(1));
    let case = format!("{} slot {slot} {dying:?} {recovering:?}", A::NAME);

    assert_eq!(user(1).ask(dying, Intent::LOCK), Ok(Held::cleanly(dying)), "{case}");
    let busy = Err(Fault::new(FaultKind::TimedOut));
    assert_eq!(user(2).ask(Mode::Exclusive, Intent::TRY), busy, "{case}: who tries does not wait for who lives");
    memory.net().kill(Rank(1), 0);

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

fn poison_all_ways<A: LockAlgorithm>(lock: &A) {
    poison_all(lock, [false; 2]);
}

/// `named`: with a node, and without.
fn poison_all<A: LockAlgorithm>(lock: &A, named: [bool; 2]) {
    for slot in [0, Owner::NO_SLOT].into_iter().zip(named) {
        for dying in [Mode::Exclusive, Mode::Shared] {
            for recovering in [Intent::LOCK.recovering(), Intent::TRY.recovering()] {
                poison(lock, slot, dying, recovering);
            }
        }
    }
}

/// Rank 1 dies inside, and rank 3 has an owner without a slot, which may be of this lock: a
/// participant scan waits for it, unless the scanning rank has such owners of other locks, for
/// which rank 3 may wait in turn.
fn entangle<A: LockAlgorithm>(lock: &A) {
    let memory = ModelMemory::new(4, region_words::<A>(SLOTS));
    let all: Vec<_> = (0..4).map(|rank| memory.of(rank)).collect();
    all.iter().try_for_each(|memory| open::<_, A>(memory, SLOTS)).unwrap();
    let owner = |rank, slot| Owner { rank: Rank(rank), slot, generation: 0 };
    let user = User { lock, memory: &all[1], owner: owner(1, 0) };
    assert_eq!(user.ask(Mode::Exclusive, Intent::LOCK), Ok(Held::cleanly(Mode::Exclusive)));
    memory.net().kill(Rank(1), 0);
    let counts = |counts| Layout::<_, A>::new(&all[3], owner(3, Owner::NO_SLOT), SLOTS).announce_without_slot(counts);
    counts(true).unwrap();

    let ask = |elsewhere| {
        let asks = &all[2];
        let context = Layout::<_, A>::new(asks, owner(2, 0), Slots { elsewhere, ..SLOTS });
        let mut asked: Acquire<'_> = Box::pin(async move {
            let words = lock.words(context)?;
            let started = lock.start(asks, context, words, Mode::Exclusive)?;
            lock.finish(asks, context, words, Mode::Exclusive, started, || Intent::LOCK).await
        });
        run(&memory, &mut asked, 20 * ENDLESS)
    };
    let entangled = Fault::of(FaultKind::Deadlock, Rank(3));
    let begun = all[2].now();
    assert_eq!(ask(true), Some(Err(entangled)), "{}", A::NAME);
    assert!(all[2].now() - begun >= 1_000_000_000, "{}: it may end yet", A::NAME);
    assert_eq!(ask(false), None, "{}: it may count", A::NAME);
    counts(false).unwrap();
    for elsewhere in [false, true] {
        let told = ask(elsewhere).map(|held| held.map_err(|fault| fault.rank()));
        assert_eq!(told, Some(Err(Some(Rank(1)))), "{}: nobody counts", A::NAME);
    }
}

#[test]
fn waiters_for_owners_without_slots_fail_on_a_possible_deadlock() {
    entangle(&mcs());
    entangle(&ticket::<15>());
    entangle(&queue::<15, 16>());
    entangle(&distributed::<15>());
}

#[test]
fn test_and_set() {
    poison_all(&right(), [true; 2]);
}

#[test]
fn the_queue_lock() {
    poison_all_ways(&mcs());
}

#[test]
fn tickets() {
    poison_all_ways(&ticket::<15>());
    poison_all_ways(&ticket::<2>());
}

#[test]
fn queues_by_fetch_add() {
    poison_all_ways(&queue::<15, 16>());
    poison_all_ways(&queue::<2, 1>());
}

#[test]
fn distributed_counters() {
    poison_all_ways(&distributed::<15>());
}

#[test]
fn two_levels() {
    poison_all(&two_level(8), [false, true]); // an owner word of a cohort names a host
    poison_all(&two_level(8).bypasses(1), [true; 2]);
}
