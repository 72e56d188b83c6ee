//! Distributed locks as algorithms over remote memory.
//!
//! May use: [`RemoteMemory`](onesided_remote_memory::RemoteMemory). May not use: I/O, a clock of
//! its own, threads, atomics, `unsafe`. So the code that ships over shared memory and verbs is the
//! same code that the simulator runs and that loom explores.
//!
//! Start at [`LockAlgorithm`], then read [`TestAndSet`], the shortest algorithm, then `recovery`,
//! how a lock is restored after a death, and [`Mcs`].
//!
//! | lock | source | words | uncontended acquire + release | contended | when an exclusive owner dies |
//! |---|---|---|---|---|---|
//! | [`TestAndSet`] | jiang-2004, section 5.1 | 1 at the home, 1 a node (readers) | compare-swap + write (on cards: + compare-swap; shared: + fetch-add) | a compare-swap an attempt, exponential backoff; unordered | the recovering owner swaps its word into the lock alone and learns the dead owner's rank; until then acquires fail |
//! | [`Mcs`] | jiang-2004, section 5.2; Mellor-Crummey and Scott 1991 | 2 at the home, 3 a node | compare-swap + compare-swap (shared: + fetch-add) | one write links, one hands over; first come, first served | the waiter behind it puts the lock under recovery; all waiters start over, and fail until one recovers |
//! | [`Ticket`] | Yoon, Chowdhury, Mozafari, SIGMOD 2018, section 4 | 2 at the home, 1 a node | fetch-add + fetch-add | reads, paced by the tickets ahead; first come, first served | the waiter behind it puts the lock under recovery; all waiters return their tickets, and fail until one recovers |
//! | [`FetchAddQueue`] | DecLock, arXiv 2505.17641 | 34 at the home, 2 a node | fetch-add + fetch-add | one write to enqueue, one to hand over; first come, first served | as [`Ticket`] |
//! | [`DistributedCounters`] | RMA-RW, Schmid, Besta, Hoefler, HPDC 2016 | 3 at the home, 1 at each rank, 1 a node | shared: fetch-add + fetch-add at the reader's own rank; exclusive: fetch-adds at all ranks | tickets | as [`Ticket`] |
//! | [`TwoLevel`] | HOCL, Wang, Lu, Shu, SIGMOD 2022; ALock, Baran et al., SPAA 2024 | 1 at the home, 3 at a rank of each host, 3 a node | compare-swap + compare-swap (shared: fetch-add); an owner that finds the lock taken adds CPU atomics on its host | tickets on the host, first come, first served, which a slot bypasses at most 32 times in a row; compare-swaps between hosts | a cohort's owner word names a host, whose ranks are scanned; else as [`Ticket`] on the host, as [`TestAndSet`] between hosts |
//! | [`DedicatedThread`] | jiang-2004, section 4.1 | 5 at the home, and some request slots for each rank; 3 a node | 2 writes and a reply + 2 writes | the same; in the order in which the server handles requests | its rank is named; all waiters fail until one recovers |
//! | [`EventThread`] | jiang-2004, section 4.2 | the same | the same; each request wakes the server if it sleeps | the same | the same |
//! | [`Global`] | foMPI, Gerstenberger, Besta, Hoefler, SC 2013; the protocol is ours | those of another lock, 2 for all targets, 1 a node | all targets, shared: fetch-add + fetch-add; one, exclusive: these and the other lock's | two groups alternate, reads with backoff; within one group, the other lock | as the other lock; the lock-all word as [`Ticket`] |
//!
//! # Suspicion timeout
//!
//! Readers and tickets are counts, which name no rank. When a rank has died or left and no owner has
//! released since for the suspicion timeout, a waiter compares the count with the live owners: only
//! if these are fewer, one that has ended is suspected. The timeout is 10 ms if the memory of an
//! ended rank can be read and shows that the rank used the lock, as on one host; otherwise it is
//! 1 s. A reader that has ended changed nothing: the next owner takes the lock. So the end of a rank
//! that holds nothing changes nothing, however long the others hold the lock. A waiter that has lost
//! the connection to a rank that it has to ask ends with `ConnectionLost`.
//!
//! # Operations that fail
//!
//! An operation whose outcome is [unknown](onesided_remote_memory::FaultKind::Unknown) costs its
//! rank the connection to the memory concerned. If that memory is the lock's home, the acquire or
//! release ends with the fault, the lock is not held, and the others recover it as after a death: a
//! fault that they report names the rank, which may live. A release that is
//! [detached](LockAlgorithm::released) reports its fault at the next flush.
//!
//! # Verification
//!
//! `tests/verify` and, in short form, `tests/verify/quick` run the shipped code with the crate
//! `onesided-lock-kit`, over memories of its own, on programs that are data. Other locks can be run
//! through the same kit.
//!
//! - **loom** explores every interleaving of 2 origins with 2 sections each, and of 3 origins with 1
//!   section each, at up to 3 preemptions (test-and-set) or 2 (the other locks), and some of them
//!   at more: exclusive, shared, mixed, with tries, with fencing tokens, and with other work
//!   between the start of an acquire and the wait for it (`conformance`). Also 2 origins of which
//!   one dies while it holds the lock, and 2 and 3 of which one cancels an acquire: a cancelled
//!   acquire is spawned and runs beside the next one of its origin. [`Ticket`], [`FetchAddQueue`]
//!   and [`DistributedCounters`] run with counters of 1 and 2 bits as well, which wrap within a
//!   run, at up to 1 preemption, and [`TwoLevel`] on one host and on two. The
//!   [served](LockAlgorithm::SERVED) locks run with their server as one more task: 2 origins at up
//!   to 1 preemption; 3 origins only by hand (`--ignored`), because that takes minutes. Waits block
//!   until the word changes, so a lost wake-up is a deadlock. The memory is sequentially
//!   consistent: the fabrics' own tests cover fences.
//! - **proptest** generates programs of 2 to 4 origins with 1 to 3 sections each (released,
//!   released without waiting, cancelled), the order of up to 300 events (an operation takes effect
//!   or completes, a waiter goes on, time passes), and the death of a rank at any point, with its
//!   operations in flight. The programs include tries, and acquires that are cancelled half way.
//!   [`Ticket`] and [`FetchAddQueue`] begin with counters of 15 and 4 bits that wrap soon, or have
//!   more owners than tickets; the queue runs in a memory without time as well, in which a waiter
//!   that is not notified waits without end.
//! - **the model checker** of the kit replays the same futures in every schedule of 2 origins with
//!   1 or 2 sections each, completely, and of 3 origins with one section up to 20,000 and 40,000
//!   states: which operation takes effect, which reply arrives, with one rank that crashes at any
//!   step, one operation or reply that is lost and the connection with it, one rank that is stopped
//!   until the others are done or stuck. 10,000 to 250,000 states for each lock and kind of failure
//!   (`conformance`). The ticket lock is never bypassed there, the queue lock only by an acquire
//!   that loses a compare-swap at its tail. A rank whose operation was lost may end with that
//!   fault, and the others go on (`model_check`): completely for 2 origins with 1 section each, up
//!   to 20,000 states for more. [`FetchAddQueue`] and [`DistributedCounters`], which take minutes,
//!   run with up to 10,000 states a program, and completely with 2 origins and 1 section each that
//!   leaves the data alone, without failures. The served locks run with their server, which neither
//!   crashes nor sees losses, up to 10,000 states a program.
//! - **linearizability**: random sections that read, write, add and flush words of several ranks,
//!   with cancelled acquires and deaths, are checked against a sequential model by Wing and Gong's
//!   search (`conformance`; over simulated windows `tests/simulated/linear.rs`, without deaths). A
//!   missing flush is caught.
//! - **a stopped waiter**: while a lock is recovered from a dead reader, a waiter is stopped after
//!   each of its steps in turn, with its operations in flight; others take the lock, release it,
//!   read, and put it under recovery again; then the waiter continues.
//! - **fencing tokens** ([`TokenDraw`]) are drawn in some sections of the programs, as windows draw
//!   them, and must rise.
//! - **mutants**: `scripts/mutants` changes the code in every way that cargo-mutants knows;
//!   `MUTANTS.md` reports the results.
//! - **ranks that leave**, wherever their tasks are, in the same programs as deaths (`left inside`,
//!   `with a leave`), and with acquires that [give up their places](WaitPolicy::Leaving)
//!   (`quick::cancelled`).
//! - **poisoned locks**: an acquire that does not recover fails, every time, until one has
//!   recovered the lock; then the lock works again. A recovering acquire that was cancelled before
//!   it completed [releases the lock as poisoned](LockAlgorithm::release_poisoned), and the next
//!   acquire learns of the death.
//!
//! All of these check exclusion, lost updates, that every wait ends, that exactly the first owner
//! after a death inside a section learns of it, and that the lock is free at the end and can be
//! acquired. They must also catch locks that are wrong on purpose.

// An `async fn` keeps its arguments twice. Where one waits that very many ranks may wait in, a
// function returns an `async` block that keeps them once.
#![allow(clippy::manual_async_fn)]
#![forbid(unsafe_code)]

mod algorithm;
mod any_lock;
mod backoff;
mod cohort;
mod context;
mod distributed;
mod fencing;
mod fetch_add_queue;
mod global;
mod intent;
mod mcs;
mod owner;
mod part;
mod recovery;
pub mod served;
mod simple;
mod starts;
mod test_and_set;
mod ticket;
mod two_level;

pub use crate::algorithm::{LockAlgorithm, LockUse, Rest, Words};
pub use crate::any_lock::{AnyLock, WithLock, held_by_word};
pub use crate::backoff::Backoff;
pub use crate::context::{InMemory, Kept, LockContext, Op, Owners, Word, WordOf};
pub use crate::distributed::DistributedCounters;
pub use crate::fencing::TokenDraw;
pub use crate::fetch_add_queue::FetchAddQueue;
pub use crate::global::Global;
pub use crate::intent::{Intent, IntentFn, WaitPolicy};
pub use crate::mcs::Mcs;
pub use crate::owner::{Held, Mode, Owner};
pub use crate::recovery::announces;
pub use crate::served::{DedicatedThread, EventThread, Served};
pub use crate::simple::{Simple, SimpleLock, SimpleUse};
#[cfg(debug_assertions)]
#[doc(hidden)]
pub use crate::starts::starts;
pub use crate::test_and_set::TestAndSet;
pub use crate::ticket::Ticket;
pub use crate::two_level::TwoLevel;
pub use onesided_remote_memory as remote_memory;
