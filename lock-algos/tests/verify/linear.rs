//! Histories of sections under the locks are linearizable.

use lock_algos::LockAlgorithm;
use lock_kit::Linearizability;
use lock_kit::wrong::{Flaw, Wrong, mcs, right, ticket};

fn check<A: LockAlgorithm + Clone>(lock: &A) {
    Linearizability::of(lock).cases(1_500).run();
    Linearizability::of(lock).deaths().cases(1_500).run();
}

#[test]
fn test_and_set() {
    check(&right());
}

#[test]
fn the_queue_lock() {
    check(&mcs());
}

#[test]
fn tickets() {
    check(&ticket::<15>());
    check(&ticket::<2>());
}

fn expect_caught<A: LockAlgorithm + Clone>(what: &str, search: Linearizability<A>) {
    let found = search.cases(4_000).seed(1).verdict().expect_err(what);
    assert!(found.contains("not linearizable"), "{what}: {found}");
}

/// Data at other ranks arrives when the next owner has read it.
#[test]
fn a_missing_flush_is_caught() {
    expect_caught("test-and-set", Linearizability::of(&right()).without_flush());
    expect_caught("mcs", Linearizability::of(&mcs()).without_flush());
    expect_caught("ticket", Linearizability::of(&ticket::<15>()).without_flush());
}

#[test]
fn wrong_locks_are_caught() {
    for flaw in [Flaw::ReadThenWrite, Flaw::ReaderFreesAll] {
        expect_caught(&format!("{flaw:?}"), Linearizability::of(&Wrong::new(flaw)));
    }
}
