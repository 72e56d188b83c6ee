//! A value that many origins read concurrently, or one changes.

use onesided_fabric::{Any, Fabric, World, debug};

use crate::handles::{Begin, Recover};
use crate::sync::value::{ReadGuard, Value, WriteGuard, value};
use crate::{Builder, Element, Error, Request};

/// A value at one rank that ranks may read concurrently or change exclusively: `std::sync::RwLock`
/// between processes. As [`Mutex`](crate::Mutex), with a lock that can be shared. Cheap to clone.
///
/// ```
/// # use onesided_windows::RwLock;
/// # onesided_fabric::threads(3, |world| {
/// let limits = RwLock::new(&world, 0, [10.0_f64, 20.0]).wait()?;
/// if world.rank() == 2 {
///     limits.write().wait()?[1] = 30.0;
/// }
/// world.barrier().wait().unwrap();
/// let (mine, another) = (limits.read().wait()?, limits.read().wait()?);
/// assert_eq!((*mine, another[1]), ([10.0, 30.0], 30.0));
/// drop((mine, another));
/// limits.close().wait()
/// # }).unwrap().into_iter().collect::<Result<(), onesided_windows::Error>>().unwrap();
/// ```
#[derive(Clone)]
pub struct RwLock<T, F: Fabric = Any>(Value<T, F>);

value!(RwLock, "a read-write lock");

impl<T: Element, F: Fabric> RwLock<T, F> {
    /// Locks it shared. Does nothing unless waited on or polled.
    ///
    /// # Errors
    /// Those of [`LockRequest::wait`](crate::handles::LockRequest::wait) and
    /// [`Access::get`](crate::Access::get).
    ///
    /// # Cancel safety
    /// May be dropped at any point and leaves nothing locked: the endpoint finishes and releases
    /// what was started.
    pub fn read(&self) -> Request<'_, ReadGuard<'_, T, F>, F, Error, impl Begin<ReadGuard<'_, T, F>> + Recover> {
        self.0.lock("read")
    }

    /// Locks it exclusively. Does nothing unless waited on or polled. Otherwise as
    /// [`read`](Self::read).
    pub fn write(&self) -> Request<'_, WriteGuard<'_, T, F>, F, Error, impl Begin<WriteGuard<'_, T, F>> + Recover> {
        self.0.lock("write")
    }

    /// Locks it shared if no exclusive holder or waiter is in the way; otherwise the result is
    /// `None`. Does nothing unless waited on or polled. Otherwise as [`read`](Self::read).
    pub fn try_read(
        &self,
    ) -> Request<'_, Option<ReadGuard<'_, T, F>>, F, Error, impl Begin<Option<ReadGuard<'_, T, F>>> + Recover> {
        self.0.lock("try_read")
    }

    /// Locks it exclusively if it is free; otherwise the result is `None`. Does nothing unless
    /// waited on or polled. Otherwise as [`read`](Self::read).
    pub fn try_write(
        &self,
    ) -> Request<'_, Option<WriteGuard<'_, T, F>>, F, Error, impl Begin<Option<WriteGuard<'_, T, F>>> + Recover> {
        self.0.lock("try_write")
    }
}
