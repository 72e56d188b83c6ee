//! Lock-all: the tests of the other locks, with readers that lock all targets, over several
//! algorithms for the targets; and its own: two alternating groups, owners that bypass waiters, one
//! death that two words report.

use crate::right::{global, mcs, right, ticket};
use crate::{woken_checker, woken_exploration};
use onesided_lock_kit::random::{run as run_in, scenarios as scenario};
use onesided_lock_kit::{Atomics, Op, Section, Setting, posted};
use onesided_remote_memory::FaultKind;
use proptest::prelude::*;

use crate::bound;
use crate::lock_all_word::tested;
use crate::loom::{EARLY, S, T, TS, X};
use crate::random::{expect_caught, run};
use crate::stopped::stop_everywhere;

/// What one owner of each group adds to the lock-all word when it enters, leaves, and waits.
const ENTER_ALL: u64 = 1;
const ENTER_X: u64 = 1 << 15;
const LEAVE_ALL: u64 = ENTER_ALL.wrapping_neg();
const LEAVE_X: u64 = ENTER_X.wrapping_neg();
const WAIT_X: u64 = 1 << 45;
const BACK_ALL: u64 = (1 << 30) - ENTER_ALL;
const BACK_X: u64 = WAIT_X - ENTER_X;
const PHASES: u64 = 3 << 60;
const INSIDE: u64 = (1 << 30) - 1;
const FROZEN: u64 = 1 << 63;
const STAMP: u64 = 0x3fff << 30 | 0x3fff << 45;

proptest! {
    #![proptest_config(ProptestConfig { cases: 2000, max_shrink_iters: 1000, ..ProptestConfig::default() })]

    #[test]
    fn excludes_and_ends(scenario in scenario(false)) {
        run(&tested(), &scenario).map_err(TestCaseError::fail)?;
        run(&global::<_, 15>(ticket::<2>()), &scenario).map_err(TestCaseError::fail)?;
        run(&global::<_, 15>(mcs()), &scenario).map_err(TestCaseError::fail)?;
    }

    /// Mostly more owners than there is room for.
    #[test]
    fn excludes_and_ends_when_oversubscribed(scenario in scenario(false)) {
        run(&global::<_, 1>(right()), &scenario).map_err(TestCaseError::fail)?;
        run(&global::<_, 2>(right()), &scenario).map_err(TestCaseError::fail)?;
    }

    #[test]
    fn a_death_is_reported_to_the_recovering_owner(scenario in scenario(true)) {
        run(&tested(), &scenario).map_err(TestCaseError::fail)?;
        run(&global::<_, 15>(ticket::<2>()), &scenario).map_err(TestCaseError::fail)?;
        run(&global::<_, 15>(mcs()), &scenario).map_err(TestCaseError::fail)?;
    }

    #[test]
    fn a_death_is_reported_to_the_recovering_owner_when_oversubscribed(scenario in scenario(true)) {
        run(&global::<_, 1>(right()), &scenario).map_err(TestCaseError::fail)?;
        run(&global::<_, 2>(right()), &scenario).map_err(TestCaseError::fail)?;
    }
}

#[test]
fn two_origins() {
    for (programs, preemptions, at_least) in [
        (&[&[X, X][..], &[X, X]], 2, 300),
        (&[&[X, S], &[S, X]], 2, 300),
        (&[&[S, S], &[S, S]], 3, 100),
        (&[&[S, S], &[X, X]], 2, 300),
        (&[&[EARLY, S], &[S, EARLY]], 2, 300),
        (&[&[T, TS], &[X, S]], 2, 300),
        (&[&[TS, T], &[T, TS]], 2, 300),
    ] {
        woken_exploration(&tested()).preemptions(preemptions).at_least(at_least).run(programs);
    }
}

#[test]
fn three_origins() {
    for programs in [&[&[X][..], &[X], &[S]], &[&[X], &[S], &[S]], &[&[EARLY], &[TS], &[S]]] {
        woken_exploration(&tested()).preemptions(2).at_least(1_000).run(programs);
        let (preemptions, at_least) = bound((1, 50), (2, 1_000));
        woken_exploration(&global::<_, 1>(right())).preemptions(preemptions).at_least(at_least).run(programs);
    }
    let (preemptions, at_least) = bound((1, 50), (2, 1_000));
    woken_exploration(&global::<_, 15>(ticket::<2>())).preemptions(preemptions).at_least(at_least).run(&[
        &[X],
        &[X],
        &[S],
    ]);
    woken_exploration(&global::<_, 15>(mcs())).preemptions(1).at_least(50).run(&[&[X], &[X], &[S]]);
}

#[test]
fn on_cards() {
    for programs in [&[&[X, S][..], &[S, X]][..], &[&[X], &[X], &[S]]] {
        woken_exploration(&tested()).atomics(Atomics::OneAnother).preemptions(2).at_least(50).run(programs);
    }
}

#[test]
fn cancelled() {
    woken_exploration(&tested()).preemptions(1).at_least(500).run_cancelled();
}

/// The target's lock names an owner; the lock-all word names none.
#[test]
fn a_death_inside_is_reported() {
    let exploration = woken_exploration(&tested()).preemptions(3);
    exploration.run_deaths(FaultKind::OwnerDied);
}

#[test]
fn a_stopped_waiter_does_no_harm() {
    stop_everywhere(&tested(), None);
}

/// Its recoveries have no nonce.
#[test]
#[should_panic(expected = "rank 0, stopped")]
fn recoveries_without_a_nonce_are_caught() {
    let mutate = posted!(CompareSwap(expected, new) if expected & FROZEN == 0 && new & FROZEN != 0 =>
        CompareSwap(expected, new & !STAMP & !PHASES));
    stop_everywhere(&tested(), Some(mutate));
}

/// Every schedule, up to a bound. Sections of three origins do not access the data.
#[test]
fn checked() {
    const A: Section = X.touching(0);
    const B: Section = S.touching(0);
    let lock = tested();
    // Each waiter of a group may see the other group inside, and one turn of it.
    let calm = woken_checker(&lock).bypass(2);
    for programs in [&[&[X][..], &[X]], &[&[X], &[S, X]], &[&[S], &[X, S]], &[&[T, TS], &[X]]] {
        assert!(calm.clone().at_least(500).run(programs).complete);
    }
    let calm = woken_checker(&lock);
    for [x, y, z] in [[A, A, B], [A, B, B]] {
        assert!(calm.clone().at_most(bound(10_000, 40_000)).run(&[&[x], &[y], &[z]]).bypassed <= 2);
    }
    let dies = woken_checker(&lock).crashes(1).at_most(bound(15_000, 60_000)).at_least(1_000);
    for programs in [&[&[X][..], &[X]], &[&[X], &[S]], &[&[S], &[X]], &[&[T], &[X]], &[&[X.cancelled(1)], &[S]]] {
        assert!(dies.run(programs).recoveries > 0, "{programs:?}");
    }
    let stops = woken_checker(&lock).stops(1).crashes(1).at_most(bound(15_000, 60_000)).at_least(1_000);
    let loses = woken_checker(&lock).losses(1).at_most(bound(15_000, 60_000)).at_least(200);
    for programs in [&[&[X][..], &[X]], &[&[X], &[S]], &[&[S], &[X]]] {
        stops.run(programs);
        assert!(loses.run(programs).lost > 0, "{programs:?}");
    }
}

/// The lock with an operation on the lock-all word left out or replaced.
#[test]
fn wrong_ones_are_caught() {
    /// Its name, its mutation, whether a rank dies, and what is found.
    type Bend = (&'static str, fn(Op) -> Op, bool, &'static str);
    let mutations: [Bend; 11] = [
        ("an exclusive owner who does not announce itself", posted!(FetchAdd(ENTER_X) => Read), false, ""),
        ("who locks all and does not count", posted!(FetchAdd(ENTER_ALL) => Read), false, ""),
        ("an exclusive owner who stays", posted!(FetchAdd(LEAVE_X) => Read), false, ""),
        ("who locks all and stays", posted!(FetchAdd(LEAVE_ALL) => Read), false, ""),
        ("leaves by a write", posted!(FetchAdd(LEAVE_ALL) => Write(0)), false, ""),
        ("waits and does not step back", posted!(FetchAdd(BACK_X) => FetchAdd(WAIT_X)), false, ""),
        ("steps back and does not wait", posted!(FetchAdd(BACK_ALL) => FetchAdd(LEAVE_ALL)), false, ""),
        (
            "lets in by the same phase",
            posted!(CompareSwap(expected, new) if (expected ^ new) & PHASES != 0 && new & FROZEN == 0 =>
                CompareSwap(expected, new & !PHASES | expected & PHASES)),
            false,
            "",
        ),
        (
            "lets in by a write",
            posted!(CompareSwap(expected, new) if (expected ^ new) & PHASES != 0 && new & FROZEN == 0 => Write(new)),
            false,
            "",
        ),
        (
            "no recovery",
            posted!(CompareSwap(expected, new) if expected & FROZEN == 0 && new & FROZEN != 0 => Read),
            true,
            "wait without end",
        ),
        (
            "a recovering owner that leaves the dead in",
            posted!(CompareSwap(expected, new) if expected & new & FROZEN != 0 =>
                CompareSwap(expected, new + (expected & INSIDE))),
            true,
            "",
        ),
    ];
    for (flaw, mutate, dies, expected) in mutations {
        let setting = Setting { mutate: Some(mutate), ..Setting::USUAL };
        expect_caught(flaw, dies, expected, |scenario| run_in(setting, &tested(), scenario));
    }
    let blind = Setting { blind: true, ..Setting::USUAL };
    expect_caught("asks nobody", true, "", |scenario| run_in(blind, &tested(), scenario));
}
