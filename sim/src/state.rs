//! The state of a simulation and what its events do to it.

mod failures;
mod tasks;
mod waiting;

use std::collections::BTreeSet;

use onesided_fabric::Task;
use onesided_remote_memory::{At, Fault, FaultKind, Notify, Rank, Watch};

use crate::agenda::{Agenda, Due};
use crate::network::Wire;
use crate::operation::{Action, Operation, Operations, Stage};
use crate::rank::{Life, RankState};
use crate::report::{Counts, WaitsFor};
use crate::state::failures::Failure;

/// The state of the whole simulation.
#[derive(Debug)]
pub(crate) struct State {
    pub(crate) now: u64,
    pub(crate) ranks: Vec<RankState>,
    lives: Vec<Life>,
    /// The number of handles of each rank's endpoint.
    handles: Vec<u32>,
    pub(crate) operations: Operations,
    pub(crate) wire: Wire,
    pub(crate) counts: Counts,
    pub(crate) arrivals: u64,
    pub(crate) trace: Trace,
    /// Set at the end: operations of programs that are being dropped have no effect.
    pub(crate) over: bool,
    /// What ranks have yet to learn.
    news: Vec<(Rank, Failure)>,
    /// Whether any rank has learned of a failure.
    any_failed: bool,
    /// Pairs of ranks whose first rank's card refuses the operations of the second.
    revoked: BTreeSet<(u32, u32)>,
    /// Pairs of ranks without a connection, the lower rank first. Nothing that completes from then
    /// on has a known outcome.
    broken: BTreeSet<(Rank, Rank)>,
    agenda: Agenda,
    spawned: Spawned,
}

/// The next action of the executor.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Step {
    /// Poll this rank's tasks.
    Poll(u32),
    /// Drop this rank's tasks.
    Kill(u32),
    /// Take over the spawned tasks.
    Adopt,
    /// The end time is reached.
    TimeOver,
    /// No event is left.
    Idle,
}

/// Tasks that ranks spawned, until the executor takes them.
#[derive(Default)]
struct Spawned(Vec<(u32, Task, bool)>);

impl std::fmt::Debug for Spawned {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} tasks", self.0.len())
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
    pub(crate) fn new(ranks: u32, wire: Wire) -> Self {
        let mut all = Vec::new();
        all.resize_with(ranks as usize, RankState::default);
        Self {
            now: 0,
            ranks: all,
            lives: vec![Life::Alive; ranks as usize],
            handles: vec![0; ranks as usize],
            operations: Operations::default(),
            wire,
            counts: Counts::default(),
            arrivals: 0,
            trace: Trace::default(),
            over: false,
            news: Vec::new(),
            any_failed: false,
            revoked: BTreeSet::new(),
            broken: BTreeSet::new(),
            agenda: Agenda::default(),
            spawned: Spawned::default(),
        }
    }

    /// Processes events until one of them concerns a task.
    pub(crate) fn step(&mut self, until: u64) -> Step {
        loop {
            if !self.spawned.0.is_empty() {
                return Step::Adopt;
            }
            let Some((time, due)) = self.agenda.next(until) else {
                return if self.agenda.is_empty() { Step::Idle } else { Step::TimeOver };
            };
            self.now = time;
            let step = match due {
                Due::Operation(slot) => self.advance(slot).map(Step::Poll),
                Due::Card(rank) => {
                    self.end_to_receive(rank);
                    None
                }
                Due::Timer(rank) => {
                    self.counts.timers += 1;
                    self.trace.note([time, 1, rank.into(), 0]);
                    Some(Step::Poll(rank))
                }
                Due::Wake(rank) => Some(Step::Poll(rank)),
                Due::Kill(rank) => self.kill(rank),
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
                    self.wake_watchers(|watch| match watch {
                        Watch::Rank(left) | Watch::RankAndFailures(left) => left == Rank(rank),
                        Watch::NoRank => false,
                    });
                    None
                }
            };
            if let Some(step) = step {
                return step;
            }
        }
    }

    /// Posts an operation; its outcome will be in the returned slot.
    pub(crate) fn post(&mut self, operation: Operation) -> u32 {
        let Operation { origin, target, .. } = operation;
        let refused = if self.over || self.lives[origin as usize].is_over() {
            Some(Fault::new(FaultKind::Closed))
        } else {
            self.died(Rank(origin), Rank(target)).or_else(|| self.denied(Rank(origin), Rank(target)))
        };
        if let Some(fault) = refused {
            return self.refuse(operation, fault);
        }
        if operation.same_host {
            self.counts.same_host += 1;
            let slot = self.operations.insert(operation);
            self.agenda.enter(self.now + self.wire.same_host, Due::Operation(slot));
            return slot;
        }
        self.count(&operation.action);

        let sending = self.wire.occupied(operation.action.bytes());
        let behind_lost = self.ranks[origin as usize].connection(target).lost;
        let travel = match origin == target {
            true => Ok(0),
            false if behind_lost => Err(0),
            false => self.wire.travel(),
        };
        let slot = self.operations.insert(operation);
        let rank = &mut self.ranks[origin as usize];
        let leaves_at = rank.sends_at.max(self.now) + self.wire.send;
        rank.sends_at = leaves_at + sending;
        let connection = rank.connection(target);
        connection.posted = connection.posted.wrapping_add(1);
        // An operation whose resends are all lost keeps its place in the order: later ones do not
        // overtake it, and are lost with it.
        connection.lost = travel.is_err();
        let travel = travel.unwrap_or_else(|given_up| {
            self.operations[slot].outcome = Err(Fault::of(FaultKind::Unknown, Rank(target)));
            given_up
        });
        connection.arrives_at = connection.arrives_at.max(leaves_at + travel);
        self.agenda.enter(connection.arrives_at, Due::Operation(slot));
        slot
    }

    /// Completes an operation with a fault instead of posting it.
    pub(crate) fn refuse(&mut self, operation: Operation, fault: Fault) -> u32 {
        self.agenda.enter(self.now + 1, Due::Wake(operation.origin));
        self.operations.insert(Operation { stage: Stage::Complete, outcome: Err(fault), ..operation })
    }

    /// Handles an operation's event. Returns the rank whose tasks it concerns.
    fn advance(&mut self, slot: u32) -> Option<u32> {
        let operation = &self.operations[slot];
        match operation.stage {
            Stage::Outward if operation.same_host => return self.take_effect_on_host(slot),
            Stage::Outward => {
                self.arrivals += 1;
                self.arrive(operation.target, slot);
            }
            Stage::Homeward => self.arrive(operation.origin, slot),
            Stage::Completing => return self.complete(slot),
            Stage::Free | Stage::Complete => debug_assert!(false, "a complete operation has no events"),
        }
        None
    }

    /// The origin applies a same-host operation itself.
    fn take_effect_on_host(&mut self, slot: u32) -> Option<u32> {
        let Operation { origin, target, offset, awaited, .. } = self.operations[slot];
        let outcome = match self.lives[target as usize].is_over() {
            true => Err(Fault::of(FaultKind::PeerDied, Rank(target))),
            false if self.knows_lost(Rank(target), Rank(target), Rank(origin)) => {
                Err(Fault::of(FaultKind::ConnectionLost, Rank(target)))
            }
            false => self.apply(slot),
        };
        let operation = &mut self.operations[slot];
        (operation.outcome, operation.stage) = (outcome, Stage::Complete);
        let value = outcome.unwrap_or_else(Fault::to_bits);
        self.trace.note([self.now, u64::from(origin) << 32 | u64::from(target), offset, value]);
        if self.lives[origin as usize].is_over() {
            drop(self.operations.remove(slot));
            return None;
        }
        if !awaited {
            self.finish(slot);
        }
        awaited.then_some(origin)
    }

    /// The head of a message arrives at a card, which receives one message after another.
    fn arrive(&mut self, card: u32, slot: u32) {
        let rank = self.ranks[card as usize].more();
        let busy = !rank.inbound.is_empty();
        if !busy && rank.receives_at <= self.now && self.operations[slot].action.bytes() == 0 {
            return self.receive(card, slot);
        }
        rank.inbound.push_back(slot);
        if !busy {
            self.begin_to_receive(card, slot);
        }
    }

    fn begin_to_receive(&mut self, card: u32, slot: u32) {
        let begins_at = self.ranks[card as usize].more().receives_at.max(self.now);
        let bytes = self.operations[slot].action.bytes();
        self.agenda.enter(begins_at + self.wire.occupied(bytes), Due::Card(card));
    }

    /// A card has received the first message of its queue.
    fn end_to_receive(&mut self, card: u32) {
        if let Some(slot) = self.ranks[card as usize].more().inbound.pop_front() {
            self.receive(card, slot);
        }
        if let Some(&next) = self.ranks[card as usize].more().inbound.front() {
            self.begin_to_receive(card, next);
        }
    }

    fn receive(&mut self, card: u32, slot: u32) {
        let state = &mut self.ranks[card as usize];
        if self.operations[slot].stage == Stage::Outward {
            state.more().receives_at = self.now + self.wire.receive;
            return self.take_effect(slot);
        }
        state.more().receives_at = self.now;
        let connection = state.connection(self.operations[slot].target);
        connection.bulky -= 1;
        connection.completes_at = connection.completes_at.max(self.now);
        self.operations[slot].stage = Stage::Completing;
        self.agenda.enter(connection.completes_at, Due::Operation(slot));
    }

    /// The target's card applies the operation, and answers.
    fn take_effect(&mut self, slot: u32) {
        let operation = &self.operations[slot];
        let (origin, target) = (operation.origin, operation.target);
        let lost = operation.outcome.is_err();
        let unknown = Err(Fault::of(FaultKind::Unknown, Rank(target)));
        let answers_after = if lost {
            if let Action::Send(_) = operation.action {
                self.ranks[origin as usize].connection(target).unread -= 1;
            }
            Ok(0) // the target's simulated time is over
        } else if self.lives[target as usize].is_over() || self.knows_lost(Rank(target), Rank(target), Rank(origin)) {
            Err(self.wire.patience())
        } else {
            let outcome = self.apply(slot);
            self.operations[slot].outcome = outcome;
            if origin == target { Ok(0) } else { self.wire.travel() }
        };
        let travel = answers_after.unwrap_or_else(|given_up| {
            self.operations[slot].outcome = unknown;
            given_up
        });

        let bytes = match &self.operations[slot].action {
            got @ Action::Got { .. } => got.bytes(),
            _ => 0,
        };
        let mut leaves_at = self.now + self.wire.receive;
        if bytes > 0 {
            let target = &mut self.ranks[target as usize];
            leaves_at = leaves_at.max(target.sends_at);
            target.sends_at = leaves_at + self.wire.occupied(bytes);
        }
        let connection = self.ranks[origin as usize].connection(target);
        connection.completes_at = connection.completes_at.max(leaves_at + travel);
        // Completions occur in the order of posting, so what is behind bulk data goes the same way.
        let bulky = bytes > 0 || connection.bulky > 0;
        connection.bulky += u32::from(bulky);
        self.operations[slot].stage = if bulky { Stage::Homeward } else { Stage::Completing };
        self.agenda.enter(connection.completes_at, Due::Operation(slot));
    }

    /// The origin learns the outcome. Returns the origin if that concerns its tasks.
    fn complete(&mut self, slot: u32) -> Option<u32> {
        let (origin, target) = (self.operations[slot].origin, self.operations[slot].target);
        if !self.tell_cause(slot) {
            return None;
        }
        let operation = &mut self.operations[slot];
        operation.stage = Stage::Complete;
        let awaited = operation.awaited;
        let value = operation.outcome.unwrap_or_else(Fault::to_bits);
        self.trace.note([self.now, u64::from(origin) << 32 | u64::from(target), operation.offset, value]);

        let rank = &mut self.ranks[origin as usize];
        let life = self.lives[origin as usize];
        if let Action::Got { into: Some(into), .. } | Action::Get { into: Some(into), .. } = &operation.action {
            let memory = &mut rank.more().memory;
            if let (Action::Got { bytes, .. }, Ok(_)) = (&operation.action, operation.outcome) {
                memory.write(into.region, into.offset, bytes);
            }
            memory.release(into.region);
        }
        let connection = rank.connection(target);
        connection.completed = connection.completed.wrapping_add(1);
        if life == Life::Closing && rank.is_idle() {
            self.agenda.enter(self.now + self.wire.latency, Due::Leave(origin));
        }
        if life.is_over() {
            drop(self.operations.remove(slot));
            return None;
        }
        let flushes = rank.waits_for(|what| what == WaitsFor::Flush(Rank(target)));
        if !awaited {
            self.finish(slot);
        }
        (awaited || flushes).then_some(origin)
    }

    /// Frees a complete operation that no future awaits; its fault is kept for the next flush.
    fn finish(&mut self, slot: u32) {
        let (origin, target) = (self.operations[slot].origin, self.operations[slot].target);
        if let (_, Err(fault)) = self.operations.remove(slot) {
            self.ranks[origin as usize].connection(target).fault.get_or_insert(fault);
        }
    }

    /// Detaches an operation from its future.
    pub(crate) fn detach(&mut self, slot: u32) {
        self.operations[slot].awaited = false;
        if self.operations[slot].stage == Stage::Complete {
            self.finish(slot);
        }
    }

    /// Takes the outcome of a complete operation and frees its slot.
    pub(crate) fn take(&mut self, slot: u32) -> Option<(Action, Result<u64, Fault>)> {
        (self.operations[slot].stage == Stage::Complete).then(|| self.operations.remove(slot))
    }

    /// Applies an operation to the memory of its target.
    fn apply(&mut self, slot: u32) -> Result<u64, Fault> {
        let operation = &mut self.operations[slot];
        let (region, offset) = (operation.region, operation.offset);
        let target = Rank(operation.target);
        let origin = Rank(operation.origin);
        if self.has_revoked(target, origin) {
            if let Action::Send(_) = self.operations[slot].action {
                self.ranks[origin.index()].connection(target.0).unread -= 1;
            }
            return Err(Fault::of(FaultKind::Revoked, target));
        }
        let operation = &mut self.operations[slot];
        if let Action::HasCut(rank) = operation.action {
            return Ok(self.has_cut(target, rank).into());
        }
        let memory = &mut self.ranks[target.index()].more().memory;
        if !matches!(operation.action, Action::Send(_)) && memory.len(region).is_none() {
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
                operation.action = Action::Got { bytes, into: into.take() };
                (0, 0, Notify::No)
            }
            Action::Send(message) => {
                let (port, notify, message) = **message;
                self.ranks[target.index()].more().port(port).push_back(message);
                self.look(target, notify, |what| what == WaitsFor::Message(port));
                return Ok(0);
            }
            Action::HasCut(_) | Action::Got { .. } => (0, 0, Notify::No),
        };
        if changed > 0 {
            self.changed(target, region, offset, changed, notify);
        }
        Ok(found)
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
            Action::Send(message) => (&mut counts.messages, message.2.bytes().len() as u64),
            Action::Got { .. } => return,
        };
        *count += 1;
        counts.bytes += bytes;
    }

    /// Checks the offset of a word.
    pub(crate) fn check_word(&self, origin: Rank, at: At) -> Result<(), Fault> {
        let rank = self.ranks.get(at.rank.index()).ok_or(Fault::of(FaultKind::NoSuchRank, at.rank))?;
        self.died(origin, at.rank).map_or(Ok(()), Err)?;
        let len = rank.memory().len(at.region.0).ok_or(Fault::of(FaultKind::NoSuchRegion, at.rank))?;
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
