//! Messages between threads, and in the simulator.

use std::time::{Duration, Instant};

use onesided_fabric::remote_memory::{FaultKind, RemoteMemory as _};
use onesided_fabric::{Fabric, World, block_on, threads};
use onesided_instances as _;
use onesided_sim::{End, Network, Simulation};
use onesided_two_sided::{Error, Messages, Protocol, Source, Tag, Tags};

use crate::support::{filled, ranks, rough, words};

const SOON: Duration = Duration::from_secs(30);
/// Eager and rendezvous, whole and broken multiples of everything.
const LENGTHS: [usize; 9] = [0, 1, 31, 32, 33, 4_096, 65_537, 1_000_000, 7];

fn bytes(seed: u32, len: usize) -> Vec<u8> {
    (0..len as u32).map(|at| (at.wrapping_mul(31).wrapping_add(seed) >> 3) as u8).collect()
}

/// Every rank sends all lengths to the next one, all at the same time, and receives them in order.
async fn ring<F: Fabric>(world: &World<F>) -> Result<(), Error> {
    let messages = Messages::new(world).await?;
    let (me, all) = (world.rank(), world.size());
    let sent: Vec<_> = LENGTHS.iter().map(|len| bytes(me, *len)).collect();
    let sends: Vec<_> = sent.iter().map(|bytes| messages.send(bytes, (me + 1) % all, Tag(3))).collect();
    let left = (me + all - 1) % all;
    for len in LENGTHS {
        let (got, status) = messages.recv::<u8>(left, Tag(3)).await?;
        assert_eq!((status.source, status.tag, status.bytes), (left, Tag(3), len as u64));
        assert!(got == bytes(left, len), "{len} bytes");
    }
    for send in sends {
        send.await?;
    }
    Ok(())
}

#[test]
fn all_lengths_travel_around_a_ring_of_threads() {
    for size in [1, 2, 5] {
        let outcomes = threads(size, |world| block_on(world.fabric(), ring(&world))).unwrap();
        outcomes.into_iter().for_each(Result::unwrap);
    }
}

#[test]
fn and_of_simulated_ranks() {
    let datagrams = Network { datagrams: true, ..Network::default() };
    let both = Network { connects_after: Some(2), ..rough() };
    for network in [Network::default(), Network { loss: 0.01, ..datagrams.clone() }, datagrams, rough(), both] {
        for seed in 0..5 {
            let simulation = Simulation::new(network.clone()).ranks(7).seed(seed);
            let report = simulation.run(|world| async move { ring(&world).await });
            assert_eq!(report.end, End::Finished, "{network:?}, seed {seed}");
            assert!(report.results.into_iter().flatten().all(|outcome| outcome.is_ok()), "{network:?}, seed {seed}");
        }
    }
}

#[test]
fn and_of_tasks() {
    threads(3, |world| {
        let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_time().build().unwrap();
        runtime.block_on(async { tokio::time::timeout(SOON, ring(&world)).await }).unwrap().unwrap();
    })
    .unwrap();
}

#[test]
fn wildcards_take_messages_in_order_of_arrival() {
    ranks(3, |world, messages| {
        if world.rank() > 0 {
            for number in 0..100_u32 {
                messages.send(&[number], 0, Tag(number % 3)).wait().unwrap();
            }
            return;
        }
        let mut next = [0; 3];
        for _ in 0..150 {
            let (number, status) = messages.recv::<u32>(Source::Any, Tags::Any).deadline(SOON).wait().unwrap();
            assert_eq!((number[0], status.tag.0), (next[status.source as usize], number[0] % 3));
            next[status.source as usize] += 1;
        }
        // The rest of each, tag by tag.
        for (rank, next) in (0..3_u32).zip(next).skip(1) {
            for tag in 0..3 {
                for number in (next..100).filter(|number| number % 3 == tag) {
                    assert_eq!(messages.recv::<u32>(rank, Tag(tag)).deadline(SOON).wait().unwrap().0, [number]);
                }
            }
        }
    });
}

#[test]
fn a_slice_takes_what_fits_and_says_what_did_not() {
    ranks(2, |world, messages| {
        if world.rank() == 0 {
            for len in [10, 100, 1_000, 12, 7] {
                messages.send(&bytes(1, len), 1, Tag(0)).wait().unwrap();
            }
            return;
        }
        let mut into = [0_u8; 100];
        assert_eq!(messages.recv_into(&mut into, 0, Tag(0)).wait().unwrap().bytes, 10);
        assert_eq!(into[..10], bytes(1, 10));
        assert_eq!(messages.recv_into(&mut into, 0, Tag(0)).wait().unwrap().bytes, 100);
        let error = messages.recv_into(&mut into, 0, Tag(0)).wait().unwrap_err();
        assert_eq!(
            error.to_string(),
            "recv 1000 bytes with tag 0 from rank 0: 1000 elements of 1 byte, and there is room for 100"
        );
        assert_eq!(into[..], bytes(1, 100));
        // 12 bytes are three of four; 7 are no number of them.
        assert_eq!(messages.recv::<u32>(0, Tag(0)).wait().unwrap().0.len(), 3);
        let error = messages.recv::<u32>(0, Tag(0)).wait().unwrap_err();
        assert_eq!(error.to_string(), "recv 7 bytes with tag 0 from rank 0: not a whole number of elements of 4 bytes");
    });
}

#[test]
fn a_receive_that_is_dropped_or_late_takes_no_message() {
    ranks(2, |world, messages| {
        if world.rank() == 0 {
            world.barrier().wait().unwrap();
            for len in [8, 100_000] {
                messages.send(&bytes(2, len), 1, Tag(0)).wait().unwrap();
            }
            return;
        }
        let begin = Instant::now();
        let late = messages.recv::<u8>(0, Tag(0)).deadline(Duration::from_millis(20)).wait().unwrap_err();
        assert!(late.is_timed_out() && begin.elapsed() >= Duration::from_millis(20), "{late}");
        assert_eq!(late.to_string(), "recv with tag 0 from rank 0: the deadline passed");
        let late = messages.probe(Source::Any, Tags::Any).deadline(Duration::from_millis(1)).wait().unwrap_err();
        assert_eq!(late.to_string(), "probe with any tag from any rank: the deadline passed");
        let matched = [0, 1].map(|_| messages.recv::<u8>(0, Tags::Any));
        world.barrier().wait().unwrap();
        // The first of them is here when the second is.
        messages.probe(0, Tag(0)).deadline(Duration::from_millis(50)).wait().unwrap_err();
        drop(matched);
        for len in [8, 100_000] {
            assert_eq!(messages.recv::<u8>(0, Tag(0)).deadline(SOON).wait().unwrap().0, bytes(2, len));
        }
    });
}

#[test]
fn a_matched_probe_takes_its_message_from_all_others() {
    ranks(2, |world, messages| {
        if world.rank() == 0 {
            for (tag, len) in [(0, 50_000), (1, 4), (1, 5)] {
                drop(messages.send(&bytes(3, len), 1, Tag(tag)));
            }
            messages.recv::<u8>(1, Tag(9)).deadline(SOON).wait().unwrap();
            return;
        }
        let status = messages.probe(Source::Any, Tag(1)).deadline(SOON).wait().unwrap();
        assert_eq!((status.bytes, status.source), (4, 0));
        let large = messages.match_probe(0, Tags::Any).wait().unwrap();
        assert_eq!((large.status().bytes, large.status().tag), (50_000, Tag(0)));
        drop(messages.match_probe(0, Tags::Any).wait().unwrap()); // goes back before the one of 5 bytes
        assert_eq!(messages.recv::<u8>(0, Tags::Any).wait().unwrap().0.len(), 4);
        assert_eq!(messages.recv::<u8>(0, Tags::Any).deadline(SOON).wait().unwrap().0.len(), 5);
        let mut into = vec![0_u8; 50_000];
        large.recv_into(&mut into).wait().unwrap();
        assert_eq!(into, bytes(3, 50_000));
        assert!(messages.probe(0, Tags::Any).test().unwrap().is_none());
        messages.send(&[0_u8], 0, Tag(9)).wait().unwrap();
    });
}

#[test]
fn threads_of_one_rank_wait_at_the_same_time() {
    ranks(2, |world, messages| {
        let (messages, other) = (&messages, 1 - world.rank());
        std::thread::scope(|scope| {
            for tag in 0..4 {
                scope.spawn(move || {
                    for round in 0..500_u32 {
                        let len = 1 + (round % 40) as usize * 5;
                        let sent = vec![round; len];
                        let send = messages.send(&sent, other, Tag(tag));
                        let (got, _) = messages.recv::<u32>(other, Tag(tag)).deadline(SOON).wait().unwrap();
                        assert_eq!(got, sent);
                        send.wait().unwrap();
                    }
                });
            }
        });
    });
}

#[test]
fn communicators_do_not_hear_each_other() {
    ranks(4, |world, messages| {
        let pair = world.split(world.rank() / 2, 0).wait().unwrap();
        let (again, of_pair) = (Messages::new(&world).wait().unwrap(), Messages::new(&pair).wait().unwrap());
        let other = world.rank() ^ 1;
        messages.send(&[1_u8], other, Tag(0)).wait().unwrap();
        again.send(&[2_u8], other, Tag(0)).wait().unwrap();
        of_pair.send(&[3_u8], 1 - pair.rank(), Tag(0)).wait().unwrap();
        let (got, status) = of_pair.recv::<u8>(Source::Any, Tags::Any).deadline(SOON).wait().unwrap();
        assert_eq!((got[0], status.source), (3, 1 - pair.rank()));
        assert_eq!(again.recv::<u8>(Source::Any, Tags::Any).deadline(SOON).wait().unwrap().0, [2]);
        assert_eq!(messages.recv::<u8>(Source::Any, Tags::Any).deadline(SOON).wait().unwrap().0, [1]);
        assert!(matches!(of_pair.send(&[0_u8], 2, Tag(0)).wait(), Err(Error::Rank { rank: 2, size: 2, .. })));
        world.barrier().wait().unwrap();
    });
}

#[test]
fn a_rank_that_leaves_ends_those_who_wait_for_it() {
    ranks(3, |world, messages| {
        if world.rank() == 2 {
            for to in [0, 1] {
                messages.send(b"last words", to, Tag(0)).wait().unwrap();
            }
            return;
        }
        let kind = |outcome: Result<(Vec<u8>, _), Error>| outcome.map(|_| ()).unwrap_err().fault().kind();
        assert_eq!(messages.recv::<u8>(2, Tag(0)).deadline(SOON).wait().unwrap().0, b"last words");
        assert_eq!(kind(messages.recv(2, Tag(0)).deadline(SOON).wait()), FaultKind::PeerLeft);
        let large = vec![0_u8; 10_000];
        let error = messages.send(&large, 2, Tag(0)).deadline(SOON).wait().unwrap_err();
        assert_eq!(error.fault().kind(), FaultKind::PeerLeft);
        // Others go on.
        let other = 1 - world.rank();
        let send = messages.send(&large, other, Tag(0));
        assert_eq!(messages.recv::<u8>(Source::Any, Tag(0)).deadline(SOON).wait().unwrap().0, large);
        send.wait().unwrap();
    });
}

/// Its announced messages are lost with the rank, not with the communicator that it drops first.
#[test]
fn a_rank_that_ends_before_it_receives_has_left_or_died() {
    for (panics, kind) in [(false, FaultKind::PeerLeft), (true, FaultKind::PeerDied)] {
        let outcome = std::panic::catch_unwind(|| {
            ranks(2, |world, messages| {
                if world.rank() == 1 {
                    messages.probe(0, Tag(0)).deadline(SOON).wait().unwrap();
                    assert!(!panics, "on purpose");
                    return;
                }
                let error = messages.send(&[0_u8; 10_000], 1, Tag(0)).deadline(SOON).wait().unwrap_err();
                assert_eq!(error.kind(), kind, "{error}");
                assert_eq!(error.is_peer_died(), panics);
            });
        });
        let panic = outcome.err().map(|panic| *panic.downcast::<&str>().unwrap());
        assert_eq!(panic, panics.then_some("on purpose"));
    }
}

/// A rank that goes on tells the senders of a communicator that it has dropped.
#[test]
fn a_send_in_a_communicator_that_is_dropped_ends_when_its_receiver_waits() {
    ranks(2, |world, messages| {
        let again = Messages::new(&world).wait().unwrap();
        if world.rank() == 1 {
            again.probe(0, Tag(0)).deadline(SOON).wait().unwrap();
            drop(again);
            messages.recv::<u8>(0, Tag(1)).deadline(SOON).wait().unwrap();
        } else {
            let error = again.send(&[0_u8; 10_000], 1, Tag(0)).deadline(SOON).wait().unwrap_err();
            assert_eq!(error.kind(), FaultKind::Closed, "{error}");
            messages.send(&[0_u8], 1, Tag(1)).wait().unwrap();
        }
    });
}

#[test]
fn a_death_ends_receives_from_any_rank_until_it_is_acknowledged() {
    let outcomes = std::panic::catch_unwind(|| {
        ranks(3, |world, messages| {
            if world.rank() == 2 {
                messages.recv::<u8>(0, Tag(0)).deadline(SOON).wait().unwrap();
                panic!("on purpose");
            }
            if world.rank() == 0 {
                messages.send(&[0_u8], 2, Tag(0)).wait().unwrap();
            }
            let any = |tag| messages.recv::<u8>(Source::Any, Tag(tag)).deadline(SOON).wait();
            let error = any(2).unwrap_err();
            assert_eq!(error.to_string(), "recv with tag 2 from any rank: rank 2 died", "{error}");
            assert_eq!(messages.acknowledge_failures(), [2]);
            let other = 1 - world.rank();
            messages.send(&[7_u8], other, Tag(1)).wait().unwrap();
            assert_eq!(any(1).unwrap().0, [7]);
            assert_eq!(
                messages.recv::<u8>(2, Tag(0)).deadline(SOON).wait().unwrap_err().fault().kind(),
                FaultKind::PeerDied
            );
        })
    });
    let panicked = outcomes.unwrap_err();
    assert_eq!(panicked.downcast_ref(), Some(&"on purpose"));
}

/// A receive from any rank fails by a death only if no message is its own: no later one overtakes.
#[test]
fn a_death_leaves_the_messages_of_the_living_in_their_order() {
    const SENT: usize = 6;
    const LEN: usize = 20_000;
    let all = [Protocol::Rget, Protocol::Rput, Protocol::Pipeline, Protocol::Copy];
    for (by, after) in all.into_iter().flat_map(|by| (0..40).map(move |step| (by, 1_000_000 + step * 4_000))) {
        let network = Network { detection: Duration::ZERO, ..Network::default() };
        let simulation = Simulation::new(network).ranks(3).kill(2, Duration::from_nanos(after));
        let report = simulation.run(|world| async move {
            let messages = Messages::new(&world).await.unwrap();
            messages.set_rendezvous(by);
            world.fabric().sleep(1_000_000 - world.fabric().now()).await;
            match world.rank() {
                0 => {
                    let buffers = (0..SENT).map(|number| filled(&messages, number, LEN));
                    let sends: Vec<_> = buffers.map(|buffer| messages.send_buffer(buffer, 1, Tag(0))).collect();
                    for send in sends {
                        send.await.unwrap();
                    }
                }
                1 => {
                    let mut number = 0;
                    while number < SENT {
                        match messages.recv::<u64>(Source::Any, Tag(0)).await {
                            Ok((got, _)) => {
                                assert!(got == words(number, LEN), "message {number} by {by:?} at {after} ns");
                                number += 1;
                            }
                            Err(error) => {
                                assert_eq!(error.kind(), FaultKind::PeerDied, "{error}");
                                messages.acknowledge_failures();
                            }
                        }
                    }
                }
                _ => world.fabric().sleep(1 << 40).await,
            }
        });
        assert_eq!(report.end, End::Finished, "{by:?}, {after} ns");
        assert!(report.results[0].is_some() && report.results[1].is_some());
    }
}

/// Receives that were posted move while their rank waits for its own sends (MPI-4.1, section
/// 3.7.4).
#[test]
fn a_ring_of_posted_receives_ends_though_sends_are_waited_for_first() {
    const LEN: usize = 100_000;
    ranks(4, |world, messages| {
        let (me, all) = (world.rank(), world.size());
        let mut into = vec![0_u8; LEN];
        let left = (me + all - 1) % all;
        let receive = messages.recv_into(&mut into, left, Tag(0));
        let vector = messages.recv::<u8>(left, Tag(1));
        let dropped = messages.recv::<u8>(left, Tag(2));
        for tag in 0..3 {
            messages.send(&bytes(me + tag, LEN), (me + 1) % all, Tag(tag)).deadline(SOON).wait().unwrap();
        }
        receive.deadline(SOON).wait().unwrap();
        assert_eq!(into, bytes(left, LEN));
        assert_eq!(vector.deadline(SOON).wait().unwrap().0, bytes(left + 1, LEN));
        // It was read already, and is given back.
        drop(dropped);
        assert_eq!(messages.recv::<u8>(left, Tag(2)).deadline(SOON).wait().unwrap().0, bytes(left + 2, LEN));
    });
}

/// A rank that waits for something else still receives (MPI-4.1, section 2.9).
#[test]
fn a_wait_for_anything_moves_a_rendezvous() {
    ranks(2, |world, messages| {
        let long = bytes(7, 100_000);
        if world.rank() == 0 {
            messages.send(&long, 1, Tag(0)).deadline(Duration::from_secs(20)).wait().unwrap();
            world.barrier().wait().unwrap();
        } else {
            let mut into = vec![0; long.len()];
            let receive = messages.recv_into(&mut into, 0, Tag(0));
            world.barrier().wait().unwrap();
            receive.wait().unwrap();
            assert_eq!(into, long);
        }
    });
}

#[test]
fn receives_that_are_posted_bring_credit() {
    const MANY: u32 = 2_000;
    ranks(3, |world, messages| match world.rank() {
        0 => {
            for number in 0..MANY {
                messages.send(&[number], 1, Tag(0)).deadline(SOON).wait().unwrap();
            }
            messages.send(&[0_u32], 2, Tag(0)).wait().unwrap();
        }
        1 => {
            let receives: Vec<_> = (0..MANY).map(|_| messages.recv::<u32>(0, Tag(0))).collect();
            messages.recv::<u32>(2, Tag(0)).deadline(SOON).wait().unwrap();
            for (number, receive) in (0..MANY).zip(receives) {
                assert_eq!(receive.wait().unwrap().0, [number]);
            }
        }
        _ => {
            messages.recv::<u32>(0, Tag(0)).deadline(SOON).wait().unwrap();
            messages.send(&[0_u32], 1, Tag(0)).wait().unwrap();
        }
    });
}

/// The messages that a dropped communicator has not received hold up no other one.
#[test]
fn a_dropped_communicator_gives_its_credit_back() {
    ranks(2, |world, messages| {
        let other = Messages::new(&world).wait().unwrap();
        if world.rank() == 0 {
            for number in 0..1_000_u32 {
                other.send(&[number; 40], 1, Tag(0)).deadline(SOON).wait().unwrap();
            }
            let error = other.send(&[0_u8; 10_000], 1, Tag(0)).deadline(SOON).wait().unwrap_err();
            assert_eq!(error.fault().kind(), FaultKind::Closed, "{error}");
            for number in 0..1_000_u32 {
                messages.send(&[number; 40], 1, Tag(0)).deadline(SOON).wait().unwrap();
            }
        } else {
            std::thread::sleep(Duration::from_millis(50));
            drop(other);
            for number in 0..1_000_u32 {
                assert_eq!(messages.recv::<u32>(0, Tag(0)).deadline(SOON).wait().unwrap().0, [number; 40]);
            }
        }
    });
}

/// The last messages of a rank that leaves are received, though its end is seen first.
#[test]
fn the_last_messages_of_the_last_other_rank_are_received() {
    for round in 0..200 {
        ranks(2, |world, messages| {
            if world.rank() == 0 {
                messages.send(&[round], 1, Tag(0)).wait().unwrap();
                return;
            }
            assert_eq!(messages.recv::<u32>(Source::Any, Tag(0)).deadline(SOON).wait().unwrap().0, [round]);
            let error = messages.recv::<u32>(Source::Any, Tag(0)).deadline(SOON).wait().unwrap_err();
            assert_eq!(error.fault().kind(), FaultKind::PeerLeft);
        });
    }
}
