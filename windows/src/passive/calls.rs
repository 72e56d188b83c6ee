//! Locks by calls, as in MPI, checked at run time.

use std::collections::BTreeMap;
use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use onesided_fabric::{Drive, Fabric, handle, wait_for};
use onesided_lock_algos::Mode;

use crate::{Access, Element, Epoch, Error, LockRequest, Unlock, Window};

impl<T: Element, F: Fabric> Window<T, F> {
    /// Locks and unlocks as MPI does, by calls instead of guards, checked at run time.
    pub fn epochs(&self) -> Epochs<'_, T, F> {
        Epochs::new(self)
    }
}

/// Locks and unlocks of a window by calls, as in MPI, in any order, checked at run time (MPI-4.1,
/// 12.5.3: a process locks a target at most once at a time, and accesses it only while it does).
///
/// For programs ported from MPI. A drop unlocks what is still locked.
pub struct Epochs<'w, T: Element, F: Fabric> {
    window: &'w Window<T, F>,
    held: BTreeMap<u32, Epoch<'w, T, F>>,
}

impl<'w, T: Element, F: Fabric> Epochs<'w, T, F> {
    pub(crate) const fn new(window: &'w Window<T, F>) -> Self {
        Self { window, held: BTreeMap::new() }
    }

    /// The operations on a locked target.
    ///
    /// # Errors
    /// [`Error::NotLocked`].
    pub fn at(&self, target: u32) -> Result<&Access<'w, T, F>, Error> {
        match self.held.get(&target) {
            Some(epoch) => Ok(epoch),
            None => Err(self.not_locked("access", target)),
        }
    }

    fn not_locked(&self, operation: &'static str, target: u32) -> Error {
        Error::NotLocked { operation, target, window: self.window.inner().name.clone() }
    }

    /// Locks a target (`MPI_Win_lock`). The first operation is posted when the call returns; the
    /// lock is held when the wait returns.
    ///
    /// # Errors
    /// [`Error::AlreadyLocked`], and those of [`LockRequest::wait`].
    ///
    /// # Cancel safety
    /// As [`LockRequest`].
    pub fn lock(&mut self, target: u32, mode: Mode) -> LockCall<'_, 'w, T, F> {
        let request = match (self.held.contains_key(&target), mode) {
            (true, _) => None,
            (false, Mode::Exclusive) => Some(self.window.lock_exclusive(target)),
            (false, Mode::Shared) => Some(self.window.lock_shared(target)),
        };
        LockCall { epochs: self, target, mode, request, held: false }
    }

    /// Unlocks a target (`MPI_Win_unlock`). Does nothing unless waited on or polled.
    ///
    /// # Errors
    /// [`Error::NotLocked`], and those of [`Epoch::unlock`].
    ///
    /// # Cancel safety
    /// As [`Unlock`].
    pub const fn unlock(&mut self, target: u32) -> UnlockCall<'_, 'w, T, F> {
        UnlockCall { epochs: self, target, unlock: None }
    }
}

/// See [`Epochs::lock`]: `.wait()` blocks, `.await` does not, `.test()` polls.
#[must_use = "dropping the request cancels it"]
pub struct LockCall<'e, 'w, T: Element, F: Fabric> {
    epochs: &'e mut Epochs<'w, T, F>,
    target: u32,
    mode: Mode,
    /// `None` where the target was locked before.
    request: Option<LockRequest<'w, T, F>>,
    held: bool,
}

impl<T: Element, F: Drive> LockCall<'_, '_, T, F> {
    /// Blocks until the target is locked.
    ///
    /// # Errors
    /// See [`Epochs::lock`].
    pub fn wait(self) -> Result<(), Error> {
        wait_for(self.epochs.window.inner().fabric(), self)
    }
}

handle!(['e, 'w, T: Element, F], LockCall<'e, 'w, T, F>, (), Error, |lock| lock.epochs.window.inner().fabric());

impl<T: Element, F: Fabric> Future for LockCall<'_, '_, T, F> {
    type Output = Result<(), Error>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let Self { epochs, target, mode, request, held } = &mut *self;
        if *held {
            return Poll::Ready(Ok(()));
        }
        let Some(request) = request else {
            let (operation, window) = (crate::passive::lock::operation(*mode), epochs.window.inner().name.clone());
            return Poll::Ready(Err(Error::AlreadyLocked { operation, target: *target, window }));
        };
        let epoch = ready!(Pin::new(request).poll(cx))?;
        epochs.held.insert(*target, epoch);
        *held = true;
        Poll::Ready(Ok(()))
    }
}

impl<T: Element, F: Fabric> fmt::Debug for LockCall<'_, '_, T, F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} on rank {} of {:?}", crate::passive::lock::operation(self.mode), self.target, self.epochs.window)
    }
}

/// See [`Epochs::unlock`]: `.wait()` blocks, `.await` does not, `.test()` polls. Does nothing
/// before that.
#[must_use = "does nothing unless waited on or polled"]
pub struct UnlockCall<'e, 'w, T: Element, F: Fabric> {
    epochs: &'e mut Epochs<'w, T, F>,
    target: u32,
    /// Set once the unlock has started.
    unlock: Option<Unlock<'w, T, F>>,
}

impl<T: Element, F: Drive> UnlockCall<'_, '_, T, F> {
    /// Blocks until everything done under the lock is complete at the target and the release is
    /// posted.
    ///
    /// # Errors
    /// See [`Epochs::unlock`].
    pub fn wait(self) -> Result<(), Error> {
        wait_for(self.epochs.window.inner().fabric(), self)
    }
}

handle!(['e, 'w, T: Element, F], UnlockCall<'e, 'w, T, F>, (), Error, |unlock| unlock.epochs.window.inner().fabric());

impl<T: Element, F: Fabric> Future for UnlockCall<'_, '_, T, F> {
    type Output = Result<(), Error>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let Self { epochs, target, unlock } = &mut *self;
        if unlock.is_none() {
            match epochs.held.remove(target) {
                Some(epoch) => *unlock = Some(epoch.unlock()),
                None => return Poll::Ready(Err(epochs.not_locked("unlock", *target))),
            }
        }
        match unlock {
            Some(unlock) => Pin::new(unlock).poll(cx),
            None => unreachable!("the unlock has started"),
        }
    }
}

impl<T: Element, F: Fabric> fmt::Debug for UnlockCall<'_, '_, T, F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "unlock of rank {} of {:?}", self.target, self.epochs.window)
    }
}

impl<T: Element, F: Fabric> fmt::Debug for Epochs<'_, T, F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_map().entries(self.held.iter().map(|(target, epoch)| (target, epoch.mode()))).finish()
    }
}
