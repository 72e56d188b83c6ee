//! The ticket lock: the tests of the other locks, with counters of few bits that wrap; and its own:
//! first come, first served, more owners than tickets.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

use crate::right::ticket;
use crate::woken_exploration;
use onesided_lock_algos::{LockAlgorithm, Mode, Ticket};
use onesided_lock_kit::program::lock_and_data;
use onesided_lock_kit::random::{run as run_in, scenarios as scenario};
use onesided_lock_kit::{
    AcquireKind, Action, Atomics, Effect, Ending, Op, Posted, Scenario, Section, Setting, Trace, posted,
};
use onesided_remote_memory::{Fault, FaultKind, Rank};
use proptest::prelude::*;

use crate::bound;
use crate::loom::{EARLY, S, X};
use crate::random::{expect_caught, run};
use crate::refused::release_twice;

/// What is added to the word, as its documentation says.
pub(crate) const fn taking(bits: u32, mode: Mode) -> u64 {
    match mode {
        Mode::Shared => 1 << 1,
        Mode::Exclusive => 1 << (bits + 2),
    }
}

pub(crate) const fn returning(bits: u32, mode: Mode) -> u64 {
    match mode {
        Mode::Shared => 1 << (2 * bits + 3),
        Mode::Exclusive => 1 << (64 - bits),
    }
}

/// A free lock with these counters.
pub(crate) const fn free_at(bits: u32, readers: u64, owners: u64) -> u64 {
    let full = (1 << bits) - 1;
    let readers = (readers & full) * (taking(bits, Mode::Shared) | returning(bits, Mode::Shared));
    let owners = (owners & full) * (taking(bits, Mode::Exclusive) | returning(bits, Mode::Exclusive));
    readers | owners
}

/// The fetch-adds, as origin and addend.
pub(crate) fn added(trace: &Trace) -> Vec<(Rank, u64)> {
    let added = |effect: &Effect| match effect.action {
        Action::FetchAdd(add) => Some((effect.origin, add)),
        _ => None,
    };
    trace.effects().iter().filter_map(added).collect()
}

/// Whether all owners entered in the order of their tickets, except for consecutive readers.
pub(crate) fn check_order(bits: u32, added: &[(Rank, u64)], order: &[(Rank, Mode)]) -> Result<(), String> {
    let mut unread: Vec<Vec<usize>> = vec![Vec::new(); 8];
    for (context, (rank, _)) in order.iter().enumerate().rev() {
        unread[rank.index()].push(context);
    }
    let (mut last, mut last_exclusive) = (0, 0);
    let mut tickets = 0;
    for (rank, add) in added {
        let Some(mode) = [Mode::Shared, Mode::Exclusive].into_iter().find(|mode| taking(bits, *mode) == *add) else {
            continue;
        };
        // The next one of this rank: its acquires follow one another.
        let Some(context) = unread[rank.index()].pop() else { return Err("a ticket without an entry".into()) };
        tickets += 1;
        let before = if mode == Mode::Exclusive { last } else { last_exclusive };
        if context + 1 < before {
            return Err(format!("{rank:?} overtook: tickets {added:x?}, entries {order:?}"));
        }
        last = last.max(context + 1);
        if mode == Mode::Exclusive {
            last_exclusive = context + 1;
        }
    }
    if tickets == order.len() { Ok(()) } else { Err(format!("{tickets} tickets for {} entries", order.len())) }
}

pub(crate) fn waits_for_all(mut scenario: Scenario) -> Scenario {
    for round in
        scenario.programs.iter_mut().flatten().filter(|round| round.is_cancelled() || round.kind == AcquireKind::Try)
    {
        (round.ending, round.kind) = (Ending::Released, AcquireKind::Usual);
    }
    scenario
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 2000, max_shrink_iters: 1000, ..ProptestConfig::default() })]

    /// Counters of 15 and of 4 bits that wrap soon.
    #[test]
    fn excludes_and_ends(scenario in scenario(false), readers in 0x7ff8_u64..0x8000, owners in 0x7ff8_u64..0x8000) {
        let setting = Setting { lock: free_at(15, readers, owners), ..Setting::USUAL };
        run_in(setting, &ticket::<15>(), &scenario).map_err(TestCaseError::fail)?;
        let narrow = Setting { lock: free_at(4, readers, owners), ..Setting::USUAL };
        run_in(narrow, &ticket::<4>(), &scenario).map_err(TestCaseError::fail)?;
    }

    /// Mostly more owners than tickets.
    #[test]
    fn excludes_and_ends_when_oversubscribed(scenario in scenario(false)) {
        run(&ticket::<1>(), &scenario).map_err(TestCaseError::fail)?;
        run(&ticket::<2>(), &scenario).map_err(TestCaseError::fail)?;
    }

    #[test]
    fn a_death_is_reported_to_the_recovering_owner(scenario in scenario(true), readers in 0x7ff8_u64..0x8000, owners in 0x7ff8_u64..0x8000) {
        let setting = Setting { lock: free_at(15, readers, owners), ..Setting::USUAL };
        run_in(setting, &ticket::<15>(), &scenario).map_err(TestCaseError::fail)?;
        let narrow = Setting { lock: free_at(4, readers, owners), ..Setting::USUAL };
        run_in(narrow, &ticket::<4>(), &scenario).map_err(TestCaseError::fail)?;
    }

    #[test]
    fn a_death_is_reported_to_the_recovering_owner_when_oversubscribed(scenario in scenario(true)) {
        run(&ticket::<1>(), &scenario).map_err(TestCaseError::fail)?;
        run(&ticket::<2>(), &scenario).map_err(TestCaseError::fail)?;
    }

    #[test]
    fn first_come_first_served(scenario in scenario(false)) {
        let history = run_in(Setting::USUAL, &ticket::<4>(), &waits_for_all(scenario)).map_err(TestCaseError::fail)?;
        check_order(4, &added(&history.trace), &history.order).map_err(TestCaseError::fail)?;
    }
}

/// The check of the order finds a wrong order.
#[test]
fn bypasses_are_caught() {
    let [first, second] = [Rank(0), Rank(1)];
    for (modes, may_swap) in [
        ([Mode::Exclusive, Mode::Exclusive], false),
        ([Mode::Exclusive, Mode::Shared], false),
        ([Mode::Shared, Mode::Exclusive], false),
        ([Mode::Shared, Mode::Shared], true),
    ] {
        let added = [(first, taking(4, modes[0])), (second, taking(4, modes[1])), (first, returning(4, modes[0]))];
        let [one, other] = [(first, modes[0]), (second, modes[1])];
        assert_eq!(check_order(4, &added, &[one, other]), Ok(()));
        assert_eq!(check_order(4, &added, &[other, one]).is_ok(), may_swap, "{modes:?}");
        assert!(check_order(4, &added, &[one]).is_err());
    }
}

#[test]
fn uncontended_costs_two_operations() {
    for mode in [Mode::Exclusive, Mode::Shared] {
        let programs = vec![vec![Section { mode, touches: 0, ..X }]];
        let expected = Posted { fetch_adds: 2, ..Posted::default() };
        assert_eq!(run(&ticket::<15>(), &Scenario { programs, schedule: vec![], death: None }), Ok(expected));
    }
}

/// Verifies a lock of few bits, including the order of its tickets if all of them enter.
fn explore_order<const BITS: u32>(programs: &[&[Section]], preemptions: usize) -> usize {
    woken_exploration(&ticket::<BITS>()).preemptions(preemptions).run_with(programs, |record, memory| {
        let home = memory.region();
        let (lock, data) = lock_and_data::<Ticket<BITS>>(&home);
        record.check_end::<Ticket<BITS>>(lock, data)?;
        check_order(BITS, &added(&memory.trace()), &record.order())
    })
}

/// Two bits: the counters wrap after four tickets.
#[test]
fn two_origins() {
    for (programs, preemptions, at_least) in [
        (&[&[X, X][..], &[X, X]], 3, 5_000),
        (&[&[X, S], &[S, X]], 3, 5_000),
        (&[&[S, S], &[S, S]], 3, 5_000),
        (&[&[S, S], &[X, X]], 3, 5_000),
        (&[&[EARLY, EARLY], &[EARLY, S]], 3, 5_000),
        (&[&[X, X, X], &[X, X, X]], 2, 1_000),
        (&[&[S, S, S], &[S, X, S]], 2, 1_000),
    ] {
        let executions = explore_order::<2>(programs, preemptions);
        assert!(executions >= at_least, "only {executions} executions of {programs:?}");
    }
}

/// With a card's atomics.
#[test]
fn on_cards() {
    for (programs, preemptions) in [(&[&[X, S][..], &[S, X]][..], 2), (&[&[X], &[X], &[S]], 2)] {
        let cards = woken_exploration(&ticket::<2>()).atomics(Atomics::OneAnother);
        cards.preemptions(preemptions).at_least(100).run(programs);
    }
}

#[test]
fn three_origins() {
    for (programs, preemptions, at_least) in [
        (&[&[X][..], &[X], &[X]], 2, 2_000),
        (&[&[X], &[S], &[S]], 2, 2_000),
        (&[&[EARLY], &[X], &[S]], 2, 2_000),
        (&[&[S], &[S], &[S]], 2, 1_000),
    ] {
        let executions = explore_order::<2>(programs, preemptions);
        assert!(executions >= at_least, "only {executions} executions of {programs:?}");
    }
}

#[test]
fn cancelled() {
    let (preemptions, at_least) = bound((1, 700), (2, 10_000));
    woken_exploration(&ticket::<4>()).preemptions(preemptions).at_least(at_least).run_cancelled();
    // More owners than tickets.
    woken_exploration(&ticket::<1>()).preemptions(preemptions).at_least(at_least).run_cancelled();
}

/// One bit: two origins have more owners than tickets of a mode.
#[test]
fn when_oversubscribed() {
    for programs in [&[&[X, X][..], &[X, X]][..], &[&[S, X], &[S, S]], &[&[X], &[S], &[S]], &[&[S], &[S], &[S]]] {
        woken_exploration(&ticket::<1>()).at_least(500).run(programs);
    }
}

#[test]
fn a_death_inside_is_suspected() {
    let exploration = woken_exploration(&ticket::<2>()).preemptions(bound(3, 4));
    exploration.run_deaths(FaultKind::ParticipantDied);
}

/// Two survivors; counts the executions with a recovery. A reader's death needs none.
#[test]
fn of_two_survivors_one_recovers() {
    for (dying, others) in [(X, [X, X]), (X, [X, S]), (X, [S, S]), (S, [X, X]), (S, [X, S])] {
        let recoveries = Arc::new(AtomicUsize::new(0));
        let count = Arc::clone(&recoveries);
        let dies = dying.dying();
        let exploration = woken_exploration(&ticket::<2>()).preemptions(1);
        exploration.run_with(&[&[others[0]], &[dies], &[others[1]]], move |record, memory| {
            let home = memory.region();
            let (lock, _) = lock_and_data::<Ticket<2>>(&home);
            let recovered: Vec<_> = record.entered().into_iter().filter_map(|(_, recovered)| recovered).collect();
            count.fetch_add(recovered.len(), Relaxed);
            match (record.violation(), &recovered[..], record.entered().len()) {
                (None, [], 3) => Ok(()),
                (None, [fault], 3)
                    if *fault == Fault::of(FaultKind::ParticipantDied, Rank(1)) && Ticket::<2>::is_free(lock) =>
                {
                    Ok(())
                }
                seen => Err(format!("{seen:?}")),
            }
        });
        assert_eq!(recoveries.load(Relaxed) > 0, dying == X, "an owner recovers from an exclusive one");
    }
}

/// After a release.
#[test]
fn a_release_without_a_lock_fails_and_changes_nothing() {
    for (mode, start) in [
        (Mode::Exclusive, 0),
        (Mode::Shared, 0),
        (Mode::Exclusive, free_at(15, 0x7fff, 0x7ffe)),
        (Mode::Shared, free_at(15, 0x7ffe, 0x7fff)),
    ] {
        let lock = ticket::<15>();
        let [before, after] = release_twice(&lock, mode, start);
        assert_eq!(after, before);
    }
}

/// The lock with an operation left out, weakened or added. Four bits.
#[test]
fn wrong_ones_are_caught() {
    const FROZEN: u64 = 1;
    const GUARDS: u64 = 1 << 5 | 1 << 10 | 1 << 15;
    const TAKE_S: u64 = taking(4, Mode::Shared);
    const TAKE_X: u64 = taking(4, Mode::Exclusive);
    const RETURN_S: u64 = returning(4, Mode::Shared);
    const RETURN_X: u64 = returning(4, Mode::Exclusive);
    const fn withdraws(expected: u64, new: u64) -> bool {
        let less = expected.wrapping_sub(new);
        less == TAKE_S || less == TAKE_X
    }
    const fn takes_over(expected: u64, new: u64) -> bool {
        expected & FROZEN != 0 && new & FROZEN == 0
    }
    /// Its name, its mutation, whether a rank dies, and what is found.
    type Bend = (&'static str, fn(Op) -> Op, bool, &'static str);
    let mutations: [Bend; 13] = [
        ("frees by a write", posted!(FetchAdd(RETURN_X) => Write(0)), false, ""),
        ("a release that is not done", posted!(FetchAdd(RETURN_X) => Read), false, "wait without end"),
        ("a reader without a ticket", posted!(FetchAdd(TAKE_S) => Read), false, ""),
        (
            "an owner with a reader's ticket",
            posted!(FetchAdd(TAKE_X) => FetchAdd(TAKE_S), FetchAdd(RETURN_X) => FetchAdd(RETURN_S)),
            false,
            "",
        ),
        ("a reader returns an owner's ticket", posted!(FetchAdd(RETURN_S) => FetchAdd(RETURN_X)), false, ""),
        ("an owner returns two tickets", posted!(FetchAdd(RETURN_X) => FetchAdd(2 * RETURN_X)), false, ""),
        (
            "a guard that lets a carry through",
            posted!(CompareSwap(expected, new) if expected & GUARDS != 0 && new == expected & !GUARDS =>
                CompareSwap(expected, expected.wrapping_add(expected & GUARDS))),
            false,
            "",
        ),
        (
            "withdraws whoever came since",
            posted!(CompareSwap(expected, new) if withdraws(expected, new) => Write(new)),
            false,
            "",
        ),
        (
            "no recovery",
            posted!(CompareSwap(expected, new) if new == expected | FROZEN && new != expected => Read),
            true,
            "wait without end",
        ),
        (
            "starts a recovery by a write",
            posted!(CompareSwap(expected, new) if new == expected | FROZEN && new != expected => Write(new)),
            true,
            "",
        ),
        (
            "recovers by a write",
            posted!(CompareSwap(expected, new) if takes_over(expected, new) => Write(new)),
            true,
            "",
        ),
        (
            "leaves the tickets of the dead out",
            posted!(CompareSwap(expected, new) if takes_over(expected, new) =>
                CompareSwap(expected, (expected & !FROZEN).wrapping_add(TAKE_X))),
            true,
            "",
        ),
        (
            "recovers without a ticket",
            posted!(CompareSwap(expected, new) if takes_over(expected, new) =>
                CompareSwap(expected, expected & !FROZEN)),
            true,
            "",
        ),
    ];
    for (flaw, mutate, dies, expected) in mutations {
        // Its counters wrap soon.
        let setting = Setting { mutate: Some(mutate), lock: free_at(4, 14, 15), ..Setting::USUAL };
        expect_caught(flaw, dies, expected, |scenario| run_in(setting, &ticket::<4>(), scenario));
    }
}

/// A recovery without a participant scan.
#[test]
fn a_missing_participant_scan_is_caught() {
    let setting = Setting { blind: true, ..Setting::USUAL };
    expect_caught("asks nobody", true, "", |scenario| run_in(setting, &ticket::<4>(), scenario));
}
