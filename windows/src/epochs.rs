//! Locks in MPI's manner, checked at run time.

use std::collections::BTreeMap;
use std::fmt;

use fabric::Fabric;
use lock_algos::Mode;

use crate::{Access, Element, Epoch, Error, Request, Window};

/// Locks and unlocks of a window in MPI's manner: by calls, in whatever order the program makes them, checked at run time
/// (MPI-4.1, 12.5.3: a process locks a target at most once at a time, and accesses it only while it does).
///
/// For programs that come from MPI. Dropped, it unlocks what is still locked.
pub struct Epochs<'w, T: Element, F: Fabric> {
    window: &'w Window<T, F>,
    held: BTreeMap<u32, Epoch<'w, T, F>>,
}

impl<'w, T: Element, F: Fabric> Epochs<'w, T, F> {
    pub(crate) const fn new(window: &'w Window<T, F>) -> Self {
        Self { window, held: BTreeMap::new() }
    }

    /// The operations on a target that is locked.
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

    /// Locks a target (`MPI_Win_lock`). The first operation has left when the call returns; the lock is held when it was
    /// waited for.
    ///
    /// # Errors
    /// [`Error::AlreadyLocked`], and those of [`LockRequest::wait`](crate::LockRequest::wait).
    ///
    /// # Cancel safety
    /// As [`LockRequest`](crate::LockRequest).
    pub fn lock(&mut self, target: u32, mode: Mode) -> Request<'_, (), F> {
        let inner = self.window.inner();
        let request = match (self.held.contains_key(&target), mode) {
            (true, _) => {
                let operation = crate::lock::operation(mode);
                Err(Error::AlreadyLocked { operation, target, window: inner.name.clone() })
            }
            (false, Mode::Exclusive) => Ok(self.window.lock_exclusive(target)),
            (false, Mode::Shared) => Ok(self.window.lock_shared(target)),
        };
        Request::new(inner.fabric().clone(), "lock", async move {
            self.held.insert(target, request?.await?);
            Ok(())
        })
    }

    /// Unlocks a target (`MPI_Win_unlock`), when it is waited for; until then it is locked.
    ///
    /// # Errors
    /// [`Error::NotLocked`], and those of [`Epoch::unlock`].
    ///
    /// # Cancel safety
    /// As [`Unlock`](crate::Unlock).
    pub fn unlock(&mut self, target: u32) -> Request<'_, (), F> {
        Request::new(self.window.inner().fabric().clone(), "unlock", async move {
            match self.held.remove(&target) {
                Some(epoch) => epoch.unlock().await,
                None => Err(self.not_locked("unlock", target)),
            }
        })
    }
}

impl<T: Element, F: Fabric> fmt::Debug for Epochs<'_, T, F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_map().entries(self.held.iter().map(|(target, epoch)| (target, epoch.mode()))).finish()
    }
}
