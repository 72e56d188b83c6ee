//! Packets that arrive.

use onesided_fabric::remote_memory::{Fault, FaultKind, Rank};

use super::bytes::{Bytes, NONE, SHORT};
use super::collectives::CONTROL;
use super::peer::Outgoing;
use super::pipeline::To;
use super::receives::{Announced, Arrived, Body, Direct, Landed};
use super::rendezvous::Here;
use super::{Engine, Send, SendState};
use crate::engine::matching::{Envelope, is_collective};
use crate::engine::wire::{BATCH_HEAD, DATA_HEAD, EAGER_HEAD, HEAD_MAX, Packet, RequestId, eager_fields};

impl<S> Engine<S> {
    /// Takes in a packet of `len` bytes, which begins with `head`, and `read` for its bytes from an
    /// offset on. `direct`: the receive whose task takes it in.
    #[inline]
    pub(crate) fn arrived(
        &mut self,
        from: Rank,
        (head, len): (&[u8; HEAD_MAX], usize),
        read: impl FnOnce(usize, &mut [u8]),
        direct: &mut Direct<'_>,
    ) {
        match eager_fields(head, len) {
            Some(((context, tag), grant)) => {
                let envelope = Envelope { context, source: from.0, tag };
                let first = head.last_chunk().unwrap_or(&NONE);
                self.eager(envelope, grant, (first, len - EAGER_HEAD), |into| read(EAGER_HEAD, into), direct);
            }
            None => self.control_arrived(from, (&head[..len.min(HEAD_MAX)], len), read, direct),
        }
    }

    /// Takes in a packet that is no EAGER.
    #[inline(never)]
    fn control_arrived(
        &mut self,
        from: Rank,
        (head, len): (&[u8], usize),
        read: impl FnOnce(usize, &mut [u8]),
        direct: &mut Direct<'_>,
    ) {
        if self.lost(from).is_some() {
            return;
        }
        let Some((packet, grant)) = Packet::decode(head) else { return self.violated(from) };
        self.peer(from).granted(grant);
        self.send_queued(from);
        match packet {
            Packet::Data { receive, at } => {
                self.data_arrived(from, receive, (at, len - DATA_HEAD), |into| read(DATA_HEAD, into));
            }
            Packet::Batch { context } => {
                self.batch_arrived(from, (context, grant), len - BATCH_HEAD, |into| read(BATCH_HEAD, into), direct);
            }
            _ if len > HEAD_MAX => self.violated(from),
            Packet::Rts { .. } if !self.peer(from).takes_message(0) => self.violated(from),
            Packet::Rts { context, tag, request, key, by } if key.rank == from => {
                let body = match self.take_own(from, request) {
                    Some(memory) => Body::Moved { here: Ok(Here::Memory(memory)), len: key.len },
                    None => Body::Announced(Announced { request, key, by }),
                };
                self.message(from, context, tag, body);
            }
            Packet::Rts { .. } | Packet::Eager { .. } => self.violated(from), // an EAGER is taken in apart
            Packet::Fin { request, status } => {
                let send = request.0 as usize;
                let outcome = match status {
                    0 => Ok(()),
                    status => Err(not_moved(from, status)),
                };
                match (self.sends.get(send), outcome) {
                    (Some(Send { to, state: SendState::Announced, .. }), outcome) if *to == from => {
                        self.complete(send, outcome);
                    }
                    // All that it lacked has come.
                    (Some(Send { to, state: SendState::Writing(_), writes: Some(writes), .. }), outcome)
                        if *to == from && writes.fills && writes.is_over() =>
                    {
                        self.complete(send, outcome);
                    }
                    (Some(Send { to, state: SendState::Writing(_), .. }), Err(fault)) if *to == from => {
                        self.no_more_memory(from, send, fault);
                    }
                    _ => self.violated(from),
                }
            }
            Packet::Rtr { request, receive, key } => {
                self.ready_to_receive(from, request, receive, To::Memory(key));
            }
            Packet::RtrCopy { request, receive, len } => {
                self.ready_to_receive(from, request, receive, To::Packets(len));
            }
            Packet::Written { receive, status } => self.written_here(from, receive, status),
            Packet::Sent { receive } => self.sent_here(from, receive),
            Packet::RtrMissing { request, receive, missing } => self.missing_there(from, request, receive, missing),
            Packet::Credit => {}
            Packet::Ask => {
                let peer = self.peer(from);
                peer.wants_credit = true;
                if peer.owes_credit() {
                    self.queue(from, Outgoing::control(Packet::Credit.encode(0)));
                }
            }
        }
    }

    /// The memory of a message to this rank itself, whose send is then over.
    fn take_own(&mut self, from: Rank, request: RequestId) -> Option<S> {
        let is_over = |send: &&mut Send<S>| matches!(send.state, SendState::Announced) && !send.is_synchronous;
        let send = self.sends.get_mut(request.0 as usize).filter(|_| from == self.me).filter(is_over)?;
        let memory = send.memory[0].take();
        self.complete(request.0 as usize, Ok(()));
        memory
    }

    /// A message has come with its first bytes, and a length; `read` is asked for all, if there are
    /// more.
    #[inline]
    pub(super) fn eager(
        &mut self,
        envelope: Envelope,
        grant: u32,
        (first, len): (&[u8; SHORT], usize),
        read: impl FnOnce(&mut [u8]),
        direct: &mut Direct<'_>,
    ) {
        let from = Rank(envelope.source);
        let at = self.peer_at(from);
        let peer = &mut self.peers[at];
        if peer.lost.is_some() {
            return;
        }
        peer.granted(grant);
        let (has_credit, has_queued) = (peer.takes_message(len), peer.has_queued());
        if has_queued {
            self.send_queued(from);
        }
        if !has_credit {
            return self.violated(from);
        }
        let arrival = self.matcher.number();
        if is_collective(envelope.context) && envelope.tag & CONTROL != 0 {
            self.control(envelope, &first[..len.min(first.len())]);
            return self.credit(from, len);
        }
        let receive = self.matcher.take_posted(envelope);
        if direct.gets(receive, envelope, len) {
            let room = direct.into.len();
            let into = &mut direct.into[..len.min(room)];
            if let Ok(word) = <&mut [u8; 8]>::try_from(&mut *into) {
                word.copy_from_slice(&first[..8]); // takes no call
            } else if let Some(first) = first.get(..into.len()) {
                into.copy_from_slice(first);
            } else {
                read(into);
            }
            direct.landed = Some(Landed { envelope, arrival, len: len as u32 });
            if let Some(posted) = receive {
                let receive = &mut self.matcher.receives[posted];
                receive.allocate = None;
                if let Some(waker) = receive.waker.take() {
                    self.retired.push(waker);
                }
                self.matcher.receives.end(posted);
            }
            return self.credit_peer(at, from, len);
        }
        if receive.is_none() && !self.is_open(envelope.context) {
            return self.credit(from, len);
        }
        if receive.is_none() {
            self.is_early(envelope);
        }
        let message = self.matcher.add(envelope, arrival, receive.is_none());
        self.matcher.message_mut(message).body = Body::Eager(Bytes::new(len, first, read));
        if let Some(receive) = receive {
            self.give(message, receive);
        }
    }

    /// A message is announced, or was sent by this rank.
    fn message(&mut self, from: Rank, context: u32, tag: u32, body: Body<S>) {
        let arrival = self.matcher.number();
        let message = self.matcher.add(Envelope { context, source: from.0, tag }, arrival, false);
        *self.matcher.message_mut(message) = Arrived { body, is_consumed: false, receive: None };
        self.place(message);
    }
}

/// The peer could not read or write the message.
pub(super) fn not_moved(peer: Rank, status: u8) -> Fault {
    let kind = Fault::from_bits(u64::from(status) << 56).map_or(FaultKind::Protocol, Fault::kind);
    Fault::of(kind, peer)
}
