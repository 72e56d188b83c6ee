//! Combined operations: lock, operate and unlock in one call.

use std::fmt;
use std::time::Duration;

use onesided_fabric::{Call, Drive, Fabric, call, handle};
use onesided_lock_algos::{Intent, Mode};

use crate::passive::cancelled::Unclaimed;
use crate::passive::release::Unpoisoning;
use crate::{Access, Element, Epoch, Error, Flush, LockRequest, Unlock, Window};

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
    #[inline]
    pub const fn locked(&self, target: u32) -> Locked<'_, T, F> {
        Locked::new(self, target)
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
pub struct Locked<'w, T: Element, F: Fabric> {
    window: &'w Window<T, F>,
    target: u32,
    deadline: Option<Duration>,
}

impl<'w, T: Element, F: Fabric> Locked<'w, T, F> {
    #[inline]
    pub(crate) const fn new(window: &'w Window<T, F>, target: u32) -> Self {
        Self { window, target, deadline: None }
    }

    /// Sets a deadline for the lock: the error is then [`TimedOut`](Error::is_timed_out).
    #[inline]
    pub const fn deadline(mut self, after: Duration) -> Self {
        self.deadline = Some(after);
        self
    }

    /// Gets elements under the shared lock. Does nothing unless waited on or polled.
    ///
    /// # Errors
    /// Those of [`LockRequest::wait`] and [`Access::get`].
    #[inline]
    pub fn get<'b>(&self, offset: usize, into: &'b mut [T]) -> LockedGet<'w, 'b, T, F> {
        LockedGet { lock: self.deferred(Mode::Shared), offset, call: Call::NotStarted(into) }
    }

    /// Puts elements under the exclusive lock. Does nothing unless waited on or polled. When it
    /// completes, the slice may be reused and the release is posted behind the elements: the next
    /// owner of the lock sees them, and so does this rank. For other ranks use
    /// [`flush`](Self::flush).
    ///
    /// # Errors
    /// Those of [`LockRequest::wait`] and [`Access::put`]. The flush or the close of the window
    /// reports later failures.
    #[inline]
    pub fn put<'b>(&self, offset: usize, elements: &'b [T]) -> LockedPut<'w, 'b, T, F> {
        LockedPut { lock: self.deferred(Mode::Exclusive), offset, call: Call::NotStarted(elements) }
    }

    /// Gets elements under the exclusive lock, changes them, and puts them back as
    /// [`put`](Self::put) does. Does nothing unless waited on or polled. Returns the result of
    /// `change`; a `change` that panics puts nothing and leaves nothing locked or poisoned.
    ///
    /// # Errors
    /// Those of [`LockRequest::wait`], [`Access::get`] and [`Access::put`].
    #[inline]
    pub fn update<'b, C, R>(&self, offset: usize, elements: &'b mut [T], change: C) -> LockedUpdate<'w, 'b, T, F, C, R>
    where
        C: FnOnce(&mut [T]) -> R,
    {
        LockedUpdate { lock: self.deferred(Mode::Exclusive), offset, call: Call::NotStarted((elements, change)) }
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

    #[inline]
    pub(crate) const fn deferred(&self, mode: Mode) -> DeferredLock<'w, T, F> {
        DeferredLock { window: self.window, target: self.target, mode, deadline: self.deadline, intent: Intent::LOCK }
    }
}

/// A lock that is requested when an operation is waited on or polled.
pub(crate) struct DeferredLock<'w, T: Element, F: Fabric> {
    window: &'w Window<T, F>,
    target: u32,
    mode: Mode,
    deadline: Option<Duration>,
    intent: Intent,
}

impl<'w, T: Element, F: Fabric> DeferredLock<'w, T, F> {
    pub(crate) const fn recover(mut self) -> Self {
        self.intent = self.intent.recovering();
        self
    }

    pub(crate) const fn window(&self) -> &'w Window<T, F> {
        self.window
    }

    pub(crate) const fn deadline(mut self, after: Duration) -> Self {
        self.deadline = Some(after);
        self
    }

    /// Takes the current settings: a deadline counts from now on, once.
    pub(crate) const fn take_options(&mut self) -> Self {
        Self { deadline: self.deadline.take(), ..*self }
    }

    /// Applies the settings to a request.
    pub(crate) const fn update_request(&mut self, request: &mut LockRequest<'w, T, F>) {
        request.intent = self.intent;
        if let Some(after) = self.deadline.take() {
            request.deadline = Some(after);
        }
    }

    /// Whether separate lock, operation and unlock are as fast.
    #[inline(always)]
    pub(crate) fn completes_at_post(&self) -> bool {
        self.window.inner().completes_at_post && self.deadline.is_none()
    }

    pub(crate) fn request(self) -> LockRequest<'w, T, F> {
        let request = LockRequest::start(self.window, self.target, self.mode, self.intent);
        match self.deadline {
            Some(after) => request.deadline(after),
            None => request,
        }
    }

    async fn held(self) -> Result<Epoch<'w, T, F>, Error> {
        self.request().held().await.map(|(epoch, _)| epoch)
    }

    /// The lock, and the elements as they are under it. `tell` may change the request at each poll.
    pub(crate) async fn held_with(
        self,
        offset: usize,
        into: &mut [T],
        update_request: impl Fn(&mut LockRequest<'w, T, F>),
    ) -> Result<Epoch<'w, T, F>, Error> {
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
            let (epoch, by_first) = request.held_telling(update_request).await?;
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

    async fn get(self, offset: usize, into: &mut [T]) -> Result<(), Error> {
        self.held_with(offset, into, |_| ()).await?.unlock_unchanged();
        Ok(())
    }

    async fn put(self, offset: usize, elements: &[T]) -> Result<(), Error> {
        let epoch = self.held().await?;
        epoch.put(offset, elements)?;
        epoch.unlock_posted();
        Ok(())
    }

    async fn update<R>(
        self,
        offset: usize,
        elements: &mut [T],
        change: impl FnOnce(&mut [T]) -> R,
    ) -> Result<R, Error> {
        let epoch = Unclaimed::new(self.held_with(offset, elements, |_| ()).await?); // `change` may panic
        let outcome = change(elements);
        let epoch = epoch.claim();
        epoch.put(offset, elements)?;
        epoch.unlock_posted();
        Ok(outcome)
    }
}

// Not derived: a derive would require the trait of the fabric.
impl<T: Element, F: Fabric> Clone for DeferredLock<'_, T, F> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<T: Element, F: Fabric> Copy for DeferredLock<'_, T, F> {}

/// See [`Locked::get`]: `.wait()` blocks, `.await` does not, `.test()` polls. Does nothing before
/// that.
#[must_use = "the slice has the elements only after a wait"]
pub struct LockedGet<'w, 'b, T: Element, F: Fabric> {
    lock: DeferredLock<'w, T, F>,
    offset: usize,
    call: Call<'b, &'b mut [T], Result<(), Error>>,
}

impl<'w: 'b, 'b, T: Element, F: Drive> LockedGet<'w, 'b, T, F> {
    /// Blocks until the slice has the elements.
    ///
    /// # Errors
    /// See [`Locked::get`].
    #[inline(always)] // see `LockRequest::wait`
    pub fn wait(self) -> Result<(), Error> {
        match self.call {
            Call::NotStarted(into) if self.lock.completes_at_post() => {
                let epoch = self.lock.window.lock_shared(self.lock.target).wait()?;
                epoch.get(self.offset, into).wait()?;
                epoch.unlock().wait()
            }
            call => Self { call, ..self }.wait_slowly(),
        }
    }

    #[cold]
    #[inline(never)]
    fn wait_slowly(self) -> Result<(), Error> {
        self.block()
    }
}

/// See [`Locked::put`]: `.wait()` blocks, `.await` does not, `.test()` polls. Does nothing before
/// that.
#[must_use = "does nothing unless waited on or polled"]
pub struct LockedPut<'w, 'b, T: Element, F: Fabric> {
    lock: DeferredLock<'w, T, F>,
    offset: usize,
    call: Call<'b, &'b [T], Result<(), Error>>,
}

impl<'w: 'b, 'b, T: Element, F: Drive> LockedPut<'w, 'b, T, F> {
    /// Blocks until the elements, and the release behind them, are posted.
    ///
    /// # Errors
    /// See [`Locked::put`].
    #[inline(always)] // see `LockRequest::wait`
    pub fn wait(self) -> Result<(), Error> {
        match self.call {
            Call::NotStarted(elements) if self.lock.completes_at_post() => {
                let epoch = self.lock.window.lock_exclusive(self.lock.target).wait()?;
                epoch.put(self.offset, elements)?;
                epoch.unlock().wait()
            }
            call => Self { call, ..self }.wait_slowly(),
        }
    }

    #[cold]
    #[inline(never)]
    fn wait_slowly(self) -> Result<(), Error> {
        self.block()
    }
}

/// See [`Locked::update`]: `.wait()` blocks, `.await` does not, `.test()` polls. Does nothing
/// before that.
#[must_use = "does nothing unless waited on or polled"]
pub struct LockedUpdate<'w, 'b, T: Element, F: Fabric, C, R = ()> {
    lock: DeferredLock<'w, T, F>,
    offset: usize,
    /// The elements and the change.
    call: Call<'b, (&'b mut [T], C), Result<R, Error>>,
}

impl<'w, T: Element, F: Drive, C: FnOnce(&mut [T]) -> R, R> LockedUpdate<'w, '_, T, F, C, R> {
    /// Blocks until the changed elements, and the release behind them, are posted.
    ///
    /// # Errors
    /// See [`Locked::update`].
    #[inline(always)] // see `LockRequest::wait`
    pub fn wait(self) -> Result<R, Error> {
        match self.call {
            Call::NotStarted((elements, change)) if self.lock.completes_at_post() => {
                let epoch = self.lock.window.lock_exclusive(self.lock.target).wait()?;
                epoch.get(self.offset, elements).wait()?;
                let epoch = Unpoisoning::new(epoch); // `change` may panic
                let outcome = change(elements);
                epoch.put(self.offset, elements)?;
                Unlock::of(epoch).wait()?;
                Ok(outcome)
            }
            call => Self { call, ..self }.wait_slowly(),
        }
    }

    // A separate method: a blocking wait does not require `Send`.
    #[cold]
    #[inline(never)]
    fn wait_slowly(self) -> Result<R, Error> {
        let Self { lock, offset, call } = self;
        call.wait(lock.window.inner().fabric(), |(elements, change)| lock.update(offset, elements, change))
    }
}

call! {
    ['w: 'b, 'b, T: Element, F], LockedGet<'w, 'b, T, F>, (), Error, |get| get.lock.window.inner().fabric(),
    |into| get.lock.get(get.offset, into)
}

call! {
    ['w: 'b, 'b, T: Element, F], LockedPut<'w, 'b, T, F>, (), Error, |put| put.lock.window.inner().fabric(),
    |elements| put.lock.put(put.offset, elements)
}

handle! {
    ['w: 'b, 'b, T: Element, F, C: FnOnce(&mut [T]) -> R + Send + 'b, R: Send + 'b],
    LockedUpdate<'w, 'b, T, F, C, R>, R, Error, |update| update.lock.window.inner().fabric()
}

call! {
    future ['w: 'b, 'b, T: Element, F, C: FnOnce(&mut [T]) -> R + Send + 'b, R: Send + 'b],
    LockedUpdate<'w, 'b, T, F, C, R>, R, Error,
    |update, (elements, change)| update.lock.update(update.offset, elements, change)
}

macro_rules! debug {
    ($name:ident, $operation:literal $(, [$($change:ident),+])?) => {
        impl<T: Element, F: Fabric $($(, $change)+)?> fmt::Debug for $name<'_, '_, T, F $($(, $change)+)?> {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, "locked {} at {} of rank {} of {:?}", $operation, self.offset, self.lock.target, self.lock.window)
            }
        }
    };
}

debug!(LockedGet, "get");
debug!(LockedPut, "put");
debug!(LockedUpdate, "update", [C, R]);

impl<T: Element, F: Fabric> fmt::Debug for Locked<'_, T, F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "rank {} of {:?}, locked for each operation", self.target, self.window)
    }
}
