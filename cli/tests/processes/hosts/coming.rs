//! Hosts of `onesided run --hosts` that are this one twice, connect late, or connect while the job
//! is being ended; and the last output of their ranks.

use std::process::{Command, Stdio};

use rustix::process::Signal;

use crate::hosts::launch::{AGENT, Rsh};
use crate::support::{DEADLINE, eventually, finish, onesided, runs, start};

#[test]
fn this_host_by_two_names_is_refused() {
    let name = rustix::system::uname().nodename().to_string_lossy().into_owned();
    let ended = finish(&mut onesided(&["run", "--hosts", &format!("localhost:1,{name}:1"), "-n", "2", "--", "true"]));
    assert!(ended.code() != 0 && ended.stderr.contains("this host"), "{ended:?}");
}

#[test]
fn a_host_that_comes_late_is_no_silence_of_the_others() {
    let rsh = Rsh::new("[ $host = a ] || sleep 6; sh -c \"$*; exit \\$?\"");
    let mut command = rsh.script("a:1,b:1", "2", &[], "echo $ONESIDED_RANK");
    let mut ended = finish(command.env("ONESIDED_SUSPECT_AFTER", "5"));
    ended.stdout.sort();
    assert_eq!((ended.code(), ended.stdout), (0, ["[0] 0", "[1] 1"].map(str::to_owned).to_vec()), "{}", ended.stderr);
}

/// Before the agent has answered, and after it has answered and fallen silent.
#[test]
fn an_interrupt_ends_a_job_whose_hosts_have_not_come() {
    let nonce = "0".repeat(64);
    for (come, signal) in [(String::new(), Signal::TERM), (format!("echo {AGENT} {nonce}; "), Signal::INT)] {
        let rsh = Rsh::new(&format!("echo $$ >&2; {come}exec sleep 60"));
        let mut command = onesided(&[&["run"], &*rsh.options("a:1", "1"), &["--", "true"]].concat());
        let running = start(&mut command);
        let shell: i32 = running.error_line().parse().unwrap();
        running.signal(signal);
        let ended = running.wait();
        assert_eq!(ended.code(), 128 + signal.as_raw(), "{ended:?}");
        eventually(DEADLINE, "the remote shell is gone", || !runs(shell));
    }
}

#[test]
fn without_a_number_all_hosts_are_filled() {
    let rsh = Rsh::local();
    let options = ["--hosts", "a:2,b:1", "--rsh", rsh.0.to_str().unwrap()];
    let ended = finish(&mut crate::support::script(&options, "echo $ONESIDED_SIZE"));
    assert_eq!((ended.code(), ended.stdout.len()), (0, 3), "{ended:?}");
    assert!(ended.stdout.iter().all(|line| line.ends_with("] 3")), "{ended:?}");
    let neither = finish(&mut onesided(&["run", "--", "true"]));
    assert!(neither.code() == 2 && neither.stderr.contains("--ranks"), "{neither:?}");
}

/// While one host is silent, another that fails is named.
#[test]
fn the_first_host_that_fails_is_named() {
    let rsh = Rsh::new("[ $host = b ] && exit 255; exec sleep 60");
    let ended = finish(&mut onesided(&[&["run"], &*rsh.options("a:1,b:1", "2"), &["--", "true"]].concat()));
    assert!(
        ended.code() == 1 && ended.stderr.contains("host b: ") && ended.stderr.contains(" b true` has to"),
        "{ended:?}"
    );
}

/// The output of a shell that reads the output of a job.
fn read_by(job: &Command, reader: &str) -> (String, String) {
    let mut shell = Command::new("sh");
    shell.args(["-c", &format!("{{ \"$@\"; echo status $? >&2; }} | {reader}"), "sh"]);
    shell.arg(job.get_program()).args(job.get_args()).stdin(Stdio::null());
    let output = shell.output().unwrap();
    [output.stdout, output.stderr].map(|said| String::from_utf8_lossy(&said).trim().to_owned()).into()
}

#[test]
fn a_reader_that_pauses_gets_all_output_of_remote_ranks() {
    let rsh = Rsh::local();
    let job = rsh.script("a:1,b:1", "2", &[], "seq 30000");
    assert_eq!(read_by(&job, "{ sleep 4; wc -l; }"), ("60000".to_owned(), "status 0".to_owned()));
}

#[test]
fn what_remote_ranks_leave_running_ends_with_the_job() {
    let rsh = Rsh::local();
    let job = rsh.script("a:1", "1", &[], "yes & sleep 60 & exit 0");
    assert_eq!(read_by(&job, "tail -n 1"), ("y".to_owned(), "status 0".to_owned()));
}

#[test]
fn the_variables_of_an_outer_job_stay_behind() {
    let rsh = Rsh::new("env | grep -c ^ONESIDED_SECRET= >&2; exit 3");
    let mut command = onesided(&[&["run"], &*rsh.options("a:1", "1"), &["--", "true"]].concat());
    let ended = finish(command.env("ONESIDED_SECRET", "0".repeat(64)));
    assert!(ended.stderr.starts_with("0\n"), "the remote shell has it: {ended:?}");
}
