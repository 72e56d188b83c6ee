//! Messages that their sender writes: whole (RPUT: sur-2006, section 3), or in pieces (the pipeline
//! of woodall-2006), each of which is exposed and written by itself. RPUT is a pipeline of one piece.
//!
//! | sender | event | does | then |
//! |---|---|---|---|
//! | Announced, Writing | RTR | the next bytes, as many as its key has, are to be written | Writing |
//! | Announced, Writing | RTR for packets | see [`copy`](super::copy) | Writing |
//! | Announced | FIN: no memory | complete(fault) | Done |
//! | Writing | FIN: no more memory | gives up the writes that have not begun | Writing, or Done |
//! | Writing | a write ends | a failed one: as above, but RTRs are still to come | Writing, or Done |
//! | Writing | RTRs for all bytes have come, and no write is left | FIN | Writing |
//! | Writing | the same, and all writes are posted, where a packet follows them | FIN | Writing |
//! | Writing | the FIN is on its way, and no write is left | complete | Done |
//! | Writing | the same, and it says that a write or the memory for it was refused | | Announced |
//! | any | the receiver is lost | gives up the writes that have not begun; the others end by themselves | Done |
//!
//! | receiver | event | does | then |
//! |---|---|---|---|
//! | matched | there is memory | RTR with the key of a piece; the next piece is to be exposed | Moving |
//! | matched | there is none that can be registered | RTR for packets | Moving |
//! | matched | there is none | FIN: no memory | Matched(fault) |
//! | Moving | there is none for a later piece | FIN: no more memory; waits for the sender's FIN | Moving |
//! | Moving | FIN | has the message, or the fault | Matched |
//! | Moving | FIN: refused | RTR for packets, from the first byte on | Moving |
//! | Moving | the sender is lost | the same | Matched(fault) |
//!
//! Exposed memory is the message's from its first RTR on. It comes back by the FIN of the sender, or
//! is given up when that is lost, whatever becomes of the receive. So there is one FIN of the sender,
//! for all pieces, and the memory of a piece is never used twice in a message.

use std::ops::RangeInclusive;

use onesided_fabric::SegmentKey;
use onesided_fabric::remote_memory::{Fault, FaultKind, Rank};

use super::arrivals::not_moved;
use super::copy::is_refused;
use super::peer::Outgoing;
use super::receives::{Announced, Body, Moving};
use super::rendezvous::{Here, ToMove};
use super::zcopy::Landed;
use super::{Engine, Send, SendState};
use crate::Protocol;
use crate::engine::elements::Allocate;
use crate::engine::wire::{Packet, RequestId};

/// The shortest piece of a long message but its last one.
pub(crate) const SHORTEST: u64 = 64 << 10;

/// How far the writes of a send are.
#[derive(Clone, Copy, Debug)]
pub(super) struct Writes {
    pub(super) len: u64,
    /// How the message was announced.
    pub(super) by: Protocol,
    /// Whether it goes in packets.
    pub(super) is_copied: bool,
    /// Whether those are what [datagrams](super::zcopy) have not brought: the receiver says when it has all.
    pub(super) fills: bool,
    /// How much of it the receiver has exposed memory or has room for.
    pub(super) exposed: u64,
    /// The parts whose write has not ended, and of those them whose write is not posted.
    left: u32,
    unposted: u32,
    pub(super) failed: Option<Fault>,
    pub(super) fin: Fin,
    /// Whether the FIN asks the receiver to take the message in packets, or its missing datagrams.
    asks: bool,
}

/// The FIN of a sender that writes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Fin {
    NotYet,
    Queued,
    /// On its way.
    Left,
}

impl Writes {
    /// Of a message that was announced so.
    pub(super) const fn of(len: u64, by: Protocol) -> Self {
        let (exposed, left, unposted, failed) = (0, 0, 0, None);
        Self { len, by, is_copied: false, fills: false, exposed, left, unposted, failed, fin: Fin::NotYet, asks: false }
    }

    /// The lengths that the next part may have. So there are not too many parts, and not too many bytes
    /// wait here as packets.
    fn lens(&self, is_copied: bool, flight: u64) -> RangeInclusive<u64> {
        let rest = self.len - self.exposed;
        let (shortest, longest) = match self.by {
            _ if is_copied => (flight / 2, flight),
            Protocol::Pipeline => (SHORTEST.min(self.len / 2), rest),
            _ => (rest, rest),
        };
        shortest.min(rest)..=longest.min(rest)
    }

    /// Whether no write is left.
    pub(super) const fn is_over(&self) -> bool {
        self.left == 0
    }

    fn outcome(&self) -> Result<(), Fault> {
        self.failed.map_or(Ok(()), Err)
    }
}

/// A part of a message that is to be written.
#[derive(Debug)]
pub(super) struct Part {
    pub(super) send: usize,
    /// Its offset in the message.
    pub(super) at: u64,
    pub(super) to: To,
}

/// Where a part goes.
#[derive(Debug)]
pub(super) enum To {
    /// It is written there.
    Memory(SegmentKey),
    /// Of this length, in packets.
    Packets(u64),
    /// Its bytes at these offsets, as many each, in packets.
    Ranges(Vec<(u64, u64)>),
}

/// Memory that a message is written to, or elements for one that comes in packets.
#[derive(Debug)]
pub(super) struct Exposed<S> {
    /// Of one that comes in datagrams. It ends before the memory.
    pub(super) landed: Option<Landed>,
    pub(super) memory: Here<S>,
    /// How much of the message the sender knows the keys of, or may send.
    pub(super) at: u64,
    /// How much of it has come in packets.
    pub(super) came: u64,
    /// There is no memory for the rest.
    pub(super) failed: Option<Fault>,
}

/// A message that memory is to be [exposed](Engine::expose) for.
#[derive(Debug)]
pub(crate) struct ToExpose<S> {
    pub(crate) message: usize,
    /// The message's length.
    pub(crate) len: u64,
    /// Whether a part at a time is exposed, from an offset on; or room for packets.
    pub(crate) by: Protocol,
    pub(crate) at: u64,
    /// That of the earlier parts; of the first one, that of the receive.
    pub(crate) memory: Option<S>,
    /// What makes the elements of a message that comes in packets.
    pub(crate) allocate: Option<Allocate>,
}

impl<S> Exposed<S> {
    pub(super) const fn new(memory: Here<S>, at: u64) -> Self {
        Self { landed: None, memory, at, came: 0, failed: None }
    }

    /// Whether memory is to be exposed for the rest of a message of so many bytes.
    pub(super) const fn has_more(&self, len: u64) -> bool {
        matches!(self.memory, Here::Memory(_)) && self.at < len
    }

    /// Whether a message of so many bytes may be here when its sender says so.
    fn may_be_whole(&self, len: u64) -> bool {
        self.at == len && self.landed.is_none() && (matches!(self.memory, Here::Memory(_)) || self.came == len)
    }
}

impl<S> Engine<S> {
    pub(super) fn next_to_expose(&mut self) -> Option<ToMove<S>> {
        loop {
            let message = self.to_expose.pop_front()?;
            let announced = self.announced(message).filter(|announced| announced.by.is_written());
            if let Some(announced) = announced {
                self.begin_move(message, announced);
            }
            if let Some(next) = self.next_of_landed(message) {
                return Some(next);
            }
            let Some(Moving { announced: Announced { key, .. }, exposed, is_refused, awaits }) = self.moving(message)
            else {
                continue;
            };
            let len = key.len;
            if let Some(memory) = awaits.take() {
                let (by, memory) = (Protocol::UdZcopy, Some(memory));
                return Some(ToMove::Expose(ToExpose { message, len, by, at: 0, memory, allocate: None }));
            }
            let first =
                announced.map(|announced| announced.by).or(std::mem::take(is_refused).then_some(Protocol::Copy));
            if let Some(by) = first {
                let (allocate, memory) = self.memory_of(message);
                return Some(ToMove::Expose(ToExpose { message, len, by, at: 0, memory, allocate }));
            }
            if let Some(Exposed { memory: Here::Memory(memory), at, .. }) =
                exposed.take_if(|exposed| exposed.has_more(len))
            {
                let (by, memory) = (Protocol::Pipeline, Some(memory));
                return Some(ToMove::Expose(ToExpose { message, len, by, at, memory, allocate: None }));
            }
        }
    }

    /// There is memory for a message that its sender writes, and the key of its next part, or none.
    pub(crate) fn expose(&mut self, message: usize, at: u64, exposed: Result<(S, Result<SegmentKey, Fault>), Fault>) {
        let Some((from, request, len)) = self.announced_for(message) else { return };
        let (memory, packet, at, failed) = match exposed {
            Ok((memory, Ok(key))) => {
                let rtr = Packet::Rtr { request, receive: RequestId(message as u32), key };
                (memory, rtr, at + key.len, None)
            }
            // What was exposed before may be being written.
            Ok((memory, Err(fault))) if at > 0 => {
                (memory, Packet::Fin { request, status: fault.kind() as u8 }, len, Some(fault))
            }
            Ok((_, Err(fault))) | Err(fault) => return self.end_move(message, Err(fault)),
        };
        self.queue(from, Outgoing::control(packet.encode(0)));
        if at < len {
            self.to_expose.push_back(message);
        }
        self.set_exposed(message, Exposed { failed, ..Exposed::new(Here::Memory(memory), at) });
    }

    /// The sender of a message that something is to be exposed for, its request and the length, unless
    /// the message is lost.
    pub(super) fn announced_for(&mut self, message: usize) -> Option<(Rank, RequestId, u64)> {
        let Announced { request, key, .. } = self.moving(message)?.announced;
        let from = Rank(self.matcher.envelope(message).source);
        match self.lost(from).or_else(|| self.check_connection(message).err()) {
            None => Some((from, request, key.len)),
            Some(fault) => {
                self.end_move(message, Err(fault));
                None
            }
        }
    }

    pub(super) fn set_exposed(&mut self, message: usize, now: Exposed<S>) {
        if let Some(Moving { exposed, .. }) = self.moving(message) {
            *exposed = Some(now);
        }
    }

    /// The exposed memory of a message, if that is from this rank.
    pub(super) fn exposed(&mut self, message: usize, from: Rank) -> Option<Exposed<S>> {
        self.matcher.get(message)?;
        let is_from = self.matcher.envelope(message).source == from.0;
        self.moving(message)?.exposed.take_if(|_| is_from)
    }

    /// The FIN of a sender that has written, or could not.
    pub(super) fn written_here(&mut self, from: Rank, RequestId(message): RequestId, status: u8) {
        let message = message as usize;
        let Some(exposed) = self.exposed(message, from) else { return self.violated(from) };
        self.look_for_landings();
        match (status, exposed.failed) {
            (0, None) if exposed.may_be_whole(self.matcher.message(message).body.len()) => {
                self.end_written(message, Ok(exposed.memory));
            }
            (0, _) => {
                self.end_written(message, Err(Fault::of(FaultKind::Protocol, from)));
                self.violated(from);
            }
            // After a failure bytes may still come: the memory is not used again.
            (status, failed) => match not_moved(from, status) {
                fault
                    if is_refused(fault)
                        && matches!(exposed.memory, Here::Memory(_))
                        && !matches!(exposed.landed, Some(Landed::Fills(_))) =>
                {
                    drop(exposed); // a landing ends
                    self.copy_instead(message);
                }
                fault => self.end_written(message, Err(failed.unwrap_or(fault))),
            },
        }
    }

    /// What its sender has moved is here, or is lost.
    pub(super) fn end_written(&mut self, message: usize, here: Result<Here<S>, Fault>) {
        let len = self.matcher.message(message).body.len();
        self.has_moved(message, Body::Moved { here, len });
    }

    /// The messages of a lost rank that were being written here are lost.
    pub(super) fn lose_exposed(&mut self, from: Rank, fault: Fault) {
        let all: Vec<_> = self.matcher.messages().map(|(message, ..)| message).collect();
        for message in all {
            if self.exposed(message, from).is_some() {
                self.end_written(message, Err(fault));
            }
        }
        self.look_for_landings();
    }

    /// The receiver of a message has memory or room for its next part.
    pub(super) fn ready_to_receive(&mut self, from: Rank, request: RequestId, receive: RequestId, part: To) {
        let (send, flight) = (request.0 as usize, self.flight);
        let Some(Send { to, state, writes: Some(writes), waker, .. }) =
            self.sends.get_mut(send).filter(|send| send.to == from)
        else {
            return self.violated(from);
        };
        let (len, is_copied, may_be) = match &part {
            To::Memory(key) => (
                key.len,
                false,
                key.rank == *to && matches!(writes.by, Protocol::Rput | Protocol::Pipeline | Protocol::UdZcopy),
            ),
            To::Packets(len) => (*len, true, true),
            To::Ranges(_) => (0, true, false), // they are not asked for so
        };
        let is_next = match state {
            SendState::Announced => true,
            SendState::Writing(other) => {
                *other == receive && writes.is_copied == is_copied && writes.exposed < writes.len && len > 0
            }
            SendState::Queued | SendState::Done(_) => false,
        };
        if !is_next || !may_be || !writes.lens(is_copied, flight).contains(&len) {
            return self.violated(from);
        }
        *state = SendState::Writing(receive);
        let at = writes.exposed;
        writes.is_copied = is_copied;
        writes.exposed += len;
        if writes.failed.is_some() {
            return self.end_writes(send);
        }
        self.woken.extend(waker.take()); // its task may write it
        // Packets go in order: the part before may be being copied.
        if !is_copied || writes.unposted == 0 {
            self.add_part(Part { send, at, to: part });
        }
    }

    pub(super) fn add_part(&mut self, part: Part) {
        if let Some(writes) = &mut self.sends[part.send].writes {
            writes.left += 1;
            writes.unposted += 1;
            self.to_write.push_back(part);
        }
    }

    /// The write of a part was posted, or could not be. A packet that is sent now may follow it.
    pub(crate) fn posted(&mut self, send: usize, is_followed: bool) {
        let Some(writes) = &mut self.sends[send].writes else { return };
        writes.unposted -= 1;
        if is_followed && writes.unposted == 0 && writes.exposed == writes.len && writes.failed.is_none() {
            self.queue_fin(send);
        }
    }

    /// The write of a part that was [posted](Self::posted) has ended.
    pub(crate) fn written(&mut self, send: usize, outcome: Result<(), Fault>) {
        self.tokens += 1;
        let lost = self.lost(self.sends[send].to);
        let Some(writes) = &mut self.sends[send].writes else { return };
        writes.left -= 1;
        if let Err(fault) = lost.map_or(outcome, Err) {
            if writes.fills {
                writes.exposed = writes.len; // no more are sent
            }
            self.fail_writes(send, fault);
        }
        self.end_writes(send);
    }

    /// The receiver has no memory for the rest of a message.
    pub(super) fn no_more_memory(&mut self, from: Rank, send: usize, fault: Fault) {
        match &mut self.sends[send].writes {
            Some(writes) if writes.exposed < writes.len => writes.exposed = writes.len,
            _ => return self.violated(from),
        }
        self.fail_writes(send, fault);
        self.end_writes(send);
    }

    /// The receiver is lost. Whether a write is under way, which ends the send.
    pub(super) fn give_up_writes(&mut self, send: usize, fault: Fault) -> bool {
        self.fail_writes(send, fault);
        matches!(self.sends[send].writes, Some(Writes { left: 1.., .. }))
    }

    /// Writes that have not begun do not begin.
    fn fail_writes(&mut self, send: usize, fault: Fault) {
        let before = self.to_write.len();
        self.to_write.retain(|part| part.send != send);
        let given_up = (before - self.to_write.len()) as u32;
        if let Some(writes) = &mut self.sends[send].writes {
            writes.left -= given_up;
            writes.unposted -= given_up;
            // What is refused may come all the same.
            writes.failed = writes.failed.filter(|failed| !is_refused(*failed)).or(Some(fault));
        }
    }

    /// Ends a send when all of it was written, and its receiver's FIN is on its way.
    fn end_writes(&mut self, send: usize) {
        let Send { state: SendState::Writing(_), writes: Some(writes), .. } = self.sends[send] else { return };
        let is_lost = self.is_without_receiver(send);
        if writes.left > 0 || writes.exposed < writes.len && !is_lost {
            return;
        }
        match writes.fin {
            _ if is_lost => self.complete(send, writes.outcome()),
            Fin::NotYet => self.queue_fin(send),
            Fin::Queued => {}
            Fin::Left if writes.asks => {
                let Writes { len, by, .. } = writes;
                (self.sends[send].state, self.sends[send].writes) = (SendState::Announced, Some(Writes::of(len, by)));
            }
            Fin::Left => self.complete(send, writes.outcome()),
        }
    }

    fn queue_fin(&mut self, send: usize) {
        let Send { to, state: SendState::Writing(receive), writes: Some(writes), .. } = &mut self.sends[send] else {
            return;
        };
        writes.fin = Fin::Queued;
        let is_sent = writes.by == Protocol::UdZcopy && !writes.is_copied && writes.failed.is_none();
        writes.asks = is_sent || !writes.is_copied && writes.failed.is_some_and(is_refused);
        let status = writes.failed.map_or(0, |fault| fault.kind() as u8);
        let receive = *receive;
        let packet = if is_sent { Packet::Sent { receive } } else { Packet::Written { receive, status } };
        let (to, packet) = (*to, packet.encode(0));
        let fin = Outgoing::fin(send, writes.is_copied, packet);
        self.queue(to, fin);
    }

    /// The FIN of a sender is on its way.
    pub(super) fn fin_left(&mut self, send: usize) {
        if let Some(writes) = &mut self.sends[send].writes {
            writes.fin = Fin::Left;
        }
        self.end_writes(send);
    }
}

#[cfg(test)]
mod tests;
