//! Errors that give back what was handed over.

use std::fmt;

use crate::Error;

/// Why something failed that had taken memory, and the memory, so far as it could be had back. `?` turns it into the bare
/// error.
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
pub struct BufferError<M>(Box<(Error, Option<M>)>); // boxed: a result is as small as what it is when all goes well

impl<M> BufferError<M> {
    pub(crate) fn new(error: Error, memory: Option<M>) -> Self {
        Self(Box::new((error, memory)))
    }

    /// Why.
    #[must_use]
    pub const fn error(&self) -> &Error {
        &self.0.0
    }

    /// Both; `None` where the memory is lost.
    #[must_use]
    pub fn into_parts(self) -> (Error, Option<M>) {
        *self.0
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

impl<M> fmt::Display for BufferError<M> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self.error(), f)
    }
}

impl<M> fmt::Debug for BufferError<M> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let memory = if self.0.1.is_some() { "given back" } else { "lost" };
        write!(f, "{:?}, the memory is {memory}", self.error())
    }
}
