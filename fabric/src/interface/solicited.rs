//! Solicited events: packets that wake a handler while all other threads of a rank compute.

use std::task::Poll;

use crate::Ticket;

/// What [events](crate::Fabric::events) are of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Events {
    /// [Solicited](crate::Transport::poll_send) packets.
    Packets,
    /// Completed reads and writes of messages, where they do not share a queue with packets. While
    /// armed, they wake only the thread that sleeps for them, and it wakes the others.
    Completions,
}

/// Events that wake one thread of a rank, its handler.
///
/// To sleep without losing a packet, the handler takes a [`ticket`](Self::ticket), looks at the
/// packets, then [sleeps](Self::poll_sleep) with the ticket.
pub trait SolicitedEvents: Send + Sync {
    /// From now on solicited packets end the handler's sleep. The caller looks at the packets
    /// afterwards: those that came before may have no event.
    fn arm(&self);

    /// Packets need not have events, because a thread polls, or nothing is expected.
    fn disarm(&self);

    /// What events came so far.
    fn ticket(&self) -> Ticket;

    /// Sleeps until an event after the ticket, or [`wake`](Self::wake), or until `until`
    /// ([`RemoteMemory::now`](onesided_remote_memory::RemoteMemory::now)'s clock): a thread here, before
    /// it is `Ready`, perhaps early for no reason. A task, where no thread sleeps (in the simulator), is
    /// polled again then.
    fn poll_sleep(&self, ticket: Ticket, until: u64) -> Poll<()>;

    /// Ends the handler's sleep.
    fn wake(&self);
}

/// When a rank asks for solicited events: while it expects something and none of its threads polls
/// (sur-2006, section 4.3: dynamic interrupt requests). It is kept under the lock of what the rank
/// expects, so that it is in step with that.
///
/// A handler that is armed stays so until somebody [updates](Self::update): then at most one event
/// more comes.
#[derive(Debug, Default)]
pub struct EventInterest {
    /// Whether there is a handler.
    pub has_handler: bool,
    /// The threads that poll.
    pub polling: u32,
    state: Interest,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Interest {
    /// Without a handler, and while a thread polls.
    #[default]
    Off,
    /// Nothing is expected.
    Unarmed,
    Armed,
}

impl EventInterest {
    /// Whether one that begins to expect something is to [update](Self::update).
    #[inline]
    pub fn is_unarmed(&self) -> bool {
        self.state == Interest::Unarmed
    }

    /// Arms or disarms the handler. `true`: it was armed, and the caller looks at the packets
    /// afterwards.
    pub fn update(&mut self, events: &(impl SolicitedEvents + ?Sized), expects: impl FnOnce() -> bool) -> bool {
        let next = match self.has_handler && self.polling == 0 {
            true if expects() => Interest::Armed,
            true => Interest::Unarmed,
            false => Interest::Off,
        };
        match (std::mem::replace(&mut self.state, next), next) {
            (Interest::Armed, Interest::Armed) => return false,
            (_, Interest::Armed) => events.arm(),
            (Interest::Armed, _) => events.disarm(),
            _ => {}
        }
        next == Interest::Armed
    }
}
