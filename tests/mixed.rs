//! Shared memory and cards in one world, on a real device; on hosts without one run it inside
//! `scripts/soft-roce`. The ranks are threads, dealt out to two pretended hosts where both paths
//! are needed.
#![cfg(feature = "verbs")]

use std::time::{Duration, Instant};

use onesided_fabric::bootstrap::{Job, local};
use onesided_fabric::remote_memory::{Fault, FaultKind, Link, Notify, Patience, Rank, RemoteMemory};
use onesided_fabric::verbs::{Verbs, VerbsSegment};
use onesided_fabric::{Error, Fabric, Path, Segment, World, block_on, conformance};

#[path = "verbs/support.rs"]
mod support;

use support::{Barrier, device, ranks, segments};

/// All ranks on one host, and the even and the odd ranks on separate hosts.
fn both(size: u32, body: impl Fn(World<Verbs>, &dyn Fn(u32, u32) -> bool) + Sync) {
    ranks(size, Verbs::mixed, |world| body(world, &|_, _| true));
    ranks(size, |job: Job| Verbs::pretending(job, 2), |world| body(world, &|a, b| a % 2 == b % 2));
}

#[test]
fn conforms() {
    let Some(_device) = device("conforms") else { return };
    let run = |world: World<Verbs>| block_on(world.fabric(), conformance::run(&world));
    // Of three ranks on two hosts, two share one, and all reach another by the card.
    for (size, hosts) in [(1, 1), (3, 2)] {
        for outcome in ranks(size, |job| Verbs::pretending(job, hosts), run) {
            let summary = outcome.unwrap_or_else(|failure| panic!("{size} ranks on {hosts} hosts: {failure}"));
            assert_eq!(summary.fabric, "mixed");
        }
    }
}

/// A flush proves that a written word is in memory. Until then a put to its region uses the card,
/// after it, and puts to other regions use the CPU. (Soft-RoCE completes a request to its own rank
/// when the call returns, so this order holds there in any case.)
#[test]
fn what_follows_a_written_word_follows_its_way() {
    let Some(_device) = device("what_follows_a_written_word_follows_its_way") else { return };
    ranks(2, Verbs::mixed, |world| {
        let fabric = world.fabric();
        let (words, others) = (segments(&world, 64), segments(&world, 64));
        for to in [0, 1].map(Rank) {
            let requests = |run: &dyn Fn()| {
                let before = fabric.post_counts(to)[0];
                run();
                fabric.post_counts(to)[0] - before
            };
            let flush = || block_on(fabric, fabric.flush(to)).unwrap();
            let put = |segment| fabric.put(segment, 8 * u64::from(world.rank()), &[1; 8]).unwrap();
            let (segment, other) = (&words[to.index()], &others[to.index()]);
            let word = fabric.word_in(segment, 32).unwrap();
            flush();
            assert_eq!(requests(&|| put(segment)), 0);
            block_on(fabric, fabric.write(word, 1, Notify::No)).unwrap();
            assert_eq!([requests(&|| put(segment)), requests(&|| put(other)), requests(&|| put(segment))], [1, 0, 1]);
            assert_eq!(requests(&|| block_on(fabric, fabric.get(segment, 0, &mut [0; 8])).unwrap()), 1);
            drop(fabric.write(word, 2, Notify::Yes));
            flush();
            assert_eq!(requests(&|| put(segment)), 0);
            // An awaited atomic is in memory.
            block_on(fabric, fabric.fetch_add(word, 1)).unwrap();
            assert_eq!(requests(&|| put(segment)), 0);
        }
        world.barrier().wait().unwrap();
    });
}

/// Operations by the CPU post no requests to the card, and operations by the card do.
#[test]
fn a_rank_of_this_host_costs_the_card_nothing() {
    let Some(_device) = device("a_rank_of_this_host_costs_the_card_nothing") else { return };
    both(3, |world, near| {
        let (fabric, me) = (world.fabric(), world.rank());
        let all = segments(&world, 100_000);
        world.barrier().wait().unwrap();
        for to in (0..3).map(Rank) {
            let (segment, is_near) = (&all[to.index()], near(me, to.0));
            assert_eq!(segment.path(), if is_near { Path::Cpu } else { Path::Card });
            block_on(fabric, fabric.flush(to)).unwrap(); // after the barrier's writes
            let before = fabric.post_counts(to)[0];
            let mut bytes = vec![0; 30_000];
            for offset in [0, 3, 40_000] {
                fabric.put(segment, offset + u64::from(me), &[7; 30_000]).unwrap();
                block_on(fabric, fabric.flush(to)).unwrap();
                block_on(fabric, fabric.get(segment, offset, &mut bytes)).unwrap();
            }
            block_on(fabric, fabric.rdma_write((&all[me as usize], 5), (segment, 50_000), 1000)).unwrap();
            block_on(fabric, fabric.rdma_read((segment, 50_000), (&all[me as usize], 5), 1000)).unwrap();
            block_on(fabric, fabric.flush(to)).unwrap();
            block_on(fabric, fabric.flush_before_release(to)).unwrap();
            assert_eq!(fabric.post_counts(to)[0] == before, is_near, "{to} from {me}");
            let word = fabric.word_in(segment, 8).unwrap();
            block_on(fabric, fabric.fetch_add(word, 0)).unwrap();
            assert!(fabric.post_counts(to)[0] > before);
        }
        world.barrier().wait().unwrap();
    });
}

/// One rank's operations on one region take effect in order, on either path, without awaiting in
/// between.
#[test]
fn one_ranks_steps_stay_in_order() {
    let Some(_device) = device("one_ranks_steps_stay_in_order") else { return };
    const ROUNDS: u64 = 60;
    both(3, |world, _| {
        let (fabric, me) = (world.fabric(), u64::from(world.rank()));
        let all = segments(&world, 4096);
        let read = |segment: &VerbsSegment, at| {
            let mut bytes = [0; 8];
            block_on(fabric, fabric.get(segment, at, &mut bytes)).unwrap();
            u64::from_ne_bytes(bytes)
        };
        for segment in &all {
            let at = 64 * me;
            let word = fabric.word_in(segment, at).unwrap();
            let put = |value: u64| fabric.put(segment, at, &value.to_ne_bytes()).unwrap();
            for round in (1..=ROUNDS).map(|round| round * 10) {
                put(round);
                drop(fabric.fetch_add(word, 1)); // on the put data
                assert_eq!(read(segment, at), round + 1);
                drop(fabric.write(word, round + 2, Notify::No));
                assert_eq!(read(segment, at), round + 2);
                drop(fabric.write(word, round + 3, Notify::Yes));
                put(round + 4); // after the write, and final
                assert_eq!(read(segment, at), round + 4);
                put(round + 5);
                drop(fabric.compare_swap(word, round + 5, round + 6));
                assert_eq!(read(segment, at), round + 6);
                drop(fabric.post([
                    Link::Write { word, value: round + 7, notify: Notify::No, waited: false },
                    Link::FetchAdd { word, add: 1, waited: false },
                ]));
                assert_eq!(read(segment, at), round + 8);
                if round % 50 == 0 {
                    block_on(fabric, fabric.flush(segment.rank())).unwrap();
                }
                put(round + 9);
                assert_eq!(block_on(fabric, fabric.read(word)), Ok(round + 9));
            }
            block_on(fabric, fabric.flush(segment.rank())).unwrap();
        }
        world.barrier().wait().unwrap();
        let own = &all[world.rank() as usize];
        assert!((0..3).all(|rank| read(own, 64 * rank) == 10 * ROUNDS + 9));
        world.barrier().wait().unwrap();
    });
}

/// A rank that has left is unavailable to the ranks of its host as to all others, but for their
/// same-host words, and a retracted region cannot be opened.
#[test]
fn the_end_of_a_rank_is_one_thing() {
    let Some(_device) = device("the_end_of_a_rank_is_one_thing") else { return };
    both(3, |world, _| {
        let fabric = world.fabric();
        let mut all = segments(&world, 64);
        let gone = all[0].key();
        world.barrier().wait().unwrap();
        if world.rank() == 0 {
            drop(all.remove(0));
        }
        world.barrier().wait().unwrap();
        if world.rank() == 0 {
            return; // leaves
        }
        let stale = fabric.open(&gone);
        assert!(
            matches!(&stale, Err(Error::Open { fault, .. }) if fault.kind() == FaultKind::NoSuchRegion
            || fault.kind() == FaultKind::PeerLeft),
            "{stale:?}"
        );
        let own = fabric.word_in(&all[world.rank() as usize], 0).unwrap();
        let left = Fault::of(FaultKind::PeerLeft, Rank(0));
        assert_eq!(block_on(fabric, fabric.wait_until(own, |_| false, Patience::on(Rank(0)))), Err(left));
        assert_eq!(block_on(fabric, fabric.get(&all[0], 0, &mut [0; 8])), Err(left));
        fabric.put(&all[0], 0, &[1]).unwrap();
        assert_eq!(block_on(fabric, fabric.flush(Rank(0))), Err(left));
        assert_eq!(block_on(fabric, fabric.flush(Rank(0))), Ok(()));
        if fabric.host_of(Rank(0)) == fabric.host_of(fabric.rank()) {
            let word = fabric.same_host_word(&all[0], 24).unwrap();
            block_on(fabric, fabric.fetch_add(word, 1)).unwrap();
            assert!(block_on(fabric, fabric.read(word)).unwrap() > 0);
        }
        // The remaining ranks continue.
        let other = Rank(3 - world.rank());
        fabric.put(&all[other.index()], 8, &[1]).unwrap();
        block_on(fabric, fabric.flush(other)).unwrap();
        block_on(fabric, fabric.write(fabric.word_in(&all[other.index()], 16).unwrap(), 1, Notify::Yes)).unwrap();
        let told = fabric.word_in(&all[world.rank() as usize], 16).unwrap();
        block_on(fabric, fabric.wait_until(told, |seen| seen == 1, Patience::on(other))).unwrap();
    });
}

/// The CPU follows the cards: what would need a lost connection fails, by either path, and each of
/// the two is cut from the other's memory as ranks of two hosts are.
#[test]
fn a_lost_connection_parts_ranks_of_a_host() {
    let Some(_device) = device("a_lost_connection_parts_ranks_of_a_host") else { return };
    let jobs = local::jobs(4).unwrap();
    let job_segment = jobs[0].job_segment.clone();
    let step = Barrier::new(4);
    support::ranks_of(
        jobs,
        |job| Verbs::pretending(job, 2),
        |world| {
            let fabric = world.fabric();
            let all = segments(&world, 64);
            world.barrier().wait().unwrap();
            let neighbour = (world.rank() ^ 2) as usize;
            let same_host = fabric.same_host_word(&all[neighbour], 8).unwrap(); // before the loss
            assert_eq!(block_on(fabric, fabric.fetch_add(same_host, 1)), Ok(0));
            step.wait(); // a rank that is still in the barrier needs all connections
            if world.rank() == 3 {
                job_segment.lose_connection(Rank(0), Rank(2)); // of one host
                job_segment.lose_connection(Rank(0), Rank(1)); // of two
                let has_cut = |home, rank| block_on(fabric, fabric.has_cut(Rank(home), Rank(rank)));
                for (home, rank) in [(1, 0), (2, 0), (0, 1), (0, 2)] {
                    let begin = Instant::now();
                    while has_cut(home, rank) != Ok(true) {
                        assert!(begin.elapsed() < Duration::from_secs(200), "{home} does not cut {rank}");
                    }
                }
                assert_eq!((has_cut(2, 1), has_cut(1, 3)), (Ok(false), Ok(false)));
            }
            step.wait();
            // One of the two once it has cut the other.
            while !(fabric.has_failed(Rank(2), Rank(0)) && fabric.has_failed(Rank(1), Rank(0))) {
                std::thread::yield_now();
            }
            assert!(!fabric.has_failed(Rank(2), Rank(1)));
            let failed = [0, 1, 2, 3].map(|home| fabric.lost_connection(Rank(home), Rank(0)));
            assert_eq!(failed, [Some(Rank(1)), Some(Rank(0)), Some(Rank(0)), None]);
            let parted: &[u32] = match world.rank() {
                0 => &[1, 2],
                3 => &[],
                _ => &[0],
            };
            for rank in (0..4).filter(|rank| *rank != world.rank()).map(Rank) {
                let segment = &all[rank.index()];
                let word = fabric.word_in(segment, 8).unwrap();
                // Both close their sides soon.
                while parted.contains(&rank.0) && block_on(fabric, fabric.fetch_add(word, 1)).is_ok() {}
                let _ = block_on(fabric, fabric.flush(rank)); // an error of the barrier's last writes
                fabric.put(segment, 0, &[1; 8]).unwrap();
                let ends = [
                    block_on(fabric, fabric.flush(rank)),
                    block_on(fabric, fabric.get(segment, 0, &mut [0; 8])),
                    block_on(fabric, fabric.rdma_write((&all[world.rank() as usize], 0), (segment, 16), 8)),
                    block_on(fabric, fabric.fetch_add(word, 1)).map(drop),
                ];
                let kinds = ends.map(|end| end.err().map(|fault| (fault.kind(), fault.rank())));
                let lost = parted.contains(&rank.0).then_some((FaultKind::ConnectionLost, Some(rank)));
                assert_eq!(kinds, [lost; 4], "{} on {rank}", world.rank());
            }
            let ended = block_on(fabric, fabric.fetch_add(same_host, 1)).err().map(Fault::kind);
            assert_eq!(ended, world.rank().is_multiple_of(2).then_some(FaultKind::ConnectionLost));
            step.wait();
            // By both paths, in a world with other connections.
            let anew = world.reconnect().unwrap();
            let (fabric, all) = (anew.fabric(), segments(&anew, 64));
            for segment in &all {
                fabric.put(segment, 8 * u64::from(anew.rank()), &[7; 8]).unwrap();
                block_on(fabric, fabric.flush(segment.rank())).unwrap();
                let word = fabric.word_in(segment, 32).unwrap();
                block_on(fabric, fabric.fetch_add(word, 1)).unwrap();
            }
            anew.barrier().wait().unwrap();
            let mut found = [0; 40];
            fabric.read_direct(&all[anew.rank() as usize], 0, &mut found).unwrap();
            assert_eq!((&found[..32], found[32]), (&[7; 32][..], 4));
            anew.barrier().wait().unwrap();
        },
    );
}
