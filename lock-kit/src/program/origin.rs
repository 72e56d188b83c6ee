//! Runs an origin's program, over any memory.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

use onesided_lock_algos::{Held, Intent, IntentFn, LockAlgorithm, LockContext, LockUse, Mode, Owner, Rest, TokenDraw};
use onesided_remote_memory::{Fault, FaultKind, Notify, RemoteMemory};

use super::layout::{DATA, HOME, Layout, Slots, word};
use super::{AcquireKind, Ending, Fencing, Section};
use crate::Record;
use crate::linear::Accessing;
use crate::trace::{Note, who};

/// A spawned future.
pub type Task = Pin<Box<dyn Future<Output = ()> + Send>>;

/// Starts a future beside an origin's program.
pub type Spawn = Box<dyn Fn(Task) + Send + Sync>;

/// A memory that can also end its rank.
pub trait Crashable: RemoteMemory + Clone {
    /// Ends the rank.
    fn die(&self);

    /// Whether an operation of this rank was lost, and what it belongs to must not succeed.
    fn lost_operation(&self) -> bool {
        false
    }

    /// Marks the next operation as the first of an acquire that waits.
    fn marks(&self) {}

    /// Records something of this rank for the trace.
    fn note(&self, note: Note) {
        let _ = note;
    }
}

/// Runs the sections of the memory's rank in order.
pub async fn run<M: Crashable, A: LockAlgorithm>(
    memory: M,
    algorithm: Arc<A>,
    slots: Slots,
    rounds: Vec<Section>,
    record: Arc<Record>,
    spawn: Spawn,
) {
    let mut cancelled = 0;
    for round in rounds {
        cancelled += u16::from(round.is_cancelled());
        let slot = if round.is_cancelled() { cancelled } else { 0 };
        let owner = Owner { rank: memory.rank(), slot, generation: record.begins(memory.rank()) };
        let done = match round.ending {
            Ending::Cancelled { .. } => abandon(&memory, &algorithm, (owner, slots), round, &record, &*spawn),
            _ => boxed(|| section(&memory, &*algorithm, (owner, slots), round, &record)).await,
        };
        if !goes_on(&memory, &record, owner, round, done) || matches!(round.ending, Ending::Dies | Ending::Stays) {
            return;
        }
    }
}

/// Makes a future in a frame that has returned before the future is polled: loom's threads have 32
/// KB of stack, and without optimization a frame has several copies of each future that it makes.
fn boxed<'m, F: Future + Send + 'm>(make: impl FnOnce() -> F) -> Pin<Box<dyn Future<Output = F::Output> + Send + 'm>> {
    Box::pin(make())
}

async fn section<M: Crashable, A: LockAlgorithm>(
    memory: &M,
    algorithm: &A,
    (owner, slots): (Owner, Slots),
    round: Section,
    record: &Record,
) -> Result<(), Fault> {
    let mode = round.mode;
    let layout = Layout::new::<A>(memory, owner, slots);
    let intent = match round.kind {
        AcquireKind::Usual => Intent::LOCK.recovering(),
        AcquireKind::WithoutRecovery => Intent::LOCK,
        AcquireKind::Try => Intent::TRY.recovering(),
    };
    let words = algorithm.words(layout, intent)?;
    let data = word(memory, HOME, DATA)?;

    record.between(owner);
    let accessing = record.accessing(owner);
    if round.kind != AcquireKind::Try {
        record.waits(owner, mode);
        memory.marks();
    }
    let started = algorithm.start(LockUse::new(memory, layout, words, mode))?;
    let counter = layout.token()?;
    let early = matches!(round.fencing, Fencing::Fused | Fencing::Hasty).then(|| TokenDraw::from(memory, counter));
    for _ in 0..round.early {
        memory.read(data).await?;
    }
    let wanted: IntentFn<'_> = &|| intent;
    let first = started.await;
    let at_once = first.is_ok_and(|first| algorithm.holds(words.1, mode, first));
    let mut is_held = at_once;
    if let Ok(first) = first
        && round.kind != AcquireKind::Try
        && algorithm.ahead(words.1, mode, first, first).is_some()
    {
        for _ in 0..round.early {
            let now = if is_held { break } else { memory.read(words.0).await? };
            is_held = algorithm.ahead(words.1, mode, first, now) == Some(0);
        }
    }
    let held = match is_held {
        true => Ok(Held::cleanly(mode)),
        false => boxed(|| algorithm.contend(LockUse::new(memory, layout, words, mode), first, wanted)).await,
    };
    let held = match held {
        Err(fault) if round.kind == AcquireKind::Try && fault.kind() == FaultKind::TimedOut => {
            record.outside(owner);
            return Ok(());
        }
        Err(fault) if round.kind == AcquireKind::WithoutRecovery && fault.is_poison() => {
            record.outside(owner);
            return Ok(());
        }
        held => held?,
    };
    let mode = held.mode;
    memory.note(Note::Enters(mode));
    record.enters(owner, held);
    if memory.lost_operation() {
        record.violated(|| format!("{} entered although an operation of its acquire failed", who(owner)));
    }
    if held.recovered.is_some() && !intent.recovers {
        record.violated(|| format!("{} was given a lock to recover, which it had not asked for", who(owner)));
    }
    let token = match (round.fencing, early) {
        (Fencing::None, _) => None,
        (Fencing::Hasty, Some(early)) => Some(early),
        (Fencing::Fused, Some(early)) if at_once && !A::PER_RANK_WORD => Some(early),
        _ => Some(TokenDraw::from(memory, counter)),
    };
    if let Some(token) = token {
        record.fenced(mode, token.await?);
    }

    if let Some(accessing) = &accessing {
        boxed(|| accessing.inside(memory, owner)).await?;
    }
    for _ in 0..if accessing.is_some() { 0 } else { round.touches } {
        let before = memory.read(data).await?;
        if record.lease.is_some() {
            continue; // what a late owner writes is the program's matter
        }
        if mode == Mode::Exclusive {
            memory.write(data, before + 1, Notify::No).await?;
            record.counted();
        } else if memory.read(data).await? != before {
            record.violated(|| format!("exclusion: {} saw the data change under its shared lock", who(owner)));
        }
    }
    match round.ending {
        Ending::Dies => {
            record.dies(owner.rank, false);
            memory.die();
        }
        Ending::Stays => {}
        ending => {
            release(algorithm, LockUse::new(memory, layout, words, mode), ending, record).await?;
            accessing.into_iter().for_each(Accessing::ends);
        }
    }
    Ok(())
}

/// Leaves a section.
async fn release<'m, M: Crashable, A: LockAlgorithm>(
    algorithm: &'m A,
    lock: LockUse<'m, Layout<'m, M>>,
    ending: Ending,
    record: &Record,
) -> Result<(), Fault> {
    let (memory, owner) = (lock.memory, lock.context.owner());
    memory.note(Note::Leaves);
    record.between(owner);
    let released = algorithm.start_release(lock)?;
    if ending == Ending::Detached && record.lease.is_none() && algorithm.released(lock, None) == Ok(Rest::Nothing) {
        drop(released);
    } else {
        let found = released.await;
        let done = boxed(|| algorithm.finish_release(lock, found)).await;
        record.released(owner, done)?;
    }
    if memory.lost_operation() {
        record.violated(|| format!("the release of {} succeeded although an operation of it failed", who(owner)));
    }
    record.outside(owner);
    Ok(())
}

/// Whether the origin goes on after a section. An origin that has lost its connection ends.
fn goes_on<M: Crashable>(memory: &M, record: &Record, owner: Owner, round: Section, done: Result<(), Fault>) -> bool {
    match done {
        Err(fault) if matches!(fault.kind(), FaultKind::Unknown | FaultKind::ConnectionLost) => {
            record.dies(owner.rank, true);
            memory.die();
            return false;
        }
        Err(fault) => {
            record.violated(|| format!("an acquire or a release fails: {}: {fault}; in {round:?}", who(owner)))
        }
        Ok(()) => {}
    }
    true
}

/// Starts an acquire and spawns the rest, as the endpoint does with a dropped acquire.
fn abandon<M: Crashable, A: LockAlgorithm>(
    memory: &M,
    algorithm: &Arc<A>,
    (owner, slots): (Owner, Slots),
    round: Section,
    record: &Arc<Record>,
    spawn: &dyn Fn(Task),
) -> Result<(), Fault> {
    record.between(owner);
    let layout = Layout::new::<A>(memory, owner, slots);
    let words = algorithm.words(layout, Intent::LOCK)?;
    let started = algorithm.start(LockUse::new(memory, layout, words, round.mode))?;
    let (memory, algorithm, record) = (memory.clone(), Arc::clone(algorithm), Arc::clone(record));
    spawn(Box::pin(async move {
        let done = finish_cancelled(&memory, &*algorithm, (owner, slots), round, started, &record).await;
        goes_on(&memory, &record, owner, round, done);
    }));
    Ok(())
}

async fn finish_cancelled<M: Crashable, A: LockAlgorithm>(
    memory: &M,
    algorithm: &A,
    (owner, slots): (Owner, Slots),
    round: Section,
    started: M::Op,
    record: &Record,
) -> Result<(), Fault> {
    let Section { mode, ending, .. } = round;
    let layout = Layout::new::<A>(memory, owner, slots);
    let words = algorithm.words(layout, Intent::LOCK)?;
    let Ending::Cancelled { asked: limit, recovers, leaves } = ending else { return Ok(()) };
    let asked = AtomicUsize::new(0);
    let intent = || match asked.fetch_add(1, Relaxed) < usize::from(limit) {
        true => Intent { recovers, ..Intent::LOCK },
        false => Intent { recovers, ..if leaves { Intent::LEAVING } else { Intent::CANCELLED } },
    };
    match boxed(|| algorithm.finish(LockUse::new(memory, layout, words, mode), started, intent)).await {
        Err(fault) if fault.kind() == FaultKind::Closed || fault.is_poison() => {}
        finished => {
            let held = finished?;
            let mode = held.mode;
            if let Some(why) = held.recovered {
                record.holds(owner, held);
                record.between(owner);
                let lock_use = LockUse::new(memory, layout, words, Mode::Exclusive);
                boxed(|| algorithm.release_poisoned(lock_use, why)).await?;
                record.outside(owner);
                return Ok(());
            }
            memory.note(Note::Enters(mode));
            record.enters(owner, held);
            return release(algorithm, LockUse::new(memory, layout, words, mode), ending, record).await;
        }
    }
    record.outside(owner);
    Ok(())
}
