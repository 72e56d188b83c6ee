//! A rank that is believed dead and lives on: each rank cuts it when it learns of the failure, and
//! nothing of it takes effect there any more.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use onesided_fabric::remote_memory::{At, Fault, FaultKind, Liveness, Notify, Patience, Rank, RegionId, RemoteMemory};
use onesided_sim::{End, Network, SimFabric, Simulation, Word};

use crate::common::until;

/// When rank 1 falls under suspicion, in nanoseconds. The first ranks learn of it a millisecond
/// later.
const SUSPICION: u64 = 1_000_000;
/// By when all have learned of it.
const KNOWN: u64 = 8_000_000;

fn word(fabric: &SimFabric, rank: u32) -> Word {
    fabric.word(At { rank: Rank(rank), region: RegionId(0), offset: 8 }).unwrap()
}

/// A slow network whose ranks learn of a failure at different times.
fn simulation(seed: u64) -> Simulation {
    let network = Network {
        jitter: Duration::from_micros(300),
        detection_jitter: Duration::from_millis(5),
        ..Network::default()
    };
    Simulation::new(network).ranks(4).seed(seed)
}

/// Rank 1 adds to a word of rank 0 all the time. The others ask until rank 0 has cut rank 1: the
/// word changes before, sometimes after they know of the failure, and never afterwards.
#[test]
fn a_cut_rank_changes_nothing() {
    let late = Arc::new(Mutex::new(0));
    for (seed, killed) in (0..40).flat_map(|seed| [(seed, false), (seed, true)]) {
        let at = Duration::from_nanos(SUSPICION);
        let simulation = if killed { simulation(seed).kill(1, at) } else { simulation(seed).suspect(1, at) };
        let counted = Arc::clone(&late);
        let report = simulation.run_direct(move |fabric| {
            let late = Arc::clone(&counted);
            async move {
                let there = word(&fabric, 0);
                if fabric.rank() == Rank(1) {
                    while fabric.now() < KNOWN {
                        drop(fabric.fetch_add(there, 1));
                        fabric.pause(there, 20_000).await;
                    }
                    return Ok(());
                }
                while fabric.liveness(Rank(1)) == Liveness::Alive {
                    assert_eq!(fabric.failure(0), None);
                    fabric.pause(there, 10_000).await;
                }
                assert_eq!([0, 1].map(|index| fabric.failure(index)), [Some(Rank(1)), None]);
                assert!(fabric.has_cut(fabric.rank(), Rank(1)).await?);
                let known = fabric.read(there).await?;
                while !fabric.has_cut(Rank(0), Rank(1)).await? {
                    fabric.pause(there, 10_000).await;
                }
                let cut = fabric.read(there).await?;
                *late.lock().unwrap() += cut - known;
                until(&fabric, 2 * KNOWN).await;
                assert_eq!(fabric.read(there).await?, cut, "seed {seed}");
                Ok::<_, Fault>(())
            }
        });
        assert_eq!(report.end, End::Finished);
        let survivors = [0, 2, 3].map(|rank| report.results[rank]);
        assert_eq!(survivors, [Some(Ok(())); 3], "seed {seed}");
    }
    assert!(*late.lock().unwrap() > 100, "the ranks learn of the failure at the same time");
}

/// Rank 1 learns of it: what it posts to a rank that has cut it ends in an error, and so does its
/// wait for that rank. It does not count the others as dead.
#[test]
fn a_suspected_rank_learns_that_it_is_cut() {
    let report = simulation(3).suspect(1, Duration::from_nanos(SUSPICION)).run_direct(|fabric| async move {
        if fabric.rank() != Rank(1) {
            until(&fabric, 2 * KNOWN).await;
            let died = Fault::of(FaultKind::PeerDied, Rank(1));
            let there = At { rank: Rank(1), region: RegionId(0), offset: 8 };
            assert_eq!(fabric.word(there).map(Word::at), Err(died));
            return Ok(0);
        }
        let own = word(&fabric, 1);
        let waited = fabric.wait_until(own, |value| value > 0, Patience::on(Rank(2))).await;
        assert_eq!(waited, Err(Fault::of(FaultKind::Revoked, Rank(2))));
        until(&fabric, KNOWN).await;
        for rank in [0, 2, 3].map(Rank) {
            let revoked = Err(Fault::of(FaultKind::Revoked, rank));
            assert_eq!(fabric.write(word(&fabric, rank.0), 1, Notify::No).await, revoked);
            assert_eq!(fabric.liveness(rank), Liveness::Alive);
            assert_eq!(fabric.has_cut(rank, rank).await, Err(Fault::of(FaultKind::Revoked, rank)));
        }
        assert_eq!(fabric.has_cut(Rank(1), Rank(2)).await, Ok(false));
        fabric.fetch_add(own, 5).await?;
        fabric.read(own).await
    });
    assert_eq!(report.end, End::Finished);
    assert_eq!(report.results, [0, 5, 0, 0].map(|value| Some(Ok(value))));
}

/// A rank that left has no access any more, and the memory of a failed rank is not used.
#[test]
fn ranks_that_left_are_cut() {
    let report = simulation(1).kill(3, Duration::from_nanos(SUSPICION)).run_direct(|fabric| async move {
        match fabric.rank() {
            Rank(0) => {
                until(&fabric, KNOWN).await;
                assert_eq!(fabric.liveness(Rank(1)), Liveness::Left);
                for (home, rank) in [(2, 1), (0, 1), (1, 2), (3, 2), (0, 3), (2, 3), (2, 9)] {
                    assert_eq!(fabric.has_cut(Rank(home), Rank(rank)).await, Ok(true), "{rank} at {home}");
                }
                assert_eq!(fabric.has_cut(Rank(0), Rank(2)).await, Ok(false));
                assert_eq!(fabric.has_cut(Rank(2), Rank(0)).await, Ok(false));
                let none = fabric.has_cut(Rank(4), Rank(2)).await;
                assert_eq!(none, Err(Fault::of(FaultKind::NoSuchRank, Rank(4))));
            }
            Rank(1) => {}
            _ => until(&fabric, 2 * KNOWN).await,
        }
    });
    assert_eq!(report.end, End::Finished);
    assert_eq!(report.results, [Some(()), Some(()), Some(()), None]);
}
