//! Which thread an event concerns, and when it is polled.

use onesided_remote_memory::Rank;

use super::State;
use crate::agenda::Due;
use crate::rank::What;

impl State {
    /// The time of the thread that is polled.
    pub(crate) fn clock(&self) -> u64 {
        match &self.processors {
            Some(processors) => processors.clock(self.current).max(self.now),
            None => self.now,
        }
    }

    /// Starts the threads. Whether every program is polled now; otherwise events poll them.
    pub(crate) fn start(&mut self, late: &[(u32, u64)]) -> bool {
        let ranks = self.ranks.len() as u32;
        for (rank, time) in late.iter().filter(|(rank, _)| *rank < ranks) {
            self.agenda.enter(*time, Due::Wake(*rank));
        }
        let Some(processors) = &mut self.processors else { return true };
        processors.start(late, &mut self.agenda);
        false
    }

    /// Whether threads are modelled: a rank may have several.
    pub(crate) const fn has_threads(&self) -> bool {
        self.processors.is_some()
    }

    /// The thread that posts for a rank.
    pub(crate) fn thread_of(&self, rank: u32) -> u32 {
        match &self.processors {
            Some(processors) if processors.rank_of(self.current) == rank => self.current,
            _ => rank,
        }
    }

    pub(crate) fn rank_of(&self, thread: u32) -> u32 {
        self.processors.as_ref().map_or(thread, |processors| processors.rank_of(thread))
    }

    /// The rank whose state has the card of a rank.
    pub(super) fn card_of(&self, rank: u32) -> u32 {
        self.processors.as_ref().map_or(rank, |processors| processors.card_of(rank))
    }

    /// A thread of a rank that serves its peers, if threads are modelled.
    pub(crate) fn add_server(&mut self, rank: Rank, polls: bool) -> Option<u32> {
        let processors = self.processors.as_mut()?;
        Some(processors.add_server(self.now, rank.0, polls, &mut self.agenda))
    }

    /// The thread that is polled has something for another one.
    pub(crate) fn rouse(&mut self, thread: u32) {
        let now = self.clock();
        if let Some(processors) = &mut self.processors
            && thread != self.current
        {
            processors.rouse(now, thread, &mut self.agenda);
        }
    }

    pub(super) fn charge_post(&mut self, thread: u32) {
        if let Some(processors) = &mut self.processors {
            processors.charge_post(thread);
        }
    }

    /// The thread that is polled copies some bytes.
    pub(crate) fn charge_copy(&mut self, bytes: u64) {
        if let Some(processors) = &mut self.processors {
            processors.charge_copy(self.current, bytes);
        }
    }

    /// The thread that is polled polls the rings of its rank.
    pub(crate) fn charge_slots(&mut self, rank: Rank) {
        if let Some(processors) = &mut self.processors {
            processors.charge_slots(self.current, self.wire.rings(rank));
        }
    }

    /// The thread that is polled registers some bytes.
    pub(crate) fn charge_registration(&mut self, bytes: u64) {
        if let Some(processors) = &mut self.processors {
            processors.charge_registration(self.current, bytes);
        }
    }

    /// An operation has completed: the thread that awaits it, and those that flush its target.
    pub(super) fn completed(&mut self, thread: u32, awaited: bool, flushes: Option<Rank>) -> Option<u32> {
        let Some(processors) = &mut self.processors else {
            return (awaited || flushes.is_some()).then_some(thread);
        };
        if awaited {
            processors.event(self.now, thread, true, &mut self.agenda);
        }
        if let Some(target) = flushes {
            let rank = processors.rank_of(thread);
            for waiter in self.ranks[rank as usize].waiting() {
                if waiter.what == What::Flush(target) && !(awaited && waiter.thread == thread) {
                    processors.event(self.now, waiter.thread, true, &mut self.agenda);
                }
            }
        }
        None
    }

    /// Has all threads of a rank check what they wait for.
    pub(super) fn wake_rank(&mut self, rank: Rank, time: u64) {
        if self.processors.is_none() {
            return self.agenda.enter(time, Due::Wake(rank.0));
        }
        for waiter in self.ranks[rank.index()].waiting() {
            self.agenda.enter(time, Due::Wake(waiter.thread));
        }
    }

    /// Whether a thread that has reason to be polled is polled now.
    pub(super) fn begin_poll(&mut self, thread: u32) -> bool {
        if let Some(processors) = &mut self.processors {
            if !processors.is_polled(self.now, thread, &mut self.agenda) {
                return false;
            }
            processors.begin_poll(self.now, thread);
            self.polling = true;
        }
        self.current = thread;
        true
    }

    /// The poll that began last is over.
    pub(super) fn end_poll(&mut self) {
        if let Some(processors) = &mut self.processors
            && std::mem::take(&mut self.polling)
        {
            processors.end_poll(self.current, &mut self.agenda);
        }
    }

    /// A program has finished: its thread leaves its core to others.
    pub(crate) fn finish_program(&mut self, thread: u32) {
        if let Some(processors) = &mut self.processors {
            processors.finish(thread);
        }
    }

    /// The thread that is polled sleeps after this poll.
    pub(crate) fn sleep_after_poll(&mut self) {
        if let Some(processors) = &mut self.processors {
            processors.sleep_after_poll(self.current);
        }
    }

    pub(super) fn schedule(&mut self, due: Due) {
        let Some(processors) = &mut self.processors else { return };
        match due {
            Due::Slice(thread) => processors.end_slice(self.now, thread, &mut self.agenda),
            Due::Sleep(thread) => processors.sleep(self.now, thread, &mut self.agenda),
            _ => {}
        }
    }
}
