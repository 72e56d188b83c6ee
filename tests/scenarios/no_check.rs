//! Access without a lock, and then with one: a program on which an implementation hangs that takes
//! the first for a lock.

use onesided_fabric::{Fabric, World};
use onesided_windows::{Error, Op, Window};

use crate::{Outcome, scenario};

scenario!(nocheck_then_check, locks_are_free_behind_an_unchecked_access, [2, 4]);
scenario!(check_beside_nocheck, an_unchecked_access_waits_for_nobody, [2]);
scenario!(nocheck_errors, missing_targets_and_ranges_are_refused, [2]);

async fn locks_are_free_behind_an_unchecked_access<F: Fabric>(world: World<F>) -> Outcome {
    let (me, size) = (world.rank() as usize, world.size());
    let window = Window::<u64>::builder().allocate(&world, 2 * size as usize).await?;
    for round in 1..6 {
        // Every rank writes its own element at every rank: no lock is needed.
        let epoch = window.no_check();
        for target in 0..size {
            epoch.at(target)?.put(me, &[round])?;
            let mut there = [0];
            epoch.at(target)?.get(me, &mut there).await?;
            assert_eq!(there, [round]);
        }
        epoch.end().await?;
        // The same targets under exclusive locks, shared locks and a lock of all.
        for target in 0..size {
            let epoch = window.lock_exclusive(target).await?;
            let mut sum = [0];
            epoch.get(size as usize, &mut sum).await?;
            epoch.put(size as usize, &[sum[0] + 1])?;
            epoch.unlock().await?;
            window.lock_shared(target).await?.unlock().await?;
        }
        let all = window.lock_all().await?;
        let unchecked = window.no_check();
        unchecked.at(0)?.accumulate(size as usize + 1, &[1], Op::Sum).await?;
        all.unlock_all().await?;
        unchecked.end().await?;
        world.barrier().await.unwrap();
        let own = window.local().read(0..size as usize + 2);
        assert_eq!(own[..size as usize], vec![round; size as usize]);
        assert_eq!(own[size as usize], round * u64::from(size));
        assert_eq!(own[size as usize + 1], if me == 0 { round * u64::from(size) } else { 0 });
        world.barrier().await.unwrap();
    }
    window.close().await
}

async fn an_unchecked_access_waits_for_nobody<F: Fabric>(world: World<F>) -> Outcome {
    let window = Window::<u8>::builder().allocate(&world, 16).await?;
    if world.rank() == 0 {
        let held = window.lock_exclusive(1).await?;
        let epoch = window.no_check();
        epoch.at(1)?.put(3, &[5; 9])?;
        epoch.end().await?;
        held.unlock().await?;
    }
    world.barrier().await.unwrap();
    if world.rank() == 1 {
        assert_eq!(window.local().read(2..13), [0, 5, 5, 5, 5, 5, 5, 5, 5, 5, 0]);
    }
    window.close().await
}

async fn missing_targets_and_ranges_are_refused<F: Fabric>(world: World<F>) -> Outcome {
    let window = Window::<u8>::builder().allocate(&world, 2).await?;
    let epoch = window.no_check();
    assert!(matches!(epoch.at(2), Err(Error::Rank { .. })));
    assert!(matches!(epoch.at(1)?.put(1, &[0; 2]), Err(Error::Range { .. })));
    epoch.end().await?;
    window.close().await
}
