//! Access without a lock, where the program guarantees that none is needed.

use onesided_fabric::{Any, Fabric, debug};

use crate::operation::access::Accesses;
use crate::operation::request::Awaited;
use crate::{Access, Element, Error, Request, Window};

/// The operations on every target without locks ([`Window::no_check`]).
///
/// After a drop its operations are complete only after a flush, or when the window is closed.
#[must_use = "the operations are methods of the accesses that `at` returns"]
pub struct NoCheckEpoch<'w, T: Element, F: Fabric = Any>(Accesses<'w, T, F>);

impl<T: Element, F: Fabric> Window<T, F> {
    /// Access to every target without a lock. The program guarantees that no conflicting lock is
    /// held, or will be while this epoch lasts (`MPI_Win_lock` and `MPI_Win_lock_all` with
    /// `MPI_MODE_NOCHECK`). Takes no lock, posts nothing and does not wait; locks that are
    /// requested meanwhile are granted.
    ///
    /// ```
    /// # use onesided_windows::Window;
    /// # onesided_fabric::threads(2, |world| {
    /// let window = Window::<u64>::allocate(&world, 2).wait()?;
    /// let all = window.no_check(); // each rank has elements of its own
    /// all.at(0)?.put(world.rank() as usize, &[7])?;
    /// all.end().wait()?;
    /// # window.close().wait()
    /// # }).unwrap().into_iter().collect::<Result<(), onesided_windows::Error>>().unwrap();
    /// ```
    pub fn no_check(&self) -> NoCheckEpoch<'_, T, F> {
        NoCheckEpoch(Accesses::new(self))
    }
}

impl<'w, T: Element, F: Fabric> NoCheckEpoch<'w, T, F> {
    /// The operations on one target.
    ///
    /// # Errors
    /// [`Error::Rank`]; [`Error::Operation`] if the target cannot be reached.
    pub fn at(&self, target: u32) -> Result<&Access<'w, T, F>, Error> {
        self.0.at(target)
    }

    /// Completes at the accessed targets all operations that this rank has posted to them. Does
    /// nothing unless waited on or polled.
    ///
    /// # Errors
    /// [`Error::Operation`] with the first deferred error.
    ///
    /// # Cancel safety
    /// If dropped before it completes, nothing is guaranteed.
    pub fn end(self) -> Request<'w, (), F> {
        let (inner, first) = (self.0.window.inner(), self.0.targets().next().map_or(0, |target| target.rank));
        Request::new(Awaited::Target(inner, first), "end", async move {
            inner.flush_each("flush", self.0.targets(), F::flush).await
        })
    }
}

debug!([T: Element, F: Fabric] NoCheckEpoch<'_, T, F>, |this| "access without locks to {:?}", this.0.window);
