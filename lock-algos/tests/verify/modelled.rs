//! Programs, schedules and deaths made up by proptest, against the sequential model.

use std::pin::pin;
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, Waker};

use lock_algos::{Backoff, LockAlgorithm, Mode, Owner, TestAndSet};
use proptest::collection::vec;
use proptest::prelude::*;
use proptest::test_runner::{RngAlgorithm, TestError, TestRng, TestRunner};
use remote_memory::{Fault, FaultKind, Rank};

use crate::model_memory::{ModelMemory, Posted};
use crate::program::{self, Ending, Ground, Round, Task, lock_and_data};
use crate::record::{Record, Stage};
use crate::wrong::{Flaw, Wrong, right};

/// One run, wholly determined.
#[derive(Clone, Debug)]
struct Scenario {
    /// One origin each.
    programs: Vec<Vec<Round>>,
    /// Which of the possible events is next; when it is used up, always the oldest.
    schedule: Vec<u8>,
    /// Which rank dies after how many events.
    death: Option<(usize, usize)>,
}

/// More events than any run needs: the longest have some hundreds.
const ENDLESS: usize = 2_000;

/// Runs a scenario and says what was violated, if anything was, else what was posted.
fn run<A: LockAlgorithm + Clone>(algorithm: &A, scenario: &Scenario) -> Result<Posted, String> {
    let memory = ModelMemory::new(scenario.programs.len(), program::region_words::<A>());
    let record = Arc::new(Record::default());
    let adopted: Arc<Mutex<Vec<(usize, Task)>>> = Arc::default();
    let algorithm = Arc::new(algorithm.clone());
    let mut tasks: Vec<(usize, Task)> = Vec::new();
    for (rank, rounds) in scenario.programs.iter().enumerate() {
        let (memory, algorithm, record) = (memory.of(rank), Arc::clone(&algorithm), Arc::clone(&record));
        let (rounds, adopted) = (rounds.clone(), Arc::clone(&adopted));
        let adopt = move |task| adopted.lock().unwrap().push((rank, task));
        tasks.push((rank, Box::pin(program::run(memory, algorithm, rounds, record, adopt))));
    }

    let mut schedule = scenario.schedule.iter();
    let mut death = None;
    let mut events = 0;
    while events < ENDLESS {
        if let Some((rank, _)) = scenario.death.filter(|(_, when)| *when == events) {
            let rank = Rank(rank as u32);
            let (stages, entered) = (record.stages_of(rank), record.entered().len());
            death = Some(Death { rank, stages, posted: memory.net().travels_from(rank), entered });
            memory.net().kill(rank);
            tasks.retain(|(of, _)| *of != rank.index());
        }
        tasks.retain_mut(|(_, task)| task.as_mut().poll(&mut Context::from_waker(Waker::noop())).is_pending());
        tasks.append(&mut adopted.lock().unwrap());
        if !memory.net().step(schedule.next().map_or(0, |choice| usize::from(*choice))) {
            break;
        }
        events += 1;
    }

    if !tasks.is_empty() {
        return Err(format!("{} wait for ever, after {events} events", tasks.len()));
    }
    match death {
        None => {
            let home = memory.region();
            let (lock, data) = lock_and_data::<A>(&home);
            record.check_end(lock, data)?;
        }
        Some(death) => death.check(&record)?,
    }
    let posted = memory.net().posted;
    Ok(posted)
}

/// How a rank died.
struct Death {
    rank: Rank,
    /// Where it was.
    stages: Vec<Stage>,
    /// Whether operations of it still travelled: a release that it did not wait for.
    posted: bool,
    /// How many acquires had succeeded by then, of all ranks.
    entered: usize,
}

impl Death {
    /// What must hold at the end.
    fn check(&self, record: &Record) -> Result<(), String> {
        if let Some(violation) = record.violation() {
            return Err(violation);
        }
        let faults = record.faults();
        let owner_died = Fault::of(FaultKind::OwnerDied, self.rank);
        let member_died = Fault::of(FaultKind::MemberDied, self.rank);
        if let Some(other) = faults.iter().find(|fault| ![owner_died, member_died].contains(fault)) {
            return Err(format!("neither owner nor member died, but {other}"));
        }

        let entered_later = &record.entered()[self.entered..];
        if self.stages.contains(&Stage::Inside(Mode::Exclusive)) {
            if !entered_later.is_empty() || faults.contains(&member_died) {
                return Err(format!("the owner died, yet {entered_later:?} entered or {faults:?} blames a reader"));
            }
        } else if self.stages.contains(&Stage::Inside(Mode::Shared)) {
            if entered_later.contains(&Mode::Exclusive) || faults.contains(&owner_died) {
                return Err(format!("a reader died, yet {entered_later:?} entered or {faults:?} blames an owner"));
            }
        } else if self.stages.is_empty() && !self.posted && faults.contains(&owner_died) {
            return Err("blames a rank that had released before it died".into());
        }
        Ok(())
    }
}

fn round() -> impl Strategy<Value = Round> {
    let mode = prop_oneof![2 => Just(Mode::Exclusive), 1 => Just(Mode::Shared)];
    let ending = prop_oneof![4 => Just(Ending::Released), 2 => Just(Ending::Detached), 1 => Just(Ending::Abandoned)];
    (mode, 0_u8..3, 0_u8..3, ending).prop_map(|(mode, early, touches, ending)| Round { mode, early, touches, ending })
}

fn scenario(dies: bool) -> impl Strategy<Value = Scenario> {
    (vec(vec(round(), 1..4), 2..5), vec(any::<u8>(), 0..200), 0..4_usize, 0..100_usize).prop_map(
        move |(programs, schedule, rank, when)| {
            let death = dies.then_some((rank % programs.len(), when));
            Scenario { programs, schedule, death }
        },
    )
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 2000, max_shrink_iters: 1000, ..ProptestConfig::default() })]

    #[test]
    fn excludes_and_ends(scenario in scenario(false)) {
        run(&right(), &scenario).map_err(TestCaseError::fail)?;
    }

    #[test]
    fn excludes_and_ends_without_backoff(scenario in scenario(false)) {
        run(&TestAndSet::new(Backoff::disabled()), &scenario).map_err(TestCaseError::fail)?;
    }

    #[test]
    fn a_death_ends_in_faults_that_name_it(scenario in scenario(true)) {
        run(&right(), &scenario).map_err(TestCaseError::fail)?;
    }
}

#[test]
fn uncontended_costs_two_operations() {
    for (round, expected) in [
        (Round::EXCLUSIVE, Posted { compare_swaps: 1, writes: 1, ..Posted::default() }),
        (Round::SHARED, Posted { compare_swaps: 1, fetch_adds: 1, ..Posted::default() }),
    ] {
        let programs = vec![vec![Round { touches: 0, ..round }]];
        assert_eq!(run(&right(), &Scenario { programs, schedule: vec![], death: None }), Ok(expected));
    }
}

#[test]
fn a_shared_release_without_a_shared_lock_is_told() {
    let owner = Owner { rank: Rank(0), slot: 0, generation: 0 };
    for held in [None, Some(Mode::Exclusive)] {
        let memory = ModelMemory::new(1, program::region_words::<TestAndSet>());
        let algorithm = right();
        let released = async {
            let words = algorithm.words(&Ground::<_, TestAndSet>::new(&memory, owner))?;
            if let Some(mode) = held {
                algorithm.finish(&memory, words, mode, algorithm.start(&memory, words, mode), || true).await?;
            }
            let started = algorithm.start_release(&memory, words, Mode::Shared);
            algorithm.finish_release(&memory, words, Mode::Shared, started).await
        };
        assert_eq!(drive(&memory, released), Err(Fault::new(FaultKind::NotHeld)));
    }
}

/// Runs one future, the events in order.
fn drive<T>(memory: &ModelMemory, future: impl Future<Output = T>) -> T {
    let mut future = pin!(future);
    loop {
        if let Poll::Ready(value) = future.as_mut().poll(&mut Context::from_waker(Waker::noop())) {
            return value;
        }
        assert!(memory.net().step(0), "waits for ever");
    }
}

#[test]
fn wrong_locks_are_caught() {
    for (flaw, dies, expected) in [
        (Flaw::ReadThenWrite, false, "exclusion"),
        (Flaw::ReaderIgnoresOwner, false, "exclusion"),
        (Flaw::ReaderFreesAll, false, "exclusion"),
        (Flaw::ForgetsRelease, false, "wait for ever"),
        (Flaw::WaitsForTheDead, true, "wait for ever"),
        (Flaw::AccusesTheDead, true, "released before it died"),
    ] {
        // Always the same seed: this test asks whether the search bites, not whether it is lucky.
        let rng = TestRng::deterministic_rng(RngAlgorithm::ChaCha);
        let config = ProptestConfig {
            cases: 4000,
            max_shrink_iters: 1000,
            failure_persistence: None,
            ..ProptestConfig::default()
        };
        let found = TestRunner::new_with_rng(config, rng).run(&scenario(dies), |scenario| {
            run(&Wrong::new(flaw), &scenario).map_err(TestCaseError::fail)?;
            Ok(())
        });
        let Err(TestError::Fail(reason, minimal)) = found else { panic!("{flaw:?} passed: {found:?}") };
        assert!(reason.message().contains(expected), "{flaw:?}: {reason}");
        let size = minimal.programs.iter().flatten().count() + minimal.schedule.len();
        assert!(size <= 40, "{flaw:?} was hardly shrunk: {minimal:?}");
    }
}
