//! Targets that `lock_all` locks on first access.

use std::future::poll_fn;
use std::pin::Pin;
use std::task::Poll;
use std::time::Duration;

use onesided_fabric::remote_memory::{FaultKind, Rank};
use onesided_fabric::{Fabric, World};
use onesided_sim::{End, Network, SimFabric, Simulation};
use onesided_windows::{Builder, Error, LockAllDesign, LockDesign, Window};

use crate::lock_all::{designs, later};
use crate::{Outcome, scenario};

scenario!(only_what_was_reached_is_locked, a_target_that_was_not_accessed_can_be_locked_exclusively, [3]);
scenario!(a_part_that_is_not_wanted, a_dropped_target_is_unlocked, [3]);
scenario!(no_circle_by_two_that_ask, the_second_one_does_not_wait_behind_a_writer, [3]);
scenario!(no_circle_by_default, two_ranks_access_targets_in_different_orders, [4]);

fn on_demand(design: LockDesign) -> Builder<u64> {
    Window::builder().lock(design).lock_all(LockAllDesign::OnDemand).name(design.name())
}

async fn a_target_that_was_not_accessed_can_be_locked_exclusively<F: Fabric>(world: World<F>) -> Outcome {
    for design in designs() {
        let window = on_demand(design).allocate(&world, 1).await?;
        assert_eq!(window.info().lock_all, LockAllDesign::OnDemand);
        for drops in [false, true] {
            if world.rank() == 0 {
                let all = window.lock_all().await?;
                all.at(1).await?.put(0, &[7])?;
                world.barrier().await.unwrap();
                world.barrier().await.unwrap();
                if drops {
                    drop(all);
                } else {
                    all.unlock_all().await?;
                }
            } else {
                world.barrier().await.unwrap();
                if world.rank() == 1 {
                    window.lock_exclusive(0).await?.unlock().await?;
                    window.lock_exclusive(2).await?.unlock().await?;
                    assert!(window.try_lock_exclusive(1).await?.is_none(), "{design}");
                    window.lock_shared(1).await?.unlock().await?;
                }
                world.barrier().await.unwrap();
            }
            let epoch = window.lock_exclusive(1).await?;
            let mut put = [0];
            epoch.get(0, &mut put).await?;
            epoch.unlock().await?;
            world.barrier().await.unwrap();
        }
        assert_eq!(window.local().read(0..1), [if world.rank() == 1 { 7 } else { 0 }]);
        window.close().await?;
    }
    Ok(())
}

async fn a_dropped_target_is_unlocked<F: Fabric>(world: World<F>) -> Outcome {
    for design in designs() {
        let window = on_demand(design).allocate(&world, 1).await?;
        let mut held = if world.rank() == 1 { Some(window.lock_exclusive(1).await?) } else { None };
        world.barrier().await.unwrap();
        if world.rank() == 0 {
            let all = window.lock_all().await?;
            all.at(2).await?;
            drop(all.at(1));
            let mut request = all.at(1);
            for _ in 0..2 {
                let looked = poll_fn(|cx| Poll::Ready(Pin::new(&mut request).poll(cx).is_pending()));
                assert!(looked.await, "{design}");
                later(&world).await;
            }
            drop(request);
            world.barrier().await.unwrap();
            world.barrier().await.unwrap(); // rank 2 has had the lock
            all.at(1).await?;
            all.unlock_all().await?;
        } else {
            world.barrier().await.unwrap();
            drop(held.take());
            if world.rank() == 2 {
                window.lock_exclusive(1).await?.unlock().await?;
                assert!(window.try_lock_exclusive(2).await?.is_none(), "{design}");
            }
            world.barrier().await.unwrap();
        }
        world.barrier().await.unwrap();
        window.lock_exclusive(1).await?.unlock().await?;
        world.barrier().await.unwrap();
        drop(held);
        window.close().await?;
    }
    Ok(())
}

/// Both ask for the target under one `lock_all`, and between them a writer, which waits for the
/// first.
async fn the_second_one_does_not_wait_behind_a_writer<F: Fabric>(world: World<F>) -> Outcome {
    for design in designs() {
        let window = on_demand(design).allocate(&world, 1).await?;
        if world.rank() == 0 {
            let all = window.lock_all().await?;
            let first = all.at(1);
            later(&world).await;
            world.barrier().await.unwrap();
            later(&world).await; // the writer waits
            let second = all.at(1);
            later(&world).await;
            let first = first.await?;
            assert!(std::ptr::eq(first, second.await?));
            all.unlock_all().await?;
        } else {
            world.barrier().await.unwrap();
            if world.rank() == 2 {
                window.lock_exclusive(1).await?.unlock().await?;
            }
        }
        world.barrier().await.unwrap();
        window.close().await?;
    }
    Ok(())
}

/// Ranks 0 and 1 lock all. Each accesses a target for which a writer without another lock then
/// waits, and next the other's target.
async fn cross<F: Fabric>(world: &World<F>, builder: Builder<u64>) -> Outcome {
    let (me, window) = (world.rank(), builder.allocate(world, 1).await?);
    if me < 2 {
        let all = window.lock_all().await?;
        all.at(2 + me).await?;
        world.barrier().await.unwrap();
        later(world).await; // the writers wait
        all.at(3 - me).await?;
        all.unlock_all().await?;
    } else {
        world.barrier().await.unwrap();
        window.lock_exclusive(me).await?.unlock().await?;
    }
    world.barrier().await.unwrap();
    window.close().await
}

async fn two_ranks_access_targets_in_different_orders<F: Fabric>(world: World<F>) -> Outcome {
    for design in designs() {
        cross(&world, Window::builder().lock(design)).await?;
    }
    Ok(())
}

/// Why `on-demand` is not the default with every lock.
#[test]
fn readers_that_wait_behind_writers_may_deadlock() {
    for design in designs() {
        let simulation = Simulation::new(Network::default()).ranks(4).until(Duration::from_secs(2));
        let report = simulation.run(|world| async move { cross(&world, on_demand(design)).await });
        let joins = matches!(design, LockDesign::TestAndSet | LockDesign::TwoLevel);
        assert_eq!(report.end, if joins { End::Finished } else { End::TimeOver }, "{design}");
    }
}

#[test]
fn the_default_goes_with_the_lock() {
    let report = Simulation::new(Network::default()).ranks(2).run(|world| async move {
        for design in designs() {
            let window = Window::<u64>::builder().lock(design).allocate(&world, 1).await?;
            let all = match design {
                LockDesign::TestAndSet | LockDesign::TwoLevel => LockAllDesign::OnDemand,
                _ => LockAllDesign::EachTarget,
            };
            assert_eq!(window.info().lock_all, all, "{design}");
            assert!(!window.explain(1).contains("lock_all"), "{}", window.explain(1));
            window.close().await?;
            let builder = Window::<u64>::builder().lock(design);
            for other in LockAllDesign::ALL.iter().filter(|other| **other != all) {
                let window = builder.clone().lock_all(*other).allocate(&world, 1).await?;
                let expected = format!("lock {design}, lock_all {other}");
                assert!(
                    window.explain(1).ends_with(&expected) && window.info().to_string().contains(&expected),
                    "{expected}"
                );
                window.close().await?;
            }
        }
        Ok::<_, Error>(())
    });
    assert_eq!(report.end, End::Finished);
    report.results.into_iter().for_each(|outcome| outcome.unwrap().unwrap());
}

/// How many more operations rank 1 posts for ten times as many accesses, when it asks for some
/// targets three times each.
#[test]
fn each_accessed_target_is_locked_once() {
    let posted = |targets: u32, times: u32| {
        let report = Simulation::new(Network::default()).ranks(8).seed(1).run(move |world| async move {
            let window = on_demand(LockDesign::default()).allocate(&world, 1).await?;
            if world.rank() == 1 {
                for _ in 0..times {
                    let all = window.lock_all().await?;
                    for target in (0..targets).chain(0..targets).chain(0..targets) {
                        all.at(target).await?;
                    }
                    all.unlock_all().await?;
                }
            }
            window.close().await
        });
        assert_eq!(report.end, End::Finished);
        (report.counts.fetch_adds, report.counts.compare_swaps)
    };
    for targets in [0, 1, 8] {
        let (once, often) = (posted(targets, 1), posted(targets, 11));
        assert_eq!(
            (often.0 - once.0, often.1 - once.1),
            (10 * u64::from(targets), 10 * u64::from(targets)),
            "{targets} targets"
        );
    }
}

async fn pause(world: &World<SimFabric>, time: Duration) {
    for _ in 0..time.as_millis() / 20 {
        later(world).await;
    }
}

/// Rank 1 dies with the lock of rank 0. Rank 2 accesses rank 0 after its own memory, whose lock
/// continues to work.
#[test]
fn a_death_affects_its_target_alone() {
    for design in designs().filter(|design| *design != LockDesign::DistributedCounters) {
        let simulation = Simulation::new(Network::default()).ranks(3).kill(1, Duration::from_millis(50));
        let report = simulation.run(|world| async move {
            let window = on_demand(design).allocate(&world, 2).await?;
            if world.rank() == 1 {
                std::mem::forget(window.lock_exclusive(0).await?);
                pause(&world, Duration::from_secs(10)).await; // rank 1 dies meanwhile
            }
            if world.rank() == 2 {
                let all = window.lock_all().await?;
                let own = all.at(2).await?;
                later(&world).await;
                for _ in 0..2 {
                    let error = all.at(0).await.map(drop).unwrap_err();
                    let alone = window.lock_shared(0).await.map(drop).unwrap_err();
                    assert!(error.is_poisoned(), "{design}: {error}");
                    assert_eq!(error.fault(), alone.fault(), "{design}");
                    let expected = alone.to_string().replacen("lock_shared", "lock_all", 1);
                    assert_eq!(error.to_string(), expected);
                }
                own.put(0, &[7])?;
                window.lock_exclusive(0).recover().await?.unlock().await?;
                all.at(0).await?.put(1, &[7])?;
                all.unlock_all().await?;
            }
            pause(&world, Duration::from_secs(4)).await; // the memory stays until it was asked for
            Ok::<_, Error>(window.local().read(0..2))
        });
        for (rank, read) in [(0, [0, 7]), (2, [7, 0])] {
            assert_eq!(report.results[rank].as_ref().unwrap().as_ref().unwrap(), &read, "{design}");
        }
    }
}

/// Rank 1 dies after the others have accessed it.
#[test]
fn flush_all_and_unlock_all_report_failures() {
    for design in LockAllDesign::ALL.iter().copied() {
        let simulation = Simulation::new(Network::default()).ranks(3).kill(1, Duration::from_millis(50));
        let report = simulation.run(|world| async move {
            let builder = Window::<u64>::builder().name("scores").lock_all(design);
            let window = builder.allocate(&world, 2).await?;
            if world.rank() == 1 {
                pause(&world, Duration::from_secs(10)).await; // rank 1 dies meanwhile
            }
            let all = window.lock_all().await?;
            let (lost, kept) = (all.at(1).await?, all.at(world.rank()).await?);
            pause(&world, Duration::from_millis(60)).await;
            let mut errors = Vec::new();
            for flush in [true, false] {
                lost.put(0, &[7])?;
                kept.put(usize::from(flush), &[7])?;
                if flush {
                    errors.push(all.flush_all().await.unwrap_err());
                }
            }
            errors.push(all.unlock_all().await.unwrap_err());
            window.lock_exclusive(world.rank()).await?.unlock().await?;
            pause(&world, Duration::from_millis(100)).await;
            assert_eq!(window.local().read(0..2), [7, 7]);
            Ok::<_, Error>(errors)
        });
        for rank in [0, 2] {
            let errors = report.results[rank].as_ref().unwrap().as_ref().unwrap();
            for (error, operation) in errors.iter().zip(["flush_all", "unlock_all"]) {
                let fault = error.fault().unwrap();
                assert_eq!((fault.kind(), fault.rank()), (FaultKind::PeerDied, Some(Rank(1))), "{design}: {error}");
                assert!(
                    error.to_string().starts_with(&format!("{operation} on rank 1 of window \"scores\"")),
                    "{error}"
                );
            }
        }
    }
}
