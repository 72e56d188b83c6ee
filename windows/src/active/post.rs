//! The target's side of post-start-complete-wait: post and wait.

use std::sync::Arc;

use onesided_fabric::Fabric;

use crate::active::notify::group;
use crate::active::signals::Signal;
use crate::operation::request::Awaited;
use crate::{Element, Error, Request, Window};

impl<T: Element, F: Fabric> Window<T, F> {
    /// Exposes this rank's window memory to some origins (`MPI_Win_post`): they may operate on it
    /// once they have [started](Self::start). Does not block; posts one word to each origin. The request
    /// completes when each of them has completed its access epoch (`MPI_Win_wait`; a poll is
    /// `MPI_Win_test`); then [`Window::local`] sees their operations.
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
    /// notified. When waited on: [`Error::Operation`] if an origin died or left before it completed,
    /// or the deadline passed, then with the first origin that has not completed.
    ///
    /// # Cancel safety
    /// May be dropped or leaked at any point, without further effect: the next exposure is separate.
    pub fn post(&self, origins: &[u32]) -> Result<Request<'_, (), F>, Error> {
        let (inner, origins) = (self.inner(), group(origins));
        let failed = move |operation, origin| move |fault| inner.failed(operation, origin, fault);
        // Notifies none unless all are reachable.
        for origin in &origins {
            inner.begin(*origin).map_err(failed("post", *origin))?;
        }
        let exposed = origins.into_iter().map(|origin| {
            let number = inner.counts.expose(origin);
            let told = inner.target(origin).and_then(|target| inner.signal(target, Signal::Exposed, number));
            told.map(|()| (origin, number)).map_err(failed("post", origin))
        });
        let exposed: Arc<[_]> = exposed.collect::<Result<_, _>>()?;
        let awaited = Awaited::Signals(inner, Signal::Completed, Arc::clone(&exposed));
        Ok(Request::new(awaited, "wait", async move {
            for (origin, number) in exposed.iter().copied() {
                let completed = inner.signalled(origin, Signal::Completed, number).map_err(failed("wait", origin))?;
                completed.await.map_err(failed("wait", origin))?;
            }
            Ok(())
        }))
    }
}
