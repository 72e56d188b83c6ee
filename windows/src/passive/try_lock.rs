//! Try-locks.

use onesided_fabric::Fabric;
use onesided_fabric::remote_memory::FaultKind;
use onesided_lock_algos::{Intent, Mode};

use crate::handles::LockRequest;
use crate::operation::request::Awaited;
use crate::passive::lock::Kind;
use crate::{Element, Epoch, Error, Request, Window};

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
    ///
    /// The first operation is posted when the call returns; a few operations on the target later
    /// the result is the guard, or `None` if the lock is taken or has waiters.
    ///
    /// # Errors
    /// When waited on: [`Error::Lock`]: the lock is poisoned ([`Error::is_poisoned`]), the target
    /// died; [`Error::Rank`].
    ///
    /// # Cancel safety
    /// As [`LockRequest`].
    pub fn try_lock_exclusive(&self, target: u32) -> Request<'_, Option<Epoch<'_, T, F>>, F> {
        self.try_lock(target, Mode::Exclusive)
    }

    /// Locks a rank's window memory shared if no exclusive holder or waiter is in the way. As
    /// [`try_lock_exclusive`](Self::try_lock_exclusive).
    pub fn try_lock_shared(&self, target: u32) -> Request<'_, Option<Epoch<'_, T, F>>, F> {
        self.try_lock(target, Mode::Shared)
    }

    fn try_lock(&self, target: u32, mode: Mode) -> Request<'_, Option<Epoch<'_, T, F>>, F> {
        let request = LockRequest::start(self, target, mode, Intent::TRY);
        Request::lock(Awaited::Lock(self.inner(), target), mode, |recovers| request.held_if_free(recovers))
    }
}

impl<'w, T: Element, F: Fabric, K: Kind<T>> LockRequest<'w, T, F, K> {
    /// The guard of a try-lock.
    pub(crate) async fn held_if_free(mut self, recovers: bool) -> Result<Option<K::Guard<'w, F>>, Error> {
        if recovers {
            self = self.recover();
        }
        let lock = self.lock();
        unless_busy(self.held().await.map(|(epoch, _)| K::guard(epoch, lock)))
    }
}

/// `None` where another owner has the lock.
pub(crate) fn unless_busy<G>(held: Result<G, Error>) -> Result<Option<G>, Error> {
    match held {
        Err(Error::Lock { fault, .. } | Error::TableLock { fault, .. }) if fault.kind() == FaultKind::TimedOut => {
            Ok(None)
        }
        held => held.map(Some),
    }
}
