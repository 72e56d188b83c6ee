//! The kit's model checker against locks that are wrong on purpose, and the locks whose connections
//! are lost. `conformance` has the other checks of the shipped locks.

use crate::right::{distributed, mcs, queue, right, ticket};
use crate::woken_checker;
use crate::wrong::{Flaw, Wrong};
use onesided_lock_algos::LockAlgorithm;
use onesided_lock_kit::{Checker, Explored, Fencing, Section, Setting, posted};

use crate::bound;
use crate::{S, T, X};

/// A section that does not access the data.
const A: Section = X.touching(0);
const B: Section = S.touching(0);

fn whole(explored: Explored) -> usize {
    assert!(explored.complete, "{explored}");
    explored.states
}

/// An operation or a reply is lost, and the origin's connection with it: its acquire or release
/// fails, and the others go on as after its death. A rank crashes as well.
fn lost<L: LockAlgorithm + Clone>(lock: &L) -> usize {
    let checker = woken_checker(lock).losses(1);
    let lost = [&[&[A][..], &[A]], &[&[B], &[A]], &[&[T], &[A]]].map(|programs| {
        let explored = checker.run(programs);
        assert!(explored.lost > 0, "{}: {programs:?}: {explored}", L::NAME);
        whole(explored)
    });
    let bounded = checker.at_most(bound(5_000, 20_000));
    let more = [
        &[&[X, X][..], &[X]],
        &[&[S, X], &[S]],
        &[&[X.cancelled(1)], &[X]],
        &[&[S.cancelled(0), X], &[S]],
        &[&[X], &[X.cancelled_recovering(250)]],
    ];
    let more = more.map(|programs| bounded.run(programs).states);
    let three = [[A, A, A], [A, B, B]].map(|[x, y, z]| bounded.run(&[&[x], &[y], &[z]]).states);
    let both = [&[&[A][..], &[A]], &[&[A], &[B]]].map(|programs| bounded.clone().crashes(1).run(programs).states);
    lost.iter().chain(&more).chain(&three).chain(&both).sum()
}

#[test]
fn lost_connections() {
    for states in [lost(&right()), lost(&mcs()), lost(&ticket::<15>())] {
        assert!(states >= bound(20_000, 50_000), "only {states} states");
    }
}

/// Locks that take minutes completely: one section each without accesses to the data; no failure,
/// or one crash, or one lost operation or reply, up to 5,000 states of each, or 20,000.
fn check_small<L: LockAlgorithm + Clone>(lock: &L, at_least: usize) {
    let programs: [&[&[Section]]; 3] = [&[&[A], &[A]], &[&[A], &[B]], &[&[B], &[B]]];
    let of = |checker: Checker<L>| programs.map(|programs| checker.run(programs).states).iter().sum::<usize>();
    let calm = woken_checker(lock);
    let states = programs.map(|programs| whole(calm.run(programs))).iter().sum::<usize>();
    let bounded = calm.at_most(bound(5_000, 20_000));
    let lost = bounded.clone().losses(1);
    let states = states + of(bounded.clone().crashes(1)) + of(lost.clone()) + of(lost.crashes(1));
    assert!(states >= at_least, "{}: only {states} states", L::NAME);
}

#[test]
fn queues_by_fetch_add() {
    check_small(&queue::<15, 1>(), bound(30_000, 80_000));
}

#[test]
fn distributed_counters() {
    check_small(&distributed::<15>(), bound(30_000, 80_000));
}

fn expect_caught<L: LockAlgorithm + Clone>(flaw: &str, checker: Checker<L>, programs: &[&[Section]], expected: &str) {
    let found = checker.clone().verdict(programs);
    assert!(found.as_ref().is_err_and(|what| what.contains(expected)), "{flaw}: {found:?}");
    // The message has the schedule, and the schedule reproduces it.
    let found = found.unwrap_err();
    let schedule = found.rsplit_once("&[").unwrap().1.trim_end_matches("])");
    let schedule: Vec<u16> = schedule.split(", ").map(|step| step.parse().unwrap()).collect();
    assert_eq!(checker.replay(programs, &schedule), Err(found), "{flaw}");
}

#[test]
fn wrong_locks_are_caught() {
    let two: &[&[Section]] = &[&[X], &[X]];
    for (flaw, crashes, programs, expected) in [
        (Flaw::ReadThenWrite, 0, two, "exclusion"),
        (Flaw::ReaderIgnoresOwner, 0, &[&[X], &[S]], ""),
        (Flaw::ReaderFreesAll, 0, &[&[S], &[S, X]], "exclusion"),
        (Flaw::ForgetsRelease, 0, two, "wait without end"),
        (Flaw::ReadsAnewToWait, 0, two, "wait without end"),
        (Flaw::WaitsForTheDead, 1, two, "wait without end"),
        (Flaw::TakesFromDeadReadersAtOnce, 1, &[&[S], &[S], &[X]], ""),
    ] {
        expect_caught(&format!("{flaw:?}"), woken_checker(&Wrong::new(flaw)).crashes(crashes), programs, expected);
    }
}

#[test]
fn bypasses_and_wrong_tokens_are_caught() {
    let tickets = woken_checker(&ticket::<15>());
    // The last arrival enters first.
    expect_caught(
        "test-and-set is not fair",
        woken_checker(&right()).bypass(0),
        &[&[X, X], &[X]],
        "later acquires bypassed a waiter",
    );
    // The counter of tokens is no word of the lock, and nothing else here adds one.
    let same_token = posted!(FetchAdd(1) => Read);
    let fenced = [A.fenced(Fencing::Fused), A.fenced(Fencing::Inside)];
    expect_caught(
        "a token that stays",
        tickets.clone().setting(Setting::mutating(same_token)),
        &[&fenced, &fenced[..1]],
        "token",
    );
    let hasty = [A.fenced(Fencing::Hasty)];
    expect_caught("a token drawn before the lock is had", tickets, &[&hasty, &hasty], "token");
}
