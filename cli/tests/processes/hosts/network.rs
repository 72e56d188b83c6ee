//! Hosts made of network namespaces, each with its own host name, connected by a switch in another
//! namespace. This machine's network is not touched.

use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};

/// A network of hosts. Dropping removes it with all its processes.
pub(crate) struct Network {
    name: String,
    hosts: usize,
}

fn ip(args: &[&str]) {
    let output = Command::new("ip").args(args).stdin(Stdio::null()).output().unwrap();
    assert!(output.status.success(), "ip {args:?}: {}", String::from_utf8_lossy(&output.stderr));
}

impl Network {
    pub(crate) fn new(hosts: usize) -> Self {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let name = format!("onesided-{}-{}", std::process::id(), COUNT.fetch_add(1, Ordering::Relaxed));
        let network = Self { name, hosts };
        let switch = network.switch();
        ip(&["netns", "add", &switch]);
        ip(&["-n", &switch, "link", "add", "name", "switch", "type", "bridge"]);
        ip(&["-n", &switch, "link", "set", "switch", "up"]);
        for host in 0..hosts {
            let (space, port) = (network.host(host), format!("port{host}"));
            ip(&["netns", "add", &space]);
            ip(&["link", "add", "eth0", "netns", &space, "type", "veth", "peer", "name", &port, "netns", &switch]);
            ip(&["-n", &switch, "link", "set", &port, "master", "switch", "up"]);
            ip(&["-n", &space, "addr", "add", &format!("{}/24", network.address(host)), "dev", "eth0", "nodad"]);
            ip(&["-n", &space, "link", "set", "lo", "up"]);
            ip(&["-n", &space, "link", "set", "eth0", "up"]);
        }
        network
    }

    fn switch(&self) -> String {
        format!("{}-switch", self.name)
    }

    /// The namespace of a host.
    pub(crate) fn host(&self, host: usize) -> String {
        format!("{}-{host}", self.name)
    }

    pub(crate) fn address(&self, host: usize) -> String {
        format!("10.77.0.{}", host + 1)
    }

    /// The same command on a host.
    pub(crate) fn on(&self, host: usize, command: &Command) -> Command {
        let mut inside = Command::new("ip");
        inside.args(["netns", "exec", &self.host(host), "unshare", "--uts", "sh", "-c"]);
        inside.arg(format!("hostname host{host}; exec \"$@\"")).arg("sh");
        inside.arg(command.get_program()).args(command.get_args());
        inside.envs(command.get_envs().filter_map(|(name, value)| Some((name, value?))));
        command.get_current_dir().map(|folder| inside.current_dir(folder));
        inside
    }

    /// Disconnects a host: packets vanish without an error.
    pub(crate) fn pull(&self, host: usize) {
        ip(&["-n", &self.switch(), "link", "set", &format!("port{host}"), "nomaster"]);
    }

    /// Makes each host drop so many percent of incoming packets.
    pub(crate) fn lose(&self, percent: u32) {
        for host in 0..self.hosts {
            let space = self.host(host);
            let netem = ["-n", &space, "qdisc", "add", "dev", "eth0", "root", "netem", "loss", &format!("{percent}%")];
            let netem = Command::new("tc").args(netem).output().unwrap();
            if netem.status.success() {
                continue;
            }
            // Without netem in the kernel, the packet filter drops packets at random.
            let rules = format!(
                "add table inet loss\nadd chain inet loss in {{ type filter hook input priority 0; }}\n\
                 add rule inet loss in iifname eth0 numgen random mod 100 < {percent} drop\n"
            );
            let nft = Command::new("ip").args(["netns", "exec", &space, "nft", &rules]).output().unwrap();
            assert!(nft.status.success(), "neither tc netem nor nft works: {netem:?} {nft:?}");
        }
    }

    /// The processes on a host.
    pub(crate) fn processes(&self, host: usize) -> Vec<String> {
        let output = Command::new("ip").args(["netns", "pids", &self.host(host)]).output().unwrap();
        String::from_utf8_lossy(&output.stdout).lines().map(str::to_owned).collect()
    }
}

impl Drop for Network {
    fn drop(&mut self) {
        for host in 0..self.hosts {
            for pid in self.processes(host) {
                let _ = Command::new("kill").args(["-9", &pid]).stderr(Stdio::null()).status();
            }
            let _ = Command::new("ip").args(["netns", "del", &self.host(host)]).stderr(Stdio::null()).status();
        }
        let _ = Command::new("ip").args(["netns", "del", &self.switch()]).stderr(Stdio::null()).status();
    }
}
