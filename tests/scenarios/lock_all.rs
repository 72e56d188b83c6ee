//! `lock_all` of every design, beside exclusive and shared locks of single targets.

use onesided_fabric::{Fabric, World};
use onesided_sim::{End, Network, Simulation};
use onesided_windows::{Builder, LockAllDesign, LockDesign, Window};

use crate::{Outcome, is_short_on_cards, pause, scenario};

scenario!(all_and_one_exclude, nothing_moves_while_all_are_locked, [1, 3, 5]);
scenario!(all_at_once_flushes, what_was_put_is_there, [1, 4]);
scenario!(all_at_once_not_wanted, a_dropped_lock_all_leaves_nothing_locked, [3]);
scenario!(no_circle_by_two_exclusive_locks, an_owner_passes_a_waiting_lock_all, [2]);
scenario!(no_circle_by_a_reader, a_reader_passes_a_waiting_lock_all, [3]);
scenario!(no_circle_by_two_windows, an_owner_of_another_window_passes_a_waiting_lock_all, [3]);

fn global(design: LockDesign) -> Builder<u64> {
    Window::builder().lock(design).lock_all(LockAllDesign::Global).name(design.name())
}

/// Without a thread for each window, for which an emulated machine has too few processors. On cards
/// one whose word names the owner, one that queues, and one that a thread of the target serves.
pub(crate) fn designs() -> impl Iterator<Item = LockDesign> {
    let all = LockDesign::ALL.iter().copied().filter(|design| !design.name().ends_with("per-window"));
    let few = [LockDesign::TestAndSet, LockDesign::Mcs, LockDesign::EventThread];
    all.filter(move |design| !is_short_on_cards() || few.contains(design))
}

/// Gives the others time for their next step.
pub(crate) async fn later<F: Fabric>(world: &World<F>) {
    pause(world, 20_000_000).await;
}

/// Ranks move one from a target to another, under both locks, in the order of the ranks. A rank
/// that locks all always sees the same sum. Under a shared lock the memory does not change.
async fn nothing_moves_while_all_are_locked<F: Fabric>(world: World<F>) -> Outcome {
    let (me, size) = (world.rank(), world.size());
    let of = |all| designs().map(move |design| (design, all));
    for (design, all) in of(LockAllDesign::Global).chain(of(LockAllDesign::OnDemand)) {
        let window = global(design).lock_all(all).allocate(&world, 1).await?;
        assert_eq!(window.info().lock_all, all);
        window.local().write(0, &[100])?;
        world.barrier().await.unwrap();
        for round in 0..6 {
            match (round + me) % 3 {
                0 => {
                    let all = window.lock_all().await?;
                    let mut sum = 0;
                    for target in 0..size {
                        let mut part = [0];
                        all.at(target).await?.get(0, &mut part).await?;
                        sum += part[0];
                    }
                    assert_eq!(sum, 100 * u64::from(size), "{design}");
                    all.unlock_all().await?;
                }
                1 if size > 1 => {
                    let (from, to) = (round % size, (round + 1 + me % (size - 1)) % size);
                    let first = window.lock_exclusive(from.min(to)).await?;
                    let second = window.lock_exclusive(from.max(to)).await?;
                    for (epoch, change) in [(&first, u64::MAX), (&second, 1)] {
                        let mut part = [0];
                        epoch.get(0, &mut part).await?;
                        epoch.put(0, &[part[0].wrapping_add(change)])?;
                    }
                    first.unlock().await?;
                    drop(second);
                }
                _ => {
                    let epoch = window.lock_shared(round % size).await?;
                    let (mut before, mut after) = ([0], [0]);
                    epoch.get(0, &mut before).await?;
                    epoch.get(0, &mut after).await?;
                    assert_eq!(before, after, "{design}");
                    epoch.unlock().await?;
                }
            }
        }
        world.barrier().await.unwrap();
        window.close().await?;
    }
    Ok(())
}

async fn what_was_put_is_there<F: Fabric>(world: World<F>) -> Outcome {
    let (me, size) = (world.rank(), world.size());
    for (design, drops) in LockAllDesign::ALL.iter().flat_map(|design| [(*design, false), (*design, true)]) {
        let window = global(LockDesign::default()).lock_all(design).allocate(&world, 2 * size as usize).await?;
        let all = window.lock_all().await?;
        assert!(all.at(size).await.is_err());
        for target in (0..size).filter(|target| target % 2 == 0) {
            all.at(target).await?.put(me as usize, &[u64::from(me) + 1])?;
        }
        all.flush_all().await?;
        all.flush_local_all().await?;
        for target in (0..size).filter(|target| target % 2 == 0) {
            all.at(target).await?.put((size + me) as usize, &[u64::from(me) + 1])?;
        }
        if drops {
            drop(all);
        } else {
            all.unlock_all().await?;
        }
        // The next owner comes after what all ranks did under their locks.
        window.lock_exclusive(me).await?.unlock().await?;
        world.barrier().await.unwrap();
        let epoch = window.lock_exclusive(me).await?;
        let mut own = vec![0; 2 * size as usize];
        epoch.get(0, &mut own).await?;
        let wanted: Vec<_> = (1..=u64::from(size)).chain(1..=u64::from(size)).collect();
        assert_eq!(own, if me % 2 == 0 { wanted } else { vec![0; own.len()] }, "{design}");
        epoch.unlock().await?;
        world.barrier().await.unwrap();
        window.close().await?;
    }
    Ok(())
}

async fn a_dropped_lock_all_leaves_nothing_locked<F: Fabric>(world: World<F>) -> Outcome {
    let window = global(LockDesign::default()).allocate(&world, 1).await?;
    let held = match world.rank() {
        0 => {
            drop(window.lock_all());
            Some(window.lock_exclusive(1).await?)
        }
        _ => None,
    };
    world.barrier().await.unwrap();
    drop(window.lock_all()); // it waits for an owner
    later(&world).await;
    world.barrier().await.unwrap();
    if world.rank() == 1 {
        assert!(window.try_lock_exclusive(2).await?.is_some());
        assert!(window.try_lock_exclusive(1).await?.is_none());
    }
    world.barrier().await.unwrap();
    drop(held);
    window.lock_all().await?.unlock_all().await?;
    window.lock_exclusive(1).await?.unlock().await?;
    world.barrier().await.unwrap();
    window.close().await
}

/// Rank 1 waits for all, which waits for rank 0, which asks for another target.
async fn an_owner_passes_a_waiting_lock_all<F: Fabric>(world: World<F>) -> Outcome {
    for design in designs() {
        let window = global(design).allocate(&world, 1).await?;
        if world.rank() == 0 {
            let first = window.lock_exclusive(0).await?;
            world.barrier().await.unwrap();
            later(&world).await;
            window.lock_exclusive(1).await?.unlock().await?;
            first.unlock().await?;
        } else {
            world.barrier().await.unwrap();
            window.lock_all().await?.unlock_all().await?;
        }
        world.barrier().await.unwrap();
        window.close().await?;
    }
    Ok(())
}

/// Rank 2 waits for all, which waits for rank 1, which waits for a lock that rank 0 shares, which
/// asks for another target.
async fn a_reader_passes_a_waiting_lock_all<F: Fabric>(world: World<F>) -> Outcome {
    let window = global(LockDesign::default()).allocate(&world, 1).await?;
    let read = if world.rank() == 0 { Some(window.lock_shared(0).await?) } else { None };
    world.barrier().await.unwrap();
    match world.rank() {
        0 => {
            later(&world).await;
            later(&world).await;
            window.lock_exclusive(1).await?.unlock().await?;
        }
        1 => window.lock_exclusive(0).await?.unlock().await?,
        _ => {
            later(&world).await;
            window.lock_all().await?.unlock_all().await?;
        }
    }
    drop(read);
    world.barrier().await.unwrap();
    window.close().await
}

/// The same, where rank 0 holds a lock of another window: the order is the other window's lock,
/// then this one's.
async fn an_owner_of_another_window_passes_a_waiting_lock_all<F: Fabric>(world: World<F>) -> Outcome {
    let other = global(LockDesign::Ticket).allocate(&world, 1).await?;
    let window = global(LockDesign::default()).allocate(&world, 1).await?;
    let held = match world.rank() {
        0 => Some(other.lock_exclusive(0).await?),
        1 => Some(window.lock_exclusive(0).await?),
        _ => None,
    };
    world.barrier().await.unwrap();
    match world.rank() {
        0 => {
            later(&world).await;
            later(&world).await;
            window.lock_exclusive(1).await?.unlock().await?;
        }
        1 => other.lock_exclusive(0).await?.unlock().await?,
        _ => {
            later(&world).await;
            window.lock_all().await?.unlock_all().await?;
        }
    }
    drop(held);
    world.barrier().await.unwrap();
    other.close().await?;
    window.close().await
}

/// How many more operations rank 1 posts for ten times as many.
#[test]
fn all_at_once_is_one_operation_whatever_the_number_of_ranks() {
    let posted = |design, ranks, times: u32| {
        let report = Simulation::new(Network::default()).ranks(ranks).seed(1).run(move |world| async move {
            let window = Window::<u64>::builder().lock_all(design).allocate(&world, 1).await?;
            if world.rank() == 1 {
                for _ in 0..times {
                    window.lock_all().await?.unlock_all().await?;
                }
            }
            window.close().await
        });
        assert_eq!(report.end, End::Finished);
        (report.counts.fetch_adds, report.counts.compare_swaps)
    };
    for ranks in [2, 64] {
        for (design, each) in [
            (LockAllDesign::OnDemand, (0, 0)),
            (LockAllDesign::Global, (2, 0)),
            (LockAllDesign::EachTarget, (ranks, ranks)),
        ] {
            let (once, often) = (posted(design, ranks, 1), posted(design, ranks, 11));
            let more = (often.0 - once.0, often.1 - once.1);
            assert_eq!(more, (10 * u64::from(each.0), 10 * u64::from(each.1)), "{design}, {ranks} ranks");
        }
    }
}
