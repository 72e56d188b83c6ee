//! Errors that return the memory of a failed operation.

use onesided_fabric::{debug, display};

use crate::Error;

/// The error of an operation that took ownership of memory, and the memory unless it is lost (as
/// `SendError` returns its message). `?` converts it into the bare [`Error`](crate::Error).
///
/// ```
/// # use onesided_windows::{Buffer, Error, Window};
/// # onesided_fabric::threads(1, |world| {
/// let window = Window::<u64>::allocate(&world, 10).wait()?;
/// let epoch = window.lock_exclusive(0).wait()?;
/// let failed = epoch.put_buffer(8, window.buffer(5)?, 0..5).wait().unwrap_err();
/// assert!(matches!(failed.error(), Error::Range { .. }));
/// let buffer: Buffer<u64> = failed.into_parts().1.unwrap();
/// let buffer = epoch.put_buffer(8, buffer, 0..2).wait()?;
/// # drop(buffer);
/// # epoch.unlock().wait()?;
/// # window.close().wait()
/// # }).unwrap().into_iter().collect::<Result<(), onesided_windows::Error>>().unwrap();
/// ```
pub struct BufferError<M>(Box<(Error, Option<M>)>); // boxed: keeps results small

impl<M> BufferError<M> {
    pub(crate) fn new(error: Error, memory: Option<M>) -> Self {
        Self(Box::new((error, memory)))
    }

    /// The error.
    #[must_use]
    pub const fn error(&self) -> &Error {
        &self.0.0
    }

    /// The error and the memory; `None` where the memory is lost.
    #[must_use]
    pub fn into_parts(self) -> (Error, Option<M>) {
        *self.0
    }
}

impl<M> From<Error> for BufferError<M> {
    fn from(error: Error) -> Self {
        Self::new(error, None)
    }
}

impl<M> From<BufferError<M>> for Error {
    fn from(failed: BufferError<M>) -> Self {
        failed.into_parts().0
    }
}

impl<M> std::error::Error for BufferError<M> {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        self.error().source()
    }
}

display!([M] BufferError<M>, |this| "{}", this.error());

debug!([M] BufferError<M>, |this| "{:?}", this.error());
