//! Creation and end of windows: without elements, by the hundred, and with ranks that die or leave.

use std::time::Duration;

use onesided_fabric::remote_memory::{FaultKind, Rank};
use onesided_fabric::{Fabric, World};
use onesided_sim::{End, Network, SimFabric, Simulation};
use onesided_windows::{Error, Op, Shape, Window};

use crate::{Outcome, is_pending, pause, scenario};

scenario!(null, operations_on_nothing, [1, 3]);
scenario!(win_zero, memory_of_no_length, [3]);
scenario!(manywin, windows_by_the_hundred, [2, 4]);
scenario!(closed, a_closed_window_begins_nothing, [1, 3]);
scenario!(left, a_rank_leaves_the_lock_to_those_behind_it, [2, 3, 6]);

async fn operations_on_nothing<F: Fabric>(world: World<F>) -> Outcome {
    let window = Window::<u32>::builder().allocate(&world, 5).await?;
    let all = window.lock_all().await?;
    for target in 0..world.size() {
        let target = all.at(target).await?;
        for offset in 0..=5 {
            target.put(offset, &[])?;
            target.get(offset, &mut []).await?;
            target.accumulate(offset, &[], Op::Sum).await?;
            target.accumulate(offset, &[], Op::Max).await?;
            target.get_accumulate(offset, &[], &mut [], Op::Xor).await?;
            target.put_shaped(offset, Shape::Vector { count: 9, block: 0, stride: 100 }, &[]).await?;
            target.get_shaped(offset, Shape::Indexed(&[]), &mut []).await?;
            target.accumulate_shaped(offset, Shape::Blocks { block: 0, starts: &[70] }, &[], Op::Sum).await?;
        }
        assert!(matches!(target.put(6, &[]), Err(Error::Range { .. })));
        target.accumulate(0, &[7; 5], Op::NoOp).await?;
        target.flush().await?;
    }
    all.unlock_all().await?;
    world.barrier().await.unwrap();
    assert_eq!(window.local().read(0..5), [0; 5]);
    window.close().await
}

/// Some ranks expose no memory; their locks still work.
async fn memory_of_no_length<F: Fabric>(world: World<F>) -> Outcome {
    let nothing = Window::<u64>::builder().allocate(&world, 0).await?;
    nothing.lock_exclusive(0).await?.unlock().await?;
    nothing.fence().await?.end().await?;
    let some = Window::<u64>::builder().uneven().allocate(&world, world.rank() as usize).await?;
    let all = some.lock_all().await?;
    for target in 0..world.size() {
        assert_eq!(all.at(target).await?.len(), target as usize);
        assert_eq!(all.at(target).await?.accumulate(0, &[1], Op::Sum).await.is_ok(), target > 0);
    }
    all.unlock_all().await?;
    world.barrier().await.unwrap();
    assert_eq!(some.local().read(0..world.rank() as usize).first().copied().unwrap_or(3), 3);
    nothing.close().await?;
    some.close().await
}

/// Whichever rank was accessed before, and whatever memory it is.
async fn a_closed_window_begins_nothing<F: Fabric>(world: World<F>) -> Outcome {
    fn closed<T>(outcome: Result<T, Error>) {
        let error = outcome.err().expect("the window was closed");
        assert_eq!(error.fault().map(|fault| fault.kind()), Some(FaultKind::Closed), "{error}");
    }
    let next = (world.rank() + 1) % world.size();
    for created in [false, true] {
        let builder = Window::<u64>::builder();
        let window = match created {
            true => builder.create(&world, vec![0; 2]).await?,
            false => builder.allocate(&world, 2).await?,
        };
        window.lock_all().await?.unlock_all().await?;
        let (again, table) = (window.clone(), window.clone().versioned());
        let open = again.no_check();
        let access = open.at(next)?;
        access.put(0, &[1])?;
        window.close().await?;
        closed(access.put(0, &[2]));
        closed(access.get(0, &mut [0]).await);
        closed(access.fetch_add(0, 1).await);
        closed(access.accumulate(0, &[1], Op::Sum).await);
        closed(access.put_shaped(0, Shape::Row(2), &[1, 2]).await);
        closed(access.signal(0, 1));
        assert!(matches!(access.put(2, &[1]), Err(Error::Range { .. })));
        closed(again.lock_exclusive(next).await);
        closed(again.lock_shared(next).await);
        closed(again.lock_all().await);
        closed(again.fence().await);
        closed(again.post(&[next]));
        closed(again.start_no_check(&[next]));
        closed(again.no_check().at(next));
        closed(again.direct(world.rank()));
        closed(again.locked(next).put(0, &[1]).await);
        closed(table.read_into(next, 0, &mut [0]).await);
        closed(table.write(next).await);
        assert!(matches!(again.lock_shared(world.size()).await, Err(Error::Rank { .. })));
        // No other rank takes part in the closing barrier.
        if world.rank() == 0 {
            closed(again.close().await);
            closed(table.into_window().close().await);
        }
        world.barrier().await.unwrap();
    }
    Ok(())
}

async fn windows_by_the_hundred<F: Fabric>(world: World<F>) -> Outcome {
    let next = (world.rank() + 1) % world.size();
    let mut open = Vec::new();
    // Polling ranks leave an emulated card little time.
    let windows = if crate::is_short_on_cards() { 40 } else { 150 };
    for round in 0..windows {
        let window = Window::<u16>::builder().allocate(&world, 1 + round % 9).await?;
        let epoch = window.lock_exclusive(next).await?;
        epoch.accumulate(round % 9, &[round as u16], Op::Replace).await?;
        epoch.unlock().await?;
        open.push((round, window));
        if open.len() > 20 {
            let (round, window) = open.swap_remove(round % 20);
            let kept = window.clone();
            window.close().await?;
            assert_eq!(kept.local().read(round % 9..round % 9 + 1), [round as u16]);
        }
    }
    for (_, window) in open {
        window.close().await?;
    }
    Ok(())
}

/// Each rank leaves right after its last release, the first of a host first, which has the host's queue:
/// who waits behind it gets the lock.
async fn a_rank_leaves_the_lock_to_those_behind_it<F: Fabric>(world: World<F>) -> Outcome {
    const ROUNDS: u64 = 20;
    let (home, size) = (world.size() - 1, u64::from(world.size()));
    let window = Window::<u64>::builder().allocate(&world, 1).await?;
    world.barrier().await.unwrap();
    for _ in 0..ROUNDS * u64::from(world.rank() + 1) {
        let epoch = window.lock_exclusive(home).await?;
        let mut count = [0];
        epoch.get(0, &mut count).await?;
        epoch.put(0, &[count[0] + 1])?;
        epoch.unlock().await?;
    }
    let mut count = [0];
    while world.rank() == home && count[0] < ROUNDS * size * (size + 1) / 2 {
        let epoch = window.lock_shared(home).await?;
        epoch.get(0, &mut count).await?;
        epoch.unlock().await?;
    }
    Ok(())
}

/// Rank 1 dies while the others operate on it; they get an error that names it.
fn death<R: Future<Output = Result<(), Error>>>(run: fn(World<SimFabric>, Window<u64, SimFabric>) -> R) {
    let simulation = Simulation::new(Network::default()).ranks(3).kill(1, Duration::from_millis(50));
    let report = simulation.run(|world| async move {
        let window = Window::builder().name("mortal").allocate(&world, 4).await?;
        if world.rank() == 1 {
            pause(&world, 1_000_000_000).await; // rank 1 dies meanwhile
        }
        let outcome = run(world.clone(), window).await;
        pause(&world, 2_000_000_000).await; // the memory stays until all have asked
        outcome
    });
    assert_eq!(report.end, End::Finished);
    for rank in [0, 2] {
        let error = report.results[rank].as_ref().unwrap().as_ref().unwrap_err();
        let fault = error.fault().unwrap();
        assert_eq!((fault.kind(), fault.rank()), (FaultKind::PeerDied, Some(Rank(1))), "{error}");
    }
}

#[test]
fn a_death_ends_a_fence() {
    death(|_, window| async move { window.fence().await?.end().await });
}

#[test]
fn a_death_ends_a_start() {
    death(|_, window| async move { window.start(&[1]).await?.complete().await });
}

#[test]
fn a_death_ends_an_exposure() {
    death(|_, window| async move { window.post(&[1])?.await });
}

#[test]
fn a_death_ends_looking_at_an_exposure() {
    death(|world, window| async move {
        let mut exposure = window.post(&[1])?;
        while is_pending(&mut exposure)? {
            pause(&world, 1_000_000).await;
        }
        Ok(())
    });
}
