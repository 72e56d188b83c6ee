//! Every interleaving up to a bound, by loom.

use std::cell::Cell;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::sync::{Arc, Once};

use lock_algos::{Held, LockAlgorithm, Mode, Owner, Wish};
use remote_memory::{Fault, FaultKind, Rank};

use crate::loom_memory::{Atomics, LoomMemory, block_on};
use crate::program::{self, Ending, Ground, Manner, Round, lock_and_data};
use crate::record::Record;
use crate::wrong::{self, Flaw, Wrong, right};

pub(crate) const X: Round = Round::EXCLUSIVE;
pub(crate) const S: Round = Round::SHARED;
/// An exclusive lock of which the first operation leaves before other work, and the wait comes after it.
pub(crate) const EARLY: Round = Round { early: 1, ..X };

/// Runs the programs, one origin each, in every interleaving of their operations with at most `preemptions`
/// preemptions, and `check`s the end of each execution; it gets the memory of the lock's home.
///
/// # Panics
/// If somebody waits for ever (loom's deadlock) or a check fails.
pub(crate) fn explore<A: LockAlgorithm + Clone>(
    algorithm: &A,
    atomics: Atomics,
    programs: &[&[Round]],
    preemptions: usize,
    check: impl Fn(&Record, &LoomMemory) -> Result<(), String> + Send + Sync + 'static,
) {
    let algorithm = Arc::new(algorithm.clone());
    let programs: Vec<Vec<Round>> = programs.iter().map(|rounds| rounds.to_vec()).collect();

    let mut model = loom::model::Builder::new();
    model.preemption_bound = Some(preemptions);
    model.check(move || {
        let slots = program::slots_of(&programs);
        let memory = LoomMemory::new(programs.len(), program::region_words::<A>(slots), atomics);
        let record = Arc::new(Record::default());
        let adopted = Arc::new(std::sync::Mutex::new(Vec::new()));
        let origin = |rank: usize| {
            let (memory, algorithm) = (memory.of(rank), Arc::clone(&algorithm));
            let (rounds, record) = (programs[rank].clone(), Arc::clone(&record));
            let adopted = Arc::clone(&adopted);
            let adopt = move |task| {
                let thread = loom::thread::spawn(|| block_on(task));
                adopted.lock().unwrap().push(thread);
            };
            move || block_on(program::run(memory, algorithm, slots, rounds, record, adopt))
        };
        let others: Vec<_> = (1..programs.len()).map(|rank| loom::thread::spawn(origin(rank))).collect();
        origin(0)();
        for other in others {
            other.join().unwrap();
        }
        let adopted = std::mem::take(&mut *adopted.lock().unwrap());
        for thread in adopted {
            thread.join().unwrap();
        }
        if let Err(violation) = check(&record, &memory) {
            panic!("{violation}");
        }
    });
}

/// Verifies a lock over origins of which none dies: exclusion, no lost update, nobody waits for ever, free at the end.
/// Gives the number of executions.
///
/// # Panics
/// As [`explore`].
pub(crate) fn verify<A: LockAlgorithm + Clone>(
    algorithm: &A,
    atomics: Atomics,
    programs: &[&[Round]],
    preemptions: usize,
) -> usize {
    let executions = Arc::new(AtomicUsize::new(0));
    let count = Arc::clone(&executions);
    explore(algorithm, atomics, programs, preemptions, move |record, memory| {
        count.fetch_add(1, Relaxed);
        let home = memory.region();
        let (lock, data) = lock_and_data::<A>(&home);
        record.check_end::<A>(lock, data)
    });
    executions.load(Relaxed)
}

/// Verifies the lock that ships, and that there was something to explore: how much there is depends on the algorithm,
/// the bound and loom's version, not on chance.
#[track_caller]
fn verify_right(programs: &[&[Round]], preemptions: usize, at_least: usize) {
    let executions = verify(&right(), Atomics::All, programs, preemptions);
    assert!(executions >= at_least, "only {executions} executions");
}

#[test]
fn two_exclusive() {
    verify_right(&[&[X, X], &[X, X]], 4, 5_000);
}

#[test]
fn two_mixed() {
    verify_right(&[&[X, S], &[S, X]], 4, 7_000);
}

#[test]
fn two_shared() {
    verify_right(&[&[S, S], &[S, S]], 4, 7_000);
}

#[test]
fn two_nonblocking() {
    verify_right(&[&[EARLY, EARLY], &[EARLY, S]], 4, 7_000);
}

#[test]
fn three_exclusive() {
    verify_right(&[&[X], &[X], &[X]], 3, 10_000);
}

#[test]
fn three_with_one_owner() {
    verify_right(&[&[X], &[S], &[S]], 3, 10_000);
}

#[test]
fn three_with_one_reader() {
    verify_right(&[&[EARLY], &[X], &[S]], 3, 10_000);
}

#[test]
fn three_shared() {
    verify_right(&[&[S], &[S], &[S]], 3, 5_000);
}

/// What ships, with a card's atomics.
#[test]
fn on_cards() {
    for (programs, preemptions, at_least) in
        [(&[&[X, X][..], &[X, X]][..], 3, 300), (&[&[X, S], &[S, X]], 3, 300), (&[&[EARLY], &[X], &[S]], 2, 100)]
    {
        let executions = verify(&right(), Atomics::OneAnother, programs, preemptions);
        assert!(executions >= at_least, "only {executions} executions");
    }
}

#[test]
fn mcs() {
    for (programs, preemptions, at_least) in [
        (&[&[X, X][..], &[X, X]][..], 3, 300),
        (&[&[X, S], &[S, X]], 3, 300),
        (&[&[S, S], &[X]], 3, 300),
        (&[&[EARLY, X], &[X]], 3, 100),
        (&[&[X], &[X], &[X]], 2, 300),
        (&[&[X], &[S], &[S]], 2, 300),
        (&[&[X], &[X], &[S]], 2, 300),
    ] {
        let executions = verify(&wrong::mcs(), Atomics::All, programs, preemptions);
        assert!(executions >= at_least, "only {executions} executions of {programs:?}");
    }
}

/// Verifies a lock some of whose acquires are given up, before the first or the second time that they are asked whether they
/// are wanted. Who adopts one finishes it beside its origin's next acquire. Gives the number of executions.
///
/// # Panics
/// As [`explore`].
pub(crate) fn verify_abandoned<A: LockAlgorithm + Clone>(algorithm: &A, preemptions: usize) -> usize {
    const fn left(round: Round, asked: u8) -> Round {
        Round { ending: Ending::Abandoned { asked }, ..round }
    }
    let mut executions = 0;
    for asked in 0..2 {
        let [x, s] = [left(X, asked), left(S, asked)];
        for programs in
            [&[&[x, X][..], &[X]][..], &[&[s, X], &[X]], &[&[x, S], &[S]], &[&[s, S], &[X]], &[&[x], &[S], &[X]]]
        {
            executions += verify(algorithm, Atomics::All, programs, preemptions);
        }
    }
    executions
}

#[test]
fn abandoned() {
    let executions = verify_abandoned(&right(), 2);
    assert!(executions >= 10_000, "only {executions} executions");
    let executions = verify_abandoned(&wrong::mcs(), 1);
    assert!(executions >= 1_500, "only {executions} executions");
}

/// Owners without a node, and such as want the lock only if it is free.
pub(crate) const W: Round = Round { manner: Manner::WithoutNode, ..X };
pub(crate) const WS: Round = Round { manner: Manner::WithoutNode, ..S };
pub(crate) const T: Round = Round { manner: Manner::Try, ..X };
pub(crate) const TS: Round = Round { manner: Manner::Try, ..S };

#[test]
fn mcs_without_nodes() {
    for (programs, preemptions, at_least) in [
        (&[&[W, W][..], &[X, X]][..], 3, 300),
        (&[&[W, WS], &[S, X]], 3, 300),
        (&[&[WS], &[X], &[X]], 2, 300),
        (&[&[W], &[W], &[S]], 2, 300),
        (&[&[W], &[S], &[X]], 2, 300),
    ] {
        let executions = verify(&wrong::mcs(), Atomics::All, programs, preemptions);
        assert!(executions >= at_least, "only {executions} executions of {programs:?}");
    }
}

/// Who only tries, beside one who waits, and beside another one who tries.
#[test]
fn tries() {
    fn verify_tries<A: LockAlgorithm + Clone>(algorithm: &A) {
        for (programs, preemptions) in [
            (&[&[T, TS][..], &[X, S]][..], 3),
            (&[&[T, T], &[T, TS]], 3),
            (&[&[TS], &[X], &[S]], 2),
            (&[&[T, T], &[X, S]], 2),
            (&[&[TS, T], &[S, X]], 2),
            (&[&[T, TS], &[TS, T]], 2),
            (&[&[TS], &[S], &[T]], 2),
        ] {
            let executions = verify(algorithm, Atomics::All, programs, preemptions);
            assert!(executions >= 100, "{}: only {executions} executions of {programs:?}", A::NAME);
        }
    }
    verify_tries(&right());
    verify_tries(&wrong::mcs());
    verify_tries(&wrong::ticket::<2>());
    verify_tries(&wrong::ticket::<1>());
}

/// Readers who try share the lock, and nobody else gets it.
#[test]
fn who_tries_shares_with_readers_only() {
    fn check<A: LockAlgorithm + Clone>(algorithm: &A) {
        for (first, second, shares) in [
            (Mode::Shared, Mode::Shared, true),
            (Mode::Shared, Mode::Exclusive, false),
            (Mode::Exclusive, Mode::Shared, false),
            (Mode::Exclusive, Mode::Exclusive, false),
        ] {
            let algorithm = algorithm.clone();
            loom::model(move || {
                let slots = program::Slots { each: 2, nodes: true, deaf: false, tallied: false };
                let memory = LoomMemory::new(1, program::region_words::<A>(slots), Atomics::All);
                let held = [(first, 0), (second, 1)].map(|(mode, slot)| {
                    let owner = Owner { rank: Rank(0), slot, generation: 0 };
                    let place = Ground::<_, A>::new(&memory, owner, slots);
                    let words = algorithm.words_to_try(place).unwrap();
                    let started = algorithm.start(&memory, place, words, mode).unwrap();
                    block_on(algorithm.finish(&memory, place, words, mode, started, || Wish::TRY))
                });
                let second = if shares { Ok(Held::cleanly(second)) } else { Err(Fault::new(FaultKind::TimedOut)) };
                assert_eq!(held, [Ok(Held::cleanly(first)), second], "{}", A::NAME);
            });
        }
    }
    check(&right());
    check(&wrong::mcs());
    check(&wrong::ticket::<2>());
}

/// Rank 1 dies inside. Who waits for it, before its death or after, inherits and is told its name; who was there before it
/// is not.
pub(crate) fn verify_death<A: LockAlgorithm + Clone>(algorithm: &A, dying: Mode, survivor: Round, kind: FaultKind) {
    let outcomes = Arc::new([const { AtomicUsize::new(0) }; 2]);
    let count = Arc::clone(&outcomes);
    let dies = Round { mode: dying, ending: Ending::Dies, ..X };
    explore(algorithm, Atomics::All, &[&[survivor], &[dies]], 4, move |record, _| {
        let heirs: Vec<_> = record.entered().into_iter().filter_map(|(_, inherited)| inherited).collect();
        count[heirs.len()].fetch_add(1, Relaxed);
        match (record.violation(), &heirs[..], record.entered().len()) {
            (None, [], 2) => Ok(()),
            (None, [fault], 2) if *fault == Fault::of(kind, Rank(1)) => Ok(()),
            seen => Err(format!("{seen:?}")),
        }
    });
    assert!(outcomes.iter().all(|outcome| outcome.load(Relaxed) > 0), "{outcomes:?}");
}

#[test]
fn a_dead_owner_is_named() {
    verify_death(&right(), Mode::Exclusive, X, FaultKind::OwnerDied);
    verify_death(&right(), Mode::Exclusive, S, FaultKind::OwnerDied);
}

#[test]
fn a_dead_reader_is_suspected() {
    verify_death(&right(), Mode::Shared, X, FaultKind::MemberDied);
}

#[test]
fn a_death_in_the_queue_is_suspected() {
    verify_death(&wrong::mcs(), Mode::Exclusive, X, FaultKind::MemberDied);
    verify_death(&wrong::mcs(), Mode::Exclusive, S, FaultKind::MemberDied);
    verify_death(&wrong::mcs(), Mode::Shared, X, FaultKind::MemberDied);
    verify_death(&wrong::mcs(), Mode::Exclusive, W, FaultKind::MemberDied);
    verify_death(&wrong::mcs(), Mode::Shared, W, FaultKind::MemberDied);
    verify_death(&wrong::mcs(), Mode::Exclusive, WS, FaultKind::MemberDied);
}

thread_local! {
    /// Whether panics of this thread are what a test looks for.
    static EXPECTED: Cell<bool> = const { Cell::new(false) };
}

/// What loom has to say against a flaw.
fn verdict(flaw: Flaw, atomics: Atomics, programs: &[&[Round]]) -> String {
    static QUIET: Once = Once::new();
    // A backtrace does not fit loom's small stacks.
    QUIET.call_once(|| {
        let others = std::panic::take_hook();
        std::panic::set_hook(Box::new(move |panic| {
            if !EXPECTED.get() {
                others(panic);
            }
        }));
    });
    EXPECTED.set(true);
    let verdict = expected_verdict(flaw, atomics, programs);
    EXPECTED.set(false);
    verdict
}

fn expected_verdict(flaw: Flaw, atomics: Atomics, programs: &[&[Round]]) -> String {
    match catch_unwind(AssertUnwindSafe(|| verify(&Wrong::new(flaw), atomics, programs, 3))) {
        Ok(executions) => format!("passed {executions} executions"),
        Err(panic) => match panic.downcast::<String>() {
            Ok(message) => *message,
            Err(other) => other.downcast::<&str>().map_or_else(|_| "?".into(), |message| message.to_string()),
        },
    }
}

#[test]
fn wrong_locks_are_caught() {
    for (flaw, programs, expected) in [
        (Flaw::ReadThenWrite, [&[X][..], &[X]], "exclusion"),
        (Flaw::ReaderIgnoresOwner, [&[X], &[S]], "not free"),
        (Flaw::ReaderFreesAll, [&[S], &[S, X]], "exclusion"),
        (Flaw::ForgetsRelease, [&[X], &[X]], "deadlock"),
    ] {
        let verdict = verdict(flaw, Atomics::All, &programs);
        assert!(verdict.contains(expected), "{flaw:?}: {verdict}");
    }
}

/// A compare-swap that fails undoes it.
#[test]
fn a_release_by_write_is_caught_on_cards_only() {
    let programs = [&[X][..], &[X]];
    let on_cpus = verdict(Flaw::WritesRelease, Atomics::All, &programs);
    assert!(on_cpus.starts_with("passed"), "{on_cpus}");
    let on_cards = verdict(Flaw::WritesRelease, Atomics::OneAnother, &programs);
    assert!(on_cards.contains("deadlock"), "{on_cards}");
}
