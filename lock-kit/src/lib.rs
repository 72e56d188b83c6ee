//! Verification and measurement of locks over remote memory, for custom locks too.
//!
//! May use: [`onesided_lock_algos`], the boundary; for verification (feature `verify`) loom,
//! proptest; for [`bench`](mod@bench) (feature `bench`) fabrics and the simulator. Both features
//! are on by default. No library that ships depends on it.
//!
//! A lock is a [`LockAlgorithm`](onesided_lock_algos::LockAlgorithm). The kit runs its source
//! unchanged, over memories of its own:
//!
//! | | what is tried | what is found |
//! |---|---|---|
//! | [`Exploration`] | loom: every interleaving of few operations up to a number of preemptions | violated exclusion, lost updates, lost wake-ups: a wait blocks until its word changes |
//! | [`Search`] | proptest: generated programs, schedules and deaths, over a memory with delayed effects and completions | the same, in longer runs; shrunk to a minimal case |
//! | [`Checker`] | every schedule of few sections, with crashes, memory lost with dead ranks, lost operations and replies, stopped ranks: replayed, single-threaded, deterministic | the same; recoveries that do not end; bypasses |
//! | [`Linearizability`] | proptest: sections that read, write, add and flush words of several ranks; cancelled acquires, deaths | histories that no order of the sections explains |
//!
//! [`Search`], [`Checker`] and [`Linearizability`] choose among the events of one
//! [`World`](world::World): an operation takes effect or completes, a waiter goes on, time passes,
//! a rank dies.
//!
//! [`conformance`] does all of this in one call, [`Conformance`] with other bounds. Each of them
//! also checks that fencing tokens rise ([`Fencing`]), drawn by the same code as in windows.
//!
//! A program is data: a list of [`Section`]s for each origin. A [`Record`] of the run is the
//! sequential model. Locks that are wrong on purpose show whether a search finds errors: one
//! operation of a correct lock is posted otherwise ([`posted!`], [`Setting::mutate`]).
//!
//! ```
//! use onesided_lock_algos::{Backoff, TestAndSet};
//! use onesided_lock_kit::{Checker, Exploration, Section, Search};
//!
//! let lock = TestAndSet::new(Backoff::default());
//! let both = [&[Section::EXCLUSIVE][..], &[Section::SHARED]];
//! Exploration::of(&lock).preemptions(2).run(&both);
//! let explored = Checker::of(&lock).crashes(1).losses(1).at_least(1_000).run(&both);
//! assert!(explored.complete && explored.recoveries > 0, "{explored}");
//! Search::of(&lock).cases(100).run();
//! Search::of(&lock).deaths().cases(100).run();
//! ```
//!
//! # A lock of yours
//!
//! Two functions over remote memory are a lock
//! ([`SimpleLock`](onesided_lock_algos::SimpleLock)). One word at the home, 0 if the lock is free,
//! and 1 otherwise:
//! ```
//! use onesided_lock_kit::{Conformance, posted};
//! use onesided_lock_kit::lock_algos::{SimpleUse, Simple, SimpleLock};
//! use onesided_lock_kit::remote_memory::{Fault, RemoteMemory};
//!
//! #[derive(Clone, Copy, Debug)]
//! struct OneWord;
//!
//! impl SimpleLock for OneWord {
//!     const NAME: &'static str = "one-word";
//!     const WORDS: usize = 1;
//!
//!     async fn acquire<M: RemoteMemory>(&self, lock: SimpleUse<'_, '_, M>) -> Result<(), Fault> {
//!         let mut lock = lock;
//!         while lock.memory.compare_swap(lock.word(0), 0, 1).await? != 0 {
//!             lock.pause(0).await?; // an error if it may not wait
//!         }
//!         Ok(())
//!     }
//!
//!     async fn release<M: RemoteMemory>(&self, lock: SimpleUse<'_, '_, M>) -> Result<(), Fault> {
//!         lock.memory.compare_swap(lock.word(0), 1, 0).await.map(drop) // on cards a write may be lost between atomics
//!     }
//! }
//!
//! let suite = Conformance::of(&Simple::new(OneWord));
//! println!("{}", suite.run());
//! // The suite finds a planted fault: a release that does nothing.
//! assert!(!suite.mutate(posted!(CompareSwap(1, 0) => Read)).verdict().conforms());
//! ```
//!
//! A [`LockAlgorithm`](onesided_lock_algos::LockAlgorithm) has five functions: the first operations
//! of an acquire and of a release are posted synchronously, and what they found is judged, so that
//! an uncontended lock costs its operations alone. `examples/locks/recovering.rs` is one.
//!
//! What is required of it, beyond exclusion:
//!
//! - All its words are 0 initially, and satisfy
//!   [`is_free`](onesided_lock_algos::LockAlgorithm::is_free) at the end.
//! - A shared mode is optional: `contend` and `holds` may acquire the lock exclusively for every
//!   owner, as [`Held::mode`](onesided_lock_algos::Held) says.
//! - An acquire whose intent is cancelled fails with `Closed`, and hands on what it holds; a try
//!   that would have to wait fails with `TimedOut`.
//! - [`Search::deaths`] (also of a [`Linearizability`]) and [`Checker::crashes`] require recovery:
//!   an owner's death is reported, as `OwnerDied` or `ParticipantDied`, until an acquire
//!   [recovers](onesided_lock_algos::Intent::recovers) the lock; and [`Search::leaves`] and
//!   [`Checker::leaves`] require the same of a rank that left in order, as `OwnerLeft` or
//!   `ParticipantLeft`; a cancelled acquire that recovered
//!   it [releases it as poisoned](onesided_lock_algos::LockAlgorithm::release_poisoned). Leave them
//!   out for a lock without recovery ([`Conformance::without_recovery`]).
//! - A lock with nodes: no owner is announced in one at the end, as
//!   [`is_idle`](onesided_lock_algos::LockAlgorithm::is_idle) says.
//! - A wait for a word of the own node ends when a write with `Notify::Yes` comes there, or at its
//!   deadline, which never comes while all ranks are alive and something can happen.
//!
//! `examples/locks` has ten locks from the literature, runs the whole kit on each, and measures one
//! ([`bench`](mod@bench)).
//!
//! # Planted flaws, and what catches them
//!
//! | flaw | in | caught by |
//! |---|---|---|
//! | released by a plain write although readers keep their counts in the word | ticket, mutated | [`Search`] (`tickets`) |
//! | the same in the queue lock: frees the tail by a write | MCS, mutated | [`Search`] (`random`) |
//! | released by a plain write on a card, where a failing compare-swap undoes it | `WritesRelease` | [`Exploration`] over [`Atomics::OneAnother`], and not over a CPU's |
//! | no flush before the release | test-and-set, MCS, ticket | [`Linearizability`] (`linear`), [`Conformance::without_flush`]; over fabrics `tests/it/litmus/planted.rs` |
//! | a missing fence | shared memory's doorbell, ring and copies | loom in `fabric/src/shm/explored` and `tests/it/litmus/planted.rs`: no memory of this kit reorders within a rank |
//! | a grant of a stale generation | MCS, mutated | [`Search`] |
//! | recoveries without a nonce, so that a late compare-swap hits a later one | test-and-set, MCS, ticket, global, mutated | a stopped waiter at every step (`stopped`) |
//! | an event's count that is reset by a store (yu-2004, Fig. 5) | a count of completions | loom (`shared_event`) |
//! | an event that is reset without a check of what it counts | the served locks, over a memory that [forgets](Exploration::forgetting) | [`Exploration`] (`served`) |
//! | a waiter that reads the word anew before it waits for a change of it (Sandia OpenSHMEM, pull request 97) | `ReadsAnewToWait` | [`Exploration`], [`Checker`] |
//! | takes the lock by a read and a write | `ReadThenWrite` | all four |
//! | counts a reader into an owner's word | `ReaderIgnoresOwner` | [`Exploration`], [`Search`], [`Checker`] |
//! | a reader's release frees all | `ReaderFreesAll` | all four |
//! | a release that does nothing | `ForgetsRelease` | [`Exploration`], [`Search`], [`Checker`] |
//! | waits for dead owners | `WaitsForTheDead` | [`Search`], [`Checker`] |
//! | takes the lock from readers as soon as any rank is dead | `TakesFromDeadReadersAtOnce` | [`Search`], [`Checker`] with 3 origins |
//! | gives a dead owner's lock to an acquire that did not ask to recover it | `RecoversUnasked` | [`Checker`] |
//! | frees a lock instead of poisoning it; names itself as the dead owner; tells nobody of the death | `ForgetsToPoison`, `NamesItself`, `TellsNobody` | [`Checker`]; the last two: [`Exploration`] |
//! | 107 mistakes of 20 kinds in the locks of `examples/locks`, and of this table | mutated, or in their flow | the trial of a [`Conformance`] that each names (`wrong_locks`) |
//! | no link; no grant; a reader that is not announced; a new tail that drops the reader count | MCS, mutated | [`Search`] |
//! | a suspected lock is not put under recovery | MCS, ticket, mutated | [`Search`] |
//! | a reader without a ticket | ticket, mutated | [`Search`] |
//! | an owner with a reader's ticket; tickets returned twice or in the wrong mode; a guard that lets a carry through; a withdrawal that drops later tickets; a lock under recovery taken by a write, or without a ticket; no participant scan | ticket, mutated | [`Search`] (`tickets`) |
//! | an owner that does not announce itself, in the word or in its node; one that stays, or leaves by a write; a waiter that does not retract itself, or retracts itself and does not wait; admission by a write, or in the same phase; no recovery; a recovering owner that leaves dead owners in the word; no participant scan | global, mutated | [`Search`] (`global`) |
//! | an owner without an entry; an entry with another identity, or of another turn; no notification; the same notification for all; a late owner that displaces a waiter; a displaced waiter that is not notified | fetch-add queue, mutated | [`Search`], in a memory without time (`fetch_add_queues`) |
//! | no writer flags; flags that stay; a flag set, or cleared, by a write; a reader that is not counted, or stays | distributed counters, mutated | [`Search`] (`distributed`) |
//! | no wake event, or none at a release; a release that is not sent; an exclusive request that arrives as a shared one; a reply to an earlier request; a grant to a rejected owner | served locks, mutated | [`Search`] (`served`) |
//! | a token that is drawn before the lock is held | [`Fencing::Hasty`] | [`Search`], [`Checker`] (`random`, `model_check`) |
//! | an unfair lock checked for first come, first served; a token that does not rise | test-and-set, ticket | [`Checker`] |
//!
//! Names in brackets are modules of `lock-algos/tests/verify`; names of flaws are those of its `wrong`.
//!
//! # Panics and errors
//!
//! `run` panics with a message that has the program, the schedule, and how to reproduce the
//! failure; `verdict` returns the same as an error.
//!
//! Start at [`Section`] and [`program::run`], which every origin executes, then read
//! [`ModelMemory`].

#![forbid(unsafe_code)]

/// Setters of a builder, each of the field of its name.
macro_rules! setters {
    ($($(#[$doc:meta])* $field:ident: $type:ty,)+) => {$(
        $(#[$doc])*
        pub fn $field(self, $field: $type) -> Self {
            Self { $field: $field.into(), ..self }
        }
    )+};
}

#[cfg(feature = "bench")]
pub mod bench;
#[cfg(feature = "verify")]
mod caught;
#[cfg(feature = "verify")]
mod conformance;
#[cfg(feature = "verify")]
mod digest;
#[cfg(feature = "verify")]
pub mod linear;
#[cfg(feature = "verify")]
pub mod loom;
#[cfg(feature = "verify")]
pub mod model_check;
#[cfg(feature = "verify")]
pub mod program;
#[cfg(feature = "verify")]
pub mod random;
#[cfg(feature = "verify")]
mod record;
#[cfg(feature = "verify")]
mod trace;
#[cfg(feature = "verify")]
mod tried;
#[cfg(feature = "verify")]
pub mod world;

#[cfg(feature = "verify")]
pub use crate::{
    conformance::{Conformance, Report, Trial, conformance},
    linear::Linearizability,
    loom::{Atomics, Exploration, LoomMemory},
    model_check::{Checker, Explored},
    program::{AcquireKind, Crashable, Ending, Fencing, Layout, Place, Section, Slots},
    random::{Scenario, Search, Setting},
    record::{Record, Stage},
    trace::{Action, Effect, Note, Op, Trace},
    world::{ModelMemory, Posted},
};
#[cfg(feature = "bench")]
pub use onesided_fabric as fabric;
pub use onesided_lock_algos as lock_algos;
pub use onesided_lock_algos::remote_memory;
#[cfg(feature = "bench")]
pub use onesided_sim as sim;
