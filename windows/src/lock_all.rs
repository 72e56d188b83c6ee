//! The lock of all ranks at once.

use std::fmt;

use fabric::{Drive, Fabric};

use crate::{Access, Element, Epoch, Error, LockRequest, Window};

/// A lock of every rank's part that was asked for: the first operation to every rank has left.
#[must_use = "locks that nobody waits for are released at once"]
pub struct LockAllRequest<'w, T: Element, F: Fabric> {
    requests: Vec<LockRequest<'w, T, F>>,
}

impl<'w, T: Element, F: Fabric> LockAllRequest<'w, T, F> {
    pub(crate) fn start(window: &'w Window<T, F>) -> Self {
        Self { requests: (0..window.world().size()).map(|rank| window.lock_shared(rank)).collect() }
    }

    /// Waits without blocking the thread until every rank's part is locked.
    ///
    /// # Errors
    /// As [`wait`](Self::wait).
    ///
    /// # Cancel safety
    /// Dropped before it is done, it leaves nothing locked: the endpoint finishes and releases what was begun.
    pub async fn locked(self) -> Result<LockAll<'w, T, F>, Error> {
        let mut epochs = Vec::with_capacity(self.requests.len());
        for request in self.requests {
            epochs.push(request.await?);
        }
        Ok(LockAll { epochs })
    }
}

impl<'w, T: Element, F: Drive> LockAllRequest<'w, T, F> {
    /// Blocks until every rank's part is locked, shared.
    ///
    /// # Errors
    /// [`Error::Lock`] of the first that fails; what was locked is released.
    pub fn wait(self) -> Result<LockAll<'w, T, F>, Error> {
        let epochs = self.requests.into_iter().map(LockRequest::wait).collect::<Result<_, _>>()?;
        Ok(LockAll { epochs })
    }
}

impl<T: Element, F: Fabric> fmt::Debug for LockAllRequest<'_, T, F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "lock_all of {} ranks", self.requests.len())
    }
}

/// Every rank's part of a window, locked shared. Dropped, it unlocks them all.
#[must_use = "if unused the locks are released at once"]
pub struct LockAll<'w, T: Element, F: Fabric> {
    epochs: Vec<Epoch<'w, T, F>>,
}

impl<'w, T: Element, F: Fabric> LockAll<'w, T, F> {
    /// The operations on one rank's part.
    ///
    /// # Panics
    /// If the world has no such rank, as an index would.
    pub fn at(&self, target: u32) -> &Access<'w, T, F> {
        &self.epochs[target as usize]
    }

    /// Completes everything that this rank has posted to all targets, there (`MPI_Win_flush_all`), without blocking the
    /// thread.
    ///
    /// # Errors
    /// As [`flush_all`](Self::flush_all).
    ///
    /// # Cancel safety
    /// Dropped before it is done it has promised nothing.
    pub async fn flush_all_async(&self) -> Result<(), Error> {
        let mut outcome = Ok(());
        self.begin_flushes();
        for epoch in &self.epochs {
            outcome = outcome.and(epoch.flush().await);
        }
        outcome
    }

    fn begin_flushes(&self) {
        if let Some(first) = self.epochs.first() {
            first.inner.begin_flushes(self.epochs.iter().map(|epoch| epoch.target));
        }
    }

    /// Unlocks without blocking the thread. See [`unlock_all`](Self::unlock_all).
    ///
    /// # Errors
    /// As [`unlock_all`](Self::unlock_all).
    ///
    /// # Cancel safety
    /// Dropped before it is done, the releases are finished by the endpoint.
    pub async fn unlock_all_async(self) -> Result<(), Error> {
        let mut outcome = Ok(());
        self.begin_flushes();
        for epoch in self.epochs {
            outcome = outcome.and(epoch.unlock_async().await);
        }
        outcome
    }
}

impl<T: Element, F: Drive> LockAll<'_, T, F> {
    /// Completes everything that this rank has posted to all targets, there (`MPI_Win_flush_all`).
    ///
    /// # Errors
    /// [`Error::Operation`] with the first failure of what was posted and not waited for.
    pub fn flush_all(&self) -> Result<(), Error> {
        self.begin_flushes();
        // Not try_fold: every one of them is to be flushed.
        self.epochs.iter().map(|epoch| epoch.flush().wait()).fold(Ok(()), Result::and)
    }

    /// Unlocks every rank's part (`MPI_Win_unlock_all`).
    ///
    /// # Errors
    /// The first failure of what was done under the locks. They are all released all the same.
    pub fn unlock_all(self) -> Result<(), Error> {
        self.begin_flushes();
        // Nor here: every one of them is to be unlocked.
        self.epochs.into_iter().map(Epoch::unlock).fold(Ok(()), Result::and)
    }
}

impl<T: Element, F: Fabric> fmt::Debug for LockAll<'_, T, F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "shared locks on {} ranks", self.epochs.len())
    }
}
