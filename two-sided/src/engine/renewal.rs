//! Connections that break between ranks that live, and are made anew.
//!
//! The transport [says so](onesided_fabric::Transport::renewed) when everything that came over the
//! broken one is taken in. What was under way then fails, at both ranks, as with a lost rank; what has
//! arrived stays. Later packets go over the new connection, with the credit of a first one.
//!
//! An announced message of the broken connection is gone with it: its sender has its memory back. So a
//! receive that gets one fails. One that is being read, or that a user holds, is told from those of
//! the new connection by its arrival, and no FIN is sent for it.

use onesided_fabric::remote_memory::{Fault, FaultKind, Rank};

use super::Engine;
use super::receives::{Body, Matched, ReceiveState};
use crate::matching::Arrival;

impl<S> Engine<S> {
    /// A connection is made anew. `is_missing`: something that was sent over it is not known to have
    /// arrived. If nothing that fails tells of that, the next send to the rank or receive from it does.
    pub(crate) fn renew(&mut self, rank: Rank, fault: Fault, is_missing: bool) {
        if self.lost(rank).is_some() {
            return;
        }
        let is_dropped = self.sends.iter().any(|(_, send)| send.to == rank && send.is_detached && !send.is_done());
        let is_told = self.lose(rank, fault);
        for (envelope, (body, is_consumed)) in self.matcher.all_unexpected_mut() {
            if envelope.source == rank.0 {
                *is_consumed = true;
                body.give_up(fault);
            }
        }
        for receive in self.matcher.receives.iter_mut() {
            if let ReceiveState::Matched(matched) = &mut receive.state
                && matched.envelope.source == rank.0
                && matched.body.give_up(fault)
            {
                self.woken.extend(receive.waker.take());
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

    /// Whether a message may still be read, and its sender be told.
    pub(crate) fn check_connection(&self, matched: &Matched<S>) -> Result<(), Fault> {
        let from = Rank(matched.envelope.source);
        match self.known_peer(from) {
            Some(peer) if matched.arrival <= peer.before.0 => Err(Fault::of(FaultKind::ConnectionLost, from)),
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

impl<S> Body<S> {
    /// An announced message cannot be read any more. Whether it was announced.
    pub(super) fn give_up(&mut self, fault: Fault) -> bool {
        let Self::Announced { key, .. } = self else { return false };
        *self = Self::Read { memory: Err(fault), len: key.len };
        true
    }
}
