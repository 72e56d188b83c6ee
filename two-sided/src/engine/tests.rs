//! Single cases of an engine.

use std::collections::VecDeque;

use onesided_fabric::remote_memory::RegionId;

use super::*;
use crate::Protocol;
use crate::engine::matching::Pattern;
use crate::engine::wire::head_of;

pub(super) const WINDOW: u32 = 1024;

/// An engine with a communicator, whose context is 0.
pub(super) fn opened(me: Rank, window: u32, tokens: u32) -> Engine<u64> {
    let mut engine = Engine::new(me, window, tokens);
    engine.open(0);
    engine
}

/// Gives an engine a packet.
pub(super) fn take_in(engine: &mut Engine<u64>, from: Rank, packet: &[u8]) {
    take_in_for(engine, from, packet, &mut Direct::none());
}

fn take_in_for(engine: &mut Engine<u64>, from: Rank, packet: &[u8], direct: &mut Direct<'_>) {
    let read = |offset: usize, into: &mut [u8]| into.copy_from_slice(&packet[offset..][..into.len()]);
    engine.arrived(from, (&head_of(packet), packet.len()), read, direct);
    while engine.has_batch() {
        engine.next_of_batch(direct);
    }
}

pub(super) fn eager(context: u32, tag: u32, bytes: &[u8], grant: u32) -> Vec<u8> {
    [Packet::Eager { context, tag }.encode(grant).bytes(), bytes].concat()
}

pub(super) fn posted(posting: Posting) -> usize {
    let Posting::Posted(receive) = posting else { panic!("there was a message") };
    receive
}

/// The packets that are to be sent.
pub(super) fn flushed(engine: &mut Engine<u64>) -> Vec<Packet> {
    let mut packets = Vec::new();
    engine.flush(|_, head, _| {
        packets.push(Packet::decode(head).unwrap().0);
        PostOutcome::SENT
    });
    packets
}

/// A receiver that has a message of rank 1's, whose request there is 3, to expose; its receive, and the message.
pub(super) fn announced(by: Protocol, len: u64) -> (Engine<u64>, usize, usize) {
    let mut engine = opened(Rank(0), WINDOW, u32::MAX);
    let key = SegmentKey { rank: Rank(1), len, ..key() };
    let rts = Packet::Rts { context: 0, tag: 0, request: RequestId(3), key, by };
    take_in(&mut engine, Rank(1), rts.encode(0).bytes());
    let receive = posted(engine.receive(Pattern { context: 0, source: Some(1), tag: None }));
    match engine.next_to_move(|_| true) {
        Some(ToMove::Expose(expose)) if (expose.by, expose.len) == (by, len) => (engine, receive, expose.message),
        _ => panic!("it is to be exposed"),
    }
}

pub(super) fn key() -> SegmentKey {
    SegmentKey { rank: Rank(0), region: RegionId(1), len: 100, address: 0, rkey: 0 }
}

/// A dump tells the ages of what an earlier one has seen, and not those of what came in its place.
#[test]
fn a_dump_says_since_when() {
    const SECOND: u64 = 1_000_000_000;
    let mut engine = opened(Rank(0), WINDOW, 1);
    let key = SegmentKey { rank: Rank(0), region: RegionId(1), len: 9_000, address: 0, rkey: 0 };
    let pattern = Pattern { context: 0, source: Some(1), tag: Some(8) };
    let receive = posted(engine.receive(pattern));
    take_in(&mut engine, Rank(2), &eager(0, 7, &[1, 2, 3], 0));
    engine.send_rendezvous(Rank(3), (0, 5), (key, Protocol::Rget), 0);
    assert_eq!(
        engine.describe(10 * SECOND),
        [
            "1 receive posted: with tag 8 from rank 1",
            "1 message without a receive: 3 bytes with tag 7 from rank 2",
            "1 send under way: to rank 3 (queued)",
        ]
    );
    assert_eq!(
        engine.describe(13 * SECOND),
        [
            "1 receive posted: with tag 8 from rank 1 since 3 s",
            "1 message without a receive: 3 bytes with tag 7 from rank 2 since 3 s",
            "1 send under way: to rank 3 (queued) since 3 s",
            "2 awaited ranks that send no message: rank 1 since 3 s; rank 3 since 3 s",
        ]
    );
    // Another receive, and a message of one of the ranks, which is not the awaited one.
    engine.cancel(receive);
    assert_eq!(posted(engine.receive(pattern)), receive);
    take_in(&mut engine, Rank(1), &eager(0, 9, &[], 0));
    let mut last = engine.describe(15 * SECOND);
    last.remove(1); // the messages, in no order
    assert_eq!(
        last,
        [
            "1 receive posted: with tag 8 from rank 1",
            "1 send under way: to rank 3 (queued) since 5 s",
            "1 awaited rank that sends no message: rank 3 since 5 s",
        ]
    );
}

/// A peer that takes nothing in gets no credit, whatever is queued for it.
#[test]
fn packets_for_a_peer_that_takes_none_are_bounded() {
    let mut engine = opened(Rank(0), WINDOW, u32::MAX);
    let key = SegmentKey { rank: Rank(1), ..key() };
    let rts = Packet::Rts { context: 1, tag: 0, request: RequestId(0), key, by: Protocol::Rget }.encode(0);
    for _ in 0..WINDOW {
        assert!(engine.lost(Rank(1)).is_none());
        take_in(&mut engine, Rank(1), rts.bytes());
        engine.flush(|_, _, _| PostOutcome::Busy);
    }
    take_in(&mut engine, Rank(1), rts.bytes());
    assert_eq!(engine.lost(Rank(1)).map(Fault::kind), Some(FaultKind::Protocol));
}

/// What a thread waits for that polls again by itself leaves nothing to be done without the lock.
#[test]
fn a_thread_that_polls_by_itself_leaves_no_waker() {
    let mut engine = opened(Rank(0), WINDOW, u32::MAX);
    let mut into = [0; 8];
    for (waker, is_kept) in [(NOBODY, false), (&Waker::from(Arc::new(Other)), true)] {
        let receive = posted(engine.receive(Pattern { context: 0, source: Some(1), tag: Some(5) }));
        assert!(engine.received(receive, waker).is_none());
        let mut direct = Direct::posted(receive, Some(&mut into));
        take_in_for(&mut engine, Rank(1), &eager(0, 5, &[5; 8], 0), &mut direct);
        assert!(direct.landed.is_some());
        assert_eq!(engine.has_left_over(), is_kept);
    }
}

struct Other;

impl std::task::Wake for Other {
    fn wake(self: Arc<Self>) {}
}

/// A receive that is posted only if its message has not come takes none that another receive asks
/// for, and takes in none while an older receive is posted.
#[test]
fn a_receive_that_looks_on_takes_its_own() {
    let mut engine = opened(Rank(0), WINDOW, u32::MAX);
    let pattern = |tag| Pattern { context: 0, source: Some(1), tag };
    let mut packets: VecDeque<_> = [6, 5, 5].iter().map(|tag| eager(0, *tag, &[*tag as u8; 8], 0)).collect();
    let (mut into, mut later) = ([0; 8], [0; 8]);
    let mut take = |engine: &mut Engine<u64>, direct: &mut Direct<'_>| {
        take_in_for(engine, Rank(1), &packets.pop_front().unwrap(), direct);
        true
    };
    let mut looking = Direct::into(&mut into);
    let posting = engine.receive_into(pattern(Some(5)), &mut looking, &mut take);
    let Posting::Landed(landed) = posting else { panic!("it is taken in: {posting:?}") };
    assert_eq!((landed.envelope.tag, landed.len), (5, 8));
    assert_eq!(into, [5; 8]);
    let Posting::Held(unexpected) = engine.receive(pattern(None)) else { panic!("it was taken in") };
    assert_eq!(unexpected.envelope.tag, 6);

    let older = posted(engine.receive(pattern(None)));
    let younger = posted(engine.receive_into(pattern(Some(5)), &mut Direct::into(&mut later), &mut take));
    let mut looking = Direct::posted(younger, Some(&mut later));
    take(&mut engine, &mut looking);
    assert!(looking.landed.is_none());
    assert_eq!(engine.received(older, Waker::noop()).unwrap().unwrap().envelope.tag, 5);
}

/// A peer that ignores its credit is cut off.
#[test]
fn unexpected_messages_are_bounded() {
    let packet = eager(0, 0, &[1; 64], WINDOW);
    let mut receiver = opened(Rank(1), WINDOW, u32::MAX);
    for _ in 0..WINDOW / 2 {
        take_in(&mut receiver, Rank(0), &packet);
        assert!(receiver.lost(Rank(0)).is_none());
    }
    take_in(&mut receiver, Rank(0), &packet);
    assert_eq!(receiver.lost(Rank(0)).map(Fault::kind), Some(FaultKind::Protocol));
}

/// The memory of an announced message stays until its FIN, which counts once and from its receiver.
#[test]
fn memory_comes_back_at_the_fin() {
    let mut engine = opened(Rank(0), WINDOW, u32::MAX);
    let key = key();
    let send = engine.send_rendezvous(Rank(1), (0, 0), (key, Protocol::Rget), 4711);
    engine.flush(|_, _, _| PostOutcome::SENT);
    engine.detach(send);
    assert!(engine.take_idle().is_empty());
    let fin = Packet::Fin { request: RequestId(send as u32), status: 0 }.encode(WINDOW);
    take_in(&mut engine, Rank(2), fin.bytes());
    assert!(engine.take_idle().is_empty() && engine.lost(Rank(2)).is_some());
    take_in(&mut engine, Rank(1), fin.bytes());
    assert_eq!(engine.take_idle(), [4711]);
    assert!(engine.lost(Rank(1)).is_none());
    take_in(&mut engine, Rank(1), fin.bytes());
    assert!(engine.take_idle().is_empty() && engine.lost(Rank(1)).is_some());
}

/// Announced messages are read in their order, and not more of them at once than there are tokens.
/// One that cannot be read now goes behind the others.
#[test]
fn reads_wait_for_a_token_in_order() {
    let mut engine = opened(Rank(0), WINDOW, 2);
    for tag in 0..4 {
        posted(engine.receive(Pattern { context: 0, source: Some(1), tag: Some(tag) }));
        let key = SegmentKey { rank: Rank(1), address: u64::from(tag), ..key() };
        let rts = Packet::Rts { context: 0, tag, request: RequestId(tag), key, by: Protocol::Rget };
        take_in(&mut engine, Rank(1), rts.encode(0).bytes());
    }
    let next = |engine: &mut Engine<u64>| match engine.next_to_move(|_| true) {
        Some(ToMove::Read(next)) => Some(next.message),
        next => next.map(|next| panic!("{next:?}")),
    };
    assert_eq!([0; 3].map(|_| next(&mut engine)), [Some(0), Some(1), None]);
    assert!(!engine.has_to_move());
    engine.read_later(1);
    assert_eq!([0; 2].map(|_| next(&mut engine)), [Some(2), None]);
    engine.read(0, Ok(Here::Memory(0)));
    engine.read(2, Err(Fault::of(FaultKind::PeerDied, Rank(1))));
    assert_eq!([0; 3].map(|_| next(&mut engine)), [Some(3), Some(1), None]);
}

/// After a send has failed, this rank still receives what the peer had sent before.
#[test]
fn what_a_peer_sent_before_it_died_is_received() {
    let mut engine = opened(Rank(0), WINDOW, u32::MAX);
    let key = key();
    let read = engine.send_rendezvous(Rank(1), (0, 0), (key, Protocol::Rget), 1);
    engine.flush(|_, _, _| PostOutcome::SENT);
    let unsent = engine.send_rendezvous(Rank(1), (0, 0), (key, Protocol::Rget), 2);
    let fault = Fault::of(FaultKind::PeerDied, Rank(1));
    engine.flush(|_, _, _| PostOutcome::Failed(fault));
    assert_eq!([read, unsent].map(|send| engine.sent(send, Waker::noop())), [None, Some(Err(fault))]);
    let receive = || Pattern { context: 0, source: Some(1), tag: None };
    let (first, second) = (posted(engine.receive(receive())), posted(engine.receive(receive())));
    take_in(&mut engine, Rank(1), &eager(0, 5, b"before", 0));
    take_in(&mut engine, Rank(1), Packet::Fin { request: RequestId(read as u32), status: 0 }.encode(0).bytes());
    engine.lose_unreachable();
    assert!(engine.received(first, Waker::noop()).unwrap().is_ok());
    assert_eq!(engine.received(second, Waker::noop()).unwrap().unwrap_err(), fault);
    assert_eq!(engine.sent(read, Waker::noop()), Some(Ok(())));
    [read, unsent].into_iter().for_each(|send| engine.detach(send));
    assert_eq!(engine.take_idle().len(), 2);
}

/// All that can be sent arrives.
fn carry(from: &mut Engine<u64>, to: &mut Engine<u64>) {
    let (source, mut wire) = (from.me, Vec::new());
    from.flush(|_, head, body| {
        wire.push([head, body].concat());
        PostOutcome::SENT
    });
    wire.iter().for_each(|packet| take_in(to, source, packet));
}

/// A sender asks again if the credit that it got is too little.
#[test]
fn a_sender_asks_until_it_has_enough_credit() {
    let [mut sender, mut receiver] = [0, 1].map(|rank| opened(Rank(rank), WINDOW, u32::MAX));
    let kept = WINDOW / 2 + 10;
    for number in 0..=WINDOW {
        let (tag, len) = (u32::from(number >= kept), if number == WINDOW { 100 } else { 0 });
        assert!(matches!(
            sender.send_eager(Rank(1), (0, tag), &[0; 100][..len], |_, _, _| PostOutcome::Busy),
            Ok(Some(_))
        ));
    }
    carry(&mut sender, &mut receiver);
    for number in kept..=WINDOW {
        let next = receiver.match_probe(Pattern { context: 0, source: None, tag: Some(1) }, Waker::noop());
        assert_eq!(next.map(|next| next.len), Some(if number == WINDOW { 100 } else { 0 }), "message {number}");
        carry(&mut receiver, &mut sender);
        carry(&mut sender, &mut receiver);
    }
}
