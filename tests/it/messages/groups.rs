//! A communicator that some ranks make alone, and what the death of one of them does.

use onesided::{FaultKind, Messages, Op, Tag, World};

use crate::jobs::{self, die, ok};
use crate::support::{DEADLINE, eventually};

pub(super) fn one_dies(world: World) {
    let messages = Messages::new(&world).wait().unwrap();
    let me = world.rank();
    if me == 0 {
        return ok(); // it has left before the others begin, or while they do
    }
    let create = |members: &[u32], tag| messages.create_group(members, Tag(tag)).deadline(DEADLINE).wait();
    for round in 0..3 {
        let group = create(&[3, 1, 2], round).unwrap();
        assert_eq!(group.world().rank(), me % 3);
        let mut sums = vec![u64::from(me); 20_000];
        group.all_reduce(&mut sums, Op::Sum).wait().unwrap();
        assert!(sums.iter().all(|sum| *sum == 6));
        group.world().barrier().wait().unwrap();
    }
    if me == 1 {
        let mut last = messages.create_group(&[3, 1, 2], Tag(3));
        last.test().unwrap();
        die();
    }
    if me == 3 {
        // Rank 1 has begun, and cannot have ended.
        eventually(DEADLINE, "rank 1 dies", || !world.is_alive(1));
    }
    let error = create(&[3, 1, 2], 3).unwrap_err();
    assert_eq!((error.kind(), error.fault().rank().map(|rank| rank.0)), (FaultKind::PeerDied, Some(1)), "{error}");
    let pair = create(&[2, 3], 4).unwrap();
    pair.barrier().wait().unwrap();
    ok();
}

#[test]
fn a_death_ends_the_creation_of_a_group_and_the_others_make_another() {
    let ended = jobs::start(4, "messages: group of which one dies").wait();
    assert_eq!(ended.ok(), [0, 2, 3], "{ended:?}");
}
