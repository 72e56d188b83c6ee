//! Worlds of some ranks of a world.

use std::future::poll_fn;
use std::pin::Pin;
use std::task::Poll;
use std::time::Duration;

use onesided_fabric::remote_memory::{FaultKind, Rank};
use onesided_fabric::{Fabric, World};
use onesided_sim::{End, Network, SimFabric, Simulation};
use onesided_windows::{Error, Op, Window};

use crate::{Outcome, pause, scenario};

scenario!(rows_and_columns, a_grid_of_worlds, [2, 6]);
scenario!(alone_among_others, each_rank_a_world, [3]);
scenario!(windows_at_a_time, windows_have_orders_of_their_own, [1, 2, 3, 5]);
scenario!(halves_of_halves, a_world_is_divided_until_one_is_left, [1, 5, 8]);

async fn split<F: Fabric>(world: &World<F>, color: u32, key: u32) -> World<F> {
    world.split(color, key).await.unwrap()
}

/// Polls futures at the same time, each from the first one on.
async fn together<T>(futures: impl Iterator<Item = impl Future<Output = Result<T, Error>>>) -> Result<Vec<T>, Error> {
    let mut futures: Vec<_> = futures.map(|future| (Box::pin(future), None)).collect();
    poll_fn(|cx| {
        for (future, ended) in futures.iter_mut().filter(|(_, ended)| ended.is_none()) {
            if let Poll::Ready(outcome) = future.as_mut().poll(cx) {
                *ended = Some(outcome);
            }
        }
        if futures.iter().any(|(_, ended)| ended.is_none()) { Poll::Pending } else { Poll::Ready(()) }
    })
    .await;
    futures.into_iter().filter_map(|(_, ended)| ended).collect()
}

/// Fences and closes of several windows, and barriers of the world, are under way at the same time, and
/// each rank begins them in another order. Also without a lane that is free everywhere.
async fn windows_have_orders_of_their_own<F: Fabric>(world: World<F>) -> Outcome {
    in_different_orders(world.clone()).await?;
    let last = world.rank() + 1 == world.size();
    while last && world.take_lane().is_some() {}
    in_different_orders(world).await
}

async fn in_different_orders<F: Fabric>(world: World<F>) -> Outcome {
    let (me, size) = (world.rank() as usize, world.size());
    let next = (world.rank() + 1) % size;
    let mut windows = Vec::new();
    for name in ["a", "b", "c"] {
        windows.push(Window::<u64>::builder().name(name).allocate(&world, 1).await?);
    }
    windows.rotate_left(me % 3);
    let fence = |window: &Window<u64, F>, value: u64| {
        let window = window.clone();
        async move {
            let epoch = window.fence().await?;
            epoch.at(next)?.put(0, &[value])?;
            let epoch = epoch.fence().await?;
            assert_eq!(window.local().read(0..1), [value]);
            epoch.end().await
        }
    };
    for round in 1..=20 {
        if round % 7 == 0 {
            world.barrier().await.unwrap();
        }
        together(windows.iter().map(|window| fence(window, round))).await?;
        windows.rotate_left(me % 3);
    }
    let barrier = Box::pin(async {
        world.barrier().await.unwrap();
        Ok(())
    }) as Pin<Box<dyn Future<Output = _> + Send>>;
    let mut ends: Vec<_> =
        [barrier].into_iter().chain(windows.into_iter().map(|window| Box::pin(window.close()) as _)).collect();
    ends.rotate_left(me % 4);
    together(ends.into_iter()).await.map(drop)
}

/// Every rank is in a row, in a column and in the world at the same time.
async fn a_grid_of_worlds<F: Fabric>(world: World<F>) -> Outcome {
    const WIDE: u32 = 2;
    let (x, y) = (world.rank() % WIDE, world.rank() / WIDE);
    let row = split(&world, y, 0).await;
    // Numbered from below: by key, not by rank.
    let column = split(&world, x, world.size() - y).await;
    let tall = column.size();
    assert_eq!((row.rank(), row.size()), (x, WIDE));
    assert_eq!((column.rank(), tall), (tall - 1 - y, world.size() / WIDE));
    for rank in 0..tall {
        let there = column.fabric_rank(rank).unwrap();
        assert_eq!(there, Rank((tall - 1 - rank) * WIDE + x));
        assert_eq!(column.rank_of(there), Some(rank));
    }
    assert_eq!((column.fabric_rank(tall), row.rank_of(Rank(world.size()))), (None, None));

    let of_row = Window::<u64>::builder().name("row").allocate(&row, 4).await?;
    let of_column = Window::<u64>::builder().name("column").uneven();
    let of_column = of_column.allocate(&column, 3 + column.rank() as usize).await?;
    for rank in 0..tall {
        assert_eq!(of_column.len(rank), 3 + rank as usize);
    }
    let wrong = of_row.lock_shared(WIDE).await.unwrap_err();
    assert!(matches!(wrong, Error::Rank { target: WIDE, size: WIDE, .. }), "{wrong}");
    for round in 1..=10_u64 {
        // Locks and atomics in the row, a fence in the column, each while the others are in flight.
        for target in 0..WIDE {
            let epoch = of_row.lock_exclusive(target).await?;
            let before = epoch.fetch_add(0, 1).await?;
            epoch.put(1, &[before + 1])?;
            epoch.unlock().await?;
        }
        let epoch = of_column.fence().await?;
        for target in 0..tall {
            epoch.at(target)?.accumulate(0, &[u64::from(world.rank())], Op::Sum).await?;
        }
        epoch.end().await?;
        row.barrier().await.unwrap();
        assert_eq!(of_row.local().read(0..2), [round * u64::from(WIDE); 2]);
        let sum: u64 = (0..tall).map(|y| u64::from(y * WIDE + x)).sum();
        assert_eq!(of_column.local().read(0..1), [round * sum]);
        row.barrier().await.unwrap();
    }
    // Exposure and signals between ranks of the row.
    let (next, last) = ((x + 1) % WIDE, (x + WIDE - 1) % WIDE);
    let exposure = of_row.post(&[last])?;
    let epoch = of_row.start(&[next]).await?;
    epoch.at(next)?.put(2, &[u64::from(world.rank())])?;
    epoch.complete().await?;
    exposure.await?;
    assert_eq!(of_row.local().read(2..3), [u64::from(y * WIDE + last)]);
    let all = of_row.lock_all().await?;
    all.at(next).await?.signal(3, 7)?;
    assert_eq!(of_row.local().wait_until_from(last, 3, |value| value == 7).await?, 7);
    assert_eq!(of_row.local().wait_until(3, |value| value == 7).await?, 7);
    all.unlock_all().await?;
    of_column.close().await?;
    of_row.close().await?;
    world.barrier().await.unwrap();
    Ok(())
}

async fn each_rank_a_world<F: Fabric>(world: World<F>) -> Outcome {
    let here = world.split_by_host().await.unwrap();
    assert_eq!((here.rank(), here.size()), (world.rank(), world.size()));
    let alone = split(&here, world.rank(), 9).await;
    assert_eq!((alone.rank(), alone.size()), (0, 1));
    let window = Window::<u32>::builder().allocate(&alone, 2).await?;
    let epoch = window.lock_exclusive(0).await?;
    epoch.put(1, &[world.rank()])?;
    epoch.unlock().await?;
    alone.barrier().await.unwrap();
    assert_eq!(window.local().read(0..2), [0, world.rank()]);
    drop((here, world)); // the smaller world keeps this rank in the world
    window.close().await
}

async fn a_world_is_divided_until_one_is_left<F: Fabric>(world: World<F>) -> Outcome {
    let (all, mut subworld) = (world.clone(), world);
    while subworld.size() > 1 {
        let half = subworld.size() / 2;
        let color = u32::from(subworld.rank() >= half);
        let (rank, size) =
            if color == 0 { (subworld.rank(), half) } else { (subworld.rank() - half, subworld.size() - half) };
        subworld = split(&subworld, color, 0).await;
        assert_eq!((subworld.rank(), subworld.size()), (rank, size));
        let names = subworld.all_gather(&all.rank().to_le_bytes()).await.unwrap();
        for (rank, name) in (0..).zip(names) {
            assert_eq!(subworld.fabric_rank(rank), Some(Rank(u32::from_le_bytes(name.try_into().unwrap()))));
        }
    }
    all.barrier().await.unwrap();
    Ok(())
}

/// The third of four ranks dies; the even ranks form one world, the odd ranks another.
fn death<T, R: Future<Output = T>>(run: fn(World<SimFabric>, Window<u64, SimFabric>) -> R) -> Vec<Option<T>> {
    let simulation = Simulation::new(Network::default()).ranks(4).kill(2, Duration::from_millis(50));
    let report = simulation.run(|world| async move {
        let subworld = split(&world, world.rank() % 2, 0).await;
        let window = Window::builder().name("subworld").allocate(&subworld, 4).await.unwrap();
        if world.rank() == 2 {
            pause(&world, 1_000_000_000).await; // rank 2 dies meanwhile
        }
        let outcome = run(subworld, window).await;
        pause(&world, 2_000_000_000).await; // the memory stays until all have asked
        outcome
    });
    assert_eq!(report.end, End::Finished);
    report.results
}

#[test]
fn a_death_ends_waits_of_its_own_world_only() {
    let results = death(|subworld, window| async move {
        if subworld.rank_of(Rank(2)).is_none() {
            pause(&subworld, 100_000_000).await; // after the death
        }
        let signal = window.local().wait_until(0, |value| value > 0).deadline(Duration::from_millis(300)).await;
        let fence = match window.fence().await {
            Ok(epoch) => epoch.end().await,
            Err(error) => Err(error),
        };
        let barrier = subworld.barrier().await.map_err(|error| error.fault().kind());
        (signal.unwrap_err(), fence, barrier, [0, 1].map(|rank| subworld.is_alive(rank)))
    });
    let (signal, fence, barrier, alive) = results[0].as_ref().unwrap();
    // In its smaller world the failed rank is rank 1.
    let fault = fence.as_ref().unwrap_err().fault().unwrap();
    assert_eq!((fault.kind(), fault.rank()), (FaultKind::PeerDied, Some(Rank(1))));
    assert_eq!(signal.to_string(), "wait_until on rank 0 of window \"subworld\": rank 1 died");
    assert_eq!((*barrier, *alive), (Err(FaultKind::PeerDied), [true, false]));
    for rank in [1, 3] {
        let (signal, fence, barrier, alive) = results[rank].as_ref().unwrap();
        assert!(signal.is_timed_out(), "{signal}");
        assert!(fence.is_ok() && *alive == [true, true], "{fence:?}");
        assert_eq!(*barrier, Ok(()));
    }
}

#[test]
fn a_poisoned_lock_names_the_rank_as_its_world_numbers_it() {
    let simulation = Simulation::new(Network::default()).ranks(4).kill(2, Duration::from_millis(50));
    let report = simulation.run(|world| async move {
        let subworld = split(&world, world.rank() % 2, 0).await;
        let window = Window::<u64, _>::builder().name("subworld").allocate(&subworld, 4).await.unwrap();
        if subworld.rank() == 1 {
            let _held = window.lock_exclusive(0).await.unwrap();
            subworld.barrier().await.unwrap();
            pause(&world, 1_000_000_000).await; // rank 2 dies meanwhile
            return None;
        }
        subworld.barrier().await.unwrap();
        let wait = window.lock_exclusive(0).deadline(Duration::from_millis(200)).await;
        pause(&world, 2_000_000_000).await; // the memory stays until all have asked
        wait.err().map(|error| error.to_string())
    });
    let errors: Vec<_> = report.results.into_iter().flatten().flatten().collect();
    let lock = "lock_exclusive on rank 0 of window \"subworld\"";
    assert_eq!(
        errors,
        [
            format!("{lock}: rank 1 died while it held the lock (`recover` takes it over)"),
            format!("{lock}: the deadline passed; rank 1 held the lock or waited for it")
        ]
    );
}
