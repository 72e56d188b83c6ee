//! Full queues, receivers that make no progress, sleepers.

use std::time::{Duration, Instant};

use onesided_fabric::remote_memory::{Fault, FaultKind, Link, Notify, Patience, Rank, RemoteMemory};
use onesided_fabric::{Fabric, block_on};

use crate::support::{Barrier, device, segments};
use crate::{LONG, kind, ranks, until};

/// A peer that is alive but makes no progress, under endless doorbells: posts end as `Full`, and
/// refused ones do not arrive. When the peer continues, so does everything else.
#[test]
fn posting_to_a_peer_that_takes_nothing_ends() {
    let Some(_device) = device("posting_to_a_peer_that_takes_nothing_ends") else { return };
    let (idle, over) = (Barrier::new(2), Barrier::new(2));
    ranks(2, |world| {
        let fabric = world.fabric();
        let all = segments(&world, 64);
        world.barrier().wait().unwrap();
        idle.wait(); // rank 1 has left the barrier, in which it takes signals
        if world.rank() == 1 {
            over.wait(); // no progress meanwhile
            let own = fabric.word_in(&all[1], 0).unwrap();
            let patience = Patience::until(until(fabric, LONG));
            block_on(fabric, fabric.wait_until(own, |seen| seen == 5_000, patience)).unwrap();
        } else {
            fabric.set_full_after(Duration::from_secs(3));
            let word = fabric.word_in(&all[1], 0).unwrap();
            let rings: Vec<_> = (0..1_400).map(|value| fabric.write(word, value, Notify::Yes)).collect();
            fabric.set_full_after(10 * LONG);
            let begin = Instant::now();
            let again = block_on(fabric, fabric.write(word, 1, Notify::Yes));
            assert_eq!(again, Err(Fault::of(FaultKind::Full, Rank(1))));
            assert!(begin.elapsed() < LONG, "a later post does not wait again");
            over.wait();
            let outcomes: Vec<_> = rings.into_iter().map(|ring| block_on(fabric, ring)).collect();
            let full = |outcome: &Result<u64, Fault>| matches!(outcome, Err(fault) if fault.kind() == FaultKind::Full);
            let sent = outcomes.iter().position(full).expect("some were not posted");
            assert!(sent >= 64 && outcomes[..sent].iter().all(Result::is_ok), "{sent}");
            block_on(fabric, fabric.write(word, 5_000, Notify::Yes)).unwrap();
        }
        world.barrier().wait().unwrap();
    });
}

/// Where an atomic behind a write may lose its answer, it is posted after the write, and ends with
/// it.
#[test]
fn atomics_wait_for_writes_where_answers_are_lost() {
    let Some(_device) = device("atomics_wait_for_writes_where_answers_are_lost") else { return };
    let (idle, over) = (Barrier::new(2), Barrier::new(2));
    ranks(2, |world| {
        let fabric = world.fabric();
        let all = segments(&world, 64);
        if fabric.no_answer().is_none() {
            return; // another device
        }
        let [word, counter] = fabric.words_in(&all[1], 0).unwrap();
        world.barrier().wait().unwrap();
        idle.wait(); // rank 1 has left the barrier, in which it takes signals
        if world.rank() == 1 {
            over.wait(); // no progress meanwhile
        } else {
            fabric.set_full_after(Duration::from_secs(2));
            let rings: Vec<_> = (0..1_060).map(|value| fabric.write(word, value, Notify::Yes)).collect();
            let full = Fault::of(FaultKind::Full, Rank(1));
            assert_eq!(block_on(fabric, fabric.fetch_add(counter, 1)), Err(full));
            assert_eq!(block_on(fabric, fabric.compare_swap(counter, 0, 1)), Err(full));
            let chain = [
                Link::Write { word: counter, value: 5, notify: Notify::No, waited: false },
                Link::FetchAdd { word: counter, add: 1, waited: true },
            ];
            let mut ends = Vec::new();
            let chain = fabric.post(chain);
            fabric.set_full_after(10 * LONG);
            over.wait();
            ends.extend(rings.into_iter().map(|ring| block_on(fabric, ring).is_ok()));
            assert_eq!(ends, [true; 1_060]);
            assert_eq!(block_on(fabric, chain), Err(full));
            assert_eq!(block_on(fabric, fabric.read(counter)), Ok(5));
            let chain = fabric.post([
                Link::Write { word: counter, value: 7, notify: Notify::Yes, waited: false },
                Link::FetchAdd { word: counter, add: 1, waited: true },
            ]);
            block_on(fabric, chain).unwrap();
            assert_eq!(block_on(fabric, fabric.fetch_add(counter, 0)), Ok(8));
        }
        world.barrier().wait().unwrap();
    });
}

/// Far more operations than the send queue holds and than reads may be in flight, from several
/// threads at once.
#[test]
fn full_queues_are_waited_for() {
    let Some(_device) = device("full_queues_are_waited_for") else { return };
    const EACH: usize = 1_000;
    ranks(2, |world| {
        let fabric = world.fabric();
        let all = segments(&world, 64);
        let word = fabric.word_in(&all[1 - world.rank() as usize], 0).unwrap();
        let found: Vec<u64> = std::thread::scope(|scope| {
            let posts = || {
                let ops: Vec<_> = (0..EACH).map(|_| fabric.fetch_add(word, 1)).collect();
                ops.into_iter().map(|op| block_on(fabric, op).unwrap()).collect::<Vec<_>>()
            };
            let threads = [scope.spawn(posts), scope.spawn(posts)];
            threads.into_iter().flat_map(|thread| thread.join().unwrap()).collect()
        });
        let mut sorted = found;
        sorted.sort_unstable();
        assert!(sorted.into_iter().eq(0..2 * EACH as u64), "each addition found another value");
        world.barrier().wait().unwrap();
    });
}

/// Several threads of one rank sleep at once, each on its own word; its write wakes each.
#[test]
fn sleepers_are_woken() {
    let Some(_device) = device("sleepers_are_woken") else { return };
    const THREADS: u64 = 3;
    ranks(2, |world| {
        let fabric = world.fabric();
        let all = segments(&world, 64);
        for round in 1..=10 {
            if world.rank() == 0 {
                std::thread::sleep(Duration::from_millis(30)); // they sleep by now
                for thread in 0..THREADS {
                    let word = fabric.word_in(&all[1], thread * 8).unwrap();
                    block_on(fabric, fabric.write(word, round, Notify::Yes)).unwrap();
                }
            } else {
                std::thread::scope(|scope| {
                    for thread in 0..THREADS {
                        let word = fabric.word_in(&all[1], thread * 8).unwrap();
                        scope.spawn(move || {
                            let patience = Patience::until(until(fabric, LONG));
                            let woken = block_on(fabric, fabric.wait_until(word, |seen| seen >= round, patience));
                            assert_eq!(woken, Ok(round));
                        });
                    }
                });
            }
            world.barrier().wait().unwrap();
        }
        let own = fabric.word_in(&all[world.rank() as usize], 56).unwrap();
        let soon = Patience::until(until(fabric, Duration::from_millis(50)));
        assert_eq!(kind(block_on(fabric, fabric.wait_until(own, |seen| seen != 0, soon))), FaultKind::TimedOut);
    });
}
