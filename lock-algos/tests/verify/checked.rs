//! Every schedule of few rounds, with crashes, lost operations and replies, and stopped ranks, by the kit's checker.

use lock_algos::LockAlgorithm;
use lock_kit::wrong::{Flaw, Wrong, mcs, right, ticket};
use lock_kit::{Action, Checker, Explored, Round};

use crate::explored::{S, T, TS, W, WS, X};

/// Rounds that do not touch the data: of three origins.
const A: Round = X.touching(0);
const B: Round = S.touching(0);

/// Nobody dies. Gives the sum of what was explored.
fn calm<L: LockAlgorithm + Clone>(lock: &L, bypass: u32) -> usize {
    let checker = Checker::of(lock).bypass(bypass);
    let two = [&[&[X, X][..], &[X]], &[&[X], &[S, X]], &[&[S], &[X, S]], &[&[T, TS], &[X]]];
    let two: usize = two.iter().map(|programs| whole(checker.run(*programs))).sum();
    let three = checker.at_most(40_000);
    two + [[A, A, B], [A, B, B]].map(|[x, y, z]| three.run(&[&[x], &[y], &[z]]).states).iter().sum::<usize>()
}

fn whole(explored: Explored) -> usize {
    assert!(explored.complete, "{explored}");
    explored.states
}

/// One rank crashes, at any step.
fn crashes<L: LockAlgorithm + Clone>(lock: &L) -> usize {
    let checker = Checker::of(lock).crashes(1);
    let two = [
        &[&[X, X][..], &[X]],
        &[&[X], &[S]],
        &[&[S, X], &[X]],
        &[&[W], &[X]],
        &[&[WS], &[X]],
        &[&[T], &[X]],
        &[&[X.detached(), S], &[X]],
        &[&[X.abandoned(1)], &[X]],
        &[&[S.abandoned(0), X], &[S]],
    ];
    let all = two.map(|programs| {
        let explored = checker.run(programs);
        assert!(explored.heirs > 0, "{}: {programs:?}: {explored}", L::NAME);
        whole(explored)
    });
    let three = checker.at_most(40_000);
    let bounded = [[A, A, A], [A, B, B]].map(|[x, y, z]| three.run(&[&[x], &[y], &[z]]).states);
    all.iter().chain(&bounded).sum()
}

/// An operation or an answer is lost, and a rank crashes.
fn losses<L: LockAlgorithm + Clone>(lock: &L) -> usize {
    let checker = Checker::of(lock).losses(1);
    let lost =
        [&[&[X][..], &[X]], &[&[X], &[S]], &[&[S], &[X]], &[&[X.detached()], &[X]], &[&[T], &[X]]].map(|programs| {
            let explored = checker.run(programs);
            assert!(explored.lost > 0, "{}: {programs:?}: {explored}", L::NAME);
            whole(explored)
        });
    let both = whole(checker.crashes(1).run(&[&[X], &[X]]));
    lost.iter().sum::<usize>() + both
}

/// A rank is stopped until the others are done or stuck, and one crashes.
fn stops<L: LockAlgorithm + Clone>(lock: &L) -> usize {
    let checker = Checker::of(lock).stops(1).crashes(1);
    let two =
        [&[&[X][..], &[X]], &[&[X], &[S]], &[&[S], &[X]], &[&[W], &[X]]].map(|programs| whole(checker.run(programs)));
    let three = checker.at_most(20_000).run(&[&[A], &[A], &[B]]).states;
    two.iter().sum::<usize>() + three
}

/// A lock, how many may overtake whoever came first (tests-and-sets have no order), and how many states there are at least.
fn check<L: LockAlgorithm + Clone>(lock: &L, bypass: u32, at_least: [usize; 4]) {
    let states = [calm(lock, bypass), crashes(lock), losses(lock), stops(lock)];
    let enough = states.iter().zip(at_least).all(|(states, at_least)| *states >= at_least);
    assert!(enough, "{}: only {states:?} states", L::NAME);
}

#[test]
fn test_and_set() {
    check(&right(), u32::MAX, [8_000, 80_000, 7_000, 25_000]);
}

/// Who loses a compare-swap at the tail is overtaken, by each of the others once here.
#[test]
fn the_queue_lock() {
    check(&mcs(), 2, [60_000, 150_000, 30_000, 40_000]);
}

/// First come, first served.
#[test]
fn tickets() {
    check(&ticket::<15>(), 0, [6_000, 100_000, 12_000, 30_000]);
}

fn expect_caught<L: LockAlgorithm + Clone>(flaw: &str, checker: Checker<L>, programs: &[&[Round]], expected: &str) {
    let found = checker.clone().verdict(programs);
    assert!(found.as_ref().is_err_and(|what| what.contains(expected)), "{flaw}: {found:?}");
    // The message has the schedule, and the schedule shows it again.
    let found = found.unwrap_err();
    let schedule = found.rsplit_once("&[").unwrap().1.trim_end_matches("])");
    let schedule: Vec<u16> = schedule.split(", ").map(|step| step.parse().unwrap()).collect();
    assert_eq!(checker.replay(programs, &schedule), Err(found), "{flaw}");
}

#[test]
fn wrong_locks_are_caught() {
    let two: &[&[Round]] = &[&[X], &[X]];
    for (flaw, crashes, programs, expected) in [
        (Flaw::ReadThenWrite, 0, two, "exclusion"),
        (Flaw::ReaderIgnoresOwner, 0, &[&[X], &[S]], ""),
        (Flaw::ReaderFreesAll, 0, &[&[S], &[S, X]], "exclusion"),
        (Flaw::ForgetsRelease, 0, two, "wait for ever"),
        (Flaw::WaitsForTheDead, 1, two, "wait for ever"),
        (Flaw::TakesFromDeadReadersAtOnce, 1, &[&[S], &[S], &[X]], ""),
    ] {
        expect_caught(&format!("{flaw:?}"), Checker::of(&Wrong::new(flaw)).crashes(crashes), programs, expected);
    }
}

/// The queue lock where an operation is left out or does too much.
#[test]
fn wrong_queue_locks_are_caught() {
    const QUEUED: u64 = 1 << 62;
    const FROZEN: u64 = 1 << 63;
    const MARKED: u64 = 1 << 63;
    const GENERATION: u64 = 0x3ff_ffff;
    const fn is_grant(value: u64) -> bool {
        value & MARKED != 0 && value & !(MARKED | 1 << 62 | GENERATION) == 0
    }
    let queue = Checker::of(&mcs());
    let frees_by_a_write = |action| match action {
        Action::CompareSwap(expected, 0) if expected & QUEUED != 0 => Action::Write(0),
        other => other,
    };
    expect_caught("frees by a write", queue.clone().bend(frees_by_a_write), &[&[X], &[X]], "");
    let no_grant = |action| match action {
        Action::Write(grant) if is_grant(grant) => Action::Read,
        other => other,
    };
    expect_caught("no grant", queue.clone().bend(no_grant), &[&[X], &[X]], "wait for ever");
    let stale = |action| match action {
        Action::Write(grant) if is_grant(grant) => Action::Write(grant & !GENERATION),
        other => other,
    };
    expect_caught("a stale generation", queue.clone().bend(stale), &[&[X], &[X, X]], "wait for ever");
    let no_freezing = |action| match action {
        Action::CompareSwap(_, new) if new & FROZEN != 0 => Action::Read,
        other => other,
    };
    expect_caught("no freezing", queue.crashes(1).bend(no_freezing), &[&[X], &[X]], "");
}

/// The ticket lock where readers park their counts in the word that is released by a write, and others.
#[test]
fn wrong_tickets_are_caught() {
    const BITS: u32 = 15;
    const RETURN_X: u64 = 1 << (64 - BITS);
    const TAKE_S: u64 = 1 << 1;
    let tickets = Checker::of(&ticket::<BITS>());
    let frees_by_a_write = |action| match action {
        Action::FetchAdd(RETURN_X) => Action::Write(0),
        other => other,
    };
    expect_caught("frees by a write", tickets.clone().bend(frees_by_a_write), &[&[X], &[S]], "");
    let no_release = |action| match action {
        Action::FetchAdd(RETURN_X) => Action::Read,
        other => other,
    };
    expect_caught("no release", tickets.clone().bend(no_release), &[&[X], &[S]], "wait for ever");
    let no_ticket = |action| match action {
        Action::FetchAdd(TAKE_S) => Action::Read,
        other => other,
    };
    expect_caught("a reader without a ticket", tickets.clone().bend(no_ticket), &[&[X], &[S]], "");
    // Whoever comes last is let in first.
    expect_caught(
        "test-and-set is not fair",
        Checker::of(&right()).bypass(0),
        &[&[X, X], &[X]],
        "before who came first",
    );
    let token = |words: &[u64]| words[0] >> 49 & 1;
    expect_caught("a token of one bit", tickets.token(token), &[&[X, X], &[X]], "token");
}
