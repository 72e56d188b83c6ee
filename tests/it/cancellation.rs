//! Ranks that cancel an acquire and compute: the others get the lock meanwhile.

use std::time::Duration;

use onesided::{LockDesign, Window, World};

use crate::jobs::{self, Role, ok};
use crate::support::{compute, poll_once};

pub(crate) const ROLES: &[Role] = &[("leavers", leaves)];

/// How long they compute, without a call of the library.
const LONG: Duration = Duration::from_millis(400);
/// A busy machine may not run rank 2 for that long, but not every time.
const ROUNDS: usize = 5;

/// Rank 0 drops a guard, rank 1 a pending acquire, and both compute; rank 2 acquires the lock
/// before they are done.
fn leaves(world: World) {
    let window = Window::<u64>::allocate(&world, ROUNDS).wait().unwrap();
    let mut in_time = 0;
    for round in 0..ROUNDS {
        let exclusive = round % 2 == 0;
        let ask = || if exclusive { window.lock_exclusive(2) } else { window.lock_shared(2) };
        let barrier = || world.barrier().wait().unwrap();
        match world.rank() {
            0 => {
                let epoch = window.lock_exclusive(2).wait().unwrap();
                barrier();
                barrier();
                drop(epoch);
                compute(LONG);
                window.local().write(round, &[1]).unwrap();
            }
            1 => {
                barrier();
                let mut request = ask();
                for _ in 0..round + 1 {
                    assert!(poll_once(&mut request).is_pending());
                }
                barrier();
                drop(request);
                compute(LONG);
                window.local().write(round, &[1]).unwrap();
            }
            _ => {
                barrier();
                barrier();
                let epoch = window.lock_exclusive(2).wait().unwrap();
                let others = window.no_check();
                let done = [0, 1].map(|rank| {
                    let mut done = [0];
                    others.at(rank).unwrap().get(round, &mut done).wait().unwrap();
                    done[0]
                });
                in_time += usize::from(done == [0, 0]);
                epoch.unlock().wait().unwrap();
            }
        }
        barrier();
    }
    assert!(world.rank() != 2 || in_time > 0, "it always waited for who computed");
    window.close().wait().unwrap();
    ok();
}

#[test]
fn a_rank_that_cancels_and_computes_delays_no_other_rank() {
    for design in LockDesign::ALL {
        let ended = jobs::start_under(3, "leavers", ("ONESIDED_LOCK", design.name())).wait();
        assert_eq!((ended.code, ended.ok()), (0, vec![0, 1, 2]), "{design} {ended:#?}");
    }
}
