//! Slurm itself: its daemons on hosts of a network of namespaces, `srun`, `salloc`, and `onesided
//! run --hosts slurm`.

use std::fs;
use std::path::PathBuf;
use std::process::Command;

use rustix::process::Signal;

use crate::hosts::network::Network;
use crate::hosts::ssh::descendants;
use crate::ranks::{play, plays};
use crate::rendezvous::Place;
use crate::support::{DEADLINE, Ended, Running, eventually, finish, kill, runs, script, start};

/// Three nodes, host0 to host2, with four tasks each at most. All files are in one folder.
struct Slurm {
    network: Network,
    folder: PathBuf,
    _daemons: Vec<Running>,
}

const NODES: usize = 3;

impl Slurm {
    fn new() -> Self {
        let network = Network::new(NODES);
        let folder = std::env::temp_dir().join(network.host(0));
        for needed in ["", "state", "spool-host0", "spool-host1", "spool-host2"] {
            fs::create_dir_all(folder.join(needed)).unwrap();
        }
        let here = folder.display();
        let mut config = format!(
            "ClusterName=test\nSlurmctldHost=host0({})\nSlurmUser=root\nAuthType=auth/munge\nCredType=cred/munge\n\
             AuthInfo=socket={here}/munge.socket\nStateSaveLocation={here}/state\nSlurmdSpoolDir={here}/spool-%n\n\
             SlurmctldPidFile={here}/slurmctld.pid\nSlurmdPidFile={here}/slurmd-%n.pid\n\
             SlurmctldLogFile={here}/slurmctld.log\nSlurmdLogFile={here}/slurmd-%n.log\n\
             ProctrackType=proctrack/linuxproc\nTaskPlugin=task/affinity\nSwitchType=switch/none\nMpiDefault=none\n\
             SelectType=select/cons_tres\nSelectTypeParameters=CR_CPU\nSlurmdParameters=config_overrides\n\
             PartitionName=all Nodes=host[0-2] Default=YES State=UP\n",
            network.address(0)
        );
        for host in 0..NODES {
            config += &format!("NodeName=host{host} NodeAddr={} CPUs=4\n", network.address(host));
        }
        fs::write(folder.join("slurm.conf"), config).unwrap();
        fs::write(folder.join("cgroup.conf"), "CgroupPlugin=cgroup/v1\n").unwrap(); // no cgroup is used or searched for
        let mut slurm = Self { network, folder, _daemons: Vec::new() };
        let file = |name: &str| slurm.folder.join(name).display().to_string();
        let munge = format!(
            "umask 077; head -c 1024 /dev/urandom >$0/munge.key; exec munged --foreground --force --key-file $0/munge.key \
             --socket $0/munge.socket --pid-file {} --log-file {} --seed-file {}",
            file("munge.pid"),
            file("munge.log"),
            file("munge.seed")
        );
        let mut munged = Command::new("sh");
        munged.args(["-c", &munge]).arg(&slurm.folder);
        let mut daemons = vec![start(&mut slurm.network.on(0, &munged))];
        eventually(DEADLINE, "munge answers", || slurm.folder.join("munge.socket").exists());
        daemons.push(start(&mut slurm.command(0, "slurmctld", &["-D", "-i"])));
        daemons.extend((0..NODES).map(|host| start(&mut slurm.command(host, "slurmd", &["-D"]))));
        slurm._daemons = daemons;
        eventually(DEADLINE, "the nodes are idle", || {
            let told = finish(&mut slurm.command(0, "sinfo", &["--noheader", "--format=%T %D"]));
            told.stdout == [format!("idle {NODES}")]
        });
        slurm
    }

    fn command(&self, host: usize, program: &str, args: &[&str]) -> Command {
        let mut command = Command::new(program);
        command.args(args).env("SLURM_CONF", self.folder.join("slurm.conf"));
        self.network.on(host, &command)
    }

    /// `srun` or `salloc` with these options and a command.
    fn start(&self, program: &str, options: &[&str], of: &Command) -> Running {
        let mut command = Command::new(program);
        command.args(options).arg(of.get_program()).args(of.get_args());
        command.envs(of.get_envs().filter_map(|(name, value)| Some((name, value?))));
        command.env("SLURM_CONF", self.folder.join("slurm.conf"));
        start(&mut self.network.on(0, &command))
    }

    fn finish(&self, program: &str, options: &[&str], of: &Command) -> Ended {
        let mut ended = self.start(program, options, of).wait();
        ended.stdout.sort();
        ended
    }
}

impl Drop for Slurm {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.folder);
    }
}

/// One test, because the daemons start slowly.
#[test]
#[ignore = "what the stage slurm of scripts/test starts"]
fn slurm_starts_jobs_over_three_nodes() {
    let slurm = Slurm::new();
    let place = ["-N3", "-n4", "--quiet"];

    // By its PMI socket: on one node, and on several.
    for (options, told) in [(["-N1", "-n3", "--quiet"], "sum 3 hosts 0 0 0"), (place, "sum 6 hosts 0 0 1 2")] {
        let ended = slurm.finish("srun", &[&["--mpi=pmi2"], &options[..]].concat(), &plays("where"));
        assert!(ended.code() == 0 && ended.stdout == vec![told; ended.stdout.len()], "{ended:?}");
        assert_eq!(ended.stdout.len(), told.split(' ').count() - 3, "{ended:?}");
    }

    // Without the socket, tasks cannot find one another: an error, not several worlds of one rank.
    let ended = slurm.finish("srun", &["-N1", "-n2", "--quiet"], &plays("fail to join"));
    assert!(ended.stdout.len() == 2 && ended.stdout.iter().all(|line| line.contains("`srun --mpi=pmi2`")), "{ended:?}");

    // With a secret and an address, Slurm's variables give each rank.
    let place_to_meet = Place::at(&format!("{}:7000", slurm.network.address(0)));
    let mut meeting = plays("where");
    place_to_meet.set(&mut meeting, 0, 4);
    let meeting = meeting.env_remove("ONESIDED_RANK").env_remove("ONESIDED_SIZE");
    let ended = slurm.finish("srun", &place, meeting);
    assert!(ended.code() == 0 && ended.stdout == ["sum 6 hosts 0 0 1 2"; 4], "{ended:?}");

    // In an allocation, `onesided run` by srun. Arbitrary bytes, more than a pipe holds, are
    // forwarded.
    let job = ["--hosts", "slurm"];
    let ended = slurm.finish("salloc", &place, &play(&job, "where"));
    assert_eq!((ended.code(), &*ended.stderr), (0, ""), "{ended:?}");
    assert_eq!(ended.stdout, (0..4).map(|rank| format!("[{rank}] sum 6 hosts 0 0 1 2")).collect::<Vec<_>>());
    let print = "hostname; seq 100000; exit $((ONESIDED_RANK * 7))";
    let ended = slurm.finish("salloc", &["-N3", "-n3", "--quiet"], &script(&["--hosts", "slurm", "-n", "3"], print));
    assert!([7, 14].contains(&ended.code()) && ended.stdout.len() == 300_003, "{}", ended.stderr);
    assert!((0..3).all(|rank| ended.stdout.contains(&format!("[{rank}] host{rank}"))));

    // One rank aborts the job. srun reports the highest status, which a rank has that was killed.
    for (program, options, of) in [
        ("srun", [&["--mpi=pmi2"], &place[..]].concat(), plays("the last rank aborts")),
        ("salloc", place.to_vec(), play(&job, "the last rank aborts")),
    ] {
        let ended = slurm.finish(program, &options, &of);
        assert!(ended.code() == 7 || program == "srun" && ended.code() == 137, "{program}: {ended:?}");
        let pids = ended.stdout.iter().map(|line| line.rsplit(' ').next().unwrap().parse().unwrap());
        assert_eq!(pids.filter(|pid| runs(*pid)).count(), 0, "{program}: {ended:?}");
    }

    // A lost node.
    let sleeping = script(&["--hosts", "slurm", "-n", "3"], "echo $$; exec sleep 60");
    let running = slurm.start("salloc", &["-N3", "-n3", "--quiet"], &sleeping);
    let pids: Vec<i32> = running.line_of_each(3).iter().map(|line| line.parse().unwrap()).collect();
    // srun has a child of its own.
    let sruns = descendants(running.pid(), "srun");
    sruns.iter().for_each(|pid| kill(*pid, Signal::KILL));
    let ended = running.wait();
    assert!(ended.code() == 1 && ended.stderr.contains("is lost with 1 rank"), "{sruns:?} {ended:?}");
    eventually(DEADLINE, "the ranks are gone", || !pids.iter().any(|pid| runs(*pid)));

    // Outside an allocation.
    let outside = finish(&mut slurm.network.on(0, &script(&["--hosts", "slurm", "-n", "1"], "true")));
    assert!(outside.code() == 2 && outside.stderr.contains("in an allocation"), "{outside:?}");
}
