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
use super::receives::{Announced, Moving};
use super::rendezvous::Here;
use super::{Engine, Send, SendState};
use crate::engine::elements::Elements;
use crate::engine::wire::{DATA_HEAD, Packet, RequestId};

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
    pub(super) fn copy_instead(&mut self, message: usize) {
        if let Some(moving) = self.moving(message) {
            moving.is_refused = true;
            self.wake_receive(message);
            self.to_expose.push_back(message);
        }
    }

    /// There are elements for a message, as many bytes as it has, which is to come in packets.
    pub(crate) fn expose_elements(&mut self, message: usize, elements: Box<dyn Elements>) {
        let Some((from, request, len)) = self.announced_for(message) else { return };
        let room = self.flight.min(len);
        let rtr = Packet::RtrCopy { request, receive: RequestId(message as u32), len: room };
        self.queue(from, Outgoing::control(rtr.encode(0)));
        self.set_exposed(message, Exposed::new(Here::Elements(elements), room));
    }

    /// The next bytes of a message have come; `read` copies them.
    pub(super) fn data_arrived(
        &mut self,
        from: Rank,
        receive: RequestId,
        (at, len): (u64, usize),
        read: impl FnOnce(&mut [u8]),
    ) {
        let (message, flight) = (receive.0 as usize, self.flight);
        if self.is_filled(message, from) {
            return self.missing_arrived((from, message), (at, len), read);
        }
        let Some(Moving {
            announced: Announced { request, key, .. },
            exposed: Some(Exposed { memory: Here::Elements(elements), at: room, came, .. }),
            ..
        }) = self.moving(message)
        else {
            return self.violated(from);
        };
        if at != *came || len == 0 || len as u64 > *room - *came || key.rank != from {
            return self.violated(from);
        }
        read(&mut elements.bytes_mut()[at as usize..][..len]);
        *came += len as u64;
        let (request, next) = (*request, (flight / 2).min(key.len - *room));
        if next > 0 && *room - *came <= flight / 2 {
            *room += next;
            self.queue(from, Outgoing::control(Packet::RtrCopy { request, receive, len: next }.encode(0)));
        }
    }

    /// The bytes of a message that its receiver has room for, or lacks, in packets of at most `most` bytes: their
    /// offsets, and as many each. `read` copies those from an offset on.
    pub(crate) fn send_data(
        &mut self,
        send: usize,
        ranges: &[(u64, u64)],
        most: usize,
        mut read: impl FnMut(u64, &mut [u8]) -> Result<(), Fault>,
    ) {
        let (end, mut outcome) = (ranges.last().map_or(0, |(at, len)| at + len), Ok(()));
        if let Send { to, state: SendState::Writing(receive), .. } = self.sends[send]
            && !self.is_without_receiver(send)
        {
            let most = most - DATA_HEAD;
            let pieces =
                ranges.iter().flat_map(|(at, len)| (*at..at + len).step_by(most).map(move |next| (next, at + len)));
            for (at, end) in pieces {
                let mut body = vec![0; (end - at).min(most as u64) as usize];
                outcome = read(at, &mut body);
                if outcome.is_err() {
                    break;
                }
                self.queue(to, Outgoing::data(Packet::Data { receive, at }.encode(0), body.into()));
            }
        }
        if let Some(Writes { exposed, failed: None, fills: false, .. }) = self.sends[send].writes
            && exposed > end
        {
            self.add_part(Part { send, at: end, to: To::Packets((exposed - end).min(self.flight)) });
        }
        self.posted(send, false);
        self.written(send, outcome);
    }
}

#[cfg(test)]
mod tests {
    use std::task::Waker;

    use onesided_fabric::SegmentKey;

    use super::*;
    use crate::Protocol;
    use crate::engine::tests::{WINDOW, announced, flushed, key, opened, take_in};
    use crate::engine::{Holding, PostOutcome, ToMove};

    const LEN: u64 = 2 * FLIGHT + 5;

    fn data(message: usize, at: u64, bytes: &[u8]) -> Vec<u8> {
        [Packet::Data { receive: RequestId(message as u32), at }.encode(0).bytes(), bytes].concat()
    }

    /// A receiver of rank 1's message that has asked for its first packets.
    fn receiver() -> (Engine<u64>, usize, usize) {
        let (mut engine, receive, message) = announced(Protocol::Copy, LEN);
        engine.expose_elements(message, Box::new(vec![0_u8; LEN as usize]));
        (engine, receive, message)
    }

    fn room(message: usize, len: u64) -> Packet {
        Packet::RtrCopy { request: RequestId(3), receive: RequestId(message as u32), len }
    }

    #[test]
    fn there_is_room_for_more_when_half_of_it_is_used() {
        let (mut engine, receive, message) = receiver();
        assert_eq!(flushed(&mut engine), [room(message, FLIGHT)]);
        assert_eq!(
            engine.describe(0),
            [format!("1 message that comes in packets: {LEN} bytes with tag 0 from rank 1")]
        );
        let half = FLIGHT / 2;
        let bytes: Vec<_> = (0..LEN).map(|at| (at / 251) as u8).collect();
        let parts = [(half - 1, None), (half, Some(half)), (2 * half, Some(half)), (3 * half, Some(5)), (LEN, None)];
        let mut at = 0;
        for (end, more) in parts {
            take_in(&mut engine, Rank(1), &data(message, at, &bytes[at as usize..end as usize]));
            assert_eq!(flushed(&mut engine), Vec::from_iter(more.map(|len| room(message, len))), "at {end}");
            at = end;
        }
        assert!(engine.received(receive, Waker::noop()).is_none());
        let fin = Packet::Written { receive: RequestId(message as u32), status: 0 };
        take_in(&mut engine, Rank(1), fin.encode(0).bytes());
        let Some(Ok(held)) = engine.received(receive, Waker::noop()) else { panic!("it is here") };
        let Holding::Moved(Ok(Here::Elements(elements))) = engine.take(held.message) else { panic!("it is whole") };
        assert!(elements.bytes() == bytes);
    }

    #[test]
    fn other_packets_than_the_next_are_violations() {
        let half = vec![0; FLIGHT as usize / 2];
        let is_taken = |packets: &[(u32, u64, &[u8])]| {
            let (mut engine, _, message) = receiver();
            packets.iter().for_each(|(from, at, bytes)| take_in(&mut engine, Rank(*from), &data(message, *at, bytes)));
            engine.lost(Rank(1)).is_none() && engine.lost(Rank(2)).is_none()
        };
        let end = FLIGHT / 2;
        assert!(is_taken(&[(1, 0, &half), (1, end, &half), (1, 2 * end, &half)]));
        for wrong in [end - 1, end + 1, 0, u64::MAX, u64::MAX - end + 1] {
            assert!(!is_taken(&[(1, 0, &half), (1, wrong, &half)]), "{wrong}");
        }
        assert!(!is_taken(&[(1, 0, &[])]) && !is_taken(&[(2, 0, &half)]));
        assert!(!is_taken(&[(1, 0, &vec![0; FLIGHT as usize + 1])]), "there is no room for it");
    }

    /// Packets go in order and behind all others, also where two threads copy, and the FIN behind them.
    #[test]
    fn a_sender_copies_one_part_after_the_other() {
        let (half, mut engine) = (FLIGHT / 2, opened(Rank(1), WINDOW, u32::MAX));
        let send = engine.send_rendezvous(
            Rank(0),
            (0, 0),
            (SegmentKey { rank: Rank(1), len: LEN, ..key() }, Protocol::Copy),
            7,
        );
        flushed(&mut engine);
        assert!(engine.describe(0)[0].contains("announced, to be sent in packets"), "{:?}", engine.describe(0));
        let ready = |engine: &mut Engine<u64>, len| {
            let request = RequestId(send as u32);
            take_in(engine, Rank(0), Packet::RtrCopy { request, receive: RequestId(9), len }.encode(0).bytes());
        };
        let (mut room, mut sent) = (FLIGHT, 0);
        ready(&mut engine, room);
        while let Some(ToMove::Copy { ranges, .. }) = engine.next_to_move(|_| true) {
            let (at, len) = ranges[0];
            assert_eq!(at, sent);
            if room < LEN {
                let more = half.min(LEN - room);
                room += more;
                ready(&mut engine, more);
                assert!(engine.next_to_move(|_| true).is_none(), "the part before is being copied");
            }
            engine.send_data(send, &ranges, half as usize, |_, _| Ok(()));
            let eager = engine.send_eager(Rank(0), (0, 0), &[], |_, _, _| PostOutcome::Busy).unwrap_or_default();
            let packets = flushed(&mut engine);
            assert!(matches!(packets[0], Packet::Eager { .. }) && eager.is_some());
            let is_last = at + len == LEN;
            for packet in &packets[1..packets.len() - usize::from(is_last)] {
                assert_eq!(*packet, Packet::Data { receive: RequestId(9), at: sent });
                sent += (half - DATA_HEAD as u64).min(at + len - sent);
            }
            assert_eq!(sent, at + len);
            assert_eq!(is_last, packets.last() == Some(&Packet::Written { receive: RequestId(9), status: 0 }));
        }
        assert_eq!((sent, engine.sent(send, Waker::noop())), (LEN, Some(Ok(()))));
    }

    #[test]
    fn a_receiver_asks_for_packets_that_it_may_have() {
        let is_taken = |by, lens: &[u64]| {
            let mut engine = opened(Rank(1), WINDOW, u32::MAX);
            let send =
                engine.send_rendezvous(Rank(0), (0, 0), (SegmentKey { rank: Rank(1), len: LEN, ..key() }, by), 7);
            flushed(&mut engine);
            for len in lens {
                let rtr = Packet::RtrCopy { request: RequestId(send as u32), receive: RequestId(0), len: *len };
                take_in(&mut engine, Rank(0), rtr.encode(0).bytes());
            }
            engine.lost(Rank(0)).is_none()
        };
        for by in [Protocol::Rget, Protocol::Rput, Protocol::Pipeline, Protocol::Copy] {
            assert!(is_taken(by, &[FLIGHT, FLIGHT, 5]) && is_taken(by, &[FLIGHT / 2]), "{by:?}");
            assert!(!is_taken(by, &[FLIGHT + 1]) && !is_taken(by, &[FLIGHT / 2 - 1]), "{by:?}");
            assert!(!is_taken(by, &[FLIGHT, FLIGHT, 6]) && !is_taken(by, &[FLIGHT, FLIGHT, 5, 0]), "{by:?}");
        }
        assert!(!is_taken(Protocol::Offered, &[FLIGHT]), "its slice is not the library's");
    }
}
