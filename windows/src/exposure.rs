//! The target's side of active synchronisation: post and wait.

use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use fabric::remote_memory::FaultKind;
use fabric::{Drive, Fabric, block_on};

use crate::signals::{Signal, group};
use crate::{Element, Error, Window};

/// This rank's part, exposed to some origins (`MPI_Win_post`) until each of them has completed its access.
///
/// `.wait()` blocks until they have (`MPI_Win_wait`), `.await` does not, [`test`](Self::test) looks (`MPI_Win_test`);
/// afterwards [`Window::local`] sees what they did. One that is dropped or leaked is waited for by nobody, and that is
/// all: the next exposure is another one.
#[must_use = "only a wait tells that the origins are done"]
pub struct ExposureEpoch<'w, T, F: Fabric> {
    window: &'w Window<T, F>,
    /// The origins that are not known to be done, and the number of the access that each is to complete.
    awaited: Vec<(u32, u64)>,
    deadline: Option<Duration>,
}

impl<'w, T: Element, F: Fabric> ExposureEpoch<'w, T, F> {
    /// Exposes this rank's part to the origins.
    pub(crate) fn post(window: &'w Window<T, F>, origins: &[u32]) -> Result<Self, Error> {
        let inner = window.inner();
        let mut awaited = group(origins);
        let failed = |origin| move |fault| inner.failed("post", origin, fault);
        // None is told before all can be.
        for origin in &awaited {
            inner.begin(*origin).map_err(failed(*origin))?;
        }
        let awaited = awaited.drain(..).map(|origin| {
            let number = inner.counts.expose(origin);
            let told = inner.target(origin).and_then(|target| inner.signal(target, Signal::Exposed, number));
            told.map(|()| (origin, number)).map_err(failed(origin))
        });
        Ok(Self { window, awaited: awaited.collect::<Result<_, _>>()?, deadline: None })
    }

    /// Gives up after this time: the error is then [`TimedOut`](Error::is_timed_out). [`test`](Self::test) goes on
    /// instead.
    pub const fn deadline(mut self, after: Duration) -> Self {
        self.deadline = Some(after);
        self
    }

    /// Looks whether every origin has completed its access, without waiting (`MPI_Win_test`). Asked again it says so again.
    ///
    /// # Errors
    /// [`Error::Operation`] if an origin died, or left, before it was done.
    pub fn test(&mut self) -> Result<Option<()>, Error> {
        let inner = self.window.inner();
        while let Some((origin, number)) = self.awaited.last().copied() {
            let told = inner.signalled(origin, Signal::Completed, number, 0).and_then(|mut wait| {
                match Pin::new(&mut wait).poll(&mut Context::from_waker(Waker::noop())) {
                    Poll::Ready(told) => told.map(|_| true),
                    Poll::Pending => Ok(false),
                }
            });
            match told {
                Ok(true) => self.awaited.pop(),
                Ok(false) => return Ok(None),
                Err(fault) if fault.kind() == FaultKind::TimedOut => return Ok(None),
                Err(fault) => return Err(inner.failed("test", origin, fault)),
            };
        }
        Ok(Some(()))
    }

    async fn finish(self) -> Result<(), Error> {
        let inner = self.window.inner();
        let until = inner.until(self.deadline);
        for (origin, number) in self.awaited {
            let told = match inner.signalled(origin, Signal::Completed, number, until) {
                Ok(wait) => wait.await,
                Err(fault) => Err(fault),
            };
            told.map_err(|fault| inner.failed("wait", origin, fault))?;
        }
        Ok(())
    }
}

impl<T: Element, F: Drive> ExposureEpoch<'_, T, F> {
    /// Blocks until every origin has completed its access (`MPI_Win_wait`).
    ///
    /// # Errors
    /// [`Error::Operation`] if an origin died, or left, before it was done, or the deadline passed.
    pub fn wait(self) -> Result<(), Error> {
        block_on(self.window.inner().fabric(), self.finish())
    }
}

/// # Cancel safety
/// A wait that is dropped has let some of the origins go; nothing else is lost.
impl<'w, T: Element, F: Fabric> IntoFuture for ExposureEpoch<'w, T, F> {
    type Output = Result<(), Error>;
    type IntoFuture = Pin<Box<dyn Future<Output = Self::Output> + Send + 'w>>;

    fn into_future(self) -> Self::IntoFuture {
        Box::pin(self.finish())
    }
}

impl<T, F: Fabric> fmt::Debug for ExposureEpoch<'_, T, F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "exposure of {:?}, {} origins are not known to be done", self.window, self.awaited.len())
    }
}
