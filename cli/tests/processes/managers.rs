//! Ranks that other launchers start: a process manager that speaks PMI-1 (a simulated one, and
//! MPICH's if installed).

#[path = "../../../job/src/pmi/tests/space.rs"]
mod space;

use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::process::{Command, Stdio};
use std::sync::Arc;

use rustix::process::Signal;

use self::space::Space;
use crate::hosts::network::Network;
use crate::ranks::{plays, plays_after};
use crate::support::{
    DEADLINE, Ended, Running, eventually, finish, is_open_somewhere, kill, memory_files, runs, start, start_with,
};

/// A process manager of PMI-1, in this process. The output of its processes has no labels, and is
/// ordered by rank.
pub(crate) struct Manager {
    ranks: Vec<Running>,
}

impl Manager {
    /// Starts processes that run a role; `place` is a wrapper for each rank's command that runs it elsewhere.
    fn start(size: u32, role: &str, place: impl Fn(u32, Command) -> Command) -> Self {
        let space = Arc::new(Space::new(size as usize));
        let ranks = (0..size).map(|rank| {
            let (ours, theirs) = UnixStream::pair().unwrap();
            let space = Arc::clone(&space);
            std::thread::spawn(move || space.serve(ours));
            // The shell's redirection makes a descriptor that survives the exec.
            let mut command = plays_after("exec 3<&0 </dev/null;", role);
            command.env("PMI_FD", "3").env("PMI_RANK", rank.to_string()).env("PMI_SIZE", size.to_string());
            start_with(place(rank, command).stdin(Stdio::from(OwnedFd::from(theirs))))
        });
        Self { ranks: ranks.collect() }
    }

    fn of_mpich(size: u32, role: &str) -> Self {
        Self::start(size, role, |_, command| command)
    }

    /// One rank on each of these hosts of a network.
    pub(crate) fn on_hosts(network: &Network, hosts: &[usize], role: &str) -> Self {
        Self::start(hosts.len() as u32, role, |rank, command| network.on(hosts[rank as usize], &command))
    }

    pub(crate) fn lines(&self) -> Vec<String> {
        self.ranks.iter().map(Running::line).collect()
    }

    pub(crate) fn wait(self) -> Vec<Ended> {
        self.ranks.into_iter().map(Running::wait).collect()
    }
}

fn all_said(ended: &[Ended], line: &str) {
    assert!(ended.iter().all(|ended| ended.code() == 0 && ended.stdout == [line]), "{ended:?}");
}

#[test]
fn ranks_of_a_process_manager_meet() {
    all_said(&Manager::of_mpich(5, "exchange").wait(), "sum 10");
    all_said(&Manager::of_mpich(1, "exchange").wait(), "sum 0");
}

#[test]
fn our_own_launcher_goes_before_a_process_manager() {
    let mut command = crate::ranks::play(&["-n", "2"], "exchange");
    let ended = finish(command.env("PMI_FD", "0").env("PMI_RANK", "0").env("PMI_SIZE", "7"));
    assert_eq!(ended.code(), 0, "{ended:?}");
}

#[test]
fn windows_work_and_survivors_go_on_without_a_launcher_of_ours() {
    let manager = Manager::of_mpich(4, "outlive");
    kill(manager.ranks[3].line().parse().unwrap(), Signal::KILL);
    let ended = manager.wait();
    let barrier = "barrier: rank 3 died";
    assert_eq!(ended[0].stdout, [barrier], "{ended:?}");
    assert!(ended[1].stdout[0].contains("rank 3 died while it held") && ended[1].stdout[1] == barrier, "{ended:?}");
    assert_eq!(ended[2].stdout, ["counted 300 and 300", barrier], "{ended:?}");
    assert!(ended[..3].iter().all(|ended| ended.code() == 0), "{ended:?}");
}

/// Rank 0, too, which keeps the job.
#[test]
fn ranks_that_close_what_they_do_not_know_are_not_dead() {
    let ended = Manager::of_mpich(3, "hold without descriptors").wait();
    let said: Vec<_> = ended.iter().flat_map(|ended| &ended.stdout).collect();
    assert_eq!(said, ["finds 42 None, runs false", "unlock Ok(())"], "{ended:?}");
    assert!(ended.iter().all(|ended| ended.code() == 0), "{ended:?}");
}

/// When rank 0 dies, the others detect it, and every later death in any order: the next rank takes
/// over.
#[test]
fn deaths_are_seen_after_rank_0_has_died() {
    for order in [[0, 3, 1], [0, 1, 2], [3, 0, 1]] {
        let manager = Manager::of_mpich(5, "name the dead");
        let pids: Vec<i32> = manager.lines().iter().map(|line| line.parse().unwrap()).collect();
        let boards = memory_files(&pids[0].to_string());
        for (count, dead) in order.into_iter().enumerate() {
            kill(pids[dead], Signal::KILL);
            for alive in (0..5).filter(|rank| !order[..=count].contains(rank)) {
                assert_eq!(manager.ranks[alive].line(), format!("{dead} died"), "{order:?}");
            }
        }
        // Memory of rank 0 that was mapped stays usable; new memory is an error, and no rank hangs.
        let ended = manager.wait();
        let survivors: Vec<_> = (0..5).filter(|rank| !order.contains(rank)).collect();
        assert!(survivors.iter().all(|rank| ended[*rank].code() == 0), "{ended:?}");
        for rank in survivors {
            assert!(ended[rank].stdout.iter().any(|line| line.contains("the connection to rank 0 broke")), "{ended:?}");
        }
        assert!(!boards.is_empty());
        eventually(DEADLINE, "no memory is left", || !boards.iter().any(|file| is_open_somewhere(*file)));
    }
}

/// A rank 0 that panicked is dead although its process goes on: it neither serves nor monitors
/// other ranks.
#[test]
fn deaths_are_seen_after_rank_0_has_panicked() {
    let manager = Manager::of_mpich(4, "rank 0 panics");
    let pids: Vec<i32> = manager.ranks[1..].iter().map(|rank| rank.line().parse().unwrap()).collect();
    assert!(manager.ranks[1..].iter().all(|rank| rank.line() == "0 died"));
    kill(pids[0], Signal::KILL);
    assert_eq!([manager.ranks[2].line(), manager.ranks[3].line()], ["1 died", "1 died"]);
    assert!(runs(manager.ranks[0].pid()));
}

/// A rank 0 that has left still serves the ranks that have not.
#[test]
fn rank_0_leaves_first_and_goes_last() {
    let manager = Manager::of_mpich(3, "rank 0 leaves first");
    let pid: i32 = manager.ranks[0].line().parse().unwrap();
    assert_eq!([manager.ranks[1].line(), manager.ranks[2].line()], ["mapped", "mapped"]);
    assert!(runs(pid));
    let ended = manager.wait();
    assert!(ended.iter().all(|ended| ended.code() == 0), "{ended:?}");
    assert_eq!(ended[0].stdout, ["went"]);
}

/// MPICH's own launcher. `ONESIDED_MPIEXEC` is its path, if it is not in PATH.
fn mpiexec(options: &[&str], role: &str) -> Command {
    let program = std::env::var_os("ONESIDED_MPIEXEC").unwrap_or_else(|| "mpiexec.hydra".into());
    let plays = plays(role);
    let mut command = Command::new(program);
    command.args(["-l"]).args(options).arg(plays.get_program()).args(plays.get_args());
    command.envs(plays.get_envs().filter_map(|(name, value)| Some((name, value?))));
    command
}

fn sorted(ended: &Ended) -> Vec<&str> {
    let mut lines: Vec<_> = ended.stdout.iter().map(|line| line.trim_end()).collect();
    lines.sort_unstable();
    lines
}

#[test]
#[ignore = "what the stage mpiexec of scripts/test starts"]
fn mpiexec_of_mpich_starts_a_job() {
    for options in [&["-n", "4"][..], &["-pmi-port", "-n", "4"]] {
        let ended = finish(&mut mpiexec(options, "exchange"));
        assert_eq!(ended.code(), 0, "{ended:?}");
        assert_eq!(sorted(&ended), ["[0] sum 6", "[1] sum 6", "[2] sum 6", "[3] sum 6"]);
    }
}

#[test]
#[ignore = "what the stage mpiexec of scripts/test starts"]
fn mpiexec_of_mpich_and_a_rank_that_fails() {
    // It lets the others report a rank that exits, but kills them when a signal has killed one.
    let ended = finish(&mut mpiexec(&["-n", "3"], "desert alone"));
    assert_eq!(ended.code(), 9, "{ended:?}");
    assert!(ended.stdout.iter().filter(|line| line.ends_with("rank 2 Dead")).count() == 2, "{ended:?}");

    let running = start(&mut mpiexec(&["-n", "3"], "name the dead"));
    let pids: Vec<i32> = running.line_of_each(3).iter().map(|line| line.parse().unwrap()).collect();
    kill(pids[0], Signal::KILL);
    let ended = running.wait();
    assert_ne!(ended.code(), 0, "{ended:?}");
    eventually(DEADLINE, "all are gone", || !pids.iter().any(|pid| runs(*pid)));
}

#[test]
#[ignore = "what the stage mpiexec of scripts/test starts"]
fn mpiexec_of_mpich_and_a_rank_that_aborts() {
    for role in ["rank 0 aborts", "the last rank aborts"] {
        let running = start(&mut mpiexec(&["-n", "3"], role));
        let pids: Vec<i32> = running.line_of_each(3).iter().map(|line| line.parse().unwrap()).collect();
        let ended = running.wait();
        assert_ne!(ended.code(), 0, "{ended:?}");
        eventually(DEADLINE, "all are gone", || !pids.iter().any(|pid| runs(*pid)));
    }
}

#[test]
#[ignore = "what the stage mpiexec of scripts/test starts"]
fn mpiexec_of_mpich_that_is_killed_leaves_nothing() {
    let running = start(&mut mpiexec(&["-n", "3"], "name the dead"));
    let pids: Vec<i32> = running.line_of_each(3).iter().map(|line| line.parse().unwrap()).collect();
    let boards = memory_files(&pids[1].to_string());
    assert!(!boards.is_empty());
    running.signal(Signal::KILL);
    eventually(DEADLINE, "all are gone", || !pids.iter().any(|pid| runs(*pid)));
    assert!(!boards.iter().any(|file| is_open_somewhere(*file)));
}
