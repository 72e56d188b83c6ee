//! Programs, schedules and deaths made up by proptest, against the sequential model.

use onesided_lock_algos::{Backoff, Intent, LockAlgorithm, Mode, Owner, TestAndSet};
use onesided_lock_kit::program::region_words;
use onesided_lock_kit::random::{drive, expect_caught, run as run_in, scenarios as scenario};
use onesided_lock_kit::wrong::{Flaw, Wrong, mcs, right};
use onesided_lock_kit::{Action, Fencing, Layout, ModelMemory, Posted, Scenario, Section, Setting, Slots};
use onesided_remote_memory::{Fault, FaultKind, Rank};
use proptest::prelude::*;

/// Runs a scenario and says what was violated, if anything was, else what was posted.
pub(crate) fn run<A: LockAlgorithm + Clone>(lock: &A, scenario: &Scenario) -> Result<Posted, String> {
    run_in(Setting::USUAL, lock, scenario).map(|history| history.posted)
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 2000, max_shrink_iters: 1000, ..ProptestConfig::default() })]

    #[test]
    fn excludes_and_ends(scenario in scenario(false)) {
        run(&right(), &scenario).map_err(TestCaseError::fail)?;
    }

    #[test]
    fn excludes_and_ends_without_backoff(scenario in scenario(false)) {
        run(&TestAndSet::new(Backoff::disabled()), &scenario).map_err(TestCaseError::fail)?;
    }

    #[test]
    fn a_death_is_reported_to_the_recovering_owner(scenario in scenario(true)) {
        run(&right(), &scenario).map_err(TestCaseError::fail)?;
    }

    #[test]
    fn mcs_excludes_and_ends(scenario in scenario(false)) {
        run(&mcs(), &scenario).map_err(TestCaseError::fail)?;
    }

    #[test]
    fn mcs_reports_a_death_to_the_recovering_owner(scenario in scenario(true)) {
        run(&mcs(), &scenario).map_err(TestCaseError::fail)?;
    }
}

#[test]
fn uncontended_costs_two_operations() {
    for (round, expected) in [
        (Section::EXCLUSIVE, Posted { compare_swaps: 1, writes: 1, ..Posted::default() }),
        (Section::SHARED, Posted { compare_swaps: 1, fetch_adds: 1, ..Posted::default() }),
    ] {
        let programs = vec![vec![Section { touches: 0, ..round }]];
        assert_eq!(run(&right(), &Scenario { programs, schedule: vec![], death: None }), Ok(expected));
    }
}

#[test]
fn mcs_costs_two_operations_uncontended_and_one_write_to_hand_over() {
    let run = |programs: &[&[Section]]| {
        let programs = programs.iter().map(|rounds| rounds.to_vec()).collect();
        run(&mcs(), &Scenario { programs, schedule: vec![], death: None })
    };
    let quiet = Section { touches: 0, ..Section::EXCLUSIVE };
    assert_eq!(run(&[&[quiet]]), Ok(Posted { compare_swaps: 2, ..Posted::default() }));
    let shared = Section { mode: Mode::Shared, ..quiet };
    assert_eq!(run(&[&[shared]]), Ok(Posted { compare_swaps: 1, fetch_adds: 1, ..Posted::default() }));
    // The other one swaps itself in at its second attempt and links itself; it is granted the lock, and frees it.
    let busy = Section { touches: 3, ..Section::EXCLUSIVE };
    let alone = run(&[&[busy]]).unwrap();
    let both = run(&[&[busy], &[quiet]]).unwrap();
    let more = Posted { compare_swaps: alone.compare_swaps + 2, writes: alone.writes + 2, waits: 1, ..alone };
    assert_eq!(both, more);
}

#[test]
fn a_release_without_a_lock_is_told_and_harms_nothing() {
    let owner = Owner { rank: Rank(0), slot: 0, generation: 0 };
    let stranger = Owner { slot: 1, ..owner };
    let slots = Slots::new(2);
    for held in [None, Some(Mode::Exclusive), Some(Mode::Shared)] {
        let memory = ModelMemory::new(1, region_words::<TestAndSet>(slots));
        let algorithm = right();
        let released = async {
            let place = Layout::<_, TestAndSet>::new(&memory, owner, slots);
            if let Some(mode) = held {
                let words = algorithm.words(place)?;
                algorithm
                    .finish(&memory, place, words, mode, algorithm.start(&memory, place, words, mode)?, || Intent::LOCK)
                    .await?;
            }
            let before = memory.region();
            let place = Layout::<_, TestAndSet>::new(&memory, stranger, slots);
            let words = algorithm.words(place)?;
            let outcome = algorithm.start_release(&memory, place, words, Mode::Shared).map(drop);
            assert_eq!(memory.region(), before);
            outcome
        };
        assert_eq!(drive(&memory, released), Err(Fault::new(FaultKind::NotHeld)), "{held:?}");
    }
}

#[test]
fn wrong_locks_are_caught() {
    for (flaw, dies, expected) in [
        (Flaw::ReadThenWrite, false, "exclusion"),
        (Flaw::ReaderIgnoresOwner, false, ""),
        (Flaw::ReaderFreesAll, false, "exclusion"),
        (Flaw::ForgetsRelease, false, "wait without end"),
        (Flaw::WaitsForTheDead, true, "wait without end"),
        (Flaw::TakesFromDeadReadersAtOnce, true, ""),
    ] {
        expect_caught(&format!("{flaw:?}"), dies, expected, |scenario| run(&Wrong::new(flaw), scenario));
    }
}

/// Whose tokens are drawn before the lock is had.
#[test]
fn hasty_tokens_are_caught() {
    expect_caught("hasty tokens", false, "the token", |scenario| {
        let mut scenario = scenario.clone();
        for round in scenario.programs.iter_mut().flatten() {
            round.fencing = Fencing::Hasty;
        }
        run(&right(), &scenario)
    });
}

/// The queue lock where an operation is left out or does too much.
#[test]
fn wrong_queue_locks_are_caught() {
    const HOME_ALONE: u64 = 1 << 62;
    const FROZEN: u64 = 1 << 63;
    const MARKED: u64 = 1 << 63;
    const READING: u64 = 1 << 62;
    /// Its name, what it does, whether somebody dies, and what is found.
    type Bend = (&'static str, fn(Action) -> Action, bool, &'static str);
    let mutations: [Bend; 7] = [
        (
            "frees by a write",
            |action| match action {
                Action::CompareSwap(expected, 0) if expected & HOME_ALONE != 0 => Action::Write(0),
                other => other,
            },
            false,
            "",
        ),
        (
            "no link",
            |action| match action {
                Action::Write(link) if link & MARKED != 0 && link & !MARKED & !READING & !0x3ff_ffff != 0 => {
                    Action::Read
                }
                other => other,
            },
            false,
            "wait without end",
        ),
        (
            "no grant",
            |action| match action {
                Action::Write(grant) if grant & MARKED != 0 && grant & !MARKED & !READING & !0x3ff_ffff == 0 => {
                    Action::Read
                }
                other => other,
            },
            false,
            "wait without end",
        ),
        (
            "a grant without generation",
            |action| match action {
                Action::Write(grant) if grant & MARKED != 0 && grant & !MARKED & !READING & !0x3ff_ffff == 0 => {
                    Action::Write(MARKED)
                }
                other => other,
            },
            false,
            "",
        ),
        (
            "a reader who does not count",
            |action| match action {
                Action::FetchAdd(add) if add == 1 << 36 => Action::Read,
                other => other,
            },
            false,
            "",
        ),
        (
            "no freezing",
            |action| match action {
                Action::CompareSwap(_, new) if new & FROZEN != 0 => Action::Read,
                other => other,
            },
            true,
            "wait without end",
        ),
        (
            "who comes last forgets the readers",
            |action| match action {
                Action::CompareSwap(expected, new) if new & HOME_ALONE != 0 && expected & FROZEN == 0 => {
                    Action::CompareSwap(expected, new & !(0xff_ffff << 36))
                }
                other => other,
            },
            false,
            "",
        ),
    ];
    for (flaw, mutate, dies, expected) in mutations {
        expect_caught(flaw, dies, expected, |scenario| {
            run_in(Setting { mutate: Some(mutate), ..Setting::USUAL }, &mcs(), scenario)
        });
    }
}
