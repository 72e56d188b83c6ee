//! The lock of all ranks at once.

use std::fmt;
use std::future::poll_fn;

use fabric::remote_memory::{Fault, FaultKind};
use fabric::{Call, Drive, Fabric, call};

use crate::{Access, Element, Epoch, Error, FlushAll, LockRequest, UnlockAll, Window};

/// A lock of every rank's part that was asked for: the first operation to every rank has left. `.wait()` blocks,
/// `.await` does not, `.test()` looks.
///
/// # Cancel safety
/// Dropped before it is done, it leaves nothing locked: the endpoint finishes and releases what was begun.
#[must_use = "locks that nobody waits for are released at once"]
pub struct LockAllRequest<'w, T: Element, F: Fabric> {
    window: &'w Window<T, F>,
    call: Call<'w, Requests<'w, T, F>, Result<LockAll<'w, T, F>, Error>>,
}

type Requests<'w, T, F> = Vec<LockRequest<'w, T, F>>;

impl<'w, T: Element, F: Fabric> LockAllRequest<'w, T, F> {
    pub(crate) fn start(window: &'w Window<T, F>) -> Self {
        Self { window, call: Call::Asked(Self::requests(window, 0)) }
    }

    /// From one rank on.
    fn requests(window: &'w Window<T, F>, from: u32) -> Requests<'w, T, F> {
        (from..window.world().size()).map(|rank| window.lock_shared(rank)).collect()
    }

    async fn locked(window: &'w Window<T, F>, requests: Requests<'w, T, F>) -> Result<LockAll<'w, T, F>, Error> {
        let mut epochs = Vec::with_capacity(requests.len());
        let mut requests = requests.into_iter();
        while let Some(mut request) = requests.next() {
            match poll_fn(|cx| request.poll_first(cx)).await? {
                Some(epoch) => epochs.push(epoch),
                None => {
                    // Who waits holds locks of lower ranks only. Else it and a writer who locks in the order of the ranks could
                    // wait for one another.
                    drop(requests);
                    epochs.push(request.await?);
                    requests = Self::requests(window, epochs.len() as u32).into_iter();
                }
            }
        }
        Ok(LockAll { window, epochs })
    }
}

impl<'w, T: Element, F: Drive> LockAllRequest<'w, T, F> {
    /// Blocks until every rank's part is locked, shared.
    ///
    /// # Errors
    /// [`Error::Lock`] of the first that fails; what was locked is released.
    pub fn wait(self) -> Result<LockAll<'w, T, F>, Error> {
        self.block()
    }
}

call! {
    ['w, T: Element, F], LockAllRequest<'w, T, F>, LockAll<'w, T, F>, Error, |all| all.window.inner().fabric(),
    |requests| Self::locked(all.window, requests)
}

impl<T: Element, F: Fabric> fmt::Debug for LockAllRequest<'_, T, F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "lock_all of {:?}", self.window)
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

    /// Completes everything that this rank has posted to all targets before the call, there (`MPI_Win_flush_all`): on all of
    /// them at the same time.
    ///
    /// # Errors
    /// [`Error::Operation`] with the first failure of what was posted and not waited for.
    ///
    /// # Cancel safety
    /// Dropped before it is done it has promised nothing.
    pub fn flush_all(&self) -> FlushAll<'_, 'w, T, F> {
        FlushAll::new("flush_all", self.window.inner(), &self.epochs, F::flush)
    }

    /// Completes everything that this rank has posted to all targets before the call, here (`MPI_Win_flush_local_all`).
    ///
    /// A slice that was put may be used again without it, as soon as the put returned; what it tells is that nothing of this
    /// rank is under way on the network any more.
    ///
    /// # Errors
    /// As [`flush_all`](Self::flush_all).
    ///
    /// # Cancel safety
    /// As [`flush_all`](Self::flush_all).
    pub fn flush_local_all(&self) -> FlushAll<'_, 'w, T, F> {
        FlushAll::new("flush_local_all", self.window.inner(), &self.epochs, F::flush_local)
    }

    /// Unlocks every rank's part (`MPI_Win_unlock_all`), when it is waited for.
    ///
    /// # Errors
    /// The first failure of what was done under the locks. They are all released all the same.
    ///
    /// # Cancel safety
    /// Dropped before it is done, the releases are finished by the endpoint.
    pub fn unlock_all(self) -> UnlockAll<'w, T, F> {
        UnlockAll::new(self.window.inner(), self.epochs)
    }
}

impl<T: Element, F: Fabric> fmt::Debug for LockAll<'_, T, F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "shared locks on {} ranks", self.epochs.len())
    }
}
