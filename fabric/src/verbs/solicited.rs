//! The solicited events of packets: see `event_requests`, which has the protocol. And the events of
//! completions, for a thread of their own.
//!
//! If packets share the queue of all else, whoever drains it takes out packets as well, which a
//! look at that moment does not find, and whose events are over: a look waits for that thread
//! ([`Inner::drain_all`]). The event that the handler requests for a read is then that of the next
//! packet, too.

use std::os::fd::{AsFd, BorrowedFd};
use std::task::Poll;

use rustix::event::{PollFd, PollFlags, Timespec};

use crate::verbs::raw::CompletionQueue;
use crate::verbs::traffic::Traffic;
use crate::verbs::wake_up::WakeUp;
use crate::verbs::{Inner, Verbs};
use crate::waiting::drive::now;
use crate::waiting::event_requests::EventRequests;
use crate::{Error, SolicitedEvents, Ticket};

/// How often a handler over datagrams looks, in nanoseconds: what its rank sends meanwhile may have
/// to be sent again, which no event says. It answers a rank that asks, too.
const LOOK: u64 = 100_000_000;

/// The sleep of this rank's handler.
#[derive(Debug)]
pub(super) struct HandlerWait {
    /// Of the packets' events, also for the threads that wait.
    pub(super) requests: EventRequests,
    bell: WakeUp,
    /// Of the thread that sleeps for completions.
    completions_bell: WakeUp,
}

impl HandlerWait {
    pub(super) fn new() -> Result<Self, Error> {
        let (bell, completions_bell) = (WakeUp::new()?, WakeUp::new()?);
        Ok(Self { requests: EventRequests::default(), bell, completions_bell })
    }
}

impl Inner {
    /// Where packets complete, once there is such a queue.
    pub(super) fn packet_queue(&self) -> Option<&CompletionQueue> {
        match self.has_one_queue {
            true => Some(&self.completions),
            false => self.arrivals.get().map(|arrivals| &*arrivals.completions),
        }
    }

    fn request_packet(&self, solicited: bool) {
        if let Some(packets) = self.packet_queue() {
            packets.request_event(solicited);
        }
    }

    /// Requests the event of the next packet.
    pub(super) fn request_packets(&self) {
        self.handler_wait.requests.request_all(|| self.request_packet(false));
    }

    /// Requests the event of the next completion; in the queue of packets it is that of the next
    /// packet, too.
    pub(super) fn request_completions(&self) {
        self.cards.completions().for_each(|queue| queue.request_event(false));
        match self.has_one_queue {
            true => self.request_packets(),
            false => self.completions.request_event(false),
        }
    }

    /// Takes the card's events: whether there were some, and whether of packets.
    pub(super) fn take_events(&self) -> (bool, bool) {
        let others = self.take_completion_events();
        if self.has_one_queue {
            return (others, others);
        }
        let of_packets = self.packet_queue().is_some_and(CompletionQueue::take_events);
        (others || of_packets, of_packets)
    }

    /// Something has come that an armed handler may have missed: packets, whose events were taken, or
    /// something else.
    pub(super) fn tell_handler(&self, of_packets: bool) {
        if self.handler_wait.requests.taken(of_packets) {
            self.handler_wait.bell.ring();
        }
    }

    /// Whether the event of the next completion was requested.
    fn request_awaited(&self) -> Ticket {
        let awaits = self.awaits_messages();
        if awaits {
            self.request_completions();
        }
        Ticket(u32::from(awaits))
    }

    /// Whether a completion of messages is awaited.
    fn awaits_messages(&self) -> bool {
        self.known_peers().any(|peer| peer.id.traffic != Traffic::Memory && peer.queue.awaits_completion())
    }
}

impl SolicitedEvents for Verbs {
    fn arm(&self) {
        self.0.handler_wait.requests.arm(|| self.0.request_packet(true));
    }

    fn disarm(&self) {
        self.0.handler_wait.requests.disarm();
    }

    fn ticket(&self) -> Ticket {
        self.0.handler_wait.requests.request_solicited(|| self.0.request_packet(true));
        self.0.request_awaited()
    }

    fn poll_sleep(&self, ticket: Ticket, until: u64) -> Poll<()> {
        let inner = &*self.0;
        if ticket == Ticket(0) && inner.awaits_messages() {
            return Poll::Ready(()); // it was posted at the last look
        }
        inner.check_connections();
        let HandlerWait { requests, bell, .. } = &inner.handler_wait;
        let until = match &inner.datagrams {
            Some(datagrams) if requests.is_armed() => until.min(datagrams.due()).min(now() + LOOK),
            Some(_) => until.min(now() + LOOK),
            None => until,
        };
        let packets = inner.packet_queue().map_or(bell.as_fd(), AsFd::as_fd);
        poll([bell.as_fd(), packets, inner.completion_events()], until);
        bell.clear();
        let (any, of_packets) = inner.take_events();
        if any {
            requests.taken(of_packets);
            inner.ring(); // they were for all threads
        }
        Poll::Ready(())
    }

    fn wake(&self) {
        self.0.handler_wait.bell.ring();
    }
}

/// Of the queue of completions: see `listener`.
impl SolicitedEvents for Inner {
    fn arm(&self) {
        self.event_wait.listener.set_apart(true);
    }

    fn disarm(&self) {
        self.event_wait.listener.set_apart(false);
        self.ring(); // the others sleep for them again
    }

    fn ticket(&self) -> Ticket {
        self.request_awaited()
    }

    /// Those that wait for a completion have requested its event as well.
    fn poll_sleep(&self, ticket: Ticket, until: u64) -> Poll<()> {
        if ticket == Ticket(0) && self.awaits_messages() {
            return Poll::Ready(()); // it was posted at the last look
        }
        let bell = &self.handler_wait.completions_bell;
        poll([bell.as_fd(), self.completion_events()], until);
        bell.clear();
        if self.take_completion_events() {
            self.progress();
            self.ring(); // another thread may have drained them
        }
        Poll::Ready(())
    }

    fn wake(&self) {
        self.handler_wait.completions_bell.ring();
    }
}

/// On every outcome the caller looks.
fn poll<const N: usize>(fds: [BorrowedFd<'_>; N], until: u64) {
    let mut fds = fds.map(|fd| PollFd::from_borrowed_fd(fd, PollFlags::IN));
    let nanos = until.saturating_sub(now());
    let limit = Timespec { tv_sec: (nanos / 1_000_000_000) as i64, tv_nsec: (nanos % 1_000_000_000) as i64 };
    let _ = rustix::event::poll(&mut fds, (until != u64::MAX).then_some(&limit));
}
