//! Long messages for which no memory can be registered, at their sender, their receiver or both: they
//! come in packets (copy: woodall-2006), over connections and datagrams.

use std::time::Duration;

use onesided_fabric::remote_memory::{FaultKind, RemoteMemory};
use onesided_fabric::{Fabric, World};
use onesided_instances as _;
use onesided_sim::{End, Network, Simulation};
use onesided_two_sided::{Messages, Protocol, Shape, Tag};

use crate::support::{filled, words};

const ALL: [Protocol; 4] = [Protocol::Rget, Protocol::Rput, Protocol::Pipeline, Protocol::Copy];
/// In words: of one packet, of one piece, and more than a rank may register.
const LENGTHS: [usize; 3] = [100, 4_000, 100_000];
/// In bytes. There is memory for some pieces.
const LIMIT: u64 = 300 << 10;

/// Both ranks send all lengths to one another, and receive them by every kind of receive: in their
/// order, or the last one first, so that another task moves the others. Whether memory was refused.
async fn exchange<F: Fabric>(world: &World<F>, by: Protocol) -> bool {
    let messages = Messages::new(world).await.unwrap();
    messages.set_rendezvous(by);
    let (me, other) = (world.rank(), 1 - world.rank());
    for len in LENGTHS {
        let (sent, expected) = (words(me as usize, len), words(other as usize, len));
        let sends = [0, 1, 2, 3].map(|tag| messages.send(&sent, other, Tag(tag)));
        let synchronous = messages.send_synchronous(&sent, other, Tag(4));
        let (mut slice, mut column) = (vec![0; len], vec![0; 2 * len]);
        let places = Shape::Vector { count: len, block: 1, stride: 2 };
        let early = messages.recv::<u64>(other, Tag(0));
        let into = messages.recv_into(&mut slice, other, Tag(1));
        let shaped = messages.recv_shaped(&mut column, places, other, Tag(2));
        assert!(messages.recv::<u64>(other, Tag(4)).await.unwrap().0 == expected, "{len} words");
        let message = messages.match_probe(other, Tag(3)).await.unwrap();
        assert!(message.recv::<u64>().await.unwrap().0 == expected, "{len} words");
        shaped.await.unwrap();
        into.await.unwrap();
        assert!(early.await.unwrap().0 == expected && slice == expected, "{len} words");
        assert!(column.iter().step_by(2).eq(&expected), "{len} words");
        synchronous.await.unwrap();
        for send in sends {
            send.await.unwrap();
        }
        // Out of and into buffers: that of a receive which is waited for, and of one that is not.
        let early = messages.recv_buffer(messages.buffer::<u64>(len).unwrap(), other, Tag(7));
        let sends = [7, 8].map(|tag| messages.send_buffer(filled(&messages, me as usize, len), other, Tag(tag)));
        let late = messages.recv_buffer(messages.buffer::<u64>(len).unwrap(), other, Tag(8)).await;
        for received in [late, early.await] {
            assert!(received.unwrap().0.read(0..len) == expected, "{len} words");
        }
        for send in sends {
            assert!(send.await.unwrap().read(0..len) == sent, "{len} words");
        }
        // To this rank itself.
        let own = [messages.send(&sent, me, Tag(5)), messages.send_synchronous(&sent, me, Tag(6))];
        for tag in [6, 5] {
            assert!(messages.recv::<u64>(me, Tag(tag)).await.unwrap().0 == sent, "{len} words");
        }
        for send in own {
            send.await.unwrap();
        }
    }
    messages.registrations().refusals > 0
}

#[test]
fn they_come_all_the_same() {
    for (by, limited) in ALL.into_iter().flat_map(|by| [&[0][..], &[1], &[0, 1]].map(|limited| (by, limited))) {
        for (datagrams, limit) in [(false, LIMIT), (true, LIMIT), (false, 1 << 10)] {
            let network = Network { datagrams, loss: if datagrams { 0.01 } else { 0.0 }, ..Network::default() };
            let simulation = limited
                .iter()
                .fold(Simulation::new(network).ranks(2), |simulation, rank| simulation.limit_memory(*rank, limit));
            let report = simulation.run(|world| async move { exchange(&world, by).await });
            assert_eq!(report.end, End::Finished, "{by}, {limited:?}, {limit}");
            let refused = [0, 1].map(|rank| Some(limited.contains(&rank)));
            assert_eq!(report.results, refused, "{by}, {limited:?}, {limit}");
        }
    }
}

/// Nor is any registered where the sender chose packets.
#[test]
fn packets_need_no_registered_memory() {
    let report = Simulation::new(Network::default()).ranks(2).run(|world| async move {
        let messages = Messages::new(&world).await.unwrap();
        messages.set_rendezvous(Protocol::Copy);
        let (sent, other) = (words(3, LENGTHS[2]), 1 - world.rank());
        let (send, receive) = (messages.send(&sent, other, Tag(0)), messages.recv::<u64>(other, Tag(0)));
        assert!(receive.await.unwrap().0 == sent);
        send.await.unwrap();
        messages.registrations().count
    });
    assert_eq!(report.end, End::Finished);
    assert_eq!(report.results, [Some(0), Some(0)]);
}

/// Memory that is kept for later messages does not keep one of another length from being registered.
#[test]
fn what_is_kept_gives_way() {
    let report = Simulation::new(Network::default()).ranks(2).limit_memory(0, 1 << 20).run(|world| async move {
        let messages = Messages::new(&world).await.unwrap();
        for len in [60_000, 90_000, 120_000] {
            match world.rank() {
                0 => drop(messages.send_buffer(filled(&messages, 1, len), 1, Tag(0)).await.unwrap()),
                _ => assert!(messages.recv::<u64>(0, Tag(0)).await.unwrap().0 == words(1, len)),
            }
        }
        messages.registrations().count
    });
    assert_eq!(report.end, End::Finished);
    assert_eq!(report.results[0], Some(3));
}

/// Whenever one of two ranks dies, the other has the message, whole, or the fault.
#[test]
fn a_death_at_any_time_ends_what_waits_for_it() {
    const BEGIN: u64 = 1_000_000;
    for (by, limited) in ALL.into_iter().flat_map(|by| [0, 1].map(|limited| (by, limited))) {
        for (dead, after) in (0..2).flat_map(|dead| (0..150_000).step_by(7_500).map(move |after| (dead, after))) {
            let simulation = Simulation::new(Network::default()).ranks(2).limit_memory(limited, LIMIT);
            let report = simulation.kill(dead, Duration::from_nanos(BEGIN + after)).run(|world| async move {
                let messages = Messages::new(&world).await.unwrap();
                messages.set_rendezvous(by);
                world.fabric().sleep(BEGIN - world.fabric().now()).await;
                let sent = words(7, LENGTHS[2]);
                let outcome = match world.rank() {
                    0 => messages.send(&sent, 1, Tag(0)).await,
                    _ => messages.recv::<u64>(0, Tag(0)).await.map(|(got, _)| assert!(got == sent)),
                };
                outcome.map_err(|error| error.fault().kind())
            });
            assert_eq!(report.end, End::Finished, "{by}: rank {dead} after {after} ns");
            match report.results[1 - dead as usize] {
                Some(Ok(()) | Err(FaultKind::PeerDied | FaultKind::NoSuchRegion)) => {}
                ref other => panic!("{by}: rank {dead} after {after} ns: {other:?}"),
            }
        }
    }
}
