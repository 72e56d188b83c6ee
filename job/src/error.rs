//! Errors of a job, and of the fabrics that join it.

use std::{io, iter};

use onesided_remote_memory::{Fault, FaultKind, Rank, debug, questions};
use rustix::io::Errno;

/// The error of a job or a fabric, with its cause and advice.
#[derive(thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// Memory could not be registered, or published to the other ranks.
    #[error("allocate {}: {what}", requested(*.len))]
    Allocate {
        /// The requested length in bytes; `u64::MAX` if it is more than that.
        len: u64,
        /// The step that failed, and advice.
        what: String,
        /// The kind of failure.
        fault: Fault,
        /// The system's error, if there is one.
        #[source]
        source: Option<io::Error>,
    },
    /// A peer's memory could not be opened.
    #[error("open a segment of {rank}: {what}")]
    Open {
        /// The owner.
        rank: Rank,
        /// The step that failed, and advice.
        what: String,
        /// The kind of failure.
        fault: Fault,
        /// The system's error, if there is one.
        #[source]
        source: Option<io::Error>,
    },
    /// An operation failed.
    #[error("{operation}: {fault}")]
    Operation {
        /// The operation.
        operation: &'static str,
        /// The rank concerned, and the kind of failure.
        fault: Fault,
    },
    /// The job could not be joined.
    #[error("join the job: {what}{}", advice(.source.as_ref()))]
    Join {
        /// The step that failed, and advice.
        what: String,
        /// The system's error, if there is one.
        #[source]
        source: Option<io::Error>,
    },
    /// The host daemon refused this process, or this process the daemon: one of them does not know
    /// the job's secret.
    #[error("join the job: the secret (ONESIDED_SECRET, ONESIDED_SECRET_FILE) is not the job's")]
    Secret,
    /// The launcher could not start the job or keep it running.
    #[error("start the job: {what}{}", advice(.source.as_ref()))]
    Launch {
        /// The step that failed, and advice.
        what: String,
        /// The system's error, if there is one.
        #[source]
        source: Option<io::Error>,
    },
    /// The program of a rank cannot be started.
    #[error("start the program {program:?}{}", host.as_ref().map_or_else(String::new, |host| format!(" on host {host}")))]
    Program {
        /// The program as the user gave it.
        program: std::ffi::OsString,
        /// The host, if it is not the launcher's own.
        host: Option<String>,
        /// The cause: `NotFound`, `PermissionDenied`, `WouldBlock` (too many processes), ...
        #[source]
        source: io::Error,
    },
    /// The requested fabric is not available.
    #[error("fabric {name}: {what}")]
    NoFabric {
        /// Its name.
        name: String,
        /// The reason, and advice.
        what: String,
    },
    /// A call of the verbs library failed.
    #[error("{call}: {source}{hint}")]
    Verbs {
        /// The function.
        call: &'static str,
        /// Its error number.
        #[source]
        source: io::Error,
        /// Advice, where there is any; begins with `; `.
        hint: &'static str,
    },
}

fn requested(len: u64) -> String {
    if len == u64::MAX { "too many bytes".into() } else { format!("{len} bytes") }
}

/// Advice for a refusal of the system, where there is any; begins with `; `.
pub fn advice(source: Option<&io::Error>) -> &'static str {
    match source.and_then(Errno::from_io_error) {
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

debug!([] Error, |this| "{}", explain(this));

/// The text of an error, which `unwrap` and a `main` that returns it print, and its causes unless the text says
/// them.
pub fn explain(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    for cause in iter::successors(error.source(), |cause| cause.source()) {
        let cause = cause.to_string();
        if !text.contains(&cause) {
            text = format!("{text}: {cause}");
        }
    }
    text
}

questions!(Error);

impl Error {
    /// The kind of failure.
    #[must_use]
    pub fn kind(&self) -> FaultKind {
        self.fault().kind()
    }

    /// The kind of failure, and the rank concerned.
    #[must_use]
    pub fn fault(&self) -> Fault {
        match self {
            Self::Allocate { fault, .. } | Self::Open { fault, .. } | Self::Operation { fault, .. } => *fault,
            Self::Verbs { source, .. } => {
                Fault::new(FaultKind::Refused).with_detail(source.raw_os_error().unwrap_or(0) as u32)
            }
            _ => Fault::new(FaultKind::Refused),
        }
    }

    /// Memory of this length could not be registered.
    pub fn allocate(len: u64, what: impl Into<String>, fault: Fault) -> Self {
        Self::Allocate { len, what: what.into(), fault, source: None }
    }

    /// Memory of this rank could not be opened.
    pub fn open(rank: Rank, what: impl Into<String>, kind: FaultKind) -> Self {
        Self::Open { rank, what: what.into(), fault: Fault::of(kind, rank), source: None }
    }

    /// Names the operation that failed.
    pub fn operation(operation: &'static str) -> impl FnOnce(Fault) -> Self {
        move |fault| Self::Operation { operation, fault }
    }
}

/// So many bytes, if there is memory.
///
/// # Errors
/// `ENOMEM`.
pub fn zeroed(len: usize) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    bytes.try_reserve_exact(len).map_err(|_| Errno::NOMEM)?;
    bytes.resize(len, 0);
    Ok(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A number outside the system's range is told without advice.
    #[test]
    fn any_number_of_an_error_has_a_text() {
        for number in [i32::MIN, -1, 0, 1, 12, 4096, i32::MAX] {
            let source = Some(io::Error::from_raw_os_error(number));
            let text = Error::Join { what: "no way".into(), source }.to_string();
            assert_eq!(text == "join the job: no way", number != 12, "{text}");
        }
    }

    #[test]
    fn memory_that_there_is_not_is_an_error() {
        assert_eq!(zeroed(3).unwrap(), [0; 3]);
        let error = zeroed(isize::MAX as usize).unwrap_err();
        assert_eq!(Errno::from_io_error(&error), Some(Errno::NOMEM));
    }
}
