//! Hostile packets.

use std::task::{Context, Poll};

use onesided_fabric::remote_memory::RegionId;
use onesided_fabric::{Landing, Missing};
use proptest::prelude::*;

use super::tests::{WINDOW, eager, key, opened, posted, take_in};
use super::*;
use crate::Protocol;
use crate::engine::elements::allocate;
use crate::engine::matching::{COLLECTIVE, Pattern};
use crate::engine::wire::Window;

/// A landing that nobody asks what came.
#[derive(Debug)]
struct Landed;

impl Landing for Landed {
    fn poll_over(&mut self, _: &mut Context<'_>) -> Poll<Result<Missing, Fault>> {
        Poll::Pending
    }
}

/// A rank does this while ranks from 3 on are hostile.
#[derive(Clone, Debug)]
enum Step {
    Hostile {
        from: u32,
        packet: Vec<u8>,
    },
    Receive(Pattern),
    Probe(Pattern),
    Send {
        to: u32,
        /// `None`: an eager message.
        by: Option<Protocol>,
    },
    /// Sends packets, for which there is room or not.
    Flush(bool),
    /// Moves an announced message, with success or not.
    Move(bool),
    /// Polls all receives and sends.
    Poll,
    /// Drops the receive that was posted first.
    Drop,
}

/// Packets of all kinds with any fields, cut off, too long, or with another byte.
fn hostile() -> impl Strategy<Value = Vec<u8>> {
    let by = prop_oneof![
        Just(Protocol::Rget),
        Just(Protocol::Offered),
        Just(Protocol::Rput),
        Just(Protocol::Pipeline),
        Just(Protocol::Copy),
        Just(Protocol::UdZcopy)
    ];
    let key = (0..6_u32, prop_oneof![Just(0), Just(100), 0..100_u64, any::<u64>()], any::<u64>())
        .prop_map(|(rank, len, address)| SegmentKey { rank: Rank(rank), region: RegionId(1), len, address, rkey: 0 });
    let request = prop_oneof![0..6_u32, any::<u32>()].prop_map(RequestId);
    let missing = (
        prop_oneof![0..100_u64, any::<u64>()],
        prop_oneof![0..50_u32, any::<u32>()],
        prop_oneof![0..4_u128, any::<u128>()],
    )
        .prop_map(|(at, unit, bits)| Window { at, unit, bits });
    let packet = prop_oneof![
        (0..3_u32, 0..2_u32).prop_map(|(context, tag)| Packet::Eager { context, tag }),
        (0..3_u32, any::<u32>())
            .prop_map(|(context, tag)| Packet::Eager { context: context | COLLECTIVE, tag: tag | CONTROL }),
        (0..3_u32, 0..2_u32, request.clone(), key.clone(), by)
            .prop_map(|(context, tag, request, key, by)| { Packet::Rts { context, tag, request, key, by } }),
        (request.clone(), any::<u8>()).prop_map(|(request, status)| Packet::Fin { request, status }),
        (request.clone(), request.clone(), key).prop_map(|(request, receive, key)| Packet::Rtr {
            request,
            receive,
            key
        }),
        (request.clone(), request.clone(), prop_oneof![0..120_u64, any::<u64>()])
            .prop_map(|(request, receive, len)| Packet::RtrCopy { request, receive, len }),
        (request.clone(), prop_oneof![Just(0), 0..120_u64, any::<u64>()])
            .prop_map(|(receive, at)| Packet::Data { receive, at }),
        request.clone().prop_map(|receive| Packet::Sent { receive }),
        (request.clone(), request.clone(), missing).prop_map(|(request, receive, missing)| Packet::RtrMissing {
            request,
            receive,
            missing
        }),
        (request, any::<u8>()).prop_map(|(receive, status)| Packet::Written { receive, status }),
        (0..3_u32).prop_map(|context| Packet::Batch { context }),
        Just(Packet::Credit),
        Just(Packet::Ask),
    ];
    let grant = prop_oneof![0..2 * WINDOW, any::<u32>()];
    let more = prop_oneof![3 => Just(0..0_usize), 1 => Just(0..2_000)]
        .prop_flat_map(|len| prop::collection::vec(any::<u8>(), len.start..len.end.max(1)));
    let change = prop::option::weighted(0.2, (any::<prop::sample::Index>(), any::<u8>(), any::<bool>()));
    (packet, grant, more, change).prop_map(|(packet, grant, more, change)| {
        let mut bytes = [packet.encode(grant).bytes(), &more].concat();
        match change {
            Some((at, _, true)) => bytes.truncate(at.index(bytes.len())),
            Some((at, byte, false)) => {
                let at = at.index(bytes.len());
                bytes[at] = byte;
            }
            None => {}
        }
        bytes
    })
}

/// Several messages in a packet, some of which claim another length.
fn batch() -> impl Strategy<Value = Vec<u8>> {
    let claims = prop_oneof![9 => Just(None), 1 => prop_oneof![0..600_u32, any::<u32>()].prop_map(Some)];
    let messages = prop::collection::vec((0..2_u32, 0..40_usize, claims), 0..20);
    (0..3_u32, 0..2 * WINDOW, messages).prop_map(|(context, grant, messages)| {
        let mut bytes = Packet::Batch { context }.encode(grant).bytes().to_vec();
        for (tag, len, claimed) in messages {
            bytes.extend(tag.to_le_bytes());
            bytes.extend(claimed.unwrap_or(len as u32).to_le_bytes());
            bytes.resize(bytes.len() + len.next_multiple_of(8), 7);
        }
        bytes
    })
}

fn steps() -> impl Strategy<Value = Step> {
    let pattern = || {
        (prop::option::of(3..6_u32), prop::option::of(0..2_u32)).prop_map(|(source, tag)| Pattern {
            context: 0,
            source,
            tag,
        })
    };
    let bytes = prop::collection::vec(any::<u8>(), 0..90);
    prop_oneof![
        8 => (3..6_u32, prop_oneof![9 => hostile(), 3 => batch(), 1 => bytes]).prop_map(|(from, packet)| Step::Hostile { from, packet }),
        2 => pattern().prop_map(Step::Receive),
        1 => pattern().prop_map(Step::Probe),
        2 => (3..6_u32, prop::option::of(prop_oneof![Just(Protocol::Rget), Just(Protocol::Rput), Just(Protocol::Copy), Just(Protocol::UdZcopy)])).prop_map(|(to, by)| Step::Send { to, by }),
        2 => any::<bool>().prop_map(Step::Flush),
        1 => any::<bool>().prop_map(Step::Move),
        1 => Just(Step::Poll),
        1 => Just(Step::Drop),
    ]
}

proptest! {
    /// Any packets from any rank in any state: no panic, a typed loss of that rank alone, and
    /// bounded memory.
    #[test]
    fn hostile_packets_end_their_sender_alone(program in prop::collection::vec(steps(), 0..200)) {
        let (mut engine, waker) = (opened(Rank(0), WINDOW, u32::MAX), Waker::noop());
        engine.flight = 40;
        let (mut receives, mut sends) = (vec![], vec![]);
        for step in program {
            match step {
                Step::Hostile { from, packet } => take_in(&mut engine, Rank(from), &packet),
                Step::Receive(pattern) => match engine.receive(pattern) {
                    Posting::Posted(receive) => receives.push(receive),
                    Posting::Held(held) => engine.deliver(held.message, Ok(())).unwrap_or_default(),
                    Posting::Landed(_) => unreachable!("there is no slice"),
                },
                Step::Probe(pattern) => {
                    if let Some(held) = engine.match_probe(pattern, waker) {
                        engine.give_back(held.message);
                    }
                }
                Step::Send { to, by: None } => {
                    sends.extend(engine.send_eager(Rank(to), (0, 0), b"message", |_, _, _| PostOutcome::Busy).unwrap_or_default());
                }
                Step::Send { to, by: Some(by) } => {
                    sends.push(engine.send_rendezvous(Rank(to), (0, 0), (key(), by), 1));
                }
                Step::Flush(has_room) => engine.flush(|_, _, _| if has_room { PostOutcome::SENT } else { PostOutcome::Busy }),
                Step::Move(is_moved) => {
                    let outcome = if is_moved { Ok(()) } else { Err(Fault::new(FaultKind::NoMemory)) };
                    match engine.next_to_move(|_| true) {
                        Some(ToMove::Read(ToRead { message, .. })) => {
                            engine.read(message, outcome.map(|()| Here::Memory(2)));
                        }
                        Some(ToMove::Expose(ToExpose { message, len, by, at, .. })) => {
                            let elements = allocate::<u8>(len).filter(|_| is_moved && by == Protocol::Copy);
                            let len = if by == Protocol::Pipeline { (len - at).min(60) } else { len };
                            let key = outcome.map(|()| SegmentKey { len, ..key() });
                            match (by, elements) {
                                (_, Some(elements)) => engine.expose_elements(message, elements),
                                (Protocol::Copy, None) => engine.expose(message, at, Err(Fault::new(FaultKind::NoMemory))),
                                (Protocol::UdZcopy, None) if is_moved => engine.expose_landing(message, 2, (key.unwrap(), Box::new(Landed))),
                                _ => engine.expose(message, at, Ok((2, key))),
                            }
                        }
                        Some(ToMove::Lift { message, memory, .. }) => {
                            let len = engine.matcher.message(message).body.len();
                            let datagrams = (0..len.div_ceil(10).min(9) as u32).step_by(3).collect();
                            let missing = Missing { unit: 10, datagrams };
                            engine.lifted(message, memory, outcome.map(|()| missing));
                        }
                        Some(ToMove::Fill { message, memory, came, later }) => {
                            let len = engine.matcher.message(message).body.len();
                            prop_assert!(came.iter().all(|(at, bytes)| at + bytes.len() as u64 <= len));
                            engine.lifted(message, memory, outcome.map(|()| later));
                        }
                        Some(ToMove::Copy { send, from, ranges, .. }) => {
                            prop_assert_eq!((from, ranges.iter().all(|(at, len)| at + len <= 100)), (1, true));
                            engine.send_data(send, &ranges, 50, |_, _| Ok(()));
                        }
                        Some(ToMove::Write { send, from, .. }) => {
                            prop_assert_eq!(from, 1);
                            engine.written(send, outcome);
                        }
                        None => {}
                    }
                }
                Step::Poll => {
                    receives.retain(|receive| match engine.received(*receive, waker) {
                        None => true,
                        Some(received) => {
                            received.into_iter().for_each(|held| engine.deliver(held.message, Ok(())).unwrap_or_default());
                            false
                        }
                    });
                    sends.retain(|send| engine.sent(*send, waker).is_none_or(|_| {
                        engine.detach(*send);
                        false
                    }));
                }
                Step::Drop => {
                    if !receives.is_empty() {
                        engine.cancel(receives.remove(0));
                    }
                }
            }
            engine.take_wakers();
        }
        for from in 3..6 {
            prop_assert!(engine.lost(Rank(from)).is_none_or(|fault| fault.kind() == FaultKind::Protocol));
            let kept = engine.matcher.all_unexpected().filter(|(_, envelope, _)| envelope.source == from);
            let kept: usize = kept.map(|(.., message)| message.body.kept()).sum();
            prop_assert!(kept <= 64 * WINDOW as usize, "{kept} bytes of rank {from}");
        }
        // The others.
        receives.into_iter().for_each(|receive| engine.cancel(receive));
        let receive = posted(engine.receive(Pattern { context: 0, source: Some(2), tag: Some(3) }));
        let send = engine.send_rendezvous(Rank(2), (0, 0), (key(), Protocol::Rget), 3);
        engine.flush(|_, _, _| PostOutcome::SENT);
        engine.take_idle();
        take_in(&mut engine, Rank(2), &eager(0, 3, b"from the other", 0));
        take_in(&mut engine, Rank(2), Packet::Fin { request: RequestId(send as u32), status: 0 }.encode(0).bytes());
        prop_assert_eq!(engine.received(receive, waker).unwrap().unwrap().len, 14);
        prop_assert_eq!(engine.sent(send, waker), Some(Ok(())));
        engine.detach(send);
        prop_assert_eq!(engine.take_idle(), [3]);
    }
}
