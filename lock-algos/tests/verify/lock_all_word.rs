//! The lock-all word: its costs, a cancelled recovery, and rejected releases.

use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

use crate::right::{global, right};
use onesided_lock_algos::{Global, Held, Intent, LockAlgorithm, LockUse, Mode, Owner, TestAndSet};
use onesided_lock_kit::program::{LOCK, region_words};
use onesided_lock_kit::random::{drive, run};
use onesided_lock_kit::{Layout, ModelMemory, Posted, Scenario, Section, Setting, Slots};
use onesided_remote_memory::{Fault, FaultKind, Rank};

const X: Section = Section::EXCLUSIVE;
const S: Section = Section::SHARED;

pub(crate) fn tested() -> Global<TestAndSet> {
    global::<_, 15>(right())
}

fn posted(programs: &[&[Section]]) -> Posted {
    let programs = programs.iter().map(|rounds| rounds.to_vec()).collect();
    run(Setting::USUAL, &tested(), &Scenario { programs, schedule: vec![], death: None }).unwrap().posted
}

#[test]
fn all_targets_cost_two_operations_uncontended() {
    assert_eq!(posted(&[&[S.touching(0)]]), Posted { fetch_adds: 2, ..Posted::default() });
    let exclusive = Posted { fetch_adds: 2, compare_swaps: 1, writes: 1, ..Posted::default() };
    assert_eq!(posted(&[&[X.touching(0)]]), exclusive);
}

/// An owner that recovers the lock-all word and is cancelled at the target's lock leaves the
/// recovery to the next one.
#[test]
fn a_cancelled_recovery_reopens_nothing() {
    let slots = Slots::new(1);
    let lock = tested();
    let mut given_up = 0;
    for limit in 0..20 {
        let memory = ModelMemory::new(3, region_words::<Global<TestAndSet>>(slots));
        let all: Vec<_> = (0..3).map(|rank| memory.of(rank)).collect();
        let ask = |rank: u32, mode, wish: &(dyn Fn() -> Intent + Send + Sync)| {
            let (lock, memory) = (&lock, &all[rank as usize]);
            let owner = Owner { rank: Rank(rank), slot: 0, generation: 0 };
            let place = Layout::new::<Global<TestAndSet>>(memory, owner, slots);
            drive(memory, async {
                let words = lock.words(place, Intent::LOCK)?;
                let started = lock.start(LockUse::new(memory, place, words, mode))?;
                let held = lock.finish(LockUse::new(memory, place, words, mode), started, wish).await?;
                if rank > 1 {
                    let released = lock.start_release(LockUse::new(memory, place, words, held.mode))?;
                    lock.finish_release(LockUse::new(memory, place, words, held.mode), released.await).await?;
                }
                Ok(held)
            })
        };
        assert_eq!(ask(1, Mode::Exclusive, &|| Intent::LOCK), Ok(Held::cleanly(Mode::Exclusive)));
        memory.world().kill(Rank(1));
        memory.world().words[LOCK] = 0; // the target's lock is recovered
        let died = Fault::of(FaultKind::ParticipantDied, Rank(1));
        assert_eq!(ask(2, Mode::Shared, &|| Intent::LOCK), Err(died));
        let asked = AtomicUsize::new(0);
        let wish = || match asked.fetch_add(1, Relaxed) < limit {
            true => Intent::LOCK.recovering(),
            false => Intent::CANCELLED,
        };
        // An owner holds the target's lock and not the lock-all word: the recovering owner would
        // wait for it.
        memory.world().words[LOCK] = 1 << 63 | Owner { rank: Rank(0), slot: 0, generation: 0 }.to_bits();
        assert_eq!(ask(2, Mode::Exclusive, &wish), Err(Fault::new(FaultKind::Closed)), "after {limit} questions");
        given_up += usize::from(memory.region()[LOCK + 2] != 0);
        memory.world().words[LOCK] = 0;
        let told = ask(2, Mode::Shared, &|| Intent::LOCK);
        assert_eq!(told, Err(died), "after {limit} questions");
        let recovering = ask(2, Mode::Shared, &|| Intent::LOCK.recovering());
        assert_eq!(recovering, Ok(Held::after(died, Mode::Exclusive)));
        assert_eq!(ask(2, Mode::Shared, &|| Intent::LOCK), Ok(Held::cleanly(Mode::Shared)));
    }
    assert!(given_up > 0, "it never came into the room");
}

/// By a rank that does not hold the lock.
#[test]
fn impossible_releases_fail() {
    let slots = Slots::new(1);
    let lock = tested();
    let memory = ModelMemory::new(1, region_words::<Global<TestAndSet>>(slots));
    for mode in [Mode::Exclusive, Mode::Shared] {
        let owner = Owner { rank: Rank(0), slot: 0, generation: 0 };
        let place = Layout::new::<Global<TestAndSet>>(&memory, owner, slots);
        let words = lock.words(place, Intent::LOCK).unwrap();
        let refused = lock.start_release(LockUse::new(&memory, place, words, mode)).map(drop);
        assert_eq!(refused, Err(Fault::new(FaultKind::NotHeld)));
    }
    assert!(memory.region().iter().all(|word| *word == 0));
}
