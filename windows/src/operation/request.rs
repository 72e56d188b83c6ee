//! The handle of most calls that wait.

use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll};

use onesided_fabric::{Drive, Fabric, block_on, handle};

use crate::Error;

/// A pending call: [`wait`](Self::wait) blocks, `.await` does not, [`test`](Self::test) polls. Does
/// nothing before that. The method that returns it documents its effect and its cancel safety.
///
/// It yields its result once: it must not be tested, awaited or waited on after that.
#[must_use = "does nothing unless waited on or polled"]
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
    /// Blocks until the call completes.
    ///
    /// # Errors
    /// Those of the method that returned it.
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
        write!(f, "pending {}", self.operation)
    }
}
