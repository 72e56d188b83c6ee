//! Recovering owners that cancel shortly before they have the lock: the next acquire gets the error
//! again, because no rank has seen the data.

use std::future::{Future, poll_fn};
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::pin::{Pin, pin};
use std::task::Poll;
use std::time::Duration;

use onesided_fabric::World;
use onesided_fabric::remote_memory::RemoteMemory;
use onesided_instances as _;
use onesided_sim::{Network, SimFabric, Simulation};
use onesided_windows::{Error, LeasePolicy, LockAllDesign, LockDesign, Mutex, PreviousOwner, Window};

use crate::common::pause_until;

const MS: u64 = 1_000_000;
const LATER: u64 = 30_000 * MS;
const OVER: u64 = 2 * LATER;

/// Returns the future's outcome if it is ready by `time`; otherwise drops the future.
async fn until<F: Future + Unpin>(world: &World<SimFabric>, time: u64, mut future: F) -> Option<F::Output> {
    let mut over = pin!(pause_until(world, time));
    poll_fn(|cx| match Pin::new(&mut future).poll(cx) {
        Poll::Ready(done) => Poll::Ready(Some(done)),
        Poll::Pending => over.as_mut().poll(cx).map(|()| None),
    })
    .await
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum How {
    Dropped,
    Deadline,
    Value,
    Fenced,
}

/// Rank 0 tries to recover the lock that rank 1 left, and cancels after `nanos`. Returns how long
/// the acquire took, if it succeeded before; otherwise whether the next acquire without `recover`
/// gets the error.
fn cancelled_recovery(design: LockDesign, all: LockAllDesign, how: How, nanos: u64) -> Result<u64, bool> {
    let simulation = Simulation::new(Network::default()).ranks(3).kill(1, Duration::from_nanos(50 * MS));
    let report = simulation.run(move |world| async move {
        let builder = Window::<u64>::builder().lock(design);
        let scores: Window<u64, SimFabric> = builder.lock_all(all).allocate(&world, 4).await?;
        let value = Mutex::with(Window::<u64>::builder().lock(design), &world, 2, 7_u64).await?;
        pause_until(&world, 40 * MS).await;
        let mut outcome = Err(false);
        match world.rank() {
            1 => {
                std::mem::forget(scores.lock_exclusive(2).await?);
                std::mem::forget(value.lock().await?);
            }
            0 => {
                pause_until(&world, 60 * MS).await;
                let begin = world.fabric().now();
                let request = || scores.lock_exclusive(2).recover();
                let got = match how {
                    How::Dropped => until(&world, begin + nanos, request()).await.map(drop),
                    How::Fenced => until(&world, begin + nanos, request().fenced()).await.map(drop),
                    How::Value => until(&world, begin + nanos, value.lock().recover()).await.map(drop),
                    How::Deadline => request().deadline(Duration::from_nanos(nanos)).await.map(drop).ok(),
                };
                outcome = got.map(|()| world.fabric().now() - begin).ok_or(false);
                pause_until(&world, LATER).await;
                if outcome.is_err() {
                    let next = match how {
                        How::Value => value.lock().await.err(),
                        _ => scores.lock_exclusive(2).await.err(),
                    };
                    outcome = Err(next.is_some_and(|error| error.is_poisoned()));
                }
            }
            _ => {}
        }
        pause_until(&world, OVER).await;
        Ok::<_, Error>(outcome)
    });
    report.results.into_iter().next().unwrap().unwrap().unwrap()
}

#[test]
fn a_cancelled_recovery_leaves_the_lock_poisoned() {
    for design in LockDesign::ALL {
        for all in [LockAllDesign::OnDemand, LockAllDesign::Global] {
            // The other ways end in the same way as that of the usual lock.
            let hows: &[How] = match all {
                LockAllDesign::OnDemand => &[How::Dropped, How::Deadline, How::Value, How::Fenced],
                _ => &[How::Dropped],
            };
            for how in hows.iter().copied() {
                let takes = cancelled_recovery(*design, all, how, LATER / 2).unwrap();
                for before in 0..40 {
                    let nanos = takes.saturating_sub(200 * before + 1);
                    let ended = cancelled_recovery(*design, all, how, nanos);
                    assert_ne!(ended, Err(false), "{design}, {all}, {how:?} after {nanos} of {takes}");
                }
            }
        }
    }
}

/// The same for a takeover from an owner with an expired lease.
#[test]
fn a_cancelled_takeover_is_reported_to_the_next_owner() {
    let simulate = |nanos: u64| {
        let report = Simulation::new(Network::default()).ranks(3).run(move |world: World<SimFabric>| async move {
            let builder = Window::<u64>::builder().lock(LockDesign::TestAndSet);
            let builder = builder.lease_policy(LeasePolicy::VersionedCommit, Duration::from_nanos(MS));
            let scores: Window<u64, SimFabric> = builder.allocate(&world, 2).await?;
            pause_until(&world, MS).await;
            let (mut takes, mut recovers) = (None, None);
            if world.rank() == 1 {
                std::mem::forget(scores.lock_exclusive(2).await?); // keeps it for good
            }
            if world.rank() == 0 {
                pause_until(&world, 2 * MS).await;
                let got = until(&world, 2 * MS + nanos, scores.lock_exclusive(2)).await.map(|held| held.map(drop));
                takes = got.map(|_| world.fabric().now() - 2 * MS);
                pause_until(&world, 50 * MS).await;
                recovers = scores.lock_exclusive(2).await?.previous_owner();
            }
            pause_until(&world, 100 * MS).await;
            Ok::<_, Error>((takes, recovers))
        });
        report.results.into_iter().next().unwrap().unwrap().unwrap()
    };
    let (Some(takes), None) = simulate(40 * MS) else { panic!("it is taken over") };
    for before in 0..40 {
        let nanos = takes - 200 * before - 1;
        assert_eq!(simulate(nanos), (None, Some(PreviousOwner::LeaseExpired(1))), "after {nanos} of {takes}");
    }
}

/// Rank 1 dies while it holds a value. Rank 0 recovers it and panics before it has repaired it: the
/// next acquire gets the error.
#[test]
fn a_value_whose_recovery_panicked_stays_poisoned() {
    for design in LockDesign::ALL {
        let simulation = Simulation::new(Network::default()).ranks(3).kill(1, Duration::from_nanos(50 * MS));
        let report = simulation.run(move |world| async move {
            let value = Mutex::with(Window::<u64>::builder().lock(*design), &world, 2, 7_u64).await?;
            pause_until(&world, 40 * MS).await;
            match world.rank() {
                1 => std::mem::forget(value.lock().await?),
                0 => {
                    pause_until(&world, 60 * MS).await;
                    for _ in 0..2 {
                        let guard = value.lock().recover().await?;
                        assert!(guard.previous_owner().is_some(), "{design}");
                        let panic = catch_unwind(AssertUnwindSafe(|| {
                            let _guard = guard;
                            resume_unwind(Box::new("the value is inconsistent"));
                        }));
                        assert!(panic.is_err());
                        let next = value.lock().await.map(|guard| *guard);
                        assert!(next.as_ref().is_err_and(Error::is_poisoned), "{design}: {next:?}");
                    }
                    let guard = value.lock().recover().await?;
                    assert!(guard.previous_owner().is_some(), "{design}");
                    guard.unlock().await?;
                    assert_eq!(*value.lock().await?, 7, "{design}");
                }
                _ => {}
            }
            pause_until(&world, OVER).await;
            Ok::<_, Error>(())
        });
        assert!(report.results[0].as_ref().is_some_and(Result::is_ok), "{design}: {:?}", report.results[0]);
    }
}
