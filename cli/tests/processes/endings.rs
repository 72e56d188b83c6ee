//! Exit statuses, interrupts, and what is left behind.

use std::time::Duration;

use rustix::process::Signal;

use crate::ranks::{play, play_after, play_behind, play_by};
use crate::support::{
    DEADLINE, Running, eventually, finish, is_listening, is_open_somewhere, memory_files, onesided, runs, script, start,
};

#[test]
fn a_plain_program_needs_to_know_nothing_of_the_job() {
    let ended = finish(&mut onesided(&["run", "-n", "3", "--", "echo", "-n", "--", "x"]));
    assert_eq!((ended.code(), &*ended.stderr), (0, ""));
    let mut lines = ended.stdout;
    lines.sort();
    assert_eq!(lines, ["[0] -- x", "[1] -- x", "[2] -- x"]);
}

/// A rank that returned without a collective call of the others says something else.
#[test]
fn a_rank_that_never_joined_is_named_as_such() {
    let without = "case $ONESIDED_RANK in 1) exit 0;; esac;";
    let ended = finish(&mut play_after(without, &["-n", "2"], "wait for all"));
    let expected = ["[0] barrier: rank 1 never joined the job".to_owned()];
    assert_eq!((ended.code(), &*ended.stdout), (0, &expected[..]), "{ended:?}");
}

/// Ranks of a job on several hosts may inherit the variable and start other jobs.
#[test]
fn a_remote_shell_that_is_named_for_other_jobs_does_not_disturb() {
    let ended = finish(onesided(&["run", "-n", "1", "--", "echo", "x"]).env("ONESIDED_RSH", "rsh"));
    assert_eq!((ended.code(), &*ended.stdout, &*ended.stderr), (0, &["x".to_owned()][..], ""));
}

#[test]
fn the_status_is_that_of_the_first_failure() {
    let ended = finish(&mut script(&["-n", "3"], "case $ONESIDED_RANK in 1) exit 5;; 2) sleep 0.3; exit 6;; esac"));
    assert_eq!(ended.code(), 5, "{ended:?}");
    let first = ended.stderr.lines().next().unwrap();
    assert!(first.starts_with("onesided: rank 1 (pid ") && first.ends_with(") exited with status 5"), "{first}");
    assert!(ended.stderr.contains("rank 2"), "{ended:?}");
}

#[test]
fn an_aborted_job_ends_with_its_status() {
    for (role, rank) in [("rank 0 aborts", 0), ("the last rank aborts", 2)] {
        for more in [&[][..], &["--on-failure", "continue"]] {
            let ended = finish(&mut play(&[&["-n", "3"], more].concat(), role));
            let pid = ended.stdout.iter().find_map(|line| line.strip_prefix(&format!("[{rank}] "))).unwrap();
            assert_eq!(ended.stderr, format!("onesided: rank {rank} (pid {pid}) aborted the job with status 7"));
            assert_eq!(ended.code(), 7, "{ended:?}");
        }
    }
    let ended = finish(&mut play(&["-n", "2"], "a world is aborted"));
    assert_eq!(ended.code(), 1, "{ended:?}");
    assert!(ended.stderr.ends_with("aborted the job with status 1"), "{ended:?}");
}

/// The children of a process that ignores SIGCHLD are reaped without an exit status. Programs that
/// it starts inherit that.
#[test]
fn the_status_is_known_though_our_parent_ignores_its_children() {
    let mut command = std::process::Command::new("env");
    command.args(["--ignore-signal=CHLD", env!("CARGO_BIN_EXE_onesided"), "run", "-n", "2"]);
    command.args(["--", "sh", "-c", "exit 3"]);
    let ended = finish(&mut command);
    assert_eq!(ended.code(), 3, "{ended:?}");
}

#[test]
fn a_program_that_cannot_be_started_is_said_as_shells_say_it() {
    let missing = finish(&mut onesided(&["run", "-n", "2", "/no/such/program"]));
    assert_eq!((missing.code(), missing.stderr.lines().count()), (127, 1), "{missing:?}");
    assert!(missing.stderr.contains("/no/such/program"));
    let text = finish(&mut onesided(&["run", "-n", "2", "/etc/passwd"]));
    assert_eq!(text.code(), 126, "{text:?}");
}

#[test]
fn survivors_that_do_not_end_are_ended() {
    let ended = finish(&mut script(
        &["-n", "3"],
        "case $ONESIDED_RANK in 0) exit 4;; 1) exec sleep 60;; 2) trap '' TERM; while :; do sleep 1; done;; esac",
    ));
    assert_eq!(ended.code(), 4, "{ended:?}");
    // Two seconds to report it, two more to end.
    assert!(ended.took > Duration::from_secs(3), "{ended:?}");
    assert!(ended.stderr.contains("SIGTERM") && ended.stderr.contains("SIGKILL (signal 9) to the 1 rank"), "{ended:?}");
}

/// Starts two ranks that each print their own process id and that of a child; returns all four.
fn with_children(commands: &str) -> (Running, Vec<i32>) {
    let running = start(&mut script(&["-n", "2"], commands));
    let lines = running.line_of_each(2).join(" ");
    let pids = lines.split(' ').map(|pid| pid.parse().unwrap()).collect();
    (running, pids)
}

fn all_gone(pids: &[i32]) {
    eventually(DEADLINE, "all processes are gone", || !pids.iter().any(|pid| runs(*pid)));
}

#[test]
fn interrupts_are_forwarded_once_and_end_the_job() {
    for (signal, code) in [(Signal::INT, 130), (Signal::TERM, 143), (Signal::HUP, 129)] {
        let counting = "n=0; trap 'n=$((n+1))' INT TERM HUP; sleep 60 & echo $$ $!; \
                        while [ $n = 0 ]; do sleep 0.02; done; sleep 0.3; echo got $n; exit 0";
        let (running, pids) = with_children(counting);
        running.signal(signal);
        let ended = running.wait();
        assert_eq!(ended.code(), code, "{ended:?}");
        let mut lines = ended.stdout.clone();
        lines.sort();
        assert_eq!(lines, ["[0] got 1", "[1] got 1"], "{signal:?}");
        all_gone(&pids);
    }
}

#[test]
fn who_ignores_an_interrupt_is_killed_after_the_grace_or_by_the_second() {
    let stubborn = "trap '' INT; sleep 60 & echo $$ $!; while :; do sleep 1; done";
    let (running, pids) = with_children(stubborn);
    running.signal(Signal::INT);
    let ended = running.wait();
    assert_eq!(ended.code(), 130, "{ended:?}");
    let after_the_grace = "SIGKILL (signal 9) to the 2 ranks";
    assert!(ended.took > Duration::from_secs(1) && ended.stderr.contains(after_the_grace), "{ended:?}");
    all_gone(&pids);

    let (running, pids) = with_children(stubborn);
    running.signal(Signal::INT);
    std::thread::sleep(Duration::from_millis(200));
    running.signal(Signal::INT);
    let ended = running.wait();
    assert_eq!(ended.code(), 130, "{ended:?}");
    assert!(!ended.stderr.contains(after_the_grace), "{ended:?}");
    all_gone(&pids);
}

#[test]
fn what_ranks_leave_running_ends_with_the_job() {
    let (running, pids) = with_children("sleep 60 > /dev/null 2>&1 & echo $$ $!");
    assert_eq!(running.wait().code(), 0);
    all_gone(&pids);
}

/// The kernel clears the parent-death signal of a program with file capabilities, for example to
/// lock memory.
#[test]
fn a_killed_launcher_takes_ranks_that_forgot_it_with_it() {
    if !std::path::Path::new("/usr/bin/setpriv").exists() {
        return; // not installed; every Debian has it
    }
    let running = start(&mut play_by("setpriv --pdeathsig clear", &["-n", "2"], "watch"));
    let ranks: Vec<i32> = running.line_of_each(2).iter().map(|line| line.parse().unwrap()).collect();
    running.signal(Signal::KILL);
    all_gone(&ranks);
}

/// In a session of its own, signals to the wrapper's process group do not reach the rank.
#[test]
fn a_rank_that_outlasts_its_wrapper_ends_with_its_launcher() {
    for (by, signal) in [("", Signal::KILL), ("", Signal::TERM), ("setsid", Signal::KILL), ("setsid", Signal::TERM)] {
        for role in ["outlast the wrapper", "outlast without descriptors"] {
            let running = start(&mut play_behind(by, &["-n", "2"], role));
            let ranks: Vec<i32> = running.line_of_each(2).iter().map(|line| line.parse().unwrap()).collect();
            assert!(ranks.iter().all(|pid| runs(*pid)), "{by} {role}");
            running.signal(signal);
            all_gone(&ranks);
        }
    }
}

#[test]
fn a_killed_launcher_takes_everything_with_it() {
    let running = start(&mut play(&["-n", "3"], "watch"));
    let ranks: Vec<i32> = running.line_of_each(3).iter().map(|line| line.parse().unwrap()).collect();
    let environment = std::fs::read_to_string(format!("/proc/{}/environ", ranks[0])).unwrap();
    let address = environment.split('\0').find_map(|pair| pair.strip_prefix("ONESIDED_ADDRESS=")).unwrap();
    let boards = memory_files(&running.pid().to_string());
    assert_eq!(boards.len(), 1);
    assert!(is_listening(address) && is_open_somewhere(boards[0]));
    running.signal(Signal::KILL);
    all_gone(&ranks);
    eventually(DEADLINE, "no socket, no memory", || !is_listening(address) && !is_open_somewhere(boards[0]));
}
