//! The served locks, with their server as one more task beside the origins.

use crate::woken_exploration;
use onesided_lock_algos::{DedicatedThread, EventThread};
use onesided_lock_kit::Action::Write;
use onesided_lock_kit::random::run;
use onesided_lock_kit::{Op, Place, Search, Section, Setting, posted};

use crate::random::expect_caught;
use crate::{S, X};

/// A request that is not heard is not repeated.
const TIMELESS: Setting = Setting { timeless: true, ..Setting::USUAL };
/// The word of the wake event.
const BELL: usize = 1;

fn explore(programs: &[&[Section]], preemptions: usize, at_least: usize) {
    woken_exploration(&EventThread::default()).preemptions(preemptions).at_least(at_least).run(programs);
}

#[test]
#[ignore = "150,000 executions take minutes: run by hand when the lock changes"]
fn three_origins() {
    explore(&[&[X], &[S], &[X]], 1, 10_000);
}

/// Cancelled before the first read of the intent, and between the first and the second.
#[test]
fn acquires_that_are_given_up() {
    for asked in 0..2 {
        explore(&[&[S.cancelled(asked)], &[X]], 1, 100);
        explore(&[&[X.cancelled(asked)], &[S]], 1, 100);
    }
}

#[test]
fn a_thread_of_its_own() {
    woken_exploration(&DedicatedThread::default()).preemptions(1).run(&[&[X], &[S]]);
    Search::of(&DedicatedThread::default()).run();
}

#[test]
fn searched_without_time() {
    Search::of(&EventThread::default()).setting(TIMELESS).run();
}

/// The server waits for a change of the wake event from its value at the start of the wait, not
/// from that before the check of the request slots.
#[test]
fn an_event_that_is_set_again_without_a_look_is_caught() {
    let verdict = woken_exploration(&EventThread::default()).preemptions(1).forgetting(BELL).verdict(&[&[X], &[X]]);
    assert!(verdict.as_ref().is_err_and(|what| what.contains("deadlock")), "{verdict:?}");
}

const fn is_ring(word: u64) -> bool {
    word & 0xff000 != 0 // its verb; other words have 0 there
}

/// A request's verb; 0 for other words.
const fn verb(word: u64) -> u64 {
    if is_ring(word) || word & 0xff00_0000 != 0 || word >> 32 == 0 { 0 } else { word & 0xf }
}

#[test]
fn wrong_servers_and_owners_are_caught() {
    /// Its name, its mutation, whether a rank dies, and what is found.
    type Bend = (&'static str, fn(Op) -> Op, bool, &'static str);
    let mutations: [Bend; 6] = [
        ("does not ring", posted!(Write(ring) if is_ring(ring) => Read), false, "wait without end"),
        (
            "does not ring at a release",
            posted!(Write(ring) if is_ring(ring) && ring >> 12 & 0xf == 3 => Read),
            false,
            "",
        ),
        ("releases nothing", posted!(Write(request) if verb(request) == 3 => Read), false, ""),
        (
            "asks to share what it wants alone",
            |op: Op| {
                op.with(match op.action {
                    // Not what the owner notes in its own node.
                    Write(request) if verb(request) == 1 && matches!(op.place, Place::Other(..)) => Write(request + 1),
                    other => other,
                })
            },
            false,
            "exclusion",
        ),
        (
            "answers an earlier turn",
            posted!(Write(answer) if answer >> 24 & 0xff == 1 && answer >> 32 == 2 => Write(answer - (1 << 32))),
            false,
            "wait without end",
        ),
        (
            "grants to who is told that others have it",
            posted!(Write(answer) if answer >> 24 & 0xff == 4 && !is_ring(answer) => Write(answer - (3 << 24))),
            false,
            "exclusion",
        ),
    ];
    for (flaw, mutate, dies, expected) in mutations {
        let setting = Setting { mutate: Some(mutate), ..TIMELESS };
        expect_caught(flaw, dies, expected, |scenario| run(setting, &EventThread::default(), scenario));
    }
}
