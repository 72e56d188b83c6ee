//! What messages by the channels of cards take, in simulated time.

use std::time::Duration;

use onesided_fabric::remote_memory::RemoteMemory;
use onesided_instances as _;
use onesided_sim::{Card, End, Host, Network, Profile, Simulation};
use onesided_two_sided::{Messages, Tag};

/// The time of a stream of messages of a length in elements, `WINDOW` at a time, in nanoseconds.
fn time(network: Network, len: usize, many: usize, seed: u64) -> u64 {
    const WINDOW: usize = 64;
    let report = Simulation::new(network).ranks(2).seed(seed).run(move |world| async move {
        let messages = Messages::new(&world).await.unwrap();
        let (me, other) = (world.rank(), 1 - world.rank());
        let data = vec![u64::from(me); len];
        world.barrier().await.unwrap();
        let start = world.fabric().now();
        for _ in 0..many / WINDOW {
            if me == 0 {
                for send in (0..WINDOW).map(|_| messages.send(&data, other, Tag(0))).collect::<Vec<_>>() {
                    send.await.unwrap();
                }
            } else {
                let receives: Vec<_> = (0..WINDOW).map(|_| messages.recv::<u64>(other, Tag(0))).collect();
                for receive in receives {
                    assert_eq!(receive.await.unwrap().0.len(), len);
                }
            }
        }
        if me == 1 {
            messages.send(&[1_u64], 0, Tag(1)).await.unwrap();
        } else {
            messages.recv::<u64>(1, Tag(1)).await.unwrap();
        }
        world.fabric().now() - start
    });
    assert_eq!(report.end, End::Finished);
    report.results[0].unwrap()
}

/// At 1 % loss, at least 0.7 of the rate without. Of three seeds the one in the middle counts.
#[test]
fn a_stream_of_datagrams_keeps_its_rate_under_loss() {
    let datagrams = Network { datagrams: true, ..Network::default() };
    let slow = Network {
        latency: Duration::from_micros(20),
        bandwidth: 1_000_000_000,
        send: Duration::from_micros(3),
        receive: Duration::from_micros(3),
        ..datagrams.clone()
    };
    for network in [datagrams, slow] {
        for (len, many) in [(1, 3200), (64, 3200), (200, 3200), (1 << 13, 320)] {
            let without = time(network.clone(), len, many, 1);
            let mut with = [1, 2, 3].map(|seed| time(Network { loss: 0.01, ..network.clone() }, len, many, seed));
            with.sort_unstable();
            let kept = without as f64 / with[1] as f64;
            assert!(kept >= 0.7, "{} B: {kept:.2}, {network:?}", 8 * len);
        }
    }
}

/// The time of a stream out of and into registered memory of `LEN` bytes by these rules, in nanoseconds.
fn time_by(rules: &'static str, network: Network) -> f64 {
    const LEN: usize = 1 << 20;
    let report = Simulation::new(network).ranks(2).run(move |world| async move {
        let messages = Messages::new(&world).await.unwrap();
        messages.set_rules(rules.parse().unwrap()).unwrap();
        let other = 1 - world.rank();
        let mut buffers: Vec<_> = (0..16).map(|_| messages.buffer::<u8>(LEN).unwrap()).collect();
        world.barrier().await.unwrap();
        let start = world.fabric().now();
        for round in 0..5_u8 {
            if world.rank() == 0 {
                buffers.iter_mut().for_each(|buffer| buffer.write(0, &[round; 8]));
                let sends: Vec<_> =
                    buffers.drain(..).map(|buffer| messages.send_buffer(buffer, other, Tag(0))).collect();
                for send in sends {
                    buffers.push(send.await.unwrap());
                }
            } else {
                let receives: Vec<_> =
                    buffers.drain(..).map(|buffer| messages.recv_buffer(buffer, other, Tag(0))).collect();
                for receive in receives {
                    let (buffer, _) = receive.await.unwrap();
                    assert_eq!(buffer.read(0..8), [round; 8]);
                    buffers.push(buffer);
                }
            }
        }
        world.fabric().now() - start
    });
    assert_eq!(report.end, End::Finished);
    report.results[0].unwrap() as f64
}

/// Datagrams that are received into their place (UD-ZCopy) save the copies of both ends: a stream of 1 MiB has nearly the
/// rate of RDMA reads, and twice that of packets, where the wire is not as slow as a copy (koop-2008, section 3.2).
#[test]
fn datagrams_that_land_save_copies() {
    for (name, faster) in [("connectx7", 2.0), ("infinihost", 1.7)] {
        let network = Profile::shipped(name).unwrap().network().clone();
        let datagrams = Network { datagrams: true, ..network.clone() };
        let (lands, copy) = (time_by("ud-zcopy", datagrams.clone()), time_by("copy", datagrams));
        let read = time_by("rget", network);
        assert!(
            copy >= faster * lands && read >= 0.9 * lands,
            "{name}: {lands} ns, {copy} by packets, {read} by reads"
        );
    }
}

/// What is longer than a datagram has several: a message of 3,000 B takes more time where they have 2 KiB (koop-2008,
/// section 4.1), and one of 500 B the same.
#[test]
fn longer_messages_than_a_datagram_have_several() {
    let by = |mtu, len: usize| time(Network { datagrams: true, mtu, ..Network::default() }, len / 8, 640, 1);
    assert!(by(2048, 3_000) > by(4096, 3_000) && by(2048, 504) == by(4096, 504));
}

/// The time of a round trip of 8 B between ranks 0 and 1, after all others have sent rank 0 enough for fast paths to it, in
/// nanoseconds, and how many rank 0 has.
fn round_trip(fast_paths: u32, [poll_slot, fetch_receive]: [u64; 2]) -> (u64, u64) {
    const RANKS: u32 = 6;
    let poll_slot = Duration::from_nanos(poll_slot);
    let host = Host { poll_slot, ..Profile::shipped("connectx7").unwrap().network().host.clone() };
    let card = Card { fetch_receive: Duration::from_nanos(fetch_receive), ..Card::default() };
    let network = Network { datagrams: true, connects_after: Some(1), fast_paths, host, card, ..Network::default() };
    let report = Simulation::new(network).ranks(RANKS).run(move |world| async move {
        let messages = Messages::new(&world).await.unwrap();
        let me = world.rank();
        for _ in 0..40_u64 {
            for from in 1..RANKS {
                if me == from {
                    messages.send(&[1_u64], 0, Tag(0)).await.unwrap();
                    messages.recv::<u64>(0, Tag(0)).await.unwrap();
                } else if me == 0 {
                    messages.recv::<u64>(from, Tag(0)).await.unwrap();
                    messages.send(&[1_u64], from, Tag(0)).await.unwrap();
                }
            }
        }
        world.barrier().await.unwrap();
        let start = world.fabric().now();
        for _ in 0..20 {
            if me == 0 {
                messages.send(&[1_u64], 1, Tag(0)).await.unwrap();
                messages.recv::<u64>(1, Tag(0)).await.unwrap();
            } else if me == 1 {
                messages.recv::<u64>(0, Tag(0)).await.unwrap();
                messages.send(&[1_u64], 0, Tag(0)).await.unwrap();
            }
        }
        ((world.fabric().now() - start) / 20, messages.statistics().channels.rings)
    });
    assert_eq!(report.end, End::Finished);
    report.results[0].unwrap()
}

/// A rank polls each of its fast paths: many of them delay all packets (koop-2008, section 4.2).
#[test]
fn fast_paths_that_are_polled_take_time() {
    let [none, one, five] = [0, 1, 5].map(|fast_paths| round_trip(fast_paths, [100, 0]));
    assert_eq!([none.1, one.1, five.1], [0, 1, 5]);
    assert!(none.0 < one.0 && one.0 + 200 < five.0, "{none:?} {one:?} {five:?}");
}

/// What a fast path carries takes no receive: where that takes time, one is faster than the connection, and many are
/// slower (koop-2008, sections 2.1.1 and 4.2).
#[test]
fn few_fast_paths_are_faster_and_many_slower() {
    let [none, one, five] = [0, 1, 5].map(|fast_paths| round_trip(fast_paths, [150, 300]));
    assert_eq!([none.1, one.1, five.1], [0, 1, 5]);
    assert!(one.0 + 100 < none.0 && none.0 + 100 < five.0, "{none:?} {one:?} {five:?}");
}
