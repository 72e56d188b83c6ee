//! The lock of all ranks at once.

use std::fmt;
use std::future::Future;
use std::pin::Pin;

use fabric::remote_memory::{Fault, FaultKind};
use fabric::{Drive, Fabric};

use crate::{Access, Element, Epoch, Error, LockRequest, Request, Window};

/// A lock of every rank's part that was asked for: the first operation to every rank has left.
#[must_use = "locks that nobody waits for are released at once"]
pub struct LockAllRequest<'w, T: Element, F: Fabric> {
    window: &'w Window<T, F>,
    requests: Vec<LockRequest<'w, T, F>>,
}

impl<'w, T: Element, F: Fabric> LockAllRequest<'w, T, F> {
    pub(crate) fn start(window: &'w Window<T, F>) -> Self {
        Self { window, requests: (0..window.world().size()).map(|rank| window.lock_shared(rank)).collect() }
    }

    async fn locked(self) -> Result<LockAll<'w, T, F>, Error> {
        let mut epochs = Vec::with_capacity(self.requests.len());
        for request in self.requests {
            epochs.push(request.await?);
        }
        Ok(LockAll { window: self.window, epochs })
    }
}

impl<'w, T: Element, F: Drive> LockAllRequest<'w, T, F> {
    /// Blocks until every rank's part is locked, shared.
    ///
    /// # Errors
    /// [`Error::Lock`] of the first that fails; what was locked is released.
    pub fn wait(self) -> Result<LockAll<'w, T, F>, Error> {
        let epochs = self.requests.into_iter().map(LockRequest::wait).collect::<Result<_, _>>()?;
        Ok(LockAll { window: self.window, epochs })
    }
}

/// # Cancel safety
/// Dropped before it is done, it leaves nothing locked: the endpoint finishes and releases what was begun.
impl<'w, T: Element, F: Fabric> IntoFuture for LockAllRequest<'w, T, F> {
    type Output = Result<LockAll<'w, T, F>, Error>;
    type IntoFuture = Pin<Box<dyn Future<Output = Self::Output> + Send + 'w>>;

    fn into_future(self) -> Self::IntoFuture {
        Box::pin(self.locked())
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
    window: &'w Window<T, F>,
    epochs: Vec<Epoch<'w, T, F>>,
}

impl<'w, T: Element, F: Fabric> LockAll<'w, T, F> {
    /// The operations on one rank's part.
    ///
    /// # Errors
    /// [`Error::Rank`].
    #[inline]
    pub fn at(&self, target: u32) -> Result<&Access<'w, T, F>, Error> {
        match self.epochs.get(target as usize) {
            Some(epoch) => Ok(epoch),
            None => Err(self.no_such(target)),
        }
    }

    #[cold]
    #[inline(never)]
    fn no_such(&self, target: u32) -> Error {
        self.window.inner().failed("access", target, Fault::new(FaultKind::NoSuchRank))
    }

    /// Completes everything that this rank has posted to all targets, there (`MPI_Win_flush_all`), when it is waited for.
    ///
    /// # Errors
    /// [`Error::Operation`] with the first failure of what was posted and not waited for.
    ///
    /// # Cancel safety
    /// Dropped before it is done it has promised nothing.
    pub fn flush_all(&self) -> Request<'_, (), F> {
        Request::new(self.window.inner().fabric().clone(), "flush_all", async move {
            for epoch in &self.epochs {
                epoch.flush().await?;
            }
            Ok(())
        })
    }

    /// Unlocks every rank's part (`MPI_Win_unlock_all`), when it is waited for.
    ///
    /// # Errors
    /// The first failure of what was done under the locks. They are all released all the same.
    ///
    /// # Cancel safety
    /// Dropped before it is done, the releases are finished by the endpoint.
    pub fn unlock_all(self) -> Request<'w, (), F> {
        Request::new(self.window.inner().fabric().clone(), "unlock_all", async move {
            let mut outcome = Ok(());
            for epoch in self.epochs {
                outcome = outcome.and(epoch.unlock().await);
            }
            outcome
        })
    }
}

impl<T: Element, F: Fabric> fmt::Debug for LockAll<'_, T, F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "shared locks on {} ranks", self.epochs.len())
    }
}
