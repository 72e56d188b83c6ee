//! The protocol machine on a simulated network that loses, doubles and reorders datagrams.

mod hostile;
mod network;

use std::task::Poll;

use onesided_remote_memory::{Fault, FaultKind, Rank};

use self::network::{Breaks, Network, Weather};
use super::receiver::{Arrived, Receiver};
use super::window::{FIRST, LARGEST, SMALLEST};
use crate::Channel;

const CALM: Weather = Weather { loss: 0, doubles: 0, jitter: 0, breaks: Breaks::NotKept };
const ROUGH: Weather = Weather { loss: 10, doubles: 10, jitter: 200_000, ..CALM };

/// Every rank sends this many packets to every other one, and receives as many.
fn all_to_all(ranks: u32, each: u32, weather: Weather, seed: u64) -> Network {
    all_to_all_by(Network::send, ranks, each, 0, weather, seed)
}

type Send = fn(&mut Network, u32, u32, &[u8]) -> Poll<Result<(), Fault>>;

fn all_to_all_by(send: Send, ranks: u32, each: u32, first: u32, weather: Weather, seed: u64) -> Network {
    let mut network = Network::new(ranks, first, weather, seed);
    let mut sent = vec![vec![0; ranks as usize]; ranks as usize];
    let mut next = sent.clone();
    loop {
        for from in 0..ranks {
            for to in (0..ranks).filter(|to| *to != from) {
                let number = &mut sent[from as usize][to as usize];
                while *number < each {
                    match send(&mut network, from, to, &numbered(from, to, *number)) {
                        Poll::Ready(sent) => sent.unwrap(),
                        Poll::Pending => break,
                    }
                    *number += 1;
                }
            }
            while let Some((sender, packet)) = network.take(from) {
                let number = &mut next[from as usize][sender.index()];
                assert_eq!(packet[..], numbered(sender.0, from, *number), "seed {seed}");
                *number += 1;
            }
        }
        if next.iter().flatten().filter(|next| **next == each).count() as u32 == ranks * (ranks - 1) {
            break;
        }
        assert!(network.step(), "seed {seed}: nothing is left to happen at {} ns: {next:?}", network.now);
        assert!(network.now < 60_000_000_000, "seed {seed}: a packet does not come: {next:?}");
    }
    while network.step() {} // the acknowledgements
    for rank in 0..ranks {
        assert!(network.channels[rank as usize].is_idle(), "seed {seed}: rank {rank}");
        assert_eq!(network.take(rank), None, "seed {seed}: a packet came twice");
    }
    network
}

fn numbered(from: u32, to: u32, number: u32) -> Vec<u8> {
    let mut bytes = [from, to, number].map(u32::to_le_bytes).concat();
    bytes.resize(12 + number as usize % 50, number as u8);
    bytes
}

#[test]
fn every_packet_arrives_once_and_in_order() {
    for loss in [0, 1, 10] {
        for (doubles, jitter) in [(0, 0), (5, 0), (0, 100_000), (5, 100_000)] {
            for seed in 0..5 {
                let network = all_to_all(3, 600, Weather { loss, doubles, jitter, ..CALM }, seed);
                let counts = network.channels[0].counts();
                assert_eq!((counts.sent, counts.received, counts.malformed), (1200, 1200, 0));
                assert!((loss > 0) <= (counts.resent > 0), "{counts:?}");
            }
        }
    }
}

#[test]
fn a_calm_network_carries_no_packet_twice() {
    let network = all_to_all(2, 5_000, CALM, 0);
    let counts = network.channels[0].counts();
    assert_eq!((counts.resent, counts.duplicates, counts.beyond), (0, 0, 0));
    assert!(counts.bare < counts.sent / 4, "acknowledgements ride along: {counts:?}");
}

/// Packets of a pair on two channels are one sequence, and its numbers wrap.
#[test]
fn packets_on_two_channels_arrive_once_and_in_order() {
    for weather in [CALM, Weather { jitter: 100_000, ..CALM }, Weather { loss: 1, ..CALM }, ROUGH] {
        for seed in 0..10 {
            let first = u32::MAX - 100 * seed as u32;
            let network = all_to_all_by(Network::send_by_either, 3, 600, first, weather, seed);
            let counts = network.channels[0].counts();
            assert_eq!((counts.sent, counts.received, counts.malformed), (1200, 1200, 0));
            assert!((weather.loss > 0) <= (counts.resent > 0), "{counts:?}");
        }
    }
}

/// The same with a fast path of few slots, none of which is filled again before it is read, whatever becomes of the
/// connection.
#[test]
fn packets_by_a_fast_path_too_arrive_once_and_in_order() {
    for breaks in [Breaks::NotKept, Breaks::OneIn(u64::MAX), Breaks::OneIn(50)] {
        for weather in [CALM, Weather { jitter: 100_000, ..CALM }, Weather { loss: 1, ..CALM }, ROUGH] {
            for seed in 0..10 {
                let first = u32::MAX - 100 * seed as u32;
                let weather = Weather { breaks, ..weather };
                let network = all_to_all_by(Network::send_by_any, 3, 600, first, weather, seed);
                let counts = network.channels[0].counts();
                assert_eq!((counts.sent, counts.received, counts.malformed), (1200, 1200, 0));
            }
        }
    }
    for step in 0..400 {
        all_to_all_by(Network::send_by_any, 2, 60, 0, Weather { breaks: Breaks::At(step), ..CALM }, step);
    }
}

/// A stream by a fast path goes on when few of its packets have been acknowledged by datagrams; answers acknowledge
/// without any. There is none for what comes long after the last packet of the connection.
#[test]
fn slots_are_free_when_their_packets_are_acknowledged() {
    const SLOTS: u32 = 32;
    for answers in [true, false] {
        let (mut network, [sender, receiver]) = (Network::new(2, 0, CALM, 0), [Rank(0), Rank(1)]);
        let apart = |network: &mut Network, [from, to]: [Rank; 2], channel| {
            let before = network.channels[from.index()].begin_apart(network.now, to).map(Result::unwrap);
            let Poll::Ready(before) = before else { panic!("a place in the sequence") };
            network.channels[from.index()].left_apart(network.now, (to, channel), (&[], &[]), false);
            let packet = (channel, Box::default());
            network.come_apart([from, to], before, packet);
            assert!(network.take(to.0).is_some());
        };
        assert!(!network.channels[0].has_slot(network.now, receiver, SLOTS), "nobody looks");
        apart(&mut network, [sender, receiver], Channel::Connection);
        let mut by_ring = 0;
        for _ in 0..400 {
            if network.channels[0].has_slot(network.now, receiver, SLOTS) {
                by_ring += 1;
                apart(&mut network, [sender, receiver], Channel::FastPath);
            }
            if answers {
                apart(&mut network, [receiver, sender], Channel::Connection);
            }
            while network.channels[1].due() <= network.now + 1 && network.step() {}
            network.now += 2_000;
        }
        assert!(by_ring >= 390, "{by_ring} of 400, answers {answers}");
        let bare = network.channels[1].counts().bare;
        let of_room = 400 / (LARGEST as u64 / 2);
        assert!(bare <= if answers { of_room } else { 400 / 8 + of_room }, "{bare} datagrams");
        network.now += 1_000_000;
        assert!(!network.channels[0].has_slot(network.now, receiver, SLOTS), "nobody looks any more");
    }
}

/// Packets over a connection that breaks come by datagrams, once and in order, whenever that is, and others
/// over the next connection.
#[test]
fn packets_survive_connections_that_break() {
    for step in 0..400 {
        all_to_all_by(Network::send_by_either, 2, 60, 0, Weather { breaks: Breaks::At(step), ..CALM }, step);
    }
    for weather in [CALM, Weather { jitter: 100_000, ..CALM }, Weather { loss: 1, ..CALM }, ROUGH] {
        let mut duplicates = 0;
        for seed in 0..5 {
            let (breaks, first) = (Breaks::OneIn(20), u32::MAX - 100 * seed as u32);
            let network = all_to_all_by(Network::send_by_either, 3, 600, first, Weather { breaks, ..weather }, seed);
            let counts = network.channels[0].counts();
            assert_eq!((counts.sent, counts.received, counts.malformed), (1200, 1200, 0));
            assert!(counts.resent > 0, "{counts:?}");
            duplicates += counts.duplicates;
        }
        assert!(duplicates > 0, "what had arrived is not known to have");
    }
}

/// What was kept is acknowledged by packets of the connection, and by few datagrams.
#[test]
fn acknowledgements_take_the_connection() {
    for goes_back in [true, false] {
        let mut network = Network::new(2, 0, Weather { breaks: Breaks::OneIn(u64::MAX), ..CALM }, 0);
        for number in 0..1_000 {
            for from in 0..1 + usize::from(goes_back) {
                let (to, packet) = (1 - from, (Channel::Connection, Box::default()));
                let Poll::Ready(before) = network.channels[from].begin_apart(network.now, Rank(to as u32)) else {
                    panic!("{number}: not acknowledged")
                };
                network.channels[from].left_apart(
                    network.now,
                    (Rank(to as u32), Channel::Connection),
                    (&[], &[]),
                    false,
                );
                network.come_apart([from, to].map(|rank| Rank(rank as u32)), before.unwrap(), packet);
                assert!(network.take(to as u32).is_some());
                while network.channels[to].due() <= network.now + 1 && network.step() {}
            }
            network.now += 100;
        }
        while network.step() {}
        let counts = network.channels[1].counts();
        assert!(network.channels[0].is_idle() && counts.bare <= 1_000 / 64 + 3, "{counts:?}");
        assert_eq!(network.channels[0].counts().resent, 0);
    }
}

/// A datagram behind packets of another channel has room as soon as some of them have come.
#[test]
fn room_for_a_datagram_does_not_wait_for_all_of_the_other_channel() {
    let (mut network, (sender, receiver)) = (Network::new(2, 0, CALM, 0), (Rank(0), Rank(1)));
    let apart = |network: &mut Network| {
        let before = network.channels[0].begin_apart(network.now, receiver).map(Result::unwrap);
        network.channels[0].left_apart(network.now, (receiver, Channel::Connection), (&[], &[]), false);
        before
    };
    let sent = [(); 300].map(|()| apart(&mut network));
    for before in sent.into_iter().take(100) {
        let (Poll::Ready(before), packet) = (before, (Channel::Connection, Box::default())) else { panic!("room") };
        network.come_apart([sender, receiver], before, packet);
        assert!(network.take(1).is_some());
    }
    while network.send(0, 1, b"datagram").is_pending() {
        assert!(network.step(), "no timer asks for room");
        assert!(network.now < 1_000_000_000, "there is none");
        assert!(apart(&mut network).is_ready()); // the stream goes on
        assert!(network.channels[0].counts().sent < 350, "there is none");
    }
}

/// What one loss costs is bounded: a hole is sent again because it was passed, not by a timer.
#[test]
fn a_hole_that_was_passed_is_sent_again_before_the_timer() {
    let mut network = Network::new(2, 0, CALM, 0);
    for number in 0..20 {
        assert!(network.send(0, 1, &[number]).is_ready());
    }
    network.lose_next(1); // the transmission of packet 0
    let mut received = 0;
    while received < 20 {
        assert!(network.step());
        received += std::iter::from_fn(|| network.take(1)).count();
    }
    assert!(network.now < 100_000, "no timer ends before: {} ns", network.now);
    assert_eq!(network.channels[0].counts().resent, 1);
}

/// The last packet has none behind it: the receiver is asked, and it is sent again.
#[test]
fn a_lost_last_packet_is_sent_again_after_the_receiver_was_asked() {
    let mut network = Network::new(2, 0, CALM, 0);
    assert!(network.send(0, 1, b"last").is_ready());
    network.lose_next(1);
    while network.take(1).is_none() {
        assert!(network.step());
    }
    let counts = network.channels[0].counts();
    assert_eq!((counts.resent, counts.bare), (1, 1));
}

/// A solicited packet is so each time, and questions are; acknowledgements and other packets are
/// not.
#[test]
fn what_needs_an_answer_is_solicited() {
    let mut network = Network::new(2, 0, CALM, 0);
    assert!(network.send(0, 1, b"short").is_ready());
    assert!(network.send_solicited(0, 1, b"start").is_ready());
    network.lose_next(2);
    while network.step() {}
    let [sent, answered] = &network.solicited[..] else { panic!("two ranks") };
    let is = |packet: &[u8]| sent.iter().filter(|solicited| **solicited == packet).count();
    assert_eq!((is(b"start"), is(b""), is(b"short"), answered.len()), (2, 1, 1, 0), "{sent:?}"); // a repetition asks
}

/// A lost acknowledgement is repeated for the asking, without the packet.
#[test]
fn a_lost_acknowledgement_costs_no_packet() {
    let mut network = Network::new(2, 0, CALM, 0);
    assert!(network.send(0, 1, b"first").is_ready());
    while network.take(1).is_none() {
        assert!(network.step());
    }
    network.lose_next(1);
    while network.step() {}
    let counts = network.channels[0].counts();
    assert_eq!((counts.resent, counts.bare), (0, 1));
    assert!(network.channels[0].is_idle());
}

#[test]
fn the_window_bounds_what_is_on_its_way() {
    let mut network = Network::new(2, 0, CALM, 0);
    network.unreachable[1] = true;
    let mut sent = 0;
    while network.send(0, 1, &[0; 100]).is_ready() {
        sent += 1;
        assert!(sent <= FIRST, "no window");
    }
    assert_eq!(sent, FIRST);
    let mut repeated = 0;
    for _ in 0..1_000 {
        network.step();
        let resent = network.channels[0].counts().resent;
        assert!(resent - repeated <= u64::from(SMALLEST), "all at once, after a timeout");
        repeated = resent;
    }
    assert!(repeated > 0);
}

/// A receiver that takes nothing keeps a bounded number of packets, is not lost, and gets the rest
/// once it takes them.
#[test]
fn a_receiver_that_takes_nothing_is_bounded_and_not_lost() {
    for seed in 0..5 {
        let mut network = Network::new(2, 0, Weather { loss: 10, ..CALM }, seed);
        let mut sent = 0_u32;
        while network.now < 20_000_000_000 {
            while network.send(0, 1, &sent.to_le_bytes()).is_ready() {
                sent += 1;
            }
            assert!(sent <= 2 * LARGEST, "the sender and the receiver keep a window each");
            assert!(network.step());
        }
        assert!(sent >= LARGEST);
        let counts = network.channels[1].counts();
        assert_eq!((counts.received, counts.beyond), (u64::from(LARGEST), 0));
        assert!(!network.channels[0].is_lost(Rank(1)));
        let mut taken = 0_u32;
        while taken < sent {
            while let Some((_, packet)) = network.take(1) {
                assert_eq!(packet[..], taken.to_le_bytes());
                taken += 1;
            }
            assert!(taken == sent || network.step());
        }
    }
}

#[test]
fn a_silent_peer_is_lost_after_8_s_and_no_sooner() {
    let mut network = Network::new(3, 0, CALM, 0);
    network.unreachable[1] = true;
    assert!(network.send(0, 1, b"anybody?").is_ready());
    assert!(network.send(0, 2, b"you?").is_ready());
    while !network.channels[0].is_lost(Rank(1)) {
        assert!(network.step(), "it waits without end");
        assert!(network.now < 9_000_000_000);
    }
    assert!(network.now >= 8_000_000_000, "{}", network.now);
    assert!(!network.channels[0].is_lost(Rank(2)));
    let Poll::Ready(Err(fault)) = network.send(0, 1, &[]) else { panic!("the peer is lost") };
    assert_eq!((fault.kind(), fault.rank()), (FaultKind::ConnectionLost, Some(Rank(1))));
    assert!(network.send(0, 2, &[]).is_ready());
}

/// A peer that computes answers nothing, and is not lost while it is known to be within reach.
#[test]
fn a_peer_within_reach_may_compute() {
    let mut network = Network::new(2, 0, CALM, 0);
    (network.unreachable[1], network.computes) = (true, true);
    assert!(network.send(0, 1, b"later").is_ready());
    while network.now < 60_000_000_000 {
        assert!(network.step());
    }
    network.unreachable[1] = false;
    while network.take(1).is_none() {
        assert!(network.step());
    }
    assert!(!network.channels[0].is_lost(Rank(1)));
}

/// A rank that does not look for a long time has not asked: it loses no peer.
#[test]
fn a_rank_that_was_away_loses_nobody() {
    let mut network = Network::new(2, 0, CALM, 0);
    assert!(network.send(0, 1, b"now").is_ready());
    network.lose_next(1);
    while network.in_flight() > 0 {
        network.step();
    }
    network.now += 60_000_000_000;
    while network.take(1).is_none() {
        assert!(network.step());
    }
    assert!(!network.channels[0].is_lost(Rank(1)));
}

#[test]
fn a_restarted_peer_begins_anew() {
    for seed in 0..10 {
        let mut network = Network::new(2, 0, ROUGH, seed);
        for number in 0..10 {
            assert!(network.send(0, 1, &[number]).is_ready());
        }
        for _ in 0..8 {
            network.step();
        }
        network.restart(1);
        assert!(network.send(1, 0, b"here again").is_ready());
        while network.take(0).is_none() {
            assert!(network.step(), "seed {seed}");
        }
        // The packets of before are gone: those of the old incarnation stay out of the new one.
        assert!(network.send(0, 1, b"welcome").is_ready());
        let (_, packet) = loop {
            match network.take(1) {
                Some(taken) => break taken,
                None => assert!(network.step(), "seed {seed}"),
            }
        };
        assert_eq!(packet[..], *b"welcome", "seed {seed}");
        while network.step() {}
        assert_eq!(network.take(1), None, "seed {seed}");
    }
}

/// A sender learns of the restart from the answer to what it sends.
#[test]
fn a_packet_to_an_old_incarnation_is_answered() {
    let mut network = Network::new(2, 0, CALM, 0);
    network.restart(1);
    assert!(network.send(0, 1, b"to the old one").is_ready());
    while network.step() {}
    assert!(network.channels[1].counts().stale > 0);
    assert!(network.channels[0].is_idle(), "nothing is sent to the old one any more");
    assert!(network.send(0, 1, b"to the new one").is_ready());
    while network.step() {}
    let (_, packet) = network.take(1).unwrap();
    assert_eq!(packet[..], *b"to the new one");
}

#[test]
fn an_early_packet_waits_across_the_wrap() {
    let mut receiver = Receiver::new(u32::MAX);
    let mut delivered = Vec::new();
    for number in [0, u32::MAX] {
        let arrived =
            receiver.arrived(number, (Channel::Datagrams, number.to_le_bytes()), &mut |packet| delivered.push(packet));
        assert!(matches!(arrived, Arrived::InOrder | Arrived::Ahead), "{number}: {arrived:?}");
    }
    assert_eq!(delivered, [u32::MAX, 0].map(|number| (Channel::Datagrams, Box::from(number.to_le_bytes()))));
    assert_eq!(receiver.acknowledge().next, 1);
}

/// A sender without room is told of half a window, and does not have to ask.
#[test]
fn room_is_told() {
    let mut receiver = Receiver::new(0);
    for number in 0..LARGEST {
        receiver.arrived(number, (Channel::Datagrams, []), &mut drop);
    }
    assert_eq!(receiver.arrived(LARGEST, (Channel::Datagrams, []), &mut drop), Arrived::Beyond);
    assert_eq!(receiver.acknowledge().room, 0);
    for _ in 0..LARGEST / 2 {
        assert_ne!(receiver.due(), 0);
        receiver.taken();
    }
    assert_eq!((receiver.due(), receiver.acknowledge().room), (0, 128));
}
