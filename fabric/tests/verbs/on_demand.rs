//! Connections are made at the first operation.

use onesided_fabric::remote_memory::{Fault, FaultKind, Rank, RemoteMemory};
use onesided_fabric::verbs::Verbs;
use onesided_fabric::{Fabric, block_on};

use crate::support::{Barrier, device};
use crate::{kind, ranks};

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
            while !fabric.revoke(Rank(1)).unwrap() {}
        }
        step.wait();
        if world.rank() == 1 {
            assert_eq!(kind(read(fabric, 0)), FaultKind::Revoked);
        }
        step.wait();
        assert_eq!(fabric.connections(), 1);
    });
}
