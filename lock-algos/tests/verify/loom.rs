//! Every interleaving up to a bound, by loom.

use crate::right;
use crate::right::right;
use crate::woken_exploration;
use crate::wrong::{Flaw, Wrong};
use onesided_lock_algos::{Held, Intent, LockAlgorithm, LockUse, Mode, Owner};
use onesided_lock_kit::loom::block_on;
use onesided_lock_kit::program::region_words;
use onesided_lock_kit::{Atomics, Fencing, Layout, LoomMemory, Section, Slots};
use onesided_remote_memory::{Fault, FaultKind, Rank};

use crate::bound;

pub(crate) const X: Section = Section::EXCLUSIVE;
pub(crate) const S: Section = Section::SHARED;
/// An exclusive lock whose first operation leaves before other work, and whose wait comes after it.
pub(crate) const EARLY: Section = X.early(1);
/// Tries.
pub(crate) const T: Section = X.trying();
pub(crate) const TS: Section = S.trying();

/// Verifies the shipped lock, and that there was enough to explore: how much there is depends on
/// the algorithm, the bound and loom's version, not on chance.
#[track_caller]
fn verify_right(programs: &[&[Section]], preemptions: usize, at_least: usize) {
    woken_exploration(&right()).preemptions(preemptions).at_least(at_least).run(programs);
}

#[track_caller]
fn verify_three(programs: &[&[Section]; 3]) {
    let (preemptions, at_least) = bound((2, 700), (3, 5_000));
    verify_right(programs, preemptions, at_least);
}

#[test]
fn two_exclusive() {
    verify_right(&[&[X, X], &[X, X]], 4, 5_000);
}

#[test]
fn two_mixed() {
    let (preemptions, at_least) = bound((3, 2_000), (4, 7_000));
    verify_right(&[&[X, S], &[S, X]], preemptions, at_least);
}

#[test]
fn two_shared() {
    let (preemptions, at_least) = bound((3, 2_000), (4, 7_000));
    verify_right(&[&[S, S], &[S, S]], preemptions, at_least);
}

#[test]
fn two_nonblocking() {
    let (preemptions, at_least) = bound((3, 1_500), (4, 7_000));
    verify_right(&[&[EARLY, EARLY], &[EARLY, S]], preemptions, at_least);
}

#[test]
fn three_exclusive() {
    verify_three(&[&[X], &[X], &[X]]);
}

#[test]
fn three_with_one_owner() {
    verify_three(&[&[X], &[S], &[S]]);
}

#[test]
fn three_with_one_reader() {
    verify_three(&[&[EARLY], &[X], &[S]]);
}

#[test]
fn three_shared() {
    verify_three(&[&[S], &[S], &[S]]);
}

/// The shipped lock, with a card's atomics.
#[test]
fn on_cards() {
    for (programs, preemptions, at_least) in
        [(&[&[X, X][..], &[X, X]][..], 3, 300), (&[&[X, S], &[S, X]], 3, 300), (&[&[EARLY], &[X], &[S]], 2, 100)]
    {
        let cards = woken_exploration(&right()).atomics(Atomics::OneAnother);
        cards.preemptions(preemptions).at_least(at_least).run(programs);
    }
}

#[test]
fn mcs() {
    let preemptions = bound(2, 3);
    for (programs, preemptions) in [
        (&[&[X, X][..], &[X, X]][..], preemptions),
        (&[&[X, S], &[S, X]], preemptions),
        (&[&[S, S], &[X]], preemptions),
        (&[&[EARLY, X], &[X]], preemptions),
        (&[&[X], &[X], &[X]], 2),
        (&[&[X], &[S], &[S]], 2),
        (&[&[X], &[X], &[S]], 2),
    ] {
        woken_exploration(&right::mcs()).preemptions(preemptions).at_least(100).run(programs);
    }
}

#[test]
fn cancelled() {
    woken_exploration(&right()).at_least(10_000).run_cancelled();
    woken_exploration(&right::mcs()).preemptions(1).at_least(1_500).run_cancelled();
}

/// A try beside a waiter, and beside another try.
#[test]
fn tries() {
    fn verify_tries<A: LockAlgorithm + Clone>(algorithm: &A) {
        for (programs, preemptions) in [
            (&[&[T, TS][..], &[X, S]][..], bound(2, 3)),
            (&[&[T, T], &[T, TS]], bound(2, 3)),
            (&[&[TS], &[X], &[S]], 2),
            (&[&[T, T], &[X, S]], 2),
            (&[&[TS, T], &[S, X]], 2),
            (&[&[T, TS], &[TS, T]], 2),
            (&[&[TS], &[S], &[T]], 2),
        ] {
            woken_exploration(algorithm).preemptions(preemptions).at_least(100).run(programs);
        }
    }
    verify_tries(&right());
    verify_tries(&right::mcs());
    verify_tries(&right::ticket::<2>());
    verify_tries(&right::ticket::<1>());
}

/// Readers that try share the lock, and no other owner gets it.
#[test]
fn tries_share_with_readers_only() {
    fn check<A: LockAlgorithm + Clone>(algorithm: &A) {
        for (first, second, shares) in [
            (Mode::Shared, Mode::Shared, true),
            (Mode::Shared, Mode::Exclusive, false),
            (Mode::Exclusive, Mode::Shared, false),
            (Mode::Exclusive, Mode::Exclusive, false),
        ] {
            let algorithm = algorithm.clone();
            loom::model(move || {
                let slots = Slots::new(2);
                let memory = LoomMemory::new(1, region_words::<A>(slots), Atomics::All);
                let held = [(first, 0), (second, 1)].map(|(mode, slot)| {
                    let owner = Owner { rank: Rank(0), slot, generation: 0 };
                    let context = Layout::new::<A>(&memory, owner, slots);
                    let words = algorithm.words(context, Intent::TRY).unwrap();
                    let started = algorithm.start(LockUse::new(&memory, context, words, mode)).unwrap();
                    block_on(algorithm.finish(LockUse::new(&memory, context, words, mode), started, || Intent::TRY))
                });
                let second = if shares { Ok(Held::cleanly(second)) } else { Err(Fault::new(FaultKind::TimedOut)) };
                assert_eq!(held, [Ok(Held::cleanly(first)), second], "{}", A::NAME);
            });
        }
    }
    check(&right());
    check(&right::mcs());
    check(&right::ticket::<2>());
}

/// With compare-swap for every release it is a correct lock as well.
#[test]
fn test_and_set_that_checks() {
    let lock = right().checked();
    for programs in [&[&[X, S][..], &[S, X]][..], &[&[X], &[X], &[S]]] {
        woken_exploration(&lock).preemptions(3).at_least(1_000).run(programs);
    }
    woken_exploration(&lock).preemptions(1).at_least(500).run_cancelled();
}

fn verify_death<A: LockAlgorithm + Clone>(lock: &A, kind: FaultKind) {
    let exploration = woken_exploration(lock).preemptions(bound(3, 4));
    exploration.run_deaths(kind);
}

#[test]
fn a_dead_owner_is_named() {
    verify_death(&right(), FaultKind::OwnerDied);
}

#[test]
fn a_death_in_the_queue_is_suspected() {
    verify_death(&right::mcs(), FaultKind::ParticipantDied);
}

/// A token that was drawn before the lock was held may be lower than that of the previous owner.
#[test]
fn tokens_rise() {
    fn fenced<A: LockAlgorithm + Clone>(lock: &A, fencing: Fencing) -> Result<usize, String> {
        let [x, s] = [X, S].map(|round| round.touching(0).fenced(fencing));
        let exploration = woken_exploration(lock).preemptions(2);
        let programs = [vec![vec![x, x], vec![x]], vec![vec![x, s], vec![s, x]], vec![vec![x], vec![x], vec![s]]];
        programs[..bound(2, 3)]
            .iter()
            .map(|programs| exploration.verdict(&programs.iter().map(Vec::as_slice).collect::<Vec<_>>()))
            .sum()
    }
    fn check<A: LockAlgorithm + Clone>(lock: &A) {
        for fencing in [Fencing::Inside, Fencing::Fused] {
            fenced(lock, fencing).unwrap();
        }
        let hasty = fenced(lock, Fencing::Hasty);
        assert!(hasty.as_ref().is_err_and(|what| what.contains("the token")), "{}: {hasty:?}", A::NAME);
    }
    check(&right());
    check(&right::mcs());
    check(&right::ticket::<4>());
    check(&right::queue::<4, 2>());
    check(&right::distributed::<4>());
}

/// Loom's message about a flaw.
fn verdict(flaw: Flaw, atomics: Atomics, programs: &[&[Section]]) -> String {
    match woken_exploration(&Wrong::new(flaw)).atomics(atomics).preemptions(3).verdict(programs) {
        Ok(executions) => format!("passed {executions} executions"),
        Err(violation) => violation,
    }
}

#[test]
fn wrong_locks_are_caught() {
    for (flaw, programs, expected) in [
        (Flaw::ReadThenWrite, [&[X][..], &[X]], "exclusion"),
        (Flaw::ReaderIgnoresOwner, [&[X], &[S]], "not free"),
        (Flaw::ReaderFreesAll, [&[S], &[S, X]], "exclusion"),
        (Flaw::ForgetsRelease, [&[X], &[X]], "deadlock"),
        (Flaw::ReadsAnewToWait, [&[X], &[X]], "deadlock"),
    ] {
        let verdict = verdict(flaw, Atomics::All, &programs);
        assert!(verdict.contains(expected), "{flaw:?}: {verdict}");
    }
}

/// A failing compare-swap undoes it.
#[test]
fn a_release_by_write_is_caught_on_cards_only() {
    let programs = [&[X][..], &[X]];
    let on_cpus = verdict(Flaw::WritesRelease, Atomics::All, &programs);
    assert!(on_cpus.starts_with("passed"), "{on_cpus}");
    let on_cards = verdict(Flaw::WritesRelease, Atomics::OneAnother, &programs);
    assert!(on_cards.contains("deadlock") && on_cards.contains("before its store is lost"), "{on_cards}");
}
