//! The error of the facade.

use onesided_fabric::{debug, explain, questions};
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
    /// An error of a message: a [`MessageError`](crate::MessageError).
    #[error(transparent)]
    Message(#[from] onesided_two_sided::Error),
}

impl<M> From<onesided_windows::BufferError<M>> for Error {
    fn from(failed: onesided_windows::BufferError<M>) -> Self {
        Self::Window(failed.into())
    }
}

/// A result whose error is [`Error`], for functions that make calls of several kinds. `?` converts
/// their errors:
///
/// | calls of | return |
/// |---|---|
/// | [`World`](crate::World) | [`fabric::Error`](crate::fabric::Error) |
/// | [`Window`](crate::Window), its locks and operations, [`Mutex`](crate::Mutex), [`LockTable`](crate::LockTable) | [`WindowError`](crate::WindowError) |
/// | [`Messages`](crate::Messages) | [`MessageError`](crate::MessageError) |
///
/// The pages call each of the three `Error`. End the function with `?` and `Ok(())`: a last call
/// without `?` has its own error, which is another type.
pub type Result<T, E = Error> = std::result::Result<T, E>;

debug!([] Error, |this| "{}", explain(this));

questions!(Error);

impl Error {
    /// The kind of the fault that caused the error, if a fabric or a peer is the cause.
    #[must_use]
    pub fn kind(&self) -> Option<FaultKind> {
        self.fault().map(Fault::kind)
    }

    /// The fault that caused the error, if a fabric or a peer is the cause.
    #[must_use]
    pub fn fault(&self) -> Option<Fault> {
        match self {
            Self::World(error) => Some(error.fault()),
            Self::Window(error) => error.fault(),
            Self::Message(error) => Some(error.fault()),
        }
    }
}
