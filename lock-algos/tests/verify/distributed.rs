//! Distributed reader counters: the tests of the other locks, and its own: the operations that it
//! posts, writer flags that are left to the next owner, and writer flags of dead owners.

use crate::right::distributed;
use crate::woken_exploration;
use onesided_lock_algos::{DistributedCounters, Mode};
use onesided_lock_kit::program::{lock_and_data, per_rank_word};
use onesided_lock_kit::random::{run as run_in, scenarios as scenario};
use onesided_lock_kit::{Atomics, Op, Posted, Scenario, Section, Setting, posted};
use onesided_remote_memory::FaultKind;
use proptest::prelude::*;

use crate::bound;
use crate::loom::{EARLY, S, T, TS, X};
use crate::random::{expect_caught, run};
use crate::refused::release_twice;

const MARK: u64 = 1 << 31;
const UNMARK: u64 = MARK.wrapping_neg();
const COME: u64 = 1;

proptest! {
    #![proptest_config(ProptestConfig { cases: 1500, max_shrink_iters: 1000, ..ProptestConfig::default() })]

    #[test]
    fn excludes_and_ends(scenario in scenario(false)) {
        run(&distributed::<15>(), &scenario).map_err(TestCaseError::fail)?;
        run(&distributed::<2>(), &scenario).map_err(TestCaseError::fail)?;
    }

    #[test]
    fn a_death_is_reported_to_the_recovering_owner(scenario in scenario(true)) {
        run(&distributed::<15>(), &scenario).map_err(TestCaseError::fail)?;
        run(&distributed::<2>(), &scenario).map_err(TestCaseError::fail)?;
    }
}

fn posted(programs: &[&[Section]]) -> Posted {
    let programs = programs.iter().map(|rounds| rounds.to_vec()).collect();
    run(&distributed::<15>(), &Scenario { programs, schedule: vec![], death: None }).unwrap()
}

/// A reader increments its own rank's counter, and decrements it.
#[test]
fn a_reader_posts_two_operations_at_its_own_rank() {
    let quiet = Section { touches: 0, ..S };
    let programs = vec![vec![], vec![quiet, quiet], vec![quiet]];
    let history = run_in(Setting::USUAL, &distributed::<15>(), &Scenario { programs, schedule: vec![], death: None });
    let history = history.unwrap();
    assert_eq!(history.posted, Posted { fetch_adds: 6, ..Posted::default() });
    assert!(history.trace.effects().iter().all(|effect| effect.origin == effect.target), "{}", history.trace);
}

/// An exclusive owner sets each rank's writer flag and clears the flags; if another one waits, it
/// leaves them set.
#[test]
fn marks_are_left_to_the_next_owner() {
    let quiet = Section { touches: 0, ..X };
    // Its ticket, the flags' state three times, two flags; one poll, the state twice, two flags,
    // its ticket.
    let alone = Posted { fetch_adds: 6, reads: 2, writes: 4, ..Posted::default() };
    assert_eq!(posted(&[&[quiet], &[]]), alone);
    let busy = Section { touches: 3, ..X };
    let first = posted(&[&[busy], &[]]);
    let both = posted(&[&[busy], &[quiet]]);
    assert_eq!(both.fetch_adds - first.fetch_adds, 2, "a ticket");
    assert_eq!(both.writes, first.writes, "one of them sets the marks, the other one takes them away");
}

fn explore(programs: &[&[Section]], preemptions: usize, at_least: usize) {
    let exploration = woken_exploration(&distributed::<2>()).preemptions(preemptions).at_least(at_least);
    exploration.run_with(programs, |record, memory| {
        let home = memory.region();
        let (lock, data) = lock_and_data::<DistributedCounters<2>>(&home);
        record.check_end::<DistributedCounters<2>>(lock, data)?;
        // Neither readers nor flags; the number of arrivals does not matter.
        let counter = |rank| per_rank_word::<DistributedCounters<2>>(&memory.of(rank).region());
        let counters: Vec<_> = (0..2).map(counter).collect();
        if counters == [0; 2] { Ok(()) } else { Err(format!("counters {counters:x?}")) }
    });
}

#[test]
fn two_origins() {
    for (programs, preemptions, at_least) in [
        (&[&[X, X][..], &[X, X]], 2, 300),
        (&[&[X, S], &[S, X]], 2, 300),
        (&[&[S, S], &[S, S]], 3, 50),
        (&[&[S, S], &[X, X]], 2, 300),
        (&[&[EARLY, S], &[S, EARLY]], 2, 300),
    ] {
        explore(programs, preemptions, at_least);
    }
}

#[test]
fn three_origins() {
    for programs in [&[&[X][..], &[X], &[X]], &[&[X], &[S], &[S]], &[&[EARLY], &[X], &[S]]] {
        let (preemptions, at_least) = bound((1, 50), (2, 300));
        explore(programs, preemptions, at_least);
    }
}

#[test]
fn on_cards() {
    for programs in [&[&[X, S][..], &[S, X]][..], &[&[X], &[X], &[S]]] {
        woken_exploration(&distributed::<2>()).atomics(Atomics::OneAnother).preemptions(1).at_least(50).run(programs);
    }
}

#[test]
fn cancelled() {
    woken_exploration(&distributed::<4>()).preemptions(1).at_least(500).run_cancelled();
}

#[test]
fn tries() {
    for programs in [&[&[T, TS][..], &[X, S]][..], &[&[T, T], &[S, S]]] {
        woken_exploration(&distributed::<4>()).at_least(100).run(programs);
    }
}

#[test]
fn a_death_inside_is_reported() {
    let exploration = woken_exploration(&distributed::<2>()).preemptions(3);
    exploration.run_deaths(FaultKind::ParticipantDied);
}

/// After a release.
#[test]
fn a_release_without_a_lock_fails_and_changes_nothing() {
    for mode in [Mode::Exclusive, Mode::Shared] {
        let lock = distributed::<15>();
        let [before, after] = release_twice(&lock, mode, 0);
        assert_eq!(after, before);
    }
}

/// The lock with an operation left out or replaced.
#[test]
fn wrong_ones_are_caught() {
    /// Its name, its mutation, and what is found.
    type Bend = (&'static str, fn(Op) -> Op, &'static str);
    let mutations: [Bend; 5] = [
        ("no marks", posted!(FetchAdd(MARK | UNMARK) => Read), ""),
        ("marks that stay", posted!(FetchAdd(UNMARK) => Read), ""),
        ("a mark by a write", posted!(FetchAdd(MARK) => Write(MARK)), ""),
        ("marks taken away by a write", posted!(FetchAdd(UNMARK) => Write(0)), ""),
        ("a reader who does not count", posted!(FetchAdd(COME) => Read), ""),
    ];
    for (flaw, mutate, expected) in mutations {
        let setting = Setting { mutate: Some(mutate), ..Setting::USUAL };
        expect_caught(flaw, false, expected, |scenario| run_in(setting, &distributed::<4>(), scenario));
    }
}
