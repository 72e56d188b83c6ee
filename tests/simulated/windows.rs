//! Windows on the simulated fabric.

use std::future::{Future, poll_fn};
use std::pin::Pin;
use std::task::Poll;
use std::time::Duration;

use onesided_fabric::World;
use onesided_fabric::remote_memory::{FaultKind, Rank, RemoteMemory};
use onesided_instances as _;
use onesided_lock_algos::TestAndSet;
use onesided_sim::{Counts, End, Network, Report, SimFabric, Simulation, WaitsFor};
use onesided_windows::{Error, LeasePolicy, LockDesign, Mode, PreviousOwner, Window};

use crate::common::pause;

async fn make(world: &World<SimFabric>, len: usize) -> Result<Window<u64, SimFabric>, Error> {
    Window::builder().name("scores").allocate(world, len).await
}

/// A dropped unlock of an owner whose lease expired costs no slot, at whatever point it is dropped,
/// and closing the window reports it.
#[test]
fn a_dropped_unlock_is_finished() {
    let report = Simulation::new(Network::default()).ranks(2).seed(2).run(|world| async move {
        let builder = Window::<u64>::builder().lock(LockDesign::TestAndSet).name("scores");
        let builder = builder.lease_policy(LeasePolicy::VersionedCommit, Duration::from_millis(1));
        let scores = builder.allocate(&world, 1).await?;
        for round in 0..200 {
            if world.rank() == 0 {
                let epoch = scores.lock_exclusive(1).await?;
                world.barrier().await.unwrap();
                world.barrier().await.unwrap();
                let mut unlock = epoch.unlock();
                for _ in 0..round % 4 {
                    if poll_fn(|cx| Poll::Ready(Pin::new(&mut unlock).poll(cx))).await.is_ready() {
                        break;
                    }
                    pause(world.fabric(), 50_000).await;
                }
            } else {
                world.barrier().await.unwrap();
                let epoch = scores.lock_exclusive(1).await?;
                assert_eq!(epoch.previous_owner(), Some(PreviousOwner::LeaseExpired(0)));
                epoch.unlock().await?;
                world.barrier().await.unwrap();
            }
        }
        Ok::<_, Error>(scores.close().await)
    });
    assert_eq!(report.end, End::Finished);
    let closed: Vec<_> = report.results.into_iter().map(|closed| closed.unwrap().unwrap()).collect();
    assert!(matches!(closed[..], [Err(Error::Late { operation: "unlock", target: 1, .. }), Ok(())]), "{closed:?}");
}

#[test]
fn a_dead_owner_is_named() {
    for design in LockDesign::ALL {
        owner_dies(*design);
    }
}

/// Whether the lock can name a dead exclusive owner.
fn is_named(design: LockDesign) -> bool {
    // The first owner of a two-level lock did not queue at its host.
    matches!(design, LockDesign::TestAndSet | LockDesign::TwoLevel) || design.is_served()
}

/// Rank 1 dies with the lock of rank 0. The others get the error twice; then rank 2 recovers the
/// lock.
fn owner_dies(design: LockDesign) {
    let network = Network::default();
    let simulation = Simulation::new(network).ranks(3).seed(3).kill(1, Duration::from_millis(50));
    let report = simulation.run(move |world| async move {
        let scores = Window::<u64>::builder().lock(design).name("scores").allocate(&world, 1).await?;
        if world.rank() == 1 {
            std::mem::forget(scores.lock_exclusive(0).await?);
            pause(world.fabric(), 10_000_000_000).await; // rank 1 dies meanwhile
        }
        pause(world.fabric(), 10_000_000).await;
        let error = scores.lock_exclusive(0).await.map(drop).unwrap_err();
        let again = scores.lock_shared(0).deadline(Duration::from_millis(100)).await.map(drop).unwrap_err();
        assert!(again.is_poisoned(), "{again}");
        // A try beside another rank's acquire in flight may find the lock busy.
        pause(world.fabric(), 2_000_000_000 * u64::from(1 + world.rank())).await;
        let last = scores.try_lock_exclusive(0).await.map(drop).unwrap_err();
        assert!(last.is_poisoned(), "{last}");
        pause(world.fabric(), 2_000_000_000 * u64::from(3 - world.rank())).await; // both have asked
        if world.rank() == 2 {
            let epoch = scores.lock_exclusive(0).recover().await?;
            let previous = if is_named(design) { PreviousOwner::Owner(1) } else { PreviousOwner::Participant(1) };
            assert_eq!((epoch.previous_owner(), epoch.mode()), (Some(previous), Mode::Exclusive));
            epoch.unlock().await?;
        }
        pause(world.fabric(), 1_000_000_000).await; // it is recovered
        scores.lock_exclusive(0).await?.unlock().await?;
        pause(world.fabric(), 100_000_000).await; // rank 0's memory stays until both have asked
        Ok::<_, Error>(error)
    });
    for rank in [0, 2] {
        let error = report.results[rank].as_ref().unwrap().as_ref().unwrap();
        assert!(error.is_poisoned(), "{error}");
        assert_eq!(error.fault().unwrap().rank(), Some(Rank(1)));
        let reason = match is_named(design) {
            true => "died while it held the lock",
            false => "died, and may have held the lock",
        };
        let expected =
            format!("lock_exclusive on rank 0 of window \"scores\": rank 1 {reason} (`recover` takes it over)");
        assert_eq!(error.to_string(), expected);
    }
}

/// The operations posted when rank 0 closes a window and asks for a lock, or an operation under
/// one, by another handle.
fn posted_after_close(what: u32) -> Counts {
    let report = Simulation::new(Network::default()).ranks(2).run(move |world| async move {
        let scores = make(&world, 4).await?;
        scores.lock_exclusive(1 - world.rank()).await?.unlock().await?;
        let again = scores.clone();
        scores.close().await?;
        if world.rank() == 0 {
            let outcome = match what {
                0 => again.lock_exclusive(1).await.map(drop),
                1 => again.lock_exclusive(1).fenced().await.map(drop),
                2 => again.locked(1).get(0, &mut [0; 4]).await,
                _ => again.locked(1).update(0, &mut [0; 4], |_| ()).await,
            };
            assert_eq!(outcome.unwrap_err().fault().map(|fault| fault.kind()), Some(FaultKind::Closed));
        }
        world.barrier().await.unwrap();
        Ok::<_, Error>(())
    });
    assert!(report.results.iter().all(|outcome| matches!(outcome, Some(Ok(())))), "{:?}", report.results);
    report.counts
}

#[test]
fn nothing_is_posted_to_a_closed_window() {
    assert_eq!([1, 2, 3].map(posted_after_close), [posted_after_close(0); 3]);
}

/// Two ranks lock crosswise, each while it holds the lock that the other asks for.
fn crosswise(design: LockDesign, simulation: Simulation) -> Report<Result<(), Error>> {
    simulation.ranks(3).until(Duration::from_secs(100)).run(move |world| async move {
        let scores: Window<u64, SimFabric> = Window::builder().lock(design).allocate(&world, 1).await?;
        if world.rank() < 2 {
            let own = scores.lock_exclusive(world.rank()).await?;
            pause(world.fabric(), 1_000_000).await;
            let other = scores.lock_exclusive(1 - world.rank()).await?;
            other.unlock().await?;
            own.unlock().await?;
        }
        Ok::<_, Error>(())
    })
}

/// The word of test-and-set names the owner, and the time without a change can be set.
#[test]
fn a_deadlock_names_the_word_and_the_owner() {
    let simulation = Simulation::new(Network::default()).stalled_after(Duration::from_millis(20));
    let report = crosswise(LockDesign::TestAndSet, simulation);
    let End::Stalled(stuck) = &report.end else { panic!("{}", report.end) };
    assert!(report.virtual_time < Duration::from_millis(40), "{:?}", report.virtual_time);
    for (rank, stuck) in stuck.iter().enumerate().take(2) {
        // The word is at the other rank, and names it as the owner.
        let retried = stuck.waits_for.iter().find_map(|what| match what {
            WaitsFor::Retried { rank, found, .. } => Some((rank.index(), TestAndSet::owner(*found))),
            _ => None,
        });
        let (at, owner) = retried.unwrap();
        assert_eq!((at, owner.map(|owner| owner.rank.index())), (1 - rank, Some(1 - rank)), "{stuck}");
    }
}

/// Ranks that compute, or wait with a deadline, are no deadlock, however long nothing changes.
#[test]
fn what_goes_on_by_itself_is_no_deadlock() {
    let simulation = || Simulation::new(Network::default()).stalled_after(Duration::from_millis(20)).ranks(2);
    let run = |simulation: Simulation, holds_for: u64, step: u64| {
        simulation.run(move |world| async move {
            let scores = make(&world, 1).await?;
            let begin = world.fabric().now();
            let epoch = scores.lock_exclusive(0).await?;
            while world.rank() == 0 && world.fabric().now() < begin + holds_for {
                pause(world.fabric(), step).await;
            }
            epoch.unlock().await?;
            world.barrier().await.unwrap();
            Ok::<_, Error>(())
        })
    };
    let long = 500_000_000;
    for step in [long, 1_000_000, 27_000_000] {
        let report = run(simulation(), long, step);
        assert_eq!(report.end, End::Finished, "{step}");
        assert!(report.results.into_iter().flatten().all(|result| result.is_ok()));
    }
    let late = simulation().start_at(1, Duration::from_nanos(long)).run(|world| async move { world.barrier().await });
    assert_eq!(late.end, End::Finished);
    // Rank 1 holds the lock for ever, and rank 0 has the window.
    let behind = async |world: &World<SimFabric>| {
        let scores = make(world, 1).await?;
        if world.rank() == 1 {
            let _held = scores.lock_exclusive(0).await?;
            world.barrier().await.unwrap();
            return std::future::pending().await;
        }
        world.barrier().await.unwrap();
        Ok::<_, Error>(scores)
    };
    let ended = simulation()
        .kill(1, Duration::from_nanos(long))
        .run(|world| async move { behind(&world).await?.lock_exclusive(0).recover().await?.unlock().await });
    assert_eq!(ended.end, End::Finished);
    let timed = simulation().run(|world| async move {
        behind(&world).await?.lock_exclusive(0).deadline(Duration::from_nanos(long)).await?.unlock().await
    });
    let error = timed.results[0].as_ref().map(|result| result.as_ref().unwrap_err().to_string());
    assert!(error.is_some(), "the deadline comes first: {}", timed.end);
}
