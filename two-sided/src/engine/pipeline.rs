//! Messages that their sender writes: whole (RPUT: sur-2006, section 3), or in pieces (the pipeline
//! of woodall-2006), each of which is exposed and written by itself. RPUT is a pipeline of one piece.
//!
//! | sender | event | does | then |
//! |---|---|---|---|
//! | Announced, Writing | RTR | the next bytes, as many as its key has, are to be written | Writing |
//! | Announced | FIN: no memory | complete(fault) | Done |
//! | Writing | FIN: no more memory | gives up the writes that have not begun | Writing, or Done |
//! | Writing | a write ends | a failed one: as above, but RTRs are still to come | Writing, or Done |
//! | Writing | RTRs for all bytes have come, and no write is left | FIN | Writing |
//! | Writing | the same, and all writes are posted, where a packet follows them | FIN | Writing |
//! | Writing | the FIN is on its way, and no write is left | complete | Done |
//! | any | the receiver is lost | gives up the writes that have not begun; the others end by themselves | Done |
//!
//! | receiver | event | does | then |
//! |---|---|---|---|
//! | matched | there is memory | RTR with the key of a piece; the next piece is to be exposed | Moving |
//! | matched | there is none | FIN: no memory | Matched(fault) |
//! | Moving | there is none for a later piece | FIN: no more memory; waits for the sender's FIN | Moving |
//! | Moving | FIN | has the message, or the fault | Matched |
//! | Moving | the sender is lost | the same | Matched(fault) |
//!
//! Exposed memory is the message's from its first RTR on. It comes back by the FIN of the sender, or
//! is given up when that is lost, whatever becomes of the receive. So there is one FIN of the sender,
//! for all pieces, and the memory of a piece is never used twice in a message.

use onesided_fabric::SegmentKey;
use onesided_fabric::remote_memory::{Fault, FaultKind, Rank};

use super::arrivals::not_moved;
use super::peer::Outgoing;
use super::receives::{Body, ReceiveState};
use super::rendezvous::{Here, ToMove};
use super::{Engine, Send, SendState};
use crate::wire::{By, Packet, RequestId};

/// The shortest piece of a long message but its last one.
pub(crate) const SHORTEST: u64 = 64 << 10;

/// How far the writes of a send are.
#[derive(Clone, Copy, Debug)]
pub(super) struct Writes {
    pub(super) len: u64,
    /// The length of the shortest part but the last one. So there are not too many.
    shortest: u64,
    /// How much of it the receiver has exposed memory for.
    exposed: u64,
    /// The parts whose write has not ended, and of those them whose write is not posted.
    left: u32,
    unposted: u32,
    failed: Option<Fault>,
    pub(super) fin: Fin,
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
    /// Of a message that is written as a whole, or in pieces.
    pub(super) fn of(len: u64, in_pieces: bool) -> Self {
        let shortest = if in_pieces { SHORTEST.min(len / 2) } else { len };
        Self { len, shortest, exposed: 0, left: 0, unposted: 0, failed: None, fin: Fin::NotYet }
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
    pub(super) to: SegmentKey,
}

/// Memory that a message is written to.
#[derive(Debug)]
pub(super) struct Exposed<S> {
    pub(super) memory: S,
    /// How much of the message the sender knows the keys of.
    pub(super) at: u64,
    /// There is no memory for the rest.
    failed: Option<Fault>,
}

/// A message that memory is to be [exposed](Engine::expose) for.
#[derive(Debug)]
pub(crate) struct ToExpose<S> {
    pub(crate) receive: usize,
    /// The message's length.
    pub(crate) len: u64,
    /// Whether a part at a time is exposed, from an offset on.
    pub(crate) in_pieces: bool,
    pub(crate) at: u64,
    /// That of the earlier parts.
    pub(crate) memory: Option<S>,
}

impl<S> Engine<S> {
    pub(super) fn next_to_expose(&mut self) -> Option<ToMove<S>> {
        loop {
            let receive = self.to_expose.pop_front()?;
            if let Some((SegmentKey { len, .. }, by)) = self.announced(receive)
                && by.is_written()
            {
                self.begin_move(receive);
                let in_pieces = by == By::Pipeline;
                return Some(ToMove::Expose(ToExpose { receive, len, in_pieces, at: 0, memory: None }));
            }
            if let Some(ReceiveState::Moving { matched, exposed, .. }) =
                self.matcher.receives.get_mut(receive).map(|receive| &mut receive.state)
            {
                let len = matched.body.len();
                if let Some(Exposed { memory, at, .. }) =
                    exposed.take_if(|exposed| exposed.at < len).map(|exposed| *exposed)
                {
                    let memory = Some(memory);
                    return Some(ToMove::Expose(ToExpose { receive, len, in_pieces: true, at, memory }));
                }
            }
        }
    }

    /// There is memory for a message that its sender writes, and the key of its next part, or none.
    pub(crate) fn expose(&mut self, receive: usize, at: u64, memory: Option<S>, key: Result<SegmentKey, Fault>) {
        let ReceiveState::Moving { matched, .. } = &self.matcher.receives[receive].state else {
            unreachable!("its memory was asked for")
        };
        let (from, len) = (Rank(matched.envelope.source), matched.body.len());
        let Body::Announced { request, .. } = matched.body else { unreachable!("it was announced") };
        if let Some(fault) = self.lost(from).or_else(|| self.check_connection(matched).err()) {
            return self.end_move(receive, Err(fault));
        }
        let (memory, packet, at, failed) = match (memory, key) {
            (Some(memory), Ok(key)) => {
                let rtr = Packet::Rtr { request, receive: RequestId(receive as u32), key };
                (memory, rtr, at + key.len, None)
            }
            // What was exposed before may be being written.
            (Some(memory), Err(fault)) if at > 0 => {
                (memory, Packet::Fin { request, status: fault.kind() as u8 }, len, Some(fault))
            }
            (_, Err(fault)) => return self.end_move(receive, Err(fault)),
            (None, Ok(_)) => unreachable!("a key is that of memory"),
        };
        self.queue(from, Outgoing::control(packet.encode(0)));
        if at < len {
            self.to_expose.push_back(receive);
        }
        if let ReceiveState::Moving { exposed, .. } = &mut self.matcher.receives[receive].state {
            *exposed = Some(Box::new(Exposed { memory, at, failed }));
        }
    }

    /// The exposed memory of a message, if that is from this rank.
    pub(super) fn exposed(&mut self, receive: usize, from: Rank) -> Option<Exposed<S>> {
        match &mut self.matcher.receives.get_mut(receive)?.state {
            ReceiveState::Moving { matched, exposed, .. } if matched.envelope.source == from.0 => {
                exposed.take().map(|exposed| *exposed)
            }
            _ => None,
        }
    }

    /// The FIN of a sender that has written, or could not.
    pub(super) fn written_here(&mut self, from: Rank, RequestId(receive): RequestId, status: u8) {
        let receive = receive as usize;
        match self.exposed(receive, from) {
            // After a failure bytes may still come: the memory is not used again.
            Some(Exposed { failed: Some(fault), .. }) => self.end_written(receive, Err(fault)),
            Some(_) if status != 0 => self.end_written(receive, Err(not_moved(from, status))),
            Some(Exposed { at, .. }) if at < self.moving_len(receive) => {
                self.end_written(receive, Err(Fault::of(FaultKind::Protocol, from)));
                self.violated(from);
            }
            Some(Exposed { memory, .. }) => self.end_written(receive, Ok(Here::Memory(memory))),
            None => self.violated(from),
        }
    }

    fn moving_len(&self, receive: usize) -> u64 {
        match &self.matcher.receives[receive].state {
            ReceiveState::Moving { matched, .. } => matched.body.len(),
            _ => 0,
        }
    }

    pub(super) fn end_written(&mut self, receive: usize, here: Result<Here<S>, Fault>) {
        let moved = self.take_moving(receive);
        self.become_read(receive, moved, here);
    }

    /// The messages of a lost rank that were being written here are lost.
    pub(super) fn lose_exposed(&mut self, from: Rank, fault: Fault) {
        let moving: Vec<_> = self.matcher.receives.iter().map(|(receive, _)| receive).collect();
        for receive in moving {
            if self.exposed(receive, from).is_some() {
                self.end_written(receive, Err(fault));
            }
        }
    }

    /// The receiver of a message has memory for its next part.
    pub(super) fn ready_to_receive(&mut self, from: Rank, request: RequestId, receive: RequestId, key: SegmentKey) {
        let send = request.0 as usize;
        let Some(Send { to, state, writes: Some(writes), waker, .. }) =
            self.sends.get_mut(send).filter(|send| send.to == from)
        else {
            return self.violated(from);
        };
        let is_next = match state {
            SendState::Announced => true,
            SendState::Writing(other) => *other == receive && writes.exposed < writes.len && key.len > 0,
            SendState::Queued | SendState::Done(_) => false,
        };
        let rest = writes.len - writes.exposed;
        if !is_next || key.rank != *to || key.len > rest || key.len < writes.shortest.min(rest) {
            return self.violated(from);
        }
        *state = SendState::Writing(receive);
        let at = writes.exposed;
        writes.exposed += key.len;
        if writes.failed.is_some() {
            return self.end_writes(send);
        }
        writes.left += 1;
        writes.unposted += 1;
        self.woken.extend(waker.take()); // its task may write it
        self.to_write.push_back(Part { send, at, to: key });
    }

    /// The write of a part was posted, or could not be. A packet that is sent now may follow it.
    pub(crate) fn posted(&mut self, send: usize, is_followed: bool) {
        let Some(writes) = &mut self.sends[send].writes else { unreachable!("it was to be written") };
        writes.unposted -= 1;
        if is_followed && writes.unposted == 0 && writes.exposed == writes.len && writes.failed.is_none() {
            self.queue_fin(send);
        }
    }

    /// The write of a part that was [posted](Self::posted) has ended.
    pub(crate) fn written(&mut self, send: usize, outcome: Result<(), Fault>) {
        self.tokens += 1;
        let lost = self.lost(self.sends[send].to);
        let Some(writes) = &mut self.sends[send].writes else { unreachable!("it was to be written") };
        writes.left -= 1;
        if let Err(fault) = lost.map_or(outcome, Err) {
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
            writes.failed.get_or_insert(fault);
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
            Fin::Left => self.complete(send, writes.outcome()),
        }
    }

    fn queue_fin(&mut self, send: usize) {
        let Send { to, state: SendState::Writing(receive), writes: Some(writes), .. } = &mut self.sends[send] else {
            return;
        };
        writes.fin = Fin::Queued;
        let status = writes.failed.map_or(0, |fault| fault.kind() as u8);
        let (to, receive) = (*to, *receive);
        self.queue(to, Outgoing::fin(send, Packet::Written { receive, status }.encode(0)));
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
mod tests {
    use std::task::Waker;

    use onesided_fabric::remote_memory::RegionId;

    use super::*;
    use crate::engine::{Direct, Posted, Posting, window};
    use crate::matching::Pattern;
    use crate::wire::head_of;

    const LEN: u64 = 4 * SHORTEST;

    fn key(rank: u32, len: u64) -> SegmentKey {
        SegmentKey { rank: Rank(rank), region: RegionId(1), len, address: 0, rkey: 0 }
    }

    fn take_in(engine: &mut Engine<u64>, from: u32, packet: Packet) {
        let encoded = packet.encode(0);
        let bytes = encoded.bytes();
        engine.arrived(Rank(from), (&head_of(bytes), bytes.len()), |_, _| {}, &mut Direct::none());
    }

    /// A send to rank 1 that was announced.
    fn announced(by: By) -> (Engine<u64>, usize) {
        let mut engine = Engine::new(Rank(0), window(2), u32::MAX);
        let send = engine.send_rendezvous(Rank(1), (0, 0), (key(0, LEN), by), 7);
        engine.flush(|_, _, _| Posted::Sent);
        (engine, send)
    }

    fn ready(engine: &mut Engine<u64>, send: usize, len: u64) {
        let packet = Packet::Rtr { request: RequestId(send as u32), receive: RequestId(0), key: key(1, len) };
        take_in(engine, 1, packet);
    }

    /// Its receiver would wait for the FIN until this rank waits again, which may never be.
    #[test]
    fn a_written_send_is_over_when_its_fin_is_on_its_way() {
        let (mut engine, send) = announced(By::Write);
        ready(&mut engine, send, LEN);
        assert!(matches!(engine.next_to_move(|_| true), Some(ToMove::Write { .. })));
        engine.posted(send, false);
        engine.flush(|_, _, _| panic!("it is not written yet"));
        engine.written(send, Ok(()));
        engine.flush(|_, _, _| Posted::Busy);
        assert_eq!(engine.sent(send, Waker::noop()), None);
        engine.flush(|_, _, _| Posted::Sent);
        assert_eq!(engine.sent(send, Waker::noop()), Some(Ok(())));
    }

    /// Where a packet follows the writes before it, the FIN waits for none of them. The send does.
    #[test]
    fn a_fin_goes_behind_the_last_write_that_is_posted() {
        for fin_first in [true, false] {
            let (mut engine, send) = announced(By::Pipeline);
            ready(&mut engine, send, 2 * SHORTEST);
            ready(&mut engine, send, 2 * SHORTEST);
            let mut fins = 0;
            let mut flush = |engine: &mut Engine<u64>, room| {
                engine.flush(|_, _, _| {
                    fins += u32::from(room == Posted::Sent);
                    room
                });
                fins
            };
            for posted in 0..2 {
                assert_eq!(flush(&mut engine, Posted::Sent), 0, "{posted} of two writes are posted");
                assert!(matches!(engine.next_to_move(|_| true), Some(ToMove::Write { .. })));
                engine.posted(send, true);
            }
            if fin_first {
                assert_eq!(flush(&mut engine, Posted::Sent), 1);
            }
            engine.written(send, Ok(()));
            engine.written(send, Ok(()));
            assert_eq!(flush(&mut engine, Posted::Busy), u32::from(fin_first));
            assert_eq!(engine.sent(send, Waker::noop()), fin_first.then_some(Ok(())));
            assert_eq!(flush(&mut engine, Posted::Sent), 1);
            assert_eq!(engine.sent(send, Waker::noop()), Some(Ok(())));
        }
    }

    #[test]
    fn a_receiver_exposes_a_whole_message_or_long_pieces() {
        let is_taken = |by, lens: &[u64]| {
            let (mut engine, send) = announced(by);
            lens.iter().for_each(|len| ready(&mut engine, send, *len));
            engine.lost(Rank(1)).is_none()
        };
        assert!(is_taken(By::Write, &[LEN]) && is_taken(By::Pipeline, &[LEN]));
        assert!(is_taken(By::Pipeline, &[3 * SHORTEST + 5, SHORTEST - 5]));
        assert!(!is_taken(By::Write, &[LEN - 1]) && !is_taken(By::Write, &[LEN + 1]));
        assert!(!is_taken(By::Pipeline, &[SHORTEST - 1]) && !is_taken(By::Pipeline, &[LEN + 1]));
    }

    #[test]
    fn a_fin_before_the_last_piece_is_a_violation() {
        let mut engine = Engine::<u64>::new(Rank(1), window(2), u32::MAX);
        let rts = Packet::Rts { context: 0, tag: 0, request: RequestId(3), key: key(0, LEN), by: By::Pipeline };
        take_in(&mut engine, 0, rts);
        let pattern = Pattern { context: 0, source: Some(0), tag: None };
        let Posting::Posted(receive) = engine.receive(pattern) else { panic!("it was announced") };
        let Some(ToMove::Expose(_)) = engine.next_to_move(|_| true) else { panic!("memory is to be exposed") };
        engine.expose(receive, 0, Some(7), Ok(key(1, SHORTEST)));
        take_in(&mut engine, 0, Packet::Written { receive: RequestId(receive as u32), status: 0 });
        assert_eq!(engine.lost(Rank(0)).map(Fault::kind), Some(FaultKind::Protocol));
        let Some(Ok(matched)) = engine.received(receive, Waker::noop()) else { panic!("it is over") };
        assert!(matches!(matched.body, Body::Read { memory: Err(_), .. }));
    }
}
