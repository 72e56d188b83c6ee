//! What the fabrics and the bootstrap report.

use std::io;

use onesided_remote_memory::{Fault, FaultKind, Rank};

/// What the fabric crate reports: one variant for each thing that can fail, with its source and what to do about it.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// Memory could not be registered.
    #[error("allocate {len} bytes: {what}")]
    Allocate {
        /// How many bytes were asked for.
        len: u64,
        /// Which step failed, and what would help.
        what: String,
        /// The cause in one word.
        fault: Fault,
        /// The system's error, where there is one.
        #[source]
        source: Option<io::Error>,
    },
    /// A peer's memory could not be reached.
    #[error("open a segment of {rank}: {what}")]
    Open {
        /// The owner.
        rank: Rank,
        /// Which step failed, and what would help.
        what: String,
        /// The cause in one word.
        fault: Fault,
        /// The system's error, where there is one.
        #[source]
        source: Option<io::Error>,
    },
    /// An operation failed.
    #[error("{operation}: {fault}")]
    Operation {
        /// Which one.
        operation: &'static str,
        /// Whom it concerned and why.
        fault: Fault,
    },
    /// The job could not be joined.
    #[error("join the job: {what}{}", advice(.source.as_ref()))]
    Join {
        /// Which step failed, and what would help.
        what: String,
        /// The system's error, where there is one.
        #[source]
        source: Option<io::Error>,
    },
    /// Whoever keeps the job refused this process, or this process the keeper: one of them does not know the job's secret.
    #[error("join the job: the secret (ONESIDED_SECRET, ONESIDED_SECRET_FILE) is not the job's")]
    Secret,
    /// The launcher could not start the job or keep it going.
    #[error("start the job: {what}{}", advice(.source.as_ref()))]
    Launch {
        /// Which step failed, and what would help.
        what: String,
        /// The system's error, where there is one.
        #[source]
        source: Option<io::Error>,
    },
    /// The program that a rank was to run cannot be started.
    #[error("start the program {program:?}{}", host.as_ref().map_or_else(String::new, |host| format!(" on host {host}")))]
    Program {
        /// As it was given.
        program: std::ffi::OsString,
        /// Where, if it is not the launcher's own host.
        host: Option<String>,
        /// Why: `NotFound`, `PermissionDenied`, `WouldBlock` (too many processes), ...
        #[source]
        source: io::Error,
    },
    /// The fabric that was asked for is not to be had.
    #[error("fabric {name}: {what}")]
    NoFabric {
        /// Its name.
        name: String,
        /// Why, and what would help.
        what: String,
    },
    /// A call of the verbs library failed.
    #[error("{call}: {source}{hint}")]
    Verbs {
        /// Which one.
        call: &'static str,
        /// Its error number.
        #[source]
        source: io::Error,
        /// What would help, where that is known; begins with `; `.
        hint: &'static str,
    },
}

/// What would help where the system refused, where that is known; begins with `; `.
pub fn advice(source: Option<&io::Error>) -> &'static str {
    use rustix::io::Errno;
    match source.and_then(io::Error::raw_os_error).map(Errno::from_raw_os_error) {
        Some(Errno::NOMEM | Errno::NOSPC) => {
            "; no memory, or a limit on it (see `ulimit -v`, and /dev/shm's file system)"
        }
        Some(Errno::MFILE) => "; no file descriptors left (raise `ulimit -n`)",
        Some(Errno::NFILE) => "; no file descriptors left on this host (see `sysctl fs.file-max`)",
        Some(Errno::FBIG) => "; the limit on the size of files is too small (raise `ulimit -f`)",
        Some(Errno::AGAIN) => "; too many threads, or no memory for another (see `ulimit -u` and `ulimit -v`)",
        _ => "",
    }
}

impl Error {
    /// The cause in one word.
    #[must_use]
    pub fn fault(&self) -> Fault {
        match self {
            Self::Allocate { fault, .. } | Self::Open { fault, .. } | Self::Operation { fault, .. } => *fault,
            Self::Join { .. } | Self::Secret | Self::Launch { .. } | Self::Program { .. } | Self::NoFabric { .. } => {
                Fault::new(FaultKind::Refused)
            }
            Self::Verbs { source, .. } => {
                Fault::new(FaultKind::Refused).with_detail(source.raw_os_error().unwrap_or(0) as u32)
            }
        }
    }

    /// Names the operation that a fault ended.
    pub fn operation(operation: &'static str) -> impl FnOnce(Fault) -> Self {
        move |fault| Self::Operation { operation, fault }
    }
}
