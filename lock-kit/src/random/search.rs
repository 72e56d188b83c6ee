//! The search for a failing scenario.

use std::fmt;

use onesided_lock_algos::{LockAlgorithm, Mode};
use proptest::collection::vec;
use proptest::prelude::*;
use proptest::test_runner::{RngAlgorithm, TestError, TestRng, TestRunner};

use super::Setting;
use super::scenario::{Plan, Scenario, run};
use crate::linear::{DataSection, run as run_sections, sections};
use crate::program::{AcquireKind, Ending, Fencing, Section};
use crate::tried::tried;

/// `may_leave`: cancelled acquires give up their places now and then, as if their rank left.
fn round(may_leave: bool) -> impl Strategy<Value = Section> {
    let mode = prop_oneof![2 => Just(Mode::Exclusive), 1 => Just(Mode::Shared)];
    let cancelled = (0_u8..5, 0_u8..if may_leave { 4 } else { 2 }).prop_map(|(asked, how)| Ending::Cancelled {
        asked,
        recovers: how % 2 == 1,
        leaves: how >= 2,
    });
    let ending = prop_oneof![4 => Just(Ending::Released), 2 => Just(Ending::Detached), 1 => cancelled];
    let kind = prop_oneof![7 => Just(AcquireKind::Usual), 1 => Just(AcquireKind::Try)];
    let fencing = prop_oneof![4 => Just(Fencing::None), 1 => Just(Fencing::Inside), 1 => Just(Fencing::Fused)];
    (mode, 0_u8..3, 0_u8..3, ending, kind, fencing).prop_map(|(mode, early, touches, ending, kind, fencing)| Section {
        mode,
        early,
        touches,
        ending,
        kind,
        fencing,
    })
}

/// Programs of 2 to 4 origins with 1 to 3 sections each, and the order of up to 300 events. One
/// rank dies if `dies`.
pub fn scenarios(dies: bool) -> impl Strategy<Value = Scenario> {
    cases(round(false), dies)
}

/// The same for any kind of section.
pub(crate) fn cases<S: fmt::Debug>(
    section: impl Strategy<Value = S>,
    dies: bool,
) -> impl Strategy<Value = Scenario<S>> {
    let programs = vec(vec(section, 1..4), 2..5);
    (programs, vec(any::<u8>(), 0..300), (0..4_usize, 0..100_usize)).prop_map(
        move |(programs, schedule, (rank, when))| {
            let death = dies.then_some(Plan { rank: rank % programs.len(), when });
            Scenario { programs, schedule, death }
        },
    )
}

/// A random search: generated programs, schedules and deaths, run on a lock and shrunk on a
/// violation. Or, as [`Linearizability`](crate::Linearizability), generated sections on data.
#[derive(Clone, Debug)]
#[must_use = "a search does nothing until it is run"]
pub struct Search<A> {
    lock: A,
    sections: Sections,
    setting: Setting,
    dies: bool,
    cases: u32,
    seed: Option<u64>,
}

/// The sections of a search.
#[derive(Clone, Copy, Debug)]
enum Sections {
    /// Those of programs.
    Programs,
    /// Those of histories, and whether each release waits for the writes.
    Histories { flushes: bool },
}

impl<A: LockAlgorithm + Clone> Search<A> {
    /// The environment variable with the seed that repeats a search.
    pub const SEED: &str = "LOCK_KIT_SEED";

    /// A search for violations by this lock, in 1000 cases without deaths.
    pub fn of(lock: &A) -> Self {
        let (lock, setting) = (lock.clone(), Setting::USUAL);
        Self { lock, sections: Sections::Programs, setting, dies: false, cases: 1000, seed: None }
    }

    /// Searches for a history that is not [linearizable](crate::Linearizability) instead.
    pub(crate) fn histories(self) -> Self {
        Self { sections: Sections::Histories { flushes: true }, ..self }
    }

    /// The sections of a [`Linearizability`](crate::Linearizability) release without a flush: wrong
    /// on purpose.
    pub fn without_flush(self) -> Self {
        Self { sections: Sections::Histories { flushes: false }, ..self }
    }

    /// In each case one rank dies, at any event, with its operations in flight.
    pub fn deaths(self) -> Self {
        Self { dies: true, ..self }
    }

    /// The same with a rank that leaves in order, wherever its tasks are, instead of dying.
    pub fn leaves(self) -> Self {
        Self { dies: true, setting: Setting { leaves: true, ..self.setting }, ..self }
    }

    setters! {
        /// The number of cases.
        cases: u32,
        /// The setting of the cases.
        setting: Setting,
        /// Repeats the same cases. Without a seed the cases differ each time, unless the environment
        /// has one.
        seed: u64,
    }

    /// Runs the search.
    ///
    /// # Panics
    /// On a violation. The message has the smallest failing case, the operations that took effect
    /// in it, and the seed.
    #[track_caller]
    pub fn run(&self) {
        if let Err(violation) = self.verdict() {
            panic!("{violation}");
        }
    }

    /// Runs the search and returns the result.
    ///
    /// # Errors
    /// The message with which [`run`](Self::run) panics.
    pub fn verdict(&self) -> Result<(), String> {
        let Self { lock, setting, dies, .. } = self;
        match self.sections {
            Sections::Programs => {
                let run = |case: &Scenario| run(*setting, lock, case).map(drop);
                self.among(cases(round(setting.leaves), *dies), Section::is_cancelled, run)
            }
            Sections::Histories { flushes } => {
                let run = |case: &_| run_sections(*setting, flushes, lock, case);
                self.among(sections(*dies), |section: &DataSection| section.cancelled.is_some(), run)
            }
        }
    }

    /// Searches among the cases that keep below the number of owners, while there is time.
    fn among<S: Clone + fmt::Debug>(
        &self,
        all: impl Strategy<Value = Scenario<S>>,
        is_cancelled: fn(&S) -> bool,
        run: impl Fn(&Scenario<S>) -> Result<(), String>,
    ) -> Result<(), String> {
        let seed = self.seed.unwrap_or_else(Self::any_seed);
        let few = all.prop_map(few(self.setting.owners, is_cancelled));
        let run = |case: &_| {
            if self.setting.is_over() {
                return Ok(());
            }
            tried(1);
            run(case)
        };
        search_among(seed, self.cases, few, &run).map_err(|found| {
            let (name, variable, Found { reason, minimal }) = (A::NAME, Self::SEED, *found);
            format!("{name}: {reason} in {minimal:?}\n again: {variable}={seed} in the environment of this test")
        })
    }

    /// The environment's seed, or a random one from the process's hash keys.
    fn any_seed() -> u64 {
        use std::hash::{BuildHasher, RandomState};
        let given = std::env::var(Self::SEED).ok().and_then(|seed| seed.parse().ok());
        given.unwrap_or_else(|| RandomState::new().hash_one(0))
    }
}

/// Cuts the programs of a case to what so few owners do ([`Setting::owners`]).
fn few<S>(owners: u32, is_cancelled: fn(&S) -> bool) -> impl Fn(Scenario<S>) -> Scenario<S> {
    move |mut case| {
        if owners < u32::MAX {
            case.programs.truncate(owners as usize);
            for program in &mut case.programs {
                let alone = program.iter().position(is_cancelled).map_or(program.len(), |first| first + 1);
                program.truncate(alone);
            }
            case.death = case.death.map(|plan| Plan { rank: plan.rank % case.programs.len(), ..plan });
        }
        case
    }
}

/// The result of a search.
#[derive(Debug)]
pub struct Found<S = Scenario> {
    /// The violation.
    pub reason: String,
    /// The smallest failing case.
    pub minimal: S,
}

/// Searches these cases with a custom runner, for settings that vary with the case.
///
/// # Errors
/// The violation.
pub fn search(
    seed: u64,
    cases: u32,
    dies: bool,
    run: impl Fn(&Scenario) -> Result<(), String>,
) -> Result<(), Box<Found>> {
    search_among(seed, cases, scenarios(dies), &run)
}

/// The same for any kind of case. One copy of proptest's code for each: `run` is a trait object.
fn search_among<S: Strategy>(
    seed: u64,
    cases: u32,
    among: S,
    run: &dyn Fn(&S::Value) -> Result<(), String>,
) -> Result<(), Box<Found<S::Value>>> {
    let mut bytes = [0; 32];
    bytes[..8].copy_from_slice(&seed.to_le_bytes());
    let rng = TestRng::from_seed(RngAlgorithm::ChaCha, &bytes);
    let config =
        ProptestConfig { cases, max_shrink_iters: 4000, failure_persistence: None, ..ProptestConfig::default() };
    match TestRunner::new_with_rng(config, rng).run(&among, |case| run(&case).map_err(TestCaseError::fail)) {
        Ok(()) => Ok(()),
        Err(TestError::Fail(reason, minimal)) => Err(Box::new(Found { reason: reason.message().into(), minimal })),
        Err(TestError::Abort(reason)) => panic!("the search was aborted: {reason}"),
    }
}
