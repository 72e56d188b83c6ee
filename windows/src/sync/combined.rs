//! Combined operations: lock, operate and unlock in one call.

use onesided_fabric::{Any, Fabric, debug};
use onesided_lock_algos::{Intent, Mode};

use crate::handles::Begin;
use crate::operation::request::Awaited;
use crate::sync::deferred_lock::DeferredLock;
use crate::{Element, Error, Request, Window};

impl<T: Element, F: Fabric> Window<T, F> {
    /// Combined operations: each locks a rank's window memory, operates on it and unlocks it, in
    /// one call and in as few round trips as the fabric allows.
    ///
    /// ```
    /// # use onesided_windows::Window;
    /// # onesided_fabric::threads(2, |world| {
    /// let scores = Window::<u64>::allocate(&world, 8).wait()?;
    /// let (home, mut score) = (scores.locked(1), [0; 2]);
    /// home.update(0, &mut score, |score| score[0] += 1).wait()?;
    /// world.barrier().wait().unwrap();
    /// home.get(0, &mut score).wait()?;
    /// assert_eq!(score, [2, 0]);
    /// # scores.close().wait()
    /// # }).unwrap().into_iter().collect::<Result<(), onesided_windows::Error>>().unwrap();
    /// ```
    pub const fn locked(&self, target: u32) -> Locked<'_, T, F> {
        Locked { window: self, target }
    }
}

/// Operations that each acquire the lock of a rank's window memory, the one that
/// [`Window::lock_exclusive`] takes, and release it. Returned by [`Window::locked`].
///
/// Where an operation is a round trip, a combined operation that finds the lock free takes a single
/// one: its read follows the compare-and-swap on the same connection before the outcome is known
/// (if the compare-and-swap fails, it reads again under the lock), and its write is followed by the
/// release, which is not waited for. Separate lock, operation and unlock take two to four. (On
/// `mixed`, for a rank of the same host, the compare-and-swap is waited for: reads by the CPU would
/// overtake it.) Nothing is written before the lock is known to be held, because a failed
/// compare-and-swap does not stop the operations behind it.
///
/// # Cancel safety
/// An operation that is dropped before it completes has put nothing or everything, and leaves
/// nothing locked: the endpoint finishes and releases what was started.
pub struct Locked<'w, T: Element, F: Fabric = Any> {
    window: &'w Window<T, F>,
    target: u32,
}

impl<'w, T: Element, F: Fabric> Locked<'w, T, F> {
    /// Gets elements under the shared lock. Does nothing unless waited on or polled.
    ///
    /// # Errors
    /// Those of [`LockRequest::wait`](crate::handles::LockRequest::wait) and [`Access::get`](crate::Access::get).
    pub fn get(&self, offset: usize, into: &'w mut [T]) -> Request<'w, (), F, Error, impl Begin<()> + use<'w, T, F>> {
        let lock = self.lock(Mode::Shared, "locked get");
        Request::unboxed(lock.awaited(), lock.name, move || async move {
            lock.held_with(offset, into).await?.unlock_unchanged();
            Ok(())
        })
    }

    /// Puts elements under the exclusive lock. Does nothing unless waited on or polled. When it
    /// completes, the slice may be reused and the release is posted behind the elements: the next
    /// owner of the lock sees them, and so does this rank. For other ranks use
    /// [`flush`](Self::flush).
    ///
    /// # Errors
    /// Those of [`LockRequest::wait`](crate::handles::LockRequest::wait) and [`Access::put`](crate::Access::put). The
    /// flush or the close of the window reports later failures.
    pub fn put(&self, offset: usize, elements: &'w [T]) -> Request<'w, (), F, Error, impl Begin<()> + use<'w, T, F>> {
        let lock = self.lock(Mode::Exclusive, "locked put");
        Request::unboxed(lock.awaited(), lock.name, move || async move {
            let (epoch, _) = lock.held().await?;
            epoch.put(offset, elements)?;
            epoch.unlock_posted();
            Ok(())
        })
    }

    /// Gets elements under the exclusive lock, changes them, and puts them back as
    /// [`put`](Self::put) does. Does nothing unless waited on or polled. Returns the result of
    /// `change`; a `change` that panics puts nothing and leaves nothing locked or poisoned.
    ///
    /// # Errors
    /// Those of [`LockRequest::wait`](crate::handles::LockRequest::wait), [`Access::get`](crate::Access::get) and
    /// [`Access::put`](crate::Access::put).
    pub fn update<C, R>(
        &self,
        offset: usize,
        elements: &'w mut [T],
        change: C,
    ) -> Request<'w, R, F, Error, impl Begin<R> + use<'w, T, F, C, R>>
    where
        C: FnOnce(&mut [T]) -> R + Send + 'w,
        R: Send + 'w,
    {
        let lock = self.lock(Mode::Exclusive, "locked update");
        Request::unboxed(lock.awaited(), lock.name, move || async move {
            let epoch = lock.held_with(offset, elements).await?; // `change` may panic
            let outcome = change(elements);
            epoch.put(offset, elements)?;
            epoch.unlock_posted();
            Ok(outcome)
        })
    }

    const fn lock(&self, mode: Mode, name: &'static str) -> DeferredLock<'w, T, F> {
        DeferredLock { window: self.window, target: self.target, mode, intent: Intent::LOCK, name }
    }

    /// Completes at the target all operations that this rank has posted to it before the call. See
    /// [`Access::flush`](crate::Access::flush).
    ///
    /// # Errors
    /// When waited on: [`Error::Rank`], [`Error::Operation`] if the target cannot be reached, and
    /// as [`Access::flush`](crate::Access::flush).
    pub fn flush(&self) -> Request<'w, (), F, Error, impl Begin<()> + use<'w, T, F>> {
        let (inner, target) = (self.window.inner(), self.target);
        let flush = inner.target(target).map(|target| inner.fabric().flush(target.fabric_rank()));
        Request::unboxed(Awaited::Target(inner, target), "flush", move || async move {
            let flushed = match flush {
                Ok(flush) => flush.await,
                Err(fault) => Err(fault),
            };
            flushed.map_err(|fault| inner.failed("flush", target, fault))
        })
    }
}

debug!(
    [T: Element, F: Fabric] Locked<'_, T, F>,
    |this| "rank {} of {:?}, locked for each operation", this.target, this.window
);
