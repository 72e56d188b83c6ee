//! Programs, schedules and deaths made up by proptest, against the sequential model.

use std::pin::pin;
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, Waker};

use lock_algos::{Backoff, LockAlgorithm, Mode, Owner, TestAndSet, Wish};
use proptest::collection::vec;
use proptest::prelude::*;
use proptest::test_runner::{RngAlgorithm, TestError, TestRng, TestRunner};
use remote_memory::{Fault, FaultKind, Rank};

use crate::model_memory::{Action, ModelMemory, Posted};
use crate::program::{self, Ending, Ground, Manner, Round, Slots, Task, lock_and_data};
use crate::record::{Record, Stage};
use crate::wrong::{Flaw, Wrong, mcs, right};

/// One run, wholly determined.
#[derive(Clone, Debug)]
pub(crate) struct Scenario {
    /// One origin each.
    pub(crate) programs: Vec<Vec<Round>>,
    /// Which of the possible events is next; when it is used up, always the oldest.
    pub(crate) schedule: Vec<u8>,
    pub(crate) death: Option<Plan>,
}

/// How somebody dies.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Plan {
    rank: usize,
    /// After how many events.
    when: usize,
    /// How many of its last operations never take effect.
    lost: usize,
}

/// More events than any run needs: the longest have some hundreds.
const ENDLESS: usize = 2_000;

/// What a scenario runs in.
#[derive(Clone, Copy)]
pub(crate) struct Setting {
    /// What the memory does instead of what it is asked to.
    pub(crate) bend: Option<fn(Action) -> Action>,
    /// The first word of the free lock.
    pub(crate) lock: u64,
    /// Whether owners have nodes.
    pub(crate) nodes: bool,
    /// Whether the others' nodes always seem idle.
    pub(crate) deaf: bool,
}

impl Setting {
    pub(crate) const USUAL: Self = Self { bend: None, lock: 0, nodes: true, deaf: false };
}

/// What happened.
pub(crate) struct History {
    pub(crate) posted: Posted,
    /// What was added by fetch-adds, and by whom.
    pub(crate) added: Vec<(Rank, u64)>,
    /// Who entered.
    pub(crate) order: Vec<(Rank, Mode)>,
}

/// Runs a scenario and says what was violated, if anything was, else what was posted.
pub(crate) fn run<A: LockAlgorithm + Clone>(algorithm: &A, scenario: &Scenario) -> Result<Posted, String> {
    run_in(Setting::USUAL, algorithm, scenario).map(|history| history.posted)
}

/// The same in another setting.
pub(crate) fn run_in<A: LockAlgorithm + Clone>(
    setting: Setting,
    algorithm: &A,
    scenario: &Scenario,
) -> Result<History, String> {
    let slots = Slots { nodes: setting.nodes, deaf: setting.deaf, ..program::slots_of(&scenario.programs) };
    let memory = ModelMemory::new(scenario.programs.len(), program::region_words::<A>(slots));
    memory.net().bend = setting.bend;
    memory.net().words[program::LOCK] = setting.lock;
    let record = Arc::new(Record::default());
    let adopted: Arc<Mutex<Vec<(usize, Task)>>> = Arc::default();
    let algorithm = Arc::new(algorithm.clone());
    let origin = |rank: usize, rounds: &[Round]| -> (usize, Task) {
        let (memory, algorithm, record) = (memory.of(rank), Arc::clone(&algorithm), Arc::clone(&record));
        let (rounds, adopted) = (rounds.to_vec(), Arc::clone(&adopted));
        let adopt = move |task| adopted.lock().unwrap().push((rank, task));
        (rank, Box::pin(program::run(memory, algorithm, slots, rounds, record, adopt)))
    };
    let mut tasks: Vec<_> = (0..).zip(&scenario.programs).map(|(rank, rounds)| origin(rank, rounds)).collect();

    let mut schedule = scenario.schedule.iter();
    let mut death = None;
    let mut probed = false;
    let mut events = 0;
    while events < ENDLESS {
        if let Some(plan) = scenario.death.filter(|plan| plan.when == events) {
            let rank = Rank(plan.rank as u32);
            let (stages, entered) = (record.stages_of(rank), record.entered().len());
            death = Some(Death { rank, stages, posted: memory.net().travels_from(rank), entered });
            record.dies(rank);
            memory.net().kill(rank, plan.lost);
            tasks.retain(|(of, _)| *of != plan.rank);
        }
        tasks.retain_mut(|(_, task)| task.as_mut().poll(&mut Context::from_waker(Waker::noop())).is_pending());
        tasks.append(&mut adopted.lock().unwrap());
        if !memory.net().step(schedule.next().map(|choice| usize::from(*choice))) {
            // At the end a survivor shows that the lock can be had.
            let Some(death) = death.as_ref().filter(|_| tasks.is_empty() && !probed) else { break };
            probed = true;
            tasks.push(origin((death.rank.index() + 1) % scenario.programs.len(), &[Round::EXCLUSIVE]));
        }
        events += 1;
    }

    if !tasks.is_empty() {
        return Err(format!("{} wait for ever, after {events} events", tasks.len()));
    }
    let home = memory.region();
    let (lock, data) = lock_and_data::<A>(&home);
    match death {
        None => record.check_end::<A>(lock, data)?,
        Some(death) if setting.nodes => death.check::<A>(&record, lock)?,
        Some(death) => death.check_without_nodes::<A>(&record, lock)?,
    }
    let dead = |rank: usize| scenario.death.is_some_and(|plan| plan.rank == rank);
    for rank in (0..scenario.programs.len()).filter(|rank| !dead(*rank)) {
        if !program::idle::<A>(&memory.of(rank).region()) {
            return Err(format!("rank {rank} counts at the end"));
        }
    }
    let net = memory.net();
    Ok(History { posted: net.posted, added: net.added.clone(), order: record.order() })
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
    fn check<A: LockAlgorithm>(&self, record: &Record, lock: &[u64]) -> Result<(), String> {
        if let Some(violation) = record.violation() {
            return Err(violation);
        }
        if !A::is_free(lock) {
            return Err(format!("the lock is not free at the end: {lock:x?}"));
        }
        let entered = record.entered();
        let (before, after) = entered.split_at(self.entered);
        let named = [FaultKind::OwnerDied, FaultKind::MemberDied].map(|kind| Some(Fault::of(kind, self.rank)));
        if let Some(other) = entered.iter().find(|(_, inherited)| inherited.is_some() && !named.contains(inherited)) {
            return Err(format!("inherited {other:?}"));
        }
        let heir = after.iter().position(|(_, inherited)| inherited.is_some());
        let inside = |mode| self.stages.contains(&Stage::Inside(mode));
        let overtakes = |mode: Option<Mode>| {
            let before = &after[..heir.unwrap_or(after.len())];
            before.iter().any(|(entered, _)| mode.is_none_or(|mode| *entered == mode))
        };
        let missed = if before.iter().any(|(_, inherited)| inherited.is_some()) {
            Some("inherited before the death")
        } else if heir.is_none() && (inside(Mode::Exclusive) || inside(Mode::Shared)) {
            Some("nobody inherits")
        } else if inside(Mode::Exclusive) && overtakes(None) {
            Some("somebody came before the heir of an owner")
        } else if inside(Mode::Shared) && overtakes(Some(Mode::Exclusive)) {
            Some("an owner came before the heir of a reader")
        } else if heir.is_some() && self.stages.is_empty() && !self.posted {
            Some("inherited from who had released")
        } else {
            None
        };
        missed.map_or(Ok(()), |what| Err(format!("{what}: {after:?}")))
    }

    /// What must hold at the end where nobody can take the lock from the dead.
    fn check_without_nodes<A: LockAlgorithm>(&self, record: &Record, lock: &[u64]) -> Result<(), String> {
        if let Some(violation) = record.violation() {
            return Err(violation);
        }
        let entered = record.entered();
        let after = &entered[self.entered..];
        let inside = |mode| self.stages.contains(&Stage::Inside(mode));
        if entered.iter().any(|(_, inherited)| inherited.is_some()) {
            Err(format!("inherited: {entered:?}"))
        } else if inside(Mode::Exclusive) && !after.is_empty()
            || inside(Mode::Shared) && after.iter().any(|(mode, _)| *mode == Mode::Exclusive)
        {
            Err(format!("somebody came in with the dead: {after:?}"))
        } else if self.stages.is_empty() && !self.posted && (after.is_empty() || !A::is_free(lock)) {
            Err(format!("the lock does not work though nobody was dead there: {lock:x?}, {after:?}"))
        } else {
            Ok(())
        }
    }
}

fn round() -> impl Strategy<Value = Round> {
    let mode = prop_oneof![2 => Just(Mode::Exclusive), 1 => Just(Mode::Shared)];
    let ending = prop_oneof![4 => Just(Ending::Released), 2 => Just(Ending::Detached), 1 => (0_u8..5).prop_map(|asked| Ending::Abandoned { asked })];
    let manner = prop_oneof![6 => Just(Manner::Usual), 1 => Just(Manner::WithoutNode), 1 => Just(Manner::Try)];
    (mode, 0_u8..3, 0_u8..3, ending, manner).prop_map(|(mode, early, touches, ending, manner)| Round {
        mode,
        early,
        touches,
        ending,
        manner,
    })
}

pub(crate) fn scenario(dies: bool) -> impl Strategy<Value = Scenario> {
    (vec(vec(round(), 1..4), 2..5), vec(any::<u8>(), 0..200), (0..4_usize, 0..100_usize, 0..3_usize)).prop_map(
        move |(programs, schedule, (rank, when, lost))| {
            let death = dies.then_some(Plan { rank: rank % programs.len(), when, lost });
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
    fn a_death_is_told_to_the_heir(scenario in scenario(true)) {
        run(&right(), &scenario).map_err(TestCaseError::fail)?;
    }

    #[test]
    fn mcs_excludes_and_ends(scenario in scenario(false)) {
        run(&mcs(), &scenario).map_err(TestCaseError::fail)?;
    }

    #[test]
    fn mcs_tells_a_death_to_the_heir(scenario in scenario(true)) {
        run(&mcs(), &scenario).map_err(TestCaseError::fail)?;
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
fn mcs_costs_two_operations_uncontended_and_one_write_to_hand_over() {
    let run = |programs: &[&[Round]]| {
        let programs = programs.iter().map(|rounds| rounds.to_vec()).collect();
        run(&mcs(), &Scenario { programs, schedule: vec![], death: None })
    };
    let quiet = Round { touches: 0, ..Round::EXCLUSIVE };
    assert_eq!(run(&[&[quiet]]), Ok(Posted { compare_swaps: 2, ..Posted::default() }));
    let shared = Round { mode: Mode::Shared, ..quiet };
    assert_eq!(run(&[&[shared]]), Ok(Posted { compare_swaps: 1, fetch_adds: 1, ..Posted::default() }));
    // The other one swaps itself in at its second attempt and links itself; it is granted the lock, and frees it.
    let busy = Round { touches: 3, ..Round::EXCLUSIVE };
    let alone = run(&[&[busy]]).unwrap();
    let both = run(&[&[busy], &[quiet]]).unwrap();
    let more = Posted { compare_swaps: alone.compare_swaps + 2, writes: alone.writes + 2, waits: 1, ..alone };
    assert_eq!(both, more);
}

#[test]
fn a_release_without_a_lock_is_told_and_harms_nothing() {
    let owner = Owner { rank: Rank(0), slot: 0, generation: 0 };
    let stranger = Owner { slot: 1, ..owner };
    let slots = Slots { each: 2, nodes: true, deaf: false, tallied: false };
    for held in [None, Some(Mode::Exclusive), Some(Mode::Shared)] {
        let memory = ModelMemory::new(1, program::region_words::<TestAndSet>(slots));
        let algorithm = right();
        let released = async {
            let place = Ground::<_, TestAndSet>::new(&memory, owner, slots);
            if let Some(mode) = held {
                let words = algorithm.words(place)?;
                algorithm
                    .finish(&memory, place, words, mode, algorithm.start(&memory, place, words, mode)?, || Wish::LOCK)
                    .await?;
            }
            let before = memory.region();
            let place = Ground::<_, TestAndSet>::new(&memory, stranger, slots);
            let words = algorithm.words(place)?;
            let outcome = algorithm.start_release(&memory, place, words, Mode::Shared).map(drop);
            assert_eq!(memory.region(), before);
            outcome
        };
        assert_eq!(drive(&memory, released), Err(Fault::new(FaultKind::NotHeld)), "{held:?}");
    }
}

/// Runs one future, the events in order.
pub(crate) fn drive<T>(memory: &ModelMemory, future: impl Future<Output = T>) -> T {
    let mut future = pin!(future);
    loop {
        if let Poll::Ready(value) = future.as_mut().poll(&mut Context::from_waker(Waker::noop())) {
            return value;
        }
        assert!(memory.net().step(None), "waits for ever");
    }
}

#[test]
fn wrong_locks_are_caught() {
    for (flaw, dies, expected) in [
        (Flaw::ReadThenWrite, false, "exclusion"),
        (Flaw::ReaderIgnoresOwner, false, ""),
        (Flaw::ReaderFreesAll, false, "exclusion"),
        (Flaw::ForgetsRelease, false, "wait for ever"),
        (Flaw::WaitsForTheDead, true, "wait for ever"),
        (Flaw::TakesFromDeadReadersAtOnce, true, ""),
    ] {
        expect_caught(&format!("{flaw:?}"), dies, expected, |scenario| run(&Wrong::new(flaw), scenario));
    }
}

/// The queue lock where an operation is left out or does too much.
#[test]
fn wrong_queue_locks_are_caught() {
    const HOME_ALONE: u64 = 1 << 62;
    const FROZEN: u64 = 1 << 63;
    const MARKED: u64 = 1 << 63;
    const READING: u64 = 1 << 62;
    /// Its name, what it does, whether somebody dies, and what is found.
    type Bend = (&'static str, fn(Action) -> Action, bool, &'static str);
    let bends: [Bend; 7] = [
        (
            "frees by a write",
            |action| match action {
                Action::CompareSwap(expected, 0) if expected & HOME_ALONE != 0 => Action::Write(0),
                other => other,
            },
            false,
            "",
        ),
        (
            "no link",
            |action| match action {
                Action::Write(link) if link & MARKED != 0 && link & !MARKED & !READING & !0x3ff_ffff != 0 => {
                    Action::Read
                }
                other => other,
            },
            false,
            "wait for ever",
        ),
        (
            "no grant",
            |action| match action {
                Action::Write(grant) if grant & MARKED != 0 && grant & !MARKED & !READING & !0x3ff_ffff == 0 => {
                    Action::Read
                }
                other => other,
            },
            false,
            "wait for ever",
        ),
        (
            "a grant without generation",
            |action| match action {
                Action::Write(grant) if grant & MARKED != 0 && grant & !MARKED & !READING & !0x3ff_ffff == 0 => {
                    Action::Write(MARKED)
                }
                other => other,
            },
            false,
            "",
        ),
        (
            "a reader who does not count",
            |action| match action {
                Action::FetchAdd(add) if add == 1 << 36 => Action::Read,
                other => other,
            },
            false,
            "",
        ),
        (
            "no freezing",
            |action| match action {
                Action::CompareSwap(_, new) if new & FROZEN != 0 => Action::Read,
                other => other,
            },
            true,
            "wait for ever",
        ),
        (
            "who comes last forgets the readers",
            |action| match action {
                Action::CompareSwap(expected, new) if new & HOME_ALONE != 0 && expected & FROZEN == 0 => {
                    Action::CompareSwap(expected, new & !(0xff_ffff << 36))
                }
                other => other,
            },
            false,
            "",
        ),
    ];
    for (flaw, bend, dies, expected) in bends {
        expect_caught(flaw, dies, expected, |scenario| {
            run_in(Setting { bend: Some(bend), ..Setting::USUAL }, &mcs(), scenario)
        });
    }
}

/// A search for what is wrong with a lock finds it.
pub(crate) fn expect_caught<T>(flaw: &str, dies: bool, expected: &str, run: impl Fn(&Scenario) -> Result<T, String>) {
    // Always the same seed: this asks whether the search bites, not whether it is lucky.
    let rng = TestRng::deterministic_rng(RngAlgorithm::ChaCha);
    let config =
        ProptestConfig { cases: 4000, max_shrink_iters: 4000, failure_persistence: None, ..ProptestConfig::default() };
    let found = TestRunner::new_with_rng(config, rng).run(&scenario(dies), |scenario| {
        run(&scenario).map_err(TestCaseError::fail)?;
        Ok(())
    });
    let Err(TestError::Fail(reason, minimal)) = found else { panic!("{flaw} passed: {found:?}") };
    assert!(reason.message().contains(expected), "{flaw}: {reason}");
    let size = minimal.programs.iter().flatten().count() + minimal.schedule.len();
    assert!(size <= 190, "{flaw} was hardly shrunk: {minimal:?}");
}
