//! The verbs fabric on a real device; on hosts without one run it inside `scripts/soft-roce`.
//!
//! Without a device every test prints that it is skipped and passes, unless
//! `ONESIDED_REQUIRE_VERBS=1`.
#![cfg(feature = "verbs")]
#![allow(clippy::print_stderr)] // reports skipped tests

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use onesided_fabric::bootstrap::local;
use onesided_fabric::remote_memory::{
    At, Fault, FaultKind, Link, Mailbox, Notify, Patience, Port, Rank, RegionId, RemoteMemory,
};
use onesided_fabric::verbs::{Verbs, VerbsSegment, VerbsWord, devices};
use onesided_fabric::{Error, Fabric, Segment, SegmentKey, World, block_on, conformance, wait_timeout};

mod support;

use support::{device, segments};

fn ranks<T: Send>(size: u32, body: impl Fn(World<Verbs>) -> T + Sync) -> Vec<T> {
    support::ranks(size, Verbs::new, body)
}

fn kind<T: std::fmt::Debug>(result: Result<T, Fault>) -> FaultKind {
    result.expect_err("a fault").kind()
}

const LONG: Duration = Duration::from_secs(20);

fn until(fabric: &Verbs, time: Duration) -> u64 {
    fabric.now() + time.as_nanos() as u64
}

#[test]
fn devices_tell_what_they_are() {
    let Some(_device) = device("devices_tell_what_they_are") else { return };
    for device in devices().unwrap() {
        assert!(device.port >= 1 && device.outstanding_reads >= 1 && !device.address.is_empty(), "{device}");
        eprintln!("{device}");
    }
}

#[test]
fn conforms() {
    let Some(_device) = device("conforms") else { return };
    for size in [1, 2, 3] {
        for outcome in ranks(size, |world| block_on(world.fabric(), conformance::run(&world))) {
            let summary = outcome.unwrap_or_else(|failure| panic!("{size} ranks: {failure}"));
            assert_eq!(summary.fabric, "verbs");
        }
    }
}

#[test]
fn words_of_everybody_oneself_included() {
    let Some(_device) = device("words_of_everybody_oneself_included") else { return };
    const ROUNDS: u64 = 50;
    ranks(3, |world| {
        let fabric = world.fabric();
        let all = segments(&world, 64);
        for segment in &all {
            let word = fabric.word_in(segment, 8).unwrap();
            for _ in 0..ROUNDS {
                block_on(fabric, fabric.fetch_add(word, 1)).unwrap();
                // A counter by compare-swap next to it.
                let other = fabric.word_in(segment, 16).unwrap();
                let mut seen = block_on(fabric, fabric.read(other)).unwrap();
                loop {
                    let found = block_on(fabric, fabric.compare_swap(other, seen, seen + 1)).unwrap();
                    if found == seen {
                        break;
                    }
                    seen = found;
                }
            }
        }
        world.barrier().wait().unwrap();
        let own = &all[world.rank() as usize];
        for offset in [8, 16] {
            assert_eq!(fabric.load(fabric.word_in(own, offset).unwrap()), Ok(3 * ROUNDS));
        }
        world.barrier().wait().unwrap();
        // Every rank writes to its slot at every rank; each rank sees all.
        for segment in &all {
            let slot = fabric.word_in(segment, 24 + 8 * u64::from(world.rank())).unwrap();
            block_on(fabric, fabric.write(slot, u64::MAX - u64::from(world.rank()), Notify::No)).unwrap();
            block_on(fabric, fabric.flush(segment.rank())).unwrap();
        }
        world.barrier().wait().unwrap();
        for rank in 0..3 {
            assert_eq!(fabric.load(fabric.word_in(own, 24 + 8 * rank).unwrap()), Ok(u64::MAX - rank));
        }
    });
}

#[test]
fn chains_take_effect_in_order() {
    let Some(_device) = device("chains_take_effect_in_order") else { return };
    ranks(2, |world| {
        let fabric = world.fabric();
        let all = segments(&world, 64);
        if world.rank() == 0 {
            let word = |offset| fabric.word_in(&all[1], offset).unwrap();
            for round in 0..100 {
                let chain = fabric.post([
                    Link::CompareSwap { word: word(0), expected: round, new: round + 1, waited: true },
                    Link::Write { word: word(8), value: round, notify: Notify::No, waited: false },
                    Link::Read { word: word(8), waited: true },
                    Link::FetchAdd { word: word(16), add: 2, waited: true },
                    Link::Write { word: word(24), value: round, notify: Notify::Yes, waited: false },
                ]);
                assert_eq!(block_on(fabric, chain), Ok([round, 0, round, 2 * round, 0]));
            }
            // A read that a later write must not overtake, on one word.
            for round in 0..100 {
                let chain = fabric.post([
                    Link::Read { word: word(32), waited: true },
                    Link::Write { word: word(32), value: round + 1, notify: Notify::No, waited: true },
                ]);
                assert_eq!(block_on(fabric, chain).map(|values| values[0]), Ok(round));
            }
            let elsewhere = fabric.word_in(&all[0], 0).unwrap();
            let mixed =
                fabric.post([Link::Read { word: word(0), waited: true }, Link::Read { word: elsewhere, waited: true }]);
            assert_eq!(kind(block_on(fabric, mixed)), FaultKind::Unsupported);
            block_on(fabric, fabric.flush(Rank(1))).unwrap();
        }
        world.barrier().wait().unwrap();
    });
}

#[test]
fn bytes_of_every_length_arrive() {
    let Some(_device) = device("bytes_of_every_length_arrive") else { return };
    const LEN: usize = 3 << 20;
    ranks(2, |world| {
        let fabric = world.fabric();
        let all = segments(&world, LEN as u64);
        let (own, other) = (&all[world.rank() as usize], &all[1 - world.rank() as usize]);
        let pattern: Vec<u8> = (0..LEN).map(|at| (at * 7 + at / 251) as u8).collect();
        if world.rank() == 0 {
            let mut back = vec![0; LEN];
            for len in [0, 1, 7, 8, 9, 63, 64, 65, 4096, 16 << 10, (16 << 10) + 1, 100_000, 1 << 20, LEN - 3] {
                let offset = (LEN - len).min(3);
                fabric.put(other, offset as u64, &pattern[..len]).unwrap();
                block_on(fabric, fabric.flush(other.rank())).unwrap();
                block_on(fabric, fabric.get(other, offset as u64, &mut back[..len])).unwrap();
                assert_eq!(back[..len], pattern[..len], "{len} bytes");
                back.fill(0);
            }
            // Zero-copy transfers in both directions, from and to the own segment.
            fabric.write_own(own, 0, &pattern).unwrap();
            block_on(fabric, fabric.rdma_write((own, 0), (other, 0), LEN as u64)).unwrap();
            fabric.write_own(own, 0, &back).unwrap();
            block_on(fabric, fabric.rdma_read((other, 0), (own, 0), LEN as u64)).unwrap();
            fabric.read_own(own, 0, &mut back).unwrap();
            assert!(back == pattern);
            // Many gets that are polled out of order, and some that are never polled.
            let mut buffers = vec![vec![0; 40_000]; 20];
            let mut gets: Vec<_> = buffers.iter_mut().map(|buffer| fabric.get(other, 5, buffer)).collect();
            gets.truncate(18);
            while let Some(get) = gets.pop() {
                block_on(fabric, get).unwrap();
            }
            drop(gets);
            assert!(buffers[..18].iter().all(|buffer| buffer[..] == pattern[5..40_005]));
            // Ranges outside are refused locally.
            assert_eq!(kind(fabric.put(other, LEN as u64, &[1])), FaultKind::OutOfRange);
            assert_eq!(kind(block_on(fabric, fabric.get(other, u64::MAX, &mut [0; 2]))), FaultKind::OutOfRange);
            assert_eq!(kind(block_on(fabric, fabric.rdma_write((other, 0), (own, 0), 8))), FaultKind::NotOwn);
            assert_eq!(
                kind(block_on(fabric, fabric.rdma_read((other, 8), (own, 0), LEN as u64))),
                FaultKind::OutOfRange
            );
            assert_eq!(kind(fabric.read_own(other, 0, &mut [0])), FaultKind::NotOwn);
            assert_eq!(kind(fabric.word_in(other, 4)), FaultKind::Misaligned);
            assert_eq!(kind(fabric.load(fabric.word_in(other, 8).unwrap())), FaultKind::NotOwn);
        }
        world.barrier().wait().unwrap();
    });
}

#[test]
fn places_are_found_by_number() {
    let Some(_device) = device("places_are_found_by_number") else { return };
    ranks(2, |world| {
        let fabric = world.fabric();
        let all = segments(&world, 64);
        let other = &all[1 - world.rank() as usize];
        let at = |offset| At { rank: other.rank(), region: other.key().region, offset };
        let word = fabric.word(at(40)).unwrap();
        block_on(fabric, fabric.write(word, 77, Notify::No)).unwrap();
        block_on(fabric, fabric.flush(other.rank())).unwrap();
        world.barrier().wait().unwrap();
        let own = At { rank: Rank(world.rank()), region: all[world.rank() as usize].key().region, offset: 40 };
        assert_eq!(fabric.load(fabric.word(own).unwrap()), Ok(77));
        assert_eq!(kind(fabric.word(at(64))), FaultKind::OutOfRange);
        assert_eq!(kind(fabric.word(at(12))), FaultKind::Misaligned);
        assert_eq!(kind(fabric.word(At { rank: Rank(2), ..at(0) })), FaultKind::NoSuchRank);
        for rank in [0, 1] {
            let nowhere = At { rank: Rank(rank), region: RegionId(4000), offset: 0 };
            assert_eq!(kind(fabric.word(nowhere)), FaultKind::NoSuchRegion);
        }
        let gone = fabric.allocate(64).unwrap();
        let keys = block_on(fabric, world.all_gather(&gone.key().to_bytes())).unwrap();
        drop(gone);
        world.barrier().wait().unwrap();
        for key in keys {
            let stale = fabric.open(&SegmentKey::from_bytes(&key).unwrap());
            assert!(
                matches!(&stale, Err(Error::Open { fault, .. }) if fault.kind() == FaultKind::NoSuchRegion),
                "{stale:?}"
            );
        }
        world.barrier().wait().unwrap();
    });
}

#[test]
fn mail_arrives_in_order_by_port() {
    let Some(_device) = device("mail_arrives_in_order_by_port") else { return };
    const EACH: u64 = 300;
    ranks(3, |world| {
        let fabric = world.fabric();
        for number in 0..EACH {
            for to in 0..3 {
                for port in [Port::USER, Port(7)] {
                    let body = [number.to_le_bytes(), u64::from(port.0).to_le_bytes()].concat();
                    block_on(fabric, fabric.send(Rank(to), port, &body, Notify::No)).unwrap();
                }
            }
        }
        for port in [Port::USER, Port(7)] {
            let mut next = [0; 3];
            for _ in 0..3 * EACH {
                let message = block_on(fabric, fabric.recv(port, Patience::until(until(fabric, LONG)))).unwrap();
                let expected = &mut next[message.from.index()];
                let body = [u64::to_le_bytes(*expected), u64::from(port.0).to_le_bytes()].concat();
                assert_eq!(message.bytes(), body);
                *expected += 1;
            }
        }
        block_on(fabric, fabric.send(Rank(world.rank()), Port::USER, &[], Notify::Yes)).unwrap();
        let empty = block_on(fabric, fabric.recv(Port::USER, Patience::until(until(fabric, LONG)))).unwrap();
        assert_eq!(empty.bytes(), b"");
        let soon = Patience::until(until(fabric, Duration::from_millis(30)));
        assert_eq!(kind(block_on(fabric, fabric.recv(Port::USER, soon))), FaultKind::TimedOut);
        let send = |to, port, len| kind(block_on(fabric, fabric.send(Rank(to), Port(port), &vec![0; len], Notify::No)));
        assert_eq!(send(0, 4, 49), FaultKind::TooLong);
        assert_eq!(send(3, 4, 8), FaultKind::NoSuchRank);
        assert_eq!(send(0, 8, 8), FaultKind::Protocol);
        world.barrier().wait().unwrap();
    });
}

/// More messages and doorbells than a receiver without progress has space for: the senders wait,
/// and all arrive once it makes progress.
#[test]
fn a_flood_is_held_back() {
    let Some(_device) = device("a_flood_is_held_back") else { return };
    const EACH: u64 = 3_000;
    ranks(2, |world| {
        let fabric = world.fabric();
        let all = segments(&world, 64);
        if world.rank() == 0 {
            for number in 0..EACH {
                block_on(fabric, fabric.send(Rank(1), Port::USER, &number.to_le_bytes(), Notify::No)).unwrap();
                drop(fabric.write(fabric.word_in(&all[1], 0).unwrap(), number + 1, Notify::Yes));
            }
            block_on(fabric, fabric.flush(Rank(1))).unwrap();
        } else {
            std::thread::sleep(Duration::from_millis(500)); // no progress meanwhile
            for number in 0..EACH {
                let message = block_on(fabric, fabric.recv(Port::USER, Patience::until(until(fabric, LONG)))).unwrap();
                assert_eq!(message.bytes(), number.to_le_bytes());
            }
            let own = fabric.word_in(&all[1], 0).unwrap();
            let patience = Patience::until(until(fabric, LONG));
            assert_eq!(block_on(fabric, fabric.wait_until(own, |seen| seen == EACH, patience)), Ok(EACH));
        }
        world.barrier().wait().unwrap();
    });
}

/// A peer that is alive but makes no progress, under endless messages and doorbells: sends and
/// posts end as `Full`, and refused ones do not arrive. When the peer continues, so does everything
/// else.
#[test]
fn posting_to_a_peer_that_takes_nothing_ends() {
    let Some(_device) = device("posting_to_a_peer_that_takes_nothing_ends") else { return };
    let over = AtomicBool::new(false);
    ranks(2, |world| {
        let fabric = world.fabric();
        let all = segments(&world, 64);
        world.barrier().wait().unwrap();
        if world.rank() == 1 {
            while !over.load(Ordering::Acquire) {
                std::thread::sleep(Duration::from_millis(100)); // no progress meanwhile
            }
            let own = fabric.word_in(&all[1], 0).unwrap();
            let patience = Patience::until(until(fabric, LONG));
            block_on(fabric, fabric.wait_until(own, |seen| seen == 5_000, patience)).unwrap();
        } else {
            fabric.set_full_after(Duration::from_secs(3));
            let word = fabric.word_in(&all[1], 0).unwrap();
            let rings: Vec<_> = (0..1_400).map(|value| fabric.write(word, value, Notify::Yes)).collect();
            let begin = Instant::now();
            let again = block_on(fabric, fabric.write(word, 1, Notify::Yes));
            assert_eq!(again, Err(Fault::of(FaultKind::Full, Rank(1))));
            assert!(begin.elapsed() < Duration::from_secs(2), "a later post does not wait again");
            fabric.set_full_after(Duration::from_secs(60));
            let mut send = fabric.send(Rank(1), Port::USER, &[], Notify::No);
            assert!(wait_timeout(fabric, &mut send, Duration::from_millis(10)).is_none(), "by its own deadline");
            over.store(true, Ordering::Release);
            let outcomes: Vec<_> = rings.into_iter().map(|ring| block_on(fabric, ring)).collect();
            let full = |outcome: &Result<u64, Fault>| matches!(outcome, Err(fault) if fault.kind() == FaultKind::Full);
            let sent = outcomes.iter().position(full).expect("some were not posted");
            assert!(sent >= 64 && outcomes[..sent].iter().all(Result::is_ok), "{sent}");
            block_on(fabric, fabric.write(word, 5_000, Notify::Yes)).unwrap();
        }
        world.barrier().wait().unwrap();
    });
}

/// Requests already posted to such a peer, and those after them, end as well: later, with the
/// connection.
#[test]
fn what_was_posted_to_a_peer_that_takes_nothing_ends() {
    let Some(_device) = device("what_was_posted_to_a_peer_that_takes_nothing_ends") else { return };
    let over = AtomicBool::new(false);
    ranks(2, |world| {
        let fabric = world.fabric();
        let all = segments(&world, 64);
        world.barrier().wait().unwrap();
        if world.rank() == 1 {
            while !over.load(Ordering::Acquire) {
                std::thread::sleep(Duration::from_millis(100)); // no progress meanwhile
            }
        } else {
            fabric.set_full_after(Duration::from_secs(2));
            let word = fabric.word_in(&all[1], 0).unwrap();
            (0..1_060).for_each(|value| drop(fabric.write(word, value, Notify::Yes)));
            assert_eq!(kind(block_on(fabric, fabric.read(word))), FaultKind::Unknown);
            assert_eq!(kind(block_on(fabric, fabric.read(word))), FaultKind::Refused);
            assert_eq!(kind(block_on(fabric, fabric.flush(Rank(1)))), FaultKind::Unknown);
            over.store(true, Ordering::Release);
        }
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

/// Rank 0 accesses a freed segment of rank 1; it also gets those of the others.
fn with_a_stale_key(count: u32, run: impl Fn(&Verbs, &VerbsSegment, &[VerbsSegment]) + Sync) {
    let step = std::sync::Barrier::new(count as usize); // the fabric's own barrier does not outlive the connection
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

/// The access fails with a typed error, later operations fail at once and name the peer, and no
/// other connection is affected.
#[test]
fn a_stale_key_ends_in_an_error() {
    let Some(_device) = device("a_stale_key_ends_in_an_error") else { return };
    with_a_stale_key(3, |fabric, gone, all| {
        let word = fabric.word_in(gone, 0).unwrap();
        let fault = block_on(fabric, fabric.compare_swap(word, 0, 1)).unwrap_err();
        assert_eq!((fault.kind(), fault.rank()), (FaultKind::NoSuchRegion, Some(Rank(1))));
        let began = Instant::now();
        let fault = block_on(fabric, fabric.read(word)).unwrap_err();
        assert_eq!((fault.kind(), fault.rank()), (FaultKind::Refused, Some(Rank(1))));
        fabric.put(gone, 0, &[1]).unwrap();
        let fault = block_on(fabric, fabric.flush(Rank(1))).unwrap_err();
        assert_eq!((fault.kind(), fault.rank()), (FaultKind::Refused, Some(Rank(1))));
        assert!(began.elapsed() < Duration::from_millis(500));
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

/// A killed process loses its memory before its death is declared: an access to that memory still
/// reports the death.
#[test]
fn the_news_of_a_death_says_more_than_the_card() {
    let Some(_device) = device("the_news_of_a_death_says_more_than_the_card") else { return };
    for awaited in [true, false] {
        let jobs = local::jobs(2).unwrap();
        let board = jobs[0].board.clone();
        let step = std::sync::Barrier::new(2);
        std::thread::scope(|scope| {
            for job in jobs {
                let (board, step) = (&board, &step);
                scope.spawn(move || {
                    let world = World::new(Verbs::new(job).unwrap());
                    let fabric = world.fabric();
                    let mut all = segments(&world, 64);
                    step.wait();
                    if world.rank() == 1 {
                        drop(all.remove(1));
                        step.wait();
                        std::thread::sleep(Duration::from_millis(200));
                        board.declare_dead(Rank(1)); // as the launcher would
                        return;
                    }
                    step.wait();
                    let operation = fabric.write(fabric.word_in(&all[1], 0).unwrap(), 1, Notify::No);
                    let ended = if awaited {
                        block_on(fabric, operation).map(|_| ())
                    } else {
                        drop(operation);
                        block_on(fabric, fabric.flush(Rank(1)))
                    };
                    assert_eq!(ended, Err(Fault::of(FaultKind::PeerDied, Rank(1))), "awaited: {awaited}");
                });
            }
        });
    }
}

/// After a rank's death, waits for it and operations in flight to it end within a second.
#[test]
fn death_ends_waits_and_operations() {
    let Some(_device) = device("death_ends_waits_and_operations") else { return };
    let jobs = local::jobs(3).unwrap();
    let board = jobs[0].board.clone();
    std::thread::scope(|scope| {
        for job in jobs {
            let board = &board;
            scope.spawn(move || {
                let world = World::new(Verbs::new(job).unwrap());
                let fabric = world.fabric();
                let all = segments(&world, 64);
                world.barrier().wait().unwrap();
                if world.rank() == 2 {
                    std::thread::sleep(Duration::from_millis(300));
                    board.declare_dead(Rank(2)); // as the launcher would
                    return;
                }
                let began = Instant::now();
                let own = fabric.word_in(&all[world.rank() as usize], 0).unwrap();
                let waited = block_on(fabric, fabric.wait_until(own, |seen| seen != 0, Patience::on(Rank(2))));
                assert_eq!(waited, Err(Fault::of(FaultKind::PeerDied, Rank(2))));
                let mail = block_on(fabric, fabric.recv(Port::USER, Patience::on(Rank(2))));
                assert_eq!(mail.unwrap_err(), Fault::of(FaultKind::PeerDied, Rank(2)));
                let theirs = fabric.word_in(&all[2], 0).unwrap();
                assert_eq!(kind(block_on(fabric, fabric.fetch_add(theirs, 1))), FaultKind::PeerDied);
                let sent = block_on(fabric, fabric.send(Rank(2), Port::USER, b"x", Notify::No));
                assert_eq!(kind(sent), FaultKind::PeerDied);
                assert!(began.elapsed() < Duration::from_millis(1300), "{:?}", began.elapsed());
                // The surviving ranks continue.
                let other = fabric.word_in(&all[1 - world.rank() as usize], 8).unwrap();
                block_on(fabric, fabric.fetch_add(other, 1)).unwrap();
                let mine = fabric.word_in(&all[world.rank() as usize], 8).unwrap();
                let patience = Patience::on(Rank(1 - world.rank()));
                block_on(fabric, fabric.wait_until(mine, |seen| seen == 1, patience)).unwrap();
            });
        }
    });
}

/// An unreachable peer that counts as alive: its queue pairs are gone.
fn with_a_lost_peer(body: impl Fn(&Verbs, &VerbsSegment, &VerbsSegment) + Sync) {
    let mut jobs = local::jobs(2).unwrap();
    jobs[1].board = local::jobs(2).unwrap()[1].board.clone(); // the one on which it leaves
    std::thread::scope(|scope| {
        for job in jobs {
            let body = &body;
            scope.spawn(move || {
                let world = World::new(Verbs::new(job).unwrap());
                let all = segments(&world, 64);
                let told = fabric_word(&world, &all[0]);
                world.barrier().wait().unwrap(); // both have opened the other's memory
                if world.rank() == 1 {
                    return block_on(world.fabric(), world.fabric().write(told, 1, Notify::Yes)).map(drop).unwrap();
                }
                block_on(world.fabric(), world.fabric().wait_until(told, |seen| seen == 1, Patience::on(Rank(1))))
                    .unwrap();
                std::thread::sleep(Duration::from_millis(300));
                body(world.fabric(), &all[0], &all[1]);
            });
        }
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
        fabric.post_release(Link::FetchAdd { word, add: 1, waited: false });
        let silent = Fault::of(FaultKind::Unknown, Rank(1)).with_detail(12);
        assert_eq!(block_on(fabric, fabric.flush(Rank(1))), Err(silent));
        assert_eq!(kind(block_on(fabric, fabric.read(word))), FaultKind::Refused);
        assert_eq!(kind(block_on(fabric, fabric.get(theirs, 0, &mut [0; 8]))), FaultKind::Refused);
    });
}

/// A wait for the peer's write alone fails, too.
#[test]
fn silence_ends_waits() {
    let Some(_device) = device("silence_ends_waits") else { return };
    with_a_lost_peer(|fabric, own, _| {
        let word = fabric.word_in(own, 0).unwrap();
        let patience = Patience::on(Rank(1)).and_until(until(fabric, LONG));
        let silent = Fault::of(FaultKind::Refused, Rank(1)).with_detail(12);
        assert_eq!(block_on(fabric, fabric.wait_until(word, |seen| seen != 0, patience)), Err(silent));
        assert_eq!(block_on(fabric, fabric.recv(Port::USER, patience)).unwrap_err(), silent);
        // A wait without a peer ends at its deadline.
        let soon = Patience::until(until(fabric, Duration::from_millis(30)));
        assert_eq!(kind(block_on(fabric, fabric.recv(Port::USER, soon))), FaultKind::TimedOut);
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
        world.barrier().wait().unwrap();
        block_on(fabric, fabric.flush(Rank(1 - world.rank()))).unwrap();
    });
}

/// A rank that left, whose queue pairs are gone.
#[test]
fn leaving_ends_waits_and_operations() {
    let Some(_device) = device("leaving_ends_waits_and_operations") else { return };
    ranks(2, |world| {
        let fabric = world.fabric();
        let all = segments(&world, 64);
        world.barrier().wait().unwrap();
        if world.rank() == 1 {
            drop(all);
            return; // leaves
        }
        let patience = Patience::until(until(fabric, LONG));
        let own = fabric.word_in(&all[0], 0).unwrap();
        let left = block_on(
            fabric,
            fabric.wait_until(own, |seen| seen != 0, Patience::on(Rank(1)).and_until(patience.deadline)),
        );
        assert_eq!(left, Err(Fault::of(FaultKind::PeerLeft, Rank(1))));
        let theirs = fabric.word_in(&all[1], 0).unwrap();
        assert_eq!(kind(block_on(fabric, fabric.read(theirs))), FaultKind::PeerLeft);
    });
}

/// A spawned task runs to its end while its rank computes.
#[test]
fn adopted_work_goes_on() {
    let Some(_device) = device("adopted_work_goes_on") else { return };
    ranks(2, |world| {
        let fabric = world.fabric();
        let all = segments(&world, 64);
        if world.rank() == 0 {
            let (mine, own, other) = (fabric.clone(), all[0].clone(), all[1].clone());
            fabric.spawn(Box::pin(async move {
                let patience = Patience::on(Rank(1));
                let first = mine.word_in(&own, 0).unwrap();
                mine.wait_until(first, |seen| seen == 1, patience).await.unwrap();
                mine.fetch_add(mine.word_in(&other, 0).unwrap(), 5).await.unwrap();
                mine.write(mine.word_in(&other, 8).unwrap(), 9, Notify::Yes).await.unwrap();
            }));
            let began = Instant::now();
            while began.elapsed() < Duration::from_millis(600) {
                std::hint::black_box(began); // computes
            }
        } else {
            std::thread::sleep(Duration::from_millis(100));
            block_on(fabric, fabric.write(fabric.word_in(&all[0], 0).unwrap(), 1, Notify::Yes)).unwrap();
            let began = Instant::now();
            let own = fabric.word_in(&all[1], 8).unwrap();
            block_on(fabric, fabric.wait_until(own, |seen| seen == 9, Patience::until(until(fabric, LONG)))).unwrap();
            assert!(began.elapsed() < Duration::from_millis(400), "{:?}", began.elapsed());
            assert_eq!(fabric.load(fabric.word_in(&all[1], 0).unwrap()), Ok(5));
        }
        world.barrier().wait().unwrap();
    });
}
