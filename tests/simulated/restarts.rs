//! Ranks that return, as another process, after their death.

use std::cell::{Cell, RefCell};
use std::time::Duration;

use onesided_fabric::remote_memory::{FaultKind, Liveness, Notify, Patience, Rank, RemoteMemory};
use onesided_fabric::{Channel, Fabric, Packet, Segment};
use onesided_sim::{End, Host, Network, SimFabric, Simulation, Word};

use crate::common::until;

const MS: u64 = 1_000_000;

fn at(millis: u64) -> Duration {
    Duration::from_millis(millis)
}

fn word(fabric: &SimFabric, rank: u32, index: u64) -> Word {
    fabric.word_in(&fabric.world_segment(Rank(rank)).unwrap(), 8 * index).unwrap()
}

/// Networks with and without processors.
fn networks() -> [Network; 2] {
    let host = Host { cores: 2, slice: at(1), post: Duration::from_nanos(100), ..Host::default() };
    [Network::default(), Network { host, ..Network::default() }]
}

/// The second process of rank 1 finds new memory, and is reached and reaches others.
#[test]
fn a_rank_returns_with_new_memory_and_connections() {
    for network in networks() {
        let lives = Cell::new(0);
        let (lives, regions) = (&lives, &RefCell::new(Vec::new()));
        let simulation = Simulation::new(network).ranks(3).per_host(1).kill(1, at(5)).restart(1, at(20));
        let report = simulation.run_direct(async |fabric| {
            let own = word(&fabric, fabric.rank().0, 0);
            if fabric.rank() == Rank(1) {
                lives.set(lives.get() + 1);
                let region = fabric.allocate(64).unwrap();
                regions.borrow_mut().push(region.key().region);
                let found = fabric.load(own).unwrap();
                fabric.store(own, 7).unwrap();
                let alive = [0, 2].map(|rank| fabric.liveness(Rank(rank)));
                assert_eq!((alive, fabric.failure(0)), ([Liveness::Alive; 2], None));
                fabric.fetch_add(word(&fabric, 0, 1), 1).await.unwrap();
                until(&fabric, 40 * MS).await;
                return (found, fabric.load(own).unwrap());
            }
            let peer = word(&fabric, 1, 0);
            until(&fabric, 10 * MS).await;
            assert_eq!(fabric.liveness(Rank(1)), Liveness::Dead);
            let fault = fabric.write(peer, 1, Notify::No).await.unwrap_err();
            assert_eq!(fault.kind(), FaultKind::PeerDied);
            until(&fabric, 30 * MS).await;
            assert_eq!(
                (fabric.liveness(Rank(1)), fabric.failure(0), fabric.failure(1)),
                (Liveness::Alive, Some(Rank(1)), None)
            );
            fabric.fetch_add(peer, 10).await.unwrap();
            until(&fabric, 40 * MS).await;
            (fabric.load(word(&fabric, fabric.rank().0, 1)).unwrap(), 0)
        });
        assert_eq!(report.end, End::Finished);
        assert_eq!(report.results, [Some((2, 0)), Some((0, 27)), Some((0, 0))]);
        assert_eq!(lives.get(), 2);
        let regions = regions.borrow();
        assert_ne!(regions[0], regions[1], "a number is never reused");
    }
}

/// What was in flight when rank 1 died takes no effect in either direction once it has returned,
/// but before.
#[test]
fn stale_operations_are_dropped() {
    for (detection, returns_at, written) in [(1, 5, 0), (15, 40, 3)] {
        let network = Network { latency: at(10), detection: at(detection), ..Network::default() };
        let simulation = Simulation::new(network).ranks(2).per_host(1).kill(1, at(2)).restart(1, at(returns_at));
        let lives = &Cell::new(0);
        let report = simulation.run_direct(async |fabric| {
            let own = word(&fabric, fabric.rank().0, 0);
            if fabric.rank() == Rank(1) {
                lives.set(lives.get() + 1);
                if lives.get() == 1 {
                    drop(fabric.write(word(&fabric, 0, 0), 3, Notify::No));
                    drop(fabric.fetch_add(word(&fabric, 0, 0), 1)); // its answer would come later
                    fabric.sleep(50 * MS).await;
                }
                until(&fabric, 60 * MS).await;
                fabric.fetch_add(word(&fabric, 0, 1), 1).await.unwrap();
                fabric.flush(Rank(0)).await.unwrap();
                return (fabric.load(own).unwrap(), None);
            }
            let write = fabric.write(word(&fabric, 1, 0), 9, Notify::No);
            let fault = write.await.unwrap_err();
            until(&fabric, 90 * MS).await;
            assert_eq!(fabric.load(word(&fabric, 0, 1)).unwrap(), 1);
            (fabric.load(own).unwrap(), Some(fault.kind()))
        });
        assert_eq!(report.end, End::Finished);
        let added = if written > 0 { written + 1 } else { 0 };
        assert_eq!(report.results, [Some((added, Some(FaultKind::PeerDied))), Some((0, None))]);
    }
}

/// A rank that lives is killed, and returns when the others know: never before, and as often as
/// asked for.
#[test]
fn a_death_is_known_before_the_return() {
    for network in networks() {
        let network = Network { detection: at(3), detection_jitter: at(2), ..network };
        let simulation = Simulation::new(network).ranks(3).seed(5).until(at(1000));
        let simulation = simulation.restart(1, at(10)).kill(1, at(49)).restart(1, at(50)).restart(7, at(1));
        let began = &RefCell::new(Vec::new());
        let report = simulation.run_direct(async |fabric| {
            if fabric.rank() == Rank(1) {
                began.borrow_mut().push(fabric.now());
                assert_eq!(fabric.failure(0), None);
                until(&fabric, 80 * MS).await;
                return 0;
            }
            let own = word(&fabric, fabric.rank().0, 0);
            let watch = Patience { deadline: 100 * MS, ..Patience::on(Rank(1)) };
            let mut deaths = 0;
            while let Err(fault) = fabric.wait_until(own, |value| value > 0, watch).await {
                if fault.kind() == FaultKind::TimedOut {
                    break;
                }
                deaths += 1;
                while fabric.liveness(Rank(1)) == Liveness::Dead {
                    fabric.sleep(MS / 10).await;
                }
                if fabric.liveness(Rank(1)) == Liveness::Left {
                    break;
                }
            }
            (0..).map_while(|index| fabric.failure(index)).count() as u32 + deaths
        });
        let began = began.borrow();
        assert_eq!(began.len(), 3, "{began:?}");
        for (index, asked) in [(1, 10 * MS), (2, 50 * MS)] {
            assert!((asked + 5 * MS..asked + 6 * MS).contains(&began[index]), "{began:?}");
        }
        // Two deaths, and the end: it leaves.
        assert_eq!(report.results, [Some(5), Some(0), Some(5)]);
    }
}

/// Packets of the dead process, and to it, are gone; there is room for as many as ever.
#[test]
fn packets_of_the_dead_are_gone() {
    use onesided_fabric::Transport;
    use std::future::poll_fn;
    use std::task::Poll;

    let network = Network { room: 4, ..Network::default() };
    let lives = &Cell::new(0);
    let simulation = Simulation::new(network).ranks(2).per_host(1).kill(1, at(5)).restart(1, at(20));
    let report = simulation.run_direct(async |fabric| {
        let mut transport = fabric.transport().unwrap();
        let me = fabric.rank().0;
        let first = me == 1 && lives.replace(lives.get() + u32::from(me == 1)) == 0;
        let number = if first { 1 } else { 2 };
        if me == 0 {
            // As many as there is room for, to the process that receives none.
            for _ in 0..4 {
                poll_fn(|cx| transport.poll_send(cx, Rank(1), Packet::new(Channel::Connection, &[9]))).await.unwrap();
            }
            until(&fabric, 30 * MS).await;
        }
        for _ in 0..4 {
            poll_fn(|cx| transport.poll_send(cx, Rank(1 - me), Packet::new(Channel::Connection, &[number])))
                .await
                .unwrap();
        }
        if first {
            until(&fabric, 80 * MS).await;
        }
        until(&fabric, 40 * MS).await;
        let mut got = Vec::new();
        for _ in 0..4 {
            poll_fn(|cx| transport.poll_recv(cx, Patience::until(70 * MS))).await.unwrap();
            let mut byte = [0];
            transport.read(0, &mut byte);
            got.push(byte[0]);
        }
        let more = poll_fn(|cx| Poll::Ready(transport.poll_recv(cx, Patience::until(70 * MS)))).await;
        assert!(more.is_pending());
        until(&fabric, 80 * MS).await;
        got
    });
    assert_eq!(report.results, [Some(vec![2; 4]), Some(vec![2; 4])]);
}
