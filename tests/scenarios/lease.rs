//! Owners that keep a lock for longer than their lease, and the revocation of their access.

use std::time::Duration;

use onesided_fabric::remote_memory::FaultKind;
use onesided_fabric::{AtomicAgent, Fabric, World};
use onesided_windows::{Error, LeasePolicy, LockAllDesign, LockDesign, PreviousOwner, Window};

use crate::{Outcome, pause, scenario};

scenario!(late_revoked, operations_of_a_revoked_owner_have_no_effect, [3, 5]);
scenario!(late_poisoned, an_acquire_without_recover_gets_lease_expired, [3]);
scenario!(late_among_readers, lock_all_shares_an_expired_lock_with_readers, [4]);
scenario!(late_at_itself, an_owner_of_its_own_lock_is_not_revoked, [2]);

/// Longer than a barrier takes, even on an emulated card.
fn lease<F: Fabric>(world: &World<F>) -> Duration {
    Duration::from_millis(if world.fabric().capabilities().agent == AtomicAgent::Card { 600 } else { 30 })
}

/// A window with the policy `Revoke`, and one without a policy; `None` where memory is mapped and
/// access cannot be revoked.
async fn windows<F: Fabric>(world: &World<F>) -> Result<Option<[Window<u64, F>; 2]>, Error> {
    let builder = Window::<u64>::builder().lock(LockDesign::TestAndSet).name("scores");
    match builder.lease_policy(LeasePolicy::Revoke, lease(world)).allocate(world, 8).await {
        Err(Error::LeasePolicy { .. }) => {
            assert_eq!(world.fabric().capabilities().agent, AtomicAgent::Cpu);
            Ok(None)
        }
        made => Ok(Some([made?, Window::<u64>::builder().allocate(world, 8).await?])),
    }
}

/// Sleeps for several leases.
async fn outlive_lease<F: Fabric>(world: &World<F>, window: &Window<u64, F>) {
    pause(world, 10 * lease(world).as_nanos() as u64).await;
    drop(window.local().read(0..1));
}

/// Accesses a rank's memory, perhaps for the first time.
async fn add<F: Fabric>(window: &Window<u64, F>, rank: u32) -> Result<u64, Error> {
    window.no_check().at(rank)?.fetch_add(0, 7).await
}

fn is_revoked(error: &Error, other: u32) -> bool {
    let expected = "access was revoked: a lock was kept for longer than its lease, or the rank counts as dead there";
    let named = error.fault().and_then(|fault| fault.rank()).is_some_and(|rank| rank.0 == other);
    error.is_revoked() && named && error.to_string().ends_with(&format!("rank {other}: {expected}"))
}

/// Rank 0's lease on the lock of rank 2 expires, rank 1 takes the lock over, and rank 0 continues.
async fn operations_of_a_revoked_owner_have_no_effect<F: Fabric>(world: World<F>) -> Outcome {
    let Some([window, other]) = windows(&world).await? else { return Ok(()) };
    match world.rank() {
        0 => {
            let epoch = window.lock_exclusive(2).await?;
            epoch.put(0, &[1; 8])?;
            epoch.flush().await?;
            world.barrier().await.unwrap();
            outlive_lease(&world, &window).await;
            epoch.put(0, &[7; 8])?;
            let error = epoch.flush().await.unwrap_err();
            assert!(is_revoked(&error, 2), "{error}");
            let error = epoch.unlock().await.unwrap_err();
            assert!(is_revoked(&error, 2), "{error}");
            // In other windows as well, and not from other ranks. No rank takes the target for
            // dead.
            let error = window.lock_exclusive(2).await.unwrap_err();
            assert!(is_revoked(&error, 2), "{error}");
            let error = add(&other, 2).await.unwrap_err();
            assert!(is_revoked(&error, 2) && world.is_alive(2), "{error}");
            let own = window.lock_exclusive(0).await?;
            own.put(0, &[3])?;
            own.unlock().await?;
            other.no_check().at(1)?.signal(0, 1)?;
            other.local().wait_until(1, |done| done == 1).await?;
        }
        1 => {
            world.barrier().await.unwrap();
            let epoch = window.lock_exclusive(2).recover().await?;
            assert_eq!(epoch.previous_owner(), Some(PreviousOwner::LeaseExpired(0)));
            let mut found = [0; 8];
            epoch.get(0, &mut found).await?;
            assert_eq!(found, [1; 8]);
            epoch.put(0, &[2; 8])?;
            epoch.flush().await?;
            assert!(world.is_alive(0));
            other.local().wait_until(0, |done| done == 1).await?;
            epoch.get(0, &mut found).await?;
            assert_eq!(found, [2; 8]);
            epoch.unlock().await?;
            // Everything continues with the other ranks: the lock is usable, and the revoked rank
            // reaches every rank but the target.
            let epoch = window.lock_exclusive(2).await?;
            assert_eq!(epoch.previous_owner(), None);
            epoch.unlock().await?;
            window.lock_exclusive(0).await?.unlock().await?;
            other.no_check().at(2)?.signal(1, 1)?;
            other.local().wait_until(1, |done| done == 1).await?;
            other.no_check().at(0)?.signal(1, 1)?;
        }
        2 => {
            world.barrier().await.unwrap();
            other.local().wait_until(1, |done| done == 1).await?;
            assert_eq!((window.local().read(0..8), other.local().read(0..1)), (vec![2; 8], vec![0]));
            let error = add(&other, 0).await.unwrap_err();
            assert!(is_revoked(&error, 0) && world.is_alive(0), "{error}");
            other.no_check().at(1)?.signal(1, 1)?;
        }
        _ => world.barrier().await.unwrap(),
    }
    Ok(())
}

/// Rank 1 asks for the lock without `recover`, twice.
async fn an_acquire_without_recover_gets_lease_expired<F: Fabric>(world: World<F>) -> Outcome {
    let Some([window, other]) = windows(&world).await? else { return Ok(()) };
    if world.rank() == 0 {
        let epoch = window.lock_exclusive(2).await?;
        world.barrier().await.unwrap();
        other.local().wait_until(0, |done| done == 1).await?;
        assert!(epoch.unlock().await.unwrap_err().is_revoked());
        other.no_check().at(1)?.signal(0, 1)?;
        return Ok(());
    }
    world.barrier().await.unwrap();
    if world.rank() == 1 {
        for _ in 0..2 {
            let error = window.lock_shared(2).await.unwrap_err();
            let fault = error.fault().unwrap();
            assert!(error.is_poisoned() && fault.kind() == FaultKind::LeaseExpired, "{error}");
            let expected =
                "rank 0 held the lock for longer than its lease (`recover` takes it over where access is revoked)";
            assert!(error.to_string().ends_with(expected), "{error}");
        }
        let epoch = window.lock_shared(2).recover().await?;
        assert_eq!(
            (epoch.previous_owner(), epoch.mode()),
            (Some(PreviousOwner::LeaseExpired(0)), onesided_lock_algos::Mode::Exclusive)
        );
        epoch.unlock().await?;
        let readers = (window.lock_shared(2).await?, window.lock_shared(2).await?);
        drop(readers);
        other.no_check().at(0)?.signal(0, 1)?;
        other.local().wait_until(0, |done| done == 1).await?; // the target may leave then
        other.no_check().at(2)?.signal(0, 1)?;
    } else {
        other.local().wait_until(0, |done| done == 1).await?;
    }
    Ok(())
}

/// Rank 0's lease on the lock of rank 2 expires. Rank 1 and then rank 3 lock all; rank 3 must not
/// mistake that for an expired lease.
async fn lock_all_shares_an_expired_lock_with_readers<F: Fabric>(world: World<F>) -> Outcome {
    for design in [LockAllDesign::OnDemand, LockAllDesign::EachTarget] {
        let builder = Window::<u64>::builder().lock(LockDesign::TestAndSet).lock_all(design);
        let builder = builder.lease_policy(LeasePolicy::VersionedCommit, lease(&world));
        let window = builder.allocate(&world, 8).await?;
        let barrier = async || world.barrier().await.unwrap();
        if world.rank() == 0 {
            let epoch = window.lock_exclusive(2).await?;
            epoch.put(0, &[1; 8])?;
            epoch.flush().await?;
            barrier().await;
            barrier().await;
            barrier().await;
            let error = epoch.commit(7).await.unwrap_err();
            assert!(matches!(error, Error::Late { target: 2, .. }), "{design}: {error}");
            let error = epoch.unlock().await.unwrap_err();
            assert!(matches!(error, Error::Late { target: 2, .. }), "{design}: {error}");
        } else {
            barrier().await;
            if world.rank() != 1 {
                barrier().await;
            }
            if world.rank() != 2 {
                let all = window.lock_all().await?;
                let mut found = [0; 8];
                all.at(2).await?.get(0, &mut found).await?;
                let previous = (world.rank() == 1).then_some(PreviousOwner::LeaseExpired(0));
                assert_eq!((found, all.previous_owner(0), all.previous_owner(2)), ([1; 8], None, previous), "{design}");
                if world.rank() == 1 {
                    barrier().await;
                }
                barrier().await;
                all.unlock_all().await?;
            } else {
                barrier().await;
            }
        }
        window.close().await?;
    }
    Ok(())
}

/// No rank can be asked to revoke. Rank 1 gives up at a deadline, then waits as long as it takes.
async fn an_owner_of_its_own_lock_is_not_revoked<F: Fabric>(world: World<F>) -> Outcome {
    let Some([window, _]) = windows(&world).await? else { return Ok(()) };
    if world.rank() == 0 {
        let epoch = window.lock_exclusive(0).await?;
        world.barrier().await.unwrap();
        outlive_lease(&world, &window).await;
        epoch.unlock().await?;
    } else {
        world.barrier().await.unwrap();
        let error = window.lock_exclusive(0).recover().deadline(3 * lease(&world)).await.unwrap_err();
        assert!(error.is_timed_out(), "{error}");
        let epoch = window.lock_exclusive(0).recover().await?;
        assert_eq!(epoch.previous_owner(), None);
        epoch.unlock().await?;
    }
    window.close().await
}
