//! What a lock over remote memory is verified with. Yours too.
//!
//! May use: [`lock_algos`], the boundary, loom, proptest. Nothing that ships uses it: it is for tests.
//!
//! A lock is a [`LockAlgorithm`](lock_algos::LockAlgorithm). Everything here runs that very source, over memories of its own:
//!
//! | | what is tried | what is found |
//! |---|---|---|
//! | [`Exploration`] | loom: every interleaving of few operations up to a number of preemptions | exclusion, lost updates, lost wake-ups: a wait blocks until its word changes |
//! | [`Search`] | proptest: programs, schedules and deaths made up, over a memory whose operations travel | the same, in longer runs; shrunk to the shortest |
//!
//! What an origin does is data: a program of [`Round`]s. What happened is in a [`Record`], which is the sequential model. Locks
//! that are wrong on purpose show whether a search bites: [`wrong`], and the bent operations of a [`Setting`].
//!
//! ```
//! use lock_algos::{Backoff, TestAndSet};
//! use lock_kit::{Exploration, Round, Search};
//!
//! let lock = TestAndSet::new(Backoff::default());
//! let both = [&[Round::EXCLUSIVE][..], &[Round::SHARED]];
//! Exploration::of(&lock).preemptions(2).run(&both);
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

pub mod explored;
pub mod modelled;
pub mod program;
mod record;
mod trace;
pub mod wrong;

pub use crate::explored::{Atomics, Exploration, LoomMemory};
pub use crate::modelled::{ModelMemory, Posted, Scenario, Search, Setting};
pub use crate::program::Mortal;
pub use crate::program::{Ending, Ground, Manner, Round, Slots};
pub use crate::record::{Record, Stage};
pub use crate::trace::{Action, Effect, Trace};
pub use lock_algos;
pub use lock_algos::remote_memory;
