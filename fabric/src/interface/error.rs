//! Errors of the fabrics.

use std::{fmt, io};

use onesided_job::explain;
use onesided_remote_memory::{Fault, FaultKind, Rank};

/// The error of a fabric, with its cause and advice.
#[derive(thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The job could not be joined, or its host daemon is gone.
    #[error(transparent)]
    Job(onesided_job::Error),
    /// Memory could not be registered.
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

impl fmt::Debug for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        explain(self, f)
    }
}

/// The questions that every error of the library answers, from its `fault`.
#[doc(hidden)]
#[macro_export]
macro_rules! questions {
    ($error:ty) => {
        impl $error {
            fn is_of(&self, kind: $crate::remote_memory::FaultKind) -> bool {
                Option::from(self.fault()).is_some_and(|fault: $crate::remote_memory::Fault| fault.kind() == kind)
            }

            /// Whether a lock request failed because the lock is poisoned: its exclusive owner
            /// died or left, may have, panicked, or exceeded its lease. [`fault`](Self::fault)
            /// names it. A request with `recover` takes the lock over, except from an expired owner that
            /// `LeasePolicy::Kill` could not kill.
            #[must_use]
            pub fn is_poisoned(&self) -> bool {
                Option::from(self.fault()).is_some_and($crate::remote_memory::Fault::is_poison)
            }

            /// Whether a lock request failed because the exclusive owner died, where the lock
            /// records that; [`fault`](Self::fault) names it.
            #[must_use]
            pub fn is_owner_died(&self) -> bool {
                self.is_of($crate::remote_memory::FaultKind::OwnerDied)
            }

            /// Whether a rank that the operation needs died; [`fault`](Self::fault) names it.
            #[must_use]
            pub fn is_peer_died(&self) -> bool {
                self.is_of($crate::remote_memory::FaultKind::PeerDied)
            }

            /// Whether access between this rank and another was revoked because one of them
            /// exceeded its lease (`LeasePolicy::Revoke`), or because the other rank counts this
            /// one as dead. [`fault`](Self::fault) names the other rank.
            #[must_use]
            pub fn is_revoked(&self) -> bool {
                self.is_of($crate::remote_memory::FaultKind::Revoked)
            }

            /// Whether a deadline passed.
            #[must_use]
            pub fn is_timed_out(&self) -> bool {
                self.is_of($crate::remote_memory::FaultKind::TimedOut)
            }

            /// Whether the operation is indeterminate: it may have taken effect.
            #[must_use]
            pub fn is_unknown(&self) -> bool {
                self.is_of($crate::remote_memory::FaultKind::Unknown)
            }
        }
    };
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
            Self::Job(error) => error.fault(),
            Self::Allocate { fault, .. } | Self::Open { fault, .. } | Self::Operation { fault, .. } => *fault,
            Self::NoFabric { .. } => Fault::new(FaultKind::Refused),
            Self::Verbs { source, .. } => {
                Fault::new(FaultKind::Refused).with_detail(source.raw_os_error().unwrap_or(0) as u32)
            }
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
