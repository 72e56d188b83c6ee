//! Locks in MPI's manner, checked at run time.

use std::collections::BTreeMap;
use std::fmt;

use fabric::{Drive, Fabric};
use lock_algos::Mode;

use crate::{Access, Element, Epoch, Error, Window};

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
}

impl<T: Element, F: Drive> Epochs<'_, T, F> {
    /// Locks a target (`MPI_Win_lock`); blocks until it is held.
    ///
    /// # Errors
    /// [`Error::AlreadyLocked`], and those of [`LockRequest::wait`](crate::LockRequest::wait).
    pub fn lock(&mut self, target: u32, mode: Mode) -> Result<(), Error> {
        if self.held.contains_key(&target) {
            let window = self.window.inner().name.clone();
            return Err(Error::AlreadyLocked { operation: crate::lock::operation(mode), target, window });
        }
        let request = match mode {
            Mode::Exclusive => self.window.lock_exclusive(target),
            Mode::Shared => self.window.lock_shared(target),
        };
        self.held.insert(target, request.wait()?);
        Ok(())
    }

    /// Unlocks a target (`MPI_Win_unlock`).
    ///
    /// # Errors
    /// [`Error::NotLocked`], and those of [`Epoch::unlock`].
    pub fn unlock(&mut self, target: u32) -> Result<(), Error> {
        match self.held.remove(&target) {
            Some(epoch) => epoch.unlock(),
            None => Err(self.not_locked("unlock", target)),
        }
    }
}

impl<T: Element, F: Fabric> fmt::Debug for Epochs<'_, T, F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_map().entries(self.held.iter().map(|(target, epoch)| (target, epoch.mode()))).finish()
    }
}
