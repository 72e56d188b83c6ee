//! Remote memory with delayed effects and completions, seen from one rank: an operation is posted,
//! takes effect and completes at three points in time, and a schedule chooses what happens next.

use std::future::Future;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll};

use onesided_remote_memory::{
    At, Chain, Fault, FaultKind, Link, Liveness, Notify, Patience, Rank, RemoteMemory, Watch,
};

use super::World;
use crate::Crashable;
use crate::trace::{Action, Note};

/// The memory of all ranks, seen from one rank. A clone is a handle of its own, for another task.
#[derive(Debug)]
pub struct ModelMemory {
    rank: Rank,
    /// The word versions that this handle has seen: each task has one.
    view: u16,
    world: Arc<Mutex<World>>,
}

impl Clone for ModelMemory {
    fn clone(&self) -> Self {
        let view = self.world().view_of(self.view);
        Self { rank: self.rank, view, world: Arc::clone(&self.world) }
    }
}

impl ModelMemory {
    /// The memory of rank 0.
    pub fn new(ranks: usize, region_words: usize) -> Self {
        Self { rank: Rank(0), view: 0, world: Arc::new(Mutex::new(World::new(ranks, region_words))) }
    }

    /// The same memory, seen from another rank.
    pub fn of(&self, rank: usize) -> Self {
        Self { rank: Rank(rank as u32), view: rank as u16, world: Arc::clone(&self.world) }
    }

    /// The shared state. No operation may be posted while it is held.
    pub fn world(&self) -> MutexGuard<'_, World> {
        lock(&self.world)
    }

    /// The words of this rank's region.
    pub fn region(&self) -> Vec<u64> {
        self.world().region(self.rank).to_vec()
    }

    /// The handle that posts and waits.
    pub(crate) const fn handle(&self) -> (Rank, u16) {
        (self.rank, self.view)
    }

    fn post_one(&self, word: usize, action: Action, notify: Notify) -> Reply {
        let number = self.world().post(self.handle(), word, (action, notify));
        Reply { world: Arc::clone(&self.world), number }
    }

    /// Whether a word lies in this rank's own region.
    pub(crate) fn check_own(&self, word: usize) -> Result<(), Fault> {
        if self.world().target(word as u32) == self.rank.index() { Ok(()) } else { Err(Fault::new(FaultKind::NotOwn)) }
    }
}

fn lock(world: &Mutex<World>) -> MutexGuard<'_, World> {
    world.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The reply to an operation. No waker: an event says whose tasks it concerns.
#[derive(Debug)]
pub struct Reply {
    world: Arc<Mutex<World>>,
    number: u32,
}

impl Future for Reply {
    type Output = Result<u64, Fault>;

    fn poll(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<Self::Output> {
        lock(&self.world).take(self.number).map_or(Poll::Pending, |(outcome, _)| Poll::Ready(outcome))
    }
}

impl Drop for Reply {
    fn drop(&mut self) {
        lock(&self.world).detach(self.number);
    }
}

/// The end of a pause.
#[derive(Debug)]
pub struct PauseEnd(Reply);

impl Future for PauseEnd {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        Pin::new(&mut self.0).poll(cx).map(|_| ())
    }
}

/// A wait for a word of the rank's own memory.
#[derive(Debug)]
pub struct Wait<'f, P> {
    memory: &'f ModelMemory,
    own: usize,
    predicate: P,
    patience: Patience,
    waits: Option<Reply>,
}

impl<P: Fn(u64) -> bool + Unpin> Future for Wait<'_, P> {
    type Output = Result<u64, Fault>;

    fn poll(mut self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<Self::Output> {
        let timed_out = match &self.waits {
            None => false,
            Some(waits) => match lock(&waits.world).take(waits.number) {
                None => return Poll::Pending,
                Some((_, timed_out)) => timed_out,
            },
        };
        self.memory.check_own(self.own)?;
        let value = self.memory.world().load(self.memory.handle(), self.own);
        if (self.predicate)(value) {
            return Poll::Ready(Ok(value));
        }
        if let Watch::Rank(rank) | Watch::RankAndFailures(rank) = self.patience.watch {
            self.memory.liveness(rank).needed(rank)?;
        }
        if timed_out {
            return Poll::Ready(Err(Fault::new(FaultKind::TimedOut)));
        }
        let until = self.patience.deadline;
        let before = self.waits.as_ref().map(|waits| waits.number);
        let number = self.memory.world().wait(self.memory.handle(), self.own, until, before);
        if before.is_none() {
            self.waits = Some(Reply { world: Arc::clone(&self.memory.world), number });
        }
        Poll::Pending
    }
}

impl RemoteMemory for ModelMemory {
    type Word<'f> = usize;
    type Op = Reply;
    type Wait<'f, P: Fn(u64) -> bool + Unpin + Send + 'f> = Wait<'f, P>;
    type Pause<'f> = PauseEnd;

    fn rank(&self) -> Rank {
        self.rank
    }

    fn size(&self) -> u32 {
        self.world().ranks()
    }

    fn word(&self, at: At) -> Result<usize, Fault> {
        let mut world = self.world();
        let index = at.offset as usize / 8;
        if at.rank.0 >= world.ranks() {
            return Err(Fault::of(FaultKind::NoSuchRank, at.rank));
        }
        if index >= world.region_words {
            return Err(Fault::of(FaultKind::OutOfRange, at.rank));
        }
        let word = at.rank.index() * world.region_words + index;
        let reached = world.reach(word);
        if reached.is_err() {
            world.told(self.rank, at.rank);
        }
        reached.map(|()| word)
    }

    fn post_link(&self, link: Link<usize>) -> Reply {
        let (action, notify) = Action::of(link);
        self.post_one(link.word(), action, notify)
    }

    fn post<const N: usize>(&self, links: [Link<usize>; N]) -> Chain<Reply, N> {
        let mut chained = false;
        Chain::of(links.map(|link| {
            self.world().chained = std::mem::replace(&mut chained, true);
            let waited = link.waited();
            let reply = self.post_link(link);
            waited.then_some(reply)
        }))
    }

    fn load(&self, own: usize) -> Result<u64, Fault> {
        self.check_own(own)?;
        Ok(self.world().load(self.handle(), own))
    }

    fn store(&self, own: usize, value: u64) -> Result<(), Fault> {
        self.check_own(own)?;
        self.world().store(self.handle(), own, value);
        Ok(())
    }

    fn wait_until<'f, P>(&'f self, own: usize, predicate: P, patience: Patience) -> Wait<'f, P>
    where
        P: Fn(u64) -> bool + Unpin + Send + 'f,
    {
        Wait { memory: self, own, predicate, patience, waits: None }
    }

    fn pause(&self, word: usize, nanos: u64) -> PauseEnd {
        let number = self.world().pause(self.handle(), word, nanos);
        PauseEnd(Reply { world: Arc::clone(&self.world), number })
    }

    fn now(&self) -> u64 {
        let mut world = self.world();
        world.posted.waits += 1;
        let now = world.now;
        world.told(self.rank, now);
        now
    }

    fn liveness(&self, rank: Rank) -> Liveness {
        let mut world = self.world();
        let liveness = world.liveness(rank);
        world.told(self.rank, (rank, liveness == Liveness::Alive));
        liveness
    }
}

impl Crashable for ModelMemory {
    fn die(&self) {
        self.world().dying.push(self.rank);
    }

    fn lost_operation(&self) -> bool {
        self.world().failed() == Some(self.rank)
    }

    fn marks(&self) {
        self.world().marks = Some(self.view);
    }

    fn note(&self, note: Note) {
        self.world().trace.note(self.rank, note);
    }
}
