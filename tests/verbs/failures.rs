//! Stale keys, deaths, silence, departures.

use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::{Duration, Instant};

use onesided_fabric::bootstrap::local;
use onesided_fabric::remote_memory::{Fault, FaultKind, Link, Notify, Patience, Rank, RemoteMemory};
use onesided_fabric::verbs::{Verbs, VerbsSegment, VerbsWord};
use onesided_fabric::{Fabric, Transport, World, block_on};

use crate::support::{Barrier, device, segments};
use crate::{LONG, kind, ranks, ranks_of, until};

/// Rank 0 accesses a freed segment of rank 1; it also gets those of the others.
fn with_a_stale_key(count: u32, run: impl Fn(&Verbs, &VerbsSegment, &[VerbsSegment]) + Sync) {
    let step = Barrier::new(count as usize); // the fabric's own barrier does not outlive the connection
    ranks(count, |world| {
        let mut all = segments(&world, 64);
        let gone = all.remove(1);
        step.wait();
        let gone = (world.rank() != 1).then_some(gone); // its owner drops it
        step.wait();
        if world.rank() == 0 {
            run(world.fabric(), gone.as_ref().unwrap(), &all);
        }
        step.wait();
    });
}

/// The access fails with a typed error, later operations fail and name the peer, and no other
/// connection is affected.
#[test]
fn a_stale_key_ends_in_an_error() {
    let Some(_device) = device("a_stale_key_ends_in_an_error") else { return };
    with_a_stale_key(3, |fabric, gone, all| {
        let word = fabric.word_in(gone, 0).unwrap();
        let fault = block_on(fabric, fabric.compare_swap(word, 0, 1)).unwrap_err();
        assert_eq!((fault.kind(), fault.rank()), (FaultKind::NoSuchRegion, Some(Rank(1))));
        let fault = block_on(fabric, fabric.read(word)).unwrap_err();
        assert_eq!((fault.kind(), fault.rank()), (FaultKind::ConnectionLost, Some(Rank(1))));
        fabric.put(gone, 0, &[1]).unwrap();
        let fault = block_on(fabric, fabric.flush(Rank(1))).unwrap_err();
        assert_eq!((fault.kind(), fault.rank()), (FaultKind::ConnectionLost, Some(Rank(1))));
        let other = fabric.word_in(&all[1], 0).unwrap();
        assert_eq!(block_on(fabric, fabric.fetch_add(other, 1)), Ok(0));
    });
}

/// The next flush reports the error of an unawaited operation, once.
#[test]
fn an_unawaited_fault_sticks_until_the_flush() {
    let Some(_device) = device("an_unawaited_fault_sticks_until_the_flush") else { return };
    with_a_stale_key(2, |fabric, gone, _| {
        drop(fabric.write(fabric.word_in(gone, 0).unwrap(), 1, Notify::No));
        assert_eq!(kind(block_on(fabric, fabric.flush(Rank(1)))), FaultKind::NoSuchRegion);
        assert_eq!(block_on(fabric, fabric.flush(Rank(1))), Ok(()));
    });
}

/// A rank's death ends waits for it and operations in flight to it; the card would report something
/// else, later.
#[test]
fn death_ends_waits_and_operations() {
    let Some(_device) = device("death_ends_waits_and_operations") else { return };
    let jobs = local::jobs(3).unwrap();
    let job_segment = jobs[0].job_segment.clone();
    ranks_of(jobs, |world| {
        let fabric = world.fabric();
        let all = segments(&world, 64);
        world.barrier().wait().unwrap();
        if world.rank() == 2 {
            std::thread::sleep(Duration::from_millis(300));
            job_segment.declare_dead(Rank(2)); // as the launcher would
            return;
        }
        let own = fabric.word_in(&all[world.rank() as usize], 0).unwrap();
        let waited = block_on(fabric, fabric.wait_until(own, |seen| seen != 0, Patience::on(Rank(2))));
        assert_eq!(waited, Err(Fault::of(FaultKind::PeerDied, Rank(2))));
        let mut packets = fabric.transport().unwrap();
        let received = block_on(fabric, packets.recv(Patience::on(Rank(2))));
        assert_eq!(received.unwrap_err(), Fault::of(FaultKind::PeerDied, Rank(2)));
        let theirs = fabric.word_in(&all[2], 0).unwrap();
        assert_eq!(kind(block_on(fabric, fabric.fetch_add(theirs, 1))), FaultKind::PeerDied);
        let sent = block_on(fabric, packets.send(Rank(2), b"x"));
        assert_eq!(kind(sent), FaultKind::PeerDied);
        // The surviving ranks continue.
        let other = fabric.word_in(&all[1 - world.rank() as usize], 8).unwrap();
        block_on(fabric, fabric.fetch_add(other, 1)).unwrap();
        let mine = fabric.word_in(&all[world.rank() as usize], 8).unwrap();
        let patience = Patience::on(Rank(1 - world.rank()));
        block_on(fabric, fabric.wait_until(mine, |seen| seen == 1, patience)).unwrap();
    });
}

/// An unreachable peer that counts as alive: its queue pairs are gone.
fn with_a_lost_peer(body: impl Fn(&Verbs, &VerbsSegment, &VerbsSegment) + Sync) {
    let mut jobs = local::jobs(2).unwrap();
    jobs[1].job_segment = local::jobs(2).unwrap()[1].job_segment.clone(); // the one on which it leaves
    ranks_of(jobs, |world| {
        let all = segments(&world, 64);
        let told = fabric_word(&world, &all[0]);
        world.barrier().wait().unwrap(); // both have opened the other's memory
        if world.rank() == 1 {
            return block_on(world.fabric(), world.fabric().write(told, 1, Notify::Yes)).map(drop).unwrap();
        }
        block_on(world.fabric(), world.fabric().wait_until(told, |seen| seen == 1, Patience::on(Rank(1)))).unwrap();
        std::thread::sleep(Duration::from_millis(300));
        body(world.fabric(), &all[0], &all[1]);
    });
}

fn fabric_word<'w>(world: &'w World<Verbs>, segment: &'w VerbsSegment) -> VerbsWord<'w> {
    world.fabric().word_in(segment, 56).unwrap()
}

/// The card's retries end the operation, and all later ones.
#[test]
fn silence_ends_operations() {
    let Some(_device) = device("silence_ends_operations") else { return };
    with_a_lost_peer(|fabric, _, theirs| {
        let word = fabric.word_in(theirs, 0).unwrap();
        fabric.put(theirs, 0, &[1; 8]).unwrap();
        drop(fabric.post([Link::Read { word, waited: false }, Link::FetchAdd { word, add: 1, waited: false }]));
        let silent = Fault::of(FaultKind::Unknown, Rank(1)).with_detail(12);
        assert_eq!(block_on(fabric, fabric.flush(Rank(1))), Err(silent));
        assert!(fabric.has_failed(Rank(1), Rank(0)));
        assert_eq!(kind(block_on(fabric, fabric.read(word))), FaultKind::ConnectionLost);
        assert_eq!(kind(block_on(fabric, fabric.get(theirs, 0, &mut [0; 8]))), FaultKind::ConnectionLost);
    });
}

/// A wait for the peer's write alone fails, too.
#[test]
fn silence_ends_waits() {
    let Some(_device) = device("silence_ends_waits") else { return };
    with_a_lost_peer(|fabric, own, _| {
        let word = fabric.word_in(own, 0).unwrap();
        let patience = Patience::on(Rank(1)).and_until(until(fabric, LONG));
        let silent = Fault::of(FaultKind::ConnectionLost, Rank(1)).with_detail(12);
        assert_eq!(block_on(fabric, fabric.wait_until(word, |seen| seen != 0, patience)), Err(silent));
        // What the cut of a lost rank closes too.
        let received = block_on(fabric, fabric.transport().unwrap().recv(patience)).unwrap_err();
        assert_eq!((received.kind(), received.rank()), (silent.kind(), silent.rank()));
        // A wait without a peer ends at its deadline.
        let soon = Patience::until(until(fabric, Duration::from_millis(30)));
        assert_eq!(kind(block_on(fabric, fabric.transport().unwrap().recv(soon))), FaultKind::TimedOut);
    });
}

/// The connection to a peer that computes for long stays up: its card answers.
#[test]
fn a_peer_that_computes_is_waited_for() {
    let Some(_device) = device("a_peer_that_computes_is_waited_for") else { return };
    ranks(2, |world| {
        let fabric = world.fabric();
        let all = segments(&world, 64);
        if world.rank() == 0 {
            let own = fabric.word_in(&all[0], 0).unwrap();
            let patience = Patience::on(Rank(1)).and_until(until(fabric, LONG));
            assert_eq!(block_on(fabric, fabric.wait_until(own, |seen| seen == 7, patience)), Ok(7));
        } else {
            std::thread::sleep(Duration::from_secs(7)); // several keepalives
            block_on(fabric, fabric.write(fabric.word_in(&all[0], 0).unwrap(), 7, Notify::Yes)).unwrap();
        }
        block_on(fabric, fabric.flush(Rank(1 - world.rank()))).unwrap();
        world.barrier().wait().unwrap();
    });
}

/// A spawned task runs to its end while its rank computes.
#[test]
fn adopted_work_goes_on() {
    let Some(_device) = device("adopted_work_goes_on") else { return };
    let done = AtomicBool::new(false);
    ranks(2, |world| {
        let fabric = world.fabric();
        let all = segments(&world, 64);
        if world.rank() == 0 {
            let (mine, own, other) = (fabric.clone(), all[0].clone(), all[1].clone());
            fabric.endpoint().spawn(Box::pin(async move {
                let patience = Patience::on(Rank(1));
                let first = mine.word_in(&own, 0).unwrap();
                mine.wait_until(first, |seen| seen == 1, patience).await.unwrap();
                mine.fetch_add(mine.word_in(&other, 0).unwrap(), 5).await.unwrap();
                mine.write(mine.word_in(&other, 8).unwrap(), 9, Notify::Yes).await.unwrap();
            }));
            let began = Instant::now();
            while !done.load(Relaxed) {
                assert!(began.elapsed() < LONG, "it needs a rank that computes");
                std::hint::spin_loop();
            }
        } else {
            std::thread::sleep(Duration::from_millis(100));
            block_on(fabric, fabric.write(fabric.word_in(&all[0], 0).unwrap(), 1, Notify::Yes)).unwrap();
            let own = fabric.word_in(&all[1], 8).unwrap();
            block_on(fabric, fabric.wait_until(own, |seen| seen == 9, Patience::until(until(fabric, LONG)))).unwrap();
            done.store(true, Relaxed);
            assert_eq!(fabric.load(fabric.word_in(&all[1], 0).unwrap()), Ok(5));
        }
        world.barrier().wait().unwrap();
    });
}
