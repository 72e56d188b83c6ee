//! Events that the launcher reports to its caller.

use std::fmt;

use onesided_remote_memory::{Rank, debug};
use rustix::process::Signal;

/// An event in a running job.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum Event {
    /// A rank failed.
    Failed {
        /// The rank.
        rank: Rank,
        /// Its process.
        pid: i32,
        /// How the process ended.
        end: End,
    },
    /// A host was lost with all ranks that still ran on it.
    HostLost {
        /// Its name.
        host: String,
        /// The number of ranks lost.
        ranks: usize,
        /// The cause: its stream ended, or it was silent.
        why: String,
    },
    /// The survivors of a failure did not end by themselves; the launcher sends them a signal.
    Stopping {
        /// The number of survivors.
        left: usize,
        /// The signal.
        signal: Signal,
    },
    /// Output of the ranks could not be written, because of a full disk for example.
    OutputLost {
        /// The system's error number.
        errno: i32,
    },
}

/// How a process ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub enum End {
    /// With this status.
    Exited(u8),
    /// With status 0, but without leaving the job that it had joined: its peers may wait for it.
    Deserted,
    /// By this signal.
    Killed(i32),
    /// Unknown: its host was lost.
    Lost,
    /// It aborted the job, with this status.
    Aborted(u8),
}

impl End {
    /// The shells' exit status: 128 + n for signal n.
    pub(crate) const fn code(self) -> u8 {
        match self {
            Self::Exited(status) | Self::Aborted(status) => status,
            Self::Deserted | Self::Lost => 1,
            Self::Killed(signal) => 128 + (signal as u8 & 0x7f),
        }
    }
}

impl fmt::Display for Event {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Failed { rank, pid, end } => write!(f, "{rank} (pid {pid}) {end}"),
            Self::HostLost { host, ranks, why } => {
                let ranks = if *ranks == 1 { "1 rank".to_owned() } else { format!("{ranks} ranks") };
                write!(f, "host {host} is lost with {ranks}: {why}")
            }
            Self::Stopping { left, signal } => {
                let ranks = if *left == 1 { "rank" } else { "ranks" };
                write!(f, "sending {} to the {left} {ranks} still running", Named(signal.as_raw()))
            }
            Self::OutputLost { errno } => {
                write!(f, "the ranks' output cannot be written: {}", std::io::Error::from_raw_os_error(*errno))
            }
        }
    }
}

impl fmt::Display for End {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Exited(status) => write!(f, "exited with status {status}"),
            Self::Deserted => f.write_str("exited with status 0 without leaving the job"),
            Self::Killed(signal) => write!(f, "was killed by {}", Named(*signal)),
            Self::Lost => f.write_str("was lost with its host"),
            Self::Aborted(status) => write!(f, "aborted the job with status {status}"),
        }
    }
}

/// A signal by name and number.
struct Named(i32);

impl fmt::Display for Named {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name = match Signal::from_named_raw(self.0) {
            Some(Signal::HUP) => "SIGHUP",
            Some(Signal::INT) => "SIGINT",
            Some(Signal::QUIT) => "SIGQUIT",
            Some(Signal::ILL) => "SIGILL",
            Some(Signal::TRAP) => "SIGTRAP",
            Some(Signal::ABORT) => "SIGABRT",
            Some(Signal::BUS) => "SIGBUS",
            Some(Signal::FPE) => "SIGFPE",
            Some(Signal::KILL) => "SIGKILL",
            Some(Signal::SEGV) => "SIGSEGV",
            Some(Signal::PIPE) => "SIGPIPE",
            Some(Signal::TERM) => "SIGTERM",
            _ => return write!(f, "signal {}", self.0),
        };
        write!(f, "{name} (signal {})", self.0)
    }
}

/// How a rank ended.
pub(super) struct Ended {
    pub(super) rank: Rank,
    pub(super) pid: i32,
    pub(super) end: End,
    /// A remote rank: its agent has updated the job segment, and it failed.
    pub(super) remote: bool,
}

debug!([] Ended, |this| "{} {}", this.rank, this.end);
