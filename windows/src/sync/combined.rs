//! Combined operations: lock, operate and unlock in one call.

use std::fmt;
use std::future::Future;

use onesided_fabric::{Any, Fabric};
use onesided_lock_algos::{Intent, Mode};

use crate::handles::{Flush, LockRequest};
use crate::operation::request::Awaited;
use crate::passive::cancelled::Unclaimed;
use crate::passive::lock::operation;
use crate::{Access, Element, Epoch, Error, Request, Window};

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
    ///
    /// Where an operation completes at post (shm), the separate calls are faster: a combined
    /// operation allocates.
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
    /// Those of [`LockRequest::wait`](crate::handles::LockRequest::wait) and [`Access::get`].
    pub fn get<'b>(&self, offset: usize, into: &'b mut [T]) -> Request<'b, (), F>
    where
        'w: 'b,
    {
        self.request(Mode::Shared, |lock| async move {
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
    /// Those of [`LockRequest::wait`](crate::handles::LockRequest::wait) and [`Access::put`]. The
    /// flush or the close of the window reports later failures.
    pub fn put<'b>(&self, offset: usize, elements: &'b [T]) -> Request<'b, (), F>
    where
        'w: 'b,
    {
        self.request(Mode::Exclusive, |lock| async move {
            let (epoch, _) = lock.request().held().await?;
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
    /// Those of [`LockRequest::wait`](crate::handles::LockRequest::wait), [`Access::get`] and
    /// [`Access::put`].
    pub fn update<'b, C, R>(&self, offset: usize, elements: &'b mut [T], change: C) -> Request<'b, R, F>
    where
        'w: 'b,
        C: FnOnce(&mut [T]) -> R + Send + 'b,
        R: Send + 'b,
    {
        self.request(Mode::Exclusive, |lock| async move {
            let epoch = Unclaimed::new(lock.held_with(offset, elements).await?); // `change` may panic
            let outcome = change(elements);
            let epoch = epoch.claim();
            epoch.put(offset, elements)?;
            epoch.unlock_posted();
            Ok(outcome)
        })
    }

    fn request<'b, R, L>(&self, mode: Mode, run: impl FnOnce(DeferredLock<'w, T, F>) -> L) -> Request<'b, R, F>
    where
        'w: 'b,
        L: Future<Output = Result<R, Error>> + Send + 'b,
    {
        let lock = DeferredLock { window: self.window, target: self.target, mode, intent: Intent::LOCK };
        Request::new(Awaited::Lock(self.window.inner(), self.target), operation(mode), run(lock))
    }

    /// Completes at the target all operations that this rank has posted to it before the call. See
    /// [`Access::flush`].
    ///
    /// # Errors
    /// When waited on: [`Error::Rank`], [`Error::Operation`] if the target cannot be reached, and
    /// as [`Access::flush`].
    pub fn flush(&self) -> Flush<'w, F> {
        let inner = self.window.inner();
        let flush = inner.target(self.target).map(|target| inner.fabric().flush(target.fabric_rank()));
        Flush::new(inner, "flush", self.target, flush)
    }
}

/// A lock that is requested when an operation is waited on or polled.
pub(crate) struct DeferredLock<'w, T: Element, F: Fabric> {
    pub(crate) window: &'w Window<T, F>,
    pub(crate) target: u32,
    pub(crate) mode: Mode,
    pub(crate) intent: Intent,
}

impl<'w, T: Element, F: Fabric> DeferredLock<'w, T, F> {
    fn request(self) -> LockRequest<'w, T, F> {
        LockRequest::start(self.window, self.target, self.mode, self.intent)
    }

    /// The lock, and the elements as they are under it.
    pub(crate) async fn held_with(self, offset: usize, into: &mut [T]) -> Result<Epoch<'w, T, F>, Error> {
        let inner = self.window.inner();
        let request = self.request();
        // Not under the lock yet: the read counts only if the compare-and-swap before it took the
        // lock and executed first.
        let target = inner.begin(self.target).ok();
        let ordered =
            target.filter(|target| inner.locks.starts_at_target() && inner.fabric().keeps_order(target.fabric_rank()));
        let early = ordered.map(|target| Access::new(inner, target));
        let epoch = {
            let get = early.as_ref().map(|access| access.get(offset, into));
            let (epoch, by_first) = request.held().await?;
            let epoch = Unclaimed::new(epoch);
            match get {
                Some(get) if by_first => {
                    get.await?;
                    return Ok(epoch.claim());
                }
                _ => epoch,
            }
        };
        epoch.get(offset, into).await?;
        Ok(epoch.claim())
    }
}

// Not derived: a derive would require the trait of the fabric.
impl<T: Element, F: Fabric> Clone for DeferredLock<'_, T, F> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<T: Element, F: Fabric> Copy for DeferredLock<'_, T, F> {}

impl<T: Element, F: Fabric> fmt::Debug for Locked<'_, T, F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "rank {} of {:?}, locked for each operation", self.target, self.window)
    }
}
