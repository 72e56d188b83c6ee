//! Programs that use several kinds of synchronisation in sequence, or many operations in each.

use onesided_fabric::{Fabric, World};
use onesided_windows::{Access, Mode, Op, Window};

use crate::{Outcome, scenario};

scenario!(mixedsync, one_way_after_the_other, [2, 4]);
scenario!(lock_nested, locks_of_several_windows_and_targets, [3]);
scenario!(contention_putget, puts_and_gets_meet, [4]);
scenario!(manyrma, thousands_of_small_operations, [2, 3]);

/// Fence, exclusive and shared locks, lock_all, post-start, and no check, in one window: each sees
/// what the previous one did.
async fn one_way_after_the_other<F: Fabric>(world: World<F>) -> Outcome {
    let (me, size) = (world.rank(), world.size());
    let (before, after) = ((me + size - 1) % size, (me + 1) % size);
    let window = Window::<u64>::builder().allocate(&world, 8).await?;
    async fn add<F: Fabric>(access: &Access<'_, u64, F>, seen: u64) -> Outcome {
        let mut found = [0];
        access.get(0, &mut found).await?;
        assert_eq!(found, [seen]);
        access.put(0, &[seen + 1])
    }
    let mut seen = 0;
    for _ in 0..4 {
        let fence = window.fence().await?;
        add(fence.at(after)?, seen).await?;
        fence.end().await?;
        for mode in [Mode::Exclusive, Mode::Shared] {
            seen += 1;
            let request =
                if mode == Mode::Exclusive { window.lock_exclusive(after) } else { window.lock_shared(after) };
            let epoch = request.await?;
            add(&epoch, seen).await?;
            epoch.unlock().await?;
        }
        seen += 1;
        let all = window.lock_all().await?;
        add(all.at(after).await?, seen).await?;
        all.unlock_all().await?;
        seen += 1;
        let (exposure, epoch) = (window.post(&[before])?, window.start(&[after]).await?);
        add(epoch.at(after)?, seen).await?;
        epoch.complete().await?;
        exposure.await?;
        seen += 1;
        let unchecked = window.no_check();
        add(unchecked.at(after)?, seen).await?;
        unchecked.end().await?;
        seen += 1;
        world.barrier().await.unwrap();
        assert_eq!(window.local().read(0..1), [seen]);
        world.barrier().await.unwrap();
    }
    window.close().await
}

/// One rank holds locks of several windows and of several targets at a time, and releases them in
/// any order.
async fn locks_of_several_windows_and_targets<F: Fabric>(world: World<F>) -> Outcome {
    let first = Window::<u64>::builder().allocate(&world, 1).await?;
    let second = Window::<u64>::builder().allocate(&world, 1).await?;
    for round in 0..6 {
        // By rising targets, the first window before the second, so that there is no deadlock.
        let one = first.lock_exclusive(0).await?;
        let two = first.lock_exclusive(1).await?;
        let three = second.lock_exclusive(0).await?;
        let mut found = [[0]; 3];
        for (epoch, found) in [&one, &two, &three].into_iter().zip(&mut found) {
            epoch.get(0, found).await?;
        }
        assert!(found.iter().all(|each| *each == found[0]), "{found:?}");
        for epoch in [&one, &two, &three] {
            epoch.put(0, &[found[0][0] + 1])?;
        }
        // What is done under one of them needs no flush for the others, because all three are
        // taken.
        match round % 3 {
            0 => {
                one.unlock().await?;
                three.unlock().await?;
                two.unlock().await?;
            }
            1 => {
                drop(two);
                one.unlock().await?;
                drop(three);
            }
            _ => drop((three, two, one)),
        }
    }
    world.barrier().await.unwrap();
    let sum = 6 * u64::from(world.size());
    if world.rank() < 2 {
        assert_eq!(first.lock_shared(world.rank()).await?.fetch_one(0).await?, sum);
    }
    second.close().await?;
    first.close().await
}

/// Every rank puts to its own stripe at every rank, and gets all stripes, at the same time. It
/// reads bytes of some round, and of its own stripe those of the last.
async fn puts_and_gets_meet<F: Fabric>(world: World<F>) -> Outcome {
    const STRIPE: usize = 33;
    let (me, size) = (world.rank() as usize, world.size() as usize);
    let window = Window::<u64>::builder().allocate(&world, STRIPE * size).await?;
    let all = window.lock_all().await?;
    for round in 1..8 {
        for step in 0..size {
            let target = all.at(((me + step) % size) as u32).await?;
            target.put(STRIPE * me, &[round; STRIPE])?;
            let mut found = vec![0; STRIPE * size];
            target.get(0, &mut found).await?;
            assert_eq!(found[STRIPE * me..][..STRIPE], [round; STRIPE]);
            assert!(found.iter().all(|found| *found < 8), "{found:?}");
        }
    }
    all.flush_all().await?;
    world.barrier().await.unwrap();
    assert_eq!(window.local().read(0..STRIPE * size), vec![7; STRIPE * size]);
    all.unlock_all().await?;
    window.close().await
}

/// Thousands of operations of one element between two synchronisations, by each kind.
async fn thousands_of_small_operations<F: Fabric>(world: World<F>) -> Outcome {
    const COUNT: usize = 1000;
    let (me, size) = (world.rank(), world.size());
    let (before, after) = ((me + size - 1) % size, (me + 1) % size);
    let window = Window::<u32>::builder().allocate(&world, COUNT).await?;
    let sums = Window::<u64>::builder().allocate(&world, 1).await?;
    async fn puts<F: Fabric>(access: &Access<'_, u32, F>, value: u32) -> Outcome {
        (0..COUNT).try_for_each(|at| access.put(at, &[value + at as u32]))
    }
    let check = |value: u32| assert!(window.local().read(0..COUNT).into_iter().eq(value..value + COUNT as u32));
    let fence = window.fence().await?;
    puts(fence.at(after)?, 1).await?;
    let fence = fence.fence().await?;
    check(1);
    fence.end().await?;
    let (exposure, epoch) = (window.post(&[before])?, window.start(&[after]).await?);
    puts(epoch.at(after)?, 2).await?;
    epoch.complete().await?;
    exposure.await?;
    check(2);
    world.barrier().await.unwrap(); // the next values are put after this
    let epoch = window.lock_exclusive(after).await?;
    puts(&epoch, 3).await?;
    epoch.unlock().await?;
    let all = sums.lock_all().await?;
    for _ in 0..COUNT {
        all.at(0).await?.accumulate(0, &[1], Op::Sum).await?;
    }
    all.unlock_all().await?;
    world.barrier().await.unwrap();
    check(3);
    if me == 0 {
        assert_eq!(sums.local().read(0..1), [COUNT as u64 * u64::from(size)]);
    }
    sums.close().await?;
    window.close().await
}
