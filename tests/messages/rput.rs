//! Long messages by every protocol: their receiver reads them (RGET), or their sender writes them, whole
//! (RPUT: sur-2006, section 3) or in pieces (the pipeline of woodall-2006), or sends them in packets (copy).

use std::time::Duration;

use onesided_fabric::remote_memory::RemoteMemory;
use onesided_fabric::{Fabric, World, threads};
use onesided_instances as _;
use onesided_sim::{End, Network, Simulation};
use onesided_two_sided::{Messages, ProgressMode, Protocol, Shape, Source, Tag};

use crate::support::{filled, ranks, words};

const SOON: Duration = Duration::from_secs(60);
/// In words: eager, and by rendezvous.
const LENGTHS: [usize; 5] = [0, 100, 1_000, 20_000, 200_000];

const WRITTEN: [Protocol; 2] = [Protocol::Rput, Protocol::Pipeline];
const BY: [Protocol; 4] = [Protocol::Rget, Protocol::Rput, Protocol::Pipeline, Protocol::Copy];

/// Every rank sends all lengths to the next one at the same time, out of slices and buffers, and
/// receives them by every kind of receive.
async fn ring<F: Fabric>(world: &World<F>, by: Protocol) {
    let messages = Messages::new(world).await.unwrap();
    let (me, all) = (world.rank() as usize, world.size());
    let (left, right) = ((world.rank() + all - 1) % all, (world.rank() + 1) % all);
    let all_lengths = LENGTHS.into_iter().map(|len| (None, len));
    let none_is_eager = LENGTHS[..3].iter().map(|len| (Some(0), *len));
    for (eager, len) in all_lengths.chain(none_is_eager) {
        let eager = eager.map_or(String::from("eager"), |bytes| format!("size<={bytes}: eager"));
        messages.set_rules(format!("{eager}, {by}").parse().unwrap()).unwrap();
        let (sent, expected) = (words(me, len), words(left as usize, len));
        let sends = [(); 5].map(|()| messages.send(&sent, right, Tag(3)));
        let buffer = messages.send_buffer(filled(&messages, me, len), right, Tag(4));
        let synchronous = messages.send_synchronous(&sent, right, Tag(5));
        assert!(messages.recv::<u64>(left, Tag(3)).await.unwrap().0 == expected, "{len} words");
        let mut slice = vec![0; len + 1];
        let status = messages.recv_into(&mut slice, Source::Any, Tag(3)).await.unwrap();
        assert_eq!((status.source, status.bytes), (left, 8 * len as u64));
        assert!(slice[..len] == expected, "{len} words");
        let mut column = vec![0; 2 * len];
        let places = Shape::Vector { count: len, block: 1, stride: 2 };
        messages.recv_shaped(&mut column, places, left, Tag(3)).await.unwrap();
        assert!(column.iter().step_by(2).eq(&expected), "{len} words");
        let message = messages.match_probe(left, Tag(3)).await.unwrap();
        assert!(message.recv::<u64>().await.unwrap().0 == expected, "{len} words");
        for tag in [3, 4, 5] {
            // As long as the message, or longer.
            let into = messages.buffer::<u64>(len * (1 + usize::from(tag == 3))).unwrap();
            let (got, _) = messages.recv_buffer(into, left, Tag(tag)).await.unwrap();
            assert!(got.read(0..got.len()) == expected, "{len} words");
        }
        synchronous.await.unwrap();
        assert!(buffer.await.unwrap().read(0..len) == sent);
        for send in sends {
            send.await.unwrap();
        }
    }
}

#[test]
fn all_lengths_travel_around_a_ring_of_threads() {
    for (by, size) in BY.into_iter().flat_map(|by| [1, 2, 4].map(|size| (by, size))) {
        threads(size, |world| onesided_fabric::block_on(world.fabric(), ring(&world, by))).unwrap();
    }
}

/// The FIN of a write goes behind it, and is there before the sender knows that the write is over; that
/// of datagrams, which go their own way, is sent then.
#[test]
fn a_fin_goes_behind_its_write_where_it_follows_it() {
    for (by, datagrams) in WRITTEN.into_iter().flat_map(|by| [false, true].map(|datagrams| (by, datagrams))) {
        let network = Network { datagrams, latency: Duration::from_millis(1), ..Network::default() };
        let report = Simulation::new(network).ranks(2).run(|world| async move {
            let messages = Messages::new(&world).await.unwrap();
            messages.set_rendezvous(by);
            let sent = words(0, LENGTHS[4]);
            match world.rank() {
                0 => messages.send(&sent, 1, Tag(0)).await.unwrap(),
                _ => assert!(messages.recv::<u64>(0, Tag(0)).await.unwrap().0 == sent),
            }
            world.fabric().now()
        });
        assert_eq!(report.end, End::Finished);
        let ended: Vec<_> = report.results.into_iter().flatten().collect();
        assert_eq!(ended[1] < ended[0], !datagrams, "{by:?}: {ended:?}");
    }
}

const BEGIN: Duration = Duration::from_millis(1);

#[test]
fn what_is_under_way_is_shown_and_explained() {
    ranks(2, |world, messages| {
        messages.set_rendezvous(Protocol::Rput);
        let (me, other) = (world.rank(), 1 - world.rank());
        let explained = messages.explain(other, 100_000).unwrap();
        assert_eq!((explained.protocol(), messages.rendezvous()), (Protocol::Rput, Protocol::Rput));
        assert!(
            explained.to_string().contains("(the program)\n  eager  passed over: it is longer than a packet\n> rput   copied by the sender, written"),
            "{explained}"
        );
        assert_eq!(messages.explain(me, 100_000).unwrap().protocol(), Protocol::Rget);
        messages.set_rendezvous(Protocol::Pipeline);
        let explained = messages.explain(other, 100_000).unwrap();
        assert_eq!((explained.protocol(), messages.rendezvous()), (Protocol::Pipeline, Protocol::Pipeline));
        assert!(explained.to_string().contains("\n> pipeline  as rput, in pieces"), "{explained}");
        messages.set_rendezvous(Protocol::Copy);
        let explained = messages.explain(other, 100_000).unwrap();
        assert_eq!((explained.protocol(), messages.rendezvous()), (Protocol::Copy, Protocol::Copy));
        assert!(explained.to_string().contains("\n> copy   copied by both"), "{explained}");
        messages.set_rendezvous(Protocol::Rput);
        if me == 1 {
            world.barrier().wait().unwrap();
            assert_eq!(messages.recv::<u8>(0, Tag(9)).deadline(SOON).wait().unwrap().0, [3; 100_000]);
            return;
        }
        let send = messages.send(&[3_u8; 100_000], 1, Tag(9));
        let dump = onesided_fabric::dump().to_string();
        assert!(dump.contains("to be written when its receiver is ready"), "{dump}");
        world.barrier().wait().unwrap();
        send.deadline(SOON).wait().unwrap();
    });
}

/// W/T of a rank that computes for W between the start and the wait of 1 MiB, as percentages: of the
/// sender and of the receiver.
fn overlap(rendezvous: Protocol, mode: ProgressMode) -> [u64; 2] {
    const W: u64 = 200_000;
    [0, 1].map(|computes| {
        let report = Simulation::new(Network::default()).ranks(2).run(|world| async move {
            let messages = Messages::new(&world).await.unwrap();
            messages.set_rendezvous(rendezvous);
            messages.set_progress(mode).unwrap();
            let mut buffer = messages.buffer::<u8>(1 << 20).unwrap();
            let fabric = world.fabric();
            // Memory is open, and both begin at one time.
            let mut begin = 0;
            for round in 0..2 {
                fabric.sleep(BEGIN.as_nanos() as u64 * (round + 1) - fabric.now()).await;
                begin = fabric.now();
                let compute = async {
                    if round == 1 && world.rank() == computes {
                        fabric.sleep(W).await;
                    }
                };
                if world.rank() == 0 {
                    let send = messages.send_buffer(buffer, 1, Tag(0));
                    compute.await;
                    buffer = send.await.unwrap();
                } else {
                    let receive = messages.recv_buffer(buffer, 0, Tag(0));
                    compute.await;
                    buffer = receive.await.unwrap().0;
                }
            }
            let took = fabric.now() - begin;
            messages.set_progress(ProgressMode::Polling).unwrap();
            took
        });
        assert_eq!(report.end, End::Finished);
        W * 100 / report.results[computes as usize].unwrap()
    })
}

/// sur-2006, Figures 4 and 5: a sender overlaps by RGET alone, a receiver by neither; with progress
/// of its own a rank overlaps by both.
#[test]
fn a_sender_that_computes_holds_up_what_it_writes_and_not_what_is_read() {
    let polling = [Protocol::Rget, Protocol::Rput].map(|rendezvous| overlap(rendezvous, ProgressMode::Polling));
    let threads = [Protocol::Rget, Protocol::Rput].map(|rendezvous| overlap(rendezvous, ProgressMode::Thread));
    let [[read_sender, read_receiver], [write_sender, write_receiver]] = polling;
    assert!(
        read_sender > 95 && [read_receiver, write_sender, write_receiver].iter().all(|ratio| *ratio < 75),
        "{polling:?}"
    );
    assert!(threads.as_flattened().iter().all(|ratio| *ratio > 90), "{threads:?}");
}
