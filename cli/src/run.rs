//! `onesided run`: starts the processes of a job.

use std::ffi::OsString;
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::process::ExitCode;

use clap::ValueEnum;
use fabric::Error;
use fabric::bootstrap::launcher::{Interrupt, Launch, OnFailure};
use rustix::process::Signal;

use crate::failure::{Failure, USAGE, say};

/// Starts N processes of a program on this host as the ranks of one job.
///
/// Rank 0 reads standard input, the others read nothing. Each line of output begins with its rank when there are
/// several. When a rank fails, the others get 2 s to report it, then SIGTERM, then, 2 s later, SIGKILL; with
/// `--on-failure continue` they go on. The exit status is that of the first rank that failed. Ctrl-C and
/// SIGTERM are forwarded to the ranks, which are killed if they do not end within 2 s; a second one kills them at once.
/// Whatever the ranks have started and left running in their process groups is killed at the job's end.
#[derive(Debug, clap::Args)]
#[command(after_help = "Example:\n  onesided run -n 4 -- ./histogram data.txt")]
pub(crate) struct Args {
    /// How many ranks
    #[arg(short = 'n', long = "ranks", visible_alias = "np", value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    ranks: u32,

    /// What the ranks reach each other's memory by
    #[arg(long, value_enum, default_value_t = FabricName::Shm)]
    fabric: FabricName,

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
    let mut command = args.program.into_iter();
    let launch = Launch {
        size: args.ranks,
        program: command.next().unwrap_or_default(),
        args: command.collect(),
        fabric,
        on_failure: match args.on_failure {
            Policy::Abort => OnFailure::Abort,
            Policy::Continue => OnFailure::Continue,
        },
        labels: args.label || (args.ranks > 1 && !args.no_label),
    };
    let interrupts = interrupts()?;
    match launch.run(&interrupts, &mut |event| say(&event.to_string())) {
        Ok(code) => Ok(code.into()),
        Err(error) => Err(Failure::new(code(&error), error)),
    }
}

/// As shells say it: 127 for a program that is not there, 126 for one that cannot be run.
fn code(error: &Error) -> u8 {
    match error {
        Error::Program { source, .. } if source.kind() == io::ErrorKind::NotFound => 127,
        Error::Program { .. } => 126,
        _ => 1,
    }
}

/// The signals that end a job, but for those that our parent had us ignore (`nohup`, a script's background job).
pub(crate) fn interrupts() -> io::Result<Vec<Interrupt>> {
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
