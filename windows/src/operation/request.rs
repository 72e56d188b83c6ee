//! What every call that waits for something gives.

use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll};

use onesided_fabric::{Drive, Fabric, block_on, handle};

use crate::Error;

/// A call to be waited for: [`wait`](Self::wait) blocks, `.await` does not, [`test`](Self::test) only looks. Nothing
/// happens before. What it does, and what it means to drop it, is said where it comes from.
///
/// It gives its result once: it is not to be tested, awaited or waited for again after that.
#[must_use = "nothing happens before it is waited for"]
pub struct Request<'a, R, F: Fabric, E = Error> {
    fabric: F,
    operation: &'static str,
    future: Pin<Box<dyn Future<Output = Result<R, E>> + Send + 'a>>,
}

impl<'a, R, F: Fabric, E> Request<'a, R, F, E> {
    pub(crate) fn new(
        fabric: F,
        operation: &'static str,
        future: impl Future<Output = Result<R, E>> + Send + 'a,
    ) -> Self {
        Self { fabric, operation, future: Box::pin(future) }
    }
}

impl<R, F: Drive, E> Request<'_, R, F, E> {
    /// Blocks until it is done.
    ///
    /// # Errors
    /// Those of the call that gave it.
    pub fn wait(self) -> Result<R, E> {
        block_on(&self.fabric, self.future)
    }
}

handle!(['a, R, F, E], Request<'a, R, F, E>, R, E, |request| &request.fabric.clone());

// Nothing in it is pinned in place: what must not move is boxed.
impl<R, F: Fabric, E> Unpin for Request<'_, R, F, E> {}

impl<R, F: Fabric, E> Future for Request<'_, R, F, E> {
    type Output = Result<R, E>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        self.future.as_mut().poll(cx)
    }
}

impl<R, F: Fabric, E> fmt::Debug for Request<'_, R, F, E> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}, to be waited for", self.operation)
    }
}
