//! Owners with an expired lease, and lost answers while their lock is taken over.

use std::time::Duration;

use onesided_fabric::remote_memory::RemoteMemory;
use onesided_instances as _;
use onesided_sim::{Network, Simulation};
use onesided_windows::{Error, LeasePolicy, LockDesign, PreviousOwner, Window};

use crate::common::pause_until;

const MS: u64 = 1_000_000;
const S: u64 = 1_000 * MS;
const LEASE: Duration = Duration::from_millis(30);
const LONG: Duration = Duration::from_secs(10);

/// When a rank acquired the lock, and the error.
#[derive(Clone, Debug, Default)]
struct Seen {
    held: Option<(u64, u64)>,
    wrong: Option<String>,
    recovered: Option<PreviousOwner>,
}

/// Rank 3 keeps rank 2's lock until `release`. Rank 4 reads first, and again at `reads`. Rank 1
/// finds it reading first; rank 0 does nothing, and then accesses rank 2.
fn found_readers(release: u64, reads: u64) -> Vec<Seen> {
    const OVER: u64 = 300 * MS;
    let report = Simulation::new(Network::default()).ranks(5).run(move |world| async move {
        let builder = Window::<u64, _>::builder().lock(LockDesign::TestAndSet).name("scores");
        let window = builder.lease_policy(LeasePolicy::Revoke, LEASE).allocate(&world, 8).await?;
        pause_until(&world, 40 * MS).await;
        let (mut seen, now) = (Seen::default(), || world.fabric().now());
        match world.rank() {
            4 => {
                let epoch = window.lock_shared(2).await?;
                pause_until(&world, 42 * MS).await;
                epoch.unlock().await?;
                pause_until(&world, reads).await;
                if let Ok(Some(epoch)) = window.try_lock_shared(2).await {
                    let begin = now();
                    pause_until(&world, reads + 20 * MS).await;
                    seen.held = Some((begin, now()));
                    seen.wrong = epoch.unlock().await.err().map(|error| error.to_string());
                }
            }
            3 => {
                pause_until(&world, 42 * MS + 1_000).await;
                let epoch = window.lock_exclusive(2).await?;
                pause_until(&world, release).await;
                let _ = epoch.unlock().await; // an error if the lease expired
            }
            1 => {
                pause_until(&world, 41 * MS).await;
                let epoch = window.lock_exclusive(2).recover().deadline(LONG).await?;
                let begin = now();
                seen.recovered = epoch.previous_owner();
                pause_until(&world, begin + 2 * MS).await;
                seen.held = Some((begin, now()));
                seen.wrong = epoch.unlock().await.err().map(|error| error.to_string());
            }
            0 => {
                pause_until(&world, 250 * MS).await;
                seen.wrong = window.no_check().at(2)?.fetch_add(0, 7).await.err().map(|error| error.to_string());
            }
            _ => {}
        }
        pause_until(&world, OVER).await;
        Ok::<_, Error>(seen)
    });
    report.results.into_iter().map(|result| result.unwrap().unwrap_or_default()).collect()
}

/// A count of readers that occurs again names no rank, and says nothing about an owner's lease.
#[test]
fn a_waiter_behind_readers_takes_over_from_the_expired_owner_alone() {
    let usual = found_readers(250 * MS, 290 * MS);
    assert_eq!(usual[1].recovered, Some(PreviousOwner::LeaseExpired(3)), "{usual:?}");
    let (taken, _) = usual[1].held.unwrap();

    // From when rank 1 has first seen the owner: a lease and some pauses.
    let found = taken - LEASE.as_nanos() as u64 - MS;
    for release in (found - 500_000..found + 500_000).step_by(1_000) {
        for after in [500, 2_500] {
            let seen = found_readers(release, release + after);
            let case = format!("released at {release}, read {after} ns later: {seen:#?}");
            assert!(seen[0].wrong.is_none() && seen[4].wrong.is_none(), "{case}");
            if let (Some((begin, end)), Some((from, until))) = (seen[1].held, seen[4].held) {
                assert!(begin >= until || from >= end, "{case}");
            }
        }
    }
}

/// One message in ten is lost, and the connection with an operation whose resend is lost. Rank 0's
/// lease expires at rank 2, and rank 1 tries to take the lock over; rank 3 asks later.
fn lossy(policy: LeasePolicy, seed: u64) -> Option<(String, String)> {
    let network = Network { loss: 0.1, retries: 1, ..Network::default() };
    let report = Simulation::new(network).ranks(4).seed(seed).run(move |world| async move {
        let builder = Window::<u64, _>::builder().lock(LockDesign::TestAndSet).name("scores");
        let window = builder.lease_policy(policy, LEASE).allocate(&world, 8).await?;
        pause_until(&world, 10 * S).await;
        let mut outcome = String::new();
        match world.rank() {
            0 => std::mem::forget(window.lock_exclusive(2).await?),
            1 => {
                pause_until(&world, 11 * S).await;
                match window.lock_exclusive(2).recover().deadline(LONG).await {
                    Ok(epoch) => epoch.unlock().await?,
                    Err(error) => outcome = error.to_string(),
                }
            }
            3 => {
                pause_until(&world, 30 * S).await;
                // A rank whose access was revoked cannot try again.
                let request = window.lock_exclusive(2);
                let request = if policy == LeasePolicy::Revoke { request } else { request.recover() };
                outcome = match request.deadline(LONG).await {
                    Ok(epoch) => format!("{:?}", epoch.previous_owner()),
                    Err(error) => format!("{:?}", error.fault()),
                };
            }
            _ => {}
        }
        pause_until(&world, 60 * S).await;
        Ok::<_, Error>(outcome)
    });
    match &report.results[..] {
        [Some(Ok(_)), Some(Ok(first)), Some(Ok(_)), Some(Ok(second))] => Some((first.clone(), second.clone())),
        _ => None, // other messages were lost
    }
}

/// A rank that gets an error does not have the lock, unless its connection to the lock's rank is
/// lost: then the lock may name it, and others get the lock from it.
#[test]
fn lost_answers_leave_no_unaware_owner() {
    for policy in [LeasePolicy::Revoke, LeasePolicy::VersionedCommit] {
        let mut ended = 0;
        for seed in 0..1_000 {
            let Some((first, second)) = lossy(policy, seed) else { continue };
            ended += 1;
            assert!(!first.contains("deadline"), "{policy}, seed {seed}: nobody answers: {first}");
            assert!(!second.contains("deadline"), "{policy}, seed {seed}: the lock is lost: {second}");
            let names = second.contains("(1)") || second.contains("rank 1");
            let lost = first.contains("on its way") || first.contains("the connection to it is lost");
            assert!(first.is_empty() || lost || !names, "{policy}, seed {seed}: {first}; then {second}");
        }
        assert!(ended > 200, "{policy}: {ended}");
    }
}
