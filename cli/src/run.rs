//! `onesided run`: starts the processes of a job. How agents are started on other hosts lies in the
//! modules below; the launcher knows neither ssh nor Slurm.

mod hosts;
pub(crate) mod remote_shell;
mod slurm;

use std::ffi::OsString;
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use clap::ValueEnum;
use onesided_fabric::bootstrap::Error;
use onesided_fabric::bootstrap::launcher::{Event, Hosts, Interrupt, Launch, OnFailure, StatisticsFormat};
use rustix::process::Signal;

use crate::fabric::FabricName;
use crate::failure::{Failure, USAGE, say};
use crate::run::remote_shell::{RSH, RemoteShell, SSH};

/// Starts N processes of a program as the ranks of one job, on this host or, with `--hosts`, on
/// several.
///
/// Rank 0 reads standard input; the standard input of the others is empty. With several ranks, each
/// line of output begins with its rank. When a rank fails, the others get 2 s to report it, then
/// SIGTERM, and SIGKILL 2 s later; with `--on-failure continue` they go on. The exit status is that
/// of the first rank that failed. Ctrl-C and SIGTERM are forwarded to the ranks, which are killed
/// if they do not end within 2 s; a second signal kills them at once. Processes that the ranks have
/// started and left running in their process groups are killed at the job's end.
///
/// With `--hosts`, ssh starts `onesided` on each other host. It has to have the same path there as
/// here (or that of --agent), and so does the program. ssh must not prompt: `ssh -o BatchMode=yes
/// HOST true` has to succeed from here. The ranks have the same working directory, the variables
/// ONESIDED_*, and those that `--export` names. Rank 0 gets standard input only if it runs on this
/// host. A host that is silent for ONESIDED_SUSPECT_AFTER seconds (5) is lost, and its ranks have
/// failed. Between hosts, ranks access memory by `--fabric verbs` or `mixed`; shared memory
/// connects only ranks of one host.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:\n  onesided run -n 4 -- ./histogram data.txt\n  \
    onesided run --hosts alpha:2,beta:2 --fabric verbs -- ./histogram data.txt\n  \
    sbatch -N 2 -n 4 --wrap 'onesided run --hosts slurm --fabric verbs -- ./histogram data.txt'")]
pub(crate) struct Args {
    /// How many ranks [default with `--hosts`: as many as these take]
    #[arg(
        short = 'n',
        long = "ranks",
        visible_alias = "np",
        value_name = "N",
        value_parser = clap::value_parser!(u32).range(1..),
        required_unless_present = "hosts"
    )]
    ranks: Option<u32>,

    /// How the ranks access each other's memory
    #[arg(long, value_enum, default_value_t = FabricName::Shm)]
    fabric: FabricName,

    /// The hosts and how many ranks each takes, as in `a:2,b:4`, or a file (with a `/` in its name)
    /// with a host a line; each is filled before the next. `slurm`: the hosts of the current Slurm
    /// allocation, reached by srun
    #[arg(long, value_name = "LIST")]
    hosts: Option<String>,

    /// The remote shell and its options, called with a host and a command line. Split at white
    /// space, regardless of quotes; use a script for anything else [env: ONESIDED_RSH] [default:
    /// ssh -x -T -o BatchMode=yes]
    // Not clap's `env`: a set variable would count as a given option, which `requires` hosts.
    #[arg(long, value_name = "COMMAND", requires = "hosts")]
    rsh: Option<String>,

    /// The path of `onesided` on the other hosts, if not the same as here
    #[arg(long, value_name = "PATH", requires = "hosts")]
    agent: Option<PathBuf>,

    /// A variable that the ranks on other hosts get, beside ONESIDED_*; may be given several times
    #[arg(short = 'x', long = "export", value_name = "NAME", requires = "hosts")]
    export: Vec<OsString>,

    /// What happens to the other ranks when one fails
    #[arg(long, value_enum, default_value_t = Policy::Abort)]
    on_failure: Policy,

    /// Show who waits for whom when a rank has waited so many seconds in one call. The job goes on
    #[arg(long, value_name = "SECONDS", value_parser = clap::value_parser!(u64).range(1..))]
    stuck_after: Option<u64>,

    /// Show at the end how many messages, and bytes, the job has sent by each channel, on standard error.
    /// What a rank has sent counts when it has dropped its communicators; ONESIDED_STATISTICS=1 has each
    /// rank write lines of its own
    #[arg(long)]
    statistics: bool,

    /// Show the statistics as one line of JSON
    #[arg(long, requires = "statistics")]
    json: bool,

    /// Begin each line of output with its rank, even if there is only one rank
    #[arg(short = 'l', long, conflicts_with = "no_label")]
    label: bool,

    /// Do not begin lines of output with the rank (lines stay whole)
    #[arg(long, visible_alias = "no-prefix")]
    no_label: bool,

    /// The program and its arguments
    #[arg(required = true, trailing_var_arg = true, allow_hyphen_values = true, value_name = "PROGRAM ARGS")]
    program: Vec<OsString>,
}

#[derive(Debug, Clone, Copy, ValueEnum)]
enum Policy {
    /// End the job
    Abort,
    /// Let them go on; operations that wait for the failed rank return an error
    Continue,
}

pub(crate) fn run(args: Args) -> Result<ExitCode, Failure> {
    let fabric = args.fabric.built_in()?.to_owned();
    let hosts = args.hosts.as_deref().map(|list| hosts(list, &args)).transpose()?;
    let mut command = args.program.into_iter();
    // The sum may overflow; there are too many ranks then in any case.
    let slots = hosts.iter().flat_map(|hosts| &hosts.list).fold(0_u32, |sum, host| sum.saturating_add(host.slots));
    let size = args.ranks.unwrap_or(slots);
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
        stuck_after: args.stuck_after.map(Duration::from_secs),
        statistics: args.statistics.then_some(match args.json {
            true => StatisticsFormat::Json,
            false => StatisticsFormat::Table,
        }),
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
    let in_slurm = list == "slurm";
    let default = if in_slurm { slurm::SRUN } else { SSH };
    let named = args.rsh.clone().or_else(|| std::env::var(RSH).ok());
    let before_line: &[_] = if in_slurm && named.is_none() { &["sh", "-c"] } else { &[] };
    let shell = RemoteShell::new(named.as_deref().unwrap_or(default), before_line, &agent);
    let shell = shell.ok_or_else(|| Failure::new(USAGE, "--rsh (ONESIDED_RSH) names no command"))?;
    let list = if in_slurm { slurm::allocation() } else { hosts::parse(list) };
    let list = list.map_err(|error| Failure::new(USAGE, error))?;
    Ok(Hosts { list, start: Box::new(shell), export: args.export.clone() })
}

/// `onesided agent`, which `run --hosts` starts on other hosts.
pub(crate) fn agent() -> Result<ExitCode, Failure> {
    keep_children()?;
    onesided_fabric::bootstrap::launcher::agent()?;
    Ok(ExitCode::SUCCESS)
}

/// As in shells: 127 for a program that was not found, 126 for one that cannot be executed.
fn code(error: &Error) -> u8 {
    match error {
        Error::Program { source, .. } if source.kind() == io::ErrorKind::NotFound => 127,
        Error::Program { .. } => 126,
        _ => 1,
    }
}

/// Handles SIGCHLD. If the parent of this process has ignored it, the kernel would reap ended
/// children, and their exit statuses would be lost.
pub(crate) fn keep_children() -> io::Result<()> {
    let unused = Arc::new(AtomicBool::new(false));
    signal_hook::flag::register(Signal::CHILD.as_raw(), unused).map(drop)
}

/// The signals that end a job, except for those that the parent of this process has ignored
/// (`nohup`, a script's background job).
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

/// The mask of ignored signals; empty if the kernel does not report it.
fn ignored() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let mask = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    mask.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok()).unwrap_or(0)
}
