//! How other ranks detect a rank's death.

use std::process::Command;

use rustix::process::Signal;

use crate::ranks::{play, play_behind, play_inside};
use crate::support::{finish, kill, start};

#[test]
fn a_rank_inside_a_script_is_declared_dead_while_the_script_goes_on() {
    let running = start(&mut play_inside("sleep 60", &["-n", "2", "--on-failure", "continue"], "watch"));
    let pids: Vec<i32> = running.line_of_each(2).iter().map(|line| line.parse().unwrap()).collect();
    kill(pids[1], Signal::KILL);
    while running.line() != "[0] rank 1 Dead" {} // the shell prints lines, too; they come within 30 s, or it fails
}

/// What ends or breaks around a rank is not its end: a lock that it holds stays its own until its process is
/// gone.
#[test]
fn a_rank_whose_process_runs_is_not_dead() {
    let unlocked = [
        ("hold while the wrapper ends", play_behind as fn(&str, &[&str], &str) -> Command),
        ("hold without descriptors", play_behind),
        ("hold without descriptors", |_, options, role| play(options, role)),
    ];
    for (role, play) in unlocked {
        let ended = finish(&mut play("", &["-n", "2", "--on-failure", "continue"], role));
        let mut lines = ended.stdout.clone();
        lines.sort();
        assert_eq!(lines, ["[0] finds 42 None, runs false", "[1] unlock Ok(())"], "{role}: {ended:?}");
        assert_eq!((ended.code(), &*ended.stderr), (0, ""), "{role}");
    }
    // The launcher kills a rank whose program failed: then it is dead.
    let role = "hold while the wrapper is killed";
    let ended = finish(&mut play_behind("", &["-n", "2", "--on-failure", "continue"], role));
    assert_eq!(ended.stdout, ["[0] finds 0 Some(Owner(1)), runs false"], "{ended:?}");
    assert_eq!(ended.code(), 137, "{ended:?}");
}

#[test]
fn whoever_waits_for_a_value_learns_of_the_death() {
    let running = start(&mut play(&["-n", "2", "--on-failure", "continue"], "wait for a value"));
    let pids: Vec<i32> = running.line_of_each(2).iter().map(|line| line.parse().unwrap()).collect();
    kill(pids[1], Signal::TERM);
    assert_eq!(running.line(), "[0] wait for a value of the job: rank 1 died");
    assert_eq!(running.wait().code(), 128 + 15);
}

/// With `--on-failure continue`, survivors are not stopped, and use one another's memory and that
/// of the dead rank. A wait for the dead rank is an error.
#[test]
fn survivors_go_on_and_who_waits_for_the_dead_gets_an_error() {
    let running = start(&mut play(&["-n", "4", "--on-failure", "continue"], "outlive"));
    let pid = running.line().strip_prefix("[3] ").unwrap().parse().unwrap();
    kill(pid, Signal::KILL);
    let ended = running.wait();
    assert_eq!(ended.code(), 137, "{ended:?}");
    let mut lines = ended.stdout.clone();
    lines.sort();
    assert_eq!(lines.len(), 5, "{ended:?}");
    assert_eq!(lines[0], "[0] barrier: rank 3 died");
    assert!(lines[1] == "[1] barrier: rank 3 died" && lines[2].contains("rank 3 died while it held"), "{ended:?}");
    assert_eq!(lines[3..], ["[2] barrier: rank 3 died", "[2] counted 300 and 300"]);
    assert_eq!(ended.stderr, format!("onesided: rank 3 (pid {pid}) was killed by SIGKILL (signal 9)"));
}
