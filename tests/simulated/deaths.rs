//! Locks over simulated windows whose owners die, or leave and hold them still: waiters get an error
//! or recover, whatever is in flight.

use std::future::{Future, poll_fn};
use std::pin::Pin;
use std::sync::{Arc, Mutex};
use std::task::Poll;
use std::time::Duration;

use onesided_fabric::World;
use onesided_fabric::remote_memory::{FaultKind, Rank, RemoteMemory};
use onesided_instances as _;
use onesided_sim::{Network, SimFabric, Simulation};
use onesided_windows::{Builder, Epoch, Error, LeasePolicy, LockAllDesign, LockDesign, Mode, PreviousOwner, Window};

use crate::common::{bound, pause_until};

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

/// Five ranks, of which rank 1 dies at its time, or leaves then by the end of its program. Rank 4
/// has ended in the same way before, and used no lock.
fn simulation(network: Network, leaves: bool) -> Simulation {
    let [before, at] = [BEGIN / 2, DEATH].map(Duration::from_nanos);
    let simulation = Simulation::new(network).ranks(5);
    if leaves { simulation } else { simulation.kill(4, before).kill(1, at) }
}

/// Whether an error names rank 1, and says how it ended. Or it says that another rank's memory tells
/// as little: here that of ranks that ended is gone.
fn names_one(error: &Error, leaves: bool) -> bool {
    let fault = error.fault().unwrap();
    let left = matches!(fault.kind(), FaultKind::OwnerLeft | FaultKind::ParticipantLeft);
    let named = fault.rank() == Some(Rank(1)) || leaves && fault.detail() == 1;
    error.is_poisoned() && named && left == leaves
}

/// Who waits for an exclusive owner that has ended learns of it as soon as it is known, if the lock
/// names its owner; otherwise after the suspicion timeout, a second, when it next looks: within a
/// third of one. Who waits for a reader that has ended gets the lock in the same time.
#[test]
fn a_waiter_learns_of_an_end_in_time() {
    const MS: u64 = 1_000_000;
    for (design, leaves) in LockDesign::ALL.iter().flat_map(|design| [(*design, false), (*design, true)]) {
        for mode in [Mode::Exclusive, Mode::Shared] {
            let report = simulation(Network::default(), leaves).run(move |world| async move {
                let scores = window(&world, design).await?;
                let mut took = 0;
                match world.rank() {
                    1 => {
                        std::mem::forget(lock(&scores, 0, mode).await?);
                        pause_until(&world, DEATH).await;
                    }
                    2 => {
                        pause_until(&world, BEGIN + MS).await;
                        let outcome = lock(&scores, 0, Mode::Exclusive).await;
                        took = world.fabric().now() - DEATH;
                        match (mode, &outcome) {
                            (Mode::Shared, Ok(epoch)) => assert_eq!(epoch.previous_owner(), None, "{design}"),
                            (Mode::Exclusive, Err(error)) if names_one(error, leaves) => {}
                            _ => panic!("{design} {mode:?}, it leaves: {leaves}: {outcome:?}"),
                        }
                        if mode == Mode::Shared {
                            drop(outcome);
                            let epoch = scores.lock_shared(0).recover().deadline(LONG).await?;
                            assert_eq!((epoch.previous_owner(), epoch.mode()), (None, Mode::Shared), "{design}");
                        }
                    }
                    _ => {}
                }
                if !matches!(world.rank(), 1 | 4) {
                    pause_until(&world, OVER).await;
                }
                Ok::<_, Error>(took)
            });
            let took = *report.results[2].as_ref().unwrap().as_ref().unwrap();
            let at_once = mode == Mode::Exclusive && matches!(design, LockDesign::TestAndSet | LockDesign::Mcs);
            let what = format!("{design} {mode:?}, it leaves: {leaves}: {took} ns");
            assert!(took < if at_once { 15 * MS } else { 1_500 * MS }, "{what}");
        }
    }
}

/// Rank 1 ends with both locks. Rank 0 waits for them already, and recovers them.
#[test]
fn a_waiter_recovers_what_an_ended_rank_held() {
    async fn is_pending(handle: &mut (impl Future + Unpin)) -> bool {
        poll_fn(|cx| Poll::Ready(Pin::new(&mut *handle).poll(cx))).await.is_pending()
    }
    for (design, leaves) in LockDesign::ALL.iter().flat_map(|design| [(*design, false), (*design, true)]) {
        let network = Network { detection: Duration::from_millis(10), ..Network::default() };
        let report = simulation(network, leaves).run(move |world| async move {
            let value = onesided_windows::Mutex::with(Window::builder().lock(design), &world, 2, 7_u64).await?;
            let scores = window(&world, design).await?;
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
                1 => {
                    std::mem::forget((lock(&scores, 2, Mode::Exclusive).await?, value.lock().await?));
                    pause_until(&world, DEATH + 4_000_000).await;
                    return Ok(previous);
                }
                _ => {}
            }
            pause_until(&world, OVER).await;
            Ok::<_, Error>(previous)
        });
        let previous = report.results[0].as_ref().unwrap().as_ref().unwrap();
        let from_it = |found: &_| match leaves {
            false => matches!(found, Some(PreviousOwner::Owner(1) | PreviousOwner::Participant(1))),
            true => matches!(found, Some(PreviousOwner::OwnerLeft(1) | PreviousOwner::ParticipantLeft(_))),
        };
        assert!(previous.iter().all(from_it), "{design}, it leaves: {leaves}: {previous:?}");
    }
}

/// A rank leaves with guards of all targets and of a value that it reads. A writer goes on.
#[test]
fn leaked_guards_of_readers_keep_no_writer_waiting() {
    let alls = [LockAllDesign::EachTarget, LockAllDesign::Global];
    for (design, all) in LockDesign::ALL.iter().flat_map(|design| alls.map(|all| (*design, all))) {
        if all == LockAllDesign::Global && design.is_served() {
            continue;
        }
        let report = simulation(Network::default(), true).run(move |world| async move {
            let builder = Window::<u64>::builder().lock(design).lock_all(all);
            let scores = builder.allocate(&world, 4).await?;
            let value = onesided_windows::RwLock::with(Window::builder().lock(design), &world, 0, 7_u64).await?;
            pause_until(&world, BEGIN).await;
            match world.rank() {
                1 => {
                    std::mem::forget((scores.lock_all().await?, value.read().await?));
                    pause_until(&world, DEATH).await;
                    return Ok(());
                }
                2 => {
                    pause_until(&world, BEGIN + 1_000_000).await;
                    let epoch = scores.lock_exclusive(0).deadline(LONG).await?;
                    let guard = value.write().deadline(LONG).await?;
                    assert_eq!((epoch.previous_owner(), guard.previous_owner()), (None, None), "{design} {all:?}");
                }
                _ => {}
            }
            pause_until(&world, OVER).await;
            Ok::<_, Error>(())
        });
        let ended = report.results[2].as_ref();
        assert!(matches!(ended, Some(Ok(()))), "{design} {all:?}: {ended:?}");
    }
}

/// Rank 1 holds the lock, and rank 3 waits, behind a request of rank 2 that is dropped or passes its
/// deadline. Rank 2 leaves, and gives up its place: rank 3 gets the lock as if it had not asked.
#[test]
fn a_cancelled_request_of_a_rank_that_leaves_keeps_no_other_waiting() {
    const MS: u64 = 1_000_000;
    let modes = [Mode::Exclusive, Mode::Shared];
    for (design, mode) in LockDesign::ALL.iter().flat_map(|design| modes.map(|mode| (*design, mode))) {
        for late in [false, true] {
            let report = simulation(Network::default(), true).run(move |world| async move {
                let scores = window(&world, design).await?;
                match world.rank() {
                    1 => {
                        let epoch = lock(&scores, 0, Mode::Exclusive).await?;
                        pause_until(&world, BEGIN + 12_000 * MS).await;
                        epoch.unlock().await?;
                        pause_until(&world, OVER).await;
                    }
                    2 => {
                        pause_until(&world, BEGIN + MS).await;
                        let request = match mode {
                            Mode::Exclusive => scores.lock_exclusive(0),
                            Mode::Shared => scores.lock_shared(0),
                        };
                        let mut request = request.deadline(Duration::from_millis(if late { 10 } else { 1_000 }));
                        let polled = poll_fn(|cx| Poll::Ready(Pin::new(&mut request).poll(cx))).await;
                        assert!(polled.is_pending(), "{design}");
                        match late {
                            true => assert!(request.await.is_err_and(|error| error.is_timed_out())),
                            false => {
                                pause_until(&world, BEGIN + 10 * MS).await;
                                drop(request);
                            }
                        }
                    }
                    3 => {
                        pause_until(&world, BEGIN + 5 * MS).await;
                        let epoch = lock(&scores, 0, Mode::Exclusive).await?;
                        assert!(world.fabric().now() >= BEGIN + 12_000 * MS, "{design}");
                        assert_eq!(epoch.previous_owner(), None, "{design}");
                        epoch.unlock().await?;
                        lock(&scores, 0, Mode::Shared).await?.unlock().await?;
                    }
                    _ => pause_until(&world, OVER).await,
                }
                Ok::<_, Error>(world.fabric().now())
            });
            let what = format!("{design} {mode:?}, late: {late}: {:?}", report.results);
            assert!(report.results.iter().all(|result| matches!(result, Some(Ok(_)))), "{what}");
            let [left, got] = [2, 3].map(|rank: usize| *report.results[rank].as_ref().unwrap().as_ref().unwrap());
            assert!(left < BEGIN + 1_000 * MS && got < BEGIN + 15_000 * MS, "{what}");
        }
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
