//! What the conformance suite does not ask of words and bytes.

use onesided_fabric::remote_memory::{FaultKind, Link, RemoteMemory};
use onesided_fabric::{Fabric, Segment, block_on};

use crate::support::{device, segments};
use crate::{kind, ranks};

#[test]
fn a_chain_to_two_ranks_is_refused() {
    let Some(_device) = device("a_chain_to_two_ranks_is_refused") else { return };
    ranks(2, |world| {
        let fabric = world.fabric();
        let all = segments(&world, 64);
        let [own, other] = [0, 1].map(|rank| fabric.word_in(&all[rank], 0).unwrap());
        let chain = fabric.post([Link::Read { word: own, waited: true }, Link::Read { word: other, waited: true }]);
        assert_eq!(kind(block_on(fabric, chain)), FaultKind::Unsupported);
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
        let other = &all[1 - world.rank() as usize];
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
            fabric.put(other, 0, &pattern).unwrap();
            // Many gets that are polled out of order, and some that are never polled.
            let mut buffers = vec![vec![0; 40_000]; 20];
            let mut gets: Vec<_> = buffers.iter_mut().map(|buffer| fabric.get(other, 5, buffer)).collect();
            gets.truncate(18);
            while let Some(get) = gets.pop() {
                block_on(fabric, get).unwrap();
            }
            drop(gets);
            assert!(buffers[..18].iter().all(|buffer| buffer[..] == pattern[5..40_005]));
        }
        world.barrier().wait().unwrap();
    });
}
