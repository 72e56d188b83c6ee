//! Two living ranks that lose their connection: each fails as a user of the other's memory, and
//! both go on elsewhere.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use onesided_fabric::remote_memory::{At, Fault, FaultKind, Liveness, Notify, Patience, Rank, RegionId, RemoteMemory};
use onesided_fabric::{Fabric, Transport};
use onesided_sim::{End, Network, Report, SimFabric, Simulation, Word};

use crate::common::until;

const MS: u64 = 1_000_000;
/// When rank 1 loses its connection to rank 0. The others learn of it a millisecond later.
const LOSS: u64 = MS;
const DETECTED: u64 = LOSS + MS;
/// By when all have learned of it, whatever the jitter.
const KNOWN: u64 = 8 * MS;

const LOST: fn(u32) -> Fault = |peer| Fault::of(FaultKind::ConnectionLost, Rank(peer));
const UNKNOWN: fn(u32) -> Fault = |peer| Fault::of(FaultKind::Unknown, Rank(peer));

fn word_at(fabric: &SimFabric, rank: u32, offset: u64) -> Word {
    fabric.word(At { rank: Rank(rank), region: RegionId(0), offset }).unwrap()
}

fn word(fabric: &SimFabric, rank: u32) -> Word {
    word_at(fabric, rank, 8)
}

fn lost_at(simulation: Simulation, nanos: u64) -> Simulation {
    simulation.disconnect(1, 0, Duration::from_nanos(nanos))
}

fn finished<T>(report: Report<Result<T, Fault>>) -> Vec<T> {
    assert_eq!(report.end, End::Finished);
    report.results.into_iter().map(|result| result.unwrap().unwrap()).collect()
}

/// The number of additions of 1, 2, 4 and so on that took effect, which are the first ones.
fn first_ones(sum: u64) -> usize {
    assert!((sum + 1).is_power_of_two(), "one took effect behind one that did not: {sum:b}");
    sum.trailing_ones() as usize
}

/// Posts operations at once; returns how many succeeded, and how many are unknown: all behind the
/// first of these.
async fn add_bits(fabric: &SimFabric, peer: u32) -> (usize, usize) {
    let posted: Vec<_> = (0..40).map(|bit| fabric.fetch_add(word(fabric, peer), 1 << bit)).collect();
    let mut outcomes = Vec::new();
    for op in posted {
        outcomes.push(op.await);
    }
    let known = outcomes.iter().take_while(|outcome| outcome.is_ok()).count();
    assert!(outcomes[known..].iter().all(|outcome| *outcome == Err(UNKNOWN(peer))), "{outcomes:?}");
    (known, outcomes.len() - known)
}

/// Operations behind the lost one end with it. Those behind a lost answer may have taken effect.
#[test]
fn an_unknown_outcome_takes_the_connection_with_it() {
    let network = Network { loss: 0.1, retries: 1, ..Network::default() };
    let (mut broken, mut without_effect, mut with_effect) = (0, 0, 0);
    for seed in 0..200 {
        let report = Simulation::new(network.clone()).seed(seed).run_direct(|fabric| async move {
            let (mut known, mut unknown) = (0, 0);
            if fabric.rank() == Rank(1) {
                (known, unknown) = add_bits(&fabric, 0).await;
                if unknown > 0 {
                    assert!(fabric.has_failed(Rank(0), Rank(1)) && fabric.has_failed(Rank(1), Rank(0)));
                    let (before, own) = (fabric.now(), fabric.rank());
                    assert_eq!(fabric.write(word(&fabric, 0), 0, Notify::No).await, Err(LOST(0)));
                    assert_eq!(fabric.has_cut(Rank(0), own).await, Err(LOST(0)));
                    assert!(fabric.now() <= before + 2, "it does not leave");
                    assert_eq!(fabric.has_cut(own, Rank(0)).await, Ok(true));
                }
            }
            until(&fabric, 20 * MS).await;
            Ok((known, unknown, fabric.load(word(&fabric, fabric.rank().0))?))
        });
        let [(.., sum), (known, unknown, _)] = finished(report)[..] else { panic!("two ranks") };
        let effects = first_ones(sum);
        assert!((known..=known + unknown).contains(&effects), "seed {seed}: {known} {effects} {unknown}");
        broken += u32::from(unknown > 0);
        without_effect += u32::from(effects < known + unknown);
        with_effect += u32::from(effects > known);
    }
    let spread = [broken, without_effect, with_effect];
    assert!(spread.iter().all(|count| (10..200).contains(count)), "{spread:?}");
}

/// Both ranks have operations in flight when the connection breaks. Each takes effect or not, and
/// none does where its origin is cut.
#[test]
fn operations_in_flight_are_unknown_in_both_directions() {
    let network = Network {
        jitter: Duration::from_micros(2),
        detection: Duration::from_micros(1),
        detection_jitter: Duration::from_micros(10),
        ..Network::default()
    };
    let mut seen = [(false, false, false); 2];
    for (seed, time) in (0..40).flat_map(|seed| (1..8).map(move |time| (seed, time * 1_000))) {
        let simulation = lost_at(Simulation::new(network.clone()).seed(seed), time);
        let report = simulation.run_direct(|fabric| async move {
            let me = fabric.rank().0;
            let outcomes = add_bits(&fabric, 1 - me).await;
            until(&fabric, 20 * MS).await;
            Ok((outcomes, fabric.load(word(&fabric, me))?))
        });
        let found = finished(report);
        for rank in 0..2 {
            let (known, unknown) = found[rank].0;
            let effects = first_ones(found[1 - rank].1);
            assert!(unknown > 0 && (known..=40).contains(&effects), "seed {seed}: {known} {effects}");
            let seen = &mut seen[rank];
            seen.0 |= known > 0;
            seen.1 |= effects > known;
            seen.2 |= effects < 40;
        }
    }
    assert_eq!(seen, [(true, true, true); 2], "some succeed, some take effect all the same, and some do not");
}

/// Rank 1 adds to a word of rank 0 all the time, whatever it is told. The others ask rank 0 until
/// it has cut rank 1: the word does not change after that.
#[test]
fn a_cut_rank_changes_nothing() {
    let network = Network {
        jitter: Duration::from_micros(300),
        detection_jitter: Duration::from_millis(5),
        ..Network::default()
    };
    let learned = Arc::new(Mutex::new(Vec::new()));
    for (seed, by) in (0..40).flat_map(|seed| [(seed, 0), (seed, 1)]) {
        let simulation = Simulation::new(network.clone()).ranks(4).seed(seed);
        let times = Arc::clone(&learned);
        let report = simulation.disconnect(by, 1 - by, Duration::from_nanos(LOSS)).run_direct(move |fabric| {
            let learned = Arc::clone(&times);
            async move {
                let there = word(&fabric, 0);
                if fabric.rank() == Rank(1) {
                    while fabric.now() < KNOWN {
                        drop(fabric.fetch_add(there, 1));
                        fabric.pause(there, 20_000).await;
                    }
                    return Ok(0);
                }
                while !fabric.has_failed(Rank(0), Rank(1)) {
                    assert_eq!(fabric.lost_connection(Rank(0), Rank(0)), None);
                    fabric.pause(there, 10_000).await;
                }
                let time = fabric.now();
                learned.lock().unwrap().push(time);
                while !fabric.has_cut(Rank(0), Rank(1)).await? {
                    fabric.pause(there, 10_000).await;
                }
                let cut = fabric.read(there).await?;
                until(&fabric, 2 * KNOWN).await;
                assert_eq!(fabric.read(there).await?, cut, "seed {seed}");
                Ok(cut)
            }
        });
        assert!(finished(report)[0] > 0);
    }
    let learned = learned.lock().unwrap();
    assert!(learned.iter().any(|time| *time > 6 * MS) && learned.iter().all(|time| *time < KNOWN));
}

/// Only the connection has failed: both ranks live, and a third one goes on with both.
#[test]
fn a_third_rank_learns_of_it_and_goes_on_with_both() {
    let report = lost_at(Simulation::new(Network::default()).ranks(4), LOSS).run_direct(|fabric| async move {
        let me = fabric.rank();
        // Rank 1 finds it, the others learn of it.
        let learns = if me == Rank(1) { LOSS } else { DETECTED };
        for (time, known) in [(learns - 1, false), (learns + 1, true)] {
            until(&fabric, time).await;
            for (home, rank) in [(0, 1), (1, 0)] {
                assert_eq!(fabric.has_failed(Rank(home), Rank(rank)), known, "{me} at {time}");
                assert_eq!(fabric.lost_connection(Rank(home), Rank(0)), known.then_some(Rank(rank)), "{me} at {time}");
            }
        }
        for home in [2, 3] {
            assert_eq!(fabric.lost_connection(Rank(home), Rank(0)), None);
            assert!((0..4).all(|rank| !fabric.has_failed(Rank(home), Rank(rank))));
        }
        assert!((0..4).all(|rank| !fabric.has_failed(Rank(rank), Rank(rank))));
        assert!((0..4).all(|rank| fabric.liveness(Rank(rank)) == Liveness::Alive));
        assert_eq!(fabric.failure(0), None);
        until(&fabric, KNOWN).await;
        for home in 0..4 {
            let added = fabric.fetch_add(word(&fabric, home), 1).await;
            let told = fabric.has_cut(Rank(home), Rank(1 - me.0.min(1))).await;
            match me.0 + home {
                1 if me.0 < 2 && home < 2 => assert_eq!((added.map(drop), told), (Err(LOST(home)), Err(LOST(home)))),
                _ => assert!(added.is_ok() && told == Ok(me.0 < 2 && home == me.0 || me.0 >= 2 && home == 1)),
            }
        }
        until(&fabric, 2 * KNOWN).await;
        fabric.load(word(&fabric, me.0))
    });
    assert_eq!(finished(report), [3, 3, 4, 4]);
}

/// A later death hides no lost connection, which hides no death.
#[test]
fn deaths_and_lost_connections_are_both_known() {
    let simulation = lost_at(Simulation::new(Network::default()).ranks(4), LOSS);
    let report = simulation.kill(3, Duration::from_nanos(2 * LOSS)).run_direct(|fabric| async move {
        until(&fabric, KNOWN).await;
        fabric.failure(0).zip(fabric.lost_connection(Rank(0), Rank(0)))
    });
    assert_eq!(report.results, [Some(Some((Rank(3), Rank(1)))); 3].into_iter().chain([None]).collect::<Vec<_>>());
}

#[test]
fn waits_for_the_peer_end_and_others_do_not() {
    let report = lost_at(Simulation::new(Network::default()).ranks(3), LOSS).run_direct(|fabric| async move {
        let me = fabric.rank().0;
        let own = word(&fabric, me);
        let never = |_| false;
        let Some(peer) = (me < 2).then(|| 1 - me) else {
            let ended = fabric.wait_until(own, never, Patience::on(Rank(0)).and_until(KNOWN)).await;
            assert_eq!((ended, fabric.now()), (Err(Fault::new(FaultKind::TimedOut)), KNOWN));
            return Ok(0);
        };
        let learns = if me == 1 { LOSS } else { DETECTED };
        let (first, second) = (Patience::on(Rank(peer)), Patience::on(Rank(2)).and_until(KNOWN));
        let third = Patience::with_failures(Rank(peer));
        let mut packets = fabric.transport().unwrap();
        let ended = fabric.wait_until(own, never, first).await;
        assert_eq!((ended, fabric.now()), (Err(LOST(peer)), learns));
        assert_eq!(packets.recv(first).await.map(drop), Err(LOST(peer)));
        assert_eq!(fabric.wait_until(own, never, third).await, Err(LOST(peer)));
        assert_eq!(fabric.wait_until(own, |value| value == 0, first).await, Ok(0), "the word comes first");
        assert_eq!(packets.send(Rank(peer), &[]).await, Err(LOST(peer)));
        assert_eq!((fabric.flush(Rank(peer)).await, fabric.now()), (Ok(()), learns));
        let ended = fabric.wait_until(own, never, second).await;
        assert_eq!((ended, fabric.now()), (Err(Fault::new(FaultKind::TimedOut)), KNOWN));
        Ok(1)
    });
    assert_eq!(finished(report), [1, 1, 0]);
}

/// A predicate that depends on failures is asked again.
#[test]
fn a_wait_with_failures_is_polled() {
    let report = lost_at(Simulation::new(Network::default()).ranks(3), LOSS).run_direct(|fabric| async move {
        let failed = |_| fabric.lost_connection(Rank(0), Rank(0)).is_some();
        let patience = Patience::with_failures(Rank(2)).and_until(KNOWN);
        fabric.wait_until(word(&fabric, fabric.rank().0), failed, patience).await?;
        let woken = fabric.now();
        until(&fabric, KNOWN).await;
        Ok(woken)
    });
    assert_eq!(finished(report), [DETECTED, LOSS, DETECTED]);
}

/// What takes no wire is not lost. A rank that is cut is cut on all ways.
#[test]
fn operations_without_a_wire_lose_no_connection() {
    let network = Network { loss: 1.0, ..Network::default() };
    let report = Simulation::new(network).run_direct(|fabric| async move {
        let me = fabric.rank().0;
        let peers = fabric.world_segment(Rank(1 - me)).unwrap();
        for _ in 0..100 {
            fabric.fetch_add(word(&fabric, me), 1).await?;
            fabric.fetch_add(fabric.same_host_word(&peers, 8)?, 1).await?;
        }
        until(&fabric, MS).await;
        assert!((fabric.lost_connection(Rank(0), Rank(0)), fabric.lost_connection(Rank(1), Rank(0))) == (None, None));
        let sum = fabric.load(word(&fabric, me))?;
        until(&fabric, 2 * MS).await;
        if me == 0 {
            assert_eq!(fabric.read(word(&fabric, 1)).await, Err(UNKNOWN(1)));
        }
        until(&fabric, KNOWN).await;
        assert_eq!(fabric.read(fabric.same_host_word(&peers, 8)?).await, Err(LOST(1 - me)));
        Ok(sum)
    });
    assert_eq!(finished(report), [200, 200]);
}

/// All ranks make barriers, while two that are some barrier's neighbours lose their connection. Every
/// rank ends, also those that wait for neither of the two.
#[test]
fn a_loss_ends_the_barriers_of_all_ranks() {
    for size in 2..=9 {
        for distance in [1, 2, 4].into_iter().filter(|distance| *distance < size) {
            for seed in 0..10 {
                let network = Network { jitter: Duration::from_micros(3), ..Network::default() };
                let lost = Duration::from_micros(40 + seed);
                let simulation = Simulation::new(network).ranks(size).seed(seed).disconnect(0, distance, lost);
                let report = simulation.run(|world| async move {
                    let fabric = world.fabric();
                    let ended = loop {
                        if let Err(error) = world.barrier().await {
                            break error.fault().kind();
                        }
                        fabric.pause(word(fabric, world.rank()), 1_000).await;
                    };
                    // A departure would end the waits of the others. One of the two first waits for news of a
                    // death, for a second.
                    until(fabric, 2_000 * MS).await;
                    ended
                });
                assert_eq!(report.end, End::Finished, "{size} ranks, distance {distance}, seed {seed}");
                let kinds: Vec<_> = report.results.into_iter().map(Option::unwrap).collect();
                let is_lost = |kind: &FaultKind| matches!(kind, FaultKind::ConnectionLost | FaultKind::Unknown);
                assert!(kinds.iter().all(is_lost), "{size} ranks, distance {distance}, seed {seed}: {kinds:?}");
            }
        }
    }
}
