//! What goes out.

use onesided_fabric::remote_memory::Rank;

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
                PostOutcome::Sent => self.peer(rank).is_busy = false,
                PostOutcome::Busy => later.push(rank),
                PostOutcome::Failed(fault) => {
                    self.peer(rank).is_busy = false;
                    let unsent = self.peer(rank).drop_queue();
                    unsent.into_iter().for_each(|send| self.fail(send, fault));
                    self.unreachable.push((rank, fault));
                }
            }
        }
        self.busy = later;
    }

    /// `Sent`: nothing is left that may be sent now.
    fn flush_to(&mut self, rank: Rank, post: &mut impl FnMut(Rank, &[u8], &[u8]) -> PostOutcome) -> PostOutcome {
        while let Some((packet, body)) = self.peer(rank).next() {
            match post(rank, packet.bytes(), body) {
                PostOutcome::Sent => {}
                other => return other,
            }
            let Some(send) = self.peer(rank).posted() else { continue };
            match &mut self.sends[send] {
                Send { state: SendState::Writing(_), .. } => self.fin_left(send),
                Send { memory: [Some(_), _], state, .. } => *state = SendState::Announced,
                _ => self.complete(send, Ok(())),
            }
        }
        PostOutcome::Sent
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
