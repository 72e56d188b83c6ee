//! Solicited events: packets that wake a handler while all other threads of a rank compute.

use crate::Ticket;

/// The events of [solicited](crate::Transport::poll_send_solicited) packets to this rank. One
/// handler at most waits for them.
///
/// To sleep without losing a packet, the handler takes a [`ticket`](Self::ticket), looks at the
/// packets, then [sleeps](Self::sleep) with the ticket.
pub trait SolicitedEvents: Send + Sync {
    /// From now on solicited packets end the handler's sleep. The caller looks at the packets
    /// afterwards: those that came before may have no event.
    fn arm(&self);

    /// Packets need not have events, because a thread polls.
    fn disarm(&self);

    /// What events came so far.
    fn ticket(&self) -> Ticket;

    /// Sleeps until an event after the ticket, or [`wake`](Self::wake), or until `until`
    /// ([`RemoteMemory::now`](onesided_remote_memory::RemoteMemory::now)'s clock). May return early
    /// for no reason.
    fn sleep(&self, ticket: Ticket, until: u64);

    /// Ends the handler's sleep.
    fn wake(&self);
}
