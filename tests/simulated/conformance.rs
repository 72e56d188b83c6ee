//! The conformance suite on the simulated fabric, and on fabrics with planted faults.

use std::time::Duration;

use onesided_fabric::World;
use onesided_fabric::conformance::{Failure, Summary, run, run_of};
use onesided_sim::{End, Network, Profile, Report, Simulation};

use crate::planted::{Bug, Planted};

type Verdict = Result<Summary, Failure>;

fn passes(report: Report<Verdict>, at_least: usize, what: &str) {
    assert_eq!(report.end, End::Finished, "{what}: {}", report.end);
    for verdict in report.results.into_iter().flatten() {
        let summary = verdict.unwrap_or_else(|failure| panic!("{what}: {failure}"));
        assert!(summary.passed.len() >= at_least, "{what}: {summary:?}");
    }
}

fn assert_conforms(network: &Network, ranks: u32, seed: u64) {
    let simulation = Simulation::new(network.clone()).ranks(ranks).seed(seed);
    passes(simulation.run(|world| async move { run(&world).await }), 33, &format!("{ranks} ranks, seed {seed}"));
}

#[test]
fn conforms_with_any_number_of_ranks() {
    for ranks in [1, 2, 7, 8] {
        assert_conforms(&Network::default(), ranks, 0);
    }
}

#[test]
fn conforms_with_loss_and_jitter() {
    let network = Network { loss: 0.02, jitter: Duration::from_micros(20), ..Network::default() };
    for seed in 0..3 {
        for ranks in [2, 5] {
            assert_conforms(&network, ranks, seed);
        }
    }
}

#[test]
fn conforms_on_unusual_networks() {
    let zero = Duration::ZERO;
    let immediate = Network { latency: zero, send: zero, receive: zero, wake: zero, room: 8, ..Network::default() };
    let slow =
        Network { latency: Duration::from_micros(300), bandwidth: 1_000_000_000, polling: zero, ..Network::default() };
    for network in [immediate, slow] {
        assert_conforms(&network, 3, 0);
    }
}

/// Packets travel as datagrams, which are lost, doubled and overtaken, and later over connections.
#[test]
fn conforms_over_datagrams() {
    let jitter = Duration::from_micros(100);
    for (ranks, loss, duplication, jitter) in
        [(1, 0.0, 0.0, Duration::ZERO), (3, 0.01, 0.0, Duration::ZERO), (4, 0.0, 0.05, jitter), (2, 0.1, 0.05, jitter)]
    {
        for connects_after in [None, Some(0), Some(5)] {
            let mtu = if ranks == 4 { 256 } else { 4096 };
            let datagrams = Network { datagrams: true, mtu, loss, duplication, jitter, ..Network::default() };
            assert_conforms(&Network { connects_after, ..datagrams }, ranks, 0);
        }
    }
}

/// Threads take turns on the cores of their host, and ranks share its card.
#[test]
fn conforms_on_testbeds() {
    for name in ["infinihost", "shm"] {
        let short = Profile::shipped(name).unwrap().with("slice", 20_000.0).unwrap();
        for sleeps in [false, true] {
            let mut network = short.network().clone();
            if sleeps {
                network.polling = Duration::from_micros(3);
            }
            for (ranks, per_host) in [(1, 1), (5, 3)] {
                let simulation = Simulation::new(network.clone()).ranks(ranks).per_host(per_host).computing(0, 2);
                let report = simulation.run(|world| async move { run(&world).await });
                passes(report, 33, &format!("{name}, {ranks} ranks, {per_host} on a host"));
            }
        }
    }
}

#[test]
fn catches_wrong_fabrics() {
    let expected = [
        (Bug::TornFetchAdd, "words::sums"),
        (Bug::HalfCompare, "words::operations"),
        (Bug::Mute, "waits::woken"),
        (Bug::ShortOddPut, "bulk::sizes_and_offsets"),
        (Bug::IdleFlush, "bulk::flushed"),
        (Bug::OverflowingGet, "bulk::ranges"),
        (Bug::LostPackets, "transport::all_to_all"),
        (Bug::DoubledPackets, "transport::all_to_all"),
        (Bug::OvertakenPackets, "transport::flood"),
        (Bug::ShiftedBody, "transport::parts"),
        (Bug::SentAndPending, "transport::all_to_all"),
        (Bug::StaleLoan, "registered::memory"),
        (Bug::EndlessLoan, "registered::memory"),
        (Bug::EveryPartBegins, "registered::parts"),
        (Bug::EndlessLanding, "landings::arrive"),
        (Bug::NextLanding, "landings::arrive"),
        (Bug::OvertakingFin, "rendezvous::write"),
    ];
    // One card sends in order, so a missing flush shows only where the connections differ in
    // length.
    let network = Network { jitter: Duration::from_micros(100), ..Network::default() };
    for (bug, check) in expected {
        let datagrams = [Bug::OvertakingFin, Bug::EndlessLanding, Bug::NextLanding].contains(&bug);
        let network = Network { datagrams, ..network.clone() };
        let report = Simulation::new(network).ranks(4).run_direct(|inner| async move {
            run_of(&World::new(Planted::new(inner, bug)), |name| name == check).await
        });
        assert_eq!(report.end, End::Finished, "{bug:?}: {}", report.end);
        let verdicts = report.results.into_iter().flatten().collect::<Vec<_>>();
        let Err(failure) = verdicts[0].clone() else { panic!("{bug:?} was not caught") };
        assert_eq!(failure.check, check, "{bug:?}: {failure}");
        for verdict in verdicts {
            assert_eq!(verdict, Err(failure.clone()), "{bug:?}: every rank learns it");
        }
    }
}

/// A transport that finds no room at any time, however often it is asked, conforms.
#[test]
fn a_busy_transport_conforms() {
    for seed in 0..3 {
        let report = Simulation::new(Network::default())
            .ranks(3)
            .seed(seed)
            .run_direct(|inner| async move { run(&World::new(Planted::new(inner, Bug::OftenBusy))).await });
        passes(report, 33, &format!("seed {seed}"));
    }
}

/// Any one post of the short checks of packets finds no room.
#[test]
fn a_transport_that_is_busy_once_conforms() {
    let wanted = |name: &str| matches!(name, "transport::all_to_all" | "transport::edges" | "transport::parts");
    for post in 1..=2 * 30 + 2 + 6 {
        let report = Simulation::new(Network::default()).ranks(2).run_direct(|inner| async move {
            run_of(&World::new(Planted::new(inner, Bug::BusyAt(post))), wanted).await
        });
        passes(report, 3, &format!("post {post}"));
    }
}
