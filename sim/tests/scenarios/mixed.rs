//! Programs that use several kinds of synchronisation in sequence, or many operations in each.

use onesided_fabric::{Fabric, World};
use onesided_windows::{Access, Error, Mode, Op, Shape, Window};

use crate::{Outcome, scenario};

scenario!(mixedsync, one_way_after_the_other, [2, 4]);
scenario!(lock_nested, locks_of_several_windows_and_targets, [3]);
scenario!(lockcontention, readers_and_one_writer, [3, 6]);
scenario!(contention_putget, puts_and_gets_meet, [4]);
scenario!(manyrma, thousands_of_small_operations, [2, 3]);
scenario!(transpose, a_matrix_is_turned, [1, 2]);
scenario!(accumulate_types, every_operation_on_every_type, [2]);

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

/// Rank 0 writes, all others read under shared locks that they hold for several operations.
async fn readers_and_one_writer<F: Fabric>(world: World<F>) -> Outcome {
    const LEN: usize = 20;
    let home = world.size() - 1;
    let window = Window::<u64>::builder().allocate(&world, LEN).await?;
    for round in 1..12 {
        if world.rank() == 0 {
            let epoch = window.lock_exclusive(home).await?;
            for at in 0..LEN {
                epoch.put(at, &[round])?;
            }
            epoch.unlock().await?;
        } else {
            let epoch = window.lock_shared(home).await?;
            let (mut forth, mut back) = ([0; LEN], [0; LEN]);
            for at in 0..LEN {
                epoch.get(at, &mut forth[at..=at]).await?;
            }
            for at in (0..LEN).rev() {
                epoch.get(at, &mut back[at..=at]).await?;
            }
            assert_eq!((forth, back), ([forth[0]; LEN], [forth[0]; LEN]));
            epoch.unlock().await?;
        }
    }
    world.barrier().await.unwrap();
    let epoch = window.lock_shared(home).await?;
    let mut last = [0; LEN];
    epoch.get(0, &mut last).await?;
    assert_eq!(last, [11; LEN]);
    epoch.unlock().await?;
    window.close().await
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

/// Rows are sent as columns, by puts, by gets and by accumulates.
async fn a_matrix_is_turned<F: Fabric>(world: World<F>) -> Outcome {
    const ROWS: usize = 9;
    const COLUMNS: usize = 7;
    let next = (world.rank() + 1) % world.size();
    let window = Window::<u16>::builder().allocate(&world, ROWS * COLUMNS).await?;
    let matrix: Vec<u16> = (0..(ROWS * COLUMNS) as u16).collect();
    let turned: Vec<u16> =
        (0..COLUMNS).flat_map(|column| (0..ROWS).map(move |row| row * COLUMNS + column)).map(|at| at as u16).collect();
    // The target has COLUMNS rows of ROWS elements: each row here is a column there.
    let column = Shape::Vector { count: COLUMNS, block: 1, stride: ROWS };
    for accumulates in [false, true] {
        let epoch = window.lock_exclusive(next).await?;
        for (row, elements) in matrix.chunks_exact(COLUMNS).enumerate() {
            if accumulates {
                epoch.accumulate_shaped(row, column, elements, Op::Replace).await?;
            } else {
                epoch.put_shaped(row, column, elements).await?;
            }
        }
        epoch.flush().await?;
        let mut back = vec![0; ROWS * COLUMNS];
        for (row, elements) in back.chunks_exact_mut(COLUMNS).enumerate() {
            epoch.get_shaped(row, column, elements).await?;
        }
        assert_eq!(back, matrix);
        epoch.unlock().await?;
        world.barrier().await.unwrap();
        assert_eq!(window.local().read(0..ROWS * COLUMNS), turned);
        world.barrier().await.unwrap();
        window.local().write(0, &[0; ROWS * COLUMNS])?;
        world.barrier().await.unwrap();
    }
    window.close().await
}

/// Allowed combinations give the same result by fetch, accumulate and get_accumulate; the others
/// are refused by all three.
async fn every_operation_on_every_type<F: Fabric>(world: World<F>) -> Outcome {
    async fn run<T: onesided_windows::AtomicElement + std::fmt::Debug, F: Fabric>(
        world: &World<F>,
        values: [T; 2],
    ) -> Outcome {
        let window = Window::<T>::builder().allocate(world, 3).await?;
        if world.rank() == 0 {
            let epoch = window.lock_exclusive(1).await?;
            for op in Op::ALL {
                epoch.accumulate(0, &[values[0]; 3], Op::Replace).await?;
                let mut before = [values[1]];
                let outcomes = [
                    epoch.fetch_and_op(0, values[1], op).await.map(|found| assert_eq!(found, values[0])),
                    epoch.accumulate(1, &[values[1]], op).await,
                    epoch.get_accumulate(2, &[values[1]], &mut before, op).await,
                ];
                let mut after = [T::zeroed(); 3];
                epoch.flush().await?;
                epoch.get(0, &mut after).await?;
                assert_eq!(after, [after[0]; 3], "{op:?}");
                if let Err(Error::Type { .. }) = outcomes[0] {
                    assert!(outcomes.iter().all(|outcome| matches!(outcome, Err(Error::Type { .. }))), "{op:?}");
                    assert_eq!(after[0], values[0], "{op:?}");
                } else {
                    outcomes.into_iter().collect::<Outcome>()?;
                    assert_eq!(before, [values[0]], "{op:?}");
                }
            }
            epoch.unlock().await?;
        }
        window.close().await
    }
    run(&world, [3_u8, 5]).await?;
    run(&world, [-3_i16, 5]).await?;
    run(&world, [7_u32, 0]).await?;
    run(&world, [i64::MIN, -1]).await?;
    run(&world, [1.5_f32, -2.0]).await?;
    run(&world, [0.25_f64, 8.0]).await?;
    run(&world, [onesided_windows::Located::new(3_i32, 1), onesided_windows::Located::new(3, 0)]).await
}
