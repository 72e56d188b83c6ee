//! One deterministic run.

use std::pin::{Pin, pin};
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, Waker};

use onesided_lock_algos::{LockAlgorithm, Mode};
use onesided_remote_memory::{Fault, Rank, RemoteMemory};

use super::{ModelMemory, Posted};
use crate::program::{self, LOCK, Layout, Section, Slots, Task, lock_and_data};
use crate::record::Record;
use crate::trace::{Action, Trace};

/// One deterministic run.
#[derive(Clone, Debug)]
pub struct Scenario {
    /// The program of each origin.
    pub programs: Vec<Vec<Section>>,
    /// The choices among the possible events; after the last one, the oldest event is next.
    pub schedule: Vec<u8>,
    /// The death of a rank, if any.
    pub death: Option<Plan>,
}

/// The death of a rank.
#[derive(Clone, Copy, Debug)]
pub struct Plan {
    /// The rank that dies. For a served lock rank 1 instead of rank 0, which is the server's.
    pub rank: usize,
    /// The number of events before it.
    pub when: usize,
    /// How many of its last operations never take effect.
    pub lost: usize,
}

/// More events than any run needs: the longest have some hundreds.
const ENDLESS: usize = 2_000;

/// The setting of a scenario.
#[derive(Clone, Copy, Debug)]
pub struct Setting {
    /// Mutates the operations of the memory.
    pub mutate: Option<fn(Action) -> Action>,
    /// The first word of the free lock.
    pub lock: u64,
    /// Whether the others' nodes always appear idle.
    pub blind: bool,
    /// Whether no wait ends by its deadline, as if time stood still: a lost wake-up is then a wait
    /// without end. Not with deaths.
    pub timeless: bool,
    /// How many ranks share a host.
    pub per_host: u32,
}

impl Setting {
    /// No mutation, and a lock of zeros.
    pub const USUAL: Self = Self { mutate: None, lock: 0, blind: false, timeless: false, per_host: 2 };
}

/// The history of a run.
#[derive(Clone, Debug)]
pub struct History {
    /// The posted operations.
    pub posted: Posted,
    /// The operations that took effect.
    pub trace: Trace,
    /// The successful acquires.
    pub order: Vec<(Rank, Mode)>,
}

/// Runs a scenario and returns its history.
///
/// # Errors
/// The violation, and the operations that took effect.
pub fn run<A: LockAlgorithm + Clone>(setting: Setting, lock: &A, scenario: &Scenario) -> Result<History, String> {
    let Setting { blind, per_host, .. } = setting;
    let slots = Slots { blind, per_host, ..Slots::of(&scenario.programs) };
    let memory = ModelMemory::new(scenario.programs.len(), program::region_words::<A>(slots));
    memory.net().mutate = setting.mutate;
    memory.net().timeless = setting.timeless;
    memory.net().words[LOCK] = setting.lock;
    run_over(lock, scenario, &memory, slots)
        .map_err(|violation| format!("{violation}; operations in effect:\n{}", memory.net().trace))
}

fn run_over<A: LockAlgorithm + Clone>(
    algorithm: &A,
    scenario: &Scenario,
    memory: &ModelMemory,
    slots: Slots,
) -> Result<History, String> {
    let record = Arc::new(Record::default());
    let spawned: Arc<Mutex<Vec<(usize, Task)>>> = Arc::default();
    let algorithm = Arc::new(algorithm.clone());
    let origin = |rank: usize, rounds: &[Section]| -> (usize, Task) {
        let (memory, algorithm, record) = (memory.of(rank), Arc::clone(&algorithm), Arc::clone(&record));
        let (rounds, spawned) = (rounds.to_vec(), Arc::clone(&spawned));
        let spawn = move |task| spawned.lock().unwrap().push((rank, task));
        (rank, Box::pin(program::run(memory, algorithm, slots, rounds, record, spawn)))
    };
    let mut tasks: Vec<_> = (0..).zip(&scenario.programs).map(|(rank, rounds)| origin(rank, rounds)).collect();

    let server = A::SERVED.then(|| Server::start(memory, &algorithm, slots));
    let (mut serving, open) = server.map_or((None, None), |Server { task, open }| (Some(task), Some(open)));
    let plan = scenario.death.map(|plan| Plan { rank: plan.rank.max(usize::from(A::SERVED)), ..plan });

    let mut schedule = scenario.schedule.iter();
    let mut death = None;
    let mut probed = false;
    let mut events = 0;
    while events < ENDLESS {
        if let Some(plan) = plan.filter(|plan| plan.when == events) {
            let rank = Rank(plan.rank as u32);
            death = Some(rank);
            record.dies(rank, memory.net().travels_from(rank));
            memory.net().kill(rank, plan.lost);
            tasks.retain(|(of, _)| *of != plan.rank);
        }
        tasks.retain_mut(|(_, task)| task.as_mut().poll(&mut Context::from_waker(Waker::noop())).is_pending());
        tasks.append(&mut spawned.lock().unwrap());
        if let Some(task) = &mut serving
            && let Poll::Ready(ended) = task.as_mut().poll(&mut Context::from_waker(Waker::noop()))
        {
            return Err(format!("the server ended: {ended:?}"));
        }
        if !memory.net().step(schedule.next().map(|choice| usize::from(*choice))) {
            // A survivor acquires the lock at the end, in both modes, twice.
            let Some(dead) = death.filter(|_| tasks.is_empty() && !probed) else { break };
            probed = true;
            tasks.push(origin(
                (dead.index() + 1) % scenario.programs.len(),
                &[Section::EXCLUSIVE, Section::SHARED, Section::EXCLUSIVE, Section::SHARED],
            ));
        }
        events += 1;
    }

    if !tasks.is_empty() {
        return Err(format!("{} wait without end, after {events} events", tasks.len()));
    }
    if let Some((task, open)) = serving.zip(open) {
        open.store(false, Relaxed);
        drive(memory, algorithm.wake_server(memory, Layout::<_, A>::of_server(memory, slots)))
            .map_err(|fault| format!("the server is not woken: {fault}"))?;
        drive(memory, task).map_err(|fault| format!("the server ended: {fault}"))?;
    }
    let home = memory.region();
    let (lock, data) = lock_and_data::<A>(&home);
    match death {
        None => record.check_end::<A>(lock, data)?,
        Some(_) => record.check_after_deaths::<A>(lock)?,
    }
    let dead = |rank: usize| plan.is_some_and(|plan| plan.rank == rank);
    for rank in (0..scenario.programs.len()).filter(|rank| !dead(*rank)) {
        if !program::idle::<A>(slots, &memory.of(rank).region()) {
            return Err(format!("rank {rank} is announced at the end"));
        }
    }
    let net = memory.net();
    Ok(History { posted: net.posted, trace: net.trace.clone(), order: record.order() })
}

/// The server of a lock, for a served one.
#[expect(missing_debug_implementations)]
pub struct Server {
    /// Ends once `open` is false and it is woken.
    pub task: Pin<Box<dyn Future<Output = Result<(), Fault>> + Send>>,
    /// Whether it goes on.
    pub open: Arc<AtomicBool>,
}

impl Server {
    /// A server of the lock at [`HOME`](program::HOME).
    pub fn start<A: LockAlgorithm>(memory: &ModelMemory, lock: &Arc<A>, slots: Slots) -> Self {
        Self::over(memory.of(program::HOME.index()), lock, slots)
    }

    /// The same over any memory, on the rank of that memory.
    pub(crate) fn over<A: LockAlgorithm>(memory: impl RemoteMemory, lock: &Arc<A>, slots: Slots) -> Self {
        let open = Arc::new(AtomicBool::new(true));
        let (lock, still) = (Arc::clone(lock), Arc::clone(&open));
        let task = Box::pin(async move {
            let place = Layout::<_, A>::of_server(&memory, slots);
            lock.serve(&memory, place, move || still.load(Relaxed)).await
        });
        Self { task, open }
    }
}

/// Runs one future, with the events in order.
///
/// # Panics
/// If it waits without end.
pub fn drive<T>(memory: &ModelMemory, future: impl Future<Output = T>) -> T {
    let mut future = pin!(future);
    loop {
        if let Poll::Ready(value) = future.as_mut().poll(&mut Context::from_waker(Waker::noop())) {
            return value;
        }
        assert!(memory.net().step(None), "waits without end");
    }
}
