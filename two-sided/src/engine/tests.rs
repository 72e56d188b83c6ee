//! Engines that are joined by queues, under random programs and random delays, against lists.

use std::collections::{HashMap, VecDeque};

use onesided_fabric::remote_memory::RegionId;
use proptest::prelude::*;

use super::*;
use crate::matching::Pattern;

const RANKS: u32 = 3;
const WINDOW: u32 = 1024;

/// Gives an engine a packet.
fn take_in(engine: &mut Engine<u64>, from: Rank, packet: &[u8]) {
    take_in_for(engine, from, packet, &mut Direct::none());
}

fn take_in_for(engine: &mut Engine<u64>, from: Rank, packet: &[u8], direct: &mut Direct<'_>) {
    let head = &packet[..packet.len().min(HEAD_MAX)];
    let read = |offset: usize, into: &mut [u8]| into.copy_from_slice(&packet[offset..][..into.len()]);
    engine.arrived(from, (head, packet.len()), read, direct);
}

fn eager(context: u32, tag: u32, bytes: &[u8], grant: u32) -> Vec<u8> {
    [Packet::Eager { context, tag }.encode(grant).bytes(), bytes].concat()
}

#[derive(Clone, Copy, Debug)]
enum Step {
    Send {
        from: u32,
        to: u32,
        tag: u32,
        /// In words, and whether there is room at once; `None`: a rendezvous.
        eager: Option<(usize, bool)>,
    },
    Receive {
        at: u32,
        source: Option<u32>,
        tag: Option<u32>,
        /// Whose packets it takes in while there is no message.
        looks_at: Option<u32>,
        /// What is in its memory then.
        gives_back: bool,
    },
    /// The next packet of a pair arrives, if there is one.
    Arrive { from: u32, to: u32 },
    /// Flushes, with room for this many packets.
    Flush { at: u32, room: u8 },
    /// Starts to read a message whose receive is not polled.
    BeginRead { at: u32 },
    /// Ends such a read.
    EndRead { at: u32 },
    /// Polls all receives and sends.
    Poll { at: u32 },
    /// Drops one of the receives, whatever has become of it.
    Drop { at: u32, which: prop::sample::Index },
}

/// A rank, with what it knows of its requests.
struct Host {
    engine: Engine<u64>,
    sends: Vec<usize>,
    receives: Vec<usize>,
    /// Receives whose messages are being read, and their numbers.
    reads: Vec<(usize, u64)>,
    /// Numbers of the messages received.
    got: Vec<u64>,
}

impl Host {
    fn receive(&mut self, pattern: Pattern, (from, wire): (Rank, &mut VecDeque<Vec<u8>>), gives_back: bool) {
        let mut into = [0; 1000];
        let posting = self.engine.receive_into(pattern, &mut into, |engine, direct| match wire.pop_front() {
            Some(packet) => {
                take_in_for(engine, from, &packet, direct);
                true
            }
            None => false,
        });
        match posting {
            Posting::Posted(receive) => self.receives.push(receive),
            Posting::Taken(matched) => {
                self.got.push(number(&matched.body));
                self.engine.deliver(&matched, Ok(()));
            }
            Posting::Landed(landed) => {
                assert!(pattern.fits(landed.envelope), "{pattern:?} got {:?}", landed.envelope);
                let bytes = &into[..landed.len as usize];
                if gives_back {
                    self.engine.give_back_landed(landed, bytes);
                } else {
                    self.got.push(number_of(bytes));
                }
            }
        }
    }
}

fn posted<S>(posting: Posting<S>) -> usize {
    let Posting::Posted(receive) = posting else { panic!("there was a message") };
    receive
}

/// Everything: hosts, packets in flight, and the number of the next message.
struct Net {
    hosts: Vec<Host>,
    wires: HashMap<(u32, u32), VecDeque<Vec<u8>>>,
    next: u64,
    announced: usize,
    waker: &'static Waker,
}

fn number_of(bytes: &[u8]) -> u64 {
    let (first, rest) = bytes.split_first_chunk().unwrap();
    assert!(rest.chunks(8).all(|word| word == first), "torn: {bytes:?}");
    u64::from_le_bytes(*first)
}

/// The number that an eager message has as its bytes, and an announced one as its address.
fn number(body: &Body<u64>) -> u64 {
    match body {
        Body::Eager(bytes) => number_of(bytes),
        Body::Announced { key, .. } => key.address,
        Body::Read { memory, .. } => *memory.as_ref().unwrap(),
    }
}

impl Net {
    fn new() -> Self {
        let host = |rank| Host {
            engine: Engine::new(Rank(rank), window(RANKS)),
            sends: vec![],
            receives: vec![],
            reads: vec![],
            got: vec![],
        };
        Self {
            hosts: (0..RANKS).map(host).collect(),
            wires: HashMap::new(),
            next: 0,
            announced: 0,
            waker: Waker::noop(),
        }
    }

    fn host(&mut self, rank: u32) -> &mut Host {
        &mut self.hosts[rank as usize]
    }

    fn flush(&mut self, at: u32, mut room: u32) {
        let Self { hosts, wires, .. } = self;
        hosts[at as usize].engine.flush(|to, head, body| {
            if room == 0 {
                return Posted::Busy;
            }
            room -= 1;
            wires.entry((at, to.0)).or_default().push_back([head, body].concat());
            Posted::Sent
        });
    }

    fn arrive(&mut self, from: u32, to: u32) -> bool {
        let packet = self.wires.get_mut(&(from, to)).and_then(VecDeque::pop_front);
        if let Some(packet) = &packet {
            take_in(&mut self.host(to).engine, Rank(from), packet);
        }
        packet.is_some()
    }

    fn poll(&mut self, at: u32) {
        let waker = self.waker;
        let Host { engine, sends, receives, got, .. } = self.host(at);
        receives.retain(|receive| match engine.received(*receive, waker) {
            Some(received) => {
                let matched = received.unwrap();
                got.push(number(&matched.body));
                engine.deliver(&matched, Ok(()));
                false
            }
            None => true,
        });
        sends.retain(|send| match engine.sent(*send, waker) {
            Some(outcome) => {
                outcome.unwrap();
                engine.detach(*send);
                false
            }
            None => true,
        });
    }

    fn end_read(&mut self, at: u32) {
        let Host { engine, reads, .. } = self.host(at);
        if let Some((receive, number)) = reads.pop() {
            engine.read(receive, Ok(Here::Memory(number)));
        }
    }

    fn step(&mut self, step: Step) {
        match step {
            Step::Send { from, to, tag, eager } => {
                let number = self.next;
                self.next += 1;
                self.announced += usize::from(eager.is_none() && from != to);
                let Self { hosts, wires, .. } = self;
                let Host { engine, sends, .. } = &mut hosts[from as usize];
                let key = SegmentKey { rank: Rank(from), region: RegionId(1), len: 100, address: number, rkey: 0 };
                sends.extend(match eager {
                    Some((len, has_room)) => {
                        let bytes = number.to_le_bytes().repeat(len);
                        engine.send_eager(Rank(to), (0, tag), &bytes, |to, head, body| {
                            if !has_room {
                                return Posted::Busy;
                            }
                            wires.entry((from, to.0)).or_default().push_back([head, body].concat());
                            Posted::Sent
                        })
                    }
                    None => Some(engine.send_rendezvous(Rank(to), (0, tag), (key, number.is_multiple_of(3)), number)),
                });
            }
            Step::Receive { at, source, tag, looks_at, gives_back } => {
                let (from, nothing) = (looks_at.unwrap_or(at), &mut VecDeque::new());
                let wire = if looks_at.is_some() { self.wires.entry((from, at)).or_default() } else { nothing };
                self.hosts[at as usize].receive(Pattern { context: 0, source, tag }, (Rank(from), wire), gives_back);
            }
            Step::Arrive { from, to } => {
                self.arrive(from, to);
            }
            Step::Flush { at, room } => self.flush(at, room.into()),
            Step::Poll { at } => self.poll(at),
            Step::BeginRead { at } => {
                let Host { engine, reads, .. } = self.host(at);
                reads.extend(
                    engine
                        .next_to_read(|key| key.address.is_multiple_of(2))
                        .map(|(receive, key, _)| (receive, key.address)),
                );
            }
            Step::EndRead { at } => self.end_read(at),
            Step::Drop { at, which } => {
                let Host { engine, receives, .. } = self.host(at);
                if !receives.is_empty() {
                    engine.cancel(receives.swap_remove(which.index(receives.len())));
                }
            }
        }
    }

    /// Lets everything arrive, receives what no receive has fitted, and polls all.
    fn settle(&mut self) {
        loop {
            (0..RANKS).for_each(|at| self.flush(at, u32::MAX));
            let pairs = (0..RANKS).flat_map(|from| (0..RANKS).map(move |to| (from, to)));
            let any = pairs.fold(0, |any, (from, to)| any + u32::from(self.arrive(from, to)));
            while let Some(at) = (0..RANKS).find(|at| !self.hosts[*at as usize].reads.is_empty()) {
                self.end_read(at);
            }
            (0..RANKS).for_each(|at| self.poll(at));
            let waits = |host: &Host| !host.sends.is_empty() || host.engine.matcher.lens().1 > 0;
            if any == 0 && !self.hosts.iter().any(waits) && !self.hosts.iter().any(|host| host.engine.is_busy()) {
                return;
            }
            for host in &mut self.hosts {
                for _ in 0..host.engine.matcher.lens().1 {
                    host.receive(
                        Pattern { context: 0, source: None, tag: None },
                        (Rank(0), &mut VecDeque::new()),
                        false,
                    );
                }
            }
        }
    }
}

fn steps() -> impl Strategy<Value = Step> {
    let rank = || 0..RANKS;
    prop_oneof![
        4 => (rank(), rank(), 0..2_u32, prop::option::of((1..80_usize, any::<bool>())))
            .prop_map(|(from, to, tag, eager)| Step::Send { from, to, tag, eager }),
        3 => (rank(), prop::option::of(rank()), prop::option::of(0..2_u32), prop::option::of(rank()), any::<bool>())
            .prop_map(|(at, source, tag, looks_at, gives_back)| Step::Receive { at, source, tag, looks_at, gives_back }),
        6 => (rank(), rank()).prop_map(|(from, to)| Step::Arrive { from, to }),
        4 => (rank(), 0..4_u8).prop_map(|(at, room)| Step::Flush { at, room }),
        2 => rank().prop_map(|at| Step::Poll { at }),
        2 => rank().prop_map(|at| Step::BeginRead { at }),
        2 => rank().prop_map(|at| Step::EndRead { at }),
        1 => (rank(), any::<prop::sample::Index>()).prop_map(|(at, which)| Step::Drop { at, which }),
    ]
}

proptest! {
    /// Every message is received once and every send ends, whatever is late, dropped or without
    /// room.
    #[test]
    fn nothing_is_lost(program in prop::collection::vec(steps(), 0..300)) {
        let mut net = Net::new();
        program.into_iter().for_each(|step| net.step(step));
        net.settle();
        let mut got: Vec<_> = net.hosts.iter().flat_map(|host| host.got.iter().copied()).collect();
        got.sort_unstable();
        prop_assert_eq!(got, (0..net.next).collect::<Vec<_>>());
        // The memory of each message to another rank comes back once.
        let mut idle: Vec<_> = net.hosts.iter_mut().flat_map(|host| host.engine.take_idle()).collect();
        prop_assert_eq!(idle.len(), net.announced);
        idle.sort_unstable();
        idle.dedup();
        prop_assert_eq!(idle.len(), net.announced);
        for host in &net.hosts {
            prop_assert!(host.engine.sends.is_empty() && host.engine.peers.iter().all(|peer| peer.lost.is_none()));
        }
    }

    /// Any packets, from any rank: no panic, and what is no protocol ends the peer.
    #[test]
    fn hostile_packets_end_the_peer_alone(
        packets in prop::collection::vec((0..2_u32, prop::collection::vec(any::<u8>(), 0..80)), 0..100),
        valid in prop::collection::vec((1..5_u8, any::<u32>(), prop::collection::vec(any::<u8>(), 0..90)), 0..100),
    ) {
        let mut engine = Engine::<u64>::new(Rank(0), WINDOW);
        let receive = posted(engine.receive(Pattern { context: 1, source: Some(2), tag: Some(3) }));
        for (from, packet) in packets {
            take_in(&mut engine, Rank(1 + from * 8), &packet);
        }
        for (kind, grant, rest) in valid {
            let packet = [&[kind, 0, 0, 0], &grant.to_le_bytes()[..], &rest].concat();
            take_in(&mut engine, Rank(1), &packet);
        }
        take_in(&mut engine, Rank(2), &eager(1, 3, b"from the other", 0));
        let received = engine.received(receive, Waker::noop()).unwrap().unwrap();
        prop_assert_eq!(received.body.len(), 14);
    }
}

/// A receive that is posted only if its message has not come takes none that an older one gets, and
/// none that another receive asks for.
#[test]
fn a_receive_that_looks_on_is_the_youngest() {
    let mut engine = Engine::<u64>::new(Rank(0), WINDOW);
    let pattern = |tag| Pattern { context: 0, source: Some(1), tag };
    let older = posted(engine.receive(pattern(None)));
    let mut packets: VecDeque<_> = [5, 6, 5].iter().map(|tag| eager(0, *tag, &[*tag as u8; 8], 0)).collect();
    let mut into = [0; 8];
    let posting = engine.receive_into(pattern(Some(5)), &mut into, |engine, direct| {
        take_in_for(engine, Rank(1), &packets.pop_front().unwrap(), direct);
        true
    });
    assert!(
        matches!(posting, Posting::Landed(Landed { envelope: Envelope { tag: 5, .. }, len: 8, .. })),
        "{posting:?}"
    );
    assert_eq!((into, packets.len()), ([5; 8], 0));
    assert_eq!(engine.received(older, Waker::noop()).unwrap().unwrap().envelope.tag, 5);
    let Posting::Taken(unexpected) = engine.receive(pattern(None)) else { panic!("it was taken in") };
    assert_eq!(unexpected.envelope.tag, 6);
}

/// A peer that ignores its credit is cut off; one that keeps it is never.
#[test]
fn unexpected_messages_are_bounded() {
    let (mut sender, mut receiver) = (Engine::<u64>::new(Rank(0), WINDOW), Engine::<u64>::new(Rank(1), WINDOW));
    let mut wire = VecDeque::new();
    for number in 0..100_000_u64 {
        let send = sender.send_eager(Rank(1), (0, 0), &number.to_le_bytes(), |_, _, _| Posted::Busy);
        sender.detach(send.unwrap());
    }
    let everything = Pattern { context: 0, source: None, tag: None };
    let mut expected = 0;
    loop {
        sender.flush(|_, head, body| {
            wire.push_back([head, body].concat());
            Posted::Sent
        });
        wire.drain(..).for_each(|packet| take_in(&mut receiver, Rank(0), &packet));
        assert!(receiver.matcher.lens().1 <= WINDOW as usize);
        let before = expected;
        while let Some(matched) = receiver.match_probe(everything, Waker::noop()) {
            assert_eq!(number(&matched.body), expected);
            expected += 1;
            receiver.deliver(&matched, Ok(()));
        }
        assert!(expected > before, "no credit came back");
        if expected == 100_000 {
            break;
        }
        let mut back = Vec::new();
        receiver.flush(|_, head, _| {
            back.push(head.to_vec());
            Posted::Sent
        });
        back.iter().for_each(|packet| take_in(&mut sender, Rank(1), packet));
    }
    let packet = eager(0, 0, &[1; 64], WINDOW);
    let mut receiver = Engine::<u64>::new(Rank(1), WINDOW);
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
    let mut engine = Engine::<u64>::new(Rank(0), WINDOW);
    let key = SegmentKey { rank: Rank(0), region: RegionId(1), len: 100, address: 0, rkey: 0 };
    let send = engine.send_rendezvous(Rank(1), (0, 0), (key, false), 4711);
    engine.flush(|_, _, _| Posted::Sent);
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

/// A lost peer ends its sends and its receives, and no others.
#[test]
fn a_lost_peer_ends_what_needs_it() {
    let mut engine = Engine::<u64>::new(Rank(0), WINDOW);
    let pattern = |source| Pattern { context: 0, source, tag: None };
    take_in(&mut engine, Rank(1), &eager(0, 5, b"before", 0));
    let (exact, any) = (posted(engine.receive(pattern(Some(2)))), posted(engine.receive(pattern(Some(3)))));
    let sends = [1, 2].map(|to| engine.send_eager(Rank(to), (0, 0), b"x", |_, _, _| Posted::Busy).unwrap());
    let fault = Fault::of(FaultKind::PeerDied, Rank(2));
    engine.lose(Rank(2), fault);
    engine.lose(Rank(1), fault);
    assert!(matches!(engine.received(exact, Waker::noop()), Some(Err(found)) if found == fault));
    assert!(engine.received(any, Waker::noop()).is_none());
    assert!(sends.iter().all(|send| engine.sent(*send, Waker::noop()) == Some(Err(fault))));
    // What it had sent can be received, and nothing else.
    let last = engine.receive(pattern(Some(1)));
    assert!(matches!(last, Posting::Taken(matched) if matched.body.len() == 6));
    let none = posted(engine.receive(pattern(Some(1))));
    assert!(matches!(engine.received(none, Waker::noop()), Some(Err(found)) if found == fault));
}

/// After a send has failed, this rank still receives what the peer had sent before.
#[test]
fn what_a_peer_sent_before_it_died_is_received() {
    let mut engine = Engine::<u64>::new(Rank(0), WINDOW);
    let key = SegmentKey { rank: Rank(0), region: RegionId(1), len: 100, address: 0, rkey: 0 };
    let read = engine.send_rendezvous(Rank(1), (0, 0), (key, false), 1);
    engine.flush(|_, _, _| Posted::Sent);
    let unsent = engine.send_rendezvous(Rank(1), (0, 0), (key, false), 2);
    let fault = Fault::of(FaultKind::PeerDied, Rank(1));
    engine.flush(|_, _, _| Posted::Failed(fault));
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
