//! A value that many origins read concurrently, or one changes.

use onesided_fabric::{Any, Fabric, World, debug};

use crate::sync::value::{ReadGuard, Value, ValueLock, WriteGuard, named};
use crate::{Builder, Element, Request};

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
pub struct RwLock<T, F: Fabric = Any>(Value<T, F>);

impl<T: Element, F: Fabric> RwLock<T, F> {
    /// Makes a lock whose value is at rank `home`. Its initial value is the one that `home` passes;
    /// those of the other ranks are ignored. Collective.
    ///
    /// # Errors
    /// Those of [`Builder::allocate`]; [`Error::Mismatch`](crate::Error::Mismatch) where the ranks
    /// do not name the same home; [`Error::Rank`](crate::Error::Rank) where there is no such rank.
    ///
    /// # Cancel safety
    /// Not cancel safe: collective, as a [barrier](World::barrier).
    pub fn new(world: &World<F>, home: u32, value: T) -> Request<'_, Self, F> {
        Self::with(Builder::default(), world, home, value)
    }

    /// The same, with a name, a lock and other settings of a window builder.
    ///
    /// # Errors
    /// As [`new`](Self::new).
    ///
    /// # Cancel safety
    /// As [`new`](Self::new).
    pub fn with(builder: Builder<T>, world: &World<F>, home: u32, value: T) -> Request<'_, Self, F> {
        let builder = named(builder, "a read-write lock of");
        let awaited = builder.awaited(world);
        Request::new(awaited, "create", async move { Value::make(builder, world, home, value).await.map(Self) })
    }

    /// Locks it shared. Does nothing unless waited on or polled.
    ///
    /// # Errors
    /// Those of [`LockRequest::wait`](crate::handles::LockRequest::wait) and
    /// [`Access::get`](crate::Access::get).
    ///
    /// # Cancel safety
    /// May be dropped at any point and leaves nothing locked: the endpoint finishes and releases
    /// what was started.
    #[inline]
    pub fn read(&self) -> ValueLock<'_, T, ReadGuard<'_, T, F>, F> {
        self.0.lock("read")
    }

    /// Locks it exclusively. Does nothing unless waited on or polled. Otherwise as
    /// [`read`](Self::read).
    #[inline]
    pub fn write(&self) -> ValueLock<'_, T, WriteGuard<'_, T, F>, F> {
        self.0.lock("write")
    }

    /// Locks it shared if no exclusive holder or waiter is in the way; otherwise the result is
    /// `None`. Does nothing unless waited on or polled. Otherwise as [`read`](Self::read).
    #[inline]
    pub fn try_read(&self) -> ValueLock<'_, T, Option<ReadGuard<'_, T, F>>, F> {
        self.0.lock("try_read")
    }

    /// Locks it exclusively if it is free; otherwise the result is `None`. Does nothing unless
    /// waited on or polled. Otherwise as [`read`](Self::read).
    #[inline]
    pub fn try_write(&self) -> ValueLock<'_, T, Option<WriteGuard<'_, T, F>>, F> {
        self.0.lock("try_write")
    }

    /// The rank of the value.
    pub const fn home(&self) -> u32 {
        self.0.home
    }

    /// Closes it on all ranks and reports the first deferred error. Collective. Clones become
    /// useless, as those of a [window](crate::Window::close).
    ///
    /// # Errors
    /// Those of [`Window::close`](crate::Window::close).
    pub fn close(self) -> Request<'static, (), F> {
        self.0.close()
    }
}

impl<T: Element, F: Fabric> Clone for RwLock<T, F> {
    fn clone(&self) -> Self {
        Self(self.0.clone())
    }
}

debug!([T: Element, F: Fabric] RwLock<T, F>, |this| "RwLock of {:?}", this.0);
