//! The two-level lock on one host and on several, and wrong variants. Its operations at the home:
//! [`crate::marks`].

use crate::right::two_level;
use crate::{woken_checker, woken_exploration};
use onesided_lock_kit::random::{run as run_in, scenarios as scenario};
use onesided_lock_kit::{Op, Section, Setting, posted};
use onesided_remote_memory::FaultKind;
use proptest::prelude::*;

use crate::bound;
use crate::marks::{MARK, both, setting};
use crate::random::expect_caught;
use crate::{EARLY, S, T, TS, X};

proptest! {
    #![proptest_config(ProptestConfig { cases: 1500, max_shrink_iters: 1000, ..ProptestConfig::default() })]

    #[test]
    fn excludes_and_ends(scenario in scenario(false), per_host in 1..4_u32, handovers in 0..3_u16, passes in 0..2_u8) {
        let lock = two_level(handovers).bypasses(passes);
        run_in(setting(per_host), &lock, &scenario).map_err(TestCaseError::fail)?;
    }

    #[test]
    fn a_death_is_reported_to_the_recovering_owner(scenario in scenario(true), per_host in 1..4_u32, handovers in 0..3_u16, passes in 0..2_u8) {
        run_in(setting(per_host), &two_level(handovers).bypasses(passes), &scenario).map_err(TestCaseError::fail)?;
    }
}

/// Each on a host of its own; `conformance` has two on a host.
#[test]
fn two_origins() {
    let preemptions = bound(2, 3);
    for (programs, preemptions) in [
        (&[&[X, X][..], &[X, X]], preemptions),
        (&[&[X, S], &[S, X]], preemptions),
        (&[&[S, S], &[X, X]], preemptions),
        (&[&[EARLY, S], &[S, EARLY]], 2),
    ] {
        for lock in both(1) {
            let exploration = woken_exploration(&lock).setting(setting(1));
            exploration.preemptions(preemptions).at_least(200).run(programs);
        }
    }
}

/// All on one host.
#[test]
fn three_origins() {
    for programs in [&[&[X][..], &[X], &[X]], &[&[X], &[S], &[S]], &[&[EARLY], &[X], &[S]]] {
        for lock in both(1) {
            woken_exploration(&lock).setting(setting(3)).preemptions(2).at_least(300).run(programs);
        }
    }
}

#[test]
fn cancelled() {
    for per_host in [3, 1] {
        for lock in both(1) {
            woken_exploration(&lock).setting(setting(per_host)).preemptions(1).at_least(500).run_cancelled();
        }
    }
}

#[test]
fn a_death_inside_is_reported() {
    // A rank that has bypassed the queue is named.
    for (lock, kind) in [(two_level(1), FaultKind::ParticipantDied), (two_level(1).bypasses(1), FaultKind::OwnerDied)] {
        woken_exploration(&lock).setting(setting(1)).preemptions(3).run_deaths(kind);
    }
}

/// Every schedule of ranks on hosts of their own: without deaths, with one, with a lost operation or reply,
/// with a stop.
#[test]
fn every_schedule() {
    const LOST: &[&[Section]] = &[&[X], &[X]];
    let check = |lock| woken_checker(&lock).setting(setting(1)).at_most(bound(8_000, 25_000)).at_least(500);
    let passing = check(two_level(1).bypasses(1));
    passing.run(&[&[X, X], &[X]]);
    assert!(passing.clone().crashes(1).run(LOST).recoveries > 0);
    passing.stops(1).crashes(1).run(LOST);
    let checker = check(two_level(1));
    for programs in [&[&[X, X][..], &[X]][..], &[&[X], &[S, X]], &[&[T, TS], &[X]]] {
        checker.run(programs);
    }
    let crashes = checker.clone().crashes(1);
    for programs in [LOST, &[&[X], &[S]], &[&[X.cancelled(1)], &[X]]] {
        assert!(crashes.run(programs).recoveries > 0, "{programs:?}");
    }
    assert!(checker.clone().losses(1).run(LOST).lost > 0);
    checker.stops(1).crashes(1).run(LOST);
}

/// The lock with an operation left out or replaced.
#[test]
fn wrong_ones_are_caught() {
    const KEPT: u64 = 2 << 37;
    const STANDING: u64 = 3 << 37;
    /// Its name, its mutation, whether a rank dies, how many ranks share a host, and what is found.
    type Bend = (&'static str, fn(Op) -> Op, bool, u32, &'static str);
    let mutations: [Bend; 5] = [
        ("a mark by a write", posted!(CompareSwap(0, new) if new & MARK == MARK => Write(new)), false, 1, ""),
        (
            "keeps the lock and does not say so",
            posted!(Write(state) if state & STANDING == KEPT => Read),
            false,
            4,
            "wait without end",
        ),
        (
            "says that it keeps the lock, and gives it back",
            posted!(Write(state) if state >> 48 == 0 && state & STANDING == 0 && state != 0 => Write(state | KEPT)),
            false,
            4,
            "",
        ),
        (
            "a mark that stays",
            posted!(CompareSwap(expected, 0) if expected & MARK == MARK => Read),
            false,
            2,
            "not free",
        ),
        (
            "a mark of the same generation",
            posted!(CompareSwap(expected, new) if new & MARK == MARK => CompareSwap(expected, new & !0x1f_ffff_ffff)),
            true,
            1,
            "",
        ),
    ];
    for (flaw, mutate, dies, per_host, expected) in mutations {
        let setting = Setting { mutate: Some(mutate), ..setting(per_host) };
        expect_caught(flaw, dies, expected, |scenario| run_in(setting, &two_level(1), scenario));
    }
    // An owner that does not see the announced owners of that host takes the lock from them.
    let blind = Setting { blind: true, ..setting(2) };
    expect_caught("blind", true, "", |scenario| run_in(blind, &two_level(1), scenario));
}
