//! Where allocated memory lies, which ranks access it, and when its pages are allocated.

use onesided_remote_memory::{At, Fault, FaultKind, Liveness, Rank, RemoteMemory};

use crate::shm::arena::BLOCK;
use crate::shm::{Mapping, Shm, ShmSegment, threads};
use crate::{Fabric, Segment, SegmentKey, World, block_on};

fn tell_keys(world: &World<Shm>, own: &[ShmSegment]) -> Vec<SegmentKey> {
    let keys: Vec<u8> = own.iter().flat_map(|own| own.key().to_bytes()).collect();
    let all = block_on(world.fabric(), world.all_gather(&keys)).unwrap();
    all[1 - world.rank() as usize].chunks(SegmentKey::BYTES).map(|key| SegmentKey::from_bytes(key).unwrap()).collect()
}

#[test]
fn a_key_of_memory_that_is_gone_opens_nothing_though_its_place_is_used_again() {
    threads(2, |shm| {
        let world = World::new(shm.clone());
        let word = |key: &SegmentKey| shm.word(At { rank: key.rank, region: key.region, offset: 0 }).map(drop);
        for len in [8, 4096, 100_000] {
            let old = [shm.allocate(len).unwrap()];
            let key = tell_keys(&world, &old)[0];
            world.barrier().wait().unwrap();
            drop(old);
            world.barrier().wait().unwrap();
            let new = [shm.allocate(len).unwrap()];
            let other = tell_keys(&world, &new)[0];
            assert_ne!(key, other);
            assert_eq!(shm.open(&key).unwrap_err().fault().kind(), FaultKind::NoSuchRegion);
            assert_eq!(word(&key).map_err(Fault::kind), Err(FaultKind::NoSuchRegion));
            assert_eq!(
                shm.open(&SegmentKey { len: len + 1, ..other }).unwrap_err().fault().kind(),
                FaultKind::OutOfRange
            );
            // A region accessed by number stays accessible.
            assert_eq!(word(&other), Ok(()));
            world.barrier().wait().unwrap();
            drop(new);
            let more: Vec<_> = (0..20).map(|_| shm.allocate(len).unwrap()).collect();
            assert!(more.iter().all(|segment| segment.key().region != other.region));
            assert_eq!(word(&other), Ok(()));
            world.barrier().wait().unwrap();
        }
    })
    .unwrap();
}

#[test]
fn what_the_arena_has_no_room_for_has_a_file_of_its_own() {
    const MANY: usize = 16_400; // the table has 16,384 slots
    const LARGE: u64 = 300 << 20;
    threads(2, |shm| {
        let world = World::new(shm.clone());
        let mut own: Vec<_> = (0..MANY).map(|_| shm.allocate(8).unwrap()).collect();
        own.push(shm.allocate(LARGE).unwrap());
        let pieces = own.iter().filter(|own| own.key().region.0 & BLOCK != 0).count();
        assert!(!Mapping::reserves() || (1000..MANY).contains(&pieces), "{pieces} pieces");
        let last = tell_keys(&world, &own[MANY - 3..]);
        for (number, key) in (1_u64..).zip(&last) {
            let theirs = shm.open(key).unwrap();
            shm.put(&theirs, key.len / 8 * 8 - 8, &number.to_le_bytes()).unwrap();
        }
        world.barrier().wait().unwrap();
        for (number, own) in (1_u64..).zip(&own[MANY - 3..]) {
            let mut seen = [0; 8];
            shm.read_direct(own, own.len() - 8, &mut seen).unwrap();
            assert_eq!(u64::from_le_bytes(seen), number);
        }
        world.barrier().wait().unwrap();
    })
    .unwrap();
}

#[test]
fn pages_come_when_they_are_touched_or_at_once_on_demand() {
    const LEN: u64 = 1 << 20;
    threads(2, |shm| {
        let world = World::new(shm.clone());
        let own = [shm.allocate(LEN).unwrap()];
        let pages = |own: &ShmSegment| {
            let (memory, start) = own.mapping().unwrap();
            memory.present(start, LEN).unwrap().iter().map(|(_, len)| len).sum::<u64>()
        };
        let _theirs = shm.open(&tell_keys(&world, &own)[0]).unwrap();
        world.barrier().wait().unwrap();
        assert_eq!(pages(&own[0]), if Mapping::reserves() { 0 } else { LEN }, "that a peer opens it makes none");
        world.barrier().wait().unwrap();
        own[0].populate().unwrap();
        assert_eq!(pages(&own[0]), LEN);
        world.barrier().wait().unwrap();
    })
    .unwrap();
}

#[test]
fn memory_of_a_rank_that_left_is_not_reached_for_the_first_time() {
    threads(2, |shm| {
        let world = World::new(shm.clone());
        let own = [shm.allocate(64).unwrap(), shm.allocate(64).unwrap()];
        let keys = tell_keys(&world, &own);
        let reached = shm.open(&keys[0]).unwrap();
        world.barrier().wait().unwrap();
        if shm.rank() == Rank(0) {
            std::mem::forget(own); // its drop would retract them
            return;
        }
        while shm.liveness(Rank(0)) == Liveness::Alive {
            std::thread::yield_now();
        }
        shm.put(&reached, 0, &[1; 64]).unwrap();
        assert_eq!(shm.open(&keys[1]).unwrap_err().fault().kind(), FaultKind::PeerLeft);
    })
    .unwrap();
}

#[test]
fn user_memory_takes_a_block_and_no_file() {
    threads(2, |shm| {
        let world = World::new(shm.clone());
        let register = || shm.register(vec![shm.me().0 as u64; 8].into()).unwrap();
        let own = [register(), register()];
        let are_blocks = own.iter().all(|own| own.key().region.0 & BLOCK != 0);
        assert_eq!(are_blocks, Mapping::reserves(), "where there is an arena");
        let keys = tell_keys(&world, &own);
        let theirs = shm.open(&keys[0]).unwrap();
        let mut seen = [0; 8];
        shm.get(&theirs, 0, &mut seen).into_inner().unwrap();
        assert_eq!(u64::from_le_bytes(seen), u64::from(keys[0].rank.0));
        world.barrier().wait().unwrap();
        // The block is used again, but not the key.
        own.iter().for_each(|own| drop(shm.reclaim(own).unwrap().unwrap()));
        drop(own);
        let new = [register(), register()];
        world.barrier().wait().unwrap();
        for key in &keys {
            assert_eq!(shm.open(key).unwrap_err().fault().kind(), FaultKind::NoSuchRegion);
        }
        assert!(new.iter().all(|new| keys.iter().all(|key| key.region != new.key().region)));
        assert_eq!(shm.get(&theirs, 0, &mut seen).into_inner().map_err(Fault::kind), Err(FaultKind::NoSuchRegion));
        world.barrier().wait().unwrap();
    })
    .unwrap();
}
