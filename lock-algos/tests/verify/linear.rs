//! Histories that are not linearizable are caught. `conformance` checks those of the shipped locks.

use crate::right::{mcs, right, ticket};
use crate::wrong::{Flaw, Wrong};
use onesided_lock_algos::LockAlgorithm;
use onesided_lock_kit::{Linearizability, Search};

fn expect_caught<A: LockAlgorithm + Clone>(what: &str, search: Search<A>, expected: [&str; 2]) {
    let found = search.cases(4_000).seed(1).verdict().expect_err(what);
    assert!(expected.iter().any(|expected| found.contains(expected)), "{what}: {found}");
}

const NO_ORDER: &str = "not linearizable";

/// Data at other ranks arrives after the next owner has read it.
#[test]
fn a_missing_flush_is_caught() {
    expect_caught("test-and-set", Linearizability::of(&right()).without_flush(), [NO_ORDER; 2]);
    expect_caught("mcs", Linearizability::of(&mcs()).without_flush(), [NO_ORDER; 2]);
    expect_caught("ticket", Linearizability::of(&ticket::<15>()).without_flush(), [NO_ORDER; 2]);
}

/// Those that entered together, or leave the lock taken.
#[test]
fn wrong_locks_are_caught() {
    for flaw in [Flaw::ReadThenWrite, Flaw::ReaderFreesAll] {
        expect_caught(&format!("{flaw:?}"), Linearizability::of(&Wrong::new(flaw)), ["exclusion", "wait without end"]);
    }
}
