//! Ranks on several hosts that a process manager starts.

use crate::hosts::network::Network;
use crate::managers::Manager;

#[test]
#[ignore = "what the stage hosts of scripts/test starts"]
fn ranks_of_a_process_manager_meet_over_hosts() {
    let network = Network::new(3);
    for (hosts, told) in
        [(&[0, 1, 2, 1, 0][..], "sum 10 hosts 0 1 2 1 0"), (&[2, 0], "sum 1 hosts 0 1"), (&[1, 1], "sum 1 hosts 0 0")]
    {
        for ended in Manager::on_hosts(&network, hosts, "where").wait() {
            assert_eq!((ended.code(), &*ended.stdout), (0, &[told.to_owned()][..]), "{ended:?}");
        }
    }
}

#[test]
#[ignore = "what the stage hosts of scripts/test starts"]
fn a_job_without_a_launcher_is_aborted_on_all_hosts() {
    let network = Network::new(3);
    for (role, aborts) in [("rank 0 aborts", 0), ("the last rank aborts", 4)] {
        let ended = Manager::on_hosts(&network, &[0, 1, 1, 2, 2], role).wait();
        let codes: Vec<_> = ended.iter().map(|ended| ended.status.code()).collect();
        for (rank, code) in codes.iter().enumerate() {
            // The lowest rank of a host ends the others, and then itself.
            let is_lowest = [0, 1, 3].contains(&rank);
            assert!(*code == Some(7) || !is_lowest && rank != aborts && code.is_none(), "{codes:?}");
        }
    }
}
