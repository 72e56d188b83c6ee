//! Worlds that are made anew after the loss of a connection.

use onesided_fabric::bootstrap::local;
use onesided_fabric::remote_memory::{FaultKind, Liveness, Notify, Patience, Rank, RemoteMemory};
use onesided_fabric::verbs::{Verbs, VerbsSegment};
use onesided_fabric::{Fabric, Segment, block_on};

use crate::connections::eventually;
use crate::support::{Barrier, device, segments};
use crate::{kind, ranks_of};

/// Puts to a rank, and lets it see that.
fn reaches(fabric: &Verbs, to: &VerbsSegment, value: u64) {
    fabric.put(to, 8, &value.to_le_bytes()).unwrap();
    block_on(fabric, fabric.flush(to.key().rank)).unwrap();
    block_on(fabric, fabric.write(fabric.word_in(to, 0).unwrap(), value, Notify::Yes)).map(drop).unwrap();
}

fn is_reached(fabric: &Verbs, own: &VerbsSegment, value: u64, from: Rank) {
    let word = fabric.word_in(own, 0).unwrap();
    block_on(fabric, fabric.wait_until(word, |seen| seen == value, Patience::on(from))).unwrap();
    let mut bytes = [0; 8];
    fabric.read_direct(own, 8, &mut bytes).unwrap();
    assert_eq!(u64::from_le_bytes(bytes), value);
}

/// Ranks 0 and 1 lose their connection, twice. Each world keeps what was lost in it, and the next one
/// has all connections.
#[test]
fn a_world_is_made_anew() {
    let Some(_device) = device("a_world_is_made_anew") else { return };
    let jobs = local::jobs(3).unwrap();
    let job_segment = jobs[0].job_segment.clone();
    let step = Barrier::new(3);
    ranks_of(jobs, |world| {
        let mut worlds = vec![world];
        let mut memory = vec![segments(&worlds[0], 64)];
        let me = worlds[0].rank();
        let parted = [1, 0, 2][me as usize];
        for round in 1..=3 {
            let (world, all) = (&worlds[worlds.len() - 1], &memory[memory.len() - 1]);
            let fabric = world.fabric();
            world.barrier().wait().unwrap();
            let (next, before) = ((me as usize + 1) % 3, Rank((me + 2) % 3));
            reaches(fabric, &all[next], round);
            is_reached(fabric, &all[me as usize], round, before);
            step.wait();
            if round == 3 {
                break;
            }
            if me == 2 {
                // As the host daemon would, of the round that it hears of.
                job_segment.lose_connection_in(round as u32, Rank(0), Rank(1));
            }
            let is_lost = || fabric.has_failed(Rank(0), Rank(1)) && fabric.has_failed(Rank(1), Rank(0));
            eventually("it is lost", is_lost);
            let anew = world.reconnect().unwrap();
            memory.push(segments(&anew, 64));
            worlds.push(anew);
        }
        // Once more from the first one, and not from a part.
        let other = worlds[0].reconnect().unwrap();
        other.barrier().wait().unwrap();
        assert!(!other.fabric().has_failed(Rank(0), Rank(1)));
        let part = other.split(0, 2 - me).wait().unwrap();
        assert_eq!(part.reconnect().unwrap_err().fault().kind(), FaultKind::Unsupported);
        drop((part, other));
        for (world, all) in worlds.iter().zip(&memory).take(2) {
            let fabric = world.fabric();
            assert!(fabric.has_failed(Rank(0), Rank(1)));
            if me != parted {
                let word = fabric.word_in(&all[parted as usize], 16).unwrap();
                assert_eq!(kind(block_on(fabric, fabric.read(word))), FaultKind::ConnectionLost);
            }
            let third = fabric.word_in(&all[2], 16).unwrap();
            assert_eq!(block_on(fabric, fabric.read(third)), Ok(0));
        }
        assert!(!worlds[2].fabric().has_failed(Rank(0), Rank(1)));
        step.wait();
        // A rank is in the job as long as it has one of them.
        let (last, lasting) = (worlds.pop().unwrap(), memory.pop().unwrap());
        drop((worlds, memory));
        step.wait();
        reaches(last.fabric(), &lasting[(me as usize + 1) % 3], 7);
        is_reached(last.fabric(), &lasting[me as usize], 7, Rank((me + 2) % 3));
        assert!((0..3).all(|rank| job_segment.liveness(Rank(rank)) == Liveness::Alive));
        last.barrier().wait().unwrap();
        step.wait();
        drop((last, lasting));
        step.wait();
        assert!((0..3).all(|rank| job_segment.liveness(Rank(rank)) == Liveness::Left));
    });
}

/// Who has ended is told at once.
#[test]
fn no_world_is_made_anew_without_a_rank() {
    let Some(_device) = device("no_world_is_made_anew_without_a_rank") else { return };
    let jobs = local::jobs(3).unwrap();
    let job_segment = jobs[0].job_segment.clone();
    let (step, ended) = (Barrier::new(3), Barrier::new(2));
    ranks_of(jobs, |world| {
        world.barrier().wait().unwrap();
        step.wait();
        if world.rank() == 2 {
            job_segment.declare_dead(Rank(2));
            return;
        }
        eventually("it is dead", || world.fabric().liveness(Rank(2)) == Liveness::Dead);
        let error = world.reconnect().unwrap_err();
        assert_eq!(error.to_string(), "reconnect: rank 2 died");
        ended.wait();
        assert_eq!(job_segment.liveness(Rank(world.rank())), Liveness::Alive);
        ended.wait();
    });
}
