//! Long transfers of messages over several connections. `ONESIDED_DEVICE=rxe0,rxe1` has them over two cards.
#![allow(clippy::print_stderr)] // reports skipped tests

use std::sync::Mutex;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use onesided_fabric::remote_memory::{FaultKind, Liveness, Patience, Rank, RemoteMemory};
use onesided_fabric::verbs::{Verbs, VerbsSegment};
use onesided_fabric::{Fabric, Fencing, Renewed, Segment, SegmentKey, Transport, World, block_on, wait_timeout};

use crate::connections::eventually;
use crate::support::{self, Barrier, device};
use crate::{LONG, kind, ranks, until};

const LEN: u64 = (1 << 20) + 64;

/// This rank's memory of messages, and the other's.
fn memory(world: &World<Verbs>) -> [VerbsSegment; 2] {
    let messages = world.fabric().for_messages();
    let own = messages.allocate(LEN).unwrap();
    let keys = block_on(world.fabric(), world.all_gather(&own.key().to_bytes())).unwrap();
    let key = SegmentKey::from_bytes(&keys[1 - world.rank() as usize]).unwrap();
    [own, messages.open(&key).unwrap()]
}

/// Bytes that tell their place, and the number of a transfer: in words, because an emulated processor makes them.
fn bytes(seed: u64, len: u64) -> Vec<u8> {
    let words: Vec<u64> =
        (0..len.div_ceil(8)).map(|at| (at ^ seed << 32).wrapping_mul(0x9e37_79b9_7f4a_7c15)).collect();
    bytemuck::cast_slice(&words)[..len as usize].to_vec()
}

fn fill(fabric: &Verbs, own: &VerbsSegment, seed: u64) {
    fabric.write_direct(own, 0, &bytes(seed, LEN)).unwrap();
}

fn copy(fabric: &Verbs, own: &VerbsSegment, at: u64, len: u64) -> Vec<u8> {
    let mut bytes = vec![0; len as usize];
    fabric.read_direct(own, at, &mut bytes).unwrap();
    bytes
}

/// Transfers until all rails to the other rank are there.
fn warm_up(messages: &Verbs, [own, theirs]: &[VerbsSegment; 2], rails: usize) {
    let posted = || (0..rails).map(|rail| messages.rail(rail).post_counts(theirs.rank())[0]).collect::<Vec<_>>();
    let before = posted();
    eventually("all rails take part", || {
        let read = messages.rdma_read((theirs, 0), (own, 0), 512 << 10);
        assert_eq!(block_on(messages, read), Ok(()));
        posted().iter().zip(&before).all(|(now, before)| now > before)
    });
}

#[test]
fn bytes_are_right_over_several_rails() {
    let Some(_device) = device("bytes_are_right_over_several_rails") else { return };
    ranks(2, |world| {
        let (fabric, messages) = (world.fabric(), world.fabric().for_messages());
        messages.set_rails(3);
        let [own, theirs] = &memory(&world);
        if world.rank() == 0 {
            warm_up(&messages, &[own.clone(), theirs.clone()], 3);
        }
        world.barrier().wait().unwrap();
        let lens = [1, (64 << 10) - 1, 128 << 10, (128 << 10) + 1, (512 << 10) + 13, (768 << 10) - 7, (1 << 20) + 1];
        for (seed, len) in lens.into_iter().enumerate() {
            let (from, to) = (seed as u64, 2 * seed as u64 + 1);
            // Rank 1's memory is read, then written.
            fill(fabric, own, u64::from(world.rank()) + 2 * seed as u64);
            world.barrier().wait().unwrap();
            if world.rank() == 0 {
                let mut expected = bytes(2 * seed as u64, LEN);
                let theirs_then = bytes(2 * seed as u64 + 1, LEN);
                assert_eq!(block_on(fabric, messages.rdma_read((theirs, from), (own, to), len)), Ok(()));
                expected[to as usize..][..len as usize].copy_from_slice(&theirs_then[from as usize..][..len as usize]);
                assert!(copy(fabric, own, 0, LEN) == expected, "read of {len}");
                fill(fabric, own, 77);
                assert_eq!(block_on(fabric, messages.rdma_write((own, from), (theirs, to), len)), Ok(()));
            }
            world.barrier().wait().unwrap();
            if world.rank() == 1 {
                let mut expected = bytes(2 * seed as u64 + 1, LEN);
                expected[to as usize..][..len as usize]
                    .copy_from_slice(&bytes(77, LEN)[from as usize..][..len as usize]);
                assert!(copy(fabric, own, 0, LEN) == expected, "write of {len}");
            }
            world.barrier().wait().unwrap();
        }
    });
}

/// What is short, and what is no message, has one connection.
#[test]
fn only_long_transfers_of_messages_have_rails() {
    let Some(_device) = device("only_long_transfers_of_messages_have_rails") else { return };
    ranks(2, |world| {
        let (fabric, messages, other) = (world.fabric(), world.fabric().for_messages(), Rank(1 - world.rank()));
        messages.set_rails(3);
        let [own, theirs] = &memory(&world);
        if world.rank() == 0 {
            assert_eq!(block_on(fabric, messages.rdma_read((theirs, 0), (own, 0), (128 << 10) - 1)), Ok(()));
            let windows = fabric.open(&theirs.key()).unwrap();
            assert_eq!(block_on(fabric, fabric.rdma_read((&windows, 0), (own, 0), LEN)), Ok(()));
            assert_eq!([1, 2].map(|rail| messages.rail(rail).post_counts(other)[0]), [0; 2]);
            assert_eq!(fabric.connections(), 3); // its own, for memory, for messages
        }
        world.barrier().wait().unwrap();
    });
}

/// One rail fails under load again and again, at either side: no transfer fails, all bytes are right, and
/// the rail comes back. A write is over when nothing of it can arrive over the failed rail any more.
#[test]
fn a_rail_that_fails_leaves_transfers_to_the_others() {
    let Some(_device) = device("a_rail_that_fails_leaves_transfers_to_the_others") else { return };
    const ROUNDS: u64 = 12;
    let (begun, peer) = (AtomicU32::new(0), Mutex::new(None));
    ranks(2, |world| {
        let (fabric, messages, other) = (world.fabric(), world.fabric().for_messages(), Rank(1 - world.rank()));
        messages.set_rails(2);
        let all = memory(&world);
        let [own, theirs] = &all;
        let rail = messages.rail(1);
        if world.rank() == 1 {
            *peer.lock().unwrap() = Some(rail.clone());
        }
        for round in 0..ROUNDS {
            let writes = round % 2 == 1;
            // A short one is over soon: before the rail is made anew, if nothing waits for that.
            let len = if round % 6 < 2 { (128 << 10) + 1 } else { LEN - 1 };
            let (before_it, during_it, at_peer) = (round % 6 < 2, (2..4).contains(&(round % 6)), round % 6 > 3);
            if world.rank() == 0 {
                warm_up(&messages, &all, 2);
            }
            fill(fabric, own, 2 * round + u64::from(world.rank()));
            world.barrier().wait().unwrap();
            if world.rank() == 0 {
                let (known, posted) = (rail.breaks(other), rail.post_counts(other)[0]);
                if before_it {
                    rail.break_connection(other);
                }
                let begin = || match writes {
                    true => messages.rdma_write((own, 1), (theirs, 0), len),
                    false => messages.rdma_read((theirs, 1), (own, 0), len),
                };
                let mut transfer = begin();
                begun.store(round as u32 + 1, Ordering::SeqCst);
                if during_it {
                    rail.break_connection(other);
                }
                assert_eq!(wait_timeout(fabric, &mut transfer, LONG), Some(Ok(())), "round {round}");
                if before_it {
                    // A rail that has become expensive is left out now and then.
                    eventually("the rail takes part", || {
                        let takes_part = rail.post_counts(other)[0] > posted;
                        if !takes_part {
                            assert_eq!(wait_timeout(fabric, &mut begin(), LONG), Some(Ok(())), "round {round}");
                        }
                        takes_part
                    });
                    let at_peer = peer.lock().unwrap().as_ref().map(|rail: &Verbs| rail.breaks(fabric.rank()));
                    assert!(!writes || at_peer > Some(known), "round {round}");
                }
            } else if at_peer {
                eventually("the transfer begins", || begun.load(Ordering::SeqCst) > round as u32);
                rail.break_connection(other);
            }
            world.barrier().wait().unwrap();
            if writes == (world.rank() == 1) {
                let seed = 2 * round + u64::from(1 - world.rank());
                assert!(copy(fabric, own, 0, len) == bytes(seed, len + 1)[1..], "round {round}");
            }
            world.barrier().wait().unwrap();
        }
        peer.lock().unwrap().take();
        assert_eq!(messages.breaks(other), 0); // of the first rail
        assert_eq!(fabric.lost_connection(fabric.rank(), Rank(0)), None);
        world.barrier().wait().unwrap();
    });
}

/// The first rail fails with the other one: the transfer fails and names its peer, the loss is reported
/// once, and all rails are made anew.
#[test]
fn the_first_rail_ends_the_others() {
    let Some(_device) = device("the_first_rail_ends_the_others") else { return };
    for both in [true, false] {
        let gone = Barrier::new(2);
        ranks(2, |world| {
            let (fabric, messages, other) = (world.fabric(), world.fabric().for_messages(), Rank(1 - world.rank()));
            messages.set_rails(2);
            let mut packets = messages.transport().unwrap();
            let patience = || Patience::on(other).and_until(until(fabric, LONG));
            let all = memory(&world);
            let [own, theirs] = &all;
            if world.rank() == 0 {
                warm_up(&messages, &all, 2);
                if both {
                    messages.rail(1).break_connection(other);
                }
                messages.break_connection(other);
                let mut fault = None;
                eventually("the first rail takes part", || {
                    let mut write = messages.rdma_write((own, 0), (theirs, 0), LEN);
                    fault = wait_timeout(fabric, &mut write, LONG).expect("it ends").err();
                    fault.is_some()
                });
                let fault = fault.unwrap();
                assert!(matches!(fault.kind(), FaultKind::Unknown | FaultKind::ConnectionLost), "{fault}");
                assert_eq!(fault.rank(), Some(other));
            }
            let lost = block_on(fabric, packets.recv(patience()));
            assert_eq!((kind(lost.clone()), lost.unwrap_err().rank()), (FaultKind::ConnectionLost, Some(other)));
            assert!(matches!(packets.renewed(other), Some(Renewed { .. })));
            assert!(messages.rail(1).breaks(other) > 0, "it has ended with the first one");
            gone.wait();
            if world.rank() == 0 {
                fill(fabric, own, 5);
                block_on(fabric, packets.send(other, b"again")).unwrap();
                let before = messages.rail(1).post_counts(other)[0];
                eventually("the other rail takes part again", || {
                    assert_eq!(block_on(fabric, messages.rdma_write((own, 0), (theirs, 0), LEN)), Ok(()));
                    messages.rail(1).post_counts(other)[0] > before
                });
                block_on(fabric, packets.send(other, b"written")).unwrap();
            } else {
                assert_eq!(block_on(fabric, packets.recv(patience())).unwrap().1, b"again");
                assert_eq!(block_on(fabric, packets.recv(patience())).unwrap().1, b"written");
                assert!(copy(fabric, own, 0, LEN) == bytes(5, LEN));
            }
            world.barrier().wait().unwrap();
        });
    }
}

/// A rank that has not noticed that the connection of messages broke gets no rail from the one that has:
/// it would move what belongs to messages that have ended there. It learns of the break instead.
#[test]
fn a_rail_belongs_to_one_connection_of_messages() {
    let Some(_device) = device("a_rail_belongs_to_one_connection_of_messages") else { return };
    let (renewed, looked) = (Barrier::new(2), Barrier::new(2));
    ranks(2, |world| {
        let (fabric, messages, other) = (world.fabric(), world.fabric().for_messages(), Rank(1 - world.rank()));
        messages.set_rails(2);
        let mut packets = messages.transport().unwrap();
        let patience = || Patience::on(other).and_until(until(fabric, LONG));
        let all = memory(&world);
        let [own, theirs] = &all;
        block_on(fabric, packets.send(other, b"hello")).unwrap();
        block_on(fabric, packets.recv(patience())).unwrap();
        assert_eq!(wait_timeout(fabric, &mut messages.flush(other), LONG), Some(Ok(())));
        world.barrier().wait().unwrap();
        let mut lost = || kind(block_on(fabric, packets.recv(patience())));
        if world.rank() == 1 {
            messages.break_connection(other);
            let read = block_on(fabric, messages.rdma_read((theirs, 0), (own, 0), 64));
            assert!(read.is_err());
            assert_eq!(lost(), FaultKind::ConnectionLost);
            let before = fabric.connections();
            renewed.wait();
            looked.wait();
            assert_eq!(fabric.connections(), before);
        } else {
            renewed.wait();
            let mut read = messages.rdma_read((theirs, 0), (own, 0), LEN);
            assert!(wait_timeout(fabric, &mut read, LONG).expect("it ends").is_err());
            std::thread::sleep(Duration::from_millis(100)); // for a rail that should not be
            looked.wait();
            assert_eq!(lost(), FaultKind::ConnectionLost);
        }
        drop(packets);
        world.barrier().wait().unwrap();
        if world.rank() == 0 {
            warm_up(&messages, &all, 2);
        }
        world.barrier().wait().unwrap();
    });
}

/// A revoked rank changes nothing any more over any rail.
#[test]
fn a_cut_ends_all_rails() {
    let Some(_device) = device("a_cut_ends_all_rails") else { return };
    let (warm, cut, over) = (Barrier::new(2), Barrier::new(2), Barrier::new(2));
    ranks(2, |world| {
        let (fabric, messages, other) = (world.fabric(), world.fabric().for_messages(), Rank(1 - world.rank()));
        messages.set_rails(3);
        let all = memory(&world);
        let [own, theirs] = &all;
        if world.rank() == 0 {
            warm_up(&messages, &all, 2);
            warm.wait();
            cut.wait();
            for rail in 0..3 {
                let write = messages.rail(rail).rdma_write((own, 0), (theirs, 0), LEN);
                let ended = wait_timeout(fabric, &mut { write }, LONG).expect("it ends");
                assert_eq!((kind(ended), ended.unwrap_err().rank()), (FaultKind::Revoked, Some(other)), "rail {rail}");
            }
            over.wait();
        } else {
            warm.wait();
            fabric.write_direct(own, 0, &[9; LEN as usize]).unwrap();
            while !fabric.fence(other).unwrap() {
                std::thread::yield_now();
            }
            cut.wait();
            over.wait();
            assert!(copy(fabric, own, 0, LEN) == [9; LEN as usize]);
        }
    });
}

/// No further rail is broken then, and which chunks they get is up to what was measured.
#[test]
fn transfers_from_a_rank_that_has_left_end() {
    let Some(_device) = device("transfers_from_a_rank_that_has_left_end") else { return };
    ranks(2, |world| {
        let (fabric, messages, other) = (world.fabric(), world.fabric().for_messages(), Rank(1 - world.rank()));
        messages.set_rails(3);
        let all = memory(&world);
        let [own, theirs] = &all;
        if world.rank() == 0 {
            warm_up(&messages, &all, 3);
        }
        world.barrier().wait().unwrap();
        if world.rank() == 0 {
            eventually("the other one has left", || fabric.liveness(other) != Liveness::Alive);
            for _ in 0..20 {
                let mut read = messages.rdma_read((theirs, 0), (own, 0), 128 << 10);
                assert!(wait_timeout(fabric, &mut read, LONG).expect("it ends").is_err());
            }
        }
    });
}

/// The cards of the rails, if there are several and the first ones are used.
fn two_cards(test: &str) -> bool {
    let are_two = std::env::var("ONESIDED_DEVICE").is_ok_and(|devices| devices == "rxe0,rxe1");
    if !are_two {
        eprintln!("skipped: {test}: it needs ONESIDED_DEVICE=rxe0,rxe1");
    }
    are_two
}

/// How many packets each of two cards has sent.
fn sent() -> [u64; 2] {
    [0, 1].map(|card| {
        let path = format!("/sys/class/infiniband/rxe{card}/ports/1/hw_counters/sent_pkts");
        std::fs::read_to_string(path).unwrap().trim().parse().unwrap()
    })
}

/// What is read and written goes over both cards. Memory of windows is not known to the second one.
#[test]
fn two_cards_carry_a_message() {
    let test = "two_cards_carry_a_message";
    let Some(_device) = device(test).filter(|_| two_cards(test)) else { return };
    ranks(2, |world| {
        let (fabric, messages) = (world.fabric(), world.fabric().for_messages());
        let [own, theirs] = &memory(&world);
        let windows = support::segments(&world, LEN);
        fill(fabric, own, u64::from(world.rank()));
        world.barrier().wait().unwrap();
        if world.rank() == 0 {
            warm_up(&messages, &[own.clone(), theirs.clone()], 2);
            for writes in [false, true] {
                let before = sent();
                eventually("both cards carry much", || {
                    let moved = match writes {
                        true => messages.rdma_write((own, 0), (theirs, 0), LEN),
                        false => messages.rdma_read((theirs, 0), (own, 0), LEN),
                    };
                    assert_eq!(block_on(fabric, moved), Ok(()));
                    std::iter::zip(before, sent()).all(|(before, now)| now - before > (LEN >> 13))
                });
            }
            assert_eq!(messages.rail(1).breaks(theirs.rank()), 0);
            let before = messages.rail(1).post_counts(theirs.rank())[0];
            let window = messages.open(&windows[1].key()).unwrap();
            for (own, theirs) in [(own, &window), (&windows[0], theirs)] {
                assert_eq!(block_on(fabric, messages.rdma_read((theirs, 0), (own, 0), LEN)), Ok(()));
            }
            assert_eq!(messages.rail(1).post_counts(theirs.rank())[0], before);
        }
        world.barrier().wait().unwrap();
        if world.rank() == 1 {
            assert!(copy(fabric, own, 0, LEN) == bytes(1, LEN));
        }
        world.barrier().wait().unwrap();
    });
}

/// The second card's link goes under load, and its address: no rail can be connected there. No transfer
/// fails. When they are back, so is the rail.
#[test]
fn a_card_that_fails_leaves_transfers_to_the_other() {
    let test = "a_card_that_fails_leaves_transfers_to_the_other";
    let Some(_device) = device(test).filter(|_| two_cards(test)) else { return };
    let Ok(link) = std::env::var("ONESIDED_TEST_LINK") else {
        return eprintln!("skipped: {test}: ONESIDED_TEST_LINK names no link of rxe1 to play with");
    };
    let ip = |what: &str| {
        let what = what.replace("LINK", &link);
        assert!(std::process::Command::new("ip").args(what.split(' ')).status().unwrap().success(), "ip {what}");
    };
    ranks(2, |world| {
        let (fabric, messages) = (world.fabric(), world.fabric().for_messages());
        let all = memory(&world);
        let [own, theirs] = &all;
        let is_over = |mut transfer| assert_eq!(wait_timeout(fabric, &mut transfer, LONG), Some(Ok(())));
        let write = || is_over(messages.rdma_write((own, 1), (theirs, 0), LEN - 1));
        let is_there = |seed| {
            fill(fabric, own, 99);
            is_over(messages.rdma_read((theirs, 0), (own, 1), LEN - 1));
            assert!(copy(fabric, own, 1, LEN - 1) == bytes(seed, LEN)[1..], "exchange {seed}");
        };
        let exchange = |seed| {
            fill(fabric, own, seed);
            write();
            is_there(seed);
        };
        if world.rank() == 0 {
            warm_up(&messages, &all, 2);
            fill(fabric, own, 1);
            ["link set LINK down", "addr flush dev LINK"].into_iter().for_each(ip);
            eventually("the rail fails", || {
                write();
                messages.rail(1).breaks(theirs.rank()) > 0
            });
            is_there(1);
            (2..9).for_each(exchange);
            ["link set LINK up", "addr add 10.9.1.1/24 dev LINK"].into_iter().for_each(ip);
            warm_up(&messages, &all, 2);
            exchange(9);
        }
        world.barrier().wait().unwrap();
        assert_eq!(messages.breaks(theirs.rank()), 0); // of the first rail
        assert_eq!(fabric.lost_connection(fabric.rank(), Rank(0)), None);
        world.barrier().wait().unwrap();
    });
}
