use crate::right::{global, mcs, right, ticket};
use crate::users::slotted;
use onesided_lock_algos::{Global, LockAlgorithm, Mode, TestAndSet};
use onesided_lock_kit::program::{LOCK, region_words};
use onesided_lock_kit::{ModelMemory, Search};
use onesided_remote_memory::Rank;

use crate::stopped::{ENDLESS, SLOTS, acquire, poll, run};

fn search<A: LockAlgorithm + Clone>(lock: &A) {
    let search = Search::of(lock).seed(1).cases(200);
    search.clone().run();
    search.clone().deaths().run();
    search.leaves().run();
}

#[test]
fn searched() {
    search(&global::<_, 15>(right()));
    search(&global::<_, 15>(ticket::<2>()));
    search(&global::<_, 15>(mcs()));
}

#[test]
fn searched_when_oversubscribed() {
    search(&global::<_, 1>(right()));
    search(&global::<_, 2>(right()));
}

#[test]
fn checked() {
    super::check(&global::<_, 15>(right()), 2);
    super::check(&global::<_, 1>(right()), 2);
}

/// Rank 0 is about to recover, and scans the participants. Meanwhile rank 3, which is in the word
/// that it has read, leaves, and rank 2 arrives: the counts are the same as before, and the scan
/// found neither.
#[test]
fn an_arrival_that_replaces_a_departure_is_not_overlooked() {
    type Room = Global<TestAndSet>;
    let lock: &Room = &global::<_, 15>(right());
    let memory = ModelMemory::new(4, region_words::<Room>(SLOTS));
    let all: Vec<_> = (0..4).map(|rank| memory.of(rank)).collect();
    let asks = |rank: u32, mode| acquire(lock, &all[rank as usize], slotted(rank), mode);
    let room = || memory.region()[LOCK + Room::HOME_WORDS - Room::LOCK_ALL_WORDS];
    let counts = |word: u64| word & 0x3fff_ffff;
    run(&memory, &mut asks(1, Mode::Shared), ENDLESS).unwrap().unwrap();
    memory.world().kill(Rank(1));
    let mut recovering = asks(0, Mode::Exclusive);
    while room() >> 63 == 0 {
        assert!(poll(&mut recovering).is_none());
        memory.world().step();
    }
    // It has arrived, and does not know yet that it has to retract itself.
    let mut goes = asks(3, Mode::Shared);
    assert!(poll(&mut goes).is_none());
    while counts(room()) != 2 {
        memory.world().step();
    }
    // The recovering owner has read the lock-all word, and rank 2's node.
    let looked = || {
        let net = memory.world();
        net.trace.effects().iter().filter(|effect| (effect.origin, effect.target) == (Rank(0), Rank(2))).count()
    };
    while looked() < 1 {
        assert!(poll(&mut recovering).is_none());
        memory.world().step();
    }
    while counts(room()) != 1 {
        assert!(poll(&mut goes).is_none());
        memory.world().step();
    }
    // Its later operations are complete.
    for _ in 0..4 {
        memory.world().step();
        assert!(poll(&mut goes).is_none());
    }
    let mut comes = asks(2, Mode::Shared);
    assert!(poll(&mut comes).is_none());
    while counts(room()) != 2 {
        memory.world().step();
    }
    let held = run(&memory, &mut recovering, ENDLESS);
    let beside = run(&memory, &mut comes, ENDLESS);
    let other = run(&memory, &mut goes, ENDLESS);
    assert!(held.is_none() || beside.is_none() && other.is_none(), "{held:?} beside {beside:?} and {other:?}");
}
