//! Words, chains, bytes and messages.

use std::time::Duration;

use onesided_fabric::remote_memory::{At, FaultKind, Link, Notify, Patience, Rank, RegionId, RemoteMemory};
use onesided_fabric::{Error, Fabric, Segment, SegmentKey, Transport, block_on};

use crate::support::{device, segments};
use crate::{LONG, kind, ranks, until};

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
            fabric.write_direct(own, 0, &pattern).unwrap();
            block_on(fabric, fabric.rdma_write((own, 0), (other, 0), LEN as u64)).unwrap();
            fabric.write_direct(own, 0, &back).unwrap();
            block_on(fabric, fabric.rdma_read((other, 0), (own, 0), LEN as u64)).unwrap();
            fabric.read_direct(own, 0, &mut back).unwrap();
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
            assert_eq!(kind(fabric.read_direct(other, 0, &mut [0])), FaultKind::NotOwn);
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
fn packets_arrive_in_order() {
    let Some(_device) = device("packets_arrive_in_order") else { return };
    const EACH: u64 = 300;
    ranks(3, |world| {
        let fabric = world.fabric();
        let mut packets = fabric.transport().unwrap();
        for number in 0..EACH {
            for to in 0..3 {
                let body = [number.to_le_bytes(), u64::from(to).to_le_bytes()].concat();
                block_on(fabric, packets.send(Rank(to), &body)).unwrap();
            }
        }
        let mut next = [0; 3];
        for _ in 0..3 * EACH {
            let (from, bytes) = block_on(fabric, packets.recv(Patience::until(until(fabric, LONG)))).unwrap();
            let expected = &mut next[from.index()];
            assert_eq!(bytes, [u64::to_le_bytes(*expected), u64::from(world.rank()).to_le_bytes()].concat());
            *expected += 1;
        }
        let soon = Patience::until(until(fabric, Duration::from_millis(30)));
        assert_eq!(kind(block_on(fabric, packets.recv(soon))), FaultKind::TimedOut);
        world.barrier().wait().unwrap();
    });
}
