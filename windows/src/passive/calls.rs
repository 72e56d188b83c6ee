//! Locks by calls, as in MPI, checked at run time.

use std::collections::BTreeMap;

use onesided_fabric::{Any, Fabric, debug};
use onesided_lock_algos::Mode;

use crate::operation::request::{Awaited, Begin};
use crate::passive::lock::operation;
use crate::{Access, Element, Epoch, Error, Request, Window};

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
pub struct Epochs<'w, T: Element, F: Fabric = Any> {
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
            None => Err(self.not_locked("at", target)),
        }
    }

    fn not_locked(&self, operation: &'static str, target: u32) -> Error {
        Error::NotLocked { operation, target, window: self.window.inner().name.clone() }
    }

    /// Locks a target (`MPI_Win_lock`). The first operation is posted when the call returns; the
    /// lock is held when the wait returns.
    ///
    /// # Errors
    /// [`Error::AlreadyLocked`], and those of
    /// [`LockRequest::wait`](crate::handles::LockRequest::wait).
    ///
    /// # Cancel safety
    /// As [`LockRequest`](crate::handles::LockRequest).
    pub fn lock(&mut self, target: u32, mode: Mode) -> Request<'_, (), F, Error, impl Begin<()>> {
        let (inner, operation) = (self.window.inner(), operation(mode));
        let request = match (self.held.contains_key(&target), mode) {
            (true, _) => Err(Error::AlreadyLocked { operation, target, window: inner.name.clone() }),
            (false, Mode::Exclusive) => Ok(self.window.lock_exclusive(target)),
            (false, Mode::Shared) => Ok(self.window.lock_shared(target)),
        };
        Request::unboxed(Awaited::Lock(inner, target), operation, move || async move {
            self.held.insert(target, request?.await?);
            Ok(())
        })
    }

    /// Unlocks a target (`MPI_Win_unlock`). Does nothing unless waited on or polled.
    ///
    /// # Errors
    /// [`Error::NotLocked`], and those of [`Epoch::unlock`].
    ///
    /// # Cancel safety
    /// As [`Unlock`](crate::handles::Unlock).
    pub fn unlock(&mut self, target: u32) -> Request<'_, (), F, Error, impl Begin<()>> {
        Request::unboxed(Awaited::Target(self.window.inner(), target), "unlock", move || async move {
            match self.held.remove(&target) {
                Some(epoch) => epoch.unlock().await,
                None => Err(self.not_locked("unlock", target)),
            }
        })
    }
}

debug!([T: Element, F: Fabric] Epochs<'_, T, F>, |this| "{:?}", this.held.iter().map(|(target, epoch)| (target, epoch.mode())).collect::<BTreeMap<_, _>>());
