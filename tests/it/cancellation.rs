//! Ranks that cancel an acquire and compute: the others get the lock meanwhile.

use onesided::{LockDesign, Window, World};

use crate::jobs::{self, Role, ok};
use crate::support::{DEADLINE, compute_until, poll_once};

pub(crate) const ROLES: &[Role] = &[("leavers", leaves)];

const ROUNDS: usize = 5;

/// Rank 0 drops a guard, rank 1 a pending acquire, and both compute until rank 2, which acquires
/// the lock, tells them.
fn leaves(world: World) {
    let window = Window::<u64>::allocate(&world, ROUNDS).wait().unwrap();
    let computes = |round| {
        // A look at memory of its own, which drives nothing.
        let told = compute_until(DEADLINE / 2, || window.local().read(round..round + 1)[0] == 1);
        assert!(told, "rank 2 waits for who computes");
    };
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
                computes(round);
            }
            1 => {
                barrier();
                let mut request = ask();
                for _ in 0..round + 1 {
                    assert!(poll_once(&mut request).is_pending());
                }
                barrier();
                drop(request);
                computes(round);
            }
            _ => {
                barrier();
                barrier();
                let epoch = window.lock_exclusive(2).wait().unwrap();
                let others = window.no_check();
                for rank in [0, 1] {
                    others.at(rank).unwrap().fetch_add(round, 1).wait().unwrap();
                }
                epoch.unlock().wait().unwrap();
            }
        }
        barrier();
    }
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
