//! `onesided info`: the abilities of this host, and what is missing.

mod devices;

use std::fs;
use std::io;
use std::process::ExitCode;
use std::sync::atomic::AtomicU32;

use onesided_fabric::bootstrap::Start;
use onesided_fabric::shm::{Mapping, process_vm_works};
use rustix::process::{PidfdFlags, Resource};
use rustix::thread::futex;
use serde::{Deserialize, Serialize};

use crate::fabric::{HAS_VERBS, NO_VERBS};
use crate::failure::Failure;
use crate::info::devices::{Device, Devices};
use crate::output::print;
use crate::run::remote_shell::{RSH, SSH};

/// Shows what this host can do: fabrics and devices, system calls, limits; what is missing and what
/// to install.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// One JSON object instead of text
    #[arg(long)]
    json: bool,
}

/// What is printed. The field names are stable.
#[derive(Debug, Serialize)]
struct Info {
    version: &'static str,
    machine: Machine,
    limits: Limits,
    /// Kernel features that the fabrics need.
    kernel: Vec<Ability>,
    fabrics: Vec<Ability>,
    /// Each port of each RDMA device.
    devices: Vec<Device>,
    launcher: Launcher,
}

#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Machine {
    pub(crate) kernel: String,
    pub(crate) architecture: String,
    /// The number of threads that may run in parallel.
    pub(crate) cores: usize,
    pub(crate) memory_bytes: u64,
}

/// Resource limits; `null` is unlimited.
#[derive(Debug, Serialize)]
struct Limits {
    locked_memory_bytes: Limit,
    descriptors: Limit,
    address_space_bytes: Limit,
}

#[derive(Debug, Serialize)]
struct Limit {
    soft: Option<u64>,
    hard: Option<u64>,
}

#[derive(Debug, Serialize)]
struct Ability {
    name: &'static str,
    available: bool,
    /// The purpose of it, or what is missing and how to get it.
    note: String,
}

#[derive(Debug, Serialize)]
struct Launcher {
    /// Whether this process was started as a rank of a job.
    present: bool,
    /// By what: `onesided run`, `rendezvous`, `PMI-1`.
    kind: Option<&'static str>,
    rank: Option<u32>,
    size: Option<u32>,
    /// The error in the environment variables.
    error: Option<String>,
    /// How `run --hosts` reaches other hosts.
    remote_shell: RemoteShell,
}

#[derive(Debug, Serialize)]
struct RemoteShell {
    /// With its options.
    command: String,
    /// Its path; `null` if it was not found.
    path: Option<String>,
}

impl RemoteShell {
    fn find() -> Self {
        let command = std::env::var(RSH).unwrap_or_else(|_| SSH.to_owned());
        let program = command.split_whitespace().next().unwrap_or_default();
        let folders = std::env::var_os("PATH").unwrap_or_default();
        let mut paths = std::env::split_paths(&folders).map(|folder| folder.join(program));
        let path = paths.find(|path| !program.is_empty() && path.is_file()).map(|path| path.display().to_string());
        Self { command, path }
    }

    fn to_text(&self) -> String {
        match &self.path {
            Some(path) => format!("`run --hosts` uses {path} (`{}`)", self.command),
            None => format!(
                "`run --hosts`: {:?} is not there; Debian: apt install openssh-client, or set ONESIDED_RSH",
                self.command
            ),
        }
    }
}

pub(crate) fn run(args: &Args) -> Result<ExitCode, Failure> {
    let info = Info::collect();
    let text = if args.json { serde_json::to_string_pretty(&info)? + "\n" } else { info.to_text() };
    print(io::stdout().lock(), &text)?;
    Ok(ExitCode::SUCCESS)
}

impl Info {
    fn collect() -> Self {
        let kernel = kernel();
        let devices = Devices::find();
        let (shm, verbs) = (shm(&kernel), verbs(&devices, HAS_VERBS));
        let mixed = mixed(&shm, &verbs);
        let fabrics = vec![shm, verbs, mixed];
        Self {
            version: env!("CARGO_PKG_VERSION"),
            machine: Machine::collect(),
            limits: Limits {
                locked_memory_bytes: Limit::of(Resource::Memlock),
                descriptors: Limit::of(Resource::Nofile),
                address_space_bytes: Limit::of(Resource::As),
            },
            kernel,
            fabrics,
            devices: devices.list,
            launcher: Launcher::collect(),
        }
    }

    fn to_text(&self) -> String {
        let Self { version, machine, limits, kernel, fabrics, devices, launcher } = self;
        let mut text = format!("onesided {version}\n\nmachine\n");
        let mut line = |name: &str, value: &str| text += &format!("  {name:<16} {value}\n");
        line("kernel", &format!("{} ({})", machine.kernel, machine.architecture));
        line("cores", &machine.cores.to_string());
        line("memory", &format!("{} MiB", machine.memory_bytes >> 20));
        line("locked memory", &limits.locked_memory_bytes.bytes());
        line("descriptors", &limits.descriptors.number());
        line("address space", &limits.address_space_bytes.bytes());
        for (title, abilities) in [("kernel", kernel), ("fabrics", fabrics)] {
            text += &format!("\n{title}\n");
            for Ability { name, available, note } in abilities {
                text += &format!("  {name:<16} {:<4} {note}\n", if *available { "yes" } else { "no" });
            }
        }
        text += "\ndevices\n";
        for device in devices {
            text += &format!("  {device}\n");
        }
        if devices.is_empty() {
            text += "  none\n";
        }
        text += &format!("\nlauncher\n  {}\n  {}\n", launcher.to_text(), launcher.remote_shell.to_text());
        text
    }
}

impl Machine {
    pub(crate) fn collect() -> Self {
        let system = rustix::system::uname();
        let memory = rustix::system::sysinfo();
        Self {
            kernel: format!("{} {}", system.sysname().to_string_lossy(), system.release().to_string_lossy()),
            architecture: std::env::consts::ARCH.to_owned(),
            cores: std::thread::available_parallelism().map_or(1, usize::from),
            memory_bytes: memory.totalram as u64 * u64::from(memory.mem_unit),
        }
    }
}

impl Limit {
    fn of(resource: Resource) -> Self {
        let limit = rustix::process::getrlimit(resource);
        Self { soft: limit.current, hard: limit.maximum }
    }

    fn bytes(&self) -> String {
        self.text(|bytes| format!("{} KiB", bytes >> 10))
    }

    fn number(&self) -> String {
        self.text(|number| number.to_string())
    }

    fn text(&self, show: impl Fn(u64) -> String) -> String {
        let show = |limit: Option<u64>| limit.map_or_else(|| "unlimited".to_owned(), &show);
        format!("{} (at most {})", show(self.soft), show(self.hard))
    }
}

impl Launcher {
    fn collect() -> Self {
        let remote_shell = RemoteShell::find();
        let none = Self { present: false, kind: None, rank: None, size: None, error: None, remote_shell };
        let start = match Start::find() {
            Ok(start) => start,
            Err(error) => return Self { error: Some(error.to_string()), ..none },
        };
        let kind = match start {
            Start::Launched(_) => Some("onesided run"),
            Start::Rendezvous(_) => Some("rendezvous"),
            Start::Pmi(_) => Some("PMI-1"),
            _ => None,
        };
        let (rank, size) = start.rank_and_size().map(|(rank, size)| (rank.0, size)).unzip();
        Self { present: kind.is_some(), kind, rank, size, ..none }
    }

    fn to_text(&self) -> String {
        match (self.kind, self.rank.zip(self.size), &self.error) {
            (Some(kind), Some((rank, size)), _) => format!("{kind}: rank {rank} of {size}"),
            (Some(kind), None, _) => format!("{kind}, which assigns the rank"),
            (None, _, Some(error)) => error.clone(),
            (None, ..) => "none: a program started like this is a world of one".to_owned(),
        }
    }
}

/// Tries each ability.
fn kernel() -> Vec<Ability> {
    let tried = |name, tried: io::Result<()>, purpose: &str| Ability {
        name,
        available: tried.is_ok(),
        note: tried.map_or_else(|error| format!("{purpose}: {error}"), |()| purpose.to_owned()),
    };
    let memory = Mapping::create(4096).map(drop);
    // Without FUTEX_PRIVATE_FLAG, because the fabric's futexes are shared between processes.
    let woken = futex::wake(&AtomicU32::new(0), futex::Flags::empty(), 1).map(drop).map_err(Into::into);
    let pidfd = rustix::process::pidfd_open(rustix::process::getpid(), PidfdFlags::empty());
    vec![
        tried("memfd", memory, "sealed anonymous memory"),
        tried("futex", woken, "wakes sleeping ranks"),
        tried("pidfd", pidfd.map(drop).map_err(Into::into), "detects deaths at once"),
        process_vm(),
    ]
}

/// Whether the kernel copies user memory between processes, tried on a child.
fn process_vm() -> Ability {
    let tried = process_vm_works();
    let note = match &tried {
        Ok(()) => "windows over user memory: puts and gets are one copy".to_owned(),
        Err(error) => {
            let scope = fs::read_to_string("/proc/sys/kernel/yama/ptrace_scope").unwrap_or_default();
            let why = match scope.trim() {
                "" | "0" | "1" => String::new(),
                other => format!("; kernel.yama.ptrace_scope is {other}, and has to be 0 or 1"),
            };
            format!("{error}{why}: windows over user memory use their owners' helper threads")
        }
    };
    Ability { name: "process_vm", available: tried.is_ok(), note }
}

fn shm(kernel: &[Ability]) -> Ability {
    let missing = kernel.iter().find(|ability| !ability.available && ability.name != "process_vm");
    Ability {
        name: "shm",
        available: missing.is_none(),
        note: match missing {
            None => "processes and threads of this host".to_owned(),
            Some(ability) => format!("needs {}", ability.name),
        },
    }
}

fn verbs(devices: &Devices, is_built_in: bool) -> Ability {
    let note = match devices {
        _ if !is_built_in => NO_VERBS.to_owned(),
        Devices { error: Some(error), .. } => error.clone(),
        Devices { list, .. } if list.is_empty() => "no RDMA device; Soft-RoCE makes one of any Ethernet card: \
            `modprobe rdma_rxe`, then `rdma link add rxe0 type rxe netdev eth0` (Debian: apt install iproute2)"
            .to_owned(),
        _ => "RDMA cards and Soft-RoCE".to_owned(),
    };
    Ability { name: "verbs", available: is_built_in && devices.usable(), note }
}

fn mixed(shm: &Ability, verbs: &Ability) -> Ability {
    let missing = [shm, verbs].into_iter().find(|ability| !ability.available);
    let note = missing.map_or_else(
        || "puts and gets within a host by shared memory, everything else by cards".to_owned(),
        |missing| format!("needs {}", missing.name),
    );
    Ability { name: "mixed", available: missing.is_none(), note }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_build_without_verbs_says_how_to_get_them() {
        let without = verbs(&Devices { list: Vec::new(), error: None }, false);
        assert!(!without.available && without.note == NO_VERBS);
        let mixed = mixed(&Ability { name: "shm", available: true, note: String::new() }, &without);
        assert!(!mixed.available && mixed.note == "needs verbs");
    }
}
