//! Remote memory with delayed effects and completions: an operation is posted, takes effect and
//! completes at three points in time, and a schedule chooses what happens next. One thread; the
//! clock is the sum of the pauses.

use std::collections::HashMap;
use std::future::Future;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll};

use onesided_remote_memory::{
    At, Chain, Fault, FaultKind, Link, Liveness, Notify, Patience, Rank, RemoteMemory, Watch,
};

use crate::Crashable;
use crate::posting::{check_own, post_all, resolve};
use crate::trace::{Action, Effect, Trace};

/// The memory of all ranks, seen from one rank.
#[derive(Clone, Debug)]
pub struct ModelMemory {
    rank: Rank,
    net: Arc<Mutex<Net>>,
}

/// The memory of all ranks and the operations in flight.
#[derive(Debug, Default)]
pub struct Net {
    region_words: usize,
    /// The regions of all ranks, one after the other.
    pub words: Vec<u64>,
    dead: Vec<bool>,
    now: u64,
    /// Pauses and deadlines that have ended since a word changed. Pauses grow with it, so that a
    /// lock that waits a second before it suspects readers can be built with short pauses.
    idle: u32,
    /// Oldest first.
    events: Vec<Event>,
    next: u64,
    /// Results that were not yet taken by their futures.
    completed: HashMap<u64, u64>,
    /// The number of posted operations of each kind.
    pub posted: Posted,
    /// The operations that took effect.
    pub trace: Trace,
    /// The stopped rank, whose operations do not take effect for now.
    pub stopped: Option<Rank>,
    /// Mutates operations on purpose.
    pub mutate: Option<fn(Action) -> Action>,
    /// Whether no [wait](RemoteMemory::wait_until) ends by its deadline.
    pub timeless: bool,
}

/// The number of posted operations of each kind.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Posted {
    /// Reads.
    pub reads: u32,
    /// Writes.
    pub writes: u32,
    /// Compare-swaps.
    pub compare_swaps: u32,
    /// Fetch-adds.
    pub fetch_adds: u32,
    /// Pauses and reads of the clock.
    pub waits: u32,
}

#[derive(Clone, Copy, Debug)]
struct Event {
    id: u64,
    kind: Kind,
}

#[derive(Clone, Copy, Debug)]
enum Kind {
    /// In flight to the word.
    Travels { origin: Rank, word: usize, action: Action, chained: bool },
    /// In effect, the reply is in flight.
    Returns { value: u64 },
    /// Completes when `now` is at least this.
    Timer { until: u64 },
}

/// As a power of two, in nanoseconds.
const LONGEST_PAUSE: u32 = 28;

impl Net {
    /// Runs one of the possible events, counted from the oldest; without a choice the oldest,
    /// except that time passes only if nothing else can happen. `false` if there is none.
    pub fn step(&mut self, choice: Option<usize>) -> bool {
        let possible: Vec<usize> = (0..self.events.len()).filter(|index| self.may_happen(*index)).collect();
        let is_timer = |index: &&usize| matches!(self.events[**index].kind, Kind::Timer { .. });
        let index = match choice {
            Some(choice) => possible.get(choice % possible.len().max(1)),
            None => possible.iter().find(|index| !is_timer(index)).or(possible.first()),
        };
        let Some(index) = index else { return false };
        let Event { id, kind } = self.events[*index];
        match kind {
            Kind::Travels { origin, word, action, .. } => {
                let value = self.words[word];
                let target = Rank((word / self.region_words) as u32);
                self.trace.push(Effect { origin, target, word: word % self.region_words, action, found: value });
                self.words[word] = action.applied_to(value);
                if self.words[word] != value {
                    self.idle = 0;
                }
                self.events[*index].kind = Kind::Returns { value };
                return true;
            }
            Kind::Returns { value } => self.completed.insert(id, value),
            Kind::Timer { until } => {
                self.now = self.now.max(until) + (1 << self.idle.min(LONGEST_PAUSE)) - 1;
                self.idle += 1;
                self.completed.insert(id, 0)
            }
        };
        self.events.remove(*index);
        true
    }

    /// Operations of one origin at one target take effect in order, except that a write may
    /// overtake reads and atomics outside its own chain.
    fn may_happen(&self, index: usize) -> bool {
        let Kind::Travels { origin, word, action, chained } = self.events[index].kind else { return true };
        if self.stopped == Some(origin) {
            return false;
        }
        self.events[..index].iter().all(|earlier| match earlier.kind {
            Kind::Travels { origin: from, word: to, action: before, .. } => {
                let same_way = from == origin && to / self.region_words == word / self.region_words;
                let overtakes = matches!(action, Action::Write(_)) && !chained && !matches!(before, Action::Write(_));
                !same_way || overtakes
            }
            _ => true,
        })
    }

    /// Whether an operation of this rank is not yet in effect.
    pub fn travels_from(&self, rank: Rank) -> bool {
        self.events.iter().any(|event| matches!(event.kind, Kind::Travels { origin, .. } if origin == rank))
    }

    /// Ends a rank. Of its operations in flight the last `lost` never take effect; its death is
    /// known once the others did.
    pub fn kill(&mut self, rank: Rank, lost: usize) {
        self.dead[rank.index()] = true;
        for _ in 0..lost {
            let travels = |event: &Event| matches!(event.kind, Kind::Travels { origin, .. } if origin == rank);
            let Some(last) = self.events.iter().rposition(travels) else { break };
            self.events.remove(last);
        }
    }

    fn is_dead(&self, rank: Rank) -> bool {
        self.dead[rank.index()] && !self.travels_from(rank)
    }

    fn failed_rank(&self) -> Option<Rank> {
        (0..self.dead.len() as u32).map(Rank).find(|rank| self.is_dead(*rank))
    }

    fn add(&mut self, kind: Kind) -> u64 {
        self.next += 1;
        self.events.push(Event { id: self.next, kind });
        self.next
    }
}

impl ModelMemory {
    /// The memory of rank 0.
    pub fn new(ranks: usize, region_words: usize) -> Self {
        let words = vec![0; ranks * region_words];
        let net = Net { region_words, words, dead: vec![false; ranks], ..Net::default() };
        Self { rank: Rank(0), net: Arc::new(Mutex::new(net)) }
    }

    /// The same memory, seen from another rank.
    pub fn of(&self, rank: usize) -> Self {
        Self { rank: Rank(rank as u32), net: Arc::clone(&self.net) }
    }

    /// The shared state.
    ///
    /// No operation may be posted while it is held.
    pub fn net(&self) -> MutexGuard<'_, Net> {
        self.net.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The words of this rank's region.
    pub fn region(&self) -> Vec<u64> {
        let net = self.net();
        net.words[self.rank.index() * net.region_words..][..net.region_words].to_vec()
    }

    fn send(&self, word: usize, action: Action, chained: bool) -> Reply {
        let mut net = self.net();
        let action = net.mutate.map_or(action, |mutate| mutate(action));
        let posted = &mut net.posted;
        *match action {
            Action::Read => &mut posted.reads,
            Action::Write(_) => &mut posted.writes,
            Action::CompareSwap(..) => &mut posted.compare_swaps,
            Action::FetchAdd(_) => &mut posted.fetch_adds,
        } += 1;
        let id = net.add(Kind::Travels { origin: self.rank, word, action, chained });
        Reply { net: Arc::clone(&self.net), id }
    }

    fn timer(&self, until: u64) -> Reply {
        let id = self.net().add(Kind::Timer { until });
        Reply { net: Arc::clone(&self.net), id }
    }

    fn check_own(&self, word: usize) -> Result<(), Fault> {
        check_own(word, self.net().region_words, self.rank)
    }
}

/// The reply to an operation. No waker: the runner polls all tasks after each event.
#[derive(Debug)]
pub struct Reply {
    net: Arc<Mutex<Net>>,
    id: u64,
}

impl Future for Reply {
    type Output = Result<u64, Fault>;

    fn poll(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<Self::Output> {
        let mut net = self.net.lock().unwrap_or_else(PoisonError::into_inner);
        net.completed.remove(&self.id).map_or(Poll::Pending, |value| Poll::Ready(Ok(value)))
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
    watch: Watch,
    deadline: Option<Reply>,
}

impl<P: Fn(u64) -> bool + Unpin> Future for Wait<'_, P> {
    type Output = Result<u64, Fault>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        self.memory.check_own(self.own)?;
        let value = self.memory.net().words[self.own];
        if (self.predicate)(value) {
            return Poll::Ready(Ok(value));
        }
        let gone = match self.watch {
            Watch::NoRank => None,
            Watch::Rank(rank) | Watch::RankAndFailures(rank) => {
                (self.memory.liveness(rank) != Liveness::Alive).then_some(rank)
            }
        };
        if let Some(rank) = gone {
            return Poll::Ready(Err(Fault::of(FaultKind::PeerDied, rank)));
        }
        match &mut self.deadline {
            Some(timer) => Pin::new(timer).poll(cx).map(|_| Err(Fault::new(FaultKind::TimedOut))),
            None => Poll::Pending,
        }
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
        self.net().dead.len() as u32
    }

    fn word(&self, at: At) -> Result<usize, Fault> {
        let net = self.net();
        resolve(at, net.dead.len() as u32, net.region_words)
    }

    fn read(&self, word: usize) -> Reply {
        self.send(word, Action::Read, false)
    }

    fn write(&self, word: usize, value: u64, _notify: Notify) -> Reply {
        self.send(word, Action::Write(value), false)
    }

    fn compare_swap(&self, word: usize, expected: u64, new: u64) -> Reply {
        self.send(word, Action::CompareSwap(expected, new), false)
    }

    fn fetch_add(&self, word: usize, add: u64) -> Reply {
        self.send(word, Action::FetchAdd(add), false)
    }

    fn post<const N: usize>(&self, links: [Link<usize>; N]) -> Chain<Reply, N> {
        post_all(links, |word, action, chained| self.send(word, action, chained))
    }

    fn load(&self, own: usize) -> Result<u64, Fault> {
        self.check_own(own)?;
        Ok(self.net().words[own])
    }

    fn store(&self, own: usize, value: u64) -> Result<(), Fault> {
        self.check_own(own)?;
        self.net().words[own] = value;
        Ok(())
    }

    fn wait_until<'f, P>(&'f self, own: usize, predicate: P, patience: Patience) -> Wait<'f, P>
    where
        P: Fn(u64) -> bool + Unpin + Send + 'f,
    {
        let ends = patience.deadline != u64::MAX && !self.net().timeless;
        let deadline = ends.then(|| self.timer(patience.deadline));
        Wait { memory: self, own, predicate, watch: patience.watch, deadline }
    }

    fn pause(&self, _word: usize, nanos: u64) -> PauseEnd {
        self.net().posted.waits += 1;
        let now = self.net().now;
        PauseEnd(self.timer(now + nanos))
    }

    fn now(&self) -> u64 {
        let mut net = self.net();
        net.posted.waits += 1;
        net.now
    }

    fn liveness(&self, rank: Rank) -> Liveness {
        let net = self.net();
        match rank.index() {
            index if index >= net.dead.len() => Liveness::Left,
            _ if net.is_dead(rank) => Liveness::Dead,
            _ => Liveness::Alive,
        }
    }

    fn failed_rank(&self) -> Option<Rank> {
        self.net().failed_rank()
    }
}

impl Crashable for ModelMemory {
    fn die(&self) {
        self.net().kill(self.rank, 0);
    }
}
