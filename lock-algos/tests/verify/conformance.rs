//! Every lock through the kit's conformance suite.

use onesided_lock_algos::{DedicatedThread, EventThread, LockAlgorithm};
use onesided_lock_kit::wrong::{Flaw, Wrong, distributed, global, mcs, queue, right, ticket, two_level};
use onesided_lock_kit::{Conformance, Search};

/// The suite, which must reach these numbers of schedules: with a crash, with a loss, with a stop.
/// They depend on the lock alone.
#[track_caller]
fn conforms<A: LockAlgorithm + Clone>(suite: &Conformance<A>, at_least: [usize; 4]) {
    let report = suite.run();
    let tried = ["schedules", "with a crash", "with a loss", "with a stop"].map(|name| report.tried(name));
    assert!(tried.iter().zip(at_least).all(|(tried, at_least)| *tried >= at_least), "only {tried:?}: {report}");
}

#[test]
fn test_and_set() {
    conforms(&Conformance::of(&right()), [8_000, 80_000, 5_000, 25_000]);
}

/// An acquire that loses a compare-swap at the tail is bypassed, by each of the others once here.
#[test]
fn the_queue_lock() {
    conforms(&Conformance::of(&mcs()).bypass(2), [60_000, 150_000, 20_000, 40_000]);
}

/// First come, first served.
#[test]
fn tickets() {
    conforms(&Conformance::of(&ticket::<15>()).bypass(0), [6_000, 100_000, 8_000, 30_000]);
    // More owners than tickets: an owner without a ticket has not arrived.
    let oversubscribed = Conformance::of(&ticket::<2>()).preemptions(1).states(2_000);
    conforms(&oversubscribed, [1_000; 4]);
}

/// One of its checks has hundreds of thousands of states.
#[test]
fn the_queue_by_fetch_add() {
    let suite = Conformance::of(&queue::<15, 16>()).preemptions(1).states(10_000);
    conforms(&suite.bypass(0), [10_000, 50_000, 5_000, 10_000]);
    conforms(&Conformance::of(&queue::<2, 1>()).preemptions(1).states(2_000), [1_000; 4]);
}

#[test]
fn distributed_counters() {
    let suite = Conformance::of(&distributed::<15>()).preemptions(1).states(10_000);
    conforms(&suite, [10_000, 50_000, 10_000, 10_000]);
}

/// On one host and on several: of three origins two share one.
#[test]
fn two_levels() {
    conforms(&Conformance::of(&two_level(1)).preemptions(1).states(10_000), [10_000, 50_000, 10_000, 10_000]);
    conforms(
        &Conformance::of(&two_level(1).bypasses(1)).preemptions(1).states(10_000),
        [10_000, 50_000, 10_000, 10_000],
    );
}

/// Over three locks. Readers lock all targets.
#[test]
fn all_targets() {
    let suite = Conformance::of(&global::<_, 15>(right())).all_have_nodes().preemptions(1).states(10_000);
    conforms(&suite, [10_000, 50_000, 10_000, 10_000]);
}

#[test]
fn the_served() {
    let at_least = [10_000, 50_000, 10_000, 10_000];
    conforms(&Conformance::of(&EventThread::default()).preemptions(1).states(10_000).cases(300), at_least);
    conforms(&Conformance::of(&DedicatedThread::default()).preemptions(1).states(1_000).cases(300), [1_000; 4]);
}

/// Its report names the failed trial, and how to reproduce it.
#[test]
fn wrong_locks_do_not_conform() {
    let suite = |flaw| Conformance::of(&Wrong::new(flaw)).states(5_000).cases(200).seed(1);
    let report = suite(Flaw::ReadThenWrite).verdict();
    assert!(!report.conforms());
    let text = report.to_string();
    for (part, again) in [
        ("interleavings", "its operations:"),
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
