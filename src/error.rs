//! The error of the facade.

use std::fmt;

use onesided_remote_memory::{Fault, FaultKind};

/// Any error of the library. Every variant names the operation, the peer and the reason.
///
/// Its `Debug` form is readable too, because a `main` that returns the error prints that.
#[derive(thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// An error of joining the job, of a barrier, or of the fabric itself.
    #[error(transparent)]
    World(#[from] onesided_fabric::Error),
    /// An error of a window, its locks or an operation on it: a
    /// [`WindowError`](crate::WindowError), which can be matched on.
    #[error(transparent)]
    Window(#[from] onesided_windows::Error),
}

impl From<onesided_fabric::bootstrap::Error> for Error {
    fn from(error: onesided_fabric::bootstrap::Error) -> Self {
        Self::World(error.into())
    }
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
    /// The fault that caused the error, if a fabric or a peer is the cause.
    #[must_use]
    pub fn fault(&self) -> Option<Fault> {
        match self {
            Self::World(error) => Some(error.fault()),
            Self::Window(error) => error.fault(),
        }
    }

    /// Whether the acquire failed because the last exclusive owner of the lock died, may have died,
    /// panicked under it, or exceeded its lease.
    /// [`LockRequest::recover`](crate::handles::LockRequest::recover) acquires it.
    #[must_use]
    pub fn is_poisoned(&self) -> bool {
        self.fault().is_some_and(Fault::is_poison)
    }

    /// Whether the acquire failed because the exclusive owner of the lock died, where the lock
    /// records that; [`fault`](Self::fault) names the owner.
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
