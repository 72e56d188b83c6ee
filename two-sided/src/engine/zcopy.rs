//! Messages whose datagrams the receiver's card puts into the message's memory (UD-ZCopy: koop-2008, section 3.2): no
//! connection, and no copy unless one is lost.
//!
//! | sender | event | does | then |
//! |---|---|---|---|
//! | Announced | RTR | all datagrams are to be sent | Writing |
//! | Writing | they have left, or cannot be sent | SENT, or FIN: refused | Announced |
//! | Announced, Writing | RTR for missing ones | copies these to DATA | Writing |
//! | Announced, Writing | FIN | complete | Done |
//!
//! | receiver | event | does | then |
//! |---|---|---|---|
//! | matched | there is memory and a [`Landing`] | RTR with its key | Moving |
//! | Moving | SENT | ends the landing, which waits for late ones and moves what came in another one's place | Moving |
//! | Moving | it is over, or what was asked for is in its place: some are missing | RTR for the next ones | Moving |
//! | Moving | the same, and none is missing | FIN; has the message | Moved |
//! | matched, or waiting | there is memory, and no landing | waits for one of the same sender's, or goes over to packets | Moving |
//!
//! What is not said here is as of [RPUT](super::pipeline): either side may go over to [packets](super::copy). SENT counts
//! as an RTS, as the sender's FIN does there. At most 128 datagrams are asked for at a time, and the next ones when these
//! are in their place. What a peer sends to a landing after its message has ended reaches no memory: so a landing ends
//! before its memory is another message's, or the library's.

use std::collections::VecDeque;

use onesided_fabric::remote_memory::{Fault, Rank};
use onesided_fabric::{Landing, Missing, SegmentKey};

use super::peer::Outgoing;
use super::pipeline::{Exposed, Part, To};
use super::receives::Body;
use super::rendezvous::{Here, ToMove};
use super::{Engine, Send, SendState};
use crate::Protocol;
use crate::engine::wire::{Packet, RequestId, Window};

/// The longest datagram that may be asked for again.
const LONGEST: u32 = 64 << 10;

/// How far the datagrams of a message are.
#[derive(Debug)]
pub(super) enum Landed {
    Open(Box<dyn Landing>),
    /// All of them have left.
    Left(Box<dyn Landing>),
    Fills(Fills),
}

/// Datagrams that did not come.
#[derive(Debug)]
pub(super) struct Fills {
    /// Those that are asked for later.
    later: Missing,
    /// The bytes that are to come next: their offset and their number.
    wanted: VecDeque<(u64, u64)>,
    came: Vec<(u64, Box<[u8]>)>,
}

impl Fills {
    /// Takes the next bytes: whether they are those.
    fn take(&mut self, at: u64, len: usize, read: impl FnOnce(&mut [u8])) -> bool {
        let Some(next) = self.wanted.front_mut() else { return false };
        if *next == (at, len as u64) {
            self.wanted.pop_front();
        } else if next.0 == at && len > 0 && (len as u64) < next.1 {
            *next = (at + len as u64, next.1 - len as u64);
        } else {
            return false;
        }
        let mut bytes = vec![0; len].into_boxed_slice();
        read(&mut bytes);
        self.came.push((at, bytes));
        true
    }
}

impl<S> Exposed<S> {
    /// Whether its datagrams have left, or its missing bytes have come.
    pub(super) fn has_landed(&self) -> bool {
        match &self.landed {
            Some(Landed::Left(_)) => true,
            Some(Landed::Fills(fills)) => fills.wanted.is_empty(),
            Some(Landed::Open(_)) | None => false,
        }
    }
}

impl<S> Engine<S> {
    /// There is memory for a message that comes in datagrams, and a landing with its key.
    pub(crate) fn expose_landing(&mut self, message: usize, memory: S, (key, landing): (SegmentKey, Box<dyn Landing>)) {
        let Some((from, request, len)) = self.announced_for(message) else { return };
        let rtr = Packet::Rtr { request, receive: RequestId(message as u32), key };
        self.queue(from, Outgoing::control(rtr.encode(0)));
        let landed = Some(Landed::Open(landing));
        self.set_exposed(message, Exposed { landed, ..Exposed::new(Here::Memory(memory), len) });
    }

    /// There is memory for such a message, and no landing now. It waits for those of its sender's other messages, which
    /// that goes on with first. What another rank does is nothing to wait for: without such a message it comes in packets.
    pub(crate) fn no_landing(&mut self, message: usize, memory: S) {
        let Some((from, ..)) = self.announced_for(message) else { return };
        let is_landing = |body: &Body<S>| match body {
            Body::Moving(moving) => {
                let landed = moving.exposed.as_ref().and_then(|exposed| exposed.landed.as_ref());
                matches!(landed, Some(Landed::Open(_) | Landed::Left(_)))
            }
            _ => false,
        };
        let mut all = self.matcher.messages();
        let has_one = all.any(|(_, envelope, message)| envelope.source == from.0 && is_landing(&message.body));
        drop(all);
        if !has_one {
            return self.copy_instead(message);
        }
        if let Some(moving) = self.moving(message) {
            moving.awaits = Some(memory);
            self.awaiting.push(message);
        }
    }

    /// A landing may have ended.
    pub(super) fn look_for_landings(&mut self) {
        self.to_expose.extend(self.awaiting.drain(..));
    }

    /// How far a message from this rank is, if its memory is exposed.
    fn landed(&mut self, message: usize, from: Rank) -> Option<&mut Option<Landed>> {
        self.matcher.get(message)?;
        let is_from = self.matcher.envelope(message).source == from.0;
        self.moving(message)?.exposed.as_mut().filter(|_| is_from).map(|exposed| &mut exposed.landed)
    }

    /// The datagrams of a message have left.
    pub(super) fn sent_here(&mut self, from: Rank, RequestId(message): RequestId) {
        let landed = self.landed(message as usize, from);
        match landed.map(|landed| (landed.take(), landed)) {
            Some((Some(Landed::Open(landing)), landed)) => {
                *landed = Some(Landed::Left(landing));
                self.to_expose.push_back(message as usize);
                self.wake_receive(message as usize);
            }
            Some((other, landed)) => {
                *landed = other;
                self.violated(from);
            }
            None => self.violated(from),
        }
    }

    /// Bytes of a message whose datagrams are [missing](Self::is_filled) have come.
    pub(super) fn missing_arrived(
        &mut self,
        (from, message): (Rank, usize),
        (at, len): (u64, usize),
        read: impl FnOnce(&mut [u8]),
    ) {
        let Some(Some(Landed::Fills(fills))) = self.landed(message, from) else { return };
        match (fills.take(at, len, read), fills.wanted.is_empty()) {
            (false, _) => self.violated(from),
            (true, true) => {
                self.to_expose.push_back(message);
                self.wake_receive(message);
            }
            (true, false) => {}
        }
    }

    /// Whether the bytes of a message's missing datagrams are to come from this rank.
    pub(super) fn is_filled(&mut self, message: usize, from: Rank) -> bool {
        matches!(self.landed(message, from), Some(Some(Landed::Fills(_))))
    }

    /// What is to be done for a message whose datagrams have left, or whose missing bytes have come.
    pub(super) fn next_of_landed(&mut self, message: usize) -> Option<ToMove<S>> {
        let exposed = self.moving(message)?.exposed.take_if(|exposed| exposed.has_landed())?;
        match exposed {
            Exposed { memory: Here::Memory(memory), landed: Some(Landed::Left(landing)), .. } => {
                Some(ToMove::Lift { message, memory, landing })
            }
            Exposed {
                memory: Here::Memory(memory), landed: Some(Landed::Fills(Fills { later, came, .. })), ..
            } => Some(ToMove::Fill { message, memory, came, later }),
            _ => None,
        }
    }

    /// The datagrams of a message are in their place, but for these; or it is lost.
    pub(crate) fn lifted(&mut self, message: usize, memory: S, missing: Result<Missing, Fault>) {
        self.look_for_landings();
        let Some((from, request, len)) = self.announced_for(message) else { return };
        let Missing { unit, mut datagrams } = match missing {
            Ok(missing) if !missing.datagrams.is_empty() => missing,
            here => return self.end_move(message, here.map(|_| Here::Memory(memory))),
        };
        let (missing, count) = Window::first(&datagrams, unit);
        let later = Missing { unit, datagrams: datagrams.split_off(count) };
        let wanted = missing.ranges(len).into_iter().flatten().collect();
        let rtr = Packet::RtrMissing { request, receive: RequestId(message as u32), missing };
        self.queue(from, Outgoing::control(rtr.encode(0)));
        let landed = Some(Landed::Fills(Fills { later, wanted, came: Vec::new() }));
        self.set_exposed(message, Exposed { landed, ..Exposed::new(Here::Memory(memory), len) });
    }

    /// The receiver of a message lacks these datagrams.
    pub(super) fn missing_there(&mut self, from: Rank, request: RequestId, receive: RequestId, missing: Window) {
        let send = request.0 as usize;
        let Some(Send { state, writes: Some(writes), waker, .. }) =
            self.sends.get_mut(send).filter(|send| send.to == from)
        else {
            return self.violated(from);
        };
        let is_next = match state {
            SendState::Announced => true,
            SendState::Writing(other) => *other == receive && writes.fills && writes.is_over(),
            SendState::Queued | SendState::Done(_) => false,
        };
        let may_be = writes.by == Protocol::UdZcopy && missing.bits != 0 && (1..=LONGEST).contains(&missing.unit);
        let Some(ranges) = missing.ranges(writes.len).filter(|_| is_next && may_be) else {
            return self.violated(from);
        };
        *state = SendState::Writing(receive);
        (writes.is_copied, writes.fills) = (true, true);
        self.woken.extend(waker.take());
        self.add_part(Part { send, at: 0, to: To::Ranges(ranges) });
    }
}

#[cfg(test)]
mod tests {
    use std::task::{Context, Poll, Waker};

    use super::*;
    use crate::engine::ToExpose;
    use crate::engine::matching::Pattern;
    use crate::engine::tests::{WINDOW, announced, flushed, key, opened, posted, take_in};
    use crate::engine::wire::DATA_HEAD;

    const UNIT: u32 = 10;
    const LEN: u64 = 2_995;

    #[derive(Debug)]
    struct Nothing;

    impl Landing for Nothing {
        fn poll_over(&mut self, _: &mut Context<'_>) -> Poll<Result<Missing, Fault>> {
            Poll::Pending
        }
    }

    /// A receiver of rank 1's message that has told its landing.
    fn receiver() -> (Engine<u64>, usize, usize) {
        let (mut engine, receive, message) = announced(Protocol::UdZcopy, LEN);
        let key = SegmentKey { rank: Rank(1), len: LEN, ..key() };
        engine.expose_landing(message, 7, (key, Box::new(Nothing)));
        let rtr = Packet::Rtr { request: RequestId(3), receive: RequestId(message as u32), key };
        assert_eq!(flushed(&mut engine), [rtr]);
        (engine, receive, message)
    }

    fn lacks(engine: &mut Engine<u64>, message: usize, datagrams: impl Iterator<Item = u32>) -> Vec<Packet> {
        take_in(engine, Rank(1), Packet::Sent { receive: RequestId(message as u32) }.encode(0).bytes());
        let Some(ToMove::Lift { memory: 7, .. }) = engine.next_to_move(|_| true) else { panic!("it is over") };
        engine.lifted(message, 7, Ok(Missing { unit: UNIT, datagrams: datagrams.collect() }));
        flushed(engine)
    }

    fn data(engine: &mut Engine<u64>, message: usize, at: u64, len: usize) {
        let head = Packet::Data { receive: RequestId(message as u32), at }.encode(0);
        take_in(engine, Rank(1), &[head.bytes(), &vec![at as u8; len]].concat());
    }

    #[test]
    fn what_is_missing_is_asked_for_in_windows() {
        let (mut engine, receive, message) = receiver();
        let asked = |packets: Vec<Packet>| match &packets[..] {
            [Packet::RtrMissing { request: RequestId(3), missing, .. }] => missing.ranges(LEN).unwrap(),
            _ => panic!("{packets:?}"),
        };
        // Every other one.
        let mut ranges = asked(lacks(&mut engine, message, (1..300).step_by(2)));
        for (at, count) in [(10, 64), (1_290, 64), (2_570, 22)] {
            assert_eq!((ranges[0], ranges.len()), ((at, 10), count));
            for (at, len) in &ranges {
                data(&mut engine, message, *at, 3);
                data(&mut engine, message, at + 3, *len as usize - 3);
            }
            let Some(ToMove::Fill { memory: 7, came, later, .. }) = engine.next_to_move(|_| true) else {
                panic!("they have come")
            };
            assert!(came.iter().all(|(at, bytes)| bytes.iter().all(|byte| *byte == *at as u8)));
            assert_eq!(
                came.iter().map(|(_, bytes)| bytes.len() as u64).sum::<u64>(),
                ranges.iter().map(|(_, len)| len).sum()
            );
            assert!(engine.received(receive, Waker::noop()).is_none());
            engine.lifted(message, 7, Ok(later));
            let packets = flushed(&mut engine);
            match at {
                2_570 => assert_eq!(packets, [Packet::Fin { request: RequestId(3), status: 0 }]),
                _ => ranges = asked(packets),
            }
        }
        assert_eq!(ranges.last(), Some(&(2_990, 5)));
        assert!(engine.received(receive, Waker::noop()).unwrap().is_ok());
    }

    #[test]
    fn other_bytes_than_the_next_that_are_missing_are_violations() {
        let is_taken = |packets: &[(u64, usize)]| {
            let (mut engine, _, message) = receiver();
            lacks(&mut engine, message, [200, 299].into_iter());
            packets.iter().for_each(|(at, len)| data(&mut engine, message, *at, *len));
            engine.lost(Rank(1)).is_none()
        };
        assert!(is_taken(&[(2_000, 10), (2_990, 5)]) && is_taken(&[(2_000, 1), (2_001, 9), (2_990, 4), (2_994, 1)]));
        for wrong in [
            &[(2_000, 0)][..],
            &[(2_000, 11)],
            &[(10, 10)],
            &[(2_990, 5)],
            &[(2_000, 9), (2_990, 5)],
            &[(2_000, 10), (2_000, 10)],
            &[(2_000, 10), (2_990, 6)],
        ] {
            assert!(!is_taken(wrong), "{wrong:?}");
        }
        let (mut engine, _, message) = receiver();
        data(&mut engine, message, 0, 10);
        assert!(engine.lost(Rank(1)).is_some(), "nothing was asked for");
        for end in [
            Packet::Written { receive: RequestId(message as u32), status: 0 },
            Packet::Sent { receive: RequestId(message as u32) },
        ] {
            let (mut engine, _, message) = receiver();
            lacks(&mut engine, message, [1].into_iter());
            take_in(&mut engine, Rank(1), end.encode(0).bytes());
            assert!(engine.lost(Rank(1)).is_some(), "{end:?} of {message}");
        }
    }

    /// A second message waits for the landing of its sender's first one; that of another rank waits for nobody.
    #[test]
    fn without_a_landing_a_message_waits_for_those_of_its_sender() {
        let (mut engine, _, message) = receiver();
        let next = |from: u32, engine: &mut Engine<u64>| {
            let key = SegmentKey { rank: Rank(from), len: LEN, ..key() };
            let rts = Packet::Rts { context: 0, tag: 0, request: RequestId(4), key, by: Protocol::UdZcopy };
            take_in(engine, Rank(from), rts.encode(0).bytes());
            posted(engine.receive(Pattern { context: 0, source: Some(from), tag: None }));
            let Some(ToMove::Expose(ToExpose { by: Protocol::UdZcopy, message, .. })) = engine.next_to_move(|_| true)
            else {
                panic!("it is to land")
            };
            engine.no_landing(message, 8);
            message
        };
        let awaits = next(1, &mut engine);
        assert!(engine.next_to_move(|_| true).is_none());
        let other = next(2, &mut engine);
        match engine.next_to_move(|_| true) {
            Some(ToMove::Expose(ToExpose { by: Protocol::Copy, message, .. })) => assert_eq!(message, other),
            found => panic!("it is to come in packets: {found:?}"),
        }
        lacks(&mut engine, message, std::iter::empty());
        match engine.next_to_move(|_| true) {
            Some(ToMove::Expose(ToExpose { by: Protocol::UdZcopy, message, memory: Some(8), .. })) => {
                assert_eq!(message, awaits);
                engine.no_landing(message, 8); // another has it
            }
            found => panic!("it is to land: {found:?}"),
        }
        assert!(matches!(engine.next_to_move(|_| true), Some(ToMove::Expose(ToExpose { by: Protocol::Copy, .. }))));
    }

    #[test]
    fn a_receiver_asks_for_datagrams_that_it_may_lack() {
        let is_taken = |by, missing: &[Window]| {
            let mut engine = opened(Rank(1), WINDOW, u32::MAX);
            let send =
                engine.send_rendezvous(Rank(0), (0, 0), (SegmentKey { rank: Rank(1), len: LEN, ..key() }, by), 7);
            flushed(&mut engine);
            for missing in missing {
                let (request, receive) = (RequestId(send as u32), RequestId(0));
                take_in(
                    &mut engine,
                    Rank(0),
                    Packet::RtrMissing { request, receive, missing: *missing }.encode(0).bytes(),
                );
                let Some(ToMove::Copy { from: 7, ranges, .. }) = engine.next_to_move(|_| true) else { continue };
                engine.send_data(send, &ranges, DATA_HEAD + 4, |_, _| Ok(()));
                let sent = flushed(&mut engine).len();
                assert_eq!(sent as u64, ranges.iter().map(|(_, len)| len.div_ceil(4)).sum::<u64>());
            }
            engine.lost(Rank(0)).is_none()
        };
        let one = Window { at: 20, unit: UNIT, bits: 5 };
        assert!(is_taken(Protocol::UdZcopy, &[one]) && is_taken(Protocol::UdZcopy, &[one, one]));
        assert!(!is_taken(Protocol::Copy, &[one]) && !is_taken(Protocol::Rput, &[one]));
        for wrong in [
            Window { bits: 0, ..one },
            Window { unit: 0, ..one },
            Window { unit: LONGEST + 1, bits: 1, ..one },
            Window { at: LEN, bits: 1, ..one },
            Window { bits: 1 << 127 | 1, at: 2_000, ..one },
        ] {
            assert!(!is_taken(Protocol::UdZcopy, &[wrong]), "{wrong:?}");
        }
    }
}
