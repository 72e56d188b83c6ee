//! Ranks on several hosts without a launcher, which meet at the address of rank 0.

use std::time::{Duration, Instant};

use rustix::process::Signal;

use crate::hosts::network::Network;
use crate::ranks::plays;
use crate::rendezvous::Place;
use crate::support::{Ended, Running, kill, start};

/// Ranks, and the file with their secret.
pub(crate) struct Ranks {
    ranks: Vec<Running>,
    _place: Place,
}

impl Ranks {
    pub(crate) fn wait(self) -> Vec<Ended> {
        self.ranks.into_iter().map(Running::wait).collect()
    }

    pub(crate) fn line(&self, rank: usize) -> String {
        self.ranks[rank].line()
    }

    /// The first line of each.
    pub(crate) fn pids(&self) -> Vec<i32> {
        self.ranks.iter().map(|rank| rank.line().parse().unwrap()).collect()
    }
}

/// Starts a rank on each of these hosts, in this order of ranks.
pub(crate) fn start_on(network: &Network, role: &str, hosts: &[usize], variables: &[(&str, &str)]) -> Ranks {
    let place = Place::at(&format!("{}:7000", network.address(hosts[0])));
    let ranks = (0..).zip(hosts).map(|(rank, host)| {
        let mut command = plays(role);
        place.set(&mut command, rank, hosts.len() as u32).envs(variables.iter().copied());
        start(&mut network.on(*host, &command))
    });
    Ranks { ranks: ranks.collect(), _place: place }
}

#[test]
#[ignore = "what the stage hosts of scripts/test starts"]
fn ranks_of_several_hosts_meet() {
    let network = Network::new(3);
    let ranks = start_on(&network, "where", &[0, 1, 2, 1, 0], &[]);
    for ended in ranks.wait() {
        assert_eq!((ended.code(), &*ended.stdout), (0, &["sum 10 hosts 0 1 2 1 0".to_owned()][..]), "{ended:?}");
    }
    // Rank 0 may be on any host, and a host may have a single rank.
    for ended in start_on(&network, "where", &[2, 0], &[]).wait() {
        assert_eq!(ended.stdout, ["sum 1 hosts 0 1"], "{ended:?}");
    }
}

#[test]
#[ignore = "what the stage hosts of scripts/test starts"]
fn shared_memory_does_not_join_hosts_and_says_so() {
    let network = Network::new(2);
    // Each ends at once, and the others get the same error.
    for hosts in [&[0, 1][..], &[0, 1, 1, 0]] {
        for ended in start_on(&network, "fail to start a world", hosts, &[]).wait() {
            assert!(ended.stdout[0].contains("on 2 hosts") && ended.stdout[0].contains("use verbs"), "{ended:?}");
        }
    }
}

/// A disconnected host is dead for the others, and they are dead for it.
#[test]
#[ignore = "what the stage hosts of scripts/test starts"]
fn a_host_that_disappears_is_dead_to_the_others() {
    let network = Network::new(3);
    let ranks = start_on(&network, "list the dead", &[0, 1, 1, 2], &[]);
    ranks.pids();
    let begin = Instant::now();
    network.pull(1);
    for rank in [0, 3] {
        assert_eq!(ranks.line(rank), "dead 1 2");
    }
    // Without a connection to the hub, its ranks are dead for a host, which hears no more of third
    // hosts.
    for rank in [1, 2] {
        assert_eq!(ranks.line(rank), "dead 0");
    }
    assert!(begin.elapsed() > Duration::from_millis(500), "{:?}", begin.elapsed());
}

/// The hub's host, which has rank 0 and connects all others.
#[test]
#[ignore = "what the stage hosts of scripts/test starts"]
fn a_hub_that_disappears_is_dead_and_the_others_go_on() {
    let network = Network::new(2);
    let ranks = start_on(&network, "list the dead", &[0, 1, 1], &[]);
    let pids = ranks.pids();
    network.pull(0);
    assert_eq!([ranks.line(1), ranks.line(2), ranks.line(0)], ["dead 0", "dead 0", "dead 1 2"]);
    // Ranks of one host still see one another.
    kill(pids[2], Signal::KILL);
    assert_eq!(ranks.line(1), "dead 0 2");
}

/// The lowest rank of a host connects it: without that rank, the host and the others are
/// disconnected.
#[test]
#[ignore = "what the stage hosts of scripts/test starts"]
fn a_keeper_that_dies_takes_its_host_along() {
    let network = Network::new(2);
    let ranks = start_on(&network, "list the dead", &[0, 1, 1, 1, 0], &[]);
    let pids = ranks.pids();
    kill(pids[1], Signal::KILL);
    assert_eq!([ranks.line(0), ranks.line(4)], ["dead 1 2 3", "dead 1 2 3"]);
    assert_eq!([ranks.line(2), ranks.line(3)], ["dead 0 1 4", "dead 0 1 4"]);
    kill(pids[3], Signal::KILL);
    assert_eq!(ranks.line(2), "dead 0 1 3 4");
}
