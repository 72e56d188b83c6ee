//! A rank's progress engine behind a mutex, which all of its server threads share.

use std::collections::VecDeque;

use crate::agenda::{Agenda, Due};

/// The engine's mutex. An unlock hands it to the thread that has waited longest (glibc 2.3,
/// `linuxthreads/spinlock.c`, `__pthread_alt_unlock`).
#[derive(Debug, Default)]
pub(super) struct Engine {
    /// The thread that has the mutex, or is about to get it.
    holder: Option<u32>,
    /// When the holder has it; without a holder: when the mutex is free.
    from: u64,
    /// The thread that polls inside, with nothing to do. It passes the mutex when asked.
    poller: Option<u32>,
    /// These wait for the mutex, asleep.
    waiting: VecDeque<u32>,
}

impl Engine {
    /// Whether a thread is inside now. If not, it is among those that wait from now on, as is a
    /// poller that had to leave for it, which is returned with its time to leave.
    pub(super) fn enter(&mut self, now: u64, id: u32, (hand_over, agenda): (u64, &mut Agenda)) -> Entry {
        let is_free = self.holder.is_none() && self.poller.is_none_or(|poller| poller == id);
        if (is_free || self.holder == Some(id)) && self.from <= now {
            (self.holder, self.poller) = (Some(id), None);
            return Entry::Inside;
        }
        if !self.waits(now, id) {
            self.waiting.push_back(id);
        }
        if self.holder.is_some() {
            return Entry::Waits { left: None };
        }
        let left = self.poller.take().map(|poller| (poller, self.from.max(now)));
        self.pass(self.from.max(now), hand_over, agenda);
        Entry::Waits { left }
    }

    /// Whether a thread waits for the mutex.
    pub(super) fn waits(&self, now: u64, id: u32) -> bool {
        self.holder == Some(id) && now < self.from || self.waiting.contains(&id)
    }

    /// The holder is done at a time. Whether it stays, as it `polls` and nobody waits.
    pub(super) fn leave(&mut self, (time, id): (u64, u32), polls: bool, with: (u64, &mut Agenda)) -> bool {
        (self.holder, self.from) = (None, time);
        if !self.waiting.is_empty() {
            self.pass(time, with.0, with.1);
            return false;
        }
        self.poller = polls.then_some(id);
        polls
    }

    fn pass(&mut self, time: u64, hand_over: u64, agenda: &mut Agenda) {
        self.holder = self.waiting.pop_front();
        self.from = time.saturating_add(hand_over);
        self.holder.into_iter().for_each(|holder| agenda.enter(self.from, Due::Wake(holder)));
    }
}

/// What became of a thread at the mutex.
#[derive(Clone, Copy, Debug)]
pub(super) enum Entry {
    Inside,
    /// And a poller has to leave, at a time.
    Waits {
        left: Option<(u32, u64)>,
    },
}
