//! Distributed reader counters: the operations that they post, writer flags that are left to the next owner,
//! and wrong variants.

use crate::right::distributed;
use onesided_lock_kit::random::run as run_in;
use onesided_lock_kit::{Op, Posted, Scenario, Section, Setting, posted};

use crate::random::{expect_caught, run};
use crate::{S, X};

const MARK: u64 = 1 << 31;
const UNMARK: u64 = MARK.wrapping_neg();
const COME: u64 = 1;

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
