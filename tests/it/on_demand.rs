//! Targets that `lock_all` locks on first access: by several threads at the same time, and with
//! owners that die.

use onesided::{Access, Error, LockAllDesign, LockDesign, Window, World};

use crate::jobs::{self, Role, die, ok};
use crate::support::{DEADLINE, eventually, ranks};

pub(crate) const ROLES: &[Role] = &[("a target's owner dies", owner_dies)];

/// The rank that is accessed.
const THREADS: u64 = 4;

/// Threads of rank 0 access one target at the same time, repeatedly, beside a writer: all share one
/// lock, which is taken once.
#[test]
fn threads_access_one_target_at_the_same_time() {
    for design in LockDesign::ALL {
        ranks(2, move |world| {
            let builder = Window::<u64>::builder().lock(*design).lock_all(LockAllDesign::OnDemand);
            let window = builder.allocate(&world, 1).wait().unwrap();
            for round in 0..50 {
                if world.rank() == 0 {
                    let all = window.lock_all().wait().unwrap();
                    let reach = || {
                        let access: &Access<'_, _, _> = all.at(1).wait().unwrap();
                        access.fetch_add(0, 1).wait().unwrap();
                        std::ptr::from_ref(access) as usize
                    };
                    let accesses: Vec<_> = std::thread::scope(|scope| {
                        let threads: Vec<_> = (0..THREADS).map(|_| scope.spawn(reach)).collect();
                        threads.into_iter().map(|thread| thread.join().unwrap()).collect()
                    });
                    assert!(accesses.iter().all(|access| *access == accesses[0]), "{design}");
                    match round % 2 {
                        0 => all.unlock_all().wait().unwrap(),
                        _ => drop(all),
                    }
                } else {
                    let epoch = window.lock_exclusive(1).deadline(DEADLINE).wait().unwrap();
                    let (mut before, mut after) = ([0], [0]);
                    epoch.get(0, &mut before).wait().unwrap();
                    epoch.get(0, &mut after).wait().unwrap();
                    assert_eq!(before, after, "{design}");
                    epoch.unlock().wait().unwrap();
                }
            }
            world.barrier().wait().unwrap();
            let epoch = window.lock_exclusive(1).deadline(DEADLINE).wait().unwrap();
            assert_eq!(epoch.fetch_one(0).wait().unwrap(), 50 * THREADS, "{design}");
            epoch.unlock().wait().unwrap();
            world.barrier().wait().unwrap();
            window.close().wait().unwrap();
        });
    }
}

/// The last rank dies with the lock of rank 1, which rank 0 accesses after others.
fn owner_dies(world: World) {
    let window = Window::<u64>::builder().lock_all(LockAllDesign::OnDemand).name("scores");
    let window = window.allocate(&world, 2).wait().unwrap();
    if world.rank() == 2 {
        let _epoch = window.lock_exclusive(1).wait().unwrap();
        world.barrier().wait().unwrap();
        die();
    }
    let _ = world.barrier().wait(); // a rank that dies right after the barrier may be found dead in it
    if world.rank() == 0 {
        eventually(DEADLINE, "the death is known", || !world.is_alive(2));
        let all = window.lock_all().wait().unwrap();
        let own = all.at(0).wait().unwrap();
        for _ in 0..2 {
            let error = Error::from(all.at(1).wait().map(drop).unwrap_err());
            let alone = Error::from(window.lock_shared(1).wait().map(drop).unwrap_err());
            assert!(error.is_poisoned() && error.fault() == alone.fault(), "{error}");
            assert_eq!(error.to_string(), alone.to_string().replacen("lock_shared", "lock_all", 1));
        }
        own.put(0, &[7]).unwrap();
        window.lock_exclusive(1).recover().wait().unwrap().unlock().wait().unwrap();
        all.at(1).wait().unwrap().put(1, &[7]).unwrap();
        all.unlock_all().wait().unwrap();
        assert_eq!(window.local().read(0..2), [7, 0]);
        // The other rank's memory stays as long as that rank.
        let epoch = window.lock_exclusive(1).wait().unwrap();
        epoch.put(0, &[1]).unwrap();
        epoch.unlock().wait().unwrap();
    } else {
        eventually(DEADLINE, "the other one has gone on", || window.local().read(0..1)[0] == 1);
        assert_eq!(window.local().read(1..2), [7]);
    }
    ok();
}

#[test]
fn a_death_affects_only_its_target() {
    for design in LockDesign::ALL {
        let ended = jobs::start_under(3, "a target's owner dies", ("ONESIDED_LOCK", design.name())).wait();
        assert_eq!((ended.code, ended.ok()), (128 + 9, vec![0, 1]), "{design} {ended:#?}");
    }
}
