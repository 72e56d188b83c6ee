//! What becomes of an operation: it leaves, arrives, takes effect, completes.

use onesided_remote_memory::{At, Fault, FaultKind, Rank, RegionId};

use super::State;
use crate::agenda::Due;
use crate::operation::{Action, Operation, Stage};
use crate::rank::{Life, What};

impl State {
    /// Posts an operation; its outcome will be in the returned slot.
    pub(crate) fn post(&mut self, mut operation: Operation) -> u32 {
        let Operation { origin, target, .. } = operation;
        let thread = self.thread_of(origin);
        operation.thread = thread;
        let refused = if self.over || self.lives[origin as usize].is_over() {
            Some(Fault::new(FaultKind::Closed))
        } else if operation.same_host && self.lives[target as usize].is_over() {
            self.lost(Rank(origin), Rank(target))
        } else {
            self.died(Rank(origin), Rank(target)).or_else(|| self.denied(Rank(origin), Rank(target)))
        };
        if let Some(fault) = refused {
            return self.refuse(operation, fault);
        }
        if operation.same_host {
            self.counts.same_host += 1;
            self.charge_post(thread);
            let slot = self.operations.insert(operation);
            self.agenda.enter(self.clock() + self.wire.same_host, Due::Operation(slot));
            return slot;
        }
        self.count(&operation.action);
        self.charge_post(thread);

        let limited = self.wire.outstanding > 0;
        let is_read = operation.action.is_read() || operation.action.is_atomic();
        let slot = self.operations.insert(operation);
        let connection = self.ranks[origin as usize].connection(target);
        connection.posted = connection.posted.wrapping_add(1);
        if limited {
            let limited = self.limited.entry((origin, target)).or_default();
            if !limited.held.is_empty() || (is_read && limited.in_flight == self.wire.outstanding) {
                limited.held.push_back(slot);
                return slot;
            }
            limited.in_flight += u32::from(is_read);
        }
        self.launch(slot);
        slot
    }

    /// A read or an atomic has completed: those behind the limit go.
    fn launch_held(&mut self, origin: u32, target: u32) {
        let Some(limited) = self.limited.get_mut(&(origin, target)) else { return };
        limited.in_flight -= 1;
        let mut going = Vec::new();
        while let Some(&slot) = limited.held.front() {
            let action = &self.operations[slot].action;
            let is_read = action.is_read() || action.is_atomic();
            if is_read && limited.in_flight == self.wire.outstanding {
                break;
            }
            limited.in_flight += u32::from(is_read);
            limited.held.pop_front();
            going.push(slot);
        }
        for slot in going {
            self.launch(slot);
        }
    }

    /// How long a message travels that leaves now; `Err` is the time after which its sender gives
    /// up.
    fn travel(&mut self, from: u32, to: u32) -> Result<u64, u64> {
        match self.partitioned_until(from, to) {
            None => self.wire.travel(),
            Some(heals) => self.wire.travel_after(self.now, heals),
        }
    }

    /// How long the cards of two ranks fetch the contexts of what a message uses: a connection to a rank, or datagrams.
    pub(super) fn fetches(&mut self, at: u64, from: (u32, Option<u32>), to: (u32, Option<u32>)) -> u64 {
        [from, to].iter().fold(0, |after, of| after + self.wire.contexts.fetch(at + after, self.card_of(of.0), *of))
    }

    /// When the wires between two ranks are whole again, if they are cut.
    pub(super) fn partitioned_until(&self, from: u32, to: u32) -> Option<u64> {
        let cut = self.partitions.iter().filter(|partition| {
            partition.time.contains(&self.now) && partition.ranks.contains(&from) != partition.ranks.contains(&to)
        });
        cut.map(|partition| partition.time.end).max()
    }

    /// The origin's card sends an operation.
    fn launch(&mut self, slot: u32) {
        let operation = &self.operations[slot];
        let (origin, target) = (operation.origin, operation.target);
        let sending = self.wire.occupied(operation.action.bytes());
        let behind_lost = self.ranks[origin as usize].connection(target).lost;
        let travel = match origin == target {
            true => Ok(0),
            false if behind_lost => Err(0),
            false => {
                let receive = if operation.action.takes_room() { self.wire.fetch_receive } else { 0 };
                let fetches = self.fetches(self.clock(), (origin, Some(target)), (target, Some(origin)));
                self.travel(origin, target).map(|travel| travel + fetches + receive)
            }
        };
        let ready_at = self.clock() + self.wire.doorbell;
        let card = self.card_of(origin);
        let card = &mut self.ranks[card as usize];
        let leaves_at = card.sends_at.max(ready_at) + self.wire.send;
        card.sends_at = leaves_at + sending;
        let connection = self.ranks[origin as usize].connection(target);
        // An operation whose resends are all lost keeps its place in the order: later ones do not
        // overtake it, and are lost with it.
        connection.lost = travel.is_err();
        let travel = travel.unwrap_or_else(|given_up| {
            self.operations[slot].set_outcome(Err(Fault::of(FaultKind::Unknown, Rank(target))));
            given_up
        });
        connection.arrives_at = connection.arrives_at.max(leaves_at + travel);
        self.agenda.enter(connection.arrives_at, Due::Operation(slot));
    }

    /// Completes an operation with a fault instead of posting it.
    pub(crate) fn refuse(&mut self, mut operation: Operation, fault: Fault) -> u32 {
        (operation.thread, operation.stage) = (self.thread_of(operation.origin), Stage::Refused);
        operation.set_outcome(Err(fault));
        let slot = self.operations.insert(operation);
        self.agenda.enter(self.clock() + 1, Due::Operation(slot));
        slot
    }

    /// Handles an operation's event. Returns the thread whose tasks it concerns.
    pub(super) fn advance(&mut self, slot: u32) -> Option<u32> {
        let operation = &self.operations[slot];
        match operation.stage {
            Stage::Outward if operation.same_host => {
                self.arrivals += 1;
                return self.take_effect_on_host(slot);
            }
            Stage::Outward => {
                self.arrivals += 1;
                self.arrive(self.card_of(operation.target), slot);
            }
            Stage::Homeward => self.arrive(self.card_of(operation.origin), slot),
            Stage::Completing => return self.complete(slot),
            Stage::Stale => drop(self.operations.remove(slot)),
            Stage::Refused => {
                let Operation { thread, awaited, .. } = self.operations[slot];
                self.operations[slot].stage = Stage::Complete;
                if !awaited {
                    drop(self.operations.remove(slot));
                }
                return Some(thread);
            }
            Stage::Free | Stage::Complete => debug_assert!(false, "a complete operation has no events"),
        }
        None
    }

    /// The origin applies a same-host operation itself.
    fn take_effect_on_host(&mut self, slot: u32) -> Option<u32> {
        let Operation { origin, target, region, offset, awaited, thread, .. } = self.operations[slot];
        let outcome = match self.operations[slot].outcome() {
            Err(fault) => Err(fault),
            Ok(_) if self.knows_lost(Rank(target), Rank(target), Rank(origin)) => {
                Err(Fault::of(FaultKind::ConnectionLost, Rank(target)))
            }
            Ok(_) => self.apply(slot),
        };
        let operation = &mut self.operations[slot];
        operation.set_outcome(outcome);
        operation.stage = Stage::Complete;
        let value = outcome.unwrap_or_else(Fault::to_bits);
        self.trace.note([self.now, u64::from(origin) << 32 | u64::from(target), offset, value]);
        if self.lives[origin as usize].is_over() {
            drop(self.operations.remove(slot));
            return None;
        }
        if awaited {
            let at = At { rank: Rank(target), region: RegionId(region), offset };
            self.stall.note_retry(Rank(origin), Some((at, value)));
        } else {
            self.finish(slot);
        }
        self.completed(thread, awaited, None)
    }

    /// The head of a message arrives at a card, which receives one message after another.
    fn arrive(&mut self, card: u32, slot: u32) {
        let busy = self.ranks[card as usize].is_receiving();
        if !busy && self.receives_at.of(card) <= self.now && self.operations[slot].action.bytes() == 0 {
            return self.receive(card, slot);
        }
        self.ranks[card as usize].more().rare().inbound.push_back(slot);
        if !busy {
            self.begin_to_receive(card, slot);
        }
    }

    fn begin_to_receive(&mut self, card: u32, slot: u32) {
        let begins_at = self.receives_at.of(card).max(self.now);
        let bytes = self.operations[slot].action.bytes();
        self.agenda.enter(begins_at + self.wire.occupied(bytes), Due::Card(card));
    }

    /// A card has received the first message of its queue.
    pub(super) fn end_to_receive(&mut self, card: u32) {
        if let Some(slot) = self.ranks[card as usize].more().rare().inbound.pop_front() {
            self.receive(card, slot);
        }
        if let Some(&next) = self.ranks[card as usize].more().rare().inbound.front() {
            self.begin_to_receive(card, next);
        }
    }

    fn receive(&mut self, card: u32, slot: u32) {
        let operation = &self.operations[slot];
        if operation.stage == Stage::Stale {
            return drop(self.operations.remove(slot));
        }
        if operation.stage == Stage::Outward {
            if self.wire.receive > 0 {
                self.receives_at.set(card, self.now + self.wire.receive);
            }
            return self.take_effect(slot);
        }
        let connection = self.ranks[operation.origin as usize].connection(operation.target);
        connection.bulky -= 1;
        connection.completes_at = connection.completes_at.max(self.now);
        self.operations[slot].stage = Stage::Completing;
        self.agenda.enter(connection.completes_at, Due::Operation(slot));
    }

    /// The target's card applies the operation, and answers.
    fn take_effect(&mut self, slot: u32) {
        let operation = &self.operations[slot];
        let (origin, target) = (operation.origin, operation.target);
        let lost = operation.outcome().is_err();
        let unknown = Err(Fault::of(FaultKind::Unknown, Rank(target)));
        let answers_after = if lost {
            if operation.action.takes_room() {
                self.ranks[origin as usize].connection(target).unread -= 1;
            }
            Ok(0) // the target's simulated time is over
        } else if self.lives[target as usize].is_over() || self.knows_lost(Rank(target), Rank(target), Rank(origin)) {
            Err(self.wire.patience())
        } else {
            let outcome = self.apply(slot);
            self.operations[slot].set_outcome(outcome);
            if origin == target { Ok(0) } else { self.travel(target, origin) }
        };
        let travel = answers_after.unwrap_or_else(|given_up| {
            self.operations[slot].set_outcome(unknown);
            given_up
        });

        let bytes = match &self.operations[slot].action {
            got @ Action::Got(_) => got.bytes(),
            _ => 0,
        };
        let mut leaves_at = self.answered_at(slot) + self.wire.receive;
        if bytes > 0 {
            let card = self.card_of(target);
            let card = &mut self.ranks[card as usize];
            leaves_at = leaves_at.max(card.sends_at);
            card.sends_at = leaves_at + self.wire.occupied(bytes);
        }
        let travel = travel + self.wire.deliver;
        let connection = self.ranks[origin as usize].connection(target);
        connection.completes_at = connection.completes_at.max(leaves_at + travel);
        // Completions occur in the order of posting, so what is behind bulk data goes the same way.
        let bulky = bytes > 0 || connection.bulky > 0;
        connection.bulky += u32::from(bulky);
        self.operations[slot].stage = if bulky { Stage::Homeward } else { Stage::Completing };
        self.agenda.enter(connection.completes_at, Due::Operation(slot));
    }

    /// When the target's card has done what an operation asks for.
    fn answered_at(&mut self, slot: u32) -> u64 {
        let Operation { target, region, offset, ref action, .. } = self.operations[slot];
        if action.is_read() {
            return self.now + self.wire.read;
        }
        if !action.is_atomic() || self.wire.atomic == 0 {
            return self.now;
        }
        let held_until = self.held_words.entry((target, region, offset)).or_default();
        *held_until = self.now.max(*held_until) + self.wire.atomic;
        *held_until
    }

    /// The origin learns the outcome. Returns the thread if that concerns its tasks.
    fn complete(&mut self, slot: u32) -> Option<u32> {
        let (origin, target) = (self.operations[slot].origin, self.operations[slot].target);
        if !self.tell_cause(slot) {
            return None;
        }
        let operation = &mut self.operations[slot];
        operation.stage = Stage::Complete;
        let (awaited, thread) = (operation.awaited, operation.thread);
        let was_read = operation.action.is_read() || operation.action.is_atomic();
        let value = operation.outcome().unwrap_or_else(Fault::to_bits);
        self.trace.note([self.now, u64::from(origin) << 32 | u64::from(target), operation.offset, value]);
        if awaited {
            let at = At { rank: Rank(target), region: RegionId(operation.region), offset: operation.offset };
            self.stall.note_retry(Rank(origin), Some((at, value)));
        }

        let rank = &mut self.ranks[origin as usize];
        let life = self.lives[origin as usize];
        let (bytes, into) = match &operation.action {
            Action::Got(got) => (Some(&got.bytes).filter(|_| operation.outcome().is_ok()), got.into.as_deref()),
            Action::Get { into, .. } => (None, into.as_deref()),
            _ => (None, None),
        };
        if let Some(into) = into {
            let memory = &mut rank.memory;
            if let Some(bytes) = bytes {
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
        let flushes = rank.waits_for(|what| what == What::Flush(Rank(target)));
        if !awaited {
            self.finish(slot);
        }
        if was_read && self.wire.outstanding > 0 {
            self.launch_held(origin, target);
        }
        self.completed(thread, awaited, flushes.then_some(Rank(target)))
    }

    /// Frees a complete operation that no future awaits; its fault is kept for the next flush.
    fn finish(&mut self, slot: u32) {
        self.keep_fault(slot);
        drop(self.operations.remove(slot));
    }

    fn keep_fault(&mut self, slot: u32) {
        let operation = &self.operations[slot];
        if let Err(fault) = operation.outcome() {
            self.faults.entry((operation.origin, operation.target)).or_insert(fault);
        }
    }

    /// Detaches an operation from its future.
    pub(crate) fn detach(&mut self, slot: u32) {
        self.operations[slot].awaited = false;
        match self.operations[slot].stage {
            Stage::Complete => self.finish(slot),
            Stage::Refused => self.keep_fault(slot), // a flush at the same time tells of it
            _ => {}
        }
    }

    /// Takes the outcome of a complete operation and frees its slot.
    pub(crate) fn take(&mut self, slot: u32) -> Option<(Action, Result<u64, Fault>)> {
        (self.operations[slot].stage == Stage::Complete).then(|| self.operations.remove(slot))
    }
}
