//! What a lock over remote memory is verified with, and measured. Yours too.
//!
//! May use: [`onesided_lock_algos`], the boundary; for verification (feature `verify`) loom, proptest; for [`bench`](mod@bench) (feature
//! `bench`) fabrics and the simulator. Both are on if nothing else is said. No library that ships uses it.
//!
//! A lock is a [`LockAlgorithm`](onesided_lock_algos::LockAlgorithm). Everything here runs that very source, over memories of its own:
//!
//! | | what is tried | what is found |
//! |---|---|---|
//! | [`Exploration`] | loom: every interleaving of few operations up to a number of preemptions | exclusion, lost updates, lost wake-ups: a wait blocks until its word changes |
//! | [`Search`] | proptest: programs, schedules and deaths made up, over a memory whose operations travel | the same, in longer runs; shrunk to the shortest |
//! | [`Checker`] | every schedule of few rounds, with crashes, memory that goes with the dead, lost operations and replies, stopped ranks: replayed, one thread, no chance | the same; that recovery ends; how many are bypassed; tokens that do not rise |
//! | [`Linearizability`] | proptest: sections that read, write, add and flush words of several ranks; cancelled acquires, deaths | histories that no order of the sections explains |
//!
//! [`conformance`] does all of it in one call, [`Conformance`] in bounds of one's own. Each of them holds fencing tokens to their rule
//! too ([`Fencing`]), drawn by the very code that windows draw them with.
//!
//! What an origin does is data: a program of [`Section`]s. What happened is in a [`Record`], which is the sequential model. Locks
//! that are wrong on purpose show whether a search bites: [`wrong`], and the mutated operations of a [`Setting`] or a
//! [`Checker`].
//!
//! ```
//! use onesided_lock_algos::{Backoff, TestAndSet};
//! use onesided_lock_kit::{Checker, Exploration, Section, Search};
//!
//! let lock = TestAndSet::new(Backoff::default());
//! let both = [&[Section::EXCLUSIVE][..], &[Section::SHARED]];
//! Exploration::of(&lock).preemptions(2).run(&both);
//! let explored = Checker::of(&lock).crashes(1).losses(1).at_least(1_000).run(&both);
//! assert!(explored.complete && explored.heirs > 0, "{explored}");
//! Search::of(&lock).cases(100).run();
//! Search::of(&lock).deaths().cases(100).run();
//! ```
//!
//! # A lock of yours
//!
//! One word at the home, 0 when it is free, and 1 otherwise. This is all of it:
//!
//! ```
//! use onesided_lock_kit::lock_algos::{IntentFn, Held, LockAlgorithm, Mode, LockContext};
//! use onesided_lock_kit::remote_memory::{Fault, FaultKind, RemoteMemory};
//! use onesided_lock_kit::Conformance;
//!
//! #[derive(Clone, Copy, Debug)]
//! struct OneWord;
//!
//! impl LockAlgorithm for OneWord {
//!     const NAME: &'static str = "one-word";
//!     const HOME_WORDS: usize = 1;
//!     const NODE_WORDS: usize = 0;
//!     type Words<'m, M: RemoteMemory> = M::Word<'m>;
//!
//!     fn uses_node(&self, _: Mode) -> bool {
//!         false
//!     }
//!
//!     fn words<'m, M: RemoteMemory>(&self, context: impl LockContext<'m, M>) -> Result<M::Word<'m>, Fault> {
//!         context.home(0)
//!     }
//!
//!     fn start<'m, M: RemoteMemory>(
//!         &self,
//!         memory: &M,
//!         _: impl LockContext<'m, M>,
//!         word: M::Word<'m>,
//!         _: Mode,
//!     ) -> Result<M::Op, Fault> {
//!         Ok(memory.compare_swap(word, 0, 1))
//!     }
//!
//!     fn holds<M: RemoteMemory>(&self, _: M::Word<'_>, _: Mode, found: u64) -> bool {
//!         found == 0
//!     }
//!
//!     async fn contend<'m, M: RemoteMemory, P: LockContext<'m, M> + 'm>(
//!         &'m self,
//!         memory: &'m M,
//!         _: P,
//!         word: M::Word<'m>,
//!         _: Mode,
//!         first: Result<u64, Fault>,
//!         intent: IntentFn<'_>,
//!     ) -> Result<Held, Fault> {
//!         first?;
//!         loop {
//!             match intent() {
//!                 intent if intent.is_over() => return Err(Fault::new(FaultKind::Closed)),
//!                 intent if !intent.is_patient() => return Err(Fault::new(FaultKind::TimedOut)),
//!                 _ => memory.pause(word, 1_000).await,
//!             }
//!             if memory.compare_swap(word, 0, 1).await? == 0 {
//!                 return Ok(Held::cleanly(Mode::Exclusive)); // also for who asked to share it
//!             }
//!         }
//!     }
//!
//!     fn releases_in_one_step<'m, M: RemoteMemory>(&self, _: impl LockContext<'m, M>, _: Mode) -> bool {
//!         true
//!     }
//!
//!     fn start_release<'m, M: RemoteMemory>(
//!         &self,
//!         memory: &M,
//!         _: impl LockContext<'m, M>,
//!         word: M::Word<'m>,
//!         _: Mode,
//!     ) -> Result<M::Op, Fault> {
//!         Ok(memory.compare_swap(word, 1, 0)) // a card's atomics do not see a write in between
//!     }
//!
//!     async fn finish_release<'m, M: RemoteMemory, P: LockContext<'m, M> + 'm>(
//!         &'m self,
//!         _: &'m M,
//!         _: P,
//!         _: M::Word<'m>,
//!         _: Mode,
//!         started: impl Future<Output = Result<u64, Fault>> + Send + 'm,
//!     ) -> Result<(), Fault> {
//!         started.await.map(|_| ())
//!     }
//! }
//!
//! let suite = Conformance::of(&OneWord).preemptions(1).states(20_000).cases(100);
//! // It waits for the dead for ever, and that is found. But for that it is a lock.
//! println!("{}", suite.clone().without_recovery().run());
//! assert!(!suite.verdict().conforms());
//! ```
//!
//! What is asked of it, beyond exclusion:
//!
//! - All its words are 0 at first, and as [`is_free`](onesided_lock_algos::LockAlgorithm::is_free) says at the end.
//! - A shared mode is not needed: `contend` and `holds` may give everybody the lock alone, as [`Held::mode`](onesided_lock_algos::Held)
//!   says.
//! - Who asks `wish` and hears that it is over gives up, `Closed`, and hands on what it has; wanted only if free, `TimedOut`.
//! - [`Search::deaths`], [`Linearizability::deaths`] and [`Checker::crashes`] demand inheritance: an owner's death is told,
//!   `OwnerDied` or `ParticipantDied`, until somebody [recovers](onesided_lock_algos::Intent::recovers); what an heir has that went away it
//!   [forsakes](onesided_lock_algos::LockAlgorithm::release_poisoned). Leave them out for a lock that has none
//!   ([`Conformance::without_recovery`]).
//! - A lock with nodes: the first word of a node is not 0 while its owner counts, from before its first operation until its
//!   last is complete, and 0 again afterwards. The kit looks at that word alone.
//!
//! `examples/own_lock.rs` has all of the kit for a ticket lock of one's own, the contests of [`bench`](mod@bench) too.
//!
//! # What is wrong on purpose, and who catches it
//!
//! | flaw | in | caught by |
//! |---|---|---|
//! | released by a plain write where readers park their counts in the word | ticket, mutated | [`Search`], [`Checker`] (`tickets`, `checked`) |
//! | the same in the queue lock: frees the tail by a write | MCS, mutated | [`Search`], [`Checker`] (`modelled`, `checked`) |
//! | released by a plain write on a card, where a failing compare-swap undoes it | [`WritesRelease`](wrong::Flaw::WritesRelease) | [`Exploration`] over [`Atomics::OneAnother`], and not over a CPU's |
//! | no flush before the release | test-and-set, MCS, ticket | [`Linearizability`] (`linear`); over fabrics `tests/it/litmus/planted.rs` |
//! | a missing fence | shared memory's doorbell, ring and copies | loom in `fabric/src/shm/explored` and `tests/it/litmus/planted.rs`: no memory of this kit reorders within a rank |
//! | a grant of a stale generation | MCS, mutated | [`Search`], [`Checker`] |
//! | freezes that are all alike, so that a late compare-swap hits a later one | test-and-set, MCS, ticket, global, mutated | a stopped waiter at every step (`stopped`) |
//! | an event's count that is set back by a store (yu-2004, Fig. 5) | a count of completions | loom (`shared_event`) |
//! | an event that is set again without a look at what it counts | the served locks, over a memory that [forgets](Exploration::forgetting) | [`Exploration`] (`served`) |
//! | who waits reads the word anew before it waits for a change of it (Sandia OpenSHMEM, pull request 97) | [`ReadsAnewToWait`](wrong::Flaw::ReadsAnewToWait) | [`Exploration`], [`Checker`] |
//! | takes the lock by a read and a write | [`ReadThenWrite`](wrong::Flaw::ReadThenWrite) | all four |
//! | counts a reader into an owner's word | [`ReaderIgnoresOwner`](wrong::Flaw::ReaderIgnoresOwner) | [`Exploration`], [`Search`], [`Checker`] |
//! | a reader's release frees all | [`ReaderFreesAll`](wrong::Flaw::ReaderFreesAll) | all four |
//! | a release that does nothing | [`ForgetsRelease`](wrong::Flaw::ForgetsRelease) | [`Exploration`], [`Search`], [`Checker`] |
//! | waits for dead owners | [`WaitsForTheDead`](wrong::Flaw::WaitsForTheDead) | [`Search`], [`Checker`] |
//! | takes the lock from readers as soon as anybody is dead | [`TakesFromDeadReadersAtOnce`](wrong::Flaw::TakesFromDeadReadersAtOnce) | [`Search`], [`Checker`] with 3 origins |
//! | no link; no grant; a reader who does not count; who comes last forgets the readers | MCS, mutated | [`Search`]; no grant: [`Checker`] as well |
//! | nobody freezes a doubted lock | MCS, ticket, mutated | [`Search`], [`Checker`] |
//! | a reader without a ticket | ticket, mutated | [`Search`], [`Checker`] |
//! | an owner with a reader's ticket; tickets returned twice or in the wrong mode; a guard that lets a carry through; a withdrawal that forgets who came; a frozen lock taken by a write, or without a ticket; who does not ask whether somebody counts | ticket, mutated | [`Search`] (`tickets`) |
//! | who does not announce itself, or does not count; who stays, or leaves by a write; who waits and does not step back, or steps back and does not wait; who is let in by a write, or by the same phase; nobody freezes; an heir who leaves the dead in; who does not ask | global, mutated | [`Search`] (`global`) |
//! | an owner without an entry; an entry that names another, or is of another turn; nobody is told; all are told the same; who comes late displaces who waits; who is displaced is not told | queue by fetch-add, mutated | [`Search`], in a memory without time (`fetch_add_queues`) |
//! | no marks; marks that stay; a mark set, or taken away, by a write; a reader who does not count, or stays | distributed counters, mutated | [`Search`] (`distributed`) |
//! | no ring, or none at a release; a release that is not told; a intent to have it alone that arrives as one to share it; an answer to an earlier turn; a grant to who is refused | served locks, mutated | [`Search`] (`served`) |
//! | a token that is drawn before the lock is had | [`Fencing::Hasty`] | [`Exploration`], [`Search`], [`Checker`] (`explored`, `modelled`, `checked`) |
//! | an order that the tickets do not have | a made-up record | the check of the order (`tickets`) |
//! | an unfair lock held to first come, first served; a token that does not rise | test-and-set, ticket | [`Checker`] |
//!
//! Names in brackets are modules of `lock-algos/tests/verify`.
//!
//! # Panics and errors
//!
//! `run` panics and says which program, which schedule, and how to see it again; `verdict` gives the same as an error.
//!
//! Begin to read at [`Section`] and [`program::run`], which is what every origin does; then [`random::ModelMemory`].

#![forbid(unsafe_code)]

#[cfg(feature = "bench")]
pub mod bench;
#[cfg(feature = "verify")]
mod conformance;
#[cfg(feature = "verify")]
pub mod linear;
#[cfg(feature = "verify")]
pub mod loom;
#[cfg(feature = "verify")]
pub mod model_check;
#[cfg(feature = "verify")]
mod posting;
#[cfg(feature = "verify")]
pub mod program;
#[cfg(feature = "verify")]
pub mod random;
#[cfg(feature = "verify")]
mod record;
#[cfg(feature = "verify")]
mod trace;
#[cfg(feature = "verify")]
pub mod wrong;

#[cfg(feature = "verify")]
pub use crate::conformance::{Conformance, Report, Trial, conformance};
#[cfg(feature = "verify")]
pub use crate::linear::Linearizability;
#[cfg(feature = "verify")]
pub use crate::loom::{Atomics, Exploration, LoomMemory};
#[cfg(feature = "verify")]
pub use crate::model_check::{Checker, Explored};
#[cfg(feature = "verify")]
pub use crate::program::Crashable;
#[cfg(feature = "verify")]
pub use crate::program::{AcquireKind, Ending, Fencing, Layout, Section, Slots};
#[cfg(feature = "verify")]
pub use crate::random::{ModelMemory, Posted, Scenario, Search, Setting};
#[cfg(feature = "verify")]
pub use crate::record::{Record, Stage};
#[cfg(feature = "verify")]
pub use crate::trace::{Action, Effect, Trace};
#[cfg(feature = "bench")]
pub use onesided_fabric as fabric;
pub use onesided_lock_algos as lock_algos;
pub use onesided_lock_algos::remote_memory;
#[cfg(feature = "bench")]
pub use onesided_sim as sim;
