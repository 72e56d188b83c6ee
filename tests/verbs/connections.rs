//! Connections that are lost between ranks that live.

use std::io::Read;
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use onesided_fabric::bootstrap::{Process, local};
use onesided_fabric::remote_memory::{Fault, FaultKind, Liveness, Notify, Patience, Rank, RemoteMemory};
use onesided_fabric::verbs::{Verbs, VerbsSegment};
use onesided_fabric::{Fabric, block_on};

use crate::support::{Barrier, device, segments};
use crate::{LONG, kind, ranks, ranks_of, until};

pub(crate) fn eventually(what: &str, mut condition: impl FnMut() -> bool) {
    let began = Instant::now();
    while !condition() {
        assert!(began.elapsed() < LONG, "{what}");
        std::thread::sleep(Duration::from_millis(1));
    }
}

/// What a rank observes of the lost connection between ranks 0 and 1, each of these once it has cut
/// the other: each has failed as a user of the other's memory and of no other, and none is dead.
fn assert_lost(fabric: &Verbs) {
    let both = || fabric.has_failed(Rank(0), Rank(1)) && fabric.has_failed(Rank(1), Rank(0));
    eventually("it has cut the other", both);
    for (home, rank) in (0..3).flat_map(|home| (0..3).map(move |rank| (home, rank))) {
        let lost = (home, rank) == (0, 1) || (home, rank) == (1, 0);
        assert_eq!(fabric.has_failed(Rank(home), Rank(rank)), lost, "rank {rank} at {home}");
    }
    let failed = [0, 1, 2, 3].map(|home| fabric.lost_connection(Rank(home), Rank(0)));
    assert_eq!(failed, [Some(Rank(1)), Some(Rank(0)), None, None]);
    assert_eq!(fabric.failure(0), None);
    assert!((0..3).all(|rank| fabric.liveness(Rank(rank)) == Liveness::Alive));
}

/// What rank 2 observes until both have cut each other; it goes on with both.
fn assert_cut(fabric: &Verbs, all: &[VerbsSegment]) {
    assert_lost(fabric);
    for (home, rank) in [(0, 1), (1, 0)] {
        let has_cut = |rank| block_on(fabric, fabric.has_cut(Rank(home), Rank(rank))).unwrap();
        eventually("the home cuts it", || has_cut(rank));
        assert!(!has_cut(2) && !has_cut(home));
        let word = fabric.word_in(&all[home as usize], 8).unwrap();
        assert_eq!(block_on(fabric, fabric.fetch_add(word, 1)), Ok(0));
    }
}

/// What rank 0 or 1 observes after it: operations on the other and waits for it fail, with rank 2
/// it goes on.
fn assert_parted(fabric: &Verbs, all: &[VerbsSegment]) {
    let (me, other) = (fabric.rank(), Rank(1 - fabric.rank().0));
    assert_lost(fabric);
    let lost = |ended: Result<u64, Fault>| {
        let fault = ended.unwrap_err();
        assert_eq!((fault.kind(), fault.rank()), (FaultKind::ConnectionLost, Some(other)), "{fault}");
        assert_ne!(fault.detail(), 0);
    };
    let theirs = fabric.word_in(&all[other.index()], 0).unwrap();
    lost(block_on(fabric, fabric.read(theirs)));
    lost(block_on(fabric, fabric.compare_swap(theirs, 0, 1)));
    let _ = block_on(fabric, fabric.flush(other)); // an earlier error
    fabric.put(&all[other.index()], 0, &[1]).unwrap();
    lost(block_on(fabric, fabric.flush(other)).map(|()| 0));
    let own = fabric.word_in(&all[me.index()], 16).unwrap();
    lost(block_on(fabric, fabric.wait_until(own, |seen| seen != 0, Patience::on(other))));
    // The other's table cannot be asked; the own one shows the cut.
    assert_eq!(kind(block_on(fabric, fabric.has_cut(other, me))), FaultKind::ConnectionLost);
    eventually("it is cut here", || block_on(fabric, fabric.has_cut(me, other)) == Ok(true));
    assert_eq!(block_on(fabric, fabric.has_cut(Rank(2), me)), Ok(false));
    let third = fabric.word_in(&all[2], 8 * u64::from(me.0)).unwrap();
    assert_eq!(block_on(fabric, fabric.fetch_add(third, 1)), Ok(0));
}

/// Rank 0 gives up the connection to rank 1, which takes no signals for too long.
#[test]
fn a_connection_that_is_given_up_is_lost_to_all() {
    let Some(_device) = device("a_connection_that_is_given_up_is_lost_to_all") else { return };
    let (idle, known, seen, end) = (Barrier::new(3), Barrier::new(3), Barrier::new(3), Barrier::new(3));
    ranks(3, |world| {
        let fabric = world.fabric();
        let all = segments(&world, 64);
        world.barrier().wait().unwrap();
        idle.wait(); // rank 1 has left the barrier, in which it takes signals
        if world.rank() == 0 {
            fabric.set_full_after(Duration::from_secs(1));
            let word = fabric.word_in(&all[1], 0).unwrap();
            (0..1_060).for_each(|value| drop(fabric.write(word, value, Notify::Yes)));
            let fault = block_on(fabric, fabric.read(word)).unwrap_err();
            assert_eq!((fault.kind(), fault.rank()), (FaultKind::Unknown, Some(Rank(1))));
            assert_lost(fabric); // at once
        }
        known.wait(); // rank 1 enters no function of the library before
        if world.rank() == 2 {
            assert_cut(fabric, &all);
        }
        seen.wait();
        if world.rank() < 2 {
            assert_parted(fabric, &all);
        }
        end.wait();
    });
}

/// Another host reports it, while the connection works: a wait for the other ends, and so does what
/// is posted without end.
#[test]
fn a_loss_that_another_host_reports_parts_both() {
    let Some(_device) = device("a_loss_that_another_host_reports_parts_both") else { return };
    let jobs = local::jobs(3).unwrap();
    let job_segment = jobs[0].job_segment.clone();
    let (seen, end) = (Barrier::new(3), Barrier::new(3));
    ranks_of(jobs, |world| {
        let fabric = world.fabric();
        let all = segments(&world, 64);
        world.barrier().wait().unwrap();
        match world.rank() {
            0 => {
                let word = fabric.word_in(&all[1], 24).unwrap();
                let ended = loop {
                    if let Err(fault) = block_on(fabric, fabric.fetch_add(word, 1)) {
                        break fault.kind();
                    }
                };
                assert!(matches!(ended, FaultKind::Unknown | FaultKind::ConnectionLost), "{ended:?}");
            }
            1 => {
                let own = fabric.word_in(&all[1], 16).unwrap();
                let patience = Patience::on(Rank(0)).and_until(until(fabric, LONG));
                let ended = block_on(fabric, fabric.wait_until(own, |seen| seen != 0, patience));
                assert_eq!(kind(ended), FaultKind::ConnectionLost);
            }
            _ => {
                let counter = fabric.word_in(&all[1], 24).unwrap();
                eventually("it counts", || block_on(fabric, fabric.read(counter)).unwrap() > 10);
                job_segment.lose_connection(Rank(0), Rank(1)); // as the host daemon would
                assert_cut(fabric, &all);
                let last = block_on(fabric, fabric.read(counter));
                std::thread::sleep(Duration::from_millis(300));
                assert_eq!(block_on(fabric, fabric.read(counter)), last);
            }
        }
        seen.wait();
        if world.rank() < 2 {
            assert_parted(fabric, &all);
        }
        end.wait();
    });
}

/// A rank that has lost the connection to itself fails as a user of its own memory alone, and goes
/// on with the others. Also in a world without others.
#[test]
fn a_rank_that_loses_the_connection_to_itself_is_cut() {
    let Some(_device) = device("a_rank_that_loses_the_connection_to_itself_is_cut") else { return };
    for size in [1, 2] {
        let jobs = local::jobs(size).unwrap();
        let job_segment = jobs[0].job_segment.clone();
        let step = Barrier::new(size as usize);
        ranks_of(jobs, |world| {
            let fabric = world.fabric();
            let all = segments(&world, 64);
            world.barrier().wait().unwrap();
            step.wait();
            job_segment.lose_connection(Rank(0), Rank(0));
            eventually("it is known", || fabric.has_failed(Rank(0), Rank(0)));
            let has_cut = |home| block_on(fabric, fabric.has_cut(Rank(home), Rank(0)));
            eventually("it is cut", || has_cut(0) == Ok(true));
            assert_eq!((fabric.lost_connection(Rank(0), Rank(0)), fabric.failure(0)), (Some(Rank(0)), None));
            for (home, segment) in (0..size).zip(&all) {
                let ended = block_on(fabric, fabric.fetch_add(fabric.word_in(segment, 0).unwrap(), 1));
                match (world.rank(), home) {
                    (0, 0) => assert_eq!(kind(ended), FaultKind::ConnectionLost),
                    _ => assert!(ended.is_ok(), "{ended:?}"),
                }
                assert_eq!(has_cut(home), Ok(home == 0));
            }
            step.wait();
        });
    }
}

/// A rank that never asks how its write ended, as the release of a lock, records the loss as soon
/// as it waits for anything.
#[test]
fn a_loss_that_no_operation_reports_is_recorded() {
    let Some(_device) = device("a_loss_that_no_operation_reports_is_recorded") else { return };
    let (step, end) = (Barrier::new(3), Barrier::new(3));
    ranks(3, |world| {
        let fabric = world.fabric();
        let mut all = segments(&world, 64);
        let gone = all.remove(1);
        step.wait();
        let gone = (world.rank() != 1).then_some(gone); // its owner drops it
        step.wait();
        match world.rank() {
            0 => {
                drop(fabric.write(fabric.word_in(gone.as_ref().unwrap(), 0).unwrap(), 1, Notify::No));
                let own = fabric.word_in(&all[0], 0).unwrap();
                let patience = Patience::until(until(fabric, LONG));
                assert_eq!(block_on(fabric, fabric.wait_until(own, |seen| seen == 1, patience)), Ok(1));
            }
            2 => {
                eventually("it is recorded", || fabric.has_failed(Rank(1), Rank(0)));
                assert_lost(fabric);
                block_on(fabric, fabric.write(fabric.word_in(&all[0], 0).unwrap(), 1, Notify::Yes)).unwrap();
            }
            _ => {}
        }
        end.wait();
    });
}

/// A rank whose connection broke because the other one died has lost nothing: the death says more.
#[test]
fn a_connection_to_a_rank_that_dies_is_not_lost() {
    let Some(_device) = device("a_connection_to_a_rank_that_dies_is_not_lost") else { return };
    dies_after(Duration::from_millis(300), &[0, 0, 0], Process::own());
}

/// Nor if its host is silent, and counts as dead only after the time for that.
#[test]
fn a_connection_to_a_host_that_dies_is_not_lost() {
    let Some(_device) = device("a_connection_to_a_host_that_dies_is_not_lost") else { return };
    dies_after(Duration::from_millis(1_800), &[0, 1, 0], Process::own());
}

/// Nor if nobody takes note of its process's end for longer than that, as on a busy host. The end
/// of any other process looks like it.
#[test]
fn a_connection_to_a_process_that_is_ending_is_not_lost() {
    let Some(_device) = device("a_connection_to_a_process_that_is_ending_is_not_lost") else { return };
    let mut child = Command::new("true").stdout(Stdio::piped()).spawn().unwrap();
    let ended = child.stdout.take().unwrap().read_to_end(&mut Vec::new());
    assert!(ended.is_ok());
    dies_after(Duration::from_millis(1_800), &[0, 0, 0], Process { pid: child.id(), started: 0 });
    child.wait().unwrap();
}

/// Rank 1, which seems to run in this process, counts as dead this long after its connections
/// broke.
fn dies_after(delay: Duration, hosts: &[u16], process: Process) {
    let jobs = local::jobs(3).unwrap();
    let job_segment = jobs[0].job_segment.clone();
    job_segment.lay_out(hosts, Duration::from_millis(1_500));
    job_segment.introduce(Rank(1), process);
    let (step, dead) = (Barrier::new(3), AtomicBool::new(false));
    ranks_of(jobs, |world| {
        let fabric = world.fabric();
        let mut all = segments(&world, 64);
        step.wait();
        if world.rank() == 1 {
            drop(all.remove(1));
            step.wait();
            std::thread::sleep(delay);
            dead.store(true, Ordering::Release);
            job_segment.declare_dead(Rank(1)); // as the launcher would
            return;
        }
        step.wait();
        let write = fabric.write(fabric.word_in(&all[1], 0).unwrap(), 1, Notify::No);
        // Whether the write is awaited, or its flush.
        let ended = if world.rank() == 0 {
            block_on(fabric, write).map(drop)
        } else {
            drop(write);
            block_on(fabric, fabric.flush(Rank(1)))
        };
        assert_eq!(ended, Err(Fault::of(FaultKind::PeerDied, Rank(1))));
        assert!(dead.load(Ordering::Acquire));
        assert_eq!(fabric.failure(0), Some(Rank(1)));
        for home in [0, 1, 2].map(Rank) {
            assert_eq!(job_segment.lost_connections(home).count(), 0);
            assert!(fabric.has_failed(home, Rank(1)));
            assert_eq!(fabric.lost_connection(home, Rank(0)), None);
        }
    });
}

/// The answer of an atomic that Soft-RoCE loses: the connection is given up.
#[test]
fn an_atomic_without_its_answer_ends_the_connection() {
    let Some(_device) = device("an_atomic_without_its_answer_ends_the_connection") else { return };
    let (seen, end) = (Barrier::new(3), Barrier::new(3));
    ranks(3, |world| {
        let fabric = world.fabric();
        let all = segments(&world, 64);
        let Some(nothing) = fabric.no_answer() else { return }; // another device
        world.barrier().wait().unwrap();
        if world.rank() == 0 {
            let word = fabric.word_in(&all[1], 32).unwrap();
            fabric.put(&all[1], 32, &nothing.to_ne_bytes()).unwrap();
            block_on(fabric, fabric.flush(Rank(1))).unwrap();
            let ended = block_on(fabric, fabric.compare_swap(word, 0, 1));
            assert_eq!(kind(ended), FaultKind::Unknown);
            assert_lost(fabric);
        }
        seen.wait();
        if world.rank() == 2 {
            assert_cut(fabric, &all);
        }
        seen.wait();
        if world.rank() < 2 {
            assert_parted(fabric, &all);
        }
        end.wait();
    });
}
