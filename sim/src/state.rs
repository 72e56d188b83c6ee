//! The state of a simulation and what its events do to it.

mod datagrams;
mod failures;
mod flight;
mod landings;
mod notes;
mod restarts;
mod stall;
mod tasks;
mod threads;
mod waiting;

use std::collections::{BTreeMap, BTreeSet, HashMap, VecDeque};
use std::ops::Range;

use onesided_fabric::{Channel, Task, debug};
use onesided_remote_memory::{At, Fault, FaultKind, Notify, Rank, RegionId, Watch};

use crate::agenda::{Agenda, Due};
use crate::network::Wire;
use crate::operation::{Action, Got, Operations, SentBy};
use crate::processors::Processors;
use crate::rank::{Life, RankState, What};
use crate::report::Counts;
use crate::state::datagrams::Datagram;
use crate::state::failures::Failure;
use crate::state::landings::Landings;
use crate::state::notes::Notes;
use crate::state::stall::Stall;

/// The state of the whole simulation.
#[derive(Debug)]
pub(crate) struct State {
    pub(crate) now: u64,
    pub(crate) ranks: Vec<RankState>,
    lives: Vec<Life>,
    /// The ranks that have left, in this order.
    pub(crate) departed: Vec<Rank>,
    /// The number of handles of each rank's endpoint.
    handles: Vec<u32>,
    pub(crate) operations: Operations,
    pub(crate) wire: Wire,
    pub(crate) counts: Counts,
    pub(crate) arrivals: u64,
    pub(crate) trace: Trace,
    /// Set at the end: operations of programs that are being dropped have no effect.
    pub(crate) over: bool,
    /// How many waits watch a rank.
    watching: usize,
    /// What ranks have yet to learn.
    news: Vec<(Rank, Failure)>,
    /// Whether any rank has learned of a failure, or of a lost connection.
    any_failed: bool,
    /// Pairs of ranks whose first rank's card refuses the operations of the second.
    revoked: BTreeSet<(u32, u32)>,
    /// Pairs of ranks without a connection, the lower rank first. Nothing that completes from then
    /// on has a known outcome.
    broken: BTreeSet<(Rank, Rank)>,
    agenda: Agenda,
    /// The time from which a rank's card can receive.
    receives_at: Times,
    /// When the last timer that a rank set for a pause at a watched word ends.
    timer_at: Times,
    spawned: Spawned,
    /// The thread that is polled.
    pub(crate) current: u32,
    /// Whether its poll began and has not ended.
    polling: bool,
    /// `None`: computation takes no time, and each rank is one thread.
    processors: Option<Processors>,
    /// When the atomics on a word that are under way end.
    held_words: HashMap<(u32, u32, u64), u64>,
    /// By origin and target: the first fault of an operation that was not awaited, since a flush.
    pub(crate) faults: BTreeMap<(u32, u32), Fault>,
    /// Connections with a limit on reads in flight.
    limited: HashMap<(u32, u32), Limited>,
    pub(crate) stall: Stall,
    pub(crate) notes: Notes,
    pub(crate) most_events: u64,
    pub(crate) partitions: Vec<Partition>,
    /// How often ranks have returned, of those that have.
    restarts: BTreeMap<u32, u32>,
    datagrams: Vec<Datagram>,
    free_datagrams: Vec<u32>,
    landings: Landings,
}

/// Ranks that no message reaches from the others, for a time.
#[derive(Clone, Debug)]
pub(crate) struct Partition {
    pub(crate) ranks: Range<u32>,
    pub(crate) time: Range<u64>,
}

/// A connection with a limit on reads and atomics in flight.
#[derive(Debug, Default)]
struct Limited {
    in_flight: u32,
    /// Operations that wait for one of them.
    held: VecDeque<u32>,
}

/// The next action of the executor.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Step {
    /// Poll this thread's tasks.
    Poll(u32),
    /// Drop this rank's tasks.
    Kill(u32),
    /// Run this rank's program anew.
    Restart(u32),
    /// Take over the spawned tasks.
    Adopt,
    /// The end time is reached.
    TimeOver,
    /// The last event was the last one allowed.
    EventsOver,
    /// No event is left.
    Idle,
    /// Nothing has changed for too long, perhaps in vain.
    Stalled,
}

/// Tasks that ranks spawned, until the executor takes them.
#[derive(Default)]
struct Spawned(Vec<(u32, Task, bool)>);

debug!([] Spawned, |this| "{} tasks", this.0.len());

/// A time for each rank, 0 until it is set. Most simulations set few, or none.
#[derive(Debug, Default)]
struct Times(Vec<u64>);

impl Times {
    fn of(&self, rank: u32) -> u64 {
        self.0.get(rank as usize).copied().unwrap_or(0)
    }

    fn set(&mut self, rank: u32, time: u64) {
        if self.0.len() <= rank as usize {
            self.0.resize(rank as usize + 1, 0);
        }
        self.0[rank as usize] = time;
    }
}

/// A running hash of the events.
#[derive(Debug, Default)]
pub(crate) struct Trace(pub(crate) u64);

impl Trace {
    fn note(&mut self, values: [u64; 4]) {
        for value in values {
            self.0 = (self.0.rotate_left(23) ^ value).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        }
    }
}

impl State {
    pub(crate) fn new(ranks: u32, wire: Wire, processors: Option<Processors>, stalled_after: u64) -> Self {
        let mut all = Vec::new();
        all.resize_with(ranks as usize, RankState::default);
        Self {
            now: 0,
            ranks: all,
            lives: vec![Life::Alive; ranks as usize],
            departed: Vec::new(),
            handles: vec![0; ranks as usize],
            operations: Operations::default(),
            wire,
            counts: Counts::default(),
            arrivals: 0,
            trace: Trace::default(),
            over: false,
            watching: 0,
            news: Vec::new(),
            any_failed: false,
            revoked: BTreeSet::new(),
            broken: BTreeSet::new(),
            agenda: Agenda::default(),
            receives_at: Times::default(),
            timer_at: Times::default(),
            spawned: Spawned::default(),
            current: 0,
            polling: false,
            processors,
            held_words: HashMap::new(),
            faults: BTreeMap::new(),
            limited: HashMap::new(),
            stall: Stall::after(stalled_after),
            notes: Notes::default(),
            most_events: u64::MAX,
            partitions: Vec::new(),
            restarts: BTreeMap::new(),
            datagrams: Vec::new(),
            free_datagrams: Vec::new(),
            landings: Landings::default(),
        }
    }

    /// Operations that arrived, and timers.
    pub(crate) const fn events(&self) -> u64 {
        self.arrivals + self.counts.timers
    }

    /// Processes events until one of them concerns a task.
    pub(crate) fn step(&mut self, until: u64) -> Step {
        self.end_poll();
        loop {
            if !self.spawned.0.is_empty() {
                return Step::Adopt;
            }
            if self.events() >= self.most_events {
                return Step::EventsOver;
            }
            if self.may_be_stalled() {
                return Step::Stalled;
            }
            let Some((time, due)) = self.agenda.next(until) else {
                return if self.agenda.is_empty() { Step::Idle } else { Step::TimeOver };
            };
            self.now = time;
            let step = match due {
                Due::Operation(slot) => self.advance(slot),
                Due::Card(rank) => {
                    self.end_to_receive(rank);
                    None
                }
                Due::Timer(thread) => {
                    self.counts.timers += 1;
                    self.trace.note([time, 1, thread.into(), 0]);
                    Some(thread)
                }
                Due::Wake(thread) => Some(thread),
                Due::Kill(rank) => match self.kill(rank) {
                    Some(step) => return step,
                    None => None,
                },
                Due::Restart(rank) => match self.restart(rank) {
                    Some(step) => return step,
                    None => None,
                },
                Due::Datagram(slot) => {
                    self.receive_datagram(slot);
                    None
                }
                Due::Slice(_) | Due::Sleep(_) => {
                    self.schedule(due);
                    None
                }
                Due::Detect(rank) => {
                    self.detect(Rank(rank));
                    None
                }
                Due::Learn(index) => {
                    let (rank, failure) = self.news[index as usize];
                    self.hear(rank, failure);
                    None
                }
                Due::Leave(rank) => {
                    self.lives[rank as usize] = Life::Left;
                    self.departed.push(Rank(rank));
                    self.notes.end(Rank(rank));
                    self.wake_watchers(|watch| match watch {
                        Watch::Rank(left) => left == Rank(rank),
                        Watch::RankAndFailures(_) => true,
                        Watch::NoRank => false,
                    });
                    None
                }
            };
            if let Some(thread) = step
                && self.begin_poll(thread)
            {
                return Step::Poll(thread);
            }
        }
    }

    /// Applies an operation to the memory of its target.
    fn apply(&mut self, slot: u32) -> Result<u64, Fault> {
        let operation = &mut self.operations[slot];
        let (region, offset) = (operation.region, operation.offset);
        let target = Rank(operation.target);
        let origin = Rank(operation.origin);
        if self.has_revoked(target, origin) {
            if self.operations[slot].action.takes_room() {
                self.ranks[origin.index()].connection(target.0).unread -= 1;
            }
            return Err(Fault::of(FaultKind::Revoked, target));
        }
        let operation = &mut self.operations[slot];
        if let Action::HasCut(rank) = operation.action {
            return Ok(self.has_cut(target, rank).into());
        }
        let memory = &mut self.ranks[target.index()].memory;
        let is_there = if operation.same_host { memory.is_mapped(region) } else { memory.len(region).is_some() };
        if !matches!(operation.action, Action::Send(..)) && !is_there {
            return Err(Fault::of(FaultKind::NoSuchRegion, target));
        }
        let (found, changed, notify) = match &mut operation.action {
            Action::Read => (memory.load(region, offset), 0, Notify::No),
            Action::Write { value, notify } => {
                memory.store(region, offset, *value);
                (0, 8, *notify)
            }
            Action::CompareSwap { expected, new } => {
                let found = memory.load(region, offset);
                let swaps = found == *expected;
                if swaps {
                    memory.store(region, offset, *new);
                }
                (found, if swaps { 8 } else { 0 }, Notify::No)
            }
            Action::FetchAdd(add) => {
                let found = memory.load(region, offset);
                memory.store(region, offset, found.wrapping_add(*add));
                (found, 8, Notify::No)
            }
            Action::Put(bytes) => {
                memory.write(region, offset, bytes);
                (0, bytes.len() as u64, Notify::No)
            }
            Action::Get { len, into } => {
                let mut bytes = vec![0; *len as usize].into_boxed_slice();
                memory.read(region, offset, &mut bytes);
                operation.action = Action::Got(Box::new(Got { bytes, into: into.take() }));
                (0, 0, Notify::No)
            }
            Action::Send(bytes, by) => {
                let (from, bytes, by) = (Rank(operation.origin), std::mem::take(bytes), *by);
                let (channel, notify) = match by {
                    SentBy::Slot => (Channel::FastPath, Notify::No),
                    SentBy::Plain | SentBy::Solicited => (Channel::Connection, Notify::Yes),
                };
                self.ranks[target.index()].more().rare().packets.push_back((from, channel, bytes));
                self.note_change();
                self.look(target, notify, |what| what == What::Packet);
                if by == SentBy::Solicited {
                    self.solicit(target);
                }
                return Ok(0);
            }
            Action::HasCut(_) | Action::Got(_) => (0, 0, Notify::No),
        };
        if changed > 0 {
            self.changed(origin, At { rank: target, region: RegionId(region), offset }, changed, notify);
        }
        Ok(found)
    }

    pub(crate) fn note_change(&mut self) {
        self.stall.note_change(self.now);
    }

    fn count(&mut self, action: &Action) {
        let counts = &mut self.counts;
        let (count, bytes) = match action {
            Action::Read | Action::HasCut(_) => (&mut counts.reads, 0),
            Action::Write { .. } => (&mut counts.writes, 0),
            Action::CompareSwap { .. } => (&mut counts.compare_swaps, 0),
            Action::FetchAdd(_) => (&mut counts.fetch_adds, 0),
            Action::Put(bytes) => (&mut counts.puts, bytes.len() as u64),
            Action::Get { len, .. } => (&mut counts.gets, *len),
            Action::Send(message, _) => (&mut counts.messages, message.len() as u64),
            Action::Got(_) => return,
        };
        *count += 1;
        counts.bytes += bytes;
    }

    /// Checks the offset of a word.
    pub(crate) fn check_word(&self, origin: Rank, at: At) -> Result<(), Fault> {
        let rank = self.ranks.get(at.rank.index()).ok_or(Fault::of(FaultKind::NoSuchRank, at.rank))?;
        self.died(origin, at.rank).map_or(Ok(()), Err)?;
        let len = rank.memory.len(at.region.0).ok_or(Fault::of(FaultKind::NoSuchRegion, at.rank))?;
        check_word(at.rank, len, at.offset)
    }
}

/// Checks the offset of a word in a region of `len` bytes.
pub(crate) fn check_word(rank: Rank, len: u64, offset: u64) -> Result<(), Fault> {
    if !offset.is_multiple_of(8) {
        return Err(Fault::of(FaultKind::Misaligned, rank));
    }
    check_range(rank, len, offset, 8)
}

/// Checks that `count` bytes from `offset` lie in a region of `len` bytes.
pub(crate) fn check_range(rank: Rank, len: u64, offset: u64, count: u64) -> Result<(), Fault> {
    match offset.checked_add(count) {
        Some(end) if end <= len => Ok(()),
        _ => Err(Fault::of(FaultKind::OutOfRange, rank)),
    }
}
