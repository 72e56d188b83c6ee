//! Connections that break between ranks that live, and are made anew.
//!
//! The transport [says so](onesided_fabric::Transport::renewed) when everything that came over the
//! broken one is taken in. What was under way then fails, at both ranks, as with a lost rank; what has
//! arrived stays. Later packets go over the new connection, with the credit of a first one.
//!
//! An announced message of the broken connection is gone with it: its sender has its memory back. So a
//! receive that gets one fails, and a task that reads one finds it lost. One that moves is told from
//! those of the new connection by its arrival, and no FIN is sent for it.

use onesided_fabric::remote_memory::{Fault, FaultKind, Rank};

use super::Engine;
use super::receives::{Announced, Arrived, Body};
use crate::engine::matching::Arrival;

impl<S> Engine<S> {
    /// A connection is made anew. `is_missing`: something that was sent over it is not known to have
    /// arrived. If nothing that fails tells of that, the next send to the rank or receive from it does.
    pub(crate) fn renew(&mut self, rank: Rank, fault: Fault, is_missing: bool) {
        if self.lost(rank).is_some() {
            return;
        }
        let is_dropped = self.sends.iter().any(|(_, send)| send.to == rank && send.is_detached && !send.is_done());
        let is_told = self.lose(rank, fault);
        let of_rank = self.matcher.messages().filter(|(_, envelope, _)| envelope.source == rank.0);
        for message in of_rank.map(|(message, ..)| message).collect::<Vec<_>>() {
            let Arrived { body, is_consumed, .. } = self.matcher.message_mut(message);
            *is_consumed = true;
            if let Body::Announced(Announced { key, .. }) = body {
                *body = Body::Moved { here: Err(fault), len: key.len };
                self.wake_receive(message);
            }
        }
        let before = (self.matcher.last(), self.started);
        self.peer(rank).renew(before, fault, (is_missing || is_dropped) && !is_told);
    }

    /// The last message that came from a rank, and the last send, before its connection was made anew.
    pub(crate) fn boundary(&self, rank: Rank) -> (Arrival, u64) {
        self.known_peer(rank).map(|peer| peer.before).unwrap_or_default()
    }

    /// What the next send to a rank or receive from it tells of a break.
    pub(crate) fn untold(&mut self, rank: Rank) -> &mut Option<Fault> {
        &mut self.peer(rank).untold
    }

    /// Whether the sender of a message that moves can be told.
    pub(super) fn check_connection(&self, message: usize) -> Result<(), Fault> {
        let from = Rank(self.matcher.envelope(message).source);
        match self.known_peer(from) {
            Some(peer) if self.matcher.arrival(message) <= peer.before.0 => {
                Err(Fault::of(FaultKind::ConnectionLost, from))
            }
            _ => Ok(()),
        }
    }

    /// Whether a send ends without its receiver.
    pub(super) fn is_without_receiver(&self, send: usize) -> bool {
        let send = &self.sends[send];
        self.known_peer(send.to).is_some_and(|peer| peer.lost.is_some() || send.number <= peer.before.1)
    }

    /// Why the next send to a rank or receive from it fails.
    pub(super) fn take_lost(&mut self, rank: Rank) -> Option<Fault> {
        let at = (*self.peer_of.get(rank.index())? as usize).checked_sub(1)?;
        let peer = &mut self.peers[at];
        peer.lost.or_else(|| peer.untold.take())
    }
}
