//! Wrong locks, and the trial of the suite that finds each: the locks of the kit's example with an
//! operation that is posted otherwise, those of [`flows`], and those of [`wrong`](crate::wrong).
#![allow(clippy::print_stdout)] // the table

#[allow(dead_code)] // its program
#[path = "../../../../lock-kit/examples/locks/main.rs"]
mod example;
mod flows;
mod leases;

use crate::right::right;
use crate::wrong::{Flaw, Wrong};
use onesided_lock_kit::Action::{CompareSwap, FetchAdd, Read, Write};
use onesided_lock_kit::Place::{Lock, Node};
use onesided_lock_kit::lock_algos::{LockAlgorithm, Simple, SimpleLock};
use onesided_lock_kit::remote_memory::Notify;
use onesided_lock_kit::{Conformance, Op, Place, Report};

use crate::bound;
use example::locks;
use flows::{Queue, Words};
use leases::Late;

/// A wrong lock: its kind, its mistake, the trial that finds it, and the suite up to there.
struct Row(&'static str, &'static str, &'static str, Box<dyn Fn() -> Report>);

fn row<A: LockAlgorithm + Clone>(
    (kind, mistake, by): (&'static str, &'static str, &'static str),
    suite: Conformance<A>,
) -> Row {
    Row(kind, mistake, by, Box::new(move || suite.clone().seed(1).verdict()))
}

/// The suite, as users run it.
fn suite<L: SimpleLock + Copy>(lock: L) -> Conformance<Simple<L>> {
    Conformance::of(&Simple::new(lock))
}

/// Runs the rows and prints them. Each is found, by its trial.
fn find(lock: &str, rows: impl IntoIterator<Item = Row>) {
    let mut wrong = Vec::new();
    for Row(kind, mistake, by, run) in rows {
        let report = run();
        let found = report.trials().iter().find(|trial| trial.outcome.is_err());
        let (name, tried, unit) = found.map_or(("nothing", 0, ""), |trial| (trial.name, trial.tried, trial.unit));
        let seconds: f64 = report.trials().iter().map(|trial| trial.took.as_secs_f64()).sum();
        println!("{lock:22} {mistake:42} {kind:13} {name:20} {tried:>6} {unit:10} {seconds:6.2} s");
        if name != by {
            wrong.push(format!("{lock}: {mistake}: found by {name}, not by {by}"));
        }
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
}

/// A suite's rows: kind, mistake and trial, and an operation at a place and what is posted instead.
macro_rules! planted {
    ($lock:literal, $suite:expr, $op:ident { $($kind:literal, $mistake:literal, $by:literal: $place:pat, $action:pat => $new:expr;)* }) => {
        find($lock, [$(row(($kind, $mistake, $by), $suite.mutate(|$op| match ($op.place, $op.action) {
            ($place, $action) => $new,
            _ => $op,
        }))),*])
    };
}

const fn at(op: Op, place: Place) -> Op {
    Op { place, ..op }
}

const fn unheard(op: Op) -> Op {
    Op { notify: Notify::No, ..op }
}

#[test]
fn leases() {
    fn leased<A: LockAlgorithm + Clone>(lock: A) -> Conformance<A> {
        Conformance::of(&lock).without_recovery().preemptions(1).leases(locks::Leased::LEASE)
    }
    let half = locks::Leased(locks::Leased::USUAL.0 / 2);
    let rows = [
        row(("lease", "takes the lock at once", "interleavings"), leased(locks::Leased(0))),
        row(("lease", "takes it after half the lease", "with a stop"), leased(half)),
        row(("lease", "waits for a stopped owner", "with a stop"), leased(locks::Leased(u64::MAX))),
        row(("lease", "a late release frees the next owner's", "with a stop"), leased(Late::<true>)),
        row(("lease", "a late release says that all is well", "with a stop"), leased(Late::<false>)),
    ];
    find("leased test-and-set", rows);
}

#[test]
fn test_and_test_and_set() {
    let lock = || suite(locks::TestAndTestAndSet);
    planted! { "test-and-test-and-set", lock(), op {
        "exclusion", "takes the word by a write", "interleavings": Lock(0), CompareSwap(0, 1) => op.with(Write(1));
        "plain write", "frees the word by a write", "on cards": Lock(0), CompareSwap(1, 0) => op.with(Write(0));
        "forgets", "its release does nothing", "interleavings": Lock(0), CompareSwap(1, 0) => op.with(Read);
        "forgets", "frees a word of another value", "interleavings": Lock(0), CompareSwap(1, 0) => op.with(CompareSwap(2, 0));
    }}
    find(
        "test-and-test-and-set",
        [row(("unfair", "promises first come, first served", "schedules"), lock().bypass(0))],
    );
}

#[test]
fn tickets() {
    planted! { "ticket", suite(locks::Ticket).bypass(0), op {
        "exclusion", "takes a number and counts none", "interleavings": Lock(0), FetchAdd(1) => op.with(Read);
        "forgets", "its release does nothing", "interleavings": Lock(1), FetchAdd(1) => op.with(Read);
        "not held", "serves two numbers", "interleavings": Lock(1), FetchAdd(1) => op.with(FetchAdd(2));
        "lanes", "serves by the other word", "interleavings": Lock(1), FetchAdd(1) => at(op, Lock(0));
        "tries", "a try leaves its number", "interleavings": Lock(0), CompareSwap(..) => op.with(FetchAdd(1));
        "lost wake-up", "looks at the next number", "interleavings": Lock(1), Read => at(op, Lock(0));
    }}
    planted! { "leavable ticket", suite(locks::LeavableTicket).bypass(0), op {
        "cancel", "leaves without a mark", "interleavings": Lock(2..), CompareSwap(0, _) => op.with(Read);
        "cancel", "takes no mark away", "with an error": Lock(2..), CompareSwap(_, 0) => op.with(Read);
        "cancel", "marks the number before it", "interleavings": Lock(2..), CompareSwap(0, mark) => op.with(CompareSwap(0, mark - 1));
    }}
    // Only with more numbers under way than marks.
    if bound(false, true) {
        planted! { "leavable ticket", suite(locks::LeavableTicket).bypass(0), op {
            "cancel", "its mark replaces another", "random programs": Lock(2..), CompareSwap(0, mark) => op.with(Write(mark));
            "plain write", "takes marks away by a write", "random programs": Lock(2..), CompareSwap(_, 0) => op.with(Write(0));
        }}
    }
}

#[test]
fn queues() {
    planted! { "Anderson's array", suite(locks::Anderson).bypass(0), op {
        "exclusion", "takes a place and counts none", "interleavings": Lock(0), FetchAdd(1) => op.with(Read);
        "forgets", "grants nothing", "interleavings": Lock(1..), Write(_) => op.with(Read);
        "forgets", "grants the place that it has", "interleavings": Lock(1..), Write(place) => op.with(Write(place - 1));
        "lanes", "grants in its own slot", "interleavings": Lock(slot @ 1..), Write(_) => at(op, Lock(1 + (slot + 14) % 16));
        "not held", "forgets its place while inside", "interleavings": Node { .. }, Write(_) => op.with(Write(0));
    }}
    planted! { "CLH", suite(locks::Clh).bypass(0), op {
        "exclusion", "enters the tail by a write", "interleavings": Lock(0), CompareSwap(_, me @ 1..) => op.with(Write(me));
        "plain write", "frees the tail by a write", "interleavings": Lock(0), CompareSwap(_, 0) => op.with(Write(0));
        "forgets", "its node stays taken", "interleavings": Node { .. }, Write(0) => op.with(Read);
        "forgets", "stays in the tail", "interleavings": Lock(0), CompareSwap(_, 0) => op.with(Read);
        "exclusion", "its node says nothing", "interleavings": Node { .. }, Write(1..) => op.with(Read);
        "not held", "its node names its first use", "interleavings": Node { .. }, Write(me @ 1..) => op.with(Write(me >> 26 << 26));
        "lanes", "watches its own node", "interleavings": Node { slot, word, .. }, Read => at(op, Node { rank: op.origin, slot, word });
    }}
    planted! { "MCS", suite(locks::Mcs).bypass(0), op {
        "exclusion", "enters the tail by a write", "interleavings": Lock(0), CompareSwap(_, me @ 1..) => op.with(Write(me));
        "plain write", "frees the tail by a write", "interleavings": Lock(0), CompareSwap(_, 0) => op.with(Write(0));
        "forgets", "does not link itself", "interleavings": Node { word: 1, .. }, Write(1..) => op.with(Read);
        "forgets", "grants nothing", "interleavings": Node { word: 0, .. }, Write(1) => op.with(Read);
        "forgets", "stays in the tail", "interleavings": Lock(0), CompareSwap(_, 0) => op.with(Read);
        "lost wake-up", "grants by Notify::No", "interleavings": Node { word: 0, .. }, Write(1) => unheard(op);
        "lost wake-up", "links by Notify::No", "interleavings": Node { word: 1, .. }, Write(1..) => unheard(op);
        "exclusion", "keeps the last grant", "interleavings": Node { word: 0, .. }, Write(0) => op.with(Read);
        "not held", "keeps the last link", "interleavings": Node { word: 1, .. }, Write(0) => op.with(Read);
        "lanes", "grants by the link's word", "interleavings": Node { rank, slot, word: 0 }, Write(1) => at(op, Node { rank, slot, word: 1 });
    }}
    let flows = [
        ("lost wake-up", "the grant is reset after the link", "interleavings"),
        ("lost wake-up", "the link is reset after the swap", "interleavings"),
        ("cancel", "a waiter leaves while it queues", "interleavings"),
        ("lanes", "links to the first slot", "cancelled"),
        ("forgets", "the release waits for no link", "interleavings"),
        ("not held", "the tail is freed as well", "interleavings"),
    ];
    find("queue", flows.map(|of| row(of, suite(Queue(of.1)))));
}

#[test]
fn readers() {
    planted! { "phase-fair", suite(locks::PhaseFair), op {
        "readers", "a reader is not counted", "interleavings": Lock(0), FetchAdd(4) => op.with(Read);
        "readers", "a reader leaves twice", "interleavings": Lock(1), FetchAdd(4) => op.with(FetchAdd(8));
        "readers", "a reader does not leave", "interleavings": Lock(1), FetchAdd(4) => op.with(Read);
        "readers", "readers leave by a write", "interleavings": Lock(1), FetchAdd(4) => op.with(Write(4));
        "lanes", "a reader counts as a writer", "interleavings": Lock(0), FetchAdd(4) => op.with(FetchAdd(1));
        "readers", "a writer does not block readers", "interleavings": Lock(0), FetchAdd(2 | 3) => op.with(Read);
        "forgets", "a writer blocks readers for good", "interleavings": Lock(0), FetchAdd(5..) => op.with(Read);
        "forgets", "a writer serves no other", "interleavings": Lock(3), FetchAdd(1) => op.with(Read);
        "exclusion", "writers take the same number", "interleavings": Lock(2), FetchAdd(1) => op.with(Read);
        "tries", "a reader's try joins a writer", "interleavings": Lock(0), CompareSwap(..) => op.with(FetchAdd(4));
    }}
    let starves = ("unfair", "promises that no reader passes a writer", "schedules");
    find("test-and-set", [row(starves, Conformance::of(&right()).bypass(0))]);
}

/// Peterson's two first writes in the other order.
fn turn_first(op: Op) -> Op {
    match (op.place, op.action) {
        (Lock(2), Write(me)) => Op { place: Lock(me as usize), action: Write(1), ..op },
        (_, Write(1)) => Op { place: Lock(2), action: Write(u64::from(op.origin.0)), ..op },
        _ => op,
    }
}

#[test]
fn by_reads_and_writes() {
    planted! { "bakery", suite(locks::Bakery).owners(8), op {
        "ranks", "does not say that it chooses", "interleavings": Lock(..8), Write(1) => op.with(Write(0));
        "ranks", "does not wait for who chooses", "interleavings": Lock(..8), Read => at(op, Lock(7));
        "forgets", "chooses for good", "interleavings": Lock(..8), Write(0) => op.with(Read);
        "forgets", "keeps its number", "interleavings": Lock(8..), Write(0) => op.with(Read);
        "ranks", "takes the number of another", "interleavings": Lock(8..), Write(number @ 1..) => op.with(Write(number - 1));
    }}
    planted! { "Peterson", suite(locks::Peterson).owners(2), op {
        "ranks", "gives way before it sets its flag", "interleavings": Lock(_), Write(_) => turn_first(op);
        "ranks", "gives itself the turn", "interleavings": Lock(2), Write(me) => op.with(Write(1 - me));
        "ranks", "looks at its own flag", "interleavings": Lock(..2), Read => at(op, Lock(op.origin.index()));
        "ranks", "takes no turn", "interleavings": Lock(2), Write(_) => op.with(Read);
        "forgets", "keeps its flag", "interleavings": Lock(..2), Write(0) => op.with(Read);
    }}
}

#[test]
fn flows() {
    let flows = [
        ("wrap-around", "byte: the number carries", "words at their ends"),
        ("cancel", "numbers: a cancelled one drops its turn", "interleavings"),
        ("cancel", "numbers: a cancelled one returns its own", "interleavings"),
        ("not held", "numbers: a cancelled one serves the next", "interleavings"),
        ("tries", "two words: a try keeps the first", "interleavings"),
        ("slots", "numbers: two wait at one slot", "interleavings"),
        ("two locks", "two words: in two orders", "interleavings"),
        ("livelock", "two words: each yields to the other", "interleavings"),
        ("ranks", "turn: two ranks are three", "interleavings"),
        ("tries", "a try waits", "tried"),
        ("not held", "a rank enters its own lock", "cancelled"),
        ("lost wake-up", "it looks anew before it waits", "interleavings"),
        ("lost wake-up", "it waits for another word", "interleavings"),
        ("livelock", "it spins", "interleavings"),
        ("panics", "it waits once at most", "interleavings"),
        ("errors", "it gives up in time", "contest"),
        ("tries", "it enters if it may not wait", "interleavings"),
        ("not held", "whoever gives up frees the word", "interleavings"),
        ("not held", "it is released twice", "interleavings"),
        ("errors", "its release fails", "interleavings"),
        ("errors", "an error counts as success", "with an error"),
        ("errors", "an error of its release counts as success", "with an error"),
        ("panics", "its release panics", "interleavings"),
    ];
    find("words", flows.map(|of| row(of, suite(Words(of.1)).woken())));
    let flush = ("flush", "data is not flushed before the unlock", "linearizable");
    find("ticket", [row(flush, suite(locks::Ticket).without_flush())]);
    let order = ("order", "turn: its writes are not awaited", "with an error");
    find("words", [row(order, suite(Words(order.1)).owners(2))]);
}

#[test]
fn recovery() {
    use Flaw::*;
    let flaws = [
        (ReadThenWrite, ("exclusion", "takes the lock by a read and a write", "interleavings")),
        (ReaderIgnoresOwner, ("readers", "counts a reader into an owner's word", "interleavings")),
        (ForgetsRelease, ("forgets", "its release does nothing", "interleavings")),
        (ReaderFreesAll, ("readers", "a reader's release frees all", "interleavings")),
        (ReadsAnewToWait, ("lost wake-up", "reads anew before it waits", "interleavings")),
        (WritesRelease, ("plain write", "frees the word by a write", "on cards")),
        (WaitsForTheDead, ("recovery", "waits for dead owners", "a death inside")),
        (TakesFromDeadReadersAtOnce, ("recovery", "takes the lock from living readers", "with a crash")),
        (RecoversUnasked, ("recovery", "recovers for who did not ask", "with a crash")),
        (ForgetsToPoison, ("recovery", "frees the lock instead of poisoning it", "with a crash")),
        (NamesItself, ("recovery", "names itself as the dead", "a death inside")),
        (TellsNobody, ("recovery", "tells nobody of the death", "a death inside")),
    ];
    find("test-and-set", flaws.map(|(flaw, of)| row(of, Conformance::of(&Wrong::new(flaw)).woken())));
    planted! { "recovering", Conformance::of(&locks::Recovering), op {
        "exclusion", "takes the word by a write", "interleavings": Lock(0), CompareSwap(0, me) => op.with(Write(me));
        "plain write", "frees the word by a write", "on cards": Lock(0), CompareSwap(_, 0) => op.with(Write(0));
        "recovery", "does not say why it poisons", "with a crash": Lock(1), Write(_) => op.with(Read);
        "recovery", "says another rank's name", "with a crash": Lock(1), Write(why) => op.with(Write(why ^ 1 << 32));
        "recovery", "frees instead of poisons", "with a crash": Lock(0), CompareSwap(me, 0x8000_0000_0000_0000..) => op.with(CompareSwap(me, 0));
    }}
}
