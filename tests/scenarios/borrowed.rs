//! Many operations on borrowed slices at the same time, and transfers of owned buffers.

use onesided_fabric::{Fabric, World};
use onesided_windows::{Error, Op, Window};

use crate::{Outcome, scenario};

scenario!(scope_of_many, a_scope_completes_all_of_them, [2, 4]);
scenario!(scope_with_errors, the_first_error_is_reported_and_the_rest_is_done, [2]);
scenario!(scope_of_two_worlds, an_access_is_flushed_where_it_goes, [2, 3]);
scenario!(buffers, buffers_return_with_their_data, [2, 3]);

async fn a_scope_completes_all_of_them<F: Fabric>(world: World<F>) -> Outcome {
    const LEN: usize = 130;
    let (me, size) = (world.rank(), world.size());
    let window = Window::<u64>::builder().allocate(&world, LEN * size as usize + 1).await?;
    let all = window.lock_all().await?;
    let mut accesses = Vec::new();
    for target in 0..size {
        accesses.push(all.at(target).await?);
    }
    for round in 1..6 {
        let before = vec![round - 1; LEN];
        let mut found = vec![vec![9; LEN]; size as usize];
        let (mine, mut counts) = (LEN * me as usize, vec![[0]; size as usize]);
        window
            .scope_async(|scope| {
                for (access, found) in accesses.iter().zip(&mut found) {
                    scope.get(access, mine, found);
                }
                for (access, count) in accesses.iter().zip(&mut counts) {
                    scope.get_accumulate(access, LEN * size as usize, &[1], count, Op::Sum);
                }
                Ok(())
            })
            .await?;
        assert!(found.iter().all(|found| *found == before));
        assert!(counts.iter().all(|[count]| *count < round * u64::from(size)));
        window
            .scope_async(|scope| {
                for access in &accesses {
                    scope.put(access, mine, &[round; LEN / 2]);
                    scope.accumulate(access, mine + LEN / 2, &[1; LEN - LEN / 2], Op::Sum);
                }
                Ok(())
            })
            .await?;
        world.barrier().await.unwrap();
        assert_eq!(window.local().read(0..LEN * size as usize), vec![round; LEN * size as usize]);
        assert_eq!(window.local().read(LEN * size as usize..LEN * size as usize + 1), [round * u64::from(size)]);
        world.barrier().await.unwrap();
    }
    all.unlock_all().await?;
    window.close().await
}

/// The access belongs to another window, of a world that numbers the ranks differently.
async fn an_access_is_flushed_where_it_goes<F: Fabric>(world: World<F>) -> Outcome {
    let alone = world.split(world.rank(), 0).await.unwrap();
    let (mine, shared) =
        (Window::<u64>::builder().allocate(&alone, 1).await?, Window::<u64>::builder().allocate(&world, 1).await?);
    let next = (world.rank() + 1) % world.size();
    let all = shared.lock_all().await?;
    let access = all.at(next).await?;
    mine.scope_async(|scope| {
        scope.put(access, 0, &[7]);
        Ok(())
    })
    .await?;
    world.barrier().await.unwrap();
    assert_eq!(shared.local().read(0..1), [7]);
    all.unlock_all().await?;
    mine.close().await?;
    shared.close().await
}

async fn the_first_error_is_reported_and_the_rest_is_done<F: Fabric>(world: World<F>) -> Outcome {
    let window = Window::<u16>::builder().name("small").allocate(&world, 4).await?;
    if world.rank() == 0 {
        let epoch = window.lock_exclusive(1).await?;
        epoch.put(0, &[1, 2, 3, 4])?;
        let (mut two, mut five) = ([0; 2], [0; 5]);
        let outcome = window
            .scope_async(|scope| {
                scope.get(&epoch, 0, &mut five);
                scope.get(&epoch, 2, &mut two);
                scope.put(&epoch, 4, &[1]);
                Ok(7)
            })
            .await;
        assert!(matches!(outcome, Err(Error::Range { operation: "put", .. })), "{outcome:?}");
        assert_eq!((two, five), ([3, 4], [0; 5]));
        let mut one = [0];
        let outcome: Result<(), _> = window
            .scope_async(|scope| {
                scope.get(&epoch, 0, &mut one);
                Err(Error::NotLocked { operation: "of its own", target: 3, window: "none".into() })
            })
            .await;
        assert!(matches!(outcome, Err(Error::NotLocked { .. })));
        assert_eq!(one, [1]);
        epoch.unlock().await?;
    }
    window.close().await
}

async fn buffers_return_with_their_data<F: Fabric>(world: World<F>) -> Outcome {
    const LEN: usize = 3000;
    let window = Window::<u32>::builder().allocate(&world, LEN).await?;
    let next = (world.rank() + 1) % world.size();
    let mut buffer = window.buffer(LEN + 10)?;
    assert_eq!(buffer.read(0..LEN + 10)?, [0; LEN + 10]);
    for round in 1..4 {
        buffer.write(10, &[round; LEN])?;
        let epoch = window.lock_exclusive(next).await?;
        buffer = epoch.put_buffer(0, buffer, 10..10 + LEN).await?;
        buffer.write(10, &[0; LEN])?;
        buffer = epoch.get_buffer(1, buffer, 0..LEN - 1).await?;
        assert_eq!(buffer.read(0..LEN)?, [&[round; LEN - 1][..], &[0]].concat());
        drop(epoch.put_buffer(0, window.buffer(4)?, 0..0));
        epoch.unlock().await?;
        world.barrier().await.unwrap();
        assert_eq!(window.local().read(0..LEN), [round; LEN]);
        world.barrier().await.unwrap();
    }
    // Dropped in flight: the memory lasts as long as the transfer.
    let epoch = window.lock_exclusive(next).await?;
    drop(epoch.put_buffer(0, buffer, 0..LEN));
    epoch.unlock().await?;
    world.barrier().await.unwrap();
    assert_eq!(window.local().read(0..LEN), [&[3; LEN - 1][..], &[0]].concat());
    // Ranges that do not fit.
    let epoch = window.lock_exclusive(next).await?;
    for (offset, range) in [(1, 0..LEN), (0, 5..LEN + 6), (usize::MAX, 0..1)] {
        let buffer = window.buffer(LEN + 5)?;
        let (error, buffer) = epoch.put_buffer(offset, buffer, range.clone()).await.unwrap_err().into_parts();
        assert!(matches!(error, Error::Range { .. }));
        let failed = epoch.get_buffer(offset, buffer.unwrap(), range).await.unwrap_err();
        assert!(matches!(failed.error(), Error::Range { .. }));
        assert_eq!(failed.into_parts().1.unwrap().len(), LEN + 5);
    }
    epoch.unlock().await?;
    assert!(window.buffer(0)?.read(0..0)?.is_empty() && window.buffer(usize::MAX).is_err());
    window.close().await
}
