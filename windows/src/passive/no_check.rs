//! Access without a lock, where the program guarantees that none is needed.

use std::sync::OnceLock;

use onesided_fabric::{Any, Fabric, debug};

use crate::operation::request::Awaited;
use crate::{Access, Element, Error, Request, Window};

/// The operations on every target without locks ([`Window::no_check`]).
///
/// After a drop its operations are complete only after a flush, or when the window is closed.
#[must_use = "the operations are methods of the accesses that `at` returns"]
pub struct NoCheckEpoch<'w, T: Element, F: Fabric = Any> {
    window: &'w Window<T, F>,
    /// By rank, made at the first access.
    accesses: Box<[OnceLock<Access<'w, T, F>>]>,
}

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
        NoCheckEpoch::new(self)
    }
}

impl<'w, T: Element, F: Fabric> NoCheckEpoch<'w, T, F> {
    pub(crate) fn new(window: &'w Window<T, F>) -> Self {
        let accesses = (0..window.world().size()).map(|_| OnceLock::new()).collect();
        Self { window, accesses }
    }

    /// The operations on one target.
    ///
    /// # Errors
    /// [`Error::Rank`]; [`Error::Operation`] if the target cannot be reached.
    pub fn at(&self, target: u32) -> Result<&Access<'w, T, F>, Error> {
        let inner = self.window.inner();
        let reached = inner.begin(target).map_err(|fault| inner.failed("at", target, fault))?;
        Ok(self.accesses[target as usize].get_or_init(|| Access::new(inner, reached)))
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
        let first = self.accesses.iter().find_map(OnceLock::get).map_or(0, Access::target);
        Request::new(Awaited::Target(self.window.inner(), first), "end", async move {
            let mut outcome = Ok(());
            let targets = || self.accesses.iter().filter_map(OnceLock::get);
            self.window.inner().begin_flushes(targets().map(|access| access.target));
            for access in targets() {
                outcome = outcome.and(access.flush().await); // all are flushed even after an error
            }
            outcome
        })
    }
}

debug!([T: Element, F: Fabric] NoCheckEpoch<'_, T, F>, |this| "access without locks to {:?}", this.window);
