//! `onesided run --hosts`.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;
use std::process::Command;
use std::sync::atomic::{AtomicU32, Ordering};

use rustix::process::Signal;

use crate::hosts::network::Network;
use crate::hosts::rsh::PORT;
use crate::ranks::{play, plays};
use crate::support::{DEADLINE, Ended, Running, eventually, finish, kill, onesided, runs, start};

/// What an agent of this version says, but for its nonce.
pub(crate) const AGENT: &str = "onesided agent 7 0.1.0";

/// A remote shell: a script that is called like ssh. Dropping removes it.
pub(super) struct Rsh(pub(super) PathBuf);

impl Rsh {
    pub(super) fn new(script: &str) -> Self {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let number = COUNT.fetch_add(1, Ordering::Relaxed);
        let path = std::env::temp_dir().join(format!("onesided-rsh-{}-{number}", std::process::id()));
        fs::write(&path, format!("#!/bin/sh\nhost=$1; shift\n{script}\n")).unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o700)).unwrap();
        Self(path)
    }

    /// A shell that stays on this host. The agent is not a child of the launcher's child, so that
    /// the kernel's parent-death signal does not reach it.
    pub(super) fn local() -> Self {
        Self::new("sh -c \"$*; exit \\$?\"")
    }

    pub(super) fn options<'o>(&'o self, hosts: &'o str, ranks: &'o str) -> Vec<&'o str> {
        vec!["--hosts", hosts, "--rsh", self.0.to_str().unwrap(), "-n", ranks]
    }

    pub(super) fn script(&self, hosts: &str, ranks: &str, more: &[&str], script: &str) -> Command {
        crate::support::script(&[&self.options(hosts, ranks), more].concat(), script)
    }

    pub(super) fn play(&self, hosts: &str, ranks: &str, more: &[&str], role: &str) -> Command {
        play(&[&self.options(hosts, ranks), more].concat(), role)
    }
}

impl Drop for Rsh {
    fn drop(&mut self) {
        let _ = fs::remove_file(&self.0);
    }
}

fn sorted(ended: &Ended) -> Vec<String> {
    let mut lines = ended.stdout.clone();
    lines.sort();
    lines
}

#[test]
fn ranks_of_agents_and_of_the_launcher_are_one_job() {
    let rsh = Rsh::local();
    for (hosts, told) in [("a:2,b:2", "0 0 1 1"), ("localhost:1,a:3", "0 1 1 1"), ("a:1,localhost:2,b:9", "0 1 1 2")] {
        let ended = finish(&mut rsh.play(hosts, "4", &[], "where"));
        assert_eq!((ended.code(), &*ended.stderr), (0, ""), "{ended:?}");
        let lines: Vec<_> = (0..4).map(|rank| format!("[{rank}] sum 6 hosts {told}")).collect();
        assert_eq!(sorted(&ended), lines);
    }
}

#[test]
fn ranks_get_arguments_folder_variables_and_nothing_to_read() {
    // A remote shell does not transfer the environment.
    let clean = Rsh::new("env -i PATH=\"$PATH\" sh -c \"cd /; $*\"");
    let mut clean_command =
        clean.script("a:1,b:1", "2", &["-x", "WANTED"], "pwd; echo \"$0,$WANTED,$ONESIDED_MINE,$UNWANTED\"; cat");
    clean_command
        .arg("two  words")
        .envs([("WANTED", "yes"), ("ONESIDED_MINE", "too"), ("UNWANTED", "x")])
        .current_dir("/usr");
    let ended = finish(&mut clean_command);
    let lines = ["[0] /usr", "[0] two  words,yes,too,", "[1] /usr", "[1] two  words,yes,too,"];
    assert_eq!((ended.code(), &*sorted(&ended)), (0, &lines.map(str::to_owned)[..]), "{ended:?}");
    let secret = finish(&mut clean.script(
        "a:1,b:1",
        "2",
        &[],
        "tr '\\0' '\\n' </proc/$PPID/cmdline | grep -c $ONESIDED_SECRET",
    ));
    assert_eq!(sorted(&secret), ["[0] 0", "[1] 0"], "the secret is in no command line");
}

#[test]
fn long_output_of_all_ranks_is_whole() {
    let rsh = Rsh::local();
    let ended = finish(&mut rsh.script("a:2,localhost:1", "3", &[], "seq 100000; seq 1000 >&2; printf end"));
    assert_eq!((ended.code(), ended.stderr.lines().count()), (0, 3000), "{:?}", ended.status);
    for rank in 0..3 {
        let label = format!("[{rank}] ");
        let of_rank: Vec<_> = ended.stdout.iter().filter_map(|line| line.strip_prefix(&*label)).collect();
        assert!(of_rank.len() == 100_001 && of_rank[100_000] == "end");
        assert!((0..100_000).all(|at| of_rank[at] == (at + 1).to_string()));
    }
    // A reader that closes the output ends the ranks on all hosts.
    let command = rsh.script("a:1,b:1", "2", &[], "yes");
    let head = Command::new("sh")
        .args(["-c", "\"$@\" | head -n 1", "sh"])
        .arg(command.get_program())
        .args(command.get_args())
        .output()
        .unwrap();
    assert_eq!(head.stdout.iter().filter(|byte| **byte == b'\n').count(), 1);
}

#[test]
fn the_first_failure_gives_the_status_wherever_it_is() {
    let rsh = Rsh::local();
    // The others fail as they are ended, whenever they have started.
    let script = "[ $ONESIDED_RANK = 2 ] && exit 5; trap 'exit 6' TERM; sleep 60 >/dev/null 2>&1 & wait";
    let ended = finish(&mut rsh.script("localhost:1,a:1,b:1", "3", &[], script));
    assert_eq!(ended.code(), 5, "{ended:?}");
    assert!(ended.stderr.starts_with("onesided: rank 2 (pid ") && ended.stderr.contains("status 5"), "{ended:?}");
    let signal = finish(&mut rsh.script("a:1,b:1", "2", &[], "[ $ONESIDED_RANK = 0 ] || kill -9 $$; exec sleep 60"));
    assert_eq!(signal.code(), 137, "{signal:?}");
    assert!(signal.stderr.contains("rank 1") && signal.stderr.contains("SIGKILL"), "{signal:?}");
    let go_on = ["--on-failure", "continue"];
    let ended = finish(&mut rsh.script("a:1,b:1", "2", &go_on, "[ $ONESIDED_RANK = 0 ] && exit 4; sleep 3; echo done"));
    assert_eq!((ended.code(), ended.stdout), (4, vec!["[1] done".to_owned()]));
    let deserted = finish(&mut rsh.play("a:1", "1", &[], "desert"));
    assert!(deserted.stderr.ends_with("without leaving the job"), "{deserted:?}");
}

#[test]
fn a_job_is_aborted_on_all_hosts() {
    let rsh = Rsh::local();
    for (role, rank) in [("rank 0 aborts", 0), ("the last rank aborts", 3)] {
        for hosts in ["a:2,b:2", "localhost:2,a:2", "a:2,localhost:2"] {
            let ended = finish(&mut rsh.play(hosts, "4", &["--on-failure", "continue"], role));
            assert_eq!(ended.code(), 7, "{ended:?}");
            let said = ended.stderr.lines().last().unwrap();
            assert!(said.starts_with(&format!("onesided: rank {rank} (pid ")), "{ended:?}");
        }
    }
}

#[test]
fn a_death_is_known_on_all_hosts_and_the_first_is_named() {
    let rsh = Rsh::local();
    let running = start(&mut rsh.play("a:2,b:2", "4", &[], "watch"));
    let pids: Vec<i32> = running.line_of_each(4).iter().map(|line| line.parse().unwrap()).collect();
    kill(pids[2], Signal::KILL);
    let mut said: Vec<_> = (0..3).map(|_| running.line()).collect();
    said.sort();
    assert_eq!(said, ["[0] rank 2 Dead", "[1] rank 2 Dead", "[3] rank 2 Dead"]);
    let ended = running.wait();
    assert_eq!(ended.code(), 137, "{ended:?}");
    assert_eq!(ended.stderr, format!("onesided: rank 2 (pid {}) was killed by SIGKILL (signal 9)", pids[2]));
    let ended = finish(&mut rsh.play("a:1,b:1,localhost:1", "3", &["--on-failure", "continue"], "fail in turn"));
    assert_eq!((ended.code(), &*ended.stdout), (42, &["[0] Dead Dead".to_owned()][..]), "{ended:?}");
}

#[test]
fn interrupts_reach_all_hosts() {
    let rsh = Rsh::local();
    let running = start(&mut rsh.script(
        "a:1,b:1",
        "2",
        &[],
        "trap 'echo caught; exit 0' TERM; echo $$; while :; do sleep 0.1; done",
    ));
    let pids: Vec<i32> = running.line_of_each(2).iter().map(|line| line.parse().unwrap()).collect();
    running.signal(Signal::TERM);
    let ended = running.wait();
    assert_eq!(
        (ended.code(), &*sorted(&ended)),
        (143, &["[0] caught", "[1] caught"].map(str::to_owned)[..]),
        "{ended:?}"
    );
    assert!(!pids.iter().any(|pid| runs(*pid)));
}

/// Starts ranks on two hosts that each print their process id, that of a child, and that of their
/// agent.
fn with_children(rsh: &Rsh, more: &[&str]) -> (Running, Vec<i32>, Vec<i32>) {
    let running = start(&mut rsh.script("a:1,b:1", "2", more, "sleep 60 & echo $$ $! $PPID; wait"));
    let lines = running.line_of_each(2);
    let pids = |which: &[usize]| {
        let of_line = |line: &String| line.split(' ').map(|pid| pid.parse().unwrap()).collect::<Vec<i32>>();
        lines.iter().flat_map(|line| which.iter().map(|at| of_line(line)[*at]).collect::<Vec<_>>()).collect()
    };
    let (ranks, agents) = (pids(&[0, 1]), pids(&[2]));
    (running, ranks, agents)
}

#[test]
fn nothing_is_left_when_the_launcher_is_killed() {
    let rsh = Rsh::local();
    let (running, ranks, agents) = with_children(&rsh, &[]);
    running.signal(Signal::KILL);
    let all = [ranks, agents].concat();
    eventually(DEADLINE, "ranks and agents are gone", || !all.iter().any(|pid| runs(*pid)));
}

#[test]
fn an_agent_that_is_killed_is_a_lost_host() {
    let rsh = Rsh::local();
    let (running, ranks, agents) = with_children(&rsh, &[]);
    kill(agents[1], Signal::KILL);
    eventually(DEADLINE, "its rank is gone", || !runs(ranks[2]));
    let ended = running.wait();
    assert_eq!(ended.code(), 1, "{ended:?}");
    assert!(ended.stderr.contains("onesided: host b is lost with 1 rank: the connection ended"), "{ended:?}");
    // The agent would kill what a rank has left in its process group, but was killed.
    for pid in [ranks[0], ranks[1], ranks[2], agents[0]] {
        eventually(DEADLINE, "gone", || !runs(pid));
    }
    let _ = rustix::process::kill_process(rustix::process::Pid::from_raw(ranks[3]).unwrap(), Signal::KILL);
}

#[test]
fn an_agent_that_is_stopped_is_a_lost_host() {
    let rsh = Rsh::local();
    let mut command = rsh.script("a:1,b:1", "2", &[], "echo $$ $PPID; exec sleep 60");
    let running = start(command.env("ONESIDED_SUSPECT_AFTER", "1"));
    let agents: Vec<i32> =
        running.line_of_each(2).iter().map(|line| line.split_once(' ').unwrap().1.parse().unwrap()).collect();
    kill(agents[0], Signal::STOP);
    let ended = running.wait();
    assert!(ended.stderr.contains("host a is lost with 1 rank: it was silent for"), "{ended:?}");
    assert_eq!(ended.code(), 1, "{ended:?}");
    // It may have ended with its shell's process group.
    let _ = rustix::process::kill_process(rustix::process::Pid::from_raw(agents[0]).unwrap(), Signal::CONT);
    eventually(DEADLINE, "it ends", || !runs(agents[0]));
}

#[test]
fn what_keeps_an_agent_from_starting_is_said() {
    let said_of = |rsh: &str, more: &[&str], seconds: u64| {
        let options = [&["run", "--hosts", "alpha:1", "--rsh", rsh, "-n", "1"], more, &["--", "true"]].concat();
        let ended = finish(onesided(&options).env("ONESIDED_JOIN_TIMEOUT", seconds.to_string()));
        assert_eq!(ended.code(), 1, "{ended:?}");
        ended.stderr.lines().last().unwrap_or_default().to_owned()
    };
    let said = |rsh: &str, more: &[&str]| said_of(rsh, more, DEADLINE.as_secs());
    let local = Rsh::local();
    let path = |rsh: &Rsh| rsh.0.to_str().unwrap().to_owned();
    assert!(said("/no/rsh", &[]).contains("host alpha: start /no/rsh"));
    assert!(said(&path(&local), &["--agent", "/no/onesided"]).contains("host alpha: no `onesided` is there"));
    assert!(said(&path(&Rsh::new("exit 255")), &[]).contains("did not reach it (exit status 255)"));
    assert!(said(&path(&Rsh::new("exit 3")), &[]).contains("exited with status 3"));
    assert!(said_of(&path(&Rsh::new("sleep 60")), &[], 2).contains("no agent answered within 2 s"));
    assert!(said(&path(&Rsh::new("yes")), &[]).contains("something else than an agent"));
    let version = said(&path(&Rsh::new("echo onesided agent 77 9.9.9 abc; sleep 60")), &[]);
    assert!(version.contains("onesided 9.9.9 is installed there"), "{version}");
    let nonsense = said(&path(&Rsh::new(&format!("echo {AGENT} abc; sleep 60"))), &[]);
    assert!(nonsense.contains("nonsense"), "{nonsense}");
    let zeros = "0".repeat(64);
    let imposter = Rsh::new(&format!("echo {AGENT} {zeros}; head -c 5000 /dev/zero; sleep 60"));
    let imposter = said(&path(&imposter), &[]);
    assert!(imposter.contains("does not bear the job's proof"), "{imposter}");
    // The output of a login shell is skipped.
    let greeting = Rsh::new("echo welcome; printf 'no end of line'; sh -c \"$*\"");
    let ended = finish(&mut greeting.script("a:1,b:1", "2", &[], "echo $ONESIDED_RANK"));
    assert_eq!(sorted(&ended), ["[0] 0", "[1] 1"], "{ended:?}");
}

#[test]
fn a_program_or_a_folder_that_is_not_there_is_said() {
    let rsh = Rsh::local();
    let run = |program: &str| finish(&mut onesided(&[&["run"], &*rsh.options("a:1", "1"), &["--", program]].concat()));
    let missing = run("/no/such/program");
    assert_eq!(missing.code(), 127, "{missing:?}");
    assert!(missing.stderr.contains("/no/such/program") && missing.stderr.contains("host a"), "{missing:?}");
    assert_eq!(run("/etc/passwd").code(), 126);
    let folder = std::env::temp_dir().join(format!("onesided-folder-{}", std::process::id()));
    fs::create_dir_all(&folder).unwrap();
    let elsewhere = Rsh::new(&format!("rmdir {}; cd /; sh -c \"$*\"", folder.display()));
    let mut command = elsewhere.script("a:1", "1", &[], "true");
    let ended = finish(command.current_dir(&folder));
    assert!(ended.code() == 1 && ended.stderr.contains("host a: there is no folder"), "{ended:?}");
}

#[test]
fn lists_that_make_no_sense_are_refused() {
    for (list, ranks, told) in
        [("a:1,b:1", "3", "room for 2"), ("a:x", "1", "whole number"), ("/no/file", "1", "read the list")]
    {
        let ended = finish(&mut onesided(&["run", "--hosts", list, "-n", ranks, "--", "true"]));
        assert!(ended.code() != 0 && ended.stderr.contains(told), "{ended:?}");
    }
    let agent = finish(&mut onesided(&["agent"]));
    assert!(agent.code() == 1 && agent.stderr.contains("run --hosts"), "{agent:?}");
}

/// Hosts that are connected by a network only, with a remote shell's daemon on each but the first.
pub(crate) struct Reached {
    pub(crate) network: Network,
    rsh: Rsh,
    _daemons: Vec<Running>,
}

impl Reached {
    pub(crate) fn new(hosts: usize) -> Self {
        let network = Network::new(hosts);
        let daemons = (1..hosts).map(|host| start(&mut network.on(host, &plays("serve a remote shell")))).collect();
        // The daemon's output is the shell's output, which is the client's standard error.
        let binary = std::env::current_exe().unwrap();
        let binary = binary.display();
        let rsh = Rsh::new(&format!(
            "ONESIDED_TEST_HOST=10.77.0.$((${{host#host}} + 1)) ONESIDED_TEST_LINE=\"$*\" \
             ONESIDED_TEST_ROLE='call a remote shell' {binary} --exact ranks::a_rank --nocapture 2>&1 >/dev/null"
        ));
        let reached = Self { network, rsh, _daemons: daemons };
        for host in 1..hosts {
            eventually(DEADLINE, "the daemon listens", || {
                let probe = format!("exec 3<>/dev/tcp/{}/{PORT}", reached.network.address(host));
                let mut bash = Command::new("bash");
                finish(&mut reached.network.on(0, bash.args(["-c", &probe]))).status.success()
            });
        }
        reached
    }

    pub(crate) fn on_first(&self, command: &Command) -> Command {
        self.network.on(0, command)
    }

    pub(crate) fn play(&self, hosts: &str, ranks: &str, more: &[&str], role: &str) -> Command {
        self.on_first(&self.rsh.play(hosts, ranks, more, role))
    }
}

#[test]
#[ignore = "what the stage hosts of scripts/test starts"]
fn a_job_over_a_network() {
    let reached = Reached::new(3);
    let ended = finish(&mut reached.play("localhost:1,host1:1,host2:2", "4", &[], "where"));
    assert_eq!((ended.code(), &*ended.stderr), (0, ""), "{ended:?}");
    assert_eq!(sorted(&ended), (0..4).map(|rank| format!("[{rank}] sum 6 hosts 0 1 2 2")).collect::<Vec<_>>());
}

/// A disconnected host: the launcher names it, the survivors detect it, and its agent ends its
/// ranks.
#[test]
#[ignore = "what the stage hosts of scripts/test starts"]
fn a_host_that_disappears_is_lost_and_leaves_nothing_behind() {
    let reached = Reached::new(3);
    let mut command = reached.play("localhost:1,host1:2,host2:1", "4", &["--on-failure", "continue"], "watch");
    let running = start(command.env("ONESIDED_SUSPECT_AFTER", "1"));
    let pids: Vec<i32> = running.line_of_each(4).iter().map(|line| line.parse().unwrap()).collect();
    reached.network.pull(1);
    let mut said = [running.line(), running.line()];
    said.sort();
    assert!(said[0].starts_with("[0] rank ") && said[1].starts_with("[3] rank "), "{said:?}");
    assert!(said.iter().all(|said| said.ends_with("rank 1 Dead") || said.ends_with("rank 2 Dead")), "{said:?}");
    let ended = running.wait();
    assert_eq!(ended.code(), 1, "{ended:?}");
    assert!(ended.stderr.starts_with("onesided: host host1 is lost with 2 ranks: it was silent for"), "{ended:?}");
    eventually(DEADLINE, "the ranks there are gone", || !pids.iter().any(|pid| runs(*pid)));
}
