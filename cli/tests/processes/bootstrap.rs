//! Joining a job.

use crate::ranks::play;
use crate::support::{DEADLINE, eventually, finish, runs, script, start};

#[test]
fn ranks_meet() {
    // More ranks than cores.
    let ended = finish(&mut play(&["-n", "9"], "exchange"));
    assert_eq!((ended.code(), &*ended.stderr), (0, ""), "{ended:?}");
    let mut lines = ended.stdout;
    lines.sort();
    assert_eq!(lines, (0..9).map(|rank| format!("[{rank}] sum 36")).collect::<Vec<_>>());
}

/// The signal that ends a rank with its launcher is set before it runs a single instruction of its
/// own.
#[test]
fn ranks_are_bound_to_the_launcher_from_the_start() {
    let running = start(&mut script(&["-n", "8"], "echo $$; sleep 60"));
    let first: i32 = running.line().split_once("] ").unwrap().1.parse().unwrap();
    drop(running); // kills the launcher while ranks may be starting
    eventually(DEADLINE, "it is gone", || !runs(first));
}
