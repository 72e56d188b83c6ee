//! Locks over simulated windows whose owners die: waiters get an error or recover, whatever is in
//! flight.

mod common;

use std::future::{Future, poll_fn};
use std::pin::Pin;
use std::sync::{Arc, Mutex};
use std::task::Poll;
use std::time::Duration;

use onesided_fabric::World;
use onesided_fabric::remote_memory::{Rank, RemoteMemory};
use onesided_instances as _;
use onesided_sim::{Network, SimFabric, Simulation};
use onesided_windows::{Builder, Epoch, Error, LeasePolicy, LockAllDesign, LockDesign, Mode, PreviousOwner, Window};

use common::{bound, pause_until};

/// When the windows exist, in nanoseconds.
const BEGIN: u64 = 40_000_000;
/// When a rank dies. The others learn of it a millisecond later.
const DEATH: u64 = 50_000_000;
/// When no rank needs the memory of another any more.
const OVER: u64 = 60_000_000_000;

const LONG: Duration = Duration::from_secs(20);

async fn window(world: &World<SimFabric>, design: LockDesign) -> Result<Window<u64, SimFabric>, Error> {
    let window = Window::builder().lock(design).name("mortal").allocate(world, 4).await?;
    pause_until(world, BEGIN).await;
    Ok(window)
}

async fn lock(window: &Window<u64, SimFabric>, target: u32, mode: Mode) -> Result<Epoch<'_, u64, SimFabric>, Error> {
    match mode {
        Mode::Exclusive => window.lock_exclusive(target).deadline(LONG).await,
        Mode::Shared => window.lock_shared(target).deadline(LONG).await,
    }
}

/// Rank 1 dies with the lock of rank 0. Ranks that have never accessed its memory arrive before the
/// death is known: their error names rank 1 and no other rank.
#[test]
fn an_arrival_behind_a_dead_rank_waits_until_the_death_is_known() {
    for design in LockDesign::ALL {
        for (mode, detection) in [(Mode::Exclusive, 1), (Mode::Shared, 1), (Mode::Exclusive, 700)] {
            let network = Network { detection: Duration::from_millis(detection), ..Network::default() };
            let simulation = Simulation::new(network).ranks(5).kill(1, Duration::from_nanos(DEATH));
            let report = simulation.run(move |world| async move {
                let scores = window(&world, *design).await?;
                match world.rank() {
                    1 => {
                        std::mem::forget(lock(&scores, 0, Mode::Exclusive).await?);
                        pause_until(&world, OVER).await; // rank 1 dies meanwhile
                    }
                    rank => pause_until(&world, DEATH + u64::from(rank) * 100_000).await,
                }
                let error = lock(&scores, 0, mode).await.map(drop);
                pause_until(&world, OVER).await;
                Ok::<_, Error>(error)
            });
            for rank in [0, 2, 3, 4] {
                let error = report.results[rank].as_ref().unwrap().as_ref().unwrap().as_ref().unwrap_err();
                let dead = error.fault().unwrap().rank();
                assert!(
                    error.is_poisoned() && dead == Some(Rank(1)),
                    "{design} {mode:?} {detection} rank {rank}: {error}"
                );
            }
        }
    }
}

/// Who waits for a dead exclusive owner learns of the death as soon as it is known, if the lock
/// names its owner; otherwise after the suspicion timeout, a second, when it next looks: within a
/// third of one. Who waits for a dead reader gets the lock in the same time.
#[test]
fn a_waiter_learns_of_a_death_in_time() {
    const MS: u64 = 1_000_000;
    for design in LockDesign::ALL {
        for mode in [Mode::Exclusive, Mode::Shared] {
            let simulation = Simulation::new(Network::default()).ranks(3).kill(1, Duration::from_nanos(DEATH));
            let report = simulation.run(move |world| async move {
                let scores = window(&world, *design).await?;
                let mut took = 0;
                match world.rank() {
                    1 => std::mem::forget(lock(&scores, 0, mode).await?),
                    2 => {
                        pause_until(&world, BEGIN + MS).await;
                        let outcome = lock(&scores, 0, Mode::Exclusive).await;
                        took = world.fabric().now() - DEATH;
                        match (mode, &outcome) {
                            (Mode::Shared, Ok(epoch)) => assert_eq!(epoch.previous_owner(), None, "{design}"),
                            (Mode::Exclusive, Err(error)) if error.is_poisoned() => {}
                            _ => panic!("{design} {mode:?}: {outcome:?}"),
                        }
                        if mode == Mode::Shared {
                            drop(outcome);
                            let epoch = scores.lock_shared(0).recover().deadline(LONG).await?;
                            assert_eq!((epoch.previous_owner(), epoch.mode()), (None, Mode::Shared), "{design}");
                        }
                    }
                    _ => {}
                }
                pause_until(&world, OVER).await;
                Ok::<_, Error>(took)
            });
            let took = *report.results[2].as_ref().unwrap().as_ref().unwrap();
            let at_once = mode == Mode::Exclusive && matches!(design, LockDesign::TestAndSet | LockDesign::Mcs);
            assert!(took < if at_once { 5 * MS } else { 1_500 * MS }, "{design} {mode:?}: {took} ns");
        }
    }
}

/// Rank 1 dies with both locks. Rank 0 waits for them already, and recovers them.
#[test]
fn a_waiter_recovers_what_a_dead_rank_held() {
    async fn is_pending(handle: &mut (impl Future + Unpin)) -> bool {
        poll_fn(|cx| Poll::Ready(Pin::new(&mut *handle).poll(cx))).await.is_pending()
    }
    for design in LockDesign::ALL {
        let network = Network { detection: Duration::from_millis(10), ..Network::default() };
        let simulation = Simulation::new(network).ranks(3).kill(1, Duration::from_nanos(DEATH));
        let report = simulation.run(move |world| async move {
            let value = onesided_windows::Mutex::with(Window::builder().lock(*design), &world, 2, 7_u64).await?;
            let scores = window(&world, *design).await?;
            let mut previous = [None; 2];
            match world.rank() {
                0 => {
                    pause_until(&world, DEATH).await;
                    let (mut lock, mut guard) = (scores.lock_exclusive(2).recover(), value.lock().recover());
                    for look in 1..4 {
                        assert!(is_pending(&mut lock).await && is_pending(&mut guard).await, "{design}");
                        pause_until(&world, DEATH + look * 1_000_000).await;
                    }
                    let (lock, guard) = (lock.await?, guard.await?);
                    previous = [lock.previous_owner(), guard.previous_owner()];
                }
                1 => std::mem::forget((lock(&scores, 2, Mode::Exclusive).await?, value.lock().await?)),
                _ => {}
            }
            pause_until(&world, OVER).await;
            Ok::<_, Error>(previous)
        });
        let previous = report.results[0].as_ref().unwrap().as_ref().unwrap();
        let from_it = |found: &_| matches!(found, Some(PreviousOwner::Owner(1) | PreviousOwner::Participant(1)));
        assert!(previous.iter().all(from_it), "{design}: {previous:?}");
    }
}

/// Ranks die at any time, while they hold a lock or wait. The others recover it and draw tokens,
/// which rise.
#[test]
fn tokens_rise_across_deaths() {
    for design in LockDesign::ALL {
        for seed in 0..bound(4, 12) {
            let died =
                [(seed % 5) * 37, 60 + (seed % 7) * 211].map(|micros| Duration::from_nanos(BEGIN + micros * 1000));
            let tokens = Arc::new(Mutex::new(Vec::new()));
            let network = Network { loss: 0.01, jitter: Duration::from_micros(3), ..Network::default() };
            let simulation = Simulation::new(network).ranks(6).seed(seed).kill(2, died[0]).kill(4, died[1]);
            let report = simulation.run({
                let tokens = Arc::clone(&tokens);
                move |world| {
                    let tokens = Arc::clone(&tokens);
                    async move {
                        let scores = window(&world, *design).await?;
                        for round in 0..20 {
                            let request = match round % 4 {
                                3 => scores.lock_shared(0),
                                _ => scores.lock_exclusive(0),
                            };
                            let epoch = request.recover().deadline(LONG).await?;
                            if epoch.mode() == Mode::Exclusive {
                                let token = epoch.fencing_token().await?;
                                tokens.lock().unwrap().push(token);
                            }
                            epoch.unlock().await?;
                        }
                        pause_until(&world, OVER).await;
                        Ok::<_, Error>(())
                    }
                }
            });
            for rank in [0, 1, 3, 5] {
                let ended = report.results[rank].as_ref();
                assert!(matches!(ended, Some(Ok(()))), "{design} seed {seed} rank {rank}: {ended:?}");
            }
            let tokens = tokens.lock().unwrap();
            assert!(tokens.len() >= 60 && tokens.is_sorted_by(|a, b| a < b), "{design} seed {seed}: {tokens:?}");
        }
    }
}

/// The locks whose recovery asks for living owners.
fn recovered() -> impl Iterator<Item = LockDesign> {
    LockDesign::ALL.iter().copied().filter(|design| !design.is_served())
}

/// Rank 2 waits at rank 3 when that rank dies. It is no participant any more then: rank 0 can
/// recover the lock of rank 1.
#[test]
fn a_failed_acquire_is_not_counted() {
    for design in recovered() {
        let died = Duration::from_nanos(DEATH);
        let simulation = Simulation::new(Network::default()).ranks(4).kill(1, died).kill(3, died);
        let report = simulation.run(move |world| async move {
            let scores = window(&world, design).await?;
            match world.rank() {
                0 => {
                    pause_until(&world, 2 * DEATH).await;
                    let epoch = scores.lock_exclusive(0).recover().deadline(LONG).await?;
                    assert!(epoch.previous_owner().is_some(), "{design}");
                    epoch.unlock().await?;
                }
                2 => {
                    pause_until(&world, BEGIN + 1_000_000).await;
                    let failed = lock(&scores, 3, Mode::Exclusive).await.map(drop).unwrap_err();
                    assert!(!failed.is_timed_out(), "{design}: {failed}");
                }
                rank => {
                    let target = if rank == 1 { 0 } else { rank };
                    std::mem::forget(lock(&scores, target, Mode::Exclusive).await?);
                    pause_until(&world, OVER).await; // rank 1 dies meanwhile
                }
            }
            pause_until(&world, OVER).await;
            Ok::<_, Error>(())
        });
        for rank in [0, 2] {
            let ended = report.results[rank].as_ref();
            assert!(matches!(ended, Some(Ok(()))), "{design} rank {rank}: {ended:?}");
        }
    }
}

/// Rank 2 holds many locks, and waits for a lock that rank 1 left, as a reader or an exclusive
/// owner. It must not wait for itself.
#[test]
fn a_rank_that_holds_many_locks_recovers_another_lock() {
    for (design, mode) in recovered().flat_map(|design| [(design, Mode::Shared), (design, Mode::Exclusive)]) {
        let simulation = Simulation::new(Network::default()).ranks(3).kill(1, Duration::from_nanos(DEATH));
        let report = simulation.run(move |world| async move {
            let scores = window(&world, design).await?;
            match world.rank() {
                1 => std::mem::forget(lock(&scores, 0, mode).await?),
                2 => {
                    let mut held = Vec::new();
                    for _ in 0..40 {
                        held.push(scores.lock_shared(2).await?);
                    }
                    pause_until(&world, 2 * DEATH).await;
                    let epoch = scores.lock_exclusive(0).recover().deadline(LONG).await?;
                    assert_eq!(epoch.previous_owner().is_some(), mode == Mode::Exclusive, "{design}");
                    epoch.unlock().await?;
                    drop(held);
                }
                _ => {}
            }
            pause_until(&world, OVER).await;
            Ok::<_, Error>(())
        });
        let ended = report.results[2].as_ref();
        assert!(matches!(ended, Some(Ok(()))), "{design} {mode:?}: {ended:?}");
    }
}

/// The slots of a rank in [`with_own_nodes`].
const SLOTS: u16 = 35;

/// Windows with few slots, and locks whose nodes only their owners write.
fn with_own_nodes() -> impl Iterator<Item = Builder<u64>> {
    let late = Window::<u64>::builder().lock(LockDesign::TestAndSet);
    let late = late.lease_policy(LeasePolicy::VersionedCommit, Duration::from_secs(1000));
    let designs = [LockDesign::TestAndSet, LockDesign::Ticket, LockDesign::DistributedCounters];
    let global = |design| Window::<u64>::builder().lock(design).lock_all(LockAllDesign::Global);
    std::iter::once(late).chain(designs.map(global)).map(|builder| builder.lock_slots(SLOTS))
}

/// Rank 0 waits for locks of rank 1 with all its slots, or holds them, when that rank dies. Then
/// its slots are free again.
#[test]
fn locks_whose_target_dies_cost_no_slot() {
    for (builder, holds) in with_own_nodes().flat_map(|builder| [false, true].map(|holds| (builder.clone(), holds))) {
        let what = format!("{builder:?} {holds}");
        let simulation = Simulation::new(Network::default()).ranks(4).kill(1, Duration::from_nanos(DEATH));
        let report = simulation.run(move |world| {
            let builder = builder.clone();
            async move {
                let scores = builder.allocate(&world, 4).await?;
                pause_until(&world, BEGIN).await;
                if world.rank() == 1 && !holds {
                    std::mem::forget(lock(&scores, 1, Mode::Exclusive).await?);
                }
                pause_until(&world, BEGIN + 1_000_000).await;
                if world.rank() == 0 {
                    let requests: Vec<_> = (0..SLOTS).map(|_| scores.lock_shared(1)).collect();
                    let mut held = Vec::new();
                    for request in requests {
                        let outcome = request.deadline(LONG).await;
                        assert!(outcome.is_ok() == holds && !outcome.as_ref().is_err_and(Error::is_timed_out));
                        held.extend(outcome);
                    }
                    pause_until(&world, 2 * DEATH).await;
                    held.clear();
                    pause_until(&world, OVER / 2).await;
                    for _ in 0..SLOTS {
                        held.push(lock(&scores, 2, Mode::Shared).await?);
                    }
                }
                pause_until(&world, OVER).await;
                Ok::<_, Error>(())
            }
        });
        assert!(matches!(report.results[0], Some(Ok(()))), "{what}: {:?}", report.results[0]);
    }
}
