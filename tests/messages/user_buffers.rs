//! Messages out of and into the program's own memory.

use std::sync::mpsc::{Receiver, channel};
use std::time::Duration;

use onesided_fabric::remote_memory::FaultKind;
use onesided_fabric::{Fabric, UserMemory, World, threads};
use onesided_instances as _;
use onesided_sim::{End, Network, Simulation};
use onesided_two_sided::{Messages, Protocol, Tag};

use crate::support::{filled, ranks, words};

const SOON: Duration = Duration::from_secs(60);
const ALL: [Protocol; 4] = [Protocol::Rget, Protocol::Rput, Protocol::Pipeline, Protocol::Copy];
/// In words: none, eager, and by rendezvous.
const LENGTHS: [usize; 5] = [0, 1, 100, 2_000, 100_000];

/// Out of and into vectors, library buffers and slices; and a receive that another wait moves.
async fn exchange<F: Fabric>(world: &World<F>, by: Protocol) -> bool {
    let messages = Messages::new(world).await.unwrap();
    messages.set_rendezvous(by);
    let (me, other) = (world.rank() as usize, 1 - world.rank());
    for len in LENGTHS {
        let (sent, expected) = (words(me, len), words(other as usize, len));
        let mut out = messages.buffer_of(sent.clone());
        for round in 0..3 {
            let early = messages.recv_buffer(messages.buffer_of(vec![0_u64; len + round]), other, Tag(0));
            let send = messages.send_buffer(out, other, Tag(0));
            let of_library = messages.send_buffer(filled(&messages, me, len), other, Tag(1));
            let slice = messages.send(&sent, other, Tag(2));
            let (mut got, status) =
                messages.recv_buffer(messages.buffer_of(vec![0_u64; len + 3]), other, Tag(1)).await.unwrap();
            assert_eq!((got.len(), got.capacity(), status.bytes), (len, len + 3, 8 * len as u64));
            assert!(got.read(0..len) == expected, "{by}, {len} words");
            got.set_len(len + 3);
            got = messages.recv_buffer(got, other, Tag(2)).await.unwrap().0;
            let vec = got.into_vec().unwrap();
            assert!(vec == expected && vec.capacity() >= len + 3, "{by}, {len} words");
            let early = early.await.unwrap().0.into_vec().unwrap();
            assert!(early == expected, "{by}, {len} words");
            of_library.await.unwrap();
            slice.await.unwrap();
            out = send.await.unwrap();
            assert!(out.read(0..len) == sent, "{by}, {len} words");
        }
        // To this rank itself, and by a slice's receive.
        let own = messages.send_buffer(out, world.rank(), Tag(3)).await.unwrap();
        assert!(messages.recv::<u64>(world.rank(), Tag(3)).await.unwrap().0 == sent);
        let send = messages.send_buffer(own, other, Tag(4));
        assert!(messages.recv::<u64>(other, Tag(4)).await.unwrap().0 == expected, "{by}, {len} words");
        assert!(send.await.unwrap().into_vec().unwrap() == sent, "{by}, {len} words");
    }
    messages.registrations().refusals > 0
}

#[test]
fn vectors_go_to_vectors_buffers_and_slices() {
    for by in ALL {
        let refused = threads(2, |world| onesided_fabric::block_on(world.fabric(), exchange(&world, by))).unwrap();
        assert_eq!(refused, [false; 2], "{by}");
    }
}

#[test]
fn simulated_vectors_go_where_memory_may_be_registered_and_elsewhere() {
    for (by, limited) in ALL.into_iter().flat_map(|by| [&[][..], &[0][..], &[0, 1]].map(|limited| (by, limited))) {
        for datagrams in [false, true] {
            let simulation = limited
                .iter()
                .fold(Simulation::new(Network { datagrams, ..Network::default() }).ranks(2), |simulation, rank| {
                    simulation.limit_memory(*rank, 300 << 10)
                });
            let report = simulation.run(|world| async move { exchange(&world, by).await });
            assert_eq!(report.end, End::Finished, "{by}, {limited:?}");
            assert_eq!(report.results, [0, 1].map(|rank| Some(limited.contains(&rank))), "{by}, {limited:?}");
        }
    }
}

/// The program has the very memory back, and a buffer of short elements as many as it had.
#[test]
fn a_vector_comes_back_unmoved() {
    ranks(2, |world, messages| {
        let vec = words(7, 50_000);
        let start = vec.as_ptr();
        let buffer = messages.buffer_of(vec);
        assert_eq!((buffer.len(), buffer.capacity()), (50_000, 50_000));
        let buffer = match world.rank() {
            0 => messages.send_buffer(buffer, 1, Tag(0)).deadline(SOON).wait().unwrap(),
            _ => messages.recv_buffer(buffer, 0, Tag(0)).deadline(SOON).wait().unwrap().0,
        };
        let vec = buffer.into_vec().unwrap();
        assert_eq!(vec.as_ptr(), start);

        let mut odd = messages.buffer_of(vec![9_u8; 30_001]);
        assert_eq!((odd.len(), odd.capacity()), (30_001, 30_001));
        odd.set_len(20_003);
        assert_eq!(odd.into_vec().unwrap(), [9; 20_003]);
        let memory = messages.buffer_of(vec![9_u8; 3]).into_memory().unwrap();
        assert_eq!(memory.into_vec::<u8>().unwrap(), [9; 3]);
        let other_type = messages.buffer_from::<u16>(vec![7_u32, 8].into());
        assert_eq!((other_type.capacity(), other_type.into_vec().unwrap()), (4, vec![7, 0, 8, 0]));
        assert_eq!(filled(&messages, 5, 10).into_vec().unwrap(), words(5, 10));
        let error = filled(&messages, 5, 10).into_memory().unwrap_err();
        assert_eq!(error.kind(), FaultKind::Unsupported);
    });
}

/// No memory of the library is registered, although another wait moves the message, or its sender does.
#[test]
fn a_message_goes_to_the_memory_of_its_receive_whoever_moves_it() {
    ranks(2, |world, messages| {
        for (count, by) in (1..).zip([Protocol::Rget, Protocol::Rput, Protocol::Pipeline]) {
            messages.set_rendezvous(by);
            let buffer = messages.buffer_of(words(world.rank() as usize, 50_000));
            if world.rank() == 0 {
                drop(messages.send_buffer(buffer, 1, Tag(0)).deadline(SOON).wait().unwrap());
                messages.send(&[1_u8], 1, Tag(1)).wait().unwrap();
            } else {
                let early = messages.recv_buffer(buffer, 0, Tag(0));
                messages.recv::<u8>(0, Tag(1)).deadline(SOON).wait().unwrap();
                assert!(early.deadline(SOON).wait().unwrap().0.into_vec().unwrap() == words(0, 50_000), "{by}");
            }
            assert_eq!(messages.registrations().count, count, "{by}");
        }
    });
}

/// Memory that tells when it is freed.
fn telling(len: usize) -> (UserMemory, Receiver<()>) {
    let (tell, freed) = channel();
    (UserMemory::from(words(3, len)).returned(move |_| tell.send(()).unwrap()), freed)
}

/// A send that was dropped has the memory until its message is read; a buffer, until it is dropped. No
/// later message gets it.
#[test]
fn memory_is_freed_when_no_message_has_it() {
    for by in ALL {
        ranks(2, |world, messages| {
            messages.set_rendezvous(by);
            for len in [100, 50_000] {
                let (memory, freed) = telling(len);
                let buffer = messages.buffer_from::<u64>(memory);
                assert!(freed.try_recv().is_err());
                if world.rank() == 0 {
                    drop(messages.send_buffer(buffer, 1, Tag(0)));
                    assert!(freed.try_recv().is_ok() == (len == 100), "{by}: an eager message is a copy");
                    world.barrier().wait().unwrap();
                    messages.recv::<u8>(1, Tag(1)).deadline(SOON).wait().unwrap();
                    assert!(len == 100 || freed.try_recv().is_ok(), "{by}: it was read");
                } else {
                    drop(messages.recv_buffer(buffer, 0, Tag(9)));
                    assert!(freed.try_recv().is_ok(), "{by}: its receive is gone");
                    world.barrier().wait().unwrap();
                    assert!(messages.recv::<u64>(0, Tag(0)).deadline(SOON).wait().unwrap().0 == words(3, len), "{by}");
                    messages.send(&[1_u8], 0, Tag(1)).wait().unwrap();
                }
            }
        });
    }
}

/// A handle that is leaked keeps the memory: the message may be read whenever it is received.
#[test]
fn a_leaked_send_leaks_its_memory() {
    ranks(2, |world, messages| {
        if world.rank() == 0 {
            let (memory, freed) = telling(50_000);
            std::mem::forget(messages.send_buffer(messages.buffer_from::<u64>(memory), 1, Tag(0)));
            world.barrier().wait().unwrap();
            messages.recv::<u8>(1, Tag(1)).deadline(SOON).wait().unwrap();
            assert!(freed.try_recv().is_err());
        } else {
            world.barrier().wait().unwrap();
            assert!(messages.recv::<u64>(0, Tag(0)).deadline(SOON).wait().unwrap().0 == words(3, 50_000));
            messages.send(&[1_u8], 0, Tag(1)).wait().unwrap();
        }
    });
}
