//! Collectives that were started move while their rank waits for a lock of another process.

use onesided::{FaultKind, MessageError, Messages, Op, Tag, Window, World};

use crate::jobs::{self, Role, die, ok};
use crate::support::{DEADLINE, eventually};

pub(crate) const ROLES: &[Role] = &[("started: lock", waits_for_a_lock), ("started: dies", a_rank_dies)];

/// Rank 0 starts an all-reduce and waits for the lock of rank 2, which holds it until its own
/// all-reduce is over. `dies`: rank 1 does in place of its own. The outcome.
fn all_reduce(window: &Window<u64>, messages: &Messages, data: &mut [u32], dies: bool) -> Result<(), MessageError> {
    let world = window.world();
    let held = if world.rank() == 2 { Some(window.lock_exclusive(2).wait().unwrap()) } else { None };
    world.barrier().wait().unwrap();
    if dies && world.rank() == 1 {
        // The others have left the barrier.
        for rank in [0, 2] {
            messages.recv::<u8>(rank, Tag(0)).deadline(DEADLINE).wait().unwrap();
        }
        die();
    }
    if dies {
        messages.send::<u8>(&[], 1, Tag(0)).wait().unwrap();
    }
    let request = messages.all_reduce(data, Op::Sum).deadline(DEADLINE);
    match world.rank() {
        0 => {
            let request = request.start();
            window.lock_exclusive(2).deadline(DEADLINE).wait().unwrap().unlock().wait().unwrap();
            request.wait()
        }
        _ => {
            let outcome = request.wait();
            if let Some(epoch) = held {
                epoch.unlock().wait().unwrap();
            }
            outcome
        }
    }
}

fn waits_for_a_lock(world: World) {
    let messages = Messages::new(&world).wait().unwrap();
    let window = Window::allocate(&world, 1).wait().unwrap();
    // In a packet, and by rendezvous.
    for len in [1, 20_000] {
        let mut data = vec![world.rank(); len];
        all_reduce(&window, &messages, &mut data, false).unwrap();
        assert_eq!(data, vec![(0..world.size()).sum::<u32>(); len]);
        world.barrier().wait().unwrap();
    }
    ok();
}

fn a_rank_dies(world: World) {
    let messages = Messages::new(&world).wait().unwrap();
    let window = Window::allocate(&world, 1).wait().unwrap();
    let error = all_reduce(&window, &messages, &mut [1; 20_000], true).unwrap_err();
    assert_eq!(error.kind(), FaultKind::PeerDied, "{error}");
    assert!(error.to_string().contains("all_reduce (call 1): rank 1"), "{error}");
    // Rank 0 has had its lock before rank 2 leaves.
    if world.rank() == 2 {
        eventually(DEADLINE, "rank 0 has left", || !world.is_alive(0));
    }
    ok();
}

#[test]
fn a_call_moves_while_its_rank_waits_for_a_lock() {
    let ended = jobs::start(4, "started: lock").wait();
    assert_eq!((ended.code, ended.ok()), (0, vec![0, 1, 2, 3]), "{ended:#?}");
}

#[test]
fn a_death_ends_a_call_whose_rank_waits_for_a_lock() {
    let ended = jobs::start(3, "started: dies").wait();
    assert_eq!(ended.ok(), [0, 2], "{ended:#?}");
}
