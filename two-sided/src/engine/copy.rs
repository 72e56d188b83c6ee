//! Long messages in packets (copy: woodall-2006), over any channel: where the sender chose it, and in
//! place of a read or writes that were [refused](is_refused).
//!
//! The receiver decides: it answers any RTS, but that of a slice, by an RTR for packets, and is the one
//! that bounds what is on its way. The sender keeps the message in its memory until its FIN leaves; it
//! copies as much of it to DATA as the RTR has room for, which wait here for a place on the way behind
//! all other packets. The receiver has memory for the whole message before its first RTR, so each DATA
//! is copied there when it comes, and none is ever unexpected.
//!
//! | refused | what then leads to the RTR |
//! |---|---|
//! | the sender's memory, before the RTS | it is an RTS of a message in packets |
//! | the receiver's read, or the first memory that it would expose | nothing: the sender may be asked for packets at any time |
//! | the receiver's memory for a later piece, a write of the sender | the sender's FIN, behind which no write is left; it counts as an RTS |
//!
//! A dropped send goes on, as of a written message. A dropped receive takes the message, which goes to
//! the next one that fits. The loss of the peer or its connection ends both sides where they are: no
//! card has the memory. A DATA that is not the next one, or for which there is no room, is a violation.

use onesided_fabric::remote_memory::{Fault, FaultKind, Rank};

use super::peer::Outgoing;
use super::pipeline::{Exposed, Part, To, Writes};
use super::receives::{Body, ReceiveState};
use super::rendezvous::Here;
use super::{Engine, Send, SendState};
use crate::elements::Elements;
use crate::wire::{DATA_HEAD, Packet, RequestId};

/// How much of a message may be on its way in packets.
pub(super) const FLIGHT: u64 = 128 << 10;

/// Whether a transfer with this fault has not begun, for lack of registered memory or of a connection:
/// the message may come in packets.
pub(crate) const fn is_refused(fault: Fault) -> bool {
    matches!(
        fault.kind(),
        FaultKind::NoMemory
            | FaultKind::NoDescriptors
            | FaultKind::Full
            | FaultKind::Refused
            | FaultKind::Unsupported
            | FaultKind::ConnectionLost
    )
}

impl<S> Engine<S> {
    /// A message that moves cannot be read or written. Nothing of it moves any more.
    pub(super) fn copy_instead(&mut self, receive: usize) {
        if let ReceiveState::Moving { is_refused, .. } = &mut self.matcher.receives[receive].state {
            *is_refused = true;
            self.to_expose.push_back(receive);
        }
    }

    /// There are elements for a message, as many bytes as it has, which is to come in packets.
    pub(crate) fn expose_elements(&mut self, receive: usize, elements: Box<dyn Elements>) {
        let Some((from, request, len)) = self.announced_for(receive) else { return };
        let room = self.flight.min(len);
        let rtr = Packet::RtrCopy { request, receive: RequestId(receive as u32), len: room };
        self.queue(from, Outgoing::control(rtr.encode(0)));
        self.set_exposed(receive, Exposed::new(Here::Elements(elements), room));
    }

    /// The next bytes of a message have come; `read` copies them.
    pub(super) fn data_arrived(
        &mut self,
        from: Rank,
        receive: RequestId,
        (at, len): (u64, usize),
        read: impl FnOnce(&mut [u8]),
    ) {
        let Some(ReceiveState::Moving { matched, exposed: Some(exposed), .. }) =
            self.matcher.receives.get_mut(receive.0 as usize).map(|receive| &mut receive.state)
        else {
            return self.violated(from);
        };
        let Exposed { memory: Here::Elements(elements), at: room, came, .. } = &mut **exposed else {
            return self.violated(from);
        };
        let is_next = matched.envelope.source == from.0 && at == *came && len > 0 && len as u64 <= *room - *came;
        let Body::Announced { request, key, .. } = matched.body else { return self.violated(from) };
        if !is_next {
            return self.violated(from);
        }
        read(&mut elements.bytes_mut()[at as usize..][..len]);
        *came += len as u64;
        let next = (self.flight / 2).min(key.len - *room);
        if next > 0 && *room - *came <= self.flight / 2 {
            *room += next;
            self.queue(from, Outgoing::control(Packet::RtrCopy { request, receive, len: next }.encode(0)));
        }
    }

    /// The bytes of a message that its receiver has room for, in packets of at most `most` bytes.
    pub(crate) fn send_data(&mut self, send: usize, at: u64, bytes: &[u8], most: usize) {
        if let Send { to, state: SendState::Writing(receive), .. } = self.sends[send]
            && !self.is_without_receiver(send)
        {
            let most = most - DATA_HEAD;
            for (at, body) in (at..).step_by(most).zip(bytes.chunks(most)) {
                self.queue(to, Outgoing::data(Packet::Data { receive, at }.encode(0), body));
            }
        }
        let end = at + bytes.len() as u64;
        if let Some(Writes { exposed, failed: None, .. }) = self.sends[send].writes
            && exposed > end
        {
            self.add_part(Part { send, at: end, to: To::Packets((exposed - end).min(self.flight)) });
        }
        self.posted(send, false);
        self.written(send, Ok(()));
    }
}
