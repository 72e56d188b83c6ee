//! The target's side of post-start-complete-wait: post and wait.

use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use onesided_fabric::remote_memory::{Fault, FaultKind};
use onesided_fabric::{Any, Drive, Fabric, Limit, WaitAll, block_on, wait_timeout};

use crate::active::notify::group;
use crate::active::signals::Signal;
use crate::window::retry::poll_once;
use crate::{Element, Error, Window};

impl<T: Element, F: Fabric> Window<T, F> {
    /// Exposes this rank's window memory to some origins (`MPI_Win_post`): they may operate on it
    /// once they have [started](Self::start). Does not block; posts one word to each origin.
    ///
    /// ```
    /// # use onesided_windows::Window;
    /// # onesided_fabric::threads(3, |world| {
    /// let window = Window::<u64>::allocate(&world, 3).wait()?;
    /// if world.rank() == 0 {
    ///     let exposure = window.post(&[1, 2])?;
    ///     exposure.wait()?; // both have completed
    ///     assert_eq!(window.local().read(0..3), [0, 1, 2]);
    /// } else {
    ///     let epoch = window.start(&[0]).wait()?; // it has posted
    ///     epoch.at(0)?.put(world.rank() as usize, &[world.rank().into()])?;
    ///     epoch.complete().wait()?;
    /// }
    /// window.close().wait()
    /// # }).unwrap().into_iter().collect::<Result<(), onesided_windows::Error>>().unwrap();
    /// ```
    ///
    /// Naming a rank twice counts once; this rank may be among the origins. Only one thread of a
    /// rank may post at a time, and only one may start. MPI's assertion `MPI_MODE_NOCHECK` is
    /// [`start_no_check`](Self::start_no_check); the others would save nothing.
    ///
    /// # Errors
    /// [`Error::Rank`], [`Error::Operation`] if an origin cannot be reached; then no origin was
    /// notified.
    pub fn post(&self, origins: &[u32]) -> Result<ExposureEpoch<'_, T, F>, Error> {
        ExposureEpoch::post(self, origins)
    }
}

/// An exposure epoch: this rank's window memory, exposed to some origins (`MPI_Win_post`) until
/// each has completed its access epoch.
///
/// `.wait()` blocks until they have (`MPI_Win_wait`), `.await` does not, [`test`](Self::test) polls
/// (`MPI_Win_test`); afterwards [`Window::local`] sees their operations.
///
/// # Panics
/// If it is polled again after it has yielded its result.
///
/// # Cancel safety
/// May be dropped or leaked at any point, without further effect: the next exposure is separate.
#[must_use = "the origins are done only when a wait returns"]
pub struct ExposureEpoch<'w, T, F: Fabric = Any> {
    window: &'w Window<T, F>,
    /// The pending origins, and the number of the access epoch that each is to complete. `None`
    /// once the result was yielded.
    awaited: Option<Vec<(u32, u64)>>,
    limit: Limit<'w, F>,
    /// The wait for the last of the origins, if one is under way.
    waiting: Option<Told<'w>>,
}

type Told<'w> = Pin<Box<dyn Future<Output = Result<u64, Fault>> + Send + 'w>>;

impl<'w, T: Element, F: Fabric> ExposureEpoch<'w, T, F> {
    /// Exposes this rank's window memory to the origins.
    pub(crate) fn post(window: &'w Window<T, F>, origins: &[u32]) -> Result<Self, Error> {
        let inner = window.inner();
        let mut awaited = group(origins);
        let failed = |origin| move |fault| inner.failed("post", origin, fault);
        // Notifies none unless all are reachable.
        for origin in &awaited {
            inner.begin(*origin).map_err(failed(*origin))?;
        }
        let awaited = awaited.drain(..).map(|origin| {
            let number = inner.counts.expose(origin);
            let told = inner.target(origin).and_then(|target| inner.signal(target, Signal::Exposed, number));
            told.map(|()| (origin, number)).map_err(failed(origin))
        });
        let mut awaited = awaited.collect::<Result<Vec<_>, _>>()?;
        awaited.reverse(); // the last in the vector is waited for first
        Ok(Self { window, awaited: Some(awaited), limit: Limit::NONE, waiting: None })
    }

    /// Sets a deadline, counted from the first wait or poll: the error is then
    /// [`TimedOut`](Error::is_timed_out). [`test`](Self::test) ignores it.
    pub const fn deadline(mut self, after: Duration) -> Self {
        self.limit.said = Some(after);
        self
    }

    /// Polls whether every origin has completed its access epoch (`MPI_Win_test`).
    ///
    /// # Errors
    /// [`Error::Operation`] if an origin died or left before it completed.
    pub fn test(&mut self) -> Result<Option<()>, Error> {
        let inner = self.window.inner();
        while let Some((origin, number)) = self.next() {
            let told =
                inner.signalled(origin, Signal::Completed, number).and_then(|mut wait| match poll_once(&mut wait) {
                    Poll::Ready(told) => told.map(|_| true),
                    Poll::Pending => Ok(false),
                });
            match told {
                Ok(true) => self.done(),
                Ok(false) => return Ok(None),
                Err(fault) => {
                    self.awaited = None;
                    return Err(inner.failed("test", origin, fault));
                }
            }
        }
        self.awaited = None;
        Ok(Some(()))
    }

    /// The next pending origin.
    fn next(&self) -> Option<(u32, u64)> {
        match &self.awaited {
            Some(awaited) => awaited.last().copied(),
            None => panic!("an exposure yields its result once"),
        }
    }

    /// Removes that origin, which has completed its access epoch.
    fn done(&mut self) {
        self.awaited.as_mut().and_then(Vec::pop);
        self.waiting = None;
    }

    fn poll_all(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), Error>> {
        let inner = self.window.inner();
        while let Some((origin, number)) = self.next() {
            let failed = |fault| inner.failed("wait", origin, fault);
            let polled = match &mut self.waiting {
                Some(told) => told.as_mut().poll(cx),
                None => {
                    let mut wait = inner.signalled(origin, Signal::Completed, number).map_err(failed)?;
                    let polled = Pin::new(&mut wait).poll(cx);
                    if polled.is_pending() {
                        self.waiting = Some(Box::pin(wait));
                    }
                    polled
                }
            };
            let Poll::Ready(outcome) = polled else {
                ready!(self.limit.poll(cx, inner.fabric()));
                return Poll::Ready(Err(failed(Fault::new(FaultKind::TimedOut))));
            };
            outcome.map_err(failed)?;
            self.done();
        }
        Poll::Ready(Ok(()))
    }
}

// Nothing in it is pinned in place: what must not move is boxed.
impl<T, F: Fabric> Unpin for ExposureEpoch<'_, T, F> {}

impl<T: Element, F: Fabric> WaitAll for ExposureEpoch<'_, T, F> {}

impl<T: Element, F: Fabric> Future for ExposureEpoch<'_, T, F> {
    type Output = Result<(), Error>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let outcome = ready!(self.poll_all(cx));
        self.awaited = None;
        Poll::Ready(outcome)
    }
}

impl<T: Element, F: Fabric> ExposureEpoch<'_, T, F> {
    /// Blocks until every origin has completed its access epoch (`MPI_Win_wait`).
    ///
    /// # Errors
    /// [`Error::Operation`] if an origin died or left before it completed, or the deadline passed.
    pub fn wait(self) -> Result<(), Error>
    where
        F: Drive,
    {
        block_on(self.window.inner().fabric(), self)
    }

    /// Blocks until every origin has completed its access epoch, at most this long; then returns
    /// `None`, and it can be waited for again.
    ///
    /// # Errors
    /// As [`wait`](Self::wait).
    pub fn wait_timeout(&mut self, timeout: Duration) -> Result<Option<()>, Error>
    where
        F: Drive,
    {
        let fabric = self.window.inner().fabric();
        wait_timeout(fabric, self, timeout).transpose()
    }
}

impl<T, F: Fabric> fmt::Debug for ExposureEpoch<'_, T, F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let pending = self.awaited.as_ref().map_or(0, Vec::len);
        write!(f, "exposure of {:?}, {pending} origins pending", self.window)
    }
}
