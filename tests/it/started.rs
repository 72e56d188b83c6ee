//! Collectives that were started move while their rank waits for a lock of another process.

use onesided::{Messages, Op, Window, World};

use crate::jobs::{self, Role, ok};
use crate::support::DEADLINE;

pub(crate) const ROLES: &[Role] = &[("started: lock", waits_for_a_lock)];

/// Rank 0 starts an all-reduce and waits for the lock of rank 2, which holds it until its own
/// all-reduce is over.
fn waits_for_a_lock(world: World) {
    let messages = Messages::new(&world).wait().unwrap();
    let window = Window::<u64>::allocate(&world, 1).wait().unwrap();
    // In a packet, and by rendezvous.
    for len in [1, 20_000] {
        let held = (world.rank() == 2).then(|| window.lock_exclusive(2).wait().unwrap());
        world.barrier().wait().unwrap();
        let mut data = vec![world.rank(); len];
        let mut request = messages.all_reduce(&mut data, Op::Sum).deadline(DEADLINE);
        if world.rank() == 0 {
            request = request.start();
            window.lock_exclusive(2).deadline(DEADLINE).wait().unwrap().unlock().wait().unwrap();
        }
        request.wait().unwrap();
        if let Some(held) = held {
            held.unlock().wait().unwrap();
        }
        assert_eq!(data, vec![(0..world.size()).sum::<u32>(); len]);
        world.barrier().wait().unwrap();
    }
    ok();
}

#[test]
fn a_call_moves_while_its_rank_waits_for_a_lock() {
    let ended = jobs::start(4, "started: lock").wait();
    assert_eq!((ended.code, ended.ok()), (0, vec![0, 1, 2, 3]), "{ended:#?}");
}
