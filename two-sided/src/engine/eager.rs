//! Eager sends.

use onesided_fabric::remote_memory::Rank;

use super::peer::Class;
use super::{Engine, PostOutcome, Send, SendState};
use crate::engine::wire::{Packet, eager_head};

/// The longest message that waits at its sender as a packet. A longer one is announced, because what
/// waits is copied once more.
pub(crate) const QUEUED_MAX: usize = 2 << 10;

/// A message is not sent as a packet, because it is too long for one, or for one that waits.
pub(crate) struct TooLong;

impl<S> Engine<S> {
    /// Starts an eager send, whose packet fits. `Ok(None)`: it is on its way already.
    #[inline]
    pub(crate) fn send_eager(
        &mut self,
        to: Rank,
        envelope: (u32, u32),
        bytes: &[u8],
        mut post: impl FnMut(Rank, &[u8], &[u8]) -> PostOutcome,
    ) -> Result<Option<usize>, TooLong> {
        let (class, peer) = (Class::of(envelope.0), self.peer(to));
        Ok(match peer.may_pass(class, bytes.len()).map(|grant| post(to, &eager_head(envelope, grant), bytes)) {
            Some(PostOutcome::Sent(channel)) => {
                peer.passed(bytes.len());
                peer.sent_by(channel).add(bytes.len() as u64);
                self.sent.eager(channel, bytes.len());
                None
            }
            Some(PostOutcome::Failed(fault)) => {
                self.unreachable.push((to, fault));
                Some(self.sends.insert(Send::new(to, SendState::Done(Err(fault)), None)))
            }
            Some(PostOutcome::Busy) | None if bytes.len() > QUEUED_MAX => return Err(TooLong),
            Some(PostOutcome::Busy) | None => {
                let (context, tag) = envelope;
                Some(self.send((to, class), None, |_| Packet::Eager { context, tag }.encode(0), bytes))
            }
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::engine::peer::units;
    use crate::engine::tests::opened;
    use crate::engine::window;

    /// A long message that cannot leave at once is not kept as a packet: where there is no room, where
    /// there is no credit, and where others wait.
    #[test]
    fn a_long_message_does_not_wait_as_a_packet() {
        let long = [0; QUEUED_MAX + 1];
        let may_wait = |sender: &mut Engine<u64>, len: usize, posted: PostOutcome| {
            sender.send_eager(Rank(1), (0, 0), &long[..len], |_, _, _| posted).is_ok()
        };
        let mut sender = opened(Rank(0), window(2), u32::MAX);
        assert!(may_wait(&mut sender, long.len(), PostOutcome::SENT));
        assert!(!may_wait(&mut sender, long.len(), PostOutcome::Busy));
        assert!(may_wait(&mut sender, QUEUED_MAX, PostOutcome::Busy));
        assert!(!may_wait(&mut sender, long.len(), PostOutcome::SENT), "it would overtake");
        let mut sender = opened(Rank(0), units(QUEUED_MAX), u32::MAX);
        assert!(!may_wait(&mut sender, long.len(), PostOutcome::SENT), "there is no credit");
    }
}
