//! Networks that lose packets.

use crate::hosts::launch::Reached;
use crate::hosts::meet::start_on;
use crate::hosts::network::Network;
use crate::support::{DEADLINE, eventually, finish, runs, start};

/// Time for many retransmissions of TCP: four lost packets of the start of a connection take 15 seconds.
const PATIENT: (&str, &str) = ("ONESIDED_SUSPECT_AFTER", "60");

#[test]
#[ignore = "what the stage hosts of scripts/test starts"]
fn ranks_meet_though_packets_are_lost() {
    for percent in [1, 10] {
        let network = Network::new(3);
        network.lose(percent);
        for ended in start_on(&network, "where", &[0, 1, 2, 1], &[PATIENT]).wait() {
            assert_eq!((ended.code(), &*ended.stdout), (0, &["sum 6 hosts 0 1 2 1".to_owned()][..]), "{ended:?}");
        }
    }
}

#[test]
#[ignore = "what the stage hosts of scripts/test starts"]
fn a_launched_job_ends_well_though_packets_are_lost() {
    for percent in [1, 10] {
        let reached = Reached::new(2);
        reached.network.lose(percent);
        let mut command = reached.play("localhost:1,host1:1", "2", &[], "print");
        let ended = finish(command.env(PATIENT.0, PATIENT.1));
        assert_eq!((ended.code(), &*ended.stderr), (0, ""), "{:?}", ended.stdout.last());
        let of_rank_1: Vec<_> = ended.stdout.iter().filter_map(|line| line.strip_prefix("[1] ")).collect();
        assert_eq!(of_rank_1.len(), 20_000, "no line is lost");
    }
}

/// A loss so high that every host looks dead: the job ends all the same, and leaves nothing behind.
#[test]
#[ignore = "what the stage hosts of scripts/test starts"]
fn a_network_that_loses_nearly_everything_is_a_lost_host() {
    let reached = Reached::new(2);
    let mut command = reached.play("localhost:1,host1:1", "2", &[], "watch");
    let running = start(&mut command);
    let pids: Vec<i32> = running.line_of_each(2).iter().map(|line| line.parse().unwrap()).collect();
    reached.network.lose(95);
    let ended = running.wait();
    assert!(ended.code() == 1 && ended.stderr.contains("host host1 is lost with 1 rank"), "{ended:?}");
    eventually(DEADLINE, "gone", || !pids.iter().any(|pid| runs(*pid)));
}
