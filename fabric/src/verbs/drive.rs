//! Progress and sleep: completions, arriving messages, doorbells.

use std::mem::MaybeUninit;
use std::os::fd::AsFd;
use std::sync::atomic::{Ordering, fence};
use std::sync::{Mutex, MutexGuard, Weak};
use std::time::Duration;

use ibverbs_sys::ibv_wc;
use onesided_job::lock;
use rustix::event::{PollFd, PollFlags};

use crate::verbs::raw::{BATCH, CompletionQueue};
use crate::verbs::wake_up::WakeUp;
use crate::verbs::{Inner, Verbs};
use crate::waiting::drive::now;
use crate::waiting::listener::Listener;
use crate::waiting::tasks::Driver;
use crate::{Drive, Error, Polls, Tasks, Ticket};

/// Marks the ids of the receives of doorbells; the rest is the slot.
pub(super) const RECEIVE: u64 = 1 << 63;
/// Marks the ids of the receives and sends of datagrams. (No job has the two million ranks whose
/// connections' requests have this bit.)
pub(super) const DATAGRAM: u64 = 1 << 62;
/// Marks the ids of the receives of packets over connections.
pub(super) const PACKET: u64 = RECEIVE | DATAGRAM;
/// The longest sleep: the job segment records deaths, which raise no event of the card.
const STEP: Duration = Duration::from_millis(100);

/// Receives that are not reposted yet, because the card refused.
pub(super) type UnpostedReceives = Vec<u32>;

/// The event wait of this rank's threads: one waits for the card's events, the others for the job
/// segment's doorbell. A thread that drains completions wakes them all.
#[derive(Debug)]
pub(super) struct EventWait {
    /// Held by the thread that waits for the card's events.
    listens: Mutex<()>,
    /// That thread.
    pub(super) listener: Listener,
    wake_up: WakeUp,
}

impl EventWait {
    pub(super) fn new() -> Result<Self, Error> {
        Ok(Self { listens: Mutex::new(()), listener: Listener::new(), wake_up: WakeUp::new()? })
    }
}

impl Drive for Verbs {
    fn progress(&self) -> usize {
        self.0.progress()
    }

    /// Polling a completion queue takes as long as a pause, and an event involves the card's interrupt
    /// and a descriptor.
    fn polls(&self) -> Polls {
        let core = self.0.oversubscription.core(&self.0.job_segment, self.0.rank);
        Polls { core, spins: 20_000, pauses: false, looks: 0 }
    }

    fn tasks(&self) -> &Tasks {
        &self.0.endpoint
    }

    fn again(&self) -> Option<Result<Self, Error>> {
        Some(self.join_again())
    }
}

/// The endpoint as its progress thread holds it: gone with the last handle.
#[derive(Debug)]
pub(super) struct EventSource(pub(super) Weak<Inner>);

impl Driver for EventSource {
    fn progress(&self) {
        if let Some(inner) = self.0.upgrade() {
            inner.progress();
        }
    }

    fn arm(&self) -> Ticket {
        self.0.upgrade().map_or(Ticket(0), |inner| inner.arm())
    }

    fn sleep(&self, ticket: Ticket, until: u64) {
        if let Some(inner) = self.0.upgrade() {
            inner.sleep(ticket, until);
        }
    }

    fn wake(&self) {
        if let Some(inner) = self.0.upgrade() {
            inner.ring();
        }
    }

    fn wake_others(&self, armed: Ticket) -> Ticket {
        self.0.upgrade().map_or(armed, |inner| {
            let ticket = inner.job_segment.wake_others(inner.rank, armed);
            inner.wake_listener();
            ticket
        })
    }
}

impl Inner {
    fn arm(&self) -> Ticket {
        let ticket = self.job_segment.doorbell(self.rank).arm();
        // Not of solicited ones alone: the look that follows may post.
        self.request_completions();
        // If nobody takes the packets, one that stays there would raise the event at once.
        if !self.has_one_queue && !self.has_transport.load(Ordering::Relaxed) {
            self.request_packets();
        }
        ticket
    }

    fn sleep(&self, ticket: Ticket, until: u64) {
        let doorbell = self.job_segment.doorbell(self.rank);
        if until == 0 {
            return doorbell.disarm();
        }
        self.check_connections();
        // Another thread may have kept this one from its last look, and have looked before the request.
        if self.drain_all() > 0 {
            return doorbell.disarm();
        }
        let until = self.datagrams.as_ref().map_or(until, |datagrams| until.min(datagrams.due()));
        let now = now();
        let soon = self.arrivals.get().map_or(u64::MAX, |arrivals| arrivals.longest_sleep(now));
        let limit = Duration::from_nanos(until.saturating_sub(now).min(soon)).min(STEP);
        let event_wait = &self.event_wait;
        let Ok(listener) = event_wait.listens.try_lock() else {
            self.job_segment.sleep(self.rank, ticket, limit);
            return doorbell.disarm();
        };
        let packets = self.packet_queue().map(AsFd::as_fd);
        event_wait.listener.sleep(doorbell, ticket, |for_completions| {
            let wake_up = event_wait.wake_up.as_fd();
            let completions = if for_completions { self.completion_events() } else { wake_up };
            let mut fds = [completions, wake_up, packets.unwrap_or(wake_up)]
                .map(|fd| PollFd::from_borrowed_fd(fd, PollFlags::IN));
            let timeout = rustix::event::Timespec { tv_sec: 0, tv_nsec: i64::from(limit.subsec_nanos()) };
            // On every outcome (an event, a wake-up, a timeout, a signal) the caller polls.
            let _ = rustix::event::poll(&mut fds, Some(&timeout));
        });
        event_wait.wake_up.clear();
        let (any, of_packets) = self.take_events();
        drop(listener);
        if any {
            self.tell_handler(of_packets);
        }
        doorbell.disarm();
        // The event was for all threads, and another one has to wait for the card now.
        self.ring();
    }

    /// Drains completions, and drives the datagrams.
    pub(super) fn progress(&self) -> usize {
        // The holder of the lock drains all completions, and wakes the sleepers.
        let Ok(unposted) = self.reaping.try_lock() else { return 0 };
        let total = self.reap(unposted);
        if let Some(datagrams) = &self.datagrams {
            datagrams.drive();
        }
        total
    }

    /// Drains completions, after whoever drains now: what completed before this is reported, or
    /// waits.
    pub(super) fn drain_all(&self) -> usize {
        self.reap(lock(&self.reaping))
    }

    /// Drains all completions, and wakes the sleepers if there are some.
    fn reap(&self, mut unposted: MutexGuard<'_, UnpostedReceives>) -> usize {
        let mut total = self.empty(&self.completions, &mut unposted);
        for queue in self.cards.completions() {
            total += self.empty(queue, &mut unposted);
        }
        if !unposted.is_empty() {
            unposted.retain(|slot| self.receives.post(*slot).is_err());
        }
        drop(unposted);
        if total > 0 {
            self.ring();
        }
        total
    }

    #[inline]
    fn empty(&self, queue: &CompletionQueue, unposted: &mut UnpostedReceives) -> usize {
        let mut batch = [const { MaybeUninit::uninit() }; BATCH];
        let mut total = 0;
        loop {
            let completions = queue.poll(&mut batch);
            for completion in completions {
                self.drain(completion, unposted);
            }
            total += completions.len();
            if completions.len() < BATCH {
                return total;
            }
        }
    }

    /// Wakes the sleeping threads of this rank.
    pub(super) fn ring(&self) {
        let doorbell = self.job_segment.doorbell(self.rank);
        fence(Ordering::SeqCst);
        if doorbell.sleepers.load(Ordering::Relaxed) == 0 {
            return;
        }
        self.job_segment.wake(self.rank);
        self.wake_listener();
    }

    /// Wakes the thread that waits for the card's events.
    fn wake_listener(&self) {
        self.event_wait.listener.wake(|| self.event_wait.wake_up.ring());
    }

    fn drain(&self, completion: &ibv_wc, unposted: &mut UnpostedReceives) {
        let status = completion.error().map_or(0, |(status, _)| status);
        let id = completion.wr_id();
        match id & PACKET {
            DATAGRAM => self.datagrams.iter().for_each(|datagrams| datagrams.complete(completion)),
            PACKET => self.arrivals.get().into_iter().for_each(|arrivals| arrivals.complete(completion)),
            // Of a doorbell.
            RECEIVE => unposted.extend(self.receives.post(id as u32).is_err().then_some(id as u32)),
            _ => self.complete(id, status),
        }
    }
}
