//! Errors of the fabrics.

use std::io;

use onesided_remote_memory::{Fault, FaultKind, Rank};

/// The error of a fabric, with its cause and advice.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The job could not be joined, or its host daemon is gone.
    #[error(transparent)]
    Job(onesided_job::Error),
    /// Memory could not be registered.
    #[error("allocate {len} bytes: {what}")]
    Allocate {
        /// The requested length in bytes.
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

impl From<onesided_job::Error> for Error {
    /// A failure has one variant, whether the job or the fabric met it.
    fn from(error: onesided_job::Error) -> Self {
        match error {
            onesided_job::Error::Allocate { len, what, fault, source } => Self::Allocate { len, what, fault, source },
            onesided_job::Error::Open { rank, what, fault, source } => Self::Open { rank, what, fault, source },
            onesided_job::Error::Operation { operation, fault } => Self::Operation { operation, fault },
            other => Self::Job(other),
        }
    }
}

impl Error {
    /// The kind of failure.
    #[must_use]
    pub fn fault(&self) -> Fault {
        match self {
            Self::Job(error) => error.fault(),
            Self::Allocate { fault, .. } | Self::Open { fault, .. } | Self::Operation { fault, .. } => *fault,
            Self::NoFabric { .. } => Fault::new(FaultKind::Refused),
            Self::Verbs { source, .. } => {
                Fault::new(FaultKind::Refused).with_detail(source.raw_os_error().unwrap_or(0) as u32)
            }
        }
    }

    /// Names the operation that failed.
    pub fn operation(operation: &'static str) -> impl FnOnce(Fault) -> Self {
        move |fault| Self::Operation { operation, fault }
    }
}
