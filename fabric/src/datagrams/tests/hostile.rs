//! Datagrams that no machine sends.

use onesided_remote_memory::Rank;
use proptest::collection::vec;
use proptest::prelude::*;

use super::network::JOB;
use crate::Channel;
use crate::datagrams::header::{Acknowledgement, HEADER, Header};
use crate::datagrams::{DatagramChannel, Identity, Posted};

fn channel() -> DatagramChannel {
    DatagramChannel::new(Identity { job: JOB, rank: Rank(0), incarnation: 5 }, [5, 5, 5])
}

fn header() -> Header {
    let acknowledges = Acknowledgement { next: 0, room: 256, selective: 0 };
    let (from, sequence) = (Rank(1), 0);
    Header { carries: true, asks: false, job: JOB, from, incarnation: 5, to: 5, sequence, acknowledges }
}

fn datagram(header: Header) -> Vec<u8> {
    [&header.to_bytes()[..], b"packet"].concat()
}

#[test]
fn headers_travel() {
    let header = Header {
        carries: true,
        asks: true,
        job: 1,
        from: Rank(2),
        incarnation: 3,
        to: 4,
        sequence: u32::MAX,
        acknowledges: Acknowledgement { next: 6, room: 7, selective: 0x8000_0000_0000_0001 },
    };
    assert_eq!(Header::parse(&datagram(header)), Some((header, &b"packet"[..])));
    for len in 0..HEADER {
        assert_eq!(Header::parse(&header.to_bytes()[..len]), None);
    }
    for at in [0, 1, 2, 30, 31] {
        let mut wrong = datagram(header);
        wrong[at] ^= 0x80;
        assert_eq!(Header::parse(&wrong), None, "byte {at}");
    }
}

#[test]
fn what_is_dropped_is_counted() {
    let base = header();
    let acknowledging =
        |next, room, selective| Header { acknowledges: Acknowledgement { next, room, selective }, ..base };
    let mut channel = channel();
    let mut drops = |header: Header| {
        let before = channel.counts();
        channel.arrived(0, &datagram(header));
        assert_eq!(channel.take(), None, "{header:?}");
        let after = channel.counts();
        [
            after.malformed - before.malformed,
            after.foreign - before.foreign,
            after.stale - before.stale,
            after.beyond - before.beyond,
        ]
    };
    assert_eq!(drops(Header { from: Rank(3), ..base }), [1, 0, 0, 0]);
    assert_eq!(drops(Header { carries: false, ..base }), [1, 0, 0, 0]); // bytes that are no packet
    assert_eq!(drops(acknowledging(1, 256, 0)), [1, 0, 0, 0]); // nothing was sent
    assert_eq!(drops(acknowledging(0, 256, 1)), [1, 0, 0, 0]);
    assert_eq!(drops(acknowledging(0, 257, 0)), [1, 0, 0, 0]);
    assert_eq!(drops(Header { job: JOB + 1, ..base }), [0, 1, 0, 0]);
    assert_eq!(drops(Header { incarnation: 4, ..base }), [0, 0, 1, 0]);
    assert_eq!(drops(Header { to: 4, ..base }), [0, 0, 1, 0]);
    assert_eq!(drops(Header { sequence: 256, ..base }), [0, 0, 0, 1]);
    channel.arrived(0, &datagram(base));
    assert_eq!(channel.take(), Some((Rank(1), Channel::Datagrams, b"packet"[..].into())));
    channel.arrived(0, &datagram(base));
    assert_eq!((channel.take(), channel.counts().duplicates), (None, 1));
}

/// What an old incarnation sent before the new one came is still taken, and not as the new one's.
#[test]
fn a_packet_of_an_old_incarnation_that_has_arrived_is_taken() {
    let mut channel = channel();
    channel.arrived(0, &datagram(header()));
    channel.arrived(0, &datagram(Header { incarnation: 6, ..header() }));
    for _ in 0..2 {
        assert_eq!(channel.take(), Some((Rank(1), Channel::Datagrams, b"packet"[..].into())));
    }
    assert_eq!(channel.take(), None);
    channel.arrived(0, &Header { carries: false, incarnation: 7, ..header() }.to_bytes());
    channel.arrived(0, &datagram(Header { incarnation: 7, ..header() }));
    channel.arrived(0, &Header { carries: false, incarnation: 8, ..header() }.to_bytes());
    assert_eq!(channel.take(), Some((Rank(1), Channel::Datagrams, b"packet"[..].into())));
}

/// A rank's end is seen when something is sent to it. What it sent before may not have been looked at.
#[test]
fn what_a_rank_sent_before_its_end_is_taken() {
    let mut channel = channel();
    assert!(channel.send(0, Rank(1), (b"in vain", &[]), false).is_ready());
    channel.transmit(0, |_, _, _, _| Posted::Gone, |_| false);
    channel.arrived(0, &datagram(header()));
    assert_eq!(channel.take(), Some((Rank(1), Channel::Datagrams, b"packet"[..].into())));
    assert!(channel.send(0, Rank(1), (&[], &[]), false).is_pending() && !channel.is_lost(Rank(1)));
    channel.transmit(u64::MAX - 1, |_, _, _, _| panic!("nothing is sent to it"), |_| false);
}

/// An acknowledgement of a packet that was not sent frees none.
#[test]
fn an_acknowledgement_of_what_was_not_sent_is_dropped() {
    let mut channel = channel();
    for _ in 0..3 {
        assert!(channel.send(0, Rank(1), (&[], &[]), false).is_ready());
    }
    let bare = |next, selective| Header {
        carries: false,
        acknowledges: Acknowledgement { next, room: 256, selective },
        ..header()
    };
    channel.arrived(0, &bare(1, 0).to_bytes()); // they wait for the next transmit
    assert_eq!(channel.counts().malformed, 1);
    channel.transmit(0, |_, _, _, _| Posted::Sent, |_| false);
    for (next, selective) in [(4, 0), (3, 1), (2, 1), (0, 4), (0, 1 << 63)] {
        let malformed = channel.counts().malformed;
        channel.arrived(0, &bare(next, selective).to_bytes());
        assert_eq!(channel.counts().malformed, malformed + 1, "{next} {selective:x}");
        assert!(!channel.is_idle());
    }
    channel.arrived(0, &bare(0, 2).to_bytes());
    assert!(!channel.is_idle());
    channel.arrived(0, &bare(3, 0).to_bytes());
    assert!(channel.is_idle());
}

proptest! {
    /// Whatever arrives, nothing panics, memory is bounded, and a datagram of another job changes
    /// nothing.
    #[test]
    fn any_bytes(datagrams in vec(vec(any::<u8>(), 0..100), 0..50)) {
        let mut channel = channel();
        for datagram in &datagrams {
            channel.arrived(0, datagram);
            channel.transmit(0, |_, _, _, _| Posted::Sent, |_| false);
        }
        channel.arrived(0, &datagram(header()));
        prop_assert_eq!(channel.take(), Some((Rank(1), Channel::Datagrams, b"packet"[..].into())));
    }

    /// The same for packets of another channel that are kept there, which fails now and then.
    #[test]
    fn any_packets_of_another_channel(packets in vec((any::<(bool, bool, bool)>(), any::<i8>(), any::<i8>()), 0..200)) {
        let mut channel = channel().keeping(true);
        for (now, ((sends, fails, fast), number, next)) in (0..).step_by(40_000).zip(packets) {
            let by = if fast { Channel::FastPath } else { Channel::Connection };
            if sends && channel.begin_apart(now, Rank(1)).is_ready() {
                channel.left_apart(now, (Rank(1), by), (&[7; 20], &[]), false);
            }
            let mut before = [0; DatagramChannel::APART];
            before[..4].copy_from_slice(&i32::from(number).to_le_bytes());
            before[4..].copy_from_slice(&i32::from(next).to_le_bytes());
            if channel.takes_apart(now, Rank(1), before, by) == Ok(false) {
                let _ = channel.arrived_apart(now, Rank(1), before, (by, Box::default()));
            }
            if fails {
                channel.lose_apart(Rank(1));
            }
            channel.transmit(now, |_, _, _, _| Posted::Sent, |_| false);
            channel.take();
        }
    }

    /// The same for valid headers with any values, between packets of this machine.
    #[test]
    fn any_headers(
        headers in vec(
            (any::<(bool, bool, bool)>(), 0..4_u32, 4..7_u32, 4..7_u32, any::<u8>(), any::<i8>(), any::<u16>(), any::<u64>()),
            0..200,
        ),
    ) {
        let mut channel = channel();
        let mut now = 0;
        for ((carries, asks, sends), from, incarnation, to, sequence, next, room, selective) in headers {
            let acknowledges = Acknowledgement {
                next: i32::from(next) as u32,
                room: room % 300,
                selective: selective & (selective >> 7) & (selective << 9),
            };
            let (job, from, sequence) = (JOB, Rank(from), u32::from(sequence));
            let header = Header { carries, asks, job, from, incarnation, to, sequence, acknowledges };
            let packet: &[u8] = if carries { &[1, 2, 3] } else { &[] };
            if sends {
                let _ = channel.send(now, Rank(from.0 % 3), (&[7; 20], &[]), false);
                now += 40_000;
                channel.transmit(now, |_, _, _, _| if asks { Posted::Sent } else { Posted::Busy }, |_| false);
            }
            channel.arrived(now, &[&header.to_bytes()[..], packet].concat());
            if carries {
                channel.take();
            }
        }
    }
}
