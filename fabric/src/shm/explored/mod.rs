//! The doorbell, the ring and the helper's hand-over, explored by loom: `RUSTFLAGS="--cfg onesided_loom" cargo test
//! -p onesided-fabric --lib --release --target-dir target/loom`.
//!
//! The shipped code runs under its own orderings, in every interleaving and with every value that a load may give; a wait
//! that nobody ends is loom's deadlock. Beside it run copies with a flaw each, and every one of them must be caught.
//!
//! What loom does not see, and why it is right nevertheless:
//! - **Load buffering**: that the reader's count is stored with release and loaded with acquire order. A release store
//!   comes after all loads before it, so no word is written again before it was read.
//! - **The kernel**: a futex is a lock and a condition here ([`Futex`]), which order more than a futex promises to.
//!   Nothing relies on it: a sleeper that is woken arms and looks again, and between that and the ring stand the fences.
//! - **SeqCst accesses**, which loom takes as acquire-release: one pair is used, by who passes the gate, and under loom a
//!   fence stands between the two. Without it their order is that of all sequentially consistent operations: a look that
//!   finds the gate open comes before the owner's fence in it, the announcement before the look, so that the owner's look
//!   behind its fence finds the announcement (ISO C++20, 31.4, 4).
//! - **Time**: nothing here is ever due.
//! - **More than the bound**, the preemptions of one execution. No more than this was explored:
//!
//! | what | threads | preemptions | executions |
//! |---|---|---|---|
//! | doorbell: a write; a death | 2 | any | 286 each |
//! | doorbell: two writes, one sleeper | 2 | 5 | 25,226 |
//! | doorbell: two writers, one sleeper | 3 | 3 | 12,857 |
//! | doorbell: a write, two sleepers of one rank | 3 | 4 | 54,623 |
//! | flush: both put, flush and get | 2 | any | 15 |
//! | memory model: a message; a lock's hand-over; a versioned read | 2 | any | 6; 10; 735 |
//! | gate: a peer, an owner; two peers, an owner | 2; 3 | any; 3 | 55; 887 |
//! | hold: a peer, an owner that begins before it; beside it; two peers, an owner | 2; 2; 3 | any; any; 3 | 29; 63; 1,048 |
//! | ring: 3 messages through 1 slot | 2 | any | 18,748 |
//! | ring: 4 messages through 2 slots | 2 | 4 | 9,192 |
//! | mail: 2 messages, 2 slots; 1 slot | 2 | 4 | 7,721; 11,312 |
//! | helper: a task, a writer; two waits of it | 3 | 3; 2 | 13,314; 5,691 |
//! | helper: two tasks, a writer | 4 | 2 | 98,751 |
//! | helper: adopted work, its last handle dropped by the helper | 3 | 3 | 3,106 |
//! | helper: work adopted while it sleeps | 2 | 3 | 1,250 |

mod doorbell;
mod gate;
mod helper;
mod hold;
mod order;
mod ring;

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use crate::sync::thread;

/// Runs `program` in every way that there is, with at most `preemptions` preemptions if a number is given. Gives the
/// number of executions.
///
/// # Panics
/// If somebody waits for ever, or the program panics.
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

/// Explores what ships. The number of executions depends on the code, the bound and loom's version, not on chance: far
/// fewer than `counted` show that hardly anything is explored any more.
#[track_caller]
fn holds(preemptions: Option<usize>, counted: usize, program: impl Fn() + Send + Sync + 'static) {
    let executions = explore(preemptions, program);
    assert!(executions >= counted / 2, "{executions} executions, of {counted}");
}

/// Explores a flawed copy: loom must find what is expected.
#[track_caller]
fn caught(expected: &str, program: impl Fn() + Send + Sync + 'static) {
    let found = catch_unwind(AssertUnwindSafe(|| explore(None, program))).expect_err("the flaw was not caught");
    let said = found.downcast_ref::<String>().map(String::as_str).or(found.downcast_ref::<&str>().copied());
    assert!(said.is_some_and(|said| said.contains(expected)), "{said:?}");
}

/// Loom's report of a wait that nobody ends.
const LOST: &str = "deadlock";

/// Runs all of them at once, the last one on this thread.
fn together<const N: usize>(threads: [Box<dyn FnOnce() + Send>; N]) {
    let mut threads = Vec::from(threads);
    let last = threads.pop();
    let others: Vec<_> = threads.into_iter().map(thread::spawn).collect();
    last.into_iter().for_each(|last| last());
    others.into_iter().for_each(|other| other.join().unwrap());
}
