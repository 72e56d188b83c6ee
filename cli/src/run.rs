//! `onesided run`: starts the processes of a job.

use std::ffi::OsString;
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use clap::ValueEnum;
use onesided_fabric::Error;
use onesided_fabric::bootstrap::launcher::{Event, Hosts, Interrupt, Launch, OnFailure, SRUN, Slots};
use rustix::process::Signal;

use crate::failure::{Failure, USAGE, say};

/// Names the remote shell.
pub(crate) const RSH: &str = "ONESIDED_RSH";
/// If that is not set.
pub(crate) const SSH: &str = "ssh -x -T -o BatchMode=yes";

/// Starts N processes of a program as the ranks of one job, on this host or, with `--hosts`, on several.
///
/// Rank 0 reads standard input, the others read nothing. Each line of output begins with its rank when there are
/// several. When a rank fails, the others get 2 s to report it, then SIGTERM, then, 2 s later, SIGKILL; with
/// `--on-failure continue` they go on. The exit status is that of the first rank that failed. Ctrl-C and
/// SIGTERM are forwarded to the ranks, which are killed if they do not end within 2 s; a second one kills them at once.
/// Whatever the ranks have started and left running in their process groups is killed at the job's end.
#[derive(Debug, clap::Args)]
///
/// With `--hosts` ssh starts `onesided` on each other host, where it has to lie in the same place as here (or --agent), as
/// has the program. ssh asks nobody: `ssh -o BatchMode=yes HOST true` has to succeed from here. The ranks have the same
/// working directory, and the variables ONESIDED_* and those that `--export` names. Standard input goes to rank 0 only if it
/// runs on this host. A host that is silent for ONESIDED_SUSPECT_AFTER seconds (5) is lost, and that is a failure of its
/// ranks. Between hosts memory is reached by `--fabric verbs` or `mixed`; shared memory joins ranks of one host only.
#[command(after_help = "Examples:\n  onesided run -n 4 -- ./histogram data.txt\n  \
    onesided run --hosts alpha:2,beta:2 --fabric verbs -- ./histogram data.txt\n  \
    sbatch -N 2 -n 4 --wrap 'onesided run --hosts slurm --fabric verbs -- ./histogram data.txt'")]
pub(crate) struct Args {
    /// How many ranks; with `--hosts`, if not said, as many as they take
    #[arg(
        short = 'n',
        long = "ranks",
        visible_alias = "np",
        value_name = "N",
        value_parser = clap::value_parser!(u32).range(1..),
        required_unless_present = "hosts"
    )]
    ranks: Option<u32>,

    /// What the ranks reach each other's memory by
    #[arg(long, value_enum, default_value_t = FabricName::Shm)]
    fabric: FabricName,

    /// The hosts and how many ranks each takes, `a:2,b:4`, or a file (with a `/` in its name) with a host a line; each is
    /// filled before the next. `slurm`: those of the Slurm allocation that this is called in, reached by srun
    #[arg(long, value_name = "LIST")]
    hosts: Option<String>,

    /// The remote shell and its options, called with a host and a command line. Split at white space, without regard to
    /// quotes: what needs more is a script [env: ONESIDED_RSH] [default: ssh -x -T -o BatchMode=yes]
    // The variable is read where it is needed: clap takes it for an option given, which `requires` hosts.
    #[arg(long, value_name = "COMMAND", requires = "hosts")]
    rsh: Option<String>,

    /// Where `onesided` is on the other hosts, if not in the same place as here
    #[arg(long, value_name = "PATH", requires = "hosts")]
    agent: Option<PathBuf>,

    /// A variable that the ranks on other hosts get, beside ONESIDED_*; as often as needed
    #[arg(short = 'x', long = "export", value_name = "NAME", requires = "hosts")]
    export: Vec<OsString>,

    /// What becomes of the other ranks when one fails
    #[arg(long, value_enum, default_value_t = Policy::Abort)]
    on_failure: Policy,

    /// Begin each line of output with its rank, even if there is only one
    #[arg(short = 'l', long, conflicts_with = "no_label")]
    label: bool,

    /// Leave the lines of output as they are (they stay whole)
    #[arg(long, visible_alias = "no-prefix")]
    no_label: bool,

    /// The program and its arguments
    #[arg(required = true, trailing_var_arg = true, allow_hyphen_values = true, value_name = "PROGRAM ARGS")]
    program: Vec<OsString>,
}

#[derive(Debug, Clone, Copy, ValueEnum)]
pub(crate) enum FabricName {
    /// Shared memory of this host; needs nothing installed
    Shm,
    /// RDMA cards and Soft-RoCE by libibverbs
    Verbs,
    /// Both: shared memory between ranks of one host, cards between hosts, and for all locks and atomics
    Mixed,
}

impl FabricName {
    /// Its name for the library, if this program was built with it.
    pub(crate) fn built_in(self) -> Result<&'static str, Failure> {
        match self {
            Self::Shm => Ok("shm"),
            Self::Verbs if cfg!(feature = "verbs") => Ok("verbs"),
            Self::Mixed if cfg!(feature = "verbs") => Ok("mixed"),
            Self::Verbs | Self::Mixed => Err(Failure::new(USAGE, crate::info::NO_VERBS)),
        }
    }
}

#[derive(Debug, Clone, Copy, ValueEnum)]
enum Policy {
    /// End the job
    Abort,
    /// Let them go on; what waits for the failed rank gets an error
    Continue,
}

pub(crate) fn run(args: Args) -> Result<ExitCode, Failure> {
    let fabric = args.fabric.built_in()?.to_owned();
    let hosts = args.hosts.as_deref().map(|list| hosts(list, &args)).transpose()?;
    let mut command = args.program.into_iter();
    // The sum of what fits a number each may not fit one; then there are too many in any case.
    let room = hosts.iter().flat_map(|hosts| &hosts.list).fold(0_u32, |sum, host| sum.saturating_add(host.slots));
    let size = args.ranks.unwrap_or(room);
    let launch = Launch {
        size,
        program: command.next().unwrap_or_default(),
        args: command.collect(),
        fabric,
        on_failure: match args.on_failure {
            Policy::Abort => OnFailure::Abort,
            Policy::Continue => OnFailure::Continue,
        },
        labels: args.label || (size > 1 && !args.no_label),
    };
    let interrupts = interrupts()?;
    let observe = &mut |event: Event| say(&event.to_string());
    let ended = match &hosts {
        Some(hosts) => launch.run_on(hosts, &interrupts, observe),
        None => launch.run(&interrupts, observe),
    };
    match ended {
        Ok(code) => Ok(code.into()),
        Err(error) => Err(Failure::new(code(&error), error)),
    }
}

fn hosts(list: &str, args: &Args) -> Result<Hosts, Failure> {
    let agent = args.agent.clone().map_or_else(std::env::current_exe, Ok)?;
    let slurm = list == "slurm";
    let default = if slurm { SRUN } else { SSH };
    let named = args.rsh.clone().or_else(|| std::env::var(RSH).ok());
    let rsh: Vec<_> = named.as_deref().unwrap_or(default).split_whitespace().map(OsString::from).collect();
    if rsh.is_empty() {
        return Err(Failure::new(USAGE, "--rsh (ONESIDED_RSH) names no command"));
    }
    let before_line = if slurm && named.is_none() { vec!["sh".into(), "-c".into()] } else { vec![] };
    let list = if slurm { Slots::of_slurm() } else { Slots::parse(list) };
    let list = list.map_err(|error| Failure::new(USAGE, error))?;
    Ok(Hosts { list, rsh, before_line, agent, export: args.export.clone() })
}

/// `onesided agent`: what `run --hosts` starts elsewhere.
pub(crate) fn agent() -> Result<ExitCode, Failure> {
    keep_children()?;
    onesided_fabric::bootstrap::launcher::agent()?;
    Ok(ExitCode::SUCCESS)
}

/// As shells say it: 127 for a program that is not there, 126 for one that cannot be run.
fn code(error: &Error) -> u8 {
    match error {
        Error::Program { source, .. } if source.kind() == io::ErrorKind::NotFound => 127,
        Error::Program { .. } => 126,
        _ => 1,
    }
}

/// Has ended children wait for us though our parent ignores SIGCHLD: the kernel would reap them, and nobody knew how they
/// ended.
pub(crate) fn keep_children() -> io::Result<()> {
    let unused = Arc::new(AtomicBool::new(false));
    signal_hook::flag::register(Signal::CHILD.as_raw(), unused).map(drop)
}

/// The signals that end a job, but for those that our parent had us ignore (`nohup`, a script's background job).
pub(crate) fn interrupts() -> io::Result<Vec<Interrupt>> {
    keep_children()?;
    let ignored = ignored();
    [Signal::INT, Signal::TERM, Signal::HUP]
        .into_iter()
        .filter(|signal| ignored & 1 << (signal.as_raw() - 1) == 0)
        .map(|signal| {
            let (raised, handler) = UnixStream::pair()?;
            raised.set_nonblocking(true)?;
            signal_hook::low_level::pipe::register(signal.as_raw(), handler)?;
            Ok(Interrupt { signal, raised: OwnedFd::from(raised) })
        })
        .collect()
}

/// The mask of ignored signals; none where the kernel does not say.
fn ignored() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let mask = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    mask.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok()).unwrap_or(0)
}
