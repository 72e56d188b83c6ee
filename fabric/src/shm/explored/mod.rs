//! Loom checks of the doorbell, the lane, the collective buffer, the progress thread, a card's events and its listener:
//! `RUSTFLAGS="--cfg onesided_loom" cargo test -p onesided-fabric --lib --release --target-dir
//! target/loom`.
//!
//! The shipped code runs with its own orderings, in every interleaving and with every value that a
//! load may return; loom reports an endless wait as a deadlock. Copies with one flaw each run as
//! well, and every flaw must be detected.
//!
//! What loom does not model, and why it is correct:
//! - **Load buffering**: the reader's count is stored with release and loaded with acquire order. A
//!   release store comes after all loads before it, so no word is overwritten before it was read.
//! - **The kernel**: here a futex is a lock and a condition variable ([`Futex`]), which order more
//!   than a futex promises. Nothing relies on it: a woken sleeper arms and polls again, with the
//!   fences between that and the ring.
//! - **SeqCst accesses**, which loom treats as acquire-release: one pair is used, by a peer that
//!   acquires access, and under loom a fence stands between the two. Without it they are in the
//!   order of all sequentially consistent operations: a load that finds the guard open comes before
//!   the owner's fence in it, and the announcement before that load, so the owner's load after its
//!   fence finds the announcement (ISO C++20, 31.4, 4).
//! - **Time**: no deadline is ever due.
//! - **Executions beyond the bound** of preemptions. These were explored, those of four threads with one preemption less
//!   unless `ONESIDED_LONG` is set:
//!
//! | what | threads | preemptions | executions |
//! |---|---|---|---|
//! | doorbell: a write; a death | 2 | any | 286 each |
//! | doorbell: two writes, one sleeper | 2 | 5 | 25,226 |
//! | doorbell: two writers, one sleeper | 3 | 3 | 12,857 |
//! | doorbell: a write, two sleepers of one rank | 3 | 4 | 54,623 |
//! | solicited events: a packet, a thread that polls, the handler; two packets, the handler | 3; 2 | 3; any | 18,274; 12,854 |
//! | events of a card: two packets, an armed handler and a waiter; one or two, a handler and a thread that polls no more; two, the handler | 3; 3; 2 | 2; 3, 2; any | 1,927; 4,819; 306 |
//! | events of a card whose packets share a queue: a packet, a thread that drains it, an armed handler; one that arms, a handler | 3 | 3 | 4,279; 5,553 |
//! | completions apart: one, a thread that drains, the listener, their thread; the listener while the mode begins; ends; two, the listener, their thread | 4; 4; 4; 3 | 2 | 177,372; 45,481; 161,062; 11,782 |
//! | events asked for while a receive is posted: a packet, the receive, the handler; on shared memory, on a card | 3 | 2 | 1,547; 813 |
//! | flush: both put, flush and get | 2 | any | 15 |
//! | memory model: a message; a lock's hand-over; a sequence-locked read | 2 | any | 6; 10; 735 |
//! | access guard: a peer, an owner; two peers, an owner | 2; 3 | any; 3 | 55; 887 |
//! | reference count: a peer, an owner that begins before it; beside it; two peers, an owner | 2; 2; 3 | any; any; 3 | 29; 63; 1,048 |
//! | lane: 3 packets through 1 cell | 2 | any | 18,748 |
//! | lane: 3 packets, one of two cells, through 3 cells | 2 | 4 | 1,569 |
//! | lane: 2 packets to a sleeper, 2 cells; 1 cell | 2 | 4 | 7,721; 11,312 |
//! | collective buffers: two ranks of one slot each, 2 collectives | 2 | 4 | 2,810 |
//! | offer: a receiver, an owner that withdraws; that helps with 3 chunks and withdraws | 2 | any; 4 | 32; 28,308 |
//! | progress thread: a task, a writer; two waits of it | 3 | 3; 2 | 13,314; 5,691 |
//! | progress thread: two tasks, a writer | 4 | 2 | 98,751 |
//! | progress thread: spawned work, its last handle dropped by the thread | 3 | 3 | 3,106 |
//! | progress thread: work spawned while it sleeps | 2 | 3 | 1,250 |

mod card;
mod collective_buffer;
mod doorbell;
mod gate;
mod helper;
mod hold;
mod interest;
mod lane;
mod offer;
mod order;
mod solicited;
mod two_threads;

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use crate::util::sync::thread;

/// Runs `program` in every interleaving, with at most `preemptions` preemptions if given. Returns
/// the number of executions.
///
/// # Panics
/// If a wait never ends, or the program panics.
fn explore(preemptions: Option<usize>, program: impl Fn() + Send + Sync + 'static) -> usize {
    let executions = Arc::new(AtomicUsize::new(0));
    let count = Arc::clone(&executions);
    let mut model = loom::model::Builder::new();
    model.preemption_bound = preemptions;
    model.check(move || {
        count.fetch_add(1, Ordering::Relaxed);
        program();
    });
    executions.load(Ordering::Relaxed)
}

/// Explores the shipped code. The number of executions depends on the code, the bound and loom's
/// version, not on chance: far fewer than `counted` mean that the exploration has become
/// ineffective.
#[track_caller]
fn holds(preemptions: Option<usize>, counted: usize, program: impl Fn() + Send + Sync + 'static) {
    let executions = explore(preemptions, program);
    assert!(executions >= counted / 2, "{executions} executions, of {counted}");
}

/// The same for what takes a minute: with one preemption less, unless `ONESIDED_LONG` is set.
#[track_caller]
fn holds_in_time(preemptions: usize, [less, all]: [usize; 2], program: impl Fn() + Send + Sync + 'static) {
    match std::env::var_os("ONESIDED_LONG") {
        None => holds(Some(preemptions - 1), less, program),
        Some(_) => holds(Some(preemptions), all, program),
    }
}

/// Explores a flawed copy: loom must report `expected`.
#[track_caller]
fn caught(expected: &str, program: impl Fn() + Send + Sync + 'static) {
    caught_within(None, expected, program);
}

/// The same with at most so many preemptions.
#[track_caller]
fn caught_within(preemptions: Option<usize>, expected: &str, program: impl Fn() + Send + Sync + 'static) {
    let explored = catch_unwind(AssertUnwindSafe(|| explore(preemptions, program)));
    let found = explored.expect_err("the flaw was not caught");
    let said = found.downcast_ref::<String>().map(String::as_str).or(found.downcast_ref::<&str>().copied());
    assert!(said.is_some_and(|said| said.contains(expected)), "{said:?}");
}

/// Loom's report of an endless wait.
const LOST: &str = "deadlock";

/// Runs all of them concurrently, the last one on this thread.
fn together<const N: usize>(threads: [Box<dyn FnOnce() + Send>; N]) {
    let mut threads = Vec::from(threads);
    let last = threads.pop();
    let others: Vec<_> = threads.into_iter().map(thread::spawn).collect();
    last.into_iter().for_each(|last| last());
    others.into_iter().for_each(|other| other.join().unwrap());
}
