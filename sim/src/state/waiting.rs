//! Waits, deaths and messages.

use onesided_fabric::Channel;
use onesided_remote_memory::{At, Fault, FaultKind, Liveness, Notify, Patience, Rank, Watch};

use super::{State, Step};
use crate::agenda::Due;
use crate::operation::{Action, Operation, SentBy};
use crate::rank::{Life, Waiter, What};

impl State {
    /// A rank changed `len` bytes of memory: wakes the tasks that wait for one of them.
    pub(crate) fn changed(&mut self, origin: Rank, at: At, len: u64, notify: Notify) {
        self.note_change();
        self.stall.remember(origin, at);
        self.look(at.rank, notify, |what| match what {
            What::Word { region, offset: word } => {
                region == at.region.0 && word < at.offset + len && at.offset < word + 8
            }
            _ => false,
        });
    }

    /// A polling rank sees what it waits for immediately; a sleeping one notices only the doorbell,
    /// and then checks everything.
    pub(super) fn look(&mut self, rank: Rank, notify: Notify, concerns: impl Fn(What) -> bool) {
        let state = &mut self.ranks[rank.index()];
        if let Some(processors) = &mut self.processors {
            let (seen_at, rings) = (self.now + self.wire.deliver, notify == Notify::Yes);
            if rings && state.serves() {
                processors.event(seen_at, rank.0, true, &mut self.agenda);
            }
            // What a handler sees has events of its own.
            let of_handler = |waiter: &Waiter| waiter.what == What::Packet && Some(waiter.thread) == state.handler();
            for waiter in state.waiting().iter().filter(|waiter| concerns(waiter.what) && !of_handler(waiter)) {
                processors.event(seen_at, waiter.thread, rings, &mut self.agenda);
            }
            return;
        }
        for waiter in state.waiting().iter().filter(|waiter| waiter.watches && concerns(waiter.what)) {
            self.agenda.enter(self.now + self.wire.same_host, Due::Wake(waiter.thread));
        }
        if notify == Notify::Yes && state.serves() {
            self.agenda.enter(self.now + self.wire.wake, Due::Wake(rank.0));
        }
        if state.waiting().iter().all(|waiter| waiter.watches) {
            return;
        }
        if state.polls(self.now) {
            if state.waits_for(concerns) {
                self.agenda.enter(self.now, Due::Wake(rank.0));
            }
        } else if notify == Notify::Yes {
            self.agenda.enter(self.now + self.wire.wake, Due::Wake(rank.0));
        }
    }

    /// A rank died or left: wakes the ranks that watch it.
    pub(super) fn wake_watchers(&mut self, ends: impl Fn(Watch) -> bool) {
        if self.watching == 0 {
            return; // without a look at every rank
        }
        for rank in (0..self.ranks.len() as u32).map(Rank) {
            if self.ranks[rank.index()].waiting().iter().any(|waiter| ends(waiter.watch)) {
                self.wake_rank(rank, self.now);
            }
        }
    }

    /// Polls this rank at a time.
    pub(crate) fn alarm(&mut self, rank: Rank, time: u64) {
        let thread = self.thread_of(rank.0);
        self.agenda.enter(time, Due::Timer(thread));
    }

    /// As [`alarm`](Self::alarm), for pauses that mostly end early: sets no timer if an earlier one
    /// is pending. The caller calls it again when it is polled before `time`.
    pub(crate) fn alarm_at_latest(&mut self, rank: Rank, time: u64) {
        let thread = self.thread_of(rank.0);
        if !(self.now + 1..=time).contains(&self.timer_at.of(thread)) {
            self.timer_at.set(thread, time);
            self.alarm(rank, time);
        }
    }

    /// Registers what a future of this rank waits for.
    pub(crate) fn wait(&mut self, rank: Rank, what: What, watch: Watch) {
        let thread = self.thread_of(rank.0);
        let waiting = &mut self.ranks[rank.index()].more().waiting;
        if waiting.is_empty() {
            waiting.reserve_exact(1); // most ranks wait for one thing at a time
        }
        waiting.push(Waiter { what, watch, thread, watches: false });
        self.watching += usize::from(watch != Watch::NoRank);
    }

    /// Has this rank see the changes of a word on its host.
    pub(crate) fn watch_word(&mut self, rank: Rank, at: At) {
        let what = What::Word { region: at.region.0, offset: at.offset };
        let waiter = Waiter { what, watch: Watch::NoRank, thread: self.thread_of(rank.0), watches: true };
        self.ranks[at.rank.index()].more().waiting.push(waiter);
    }

    pub(crate) fn stop_watching_word(&mut self, rank: Rank, at: At) {
        let what = What::Word { region: at.region.0, offset: at.offset };
        let is_this = |other: &Waiter| other.watches && other.what == what && self.rank_of(other.thread) == rank.0;
        if let Some(index) = self.ranks[at.rank.index()].waiting().iter().position(is_this) {
            self.ranks[at.rank.index()].more().waiting.swap_remove(index);
        }
    }

    pub(crate) fn load(&self, at: At) -> u64 {
        self.ranks[at.rank.index()].memory.load(at.region.0, at.offset)
    }

    /// Removes such a registration, of a thread if that is given.
    pub(crate) fn stop_waiting(&mut self, rank: Rank, what: What, watch: Watch, thread: Option<u32>) {
        let waiting = &mut self.ranks[rank.index()].more().waiting;
        let is_this = |waiter: &Waiter| {
            (waiter.what, waiter.watch, waiter.watches) == (what, watch, false)
                && thread.is_none_or(|thread| waiter.thread == thread)
        };
        if let Some(index) = waiting.iter().position(is_this) {
            waiting.swap_remove(index);
            self.watching -= usize::from(watch != Watch::NoRank);
        }
    }

    /// The fault that ends a rank's wait, if there is one.
    pub(crate) fn out_of_patience(&self, rank: Rank, patience: Patience) -> Option<Fault> {
        let watched = match patience.watch {
            Watch::NoRank => None,
            Watch::Rank(other) | Watch::RankAndFailures(other) => {
                self.absent(rank, other).or_else(|| self.denied(rank, other))
            }
        };
        watched.or_else(|| (self.now >= patience.deadline).then(|| Fault::new(FaultKind::TimedOut)))
    }

    // ---- Life and death ----

    /// The fault of needing a rank that is known to have died or left.
    pub(crate) fn absent(&self, rank: Rank, other: Rank) -> Option<Fault> {
        self.liveness(rank, other).needed(other).err()
    }

    /// The liveness of a rank as another knows it.
    pub(crate) fn liveness(&self, rank: Rank, other: Rank) -> Liveness {
        match self.lives.get(other.index()) {
            Some(_) if self.knows_failed(rank, other) => Liveness::Dead,
            Some(Life::Alive | Life::Closing | Life::Killed) => Liveness::Alive,
            Some(Life::Left) | None => Liveness::Left,
        }
    }

    /// Whether a rank was killed, known or not.
    pub(crate) fn is_killed(&self, rank: Rank) -> bool {
        self.lives.get(rank.index()) == Some(&Life::Killed)
    }

    /// Schedules a rank's death.
    pub(crate) fn kill_at(&mut self, rank: Rank, time: u64) {
        self.agenda.enter(time, Due::Kill(rank.0));
    }

    pub(super) fn kill(&mut self, rank: u32) -> Option<Step> {
        let life = &mut self.lives[rank as usize];
        if *life != Life::Alive && *life != Life::Closing {
            return None; // one that left cannot die
        }
        *life = Life::Killed;
        self.notes.end(Rank(rank));
        if let Some(processors) = &mut self.processors {
            processors.kill(self.now, rank, &mut self.agenda);
        }
        self.trace.note([self.now, 2, rank.into(), 0]);
        self.agenda.enter(self.now + self.wire.detection, Due::Detect(rank));
        Some(Step::Kill(rank))
    }

    /// Adds a handle of a rank's endpoint.
    pub(crate) fn open(&mut self, rank: Rank) {
        self.handles[rank.index()] += 1;
    }

    /// Removes a handle. With the last one the rank leaves as soon as what it posted is complete.
    pub(crate) fn close(&mut self, rank: Rank) {
        self.handles[rank.index()] -= 1;
        let life = &mut self.lives[rank.index()];
        if self.over || self.handles[rank.index()] > 0 || *life != Life::Alive {
            return;
        }
        *life = Life::Closing;
        if self.ranks[rank.index()].is_idle() {
            self.agenda.enter(self.now + self.wire.latency, Due::Leave(rank.0));
        }
    }

    // ---- Packets ----

    /// Sends a packet if the connection has room.
    pub(crate) fn send(
        &mut self,
        from: Rank,
        to: Rank,
        (head, body): (&[u8], &[u8]),
        mut by: SentBy,
    ) -> Result<bool, Fault> {
        if let Some(fault) = self.absent(from, to).or_else(|| self.denied(from, to)) {
            return Err(fault);
        }
        if by != SentBy::Slot {
            let room = self.wire.room;
            let connection = self.ranks[from.index()].connection(to.0);
            if connection.unread >= room {
                return Ok(false);
            }
            connection.unread += 1;
            if connection.unread == room {
                by = SentBy::Solicited; // a handler makes room
            }
        }
        let action = Action::Send([head, body].concat().into(), by);
        let slot = self.post(Operation::new(from, to, 0, 0, action));
        self.detach(slot);
        Ok(true)
    }

    /// Whether handlers of messages are modelled: threads that sleep until solicited packets, which
    /// have connections.
    pub(crate) fn has_handlers(&self) -> bool {
        self.processors.is_some() && !self.wire.datagrams
    }

    /// A solicited packet wakes the handler if it is armed.
    pub(super) fn solicit(&mut self, rank: Rank) {
        let handler = &mut self.ranks[rank.index()].more().rare().handler;
        if handler.is_armed {
            handler.events = handler.events.wrapping_add(1);
            if let (Some(thread), Some(processors)) = (handler.thread, &mut self.processors) {
                processors.event(self.now + self.wire.deliver, thread, true, &mut self.agenda);
            }
        }
    }

    /// Takes the next packet; its sender learns that there is room.
    pub(crate) fn take_packet(&mut self, rank: Rank) -> Option<(Rank, Channel, Box<[u8]>)> {
        let (from, channel, bytes) = self.ranks[rank.index()].more().rare().packets.pop_front()?;
        let sender = &mut self.ranks[from.index()];
        if channel != Channel::FastPath {
            sender.connection(rank.0).unread -= 1;
            if sender.waits_for(|what| what == What::Room(rank)) {
                self.wake_rank(from, self.now + self.wire.latency);
            }
        }
        Some((from, channel, bytes))
    }
}
