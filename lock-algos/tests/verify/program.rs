//! What an origin does, as data, and the code that does it over any memory.

use std::cell::Cell;
use std::future::Future;
use std::marker::PhantomData;
use std::pin::Pin;
use std::sync::Arc;

use lock_algos::{LockAlgorithm, Mode, Owner, Place};
use remote_memory::{At, Fault, FaultKind, Notify, Rank, RegionId, RemoteMemory};

use crate::record::Record;

/// One acquire and release.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Round {
    pub(crate) mode: Mode,
    /// Reads of the data between the start of the acquire and the wait for it: the nonblocking lock.
    pub(crate) early: u8,
    /// How often the section touches the data.
    pub(crate) touches: u8,
    pub(crate) ending: Ending,
}

/// How a round ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Ending {
    /// By a release that is waited for.
    Released,
    /// By a release that nobody waits for, where the algorithm allows that.
    Detached,
    /// While the acquire was under way: whoever adopts it finishes and releases it. It is not wanted any more after it was
    /// asked for that so many times, which covers every await between two questions.
    Abandoned { asked: u8 },
    /// By a release that is waited for, if the lock could be had without waiting; else it was over at once.
    Tried,
    /// By the origin's end inside the section.
    Dies,
}

impl Round {
    pub(crate) const EXCLUSIVE: Self = Self { mode: Mode::Exclusive, early: 0, touches: 1, ending: Ending::Released };
    pub(crate) const SHARED: Self = Self { mode: Mode::Shared, ..Self::EXCLUSIVE };
}

impl Round {
    pub(crate) const fn is_abandoned(&self) -> bool {
        matches!(self.ending, Ending::Abandoned { .. })
    }
}

/// Work that somebody else finishes.
pub(crate) type Task = Pin<Box<dyn Future<Output = ()> + Send>>;

/// A memory that can also end its rank.
pub(crate) trait Mortal: RemoteMemory + Clone {
    fn die(&self);
}

/// Where the lock and the data lie.
const HOME: Rank = Rank(0);
/// Each rank has one region. Its words: the data, the lock, a queue node for each slot.
const DATA: usize = 0;
pub(crate) const LOCK: usize = 1;

/// The slots of each rank.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Slots {
    pub(crate) each: u16,
    /// Whether they have nodes.
    pub(crate) nodes: bool,
    /// Whether an owner sees an idle word instead of others' nodes: one that does not ask.
    pub(crate) deaf: bool,
}

/// Words of each rank's region. The last one stays 0.
pub(crate) const fn region_words<A: LockAlgorithm>(slots: Slots) -> usize {
    1 + if slots.nodes { node_at::<A>(slots.each) } else { node_at::<A>(0) }
}

/// Where the node of a slot begins.
const fn node_at<A: LockAlgorithm>(slot: u16) -> usize {
    LOCK + A::HOME_WORDS + slot as usize * A::NODE_WORDS
}

/// Slots that these programs need: one for the rounds that follow one another, one for each that is abandoned.
pub(crate) fn slots_of(programs: &[Vec<Round>]) -> Slots {
    let abandoned = |rounds: &Vec<Round>| rounds.iter().filter(|round| round.is_abandoned()).count();
    Slots { each: 1 + programs.iter().map(abandoned).max().unwrap_or(0) as u16, nodes: true, deaf: false }
}

/// Runs the rounds of the memory's rank, one after the other.
pub(crate) async fn run<M: Mortal, A: LockAlgorithm>(
    memory: M,
    algorithm: Arc<A>,
    slots: Slots,
    rounds: Vec<Round>,
    record: Arc<Record>,
    adopt: impl Fn(Task),
) {
    let mut abandoned = 0;
    for (number, round) in rounds.into_iter().enumerate() {
        abandoned += u16::from(round.is_abandoned());
        let slot = if round.is_abandoned() { abandoned } else { 0 };
        let owner = Owner { rank: memory.rank(), slot, generation: number as u32 };
        let done = match round.ending {
            Ending::Abandoned { .. } => abandon(&memory, &algorithm, (owner, slots), round, &record, &adopt),
            _ => section(&memory, &*algorithm, (owner, slots), round, &record).await,
        };
        ended(&record, (owner, slots), round, done);
        if round.ending == Ending::Dies {
            return;
        }
    }
}

async fn section<M: Mortal, A: LockAlgorithm>(
    memory: &M,
    algorithm: &A,
    (owner, slots): (Owner, Slots),
    round: Round,
    record: &Record,
) -> Result<(), Fault> {
    let mode = round.mode;
    let ground = Ground::<M, A>::new(memory, owner, slots);
    let words = algorithm.words(ground)?;
    let data = word(memory, HOME, DATA)?;

    record.between(owner);
    let held = if round.ending == Ending::Tried {
        let Some(held) = algorithm.try_acquire(memory, ground, words, mode).await? else {
            record.outside(owner);
            return Ok(());
        };
        held
    } else {
        let started = algorithm.start(memory, ground, words, mode)?;
        for _ in 0..round.early {
            memory.read(data).await?;
        }
        algorithm.finish(memory, ground, words, mode, started, || true).await?
    };
    let mode = held.mode;
    record.enters(owner, held);

    for _ in 0..round.touches {
        let before = memory.read(data).await?;
        if mode == Mode::Exclusive {
            memory.write(data, before + 1, Notify::No).await?;
            record.counted();
        } else if memory.read(data).await? != before {
            record.violated(|| format!("{owner:?} saw the data change under a shared lock"));
        }
    }
    if round.ending == Ending::Dies {
        record.dies(owner.rank);
        memory.die();
        return Ok(());
    }

    record.between(owner);
    let released = algorithm.start_release(memory, ground, words, mode)?;
    if round.ending == Ending::Detached && algorithm.releases_in_one_step(ground, mode) {
        drop(released);
    } else {
        algorithm.finish_release(memory, ground, words, mode, released).await?;
    }
    record.outside(owner);
    Ok(())
}

/// A round is over. Where there are no nodes a lock may stay with the dead.
fn ended(record: &Record, (owner, slots): (Owner, Slots), round: Round, done: Result<(), Fault>) {
    match done {
        Err(fault) if fault.kind() == FaultKind::MemberDied && !slots.nodes => record.outside(owner),
        Err(fault) => record.violated(|| format!("{owner:?} in {round:?}: {fault}")),
        Ok(()) => {}
    }
}

/// Starts an acquire and leaves the rest to somebody else, as a dropped acquire is left to the endpoint.
fn abandon<M: Mortal, A: LockAlgorithm>(
    memory: &M,
    algorithm: &Arc<A>,
    (owner, slots): (Owner, Slots),
    round: Round,
    record: &Arc<Record>,
    adopt: &impl Fn(Task),
) -> Result<(), Fault> {
    record.between(owner);
    let ground = Ground::<M, A>::new(memory, owner, slots);
    let words = algorithm.words(ground)?;
    let started = algorithm.start(memory, ground, words, round.mode)?;
    let (memory, algorithm, record) = (memory.clone(), Arc::clone(algorithm), Arc::clone(record));
    adopt(Box::pin(async move {
        let done = finish_abandoned(&memory, &*algorithm, (owner, slots), round, started, &record).await;
        ended(&record, (owner, slots), round, done);
    }));
    Ok(())
}

async fn finish_abandoned<M: RemoteMemory, A: LockAlgorithm>(
    memory: &M,
    algorithm: &A,
    (owner, slots): (Owner, Slots),
    round: Round,
    started: M::Op,
    record: &Record,
) -> Result<(), Fault> {
    let Round { mode, ending, .. } = round;
    let left = Cell::new(if let Ending::Abandoned { asked } = ending { asked } else { u8::MAX });
    let wanted = move || left.replace(left.get().saturating_sub(1)) > 0;
    let ground = Ground::<M, A>::new(memory, owner, slots);
    let words = algorithm.words(ground)?;
    match algorithm.finish(memory, ground, words, mode, started, wanted).await {
        Err(fault) if fault.kind() == FaultKind::Closed => {}
        finished => {
            let held = finished?;
            let mode = held.mode;
            record.enters(owner, held);
            record.between(owner);
            let released = algorithm.start_release(memory, ground, words, mode)?;
            algorithm.finish_release(memory, ground, words, mode, released).await?;
        }
    }
    record.outside(owner);
    Ok(())
}

/// The place of the lock for one owner.
pub(crate) struct Ground<'m, M, A> {
    memory: &'m M,
    owner: Owner,
    slots: Slots,
    algorithm: PhantomData<fn() -> A>,
}

impl<M, A> Clone for Ground<'_, M, A> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<M, A> Copy for Ground<'_, M, A> {}

impl<'m, M: RemoteMemory, A: LockAlgorithm> Ground<'m, M, A> {
    pub(crate) const fn new(memory: &'m M, owner: Owner, slots: Slots) -> Self {
        Self { memory, owner, slots, algorithm: PhantomData }
    }
}

impl<'m, M: RemoteMemory, A: LockAlgorithm> Place<'m, M> for Ground<'m, M, A> {
    fn home(&self, index: usize) -> Result<M::Word<'m>, Fault> {
        if index >= A::HOME_WORDS {
            return Err(Fault::new(FaultKind::OutOfRange));
        }
        word(self.memory, HOME, LOCK + index)
    }

    fn node_of(&self, rank: Rank, slot: u16, index: usize) -> Result<M::Word<'m>, Fault> {
        if index >= A::NODE_WORDS || slot >= self.slots() {
            return Err(Fault::new(FaultKind::OutOfRange));
        }
        if self.slots.deaf && rank != self.owner.rank {
            return word(self.memory, rank, region_words::<A>(self.slots) - 1);
        }
        word(self.memory, rank, node_at::<A>(slot) + index)
    }

    fn slots(&self) -> u16 {
        if self.slots.nodes { self.slots.each } else { 0 }
    }

    fn owners(&self) -> u64 {
        u64::from(self.memory.size()) * u64::from(self.slots.each)
    }

    fn lock(&self) -> u64 {
        7
    }

    fn owner(&self) -> Owner {
        self.owner
    }
}

const fn at(rank: Rank, index: usize) -> At {
    At { rank, region: RegionId(0), offset: 8 * index as u64 }
}

fn word<M: RemoteMemory>(memory: &M, rank: Rank, index: usize) -> Result<M::Word<'_>, Fault> {
    memory.word(at(rank, index))
}

/// The lock's words and the data among the words of [`HOME`]'s region.
pub(crate) fn lock_and_data<A: LockAlgorithm>(home: &[u64]) -> (&[u64], u64) {
    (&home[LOCK..LOCK + A::HOME_WORDS], home[DATA])
}

/// Whether none of a region's nodes says that its owner counts.
pub(crate) fn idle<A: LockAlgorithm>(region: &[u64]) -> bool {
    A::NODE_WORDS == 0 || region[node_at::<A>(0)..].chunks(A::NODE_WORDS).all(|node| node[0] == 0)
}
