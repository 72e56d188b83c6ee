//! The simulator's own guarantees: time, determinism, order, loss, deadlock, death.

use std::future::poll_fn;
use std::task::Poll;
use std::time::Duration;

use onesided_fabric::remote_memory::{At, Fault, FaultKind, Liveness, Notify, Patience, Rank, RegionId, RemoteMemory};
use onesided_fabric::{Channel, Fabric, Fence, Fencing, Packet, Transport, World};
use onesided_sim::{End, Network, Report, SimFabric, Simulation, Stuck, WaitsFor};

const MICROSECOND: Duration = Duration::from_micros(1);

/// A word of a rank's world region.
fn word(fabric: &SimFabric, rank: u32, offset: u64) -> onesided_sim::Word {
    fabric.word(At { rank: Rank(rank), region: RegionId(0), offset }).expect("a word of the world region")
}

fn finished<T>(report: Report<T>) -> Vec<T> {
    assert_eq!(report.end, End::Finished, "{}", report.end);
    report.results.into_iter().flatten().collect()
}

#[test]
fn operations_take_the_computed_time() {
    // Card 100, wire 1000, card 100, wire 1000; 4000 bytes take another 320.
    let report = Simulation::new(Network::default()).run_direct(|fabric| async move {
        let mut times = Vec::new();
        if fabric.rank() == Rank(0) {
            let (own, peers) = (word(&fabric, 0, 0), word(&fabric, 1, 0));
            let mut started = 0;
            let mut lap = || {
                let took = fabric.now() - started;
                started = fabric.now();
                times.push(took);
            };
            fabric.read(peers).await?;
            lap();
            fabric.fetch_add(own, 1).await?;
            lap();
            // The second waits for both cards.
            let (first, second) = (fabric.fetch_add(peers, 1), fabric.fetch_add(peers, 1));
            first.await?;
            second.await?;
            lap();
            let local = fabric.allocate(4000).map_err(|error| error.fault())?;
            let peer = fabric.world_segment(Rank(1)).map_err(|error| error.fault())?;
            fabric.put(&peer, 0, &[1; 4000])?;
            fabric.flush(Rank(1)).await?;
            lap();
            fabric.rdma_read((&peer, 0), (&local, 0), 4000).await?;
            lap();
            fabric.pause(own, 77).await;
            lap();
        }
        Ok::<_, Fault>(times)
    });
    let times = finished(report).swap_remove(0).expect("no faults");
    assert_eq!(times, [2200, 200, 2300, 2200 + 320, 2200 + 320, 77]);
}

#[test]
fn a_card_receives_one_after_another() {
    let report = Simulation::new(Network::default()).ranks(4).run(|world| async move {
        let segment = world.fabric().world_segment(Rank(0)).map_err(|error| error.fault())?;
        if world.rank() > 0 {
            world.fabric().put(&segment, 1024, &[0; 2500])?; // 200 ns each
            world.fabric().flush(Rank(0)).await?;
        }
        Ok::<_, Fault>(world.fabric().now())
    });
    let times = finished(report).into_iter().map(|time| time.expect("no faults")).collect::<Vec<_>>();
    assert_eq!(times, [0, 2400, 2700, 3000]);
}

/// Every rank adds at every rank, with barriers and messages.
async fn mixed(world: World<SimFabric>) -> Result<u64, onesided_fabric::Error> {
    let fabric = world.fabric();
    for turn in 0..5 {
        for rank in 0..world.size() {
            fabric.fetch_add(word(fabric, rank, 4088), turn).await.map_err(onesided_fabric::Error::operation("add"))?;
        }
        world.barrier().await?;
    }
    fabric.read(word(fabric, 0, 4088)).await.map_err(onesided_fabric::Error::operation("read"))
}

#[test]
fn the_same_seed_gives_the_same_trace() {
    let noisy = Network { loss: 0.05, jitter: MICROSECOND, ..Network::default() };
    let run = |network: &Network, seed| Simulation::new(network.clone()).ranks(6).seed(seed).run(mixed);
    let (first, second, other) = (run(&noisy, 1), run(&noisy, 1), run(&noisy, 2));
    assert_eq!((first.trace, first.virtual_time, first.events), (second.trace, second.virtual_time, second.events));
    assert_ne!(first.trace, other.trace);
    let quiet = Network::default();
    assert_eq!(run(&quiet, 1).trace, run(&quiet, 2).trace, "without rng the seed does not matter");
    assert_ne!(run(&quiet, 1).trace, first.trace);
    for report in [first, other] {
        assert!(finished(report).into_iter().all(|sum| sum.is_ok_and(|sum| sum == 6 * 10)));
    }
}

#[test]
fn one_connection_keeps_its_order() {
    let network = Network { loss: 0.2, retries: 100, jitter: 50 * MICROSECOND, ..Network::default() };
    for seed in 0..10 {
        let report = Simulation::new(network.clone()).seed(seed).run_direct(|fabric| async move {
            if fabric.rank() == Rank(1) {
                return Ok(None);
            }
            let there = word(&fabric, 1, 0);
            for turn in 0..100 {
                drop(fabric.compare_swap(there, turn, turn + 1)); // each needs the previous one
            }
            fabric.flush(Rank(1)).await?;
            fabric.read(there).await.map(Some)
        });
        assert_eq!(finished(report), [Ok(Some(100)), Ok(None)], "seed {seed}");
    }
}

#[test]
fn connections_overtake_each_other() {
    // Two ranks write at the same times; without jitter rank 1 always comes first.
    let last = |jitter, seed| {
        let network = Network { jitter, ..Network::default() };
        let report = Simulation::new(network).ranks(3).seed(seed).run_direct(|fabric| async move {
            let there = word(&fabric, 0, 0);
            if fabric.rank() != Rank(0) {
                fabric.write(there, fabric.rank().0.into(), Notify::No).await?;
            }
            fabric.pause(there, 1_000_000).await;
            fabric.load(word(&fabric, fabric.rank().0, 0))
        });
        finished(report)[0]
    };
    assert!((0..20).all(|seed| last(Duration::ZERO, seed) == Ok(2)));
    assert!((0..20).any(|seed| last(MICROSECOND, seed) == Ok(1)));
}

#[test]
fn a_lost_operation_is_resent_and_takes_effect_once() {
    let network = Network { loss: 0.3, retries: 100, ..Network::default() };
    let report = Simulation::new(network).ranks(4).seed(3).run_direct(|fabric| async move {
        let counter = word(&fabric, 0, 0);
        let mut slow = 0;
        for _ in 0..200 {
            let before = fabric.now();
            fabric.fetch_add(counter, 1).await?;
            slow += u32::from(fabric.now() - before > 100_000); // the timeout
        }
        fabric.pause(counter, 1_000_000_000).await;
        Ok::<_, Fault>((slow, fabric.read(counter).await?))
    });
    for (rank, result) in finished(report).into_iter().enumerate() {
        let (slow, count) = result.expect("enough retries");
        assert_eq!(count, 800);
        assert_eq!(slow == 0, rank == 0, "only rank 0's own card loses nothing: {slow}");
    }
}

#[test]
fn an_operation_whose_retries_are_all_lost_is_unknown() {
    let network = Network { loss: 1.0, ..Network::default() };
    let patience = 8 * 100_000;
    let report = Simulation::new(network).run_direct(|fabric| async move {
        if fabric.rank() == Rank(1) {
            return Ok(());
        }
        let fault = fabric.read(word(&fabric, 1, 0)).await.expect_err("lost");
        assert_eq!((fault.kind(), fault.rank()), (FaultKind::Unknown, Some(Rank(1))));
        assert!((patience..patience + 1000).contains(&fabric.now()), "{}", fabric.now());
        // The connection is lost with it. This one is not awaited: the flush reports it, once.
        drop(fabric.fetch_add(word(&fabric, 1, 0), 1));
        let flushed = fabric.flush(Rank(1)).await;
        assert_eq!(flushed, Err(Fault::of(FaultKind::ConnectionLost, Rank(1))));
        fabric.flush(Rank(1)).await
    });
    assert_eq!(finished(report), [Ok(()), Ok(())]);
}

#[test]
fn a_deadlock_names_every_waiter_and_its_wait() {
    let report = Simulation::new(Network::default()).ranks(4).run_direct(|fabric| async move {
        let rank = fabric.rank();
        let forever = Patience::until(u64::MAX);
        match rank.0 {
            0 => drop(fabric.wait_until(word(&fabric, 0, 16), |value| value == 1, forever).await),
            1 => drop(fabric.transport().unwrap().recv(forever).await),
            2 => std::future::pending().await,
            _ => {}
        }
    });
    let stuck = |rank, waits_for| Stuck { rank: Rank(rank), waits_for, locks: vec![], memory: vec![], behind: None };
    let expected = vec![
        stuck(0, vec![WaitsFor::Word { region: 0, offset: 16 }]),
        stuck(1, vec![WaitsFor::Packet]),
        stuck(2, vec![]),
    ];
    assert_eq!(report.end, End::Deadlock(expected));
    assert_eq!(report.results, [None, None, None, Some(())]);
    assert_eq!(
        report.end.to_string(),
        "deadlock: 3 ranks wait for ever; rank 0 for the word at 16 of region 0; rank 1 for a packet; \
         rank 2 for something outside of the simulation"
    );
}

#[test]
fn only_a_signal_wakes_a_sleeper() {
    let woken_after = |notify, delay| {
        let report = Simulation::new(Network::default()).run_direct(|fabric| async move {
            let there = word(&fabric, 0, 0);
            if fabric.rank() == Rank(1) {
                fabric.pause(there, delay).await;
                fabric.write(there, 1, notify).await?;
                return Ok(0);
            }
            fabric.wait_until(there, |value| value == 1, Patience::until(1_000_000)).await?;
            Ok::<_, Fault>(fabric.now() - delay)
        });
        finished(report)[0]
    };
    // A polling rank sees any write as it arrives; a sleeping one (after 50 us) notices a signal 5
    // us later, or nothing.
    assert_eq!(woken_after(Notify::No, 10_000), Ok(1100));
    assert_eq!(woken_after(Notify::Yes, 10_000), Ok(1100));
    assert_eq!(woken_after(Notify::Yes, 100_000), Ok(6100));
    assert_eq!(woken_after(Notify::No, 100_000), Ok(900_000));
}

#[test]
fn a_killed_rank_stops_answering() {
    struct Posts(SimFabric);
    impl Drop for Posts {
        fn drop(&mut self) {
            drop(self.0.write(word(&self.0, 0, 8), 1, Notify::No));
        }
    }
    let simulation = Simulation::new(Network::default()).ranks(3).kill(1, 10 * MICROSECOND);
    let report = simulation.run(|world| async move {
        let fabric = world.fabric();
        if world.rank() == 1 {
            let _guard = Posts(fabric.clone());
            std::future::pending::<()>().await;
        }
        let there = word(fabric, 1, 0);
        fabric.pause(there, 20_000).await;
        assert_eq!(fabric.liveness(Rank(1)), Liveness::Alive, "nobody knows yet");
        let read = fabric.read(there).await; // it completes when the death is known
        let waited = fabric.wait_until(word(fabric, world.rank(), 8), |v| v > 0, Patience::on(Rank(1))).await;
        assert_eq!(fabric.now(), 1_010_000, "a millisecond after the death");
        assert_eq!((fabric.liveness(Rank(1)), fabric.failure(0)), (Liveness::Dead, Some(Rank(1))));
        let posted = fabric.read(there).await;
        let sent = fabric.transport().unwrap().send(Rank(1), &[]).await;
        let barrier = world.barrier().await.map_err(|error| error.fault().kind());
        assert_eq!(barrier, Err(FaultKind::PeerDied));
        [read.map(drop), waited.map(drop), posted.map(drop), sent].map(|result| result.map_err(Fault::kind))
    });
    assert_eq!(report.end, End::Finished);
    let died = Err(FaultKind::PeerDied);
    let expected = Some([died; 4]);
    assert_eq!(report.results, [expected, None, expected]);
}

#[test]
fn a_rank_leaves_after_what_it_posted() {
    let network = Network { jitter: 100 * MICROSECOND, ..Network::default() };
    for seed in 0..10 {
        let report = Simulation::new(network.clone()).seed(seed).run_direct(|fabric| async move {
            if fabric.rank() == Rank(1) {
                drop(fabric.write(word(&fabric, 0, 0), 1, Notify::Yes));
                return Ok(0);
            }
            let own = word(&fabric, 0, 0);
            fabric.wait_until(own, |value| value == 1, Patience::on(Rank(1))).await?;
            let left = fabric.wait_until(own, |value| value == 2, Patience::on(Rank(1))).await;
            assert_eq!(left.map_err(Fault::kind), Err(FaultKind::PeerLeft));
            fabric.read(word(&fabric, 1, 0)).await
        });
        assert_eq!(finished(report), [Ok(0), Ok(0)]);
    }
}

/// All ranks pass the barriers that a rank entered before it left, and fail in the next, which names it:
/// those that are in it at once, also while others compute.
#[test]
fn a_rank_that_leaves_ends_the_next_barrier_of_all() {
    for (size, seed) in (2..=9).flat_map(|size| (0..12).map(move |seed| (size, seed))) {
        let (left, passed, late) = (seed as u32 % size, seed / 4, seed % 2 == 1);
        let network = Network { jitter: 30 * MICROSECOND, ..Network::default() };
        let report = Simulation::new(network).ranks(size).seed(seed).run(move |world| async move {
            let (fabric, own) = (world.fabric(), word(world.fabric(), world.rank(), 8 * 100));
            for barrier in 0_u64.. {
                if world.rank() == left && barrier == passed {
                    if late {
                        fabric.pause(own, 1_000_000).await; // a rank is in the barrier
                    }
                    return (barrier, FaultKind::PeerLeft, Some(Rank(left)), true);
                }
                // But the one before it, which hears from it in the last round.
                let computes = barrier == passed && late && (world.rank() + 1) % size != left;
                let time = if computes { 100_000_000 } else { (seed * u64::from(world.rank()) % 7) * 10_000 };
                fabric.pause(own, time).await;
                if let Err(error) = world.barrier().await {
                    let (fault, is_early) = (error.fault(), fabric.now() < 10_000_000);
                    fabric.pause(own, 1_000_000_000).await; // another departure ends no wait
                    return (barrier, fault.kind(), fault.rank(), is_early != computes);
                }
            }
            unreachable!("a rank leaves")
        });
        let expected = (passed, FaultKind::PeerLeft, Some(Rank(left)), true);
        assert_eq!(finished(report), vec![expected; size as usize], "{size} ranks, seed {seed}");
    }
}

#[test]
fn a_hundred_thousand_ranks() {
    let simulation = Simulation::new(Network::default()).ranks(100_000).until(500 * MICROSECOND);
    let report = simulation.run_direct(|fabric| async move {
        let lock = word(&fabric, 0, 0);
        while fabric.compare_swap(lock, 0, 1).await? != 0 {
            fabric.pause(lock, 100_000).await;
        }
        Ok::<_, Fault>(())
    });
    // The card takes one request every 100 ns, from 1 us on; answers take another 1.1 us.
    assert_eq!(report.end, End::TimeOver);
    assert_eq!(report.virtual_time, 500 * MICROSECOND);
    assert_eq!(report.counts.compare_swaps, 100_000 + report.counts.timers);
    assert_eq!(report.results.iter().flatten().count(), 1, "one holds the lock");
    assert!(report.counts.timers > 3000, "{:?}", report.counts);
}

/// Operations in flight then have no effect, nor do later ones, in both directions; waits end. A
/// third rank continues with both.
#[test]
fn revoked_access_ends_what_is_under_way() {
    let report = Simulation::new(Network::default()).ranks(3).run_direct(|fabric| async move {
        let (own, me) = (word(&fabric, fabric.rank().0, 0), fabric.rank());
        let revoked = |fault: Fault, rank| assert_eq!(fault, Fault::of(FaultKind::Revoked, Rank(rank)));
        match me.0 {
            0 => {
                fabric.write(word(&fabric, 1, 0), 1, Notify::No).await?;
                fabric.pause(own, 10_000 - fabric.now() - 700).await;
                revoked(fabric.write(word(&fabric, 1, 0), 2, Notify::No).await.unwrap_err(), 1);
                revoked(fabric.fetch_add(word(&fabric, 1, 0), 1).await.unwrap_err(), 1);
                let ended = fabric.wait_until(own, |_| false, Patience::on(Rank(1))).await;
                revoked(ended.unwrap_err(), 1);
                fabric.pause(own, 50_000).await;
            }
            1 => {
                let wait = fabric.wait_until(own, |_| false, Patience::on(Rank(0)).and_until(9_999)).await;
                assert_eq!(wait.unwrap_err().kind(), FaultKind::TimedOut);
                fabric.pause(own, 10_000 - fabric.now()).await;
                assert_eq!([0, 1].map(|rank| fabric.fence_of(Rank(rank))), [Some(Fence::Revoke), None]);
                assert_eq!(fabric.fence(Rank(0)), Ok(true));
                assert_eq!(fabric.fence(Rank(0)), Ok(true));
                revoked(fabric.write(word(&fabric, 0, 0), 2, Notify::No).await.unwrap_err(), 0);
                fabric.pause(own, 50_000).await;
            }
            _ => {
                fabric.pause(own, 20_000).await;
                for rank in [0, 1] {
                    fabric.fetch_add(word(&fabric, rank, 0), 10).await?;
                    assert_eq!(fabric.liveness(Rank(rank)), Liveness::Alive);
                }
                fabric.pause(own, 20_000).await;
            }
        }
        fabric.load(own)
    });
    let found = finished(report).into_iter().collect::<Result<Vec<_>, _>>().expect("no other faults");
    assert_eq!(found, [10, 11, 0]);
}

#[test]
fn a_rank_may_start_late() {
    let cores = onesided_sim::Host { cores: 1, ..onesided_sim::Host::default() };
    for host in [onesided_sim::Host::default(), cores] {
        let network = Network { host, ..Network::default() };
        let simulation = Simulation::new(network).ranks(3).start_at(1, 300 * MICROSECOND).start_at(7, MICROSECOND);
        let report = simulation.run_direct(|fabric| async move { fabric.now() });
        assert_eq!(report.end, End::Finished);
        let began: Vec<_> = report.results.into_iter().flatten().collect();
        assert!(began[0] < 1000 && (300_000..301_000).contains(&began[1]) && began[2] < 1000, "{began:?}");
    }
}

/// Rank 2 is cut off from the others.
fn parted(until: Duration) -> Report<(Result<u64, Fault>, u64)> {
    let network = Network { timeout: 10 * MICROSECOND, retries: 5, ..Network::default() };
    let simulation = Simulation::new(network).ranks(3).partition(2..3, 100 * MICROSECOND, until);
    simulation.run_direct(|fabric| async move {
        let target = fabric.world_segment(Rank((fabric.rank().0 + 1) % 3)).unwrap();
        let word = fabric.word_in(&target, 0).unwrap();
        fabric.fetch_add(word, 1).await.unwrap();
        fabric.pause(word, 100_000).await;
        (fabric.fetch_add(word, 1).await, fabric.now())
    })
}

#[test]
fn a_partition_holds_messages_up_or_breaks_connections() {
    let short: Vec<_> = parted(130 * MICROSECOND).results.into_iter().flatten().collect();
    assert!(short.iter().all(|(found, _)| *found == Ok(1)), "{short:?}");
    assert!(short[0].1 < 110_000 && short[1].1 >= 130_000 && short[2].1 >= 130_000, "only messages to and from 2");
    let long: Vec<_> = parted(200 * MICROSECOND).results.into_iter().flatten().collect();
    assert_eq!(long[0].0, Ok(1));
    for (ended, _) in &long[1..] {
        assert!(ended.is_err_and(Fault::is_unknown), "{long:?}");
    }
}

/// Of a sender's waits for room at two receivers each counts: the second one waits for the first.
#[test]
fn a_sender_finds_room_at_either_receiver() {
    let network = Network { room: 2, ..Network::default() };
    let report = Simulation::new(network).ranks(3).run_direct(|fabric| async move {
        let mut packets = fabric.transport().unwrap();
        if fabric.rank() == Rank(0) {
            let mut left = [8, 8];
            return poll_fn(|cx| {
                for (to, left) in [1, 2].into_iter().zip(&mut left) {
                    while *left > 0
                        && packets.poll_send(cx, Rank(to), Packet::new(Channel::Connection, b"x")).is_ready()
                    {
                        *left -= 1;
                    }
                }
                if left == [0, 0] { Poll::Ready(()) } else { Poll::Pending }
            })
            .await;
        }
        if fabric.rank() == Rank(2) {
            let told = fabric.wait_until(word(&fabric, 2, 0), |told| told == 1, Patience::on(Rank(1))).await;
            assert_eq!(told, Ok(1));
        }
        for _ in 0..8 {
            assert!(packets.recv(Patience::on(Rank(0))).await.is_ok());
        }
        if fabric.rank() == Rank(1) {
            fabric.write(word(&fabric, 2, 0), 1, Notify::Yes).await.map(drop).unwrap();
        }
    });
    assert_eq!(report.end, End::Finished);
}
