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
pub use sections::{Access, DataSection, Sections, run, sections};

use crate::random::{Search, Setting, any_seed, search_among};

/// Generated sections, with cancelled acquires and deaths, whose histories are checked.
#[derive(Clone, Debug)]
pub struct Linearizability<A> {
    lock: A,
    setting: Setting,
    dies: bool,
    flushes: bool,
    cases: u32,
    seed: Option<u64>,
}

impl<A: LockAlgorithm + Clone> Linearizability<A> {
    /// A check of this lock, in 1000 cases without deaths.
    pub fn of(lock: &A) -> Self {
        Self { lock: lock.clone(), setting: Setting::USUAL, dies: false, flushes: true, cases: 1000, seed: None }
    }

    /// In each case one rank dies, at any event, and some of its last operations are lost.
    #[must_use]
    pub fn deaths(self) -> Self {
        Self { dies: true, ..self }
    }

    /// The number of cases.
    #[must_use]
    pub fn cases(self, cases: u32) -> Self {
        Self { cases, ..self }
    }

    /// The setting of the cases.
    #[must_use]
    pub fn setting(self, setting: Setting) -> Self {
        Self { setting, ..self }
    }

    /// Sections release without a flush: wrong on purpose.
    #[must_use]
    pub fn without_flush(self) -> Self {
        Self { flushes: false, ..self }
    }

    /// Repeats the same cases. Without a seed the cases differ each time, unless the environment
    /// has one ([`Search::SEED`]).
    #[must_use]
    pub fn seed(self, seed: u64) -> Self {
        Self { seed: Some(seed), ..self }
    }

    /// Searches for a history that is not linearizable.
    ///
    /// # Panics
    /// If it finds one, or a wait without end. The message has the smallest failing case, the
    /// history, and the seed.
    #[track_caller]
    pub fn run(&self) {
        if let Err(violation) = self.verdict() {
            panic!("{violation}");
        }
    }

    /// The same, and returns the result.
    ///
    /// # Errors
    /// The message with which [`run`](Self::run) panics.
    pub fn verdict(&self) -> Result<(), String> {
        let seed = self.seed.unwrap_or_else(any_seed);
        search_among(seed, self.cases, sections(self.dies), |case| run(self.setting, self.flushes, &self.lock, case))
            .map_err(|(reason, minimal)| {
                let (name, variable) = (A::NAME, Search::<A>::SEED);
                format!("{name}: {reason}\n in {minimal:?}\n again: {variable}={seed} in the environment of this test")
            })
    }
}
