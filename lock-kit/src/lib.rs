//! What a lock over remote memory is verified with, and measured. Yours too.
//!
//! May use: [`lock_algos`], the boundary; for verification (feature `verify`) loom, proptest; for [`bench`](mod@bench) (feature
//! `bench`) fabrics and the simulator. Both are on if nothing else is said. No library that ships uses it.
//!
//! A lock is a [`LockAlgorithm`](lock_algos::LockAlgorithm). Everything here runs that very source, over memories of its own:
//!
//! | | what is tried | what is found |
//! |---|---|---|
//! | [`Exploration`] | loom: every interleaving of few operations up to a number of preemptions | exclusion, lost updates, lost wake-ups: a wait blocks until its word changes |
//! | [`Search`] | proptest: programs, schedules and deaths made up, over a memory whose operations travel | the same, in longer runs; shrunk to the shortest |
//! | [`Checker`] | every schedule of few rounds, with crashes, lost operations and replies, stopped ranks: replayed, one thread, no chance | the same; that recovery ends; how many are bypassed; tokens that do not rise |
//!
//! What an origin does is data: a program of [`Round`]s. What happened is in a [`Record`], which is the sequential model. Locks
//! that are wrong on purpose show whether a search bites: [`wrong`], and the bent operations of a [`Setting`] or a
//! [`Checker`].
//!
//! ```
//! use lock_algos::{Backoff, TestAndSet};
//! use lock_kit::{Checker, Exploration, Round, Search};
//!
//! let lock = TestAndSet::new(Backoff::default());
//! let both = [&[Round::EXCLUSIVE][..], &[Round::SHARED]];
//! Exploration::of(&lock).preemptions(2).run(&both);
//! let explored = Checker::of(&lock).crashes(1).losses(1).at_least(1_000).run(&both);
//! assert!(explored.complete && explored.heirs > 0, "{explored}");
//! Search::of(&lock).cases(100).run();
//! Search::of(&lock).deaths().cases(100).run();
//! ```
//!
//! # Panics and errors
//!
//! `run` panics and says which program, which schedule, and how to see it again; `verdict` gives the same as an error.
//!
//! Begin to read at [`Round`] and [`program::run`], which is what every origin does; then [`modelled::ModelMemory`].

#![forbid(unsafe_code)]

#[cfg(feature = "bench")]
pub mod bench;
#[cfg(feature = "verify")]
pub mod checked;
#[cfg(feature = "verify")]
pub mod explored;
#[cfg(feature = "verify")]
pub mod modelled;
#[cfg(feature = "verify")]
pub mod program;
#[cfg(feature = "verify")]
mod record;
#[cfg(feature = "verify")]
mod trace;
#[cfg(feature = "verify")]
pub mod wrong;

#[cfg(feature = "verify")]
pub use crate::checked::{Checker, Explored};
#[cfg(feature = "verify")]
pub use crate::explored::{Atomics, Exploration, LoomMemory};
#[cfg(feature = "verify")]
pub use crate::modelled::{ModelMemory, Posted, Scenario, Search, Setting};
#[cfg(feature = "verify")]
pub use crate::program::Mortal;
#[cfg(feature = "verify")]
pub use crate::program::{Ending, Ground, Manner, Round, Slots};
#[cfg(feature = "verify")]
pub use crate::record::{Record, Stage};
#[cfg(feature = "verify")]
pub use crate::trace::{Action, Effect, Trace};
pub use lock_algos;
pub use lock_algos::remote_memory;
