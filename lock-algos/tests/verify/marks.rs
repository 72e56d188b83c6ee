//! The two-level lock at the home: its costs, hand-overs, and owner words.

use std::collections::HashSet;

use crate::right::two_level;
use onesided_lock_algos::TwoLevel;
use onesided_lock_kit::program::LOCK;
use onesided_lock_kit::random::{run as run_in, search};
use onesided_lock_kit::{Action, Effect, Scenario, Section, Setting};
use onesided_remote_memory::Rank;

const X: Section = Section::EXCLUSIVE;
const S: Section = Section::SHARED;

/// The bits that all owner words of cohorts have set.
pub(crate) const MARK: u64 = 3 << 62;

pub(crate) fn setting(per_host: u32) -> Setting {
    Setting { per_host, ..Setting::USUAL }
}

/// The lock whose owners all queue, and the one whose owners try once before that.
pub(crate) fn both(handovers: u16) -> [TwoLevel; 2] {
    [two_level(handovers), two_level(handovers).bypasses(1)]
}

fn played(per_host: u32, lock: &TwoLevel, programs: &[&[Section]]) -> Vec<(Rank, Action)> {
    let programs = programs.iter().map(|rounds| rounds.to_vec()).collect();
    let scenario = Scenario { programs, schedule: vec![], death: None };
    let history = run_in(setting(per_host), lock, &scenario).unwrap();
    let at_home = |effect: &&Effect| effect.target == Rank(0) && effect.word == LOCK;
    history.trace.effects().iter().filter(at_home).map(|effect| (effect.origin, effect.action)).collect()
}

/// Uncontended one compare-swap, and another one for the release; shared a fetch-add.
#[test]
fn an_acquire_and_a_release_are_two_operations_at_the_home() {
    let quiet = Section { touches: 0, ..X };
    for lock in &both(8) {
        for round in [quiet, quiet.trying()] {
            let swaps = played(2, lock, &[&[round, round], &[]]);
            assert!(swaps.iter().all(|(_, action)| matches!(action, Action::CompareSwap(..))), "{swaps:?}");
            assert_eq!(swaps.len(), 4);
        }
        let shared = played(2, lock, &[&[Section { touches: 0, ..S }]]);
        assert!(matches!(shared[..], [(_, Action::CompareSwap(0, 1)), (_, Action::FetchAdd(_))]), "{shared:?}");
    }
}

/// Of three acquires on a host that wait for one another two are handed over there, if that is
/// allowed.
#[test]
fn a_host_hands_over_without_an_operation_at_the_home_so_many_times() {
    let busy = Section { touches: 6, ..X };
    for (handovers, operations) in [(8, 2), (2, 2), (1, 4), (0, 6)] {
        let at_home = played(3, &two_level(handovers), &[&[busy], &[busy], &[busy]]);
        assert_eq!(at_home.len(), operations, "{handovers}: {at_home:?}");
    }
    // Each has tried once without the queue, then two of them held the lock by one owner word.
    let at_home = played(3, &two_level(8).bypasses(1), &[&[busy], &[busy], &[busy]]);
    let marks = |(_, action): &&(Rank, Action)| matches!(action, Action::CompareSwap(0, new) if new & MARK == MARK);
    let (first, later) = at_home.split_at(3);
    assert!(first.iter().all(|tried| !marks(&tried)), "{at_home:?}");
    let by: Vec<_> = later.iter().filter(marks).map(|(rank, _)| rank).collect();
    let releases =
        later.iter().filter(|(_, action)| matches!(action, Action::CompareSwap(mark, 0) if mark & MARK == MARK));
    assert!(by.iter().all(|rank| *rank == by[0]) && releases.count() == 1, "{at_home:?}");
    // Each on a host of its own.
    let apart = played(1, &two_level(8), &[&[busy], &[busy], &[busy]]);
    assert!(apart.len() >= 6, "{apart:?}");
}

/// A rank that was stopped after it had read an owner word, and swaps late, finds another one.
#[test]
fn no_two_holds_of_a_host_have_the_same_mark() {
    for (dies, per_host, cases) in [(false, 2, 150), (true, 2, 300), (true, 4, 150)] {
        let distinct = |scenario: &Scenario| {
            let history = run_in(setting(per_host), &two_level(1), scenario)?;
            let mark = |effect: &Effect| match effect.action {
                Action::CompareSwap(expected, new) if expected == effect.found && new & MARK == MARK => Some(new),
                _ => None,
            };
            let mut seen = HashSet::new();
            match history.trace.effects().iter().filter_map(mark).find(|mark| !seen.insert(*mark)) {
                Some(mark) => Err(format!("the mark {mark:#x} again:\n{}", history.trace)),
                None => Ok(()),
            }
        };
        if let Err(found) = search(1, cases, dies, distinct) {
            panic!("{}\n in {:?}", found.reason, found.minimal);
        }
    }
}
