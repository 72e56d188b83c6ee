//! Blocks: which ranks may access them, when their ranges are reused, and what they contain then.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use onesided_job::local;
use onesided_remote_memory::RegionId;

use crate::shm::Mapping;
use crate::shm::arena::{Arena, BLOCK, Block, LAST_USE, Owner, SLOT_BITS, region};

const MIB: u64 = 1 << 20;

fn owner(len: u64, kept: u64) -> Arc<Owner> {
    let exchange = local::jobs(1).unwrap().pop().unwrap().exchange;
    Arc::new(Owner::over(Arc::new(Mapping::reserve(len as usize).unwrap()), exchange, kept))
}

/// A peer's mapping.
fn peer(owner: &Owner) -> Arc<Arena> {
    let file = owner.arena().memory.file().unwrap().try_clone_to_owned().unwrap();
    Arc::new(Arena::new(Arc::new(Mapping::reach(file).unwrap())))
}

fn pages(owner: &Owner) -> u64 {
    rustix::fs::fstat(owner.arena().memory.file().unwrap()).unwrap().st_blocks as u64 * 512
}

/// Writes to all words of a block, which has to be zero.
fn fill(arena: &Arena, start: u64, len: u64) {
    for at in (start..start + len / 8 * 8).step_by(8) {
        assert_eq!(arena.memory.word(at).unwrap().swap(u64::MAX, Ordering::Relaxed), 0, "old contents at {at}");
    }
}

#[test]
fn a_place_is_used_again_without_its_old_contents() {
    for kept in [0, 40 << 10, 32 * MIB] {
        let owner = owner(16 * MIB, kept);
        for round in 0..3 {
            for len in [1, 8, 64, 100, 4000, 4096, 65_536, 65_544, 300_000, MIB, 4 * MIB] {
                let (id, block, start) = owner.allocate(len).unwrap();
                let (theirs, begins, there) = owner.arena().open(id).unwrap();
                assert_eq!((begins, there), (start, len));
                fill(owner.arena(), start, len);
                drop(theirs);
                drop(block);
                assert!(owner.arena().open(id).is_err(), "{len} bytes in round {round}");
            }
        }
        let used: u64 = 1 << 23; // the size classes together, and a page for the smaller ones
        assert!(owner.allocate(4 * MIB).is_some() && pages(&owner) <= used);
        assert!(kept > 0 || pages(&owner) <= 16 << 10, "the table, and a page of small pieces");
    }
}

#[test]
fn a_place_keeps_its_pages_for_as_long_as_they_are_used() {
    let owner = owner(16 * MIB, 32 * MIB);
    let used = |touch: bool| {
        let (_, block, start) = owner.allocate(MIB).unwrap();
        let before = owner.arena().memory.present(start, MIB).unwrap();
        if touch {
            fill(owner.arena(), start, MIB);
        }
        drop(block);
        before.iter().map(|(_, len)| len).sum::<u64>()
    };
    let before = [true, true, false, false, true].map(used);
    assert_eq!(before, [0, MIB, MIB, 0, 0]);
}

#[test]
fn pages_of_a_longer_use_before_are_counted() {
    // The last of these has space only for what was counted too low.
    for (kept, lens) in [(MIB, [MIB, 600 << 10, 300 << 10]), (64 << 10, [64 << 10, 40 << 10, 16 << 10])] {
        let owner = owner(16 * MIB, kept);
        for len in lens {
            let (_, block, start) = owner.allocate(len).unwrap();
            fill(owner.arena(), start, len);
            drop(block);
        }
        assert!(pages(&owner) <= kept + 4096, "{} and a page of the table", pages(&owner));
    }
}

#[test]
fn a_place_that_looked_untouched_has_no_old_contents() {
    for room in [16 * MIB, 4 * MIB] {
        let owner = owner(room, 2 * MIB);
        let (_, block, start) = owner.allocate(MIB).unwrap();
        fill(owner.arena(), start, MIB);
        drop(block);
        let (_, block, again) = owner.allocate(MIB).unwrap();
        // Pages that are not sampled.
        for page in (0..256).filter(|page| page % 4 != 0) {
            owner.arena().memory.word(start + page * 4096).unwrap().store(7, Ordering::Relaxed);
        }
        drop(block);
        assert_eq!(again, start);
        // Its pages make room for other ranges', or nothing else is left.
        let others: Vec<_> = std::iter::from_fn(|| owner.allocate(MIB)).collect();
        others.iter().for_each(|(.., start)| fill(owner.arena(), *start, MIB));
        assert!(others.iter().any(|(.., theirs)| *theirs == start), "it comes back when all others are used");
        drop(others);
        assert!(pages(&owner) <= 2 * MIB + 4096);
        let (_, _piece, start) = owner.allocate(MIB).unwrap();
        fill(owner.arena(), start, MIB);
    }
}

#[test]
fn a_place_that_keeps_its_pages_is_used_before_one_that_may_not() {
    let owner = owner(16 * MIB, MIB);
    let range = || owner.allocate(MIB).unwrap();
    let ((_, one, first), (_, other, second)) = (range(), range());
    for start in [first, second] {
        fill(owner.arena(), start, MIB);
    }
    drop(one);
    drop(other);
    assert_eq!(pages(&owner) / MIB, 1, "there is room for one");
    assert_eq!(range().2, first);
}

#[test]
fn dirty_ranges_make_room_for_used_ones() {
    let owner = owner(16 * MIB, MIB);
    let used = |touch: bool| {
        let (_, block, start) = owner.allocate(MIB).unwrap();
        if touch {
            fill(owner.arena(), start, MIB);
        }
        drop(block);
        start
    };
    let first = used(true);
    assert_eq!(used(false), first);
    let second = used(true);
    assert_ne!(second, first, "nobody waits for pages to be given up");
    assert!(owner.arena().memory.present(first, MIB).unwrap().is_empty(), "until others need their room");
    assert_eq!(owner.arena().memory.present(second, MIB).unwrap(), [(second, MIB)]);
}

#[test]
fn a_peer_that_holds_a_piece_keeps_its_place_from_others() {
    let owner = owner(16 * MIB, MIB);
    let peer = peer(&owner);
    let (old, block, start) = owner.allocate(4096).unwrap();
    let (held, begins, _) = peer.open(old).unwrap();
    let (twice, ..) = peer.open(old).unwrap();
    assert_eq!(begins, start);
    drop(block);
    assert!(peer.open(old).is_err(), "it has ended");
    peer.memory.word(start).unwrap().store(7, Ordering::Relaxed);
    let others: Vec<_> = (0..100).map(|_| owner.allocate(4096).unwrap()).collect();
    assert!(others.iter().all(|(_, _, theirs)| *theirs != start));
    drop(twice);
    assert_ne!(owner.allocate(4096).unwrap().2, start, "one hold is left");
    assert_eq!(peer.memory.word(start).unwrap().load(Ordering::Relaxed), 7);
    drop(held);
    let found = (0..100).map(|_| owner.allocate(4096).unwrap()).find(|(.., theirs)| *theirs == start);
    let (new, block, _) = found.expect("nobody holds it any more");
    fill(&peer, start, 4096);
    assert!(peer.open(old).is_err(), "a key of the use before");
    assert!(old != new && peer.open(new).is_ok());
    drop(block);
}

#[test]
fn a_peer_without_room_for_all_of_it_maps_what_it_meets() {
    let owner = owner(64 * MIB, MIB);
    let file = owner.arena().memory.file().unwrap().try_clone_to_owned().unwrap();
    let peer = Arc::new(Arena::by_piece(file).unwrap());
    for len in [8, 100, 4096, 10_000, 4 * MIB] {
        let (_, _before, _) = owner.allocate(len).unwrap();
        let (id, block, start) = owner.allocate(len).unwrap();
        let (held, at, there) = peer.open(id).unwrap();
        assert!(there == len && (held.memory().len() as u64) < len + 8192);
        let word = |memory: &Mapping, at: u64| memory.word(at).unwrap().swap(at, Ordering::Relaxed);
        for offset in [0, (len - 8) / 8 * 8] {
            word(held.memory(), at + offset);
            assert_eq!(word(&owner.arena().memory, start + offset), at + offset);
        }
        drop(block);
        assert!(peer.open(id).is_err());
        assert!(owner.allocate(len).is_some_and(|(.., other)| other != start), "it is held");
        drop(held);
    }
}

#[test]
fn what_is_no_key_opens_nothing() {
    let owner = owner(MIB, MIB);
    let arena = peer(&owner);
    let (id, _piece, _) = owner.allocate(8).unwrap();
    let wrong = [BLOCK, id.0 + (1 << SLOT_BITS), id.0 + 1, id.0 | ((1 << SLOT_BITS) - 1), u32::MAX >> 1];
    for number in wrong {
        assert!(arena.open(RegionId(number)).is_err(), "{number:#x}");
    }
    assert!(arena.open(id).is_ok());
}

#[test]
fn an_arena_that_is_full_says_so_and_recovers() {
    let owner = owner(MIB, MIB);
    assert!(owner.allocate(0).is_none() && owner.allocate(MIB / 2).is_none() && owner.allocate(u64::MAX).is_none());
    let all = |len| {
        let blocks: Vec<(RegionId, Block, u64)> = std::iter::from_fn(|| owner.allocate(len)).collect();
        blocks.len()
    };
    assert_eq!(all(8), owner.arena().slots as usize, "one a slot");
    assert_eq!(all(MIB / 4), 3, "the table takes some of it");
    assert_eq!(all(MIB / 4), 3);
    assert!(all(4096) > 32);
}

#[test]
fn no_number_comes_twice() {
    let owner = owner(MIB, MIB);
    let slots = owner.arena().slots;
    let mut seen = std::collections::HashSet::new();
    let mut use_all = |times: u32| {
        for _ in 0..times {
            let all: Vec<_> = std::iter::from_fn(|| owner.allocate(64)).collect();
            assert_eq!(all.len(), slots as usize);
            assert!(all.iter().all(|(id, ..)| seen.insert(*id)));
        }
    };
    use_all(3);
    owner.age(LAST_USE - 3);
    use_all(3);
    assert!(owner.allocate(64).is_none(), "all slots are used up");
    assert!(seen.contains(&region(0, 1)) && seen.contains(&region(slots - 1, LAST_USE)));
    assert!(seen.iter().all(|id| id.0 & (3 << 30) == BLOCK && id.0 != BLOCK));
}

#[test]
fn many_threads_share_it() {
    let owner = owner(16 * MIB, MIB);
    std::thread::scope(|scope| {
        for thread in 1..=4_u64 {
            let owner = &owner;
            scope.spawn(move || {
                let arena = peer(owner);
                for round in 0..2000 {
                    let len = 64 << (round % 6);
                    let (id, block, start) = owner.allocate(len).unwrap();
                    let (held, ..) = arena.open(id).unwrap();
                    for at in (start..start + len).step_by(8) {
                        assert_eq!(arena.memory.word(at).unwrap().swap(thread, Ordering::Relaxed), 0);
                    }
                    // In either order.
                    let (first, last) = if round % 2 == 0 { (block, held) } else { (held, block) };
                    drop(first);
                    drop(last);
                }
            });
        }
    });
}
