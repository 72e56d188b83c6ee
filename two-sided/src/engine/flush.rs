//! What goes out.

use onesided_fabric::remote_memory::{Fault, Rank};

use super::peer::Outgoing;
use super::{Engine, PostOutcome, Send, SendState};

impl<S> Engine<S> {
    pub(super) fn queue(&mut self, to: Rank, outgoing: Outgoing) {
        let peer = self.peer(to);
        peer.queue(outgoing);
        if !std::mem::replace(&mut peer.is_busy, true) {
            self.busy.push(to);
        }
    }

    /// Sends what there is to send and may be sent. `post` is given the receiver, and a
    /// packet in two parts.
    pub(crate) fn flush(&mut self, mut post: impl FnMut(Rank, &[u8], &[u8]) -> PostOutcome) {
        let mut later = Vec::new();
        while let Some(rank) = self.busy.pop() {
            match self.flush_to(rank, &mut post) {
                Ok(()) => self.peer(rank).is_busy = false,
                Err(None) => later.push(rank),
                Err(Some(fault)) => {
                    self.peer(rank).is_busy = false;
                    let unsent = self.peer(rank).drop_queue();
                    unsent.into_iter().for_each(|send| self.fail(send, fault));
                    self.unreachable.push((rank, fault));
                }
            }
        }
        self.busy = later;
    }

    /// `Ok`: nothing is left that may be sent now. `Err(None)`: there is no room.
    fn flush_to(
        &mut self,
        rank: Rank,
        post: &mut impl FnMut(Rank, &[u8], &[u8]) -> PostOutcome,
    ) -> Result<(), Option<Fault>> {
        while let Some((packet, body)) = self.peer(rank).next() {
            let (len, posted) = (body.len(), post(rank, packet.bytes(), body));
            match posted {
                PostOutcome::Sent(channel) => self.count((rank, channel), &packet, len),
                PostOutcome::Busy => return Err(None),
                PostOutcome::Failed(fault) => return Err(Some(fault)),
            }
            let Some(send) = self.peer(rank).posted() else { continue };
            match &mut self.sends[send] {
                Send { state: SendState::Writing(_), .. } => self.fin_left(send),
                Send { memory: [Some(_), _], state, .. } => *state = SendState::Announced,
                _ => self.complete(send, Ok(())),
            }
        }
        Ok(())
    }

    /// [Loses](Self::lose) the peers that a packet could not be sent to. Called when everything
    /// that has arrived is taken in.
    pub(crate) fn lose_unreachable(&mut self) {
        for (peer, fault) in std::mem::take(&mut self.unreachable) {
            self.lose(peer, fault);
        }
    }

    /// Whether there is a peer to be [lost](Self::lose_unreachable).
    pub(crate) fn has_unreachable(&self) -> bool {
        !self.unreachable.is_empty()
    }
}
