//! Every lock through the kit's conformance suite.

use std::time::Duration;

use crate::right::{distributed, global, mcs, queue, right, ticket, two_level};
use crate::wrong::{Flaw, Wrong};
use onesided_lock_algos::{DedicatedThread, EventThread, LockAlgorithm};
use onesided_lock_kit::{Conformance, Search};

use crate::bound;

/// The suite, which must reach these numbers of schedules: with a crash, with a loss, with a stop.
/// They depend on the lock alone.
#[track_caller]
fn conforms<A: LockAlgorithm + Clone>(suite: &Conformance<A>, at_least: [usize; 4]) {
    let report = suite.run();
    let tried = ["schedules", "with a crash", "with a loss", "with a stop"].map(|name| report.tried(name));
    assert!(tried.iter().zip(at_least).all(|(tried, at_least)| *tried >= at_least), "only {tried:?}: {report}");
}

/// The suite of the locks that have few states: up to 10,000 of each program, or 100,000 as users
/// have it.
fn suite<A: LockAlgorithm + Clone>(lock: &A) -> Conformance<A> {
    whole(lock).states(bound(10_000, 100_000))
}

/// The suite in all its length, which a loaded machine does not cut short, of a lock whose waiters
/// are woken.
fn whole<A: LockAlgorithm + Clone>(lock: &A) -> Conformance<A> {
    Conformance::of(lock).woken().within(Duration::MAX).deeper(bound(300, 3_000)).cases(bound(1_000, 3_000))
}

/// The suite of the others: up to 1,000 states and one preemption of a thread, or 10,000 and two.
fn brief<A: LockAlgorithm + Clone>(lock: &A) -> Conformance<A> {
    whole(lock).states(bound(1_000, 10_000)).preemptions(bound(1, 2))
}

/// The suite of a variant with counters of few bits, which wrap and overflow within a run.
fn narrow<A: LockAlgorithm + Clone>(lock: &A) {
    conforms(&whole(lock).preemptions(1).states(2_000), [1_000; 4]);
}

/// What [`brief`] reaches at least.
fn briefly() -> [usize; 4] {
    bound([1_200, 5_000, 1_000, 1_200], [10_000, 50_000, 10_000, 10_000])
}

#[test]
fn test_and_set() {
    let suite = suite(&right()).preemptions(bound(2, 3));
    conforms(&suite, bound([6_000, 20_000, 3_000, 10_000], [8_000, 80_000, 5_000, 25_000]));
    narrow(&right().checked()); // with a compare-swap for every release
}

/// An acquire that loses a compare-swap at the tail is bypassed, by each of the others once here.
#[test]
fn the_queue_lock() {
    let states = bound(5_000, 100_000);
    let suite = whole(&mcs()).states(states).bypass(2);
    conforms(&suite, bound([5_000; 4], [60_000, 150_000, 20_000, 40_000]));
}

/// First come, first served.
#[test]
fn tickets() {
    conforms(&suite(&ticket::<15>()).bypass(0), bound([4_000, 25_000, 4_000, 10_000], [6_000, 100_000, 8_000, 30_000]));
    // More owners than tickets: an owner without a ticket has not arrived.
    narrow(&ticket::<2>());
    narrow(&ticket::<1>());
}

/// One of its checks has hundreds of thousands of states.
#[test]
fn the_queue_by_fetch_add() {
    let at_least = bound([1_200, 5_000, 800, 1_200], [10_000, 50_000, 5_000, 10_000]);
    conforms(&brief(&queue::<15, 16>()).bypass(0), at_least);
    narrow(&queue::<2, 1>());
}

#[test]
fn distributed_counters() {
    conforms(&brief(&distributed::<15>()), briefly());
    narrow(&distributed::<2>());
}

/// On one host and on several: of three origins two share one.
#[test]
fn two_levels() {
    conforms(&brief(&two_level(1)), briefly());
    if bound(false, true) {
        conforms(&brief(&two_level(1).bypasses(1)), briefly());
    }
}

/// Readers lock all targets. Each waiter of a group may see the other group inside, and one turn of it.
#[test]
fn all_targets() {
    conforms(&brief(&global::<_, 15>(right())).bypass(2), briefly());
    narrow(&global::<_, 1>(right()));
}

#[test]
fn the_served() {
    let suite = whole(&EventThread::default()).preemptions(1).cases(bound(100, 300));
    conforms(&suite.states(bound(1_000, 10_000)), bound([1_000; 4], [10_000, 50_000, 10_000, 10_000]));
    // Its server waits in another way, and is the same otherwise: `served` and `quick::served` have
    // both.
    if bound(false, true) {
        conforms(&whole(&DedicatedThread::default()).preemptions(1).states(1_000).cases(300), [1_000; 4]);
    }
}

/// Its report names the failed trial, and how to reproduce it.
#[test]
fn wrong_locks_do_not_conform() {
    let suite = |flaw| Conformance::of(&Wrong::new(flaw)).states(2_000).cases(200).seed(1).all();
    let report = suite(Flaw::ReadThenWrite).verdict();
    assert!(!report.conforms());
    let text = report.to_string();
    for (part, again) in [
        ("interleavings", "its steps:"),
        ("schedules", "replay(programs, &["),
        ("random programs", Search::<Wrong>::SEED),
    ] {
        let found =
            report.trials().iter().find(|trial| trial.name == part).and_then(|trial| trial.outcome.as_ref().err());
        assert!(found.is_some_and(|found| found.contains(again) && text.contains(found.as_str())), "{part}: {text}");
    }
    let untold = suite(Flaw::WaitsForTheDead);
    assert!(!untold.verdict().conforms());
    let report = untold.without_recovery().verdict();
    assert!(report.conforms() && report.tried("with a crash") == 0, "{report}");
}
