//! An exchange by every protocol in which each post may find no room, and a rank dies between any
//! two steps.

use std::time::Duration;

use onesided_fabric::World;
use onesided_fabric::remote_memory::{FaultKind, Rank, RemoteMemory};
use onesided_instances as _;
use onesided_sim::{End, Network, Report, Simulation};
use onesided_two_sided::{Error, Messages, Tag};

use crate::exchange::exchange;
use crate::planted::{Bug, Planted};

/// Packets are datagrams that are lost, doubled and overtaken.
fn rough() -> Network {
    let jitter = Duration::from_micros(20);
    Network { datagrams: true, loss: 0.05, duplication: 0.05, jitter, retries: 50, ..Network::default() }
}

/// The first packets are those datagrams, and later ones take connections.
fn both() -> Network {
    Network { connects_after: Some(3), ..rough() }
}

/// A rank after the exchange.
struct Seen {
    outcome: Result<(), Error>,
    /// Of what it began after a failure.
    later: Vec<Result<(), FaultKind>>,
    /// How often it tried to post a packet.
    posts: u64,
    /// When it did something in the exchange, in nanoseconds.
    steps: Vec<u64>,
}

/// The exchange of two ranks with these faults, of which one dies at a time.
fn run(network: &Network, bugs: [Bug; 2], death: Option<(usize, u64)>) -> Report<Seen> {
    let mut simulation = Simulation::new(network.clone()).ranks(2).stalled_after(Duration::from_secs(60));
    if let Some((rank, at)) = death {
        simulation = simulation.kill(rank as u32, Duration::from_nanos(at));
    }
    simulation.run_direct(|fabric| async move {
        let bug = bugs[fabric.rank().index()];
        let planted = Planted::new(fabric, bug);
        let world = World::new(planted.clone());
        let messages = Messages::new(&world).await.unwrap();
        world.barrier().await.unwrap();
        let (before, other, mut later) = (planted.steps().len(), 1 - world.rank(), Vec::new());
        let outcome = exchange(&messages).await;
        if outcome.is_err() {
            later.push(messages.send(&[0_u8], other, Tag(4)).await.map_err(|error| error.kind()));
            later.push(messages.recv::<u8>(other, Tag(4)).await.map(drop).map_err(|error| error.kind()));
        } else {
            let _ = world.barrier().await;
        }
        Seen { outcome, later, posts: planted.sends(), steps: planted.steps().split_off(before) }
    })
}

fn without_faults(network: &Network) -> [Seen; 2] {
    let report = run(network, [Bug::None; 2], None);
    assert_eq!(report.end, End::Finished);
    let seen: Vec<_> = report.results.into_iter().flatten().collect();
    seen.try_into().unwrap_or_else(|_| panic!("two ranks"))
}

fn is_done(report: &Report<Seen>) -> bool {
    report.end == End::Finished && report.results.iter().flatten().filter(|seen| seen.outcome.is_ok()).count() == 2
}

/// The connections of the two are made at any message.
#[test]
fn a_connection_is_made_at_each_step() {
    let messages = without_faults(&both()).map(|seen| seen.posts as u32);
    for after in 0..messages[0].max(messages[1]) {
        let network = Network { connects_after: Some(after), ..rough() };
        assert!(is_done(&run(&network, [Bug::None; 2], None)), "after {after}");
    }
}

#[test]
fn every_post_may_find_no_room() {
    for network in [Network::default(), rough(), both()] {
        for (rank, seen) in without_faults(&network).iter().enumerate() {
            for post in 1..=seen.posts {
                let mut bugs = [Bug::None; 2];
                bugs[rank] = Bug::BusyAt(post);
                assert!(is_done(&run(&network, bugs, None)), "post {post} of rank {rank}");
            }
        }
    }
}

/// A post that takes no room for room is caught, whichever it is.
#[test]
fn an_ignored_refusal_is_caught() {
    let posts = without_faults(&Network::default())[0].posts;
    let is_caught = |post: &u64| !is_done(&run(&Network::default(), [Bug::IgnoresBusyAt(*post), Bug::None], None));
    let missed: Vec<_> = (1..=posts).filter(|post| !is_caught(post)).collect();
    assert_eq!(missed, [], "of {posts}");
}

#[test]
fn a_rank_may_die_between_any_two_steps() {
    for network in [Network::default(), rough(), both()] {
        let (mut done, mut failed) = (0, 0);
        for (dead, seen) in without_faults(&network).iter().enumerate() {
            for at in &seen.steps {
                let report = run(&network, [Bug::None; 2], Some((dead, at + 1)));
                assert_eq!(report.end, End::Finished, "rank {dead} at {at}");
                let survivor = report.results.into_iter().nth(1 - dead).flatten();
                let Seen { outcome, later, .. } = survivor.unwrap_or_else(|| panic!("rank {dead} at {at}"));
                let Err(error) = outcome else {
                    done += 1;
                    continue;
                };
                failed += 1;
                assert_eq!(later, [Err(FaultKind::PeerDied); 2], "rank {dead} at {at}");
                match error {
                    Error::Read { status, fault } => {
                        // Simulated memory is gone before others learn of the death.
                        assert!(matches!(fault.kind(), FaultKind::PeerDied | FaultKind::NoSuchRegion), "{fault}");
                        assert_eq!(status.source as usize, dead);
                    }
                    _ => {
                        let fault = error.fault();
                        assert_eq!((fault.kind(), fault.rank().map(Rank::index)), (FaultKind::PeerDied, Some(dead)));
                    }
                }
            }
        }
        assert!(done > 0 && failed > 100, "{done} done, {failed} failed");
    }
}
