//! What the library reports.

use std::fmt;

use onesided_remote_memory::{Fault, FaultKind};

/// What the library reports. Every variant names the operation, the peer and the reason.
///
/// Its `Debug` form is for people too, because that is what a `main` that returns it prints.
#[derive(thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// Joining the job, a barrier, or the fabric itself.
    #[error(transparent)]
    World(#[from] onesided_fabric::Error),
    /// A window, its locks, an operation on it: a [`WindowError`](crate::WindowError), which can be matched on.
    #[error(transparent)]
    Window(#[from] onesided_windows::Error),
}

impl<M> From<onesided_windows::BufferError<M>> for Error {
    fn from(failed: onesided_windows::BufferError<M>) -> Self {
        Self::Window(failed.into())
    }
}

/// A result whose error is [`Error`].
pub type Result<T, E = Error> = std::result::Result<T, E>;

impl fmt::Debug for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl Error {
    /// The cause in one word, where a fabric or a peer is the cause.
    #[must_use]
    pub fn fault(&self) -> Option<Fault> {
        match self {
            Self::World(error) => Some(error.fault()),
            Self::Window(error) => error.fault(),
        }
    }

    /// Whether a lock could not be had because a rank died that held it, or that may have:
    /// [`LockRequest::recover`](crate::LockRequest::recover) gets it.
    #[must_use]
    pub fn is_poisoned(&self) -> bool {
        self.fault().is_some_and(|fault| matches!(fault.kind(), FaultKind::OwnerDied | FaultKind::ParticipantDied))
    }

    /// Whether a lock could not be had because the rank that holds it died; [`fault`](Self::fault) names it.
    #[must_use]
    pub fn is_owner_died(&self) -> bool {
        self.fault().is_some_and(|fault| fault.kind() == FaultKind::OwnerDied)
    }

    /// Whether a deadline passed.
    #[must_use]
    pub fn is_timed_out(&self) -> bool {
        self.fault().is_some_and(|fault| fault.kind() == FaultKind::TimedOut)
    }
}
