//! What an origin does, as data, and the code that does it over any memory.

use std::future::Future;
use std::marker::PhantomData;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

use lock_algos::{LockAlgorithm, Mode, Owner, Place, Wish};
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
    pub(crate) manner: Manner,
}

/// How the lock is asked for. Whoever abandons it does so in the usual manner.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Manner {
    Usual,
    /// By an owner without a node.
    WithoutNode,
    /// If it is free.
    Try,
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
    /// By the origin's end inside the section.
    Dies,
}

impl Round {
    pub(crate) const EXCLUSIVE: Self =
        Self { mode: Mode::Exclusive, early: 0, touches: 1, ending: Ending::Released, manner: Manner::Usual };
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
/// Each rank has one region. Its words: the data, the lock, the tally, a queue node for each slot.
const DATA: usize = 0;
pub(crate) const LOCK: usize = 1;

/// The slots of each rank.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Slots {
    pub(crate) each: u16,
    /// Whether they have nodes.
    pub(crate) nodes: bool,
    /// Whether an owner sees idle words instead of others' nodes and tallies: one that does not ask.
    pub(crate) deaf: bool,
    /// Whether an owner may be without a slot.
    pub(crate) tallied: bool,
}

/// Words of each rank's region. The last one stays 0.
pub(crate) const fn region_words<A: LockAlgorithm>(slots: Slots) -> usize {
    1 + if slots.nodes { node_at::<A>(slots.each) } else { node_at::<A>(0) }
}

const fn tally_at<A: LockAlgorithm>() -> usize {
    LOCK + A::HOME_WORDS
}

/// Where the node of a slot begins.
const fn node_at<A: LockAlgorithm>(slot: u16) -> usize {
    tally_at::<A>() + 1 + slot as usize * A::NODE_WORDS
}

/// Slots that these programs need: one for the rounds that follow one another, one for each that is abandoned.
pub(crate) fn slots_of(programs: &[Vec<Round>]) -> Slots {
    let abandoned = |rounds: &Vec<Round>| rounds.iter().filter(|round| round.is_abandoned()).count();
    let tallied = programs.iter().flatten().any(|round| round.manner == Manner::WithoutNode);
    Slots { each: 1 + programs.iter().map(abandoned).max().unwrap_or(0) as u16, nodes: true, deaf: false, tallied }
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
    if let Err(fault) = open::<M, A>(&memory, slots) {
        record.violated(|| format!("{fault}"));
    }
    for (number, round) in rounds.into_iter().enumerate() {
        abandoned += u16::from(round.is_abandoned());
        let slot = match round.manner {
            _ if round.is_abandoned() => abandoned,
            Manner::WithoutNode => Owner::NO_SLOT,
            Manner::Usual | Manner::Try => 0,
        };
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

/// Says how many slots this rank uses.
pub(crate) fn open<M: RemoteMemory, A: LockAlgorithm>(memory: &M, slots: Slots) -> Result<(), Fault> {
    if slots.tallied {
        memory.store(word(memory, memory.rank(), tally_at::<A>())?, slots.each.into())?;
    }
    Ok(())
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
    let words = match round.manner {
        Manner::Try => algorithm.words_to_try(ground)?,
        Manner::Usual | Manner::WithoutNode => algorithm.words(ground)?,
    };
    let data = word(memory, HOME, DATA)?;

    record.between(owner);
    let started = algorithm.start(memory, ground, words, mode)?;
    for _ in 0..round.early {
        memory.read(data).await?;
    }
    let wish = if round.manner == Manner::Try { Wish::TRY } else { Wish::LOCK };
    let held = match algorithm.finish(memory, ground, words, mode, started, || wish.inheriting()).await {
        Err(fault) if round.manner == Manner::Try && fault.kind() == FaultKind::TimedOut => {
            record.outside(owner);
            return Ok(());
        }
        held => held?,
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
    let ground = Ground::<M, A>::new(memory, owner, slots);
    let words = algorithm.words(ground)?;
    // It is wanted for a while, and inherits nothing.
    let limit = if let Ending::Abandoned { asked } = ending { usize::from(asked) } else { usize::MAX };
    let asked = AtomicUsize::new(0);
    let wish = || match asked.fetch_add(1, Relaxed) < limit {
        true => Wish::LOCK,
        false => Wish::NONE,
    };
    match algorithm.finish(memory, ground, words, mode, started, wish).await {
        Err(fault) if matches!(fault.kind(), FaultKind::Closed | FaultKind::OwnerDied | FaultKind::MemberDied) => {}
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

    /// What an owner sees who asks whether somebody counts.
    fn asked(&self, rank: Rank, index: usize) -> Result<M::Word<'m>, Fault> {
        let deaf = self.slots.deaf && rank != self.owner.rank;
        word(self.memory, rank, if deaf { region_words::<A>(self.slots) - 1 } else { index })
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
        self.asked(rank, node_at::<A>(slot) + index)
    }

    fn slots(&self) -> u16 {
        if self.slots.nodes { self.slots.each } else { 0 }
    }

    fn owners(&self) -> u64 {
        u64::from(self.memory.size()) * (u64::from(self.slots.each) + u64::from(self.slots.tallied))
    }

    fn tally(&self, rank: Rank) -> Result<Option<M::Word<'m>>, Fault> {
        if !self.slots.tallied {
            return Ok(None);
        }
        self.asked(rank, tally_at::<A>()).map(Some)
    }

    /// One owner of a rank at a time is without a node.
    fn count_without_slot(&self, counts: bool) -> Result<(), Fault> {
        let tally = word(self.memory, self.owner.rank, tally_at::<A>())?;
        self.memory.store(tally, u64::from(counts) << 32 | u64::from(self.slots.each))
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

/// Whether neither a region's nodes nor its tally say that an owner counts.
pub(crate) fn idle<A: LockAlgorithm>(region: &[u64]) -> bool {
    let counts = |node: &[u64]| node[0] != 0;
    region[tally_at::<A>()] >> 32 == 0 && !region[node_at::<A>(0)..].chunks(A::NODE_WORDS.max(1)).any(counts)
}
