//! Try-locks.

use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use onesided_fabric::remote_memory::{Fault, FaultKind};
use onesided_fabric::{Drive, Fabric, handle};
use onesided_lock_algos::{Intent, Mode};

use crate::locks::layout::LockId;
use crate::{Element, Epoch, Error, LockRequest, Window};

impl<T: Element, F: Fabric> Window<T, F> {
    /// Locks a rank's window memory exclusively if the lock is free.
    ///
    /// ```
    /// # use onesided_windows::Window;
    /// # onesided_fabric::threads(2, |world| {
    /// # let window = Window::<u64>::allocate(&world, 1).wait()?;
    /// match window.try_lock_exclusive(1).wait()? {
    ///     Some(epoch) => {
    ///         epoch.put(0, &[7])?;
    ///         epoch.unlock().wait()?;
    ///     }
    ///     None => { /* another rank holds it: do something else meanwhile */ }
    /// }
    /// # window.close().wait()
    /// # }).unwrap().into_iter().collect::<Result<(), onesided_windows::Error>>().unwrap();
    /// ```
    #[inline]
    pub fn try_lock_exclusive(&self, target: u32) -> TryLock<'_, T, F> {
        TryLock::start(self, target, Mode::Exclusive)
    }

    /// Locks a rank's window memory shared if no exclusive holder or waiter is in the way.
    #[inline]
    pub fn try_lock_shared(&self, target: u32) -> TryLock<'_, T, F> {
        TryLock::start(self, target, Mode::Shared)
    }
}

/// A try-lock: see [`Window::try_lock_exclusive`]. Its first operation is posted. `.wait()` blocks
/// for a few operations on the target, `.await` does not block, `.test()` polls; the result is the
/// guard, or `None` if the lock is taken or has waiters.
///
/// # Cancel safety
/// As [`LockRequest`].
#[must_use = "dropping the request cancels it"]
pub struct TryLock<'w, T: Element, F: Fabric>(LockRequest<'w, T, F>);

impl<'w, T: Element, F: Fabric> TryLock<'w, T, F> {
    #[inline(always)] // see `LockRequest::wait`
    pub(crate) fn start(window: &'w Window<T, F>, target: u32, mode: Mode) -> Self {
        Self(LockRequest::start(window, target, mode, Intent::TRY))
    }

    /// The same for any lock of the rank.
    pub(crate) fn start_of(window: &'w Window<T, F>, target_lock: (u32, LockId), mode: Mode) -> Self {
        Self(LockRequest::start_of(window, target_lock, mode, Intent::TRY))
    }

    /// Takes the lock over even if it is poisoned: see [`LockRequest::recover`].
    #[inline]
    pub const fn recover(mut self) -> Self {
        self.0.intent = self.0.intent.recovering();
        self
    }
}

/// `None` where another owner has the lock.
fn unless_busy<L>(outcome: Result<L, Fault>) -> Result<Option<L>, Fault> {
    match outcome {
        Err(fault) if fault.kind() == FaultKind::TimedOut => Ok(None),
        outcome => outcome.map(Some),
    }
}

impl<'w, T: Element, F: Drive> TryLock<'w, T, F> {
    /// Blocks until the lock is held or found taken.
    ///
    /// # Errors
    /// [`Error::Lock`]: the lock is poisoned ([`Error::is_poisoned`]), the target died;
    /// [`Error::Rank`].
    #[inline(always)] // see `LockRequest::wait`
    pub fn wait(self) -> Result<Option<Epoch<'w, T, F>>, Error> {
        let failed = self.0.failing();
        unless_busy(self.0.hold()).map_err(failed)
    }
}

handle!(['w, T: Element, F], TryLock<'w, T, F>, Option<Epoch<'w, T, F>>, Error, |lock| lock.0.inner().fabric());

impl<'w, T: Element, F: Fabric> Future for TryLock<'w, T, F> {
    type Output = Result<Option<Epoch<'w, T, F>>, Error>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let outcome = ready!(self.0.poll_held(cx)).map(|(epoch, _)| epoch);
        Poll::Ready(unless_busy(outcome).map_err(|fault| self.0.failed(fault)))
    }
}

impl<T: Element, F: Fabric> fmt::Debug for TryLock<'_, T, F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "try {:?}", self.0)
    }
}
