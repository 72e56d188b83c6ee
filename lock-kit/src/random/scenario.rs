//! One deterministic run.

use std::pin::pin;
use std::task::{Context, Poll, Waker};

use onesided_lock_algos::{LockAlgorithm, Mode};
use onesided_remote_memory::Rank;

use crate::Record;
use crate::program::Section;
use crate::trace::Trace;
use crate::world::{Event, ModelMemory, Posted, Run, Setting};

/// One deterministic run.
#[derive(Clone, Debug)]
pub struct Scenario<S = Section> {
    /// The program of each origin.
    pub programs: Vec<Vec<S>>,
    /// The choices among the possible events; after the last one, the oldest event is next.
    pub schedule: Vec<u8>,
    /// The death of a rank, if any.
    pub death: Option<Plan>,
}

/// The death of a rank. Its operations in flight never take effect.
#[derive(Clone, Copy, Debug)]
pub struct Plan {
    /// The rank that dies. For a served lock rank 1 instead of rank 0, which is the server's.
    pub rank: usize,
    /// The number of events before it.
    pub when: usize,
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
    recorded(setting, lock, scenario, Record::default())
}

/// The same with this record.
pub(crate) fn recorded<A: LockAlgorithm + Clone>(
    setting: Setting,
    lock: &A,
    scenario: &Scenario,
    record: Record,
) -> Result<History, String> {
    let mut run = Run::new(lock, setting, &scenario.programs, record, |_| {});
    let (mut schedule, mut death, mut events) = (scenario.schedule.iter(), scenario.death, 0);
    let ended = run.play(|possible, probed| {
        death = death.filter(|_| !probed); // too late
        if let Some(plan) = death.take_if(|plan| plan.when <= events) {
            return Some(Event::Crash(Rank(plan.rank.max(usize::from(A::SERVED)) as u32)));
        }
        events += 1;
        let choice = schedule.next().map_or(0, |choice| usize::from(*choice));
        possible.get(choice % possible.len().max(1)).copied()
    });
    let world = run.memory.world();
    match ended {
        Ok(()) => Ok(History { posted: world.posted, trace: world.trace.clone(), order: run.record.order() }),
        Err(violation) => Err(world.trace.tells(&violation)),
    }
}

/// Runs one future, with the events in order.
///
/// # Panics
/// If it waits without end.
pub fn drive<T>(memory: &ModelMemory, future: impl Future<Output = T>) -> T {
    driven(memory, future).expect("waits without end")
}

/// The same; `None` if it waits without end.
pub(crate) fn driven<T>(memory: &ModelMemory, future: impl Future<Output = T>) -> Option<T> {
    let mut future = pin!(future);
    loop {
        if let Poll::Ready(value) = future.as_mut().poll(&mut Context::from_waker(Waker::noop())) {
            return Some(value);
        }
        if !memory.world().step() {
            return None;
        }
    }
}
