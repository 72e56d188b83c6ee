//! `onesided run --hosts` by OpenSSH, the default remote shell.

use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use rustix::process::Signal;

use crate::hosts::network::Network;
use crate::ranks::play;
use crate::support::{DEADLINE, Ended, Running, eventually, finish, kill, runs, script, start, start_with};

/// Hosts with an ssh daemon on each but the first, and the files that the first needs to connect to
/// them. All files are in one folder, which is mounted where ssh expects it, only for the processes
/// of these hosts.
struct Ssh {
    network: Network,
    folder: PathBuf,
    daemons: Vec<Running>,
}

impl Ssh {
    fn new(hosts: usize) -> Self {
        let network = Network::new(hosts);
        let folder = std::env::temp_dir().join(network.host(0));
        fs::create_dir_all(folder.join("client")).unwrap();
        for key in ["host", "wrong_host", "user", "wrong_user"] {
            let mut keygen = Command::new("ssh-keygen");
            keygen.args(["-q", "-t", "ed25519", "-N", "", "-f"]).arg(folder.join(key));
            assert!(finish(&mut keygen).status.success());
        }
        fs::copy(folder.join("user.pub"), folder.join("authorized")).unwrap();
        let here = folder.display();
        let daemon = format!(
            "HostKey {here}/host\nAuthorizedKeysFile {here}/authorized\nStrictModes no\nUsePAM no\n\
             PermitRootLogin prohibit-password\nPidFile none\n"
        );
        fs::write(folder.join("daemon"), daemon).unwrap();
        // No user's locked password, no message of the day.
        fs::write(folder.join("shadow"), "root:*:19000:0:99999:7:::\n").unwrap();
        let mut ssh = Self { network, folder, daemons: Vec::new() };
        ssh.identify_by("user");
        ssh.know(&vec!["host"; hosts]);
        ssh.daemons = (1..hosts).map(|host| start(&mut ssh.daemon(host))).collect();
        for host in 1..hosts {
            eventually(DEADLINE, "the daemon listens", || {
                let probe = format!("exec 3<>/dev/tcp/{}/22", ssh.network.address(host));
                finish(&mut ssh.network.on(0, Command::new("bash").args(["-c", &probe]))).status.success()
            });
        }
        ssh
    }

    fn daemon(&self, host: usize) -> Command {
        let mut daemon = Command::new("sh");
        daemon.args([
            "-c",
            "mount -t tmpfs none /run && mkdir /run/sshd && mount --bind $0/shadow /etc/shadow && \
                            exec /usr/sbin/sshd -D -f $0/daemon",
        ]);
        self.network.on(host, daemon.arg(&self.folder))
    }

    /// The key of the user.
    fn identify_by(&self, key: &str) {
        let here = self.folder.display();
        let mut config = format!("IdentityFile {here}/{key}\nIdentitiesOnly yes\nUserKnownHostsFile {here}/known\n");
        for host in 0..9 {
            config += &format!("Host host{host}\nHostName {}\n", self.network.address(host));
        }
        fs::write(self.folder.join("client/ssh_config"), config).unwrap();
    }

    /// The known keys of the hosts.
    fn know(&self, keys: &[&str]) {
        let key = |name: &str| fs::read_to_string(self.folder.join(name).with_extension("pub")).unwrap_or_default();
        let lines = keys.iter().enumerate().map(|(host, name)| (self.network.address(host), key(name)));
        let known: String = lines.filter(|(_, key)| !key.is_empty()).map(|(at, key)| format!("{at} {key}")).collect();
        fs::write(self.folder.join("known"), known).unwrap();
    }

    /// The same command on the first host, where ssh finds the tests' files and none of the user's.
    fn on_first(&self, command: &Command) -> Command {
        let mut inside = Command::new("sh");
        inside.args([
            "-c",
            "mount --bind $0/client /etc/ssh && { [ ! -d ~/.ssh ] || mount -t tmpfs none ~/.ssh; } && \
                            exec \"$@\"",
        ]);
        inside.arg(&self.folder).arg(command.get_program()).args(command.get_args());
        inside.envs(command.get_envs().filter_map(|(name, value)| Some((name, value?))));
        inside.current_dir(command.get_current_dir().unwrap_or_else(|| Path::new(".")));
        let mut inside = self.network.on(0, &inside);
        inside.env_remove("SSH_AUTH_SOCK").env_remove("ONESIDED_RSH");
        inside
    }

    /// The end of a job that cannot start.
    fn refused(&self, hosts: &str) -> Ended {
        self.refused_within(hosts, "60")
    }

    /// The same with a time for agents to answer.
    fn refused_within(&self, hosts: &str, seconds: &str) -> Ended {
        let mut command = self.on_first(&script(&["--hosts", hosts, "-n", "2"], "true"));
        let ended = finish(command.env("ONESIDED_JOIN_TIMEOUT", seconds));
        assert_eq!(ended.code(), 1, "{ended:?}");
        ended
    }
}

impl Drop for Ssh {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.folder);
    }
}

/// The processes that run a program and descend from one.
pub(super) fn descendants(of: i32, program: &str) -> Vec<i32> {
    let parent = |pid: i32| -> Option<i32> {
        let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
        stat.rsplit_once(") ")?.1.split(' ').nth(1)?.parse().ok()
    };
    let descends = |pid: i32| std::iter::successors(Some(pid), |pid| parent(*pid)).any(|pid| pid == of);
    let named = |pid: &i32| fs::read_to_string(format!("/proc/{pid}/comm")).is_ok_and(|comm| comm.trim() == program);
    let all = fs::read_dir("/proc").unwrap().flatten().filter_map(|entry| entry.file_name().to_str()?.parse().ok());
    all.filter(|pid| named(pid) && descends(*pid)).collect()
}

#[test]
#[ignore = "what the stage hosts of scripts/test starts"]
fn a_job_over_three_hosts() {
    let ssh = Ssh::new(3);
    let mut command = ssh.on_first(&play(&["--hosts", "host0:1,host1:1,host2:2", "-n", "4"], "where"));
    let mut ended = finish(&mut command);
    ended.stdout.sort();
    assert_eq!((ended.code(), &*ended.stderr), (0, ""), "{ended:?}");
    assert_eq!(ended.stdout, (0..4).map(|rank| format!("[{rank}] sum 6 hosts 0 1 2 2")).collect::<Vec<_>>());
    // Variables that ssh does not transfer, and output that fills its channel's window many times.
    let print = "echo $(hostname) $(pwd) $WANTED $UNWANTED; seq 300000 | tail -n 100000; exit $ONESIDED_RANK";
    let mut command = script(&["--hosts", "host1,host2", "-n", "2", "-x", "WANTED"], print);
    let ended = finish(&mut ssh.on_first(command.current_dir("/usr").envs([("WANTED", "w"), ("UNWANTED", "u")])));
    assert_eq!((ended.code(), ended.stdout.len()), (1, 200_002), "{}", ended.stderr);
    for (rank, host) in [(0, "host1"), (1, "host2")] {
        assert!(ended.stdout.contains(&format!("[{rank}] {host} /usr w")), "{:?}", &ended.stdout[..2]);
    }
    let aborted = finish(&mut ssh.on_first(&play(&["--hosts", "host1:2,host2:2", "-n", "4"], "the last rank aborts")));
    assert!(aborted.code() == 7 && aborted.stderr.contains("onesided: rank 3 (pid "), "{aborted:?}");
}

/// ssh prompts for nothing: each question is an error that names the host and the remedy.
#[test]
#[ignore = "what the stage hosts of scripts/test starts"]
fn what_ssh_refuses_names_the_host_and_what_to_do() {
    let ssh = Ssh::new(3);
    let advice = |host: &str| format!("`ssh -x -T -o BatchMode=yes {host} true` has to succeed here without asking");
    let told = |ended: &Ended, host: &str, why: &str| {
        let last = ended.stderr.lines().last().unwrap_or_default();
        let named = last.starts_with(&format!("onesided: start the job: host {host}: ssh did not reach it"));
        assert!(named && last.contains(&advice(host)) && ended.stderr.contains(why), "{host}, {why}: {ended:?}");
    };
    ssh.know(&["", "host", ""]);
    told(&ssh.refused("host1,host2"), "host2", "Host key verification failed");
    ssh.know(&["", "host", "wrong_host"]);
    told(&ssh.refused("host1,host2"), "host2", "REMOTE HOST IDENTIFICATION HAS CHANGED");
    ssh.know(&["", "host", "host"]);
    ssh.identify_by("wrong_user");
    told(&ssh.refused("host1:2"), "host1", "Permission denied (publickey");
    ssh.identify_by("user");
    told(&ssh.refused("host1,host7"), "host7", "No route to host");
    // A host that accepts the connection and stays silent. A host that refuses it meanwhile is
    // reported at once.
    kill(ssh.daemons[0].pid(), Signal::STOP);
    let silent = ssh.refused_within("host1,host2", "5");
    let last = "onesided: start the job: host host1: no agent answered within 5 s (ONESIDED_JOIN_TIMEOUT)";
    assert!(silent.stderr.contains(last) && silent.stderr.contains(&advice("host1")), "{silent:?}");
    ssh.know(&["", "host", ""]);
    let other = ssh.refused("host1,host2");
    told(&other, "host2", "Host key verification failed");
}

/// On a terminal, with an ssh that may ask: it finds no terminal to ask on.
#[test]
#[ignore = "what the stage hosts of scripts/test starts"]
fn a_remote_shell_cannot_ask_behind_the_launchers_back() {
    let ssh = Ssh::new(2);
    ssh.know(&[]);
    let job = format!("{} run --hosts host1 --rsh ssh -n 1 -- true", env!("CARGO_BIN_EXE_onesided"));
    let mut terminal = Command::new("env"); // nohup and scripts' background jobs ignore signals, which is undone here
    let ended = finish(&mut ssh.on_first(terminal.args([
        "--default-signal=HUP,INT,QUIT",
        "script",
        "-qec",
        &job,
        "/dev/null",
    ])));
    assert_eq!(ended.code(), 1, "{ended:?}");
    let said = ended.stdout.join("\n");
    assert!(said.contains("verification failed") && said.contains("`ssh host1 true` has to succeed"), "{said}");
}

/// A rank on each of two other hosts: the launcher, and the processes of the ranks.
fn two_ranks(ssh: &Ssh) -> (Running, Vec<i32>) {
    let sleeping = "trap 'echo caught; exit 0' TERM; echo $$; while :; do sleep 0.1; done";
    let mut command = ssh.on_first(&script(&["--hosts", "host1,host2", "-n", "2"], sleeping));
    let running = start(&mut command);
    let pids = running.line_of_each(2).iter().map(|line| line.parse().unwrap()).collect();
    (running, pids)
}

fn all_gone(pids: &[i32]) {
    eventually(DEADLINE, "the ranks are gone", || !pids.iter().any(|pid| runs(*pid)));
}

#[test]
#[ignore = "what the stage hosts of scripts/test starts"]
fn a_lost_ssh_is_a_lost_host() {
    let ssh = Ssh::new(3);
    type Break = fn(&Ssh, &Running);
    let breaks: [(Break, &[&str]); 3] = [
        (
            |_, job| kill(descendants(job.pid(), "ssh")[0], Signal::KILL),
            &["host host", "is lost with 1 rank: the connection ended, ssh was killed by SIGKILL"],
        ),
        (
            |ssh, _| {
                let daemon = ssh.daemons[0].pid(); // not always the lowest process id: ids wrap around
                let sessions = descendants(daemon, "sshd").into_iter().filter(|pid| *pid != daemon);
                sessions.for_each(|pid| kill(pid, Signal::KILL));
            },
            &["host host1 is lost with 1 rank: the connection ended, ssh exited with status 255"],
        ),
        (|ssh, _| ssh.network.pull(2), &["host host2 is lost with 1 rank: it was silent for"]),
    ];
    for (break_it, told) in breaks {
        let (running, pids) = two_ranks(&ssh);
        break_it(&ssh, &running);
        let ended = running.wait();
        assert_eq!(ended.code(), 1, "{ended:?}");
        assert!(told.iter().all(|told| ended.stderr.contains(told)), "{told:?}: {ended:?}");
        all_gone(&pids);
    }
}

#[test]
#[ignore = "what the stage hosts of scripts/test starts"]
fn control_c_on_a_terminal_ends_all_hosts() {
    let ssh = Ssh::new(3);
    let shell = "trap 'echo caught; exit 0' INT; echo ready; while :; do sleep 0.1; done";
    let job = format!("{} run --hosts host1,host2 -n 2 -- sh -c \"{shell}\"", env!("CARGO_BIN_EXE_onesided"));
    // The terminal of `script` gets the character when both ranks are ready.
    let keyboard = ssh.folder.join("keyboard");
    assert!(finish(Command::new("mkfifo").arg(&keyboard)).status.success());
    let mut terminal = Command::new("env"); // nohup and scripts' background jobs ignore signals, which is undone here
    let open = fs::File::options().read(true).write(true).open(&keyboard).unwrap();
    let mut command =
        ssh.on_first(terminal.args(["--default-signal=HUP,INT,QUIT", "script", "-qec", &job, "/dev/null"]));
    let running = start_with(command.stdin(Stdio::from(open.try_clone().unwrap())));
    // On a terminal, the output of all processes arrives here, ssh's own lines as well.
    let mut ready = 0;
    while ready < 2 {
        let line = running.line();
        ready += usize::from(line.trim_end().ends_with("ready"));
        eprintln!("{line}");
    }
    let agents: Vec<_> = descendants(ssh.daemons[0].pid(), "onesided");
    assert_eq!(agents.len(), 1);
    (&open).write_all(&[3]).unwrap();
    let ended = running.wait();
    let said = ended.stdout.join("\n");
    assert!(ended.code() == 130 && said.matches("caught").count() == 2, "{ended:?}");
    all_gone(&agents);
}
