//! Histories of sections under a lock, and whether they are linearizable.
//!
//! The sequential model is a few words of data. A section reads, writes, adds and flushes under the
//! lock, on words of several ranks, and is one atomic step of the model, somewhere between the
//! start of its acquire and the end of its release. A process that dies inside leaves a part of it.
//! [`History`] records, [`linearizable`] checks; they depend on neither locks nor memories, so
//! windows on any fabric can be checked in the same way.

mod history;
mod sections;

use onesided_lock_algos::LockAlgorithm;

pub use history::{Call, History, Step, linearizable};
pub use sections::{Access, DataSection, Sections, sections};
pub(crate) use sections::{Accesses, Accessing, run};

use crate::random::Search;

/// A [`Search`] among generated sections on data, with cancelled acquires and deaths, whose
/// histories are checked.
#[derive(Clone, Copy, Debug)]
pub struct Linearizability;

impl Linearizability {
    /// A check of this lock, in 1000 cases without deaths.
    pub fn of<A: LockAlgorithm + Clone>(lock: &A) -> Search<A> {
        Search::of(lock).histories()
    }
}
