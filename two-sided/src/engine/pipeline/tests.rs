//! What a sender that writes does, packet by packet.

use std::task::Waker;

use onesided_fabric::remote_memory::RegionId;

use super::*;
use crate::Protocol;
use crate::engine::matching::Pattern;
use crate::engine::tests::opened;
use crate::engine::{Holding, PostOutcome, Posting, tests, window};

const LEN: u64 = 4 * SHORTEST;

fn key(rank: u32, len: u64) -> SegmentKey {
    SegmentKey { rank: Rank(rank), region: RegionId(1), len, address: 0, rkey: 0 }
}

fn take_in(engine: &mut Engine<u64>, from: u32, packet: Packet) {
    tests::take_in(engine, Rank(from), packet.encode(0).bytes());
}

/// A send to rank 1 that was announced.
fn announced(by: Protocol) -> (Engine<u64>, usize) {
    let mut engine = opened(Rank(0), window(2), u32::MAX);
    let send = engine.send_rendezvous(Rank(1), (0, 0), (key(0, LEN), by), 7);
    engine.flush(|_, _, _| PostOutcome::SENT);
    (engine, send)
}

fn ready(engine: &mut Engine<u64>, send: usize, len: u64) {
    let packet = Packet::Rtr { request: RequestId(send as u32), receive: RequestId(0), key: key(1, len) };
    take_in(engine, 1, packet);
}

/// Its receiver would wait for the FIN until this rank waits again, which may never be.
#[test]
fn a_written_send_is_over_when_its_fin_is_on_its_way() {
    let (mut engine, send) = announced(Protocol::Rput);
    ready(&mut engine, send, LEN);
    assert!(matches!(engine.next_to_move(|_| true), Some(ToMove::Write { .. })));
    engine.posted(send, false);
    engine.flush(|_, _, _| panic!("it is not written yet"));
    engine.written(send, Ok(()));
    engine.flush(|_, _, _| PostOutcome::Busy);
    assert_eq!(engine.sent(send, Waker::noop()), None);
    engine.flush(|_, _, _| PostOutcome::SENT);
    assert_eq!(engine.sent(send, Waker::noop()), Some(Ok(())));
}

/// Where a packet follows the writes before it, the FIN waits for none of them. The send does.
#[test]
fn a_fin_goes_behind_the_last_write_that_is_posted() {
    for fin_first in [true, false] {
        let (mut engine, send) = announced(Protocol::Pipeline);
        ready(&mut engine, send, 2 * SHORTEST);
        ready(&mut engine, send, 2 * SHORTEST);
        let mut fins = 0;
        let mut flush = |engine: &mut Engine<u64>, room| {
            engine.flush(|_, _, _| {
                fins += u32::from(room == PostOutcome::SENT);
                room
            });
            fins
        };
        for posted in 0..2 {
            assert_eq!(flush(&mut engine, PostOutcome::SENT), 0, "{posted} of two writes are posted");
            assert!(matches!(engine.next_to_move(|_| true), Some(ToMove::Write { .. })));
            engine.posted(send, true);
        }
        if fin_first {
            assert_eq!(flush(&mut engine, PostOutcome::SENT), 1);
        }
        engine.written(send, Ok(()));
        engine.written(send, Ok(()));
        assert_eq!(flush(&mut engine, PostOutcome::Busy), u32::from(fin_first));
        assert_eq!(engine.sent(send, Waker::noop()), fin_first.then_some(Ok(())));
        assert_eq!(flush(&mut engine, PostOutcome::SENT), 1);
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
    assert!(is_taken(Protocol::Rput, &[LEN]) && is_taken(Protocol::Pipeline, &[LEN]));
    assert!(is_taken(Protocol::Pipeline, &[3 * SHORTEST + 5, SHORTEST - 5]));
    assert!(!is_taken(Protocol::Rput, &[LEN - 1]) && !is_taken(Protocol::Rput, &[LEN + 1]));
    assert!(!is_taken(Protocol::Pipeline, &[SHORTEST - 1]) && !is_taken(Protocol::Pipeline, &[LEN + 1]));
}

#[test]
fn a_fin_before_the_last_piece_is_a_violation() {
    let mut engine = opened(Rank(1), window(2), u32::MAX);
    let rts = Packet::Rts { context: 0, tag: 0, request: RequestId(3), key: key(0, LEN), by: Protocol::Pipeline };
    take_in(&mut engine, 0, rts);
    let pattern = Pattern { context: 0, source: Some(0), tag: None };
    let Posting::Posted(receive) = engine.receive(pattern) else { panic!("it was announced") };
    let Some(ToMove::Expose(ToExpose { message, .. })) = engine.next_to_move(|_| true) else {
        panic!("memory is to be exposed")
    };
    engine.expose(message, 0, Ok((7, Ok(key(1, SHORTEST)))));
    take_in(&mut engine, 0, Packet::Written { receive: RequestId(message as u32), status: 0 });
    assert_eq!(engine.lost(Rank(0)).map(Fault::kind), Some(FaultKind::Protocol));
    let Some(Ok(held)) = engine.received(receive, Waker::noop()) else { panic!("it is over") };
    assert!(matches!(engine.take(held.message), Holding::Moved(Err(_))));
}
