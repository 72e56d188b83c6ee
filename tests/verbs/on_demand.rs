//! Connections are made at the first operation.

use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use onesided_fabric::remote_memory::{Fault, FaultKind, Patience, Rank, RemoteMemory};
use onesided_fabric::verbs::{Verbs, VerbsTransport};
use onesided_fabric::{Fabric, Fencing, Transport, block_on};

use crate::support::{Barrier, device};
use crate::{LONG, kind, ranks, until};

fn read(fabric: &Verbs, rank: u32) -> Result<(), Fault> {
    let home = fabric.world_segment(Rank(rank)).unwrap();
    block_on(fabric, fabric.read(fabric.word_in(&home, 0)?)).map(|_| ())
}

#[test]
fn only_ranks_that_speak_are_connected() {
    let Some(_device) = device("only_ranks_that_speak_are_connected") else { return };
    let step = Barrier::new(6);
    let connections = ranks(6, |world| {
        let fabric = world.fabric();
        assert_eq!(fabric.connections(), 1, "to itself");
        step.wait();
        match world.rank() {
            0 => read(fabric, 5).unwrap(),
            3 => read(fabric, 3).unwrap(),
            _ => {}
        }
        step.wait();
        fabric.connections()
    });
    assert_eq!(connections, [2, 1, 1, 1, 1, 2]);
}

/// Each rank speaks to the ranks 1, 2, 4 and 8 before and after it: here that are 6 others.
#[test]
fn a_gather_connects_neighbours() {
    let Some(_device) = device("a_gather_connects_neighbours") else { return };
    let step = Barrier::new(12);
    let connections = ranks(12, |world| {
        step.wait();
        let all = world.all_gather(&[world.rank() as u8; 300]).wait().unwrap();
        assert!((0..).zip(all).all(|(rank, bytes)| bytes == [rank; 300]));
        let connections = world.fabric().connections();
        step.wait();
        if world.rank() == 0 {
            // The completion queue grows for them.
            (0..12).for_each(|rank| read(world.fabric(), rank).unwrap());
            assert_eq!(world.fabric().connections(), 12);
        }
        step.wait();
        connections
    });
    assert_eq!(connections, [7; 12]);
}

#[test]
fn requests_that_cross_settle_on_one_connection() {
    let Some(_device) = device("requests_that_cross_settle_on_one_connection") else { return };
    for _ in 0..5 {
        let step = Barrier::new(3);
        let connections = ranks(3, |world| {
            step.wait();
            (0..3).for_each(|rank| read(world.fabric(), rank).unwrap());
            step.wait();
            world.fabric().connections()
        });
        assert_eq!(connections, [3, 3, 3]);
    }
}

/// Rank 0 refuses rank 1, which it has cut before either spoke to the other.
#[test]
fn a_rank_that_was_cut_before_it_came_is_refused() {
    let Some(_device) = device("a_rank_that_was_cut_before_it_came_is_refused") else { return };
    let step = Barrier::new(2);
    ranks(2, |world| {
        let fabric = world.fabric();
        if world.rank() == 0 {
            while !fabric.fence(Rank(1)).unwrap() {}
        }
        step.wait();
        if world.rank() == 1 {
            assert_eq!(kind(read(fabric, 0)), FaultKind::Revoked);
        }
        step.wait();
        assert_eq!(fabric.connections(), 1);
    });
}

/// Packets arrive once and in order, whatever becomes of connections meanwhile.
#[test]
fn packets_over_connections_that_come_and_go_arrive_in_order() {
    let Some(_device) = device("packets_over_connections_that_come_and_go_arrive_in_order") else { return };
    const ROUNDS: u32 = 24;
    const BURST: u32 = 20;
    let (step, finished, fewest) = (Barrier::new(3), AtomicU32::new(0), AtomicU32::new(u32::MAX));
    ranks(3, |world| {
        let (fabric, me) = (world.fabric(), world.rank());
        fabric.set_most_connections(1);
        let mut packets = fabric.transport().unwrap();
        step.wait();
        let before = fabric.connections() as u32;
        let mut next = [0_u32; 3];
        let mut sent = [0_u32; 3];
        let receive = |packets: &mut VerbsTransport, next: &mut [u32; 3], after: Duration| {
            let patience = Patience::until(until(fabric, after));
            match block_on(fabric, packets.recv(patience)) {
                Ok((from, bytes)) => {
                    assert_eq!(bytes, next[from.index()].to_le_bytes(), "from {from}");
                    next[from.index()] += 1;
                }
                Err(fault) => assert_eq!(fault.kind(), FaultKind::TimedOut, "{fault}"),
            }
        };
        for round in 0..ROUNDS {
            let to = Rank((me + 1 + (round / 3) % 2) % 3);
            for _ in 0..BURST {
                block_on(fabric, packets.send(to, &sent[to.index()].to_le_bytes())).unwrap();
                sent[to.index()] += 1;
                receive(&mut packets, &mut next, Duration::from_micros(100 * u64::from(round % 4)));
            }
            // Long enough for a connection to be given back, or nearly.
            let (began, pause) = (Instant::now(), [0, 150, 260, 420][(round % 4) as usize]);
            while began.elapsed() < Duration::from_millis(pause) {
                receive(&mut packets, &mut next, Duration::from_millis(1));
                fewest.fetch_min(fabric.connections() as u32, Ordering::Relaxed);
            }
        }
        if me == 0 {
            assert!(fewest.load(Ordering::Relaxed) <= before + 1, "none was given back");
        }
        while next.iter().sum::<u32>() < ROUNDS * BURST {
            // Each rank gets as many in all.
            receive(&mut packets, &mut next, LONG);
        }
        finished.fetch_add(1, Ordering::Relaxed);
        while finished.load(Ordering::Relaxed) < 3 {
            receive(&mut packets, &mut next, Duration::from_millis(20));
        }
        step.wait();
    });
}
