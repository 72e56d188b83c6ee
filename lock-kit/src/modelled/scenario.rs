//! One run, wholly determined.

use std::pin::pin;
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, Waker};

use lock_algos::{LockAlgorithm, Mode};
use remote_memory::{Fault, FaultKind, Rank};

use super::{ModelMemory, Posted};
use crate::program::{self, LOCK, Round, Slots, Task, lock_and_data};
use crate::record::{Record, Stage};
use crate::trace::{Action, Trace};

/// One run, wholly determined.
#[derive(Clone, Debug)]
pub struct Scenario {
    /// One origin each.
    pub programs: Vec<Vec<Round>>,
    /// Which of the possible events is next; when it is used up, always the oldest.
    pub schedule: Vec<u8>,
    /// Who dies, if anybody does.
    pub death: Option<Plan>,
}

/// How somebody dies.
#[derive(Clone, Copy, Debug)]
pub struct Plan {
    /// Whose end.
    pub rank: usize,
    /// After how many events.
    pub when: usize,
    /// How many of its last operations never take effect.
    pub lost: usize,
}

/// More events than any run needs: the longest have some hundreds.
const ENDLESS: usize = 2_000;

/// What a scenario runs in.
#[derive(Clone, Copy, Debug)]
pub struct Setting {
    /// What the memory does instead of what it is asked to.
    pub bend: Option<fn(Action) -> Action>,
    /// The first word of the free lock.
    pub lock: u64,
    /// Whether owners have nodes.
    pub nodes: bool,
    /// Whether the others' nodes always seem idle.
    pub deaf: bool,
    /// Whether no wait ends by its deadline, as if time stood still: then a wake-up that is lost is a wait for ever. Not where
    /// somebody dies.
    pub timeless: bool,
}

impl Setting {
    /// Nothing bent, nodes, and a lock of zeros.
    pub const USUAL: Self = Self { bend: None, lock: 0, nodes: true, deaf: false, timeless: false };
}

/// What happened.
#[derive(Clone, Debug)]
pub struct History {
    /// How much was posted.
    pub posted: Posted,
    /// What took effect.
    pub trace: Trace,
    /// Who entered.
    pub order: Vec<(Rank, Mode)>,
}

/// Runs a scenario and says what happened.
///
/// # Errors
/// What went wrong, and the operations that took effect.
pub fn run<A: LockAlgorithm + Clone>(setting: Setting, lock: &A, scenario: &Scenario) -> Result<History, String> {
    let slots = Slots { nodes: setting.nodes, deaf: setting.deaf, ..Slots::of(&scenario.programs) };
    let memory = ModelMemory::new(scenario.programs.len(), program::region_words::<A>(slots));
    memory.net().bend = setting.bend;
    memory.net().timeless = setting.timeless;
    memory.net().words[LOCK] = setting.lock;
    run_over(setting, lock, scenario, &memory, slots)
        .map_err(|violation| format!("{violation}; what took effect:\n{}", memory.net().trace))
}

fn run_over<A: LockAlgorithm + Clone>(
    setting: Setting,
    algorithm: &A,
    scenario: &Scenario,
    memory: &ModelMemory,
    slots: Slots,
) -> Result<History, String> {
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
    Ok(History { posted: net.posted, trace: net.trace.clone(), order: record.order() })
}

/// How a rank died.
#[derive(Debug)]
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

/// Runs one future, the events in order.
///
/// # Panics
/// If it waits for ever.
pub fn drive<T>(memory: &ModelMemory, future: impl Future<Output = T>) -> T {
    let mut future = pin!(future);
    loop {
        if let Poll::Ready(value) = future.as_mut().poll(&mut Context::from_waker(Waker::noop())) {
            return value;
        }
        assert!(memory.net().step(None), "waits for ever");
    }
}
