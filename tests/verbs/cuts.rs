//! Failed ranks that live on, and ranks that unwind.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::{Duration, Instant};

use onesided_fabric::bootstrap::local;
use onesided_fabric::remote_memory::{Fault, FaultKind, Liveness, Notify, Rank, RemoteMemory};
use onesided_fabric::{Fabric, block_on};

use crate::support::{Barrier, device, segments};
use crate::{LONG, kind, ranks, ranks_of};

/// Rank 1 counts at rank 0, which computes, until rank 1 is declared dead on the host of the others
/// alone.
#[test]
fn a_suspected_rank_is_cut_by_a_rank_that_computes() {
    let Some(_device) = device("a_suspected_rank_is_cut_by_a_rank_that_computes") else { return };
    let mut jobs = local::jobs(3).unwrap();
    jobs[1].job_segment = local::jobs(3).unwrap()[1].job_segment.clone(); // as on another host
    let job_segment = jobs[0].job_segment.clone();
    let step = Barrier::new(3);
    ranks_of(jobs, |world| {
        let fabric = world.fabric();
        let all = segments(&world, 64);
        let word = fabric.word_in(&all[0], 0).unwrap();
        world.barrier().wait().unwrap();
        match world.rank() {
            1 => {
                let ended = loop {
                    if let Err(fault) = block_on(fabric, fabric.fetch_add(word, 1)) {
                        break fault;
                    }
                };
                let revoked = |rank| Fault::of(FaultKind::Revoked, rank);
                assert_eq!(ended, revoked(Rank(0)));
                let again = block_on(fabric, fabric.write(word, 0, Notify::No));
                assert_eq!(again, Err(revoked(Rank(0))));
                assert_eq!(fabric.liveness(Rank(0)), Liveness::Alive);
                let mine = fabric.word_in(&all[1], 0).unwrap();
                assert_eq!(block_on(fabric, fabric.fetch_add(mine, 1)), Ok(0));
            }
            2 => {
                let count = || block_on(fabric, fabric.read(word)).unwrap();
                let has_cut = || block_on(fabric, fabric.has_cut(Rank(0), Rank(1)));
                while count() < 10 {}
                assert_eq!(has_cut(), Ok(false));
                job_segment.declare_dead(Rank(1)); // as the host daemon would
                let began = Instant::now();
                while has_cut() == Ok(false) {
                    assert!(began.elapsed() < LONG);
                }
                assert_eq!(has_cut(), Ok(true));
                let last = count();
                while fabric.liveness(Rank(1)) == Liveness::Alive {
                    assert!(began.elapsed() < LONG);
                }
                assert_eq!([0, 1].map(|index| fabric.failure(index)), [Some(Rank(1)), None]);
                assert_eq!(block_on(fabric, fabric.has_cut(Rank(2), Rank(1))), Ok(true));
                assert_eq!(block_on(fabric, fabric.has_cut(Rank(0), Rank(2))), Ok(false));
                let theirs = fabric.word_in(&all[1], 0).unwrap();
                assert_eq!(kind(block_on(fabric, fabric.read(theirs))), FaultKind::PeerDied);
                std::thread::sleep(Duration::from_millis(300));
                // Before Linux 6.4 Soft-RoCE resets a queue pair beside a request that it executes.
                assert!(count() <= last + 1);
            }
            _ => {}
        }
        step.wait(); // rank 0 enters no function of the library before
    });
}

/// Neither does what a clone of an unwinding rank's endpoint posts take effect.
#[test]
fn an_unwinding_rank_has_no_access_when_it_counts_as_dead() {
    let Some(_device) = device("an_unwinding_rank_has_no_access_when_it_counts_as_dead") else { return };
    let step = Barrier::new(2);
    ranks(2, |world| {
        let fabric = world.fabric().clone();
        let all = segments(&world, 64);
        let word = fabric.word_in(&all[0], 0).unwrap();
        world.barrier().wait().unwrap();
        if world.rank() == 1 {
            let unwound = catch_unwind(AssertUnwindSafe(move || {
                let _world = world;
                panic!("as an application might");
            }));
            assert!(unwound.is_err());
            assert_eq!(kind(block_on(&fabric, fabric.fetch_add(word, 1))), FaultKind::ConnectionLost);
        } else {
            while fabric.liveness(Rank(1)) == Liveness::Alive {
                std::thread::sleep(Duration::from_millis(1));
            }
            assert_eq!(block_on(&fabric, fabric.has_cut(Rank(0), Rank(1))), Ok(true));
        }
        step.wait();
        assert!(fabric.rank() == Rank(1) || fabric.load(word) == Ok(0));
    });
}
