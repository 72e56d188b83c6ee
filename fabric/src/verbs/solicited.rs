//! The solicited events of the packets over connections: see `event_requests`, which has the
//! protocol.

use std::os::fd::AsFd;

use rustix::event::{PollFd, PollFlags, Timespec};

use crate::drive::now;
use crate::event_requests::EventRequests;
use crate::verbs::peer::{Peer, Traffic};
use crate::verbs::wake_up::WakeUp;
use crate::verbs::{Inner, Verbs};
use crate::{Error, SolicitedEvents, Ticket};

/// The sleep of this rank's handler.
#[derive(Debug)]
pub(super) struct HandlerWait {
    /// Of the packets' events, also for the threads that wait.
    pub(super) requests: EventRequests,
    bell: WakeUp,
}

impl HandlerWait {
    pub(super) fn new() -> Result<Self, Error> {
        Ok(Self { requests: EventRequests::default(), bell: WakeUp::new()? })
    }
}

impl Inner {
    fn request_solicited(&self) {
        if let Some(arrivals) = self.arrivals.get() {
            arrivals.completions.request_event(true);
        }
    }

    /// Takes the card's events: whether there were some, and whether of packets.
    pub(super) fn take_events(&self) -> (bool, bool) {
        let others = self.completions.take_events();
        let of_packets = self.arrivals.get().is_some_and(|arrivals| arrivals.completions.take_events());
        (others || of_packets, of_packets)
    }

    /// Something has come that an armed handler may have missed: packets, whose events were taken, or
    /// something else.
    pub(super) fn tell_handler(&self, of_packets: bool) {
        if self.handler_wait.requests.taken(of_packets) {
            self.handler_wait.bell.ring();
        }
    }

    /// Whether a completion of messages is awaited.
    fn awaits_messages(&self) -> bool {
        self.known_peers().any(|peer| peer.id.traffic == Traffic::Messages && Peer::awaits_completion(peer))
    }
}

impl SolicitedEvents for Verbs {
    fn arm(&self) {
        self.0.handler_wait.requests.arm(|| self.0.request_solicited());
    }

    fn disarm(&self) {
        self.0.handler_wait.requests.disarm();
    }

    /// Whether the event of the next completion was requested.
    fn ticket(&self) -> Ticket {
        self.0.handler_wait.requests.request_solicited(|| self.0.request_solicited());
        let awaits = self.0.awaits_messages();
        if awaits {
            self.0.completions.request_event(false);
        }
        Ticket(u32::from(awaits))
    }

    fn sleep(&self, ticket: Ticket, until: u64) {
        let inner = &*self.0;
        if ticket == Ticket(0) && inner.awaits_messages() {
            return; // it was posted at the last look
        }
        inner.check_connections();
        let HandlerWait { requests, bell } = &inner.handler_wait;
        let packets = inner.arrivals.get().map_or(bell.as_fd(), |arrivals| arrivals.completions.as_fd());
        let fds = [bell.as_fd(), packets, inner.completions.as_fd()];
        let mut fds = fds.map(|fd| PollFd::from_borrowed_fd(fd, PollFlags::IN));
        let nanos = until.saturating_sub(now());
        let limit = Timespec { tv_sec: (nanos / 1_000_000_000) as i64, tv_nsec: (nanos % 1_000_000_000) as i64 };
        // On every outcome the caller looks.
        let _ = rustix::event::poll(&mut fds, (until != u64::MAX).then_some(&limit));
        bell.clear();
        let (any, of_packets) = inner.take_events();
        if any {
            requests.taken(of_packets);
            inner.ring(); // they were for all threads
        }
    }

    fn wake(&self) {
        self.0.handler_wait.bell.ring();
    }
}
