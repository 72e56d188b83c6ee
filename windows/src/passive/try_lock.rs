//! Try-locks.

use std::marker::PhantomData;

use onesided_fabric::Fabric;
use onesided_fabric::remote_memory::{Fault, FaultKind};
use onesided_lock_algos::{Intent, Mode};

use crate::handles::LockRequest;
use crate::locks::layout::LockId;
use crate::passive::lock::Kind;
use crate::{Element, Epoch, Error, Window};

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
    /// the result is the guard, or `None` if the lock is taken or has waiters. A deadline that
    /// passes before that gives `None` too.
    ///
    /// # Errors
    /// When waited on: [`Error::Lock`]: the lock is poisoned ([`Error::is_poisoned`]; `None` while another
    /// rank's request passes), the target died; [`Error::Rank`].
    ///
    /// # Cancel safety
    /// As [`LockRequest`].
    #[inline]
    pub fn try_lock_exclusive(&self, target: u32) -> LockRequest<'_, T, F, Try> {
        LockRequest::start_of(self, (target, LockId::WINDOW), (), Mode::Exclusive, Intent::TRY)
    }

    /// Locks a rank's window memory shared if no exclusive holder or waiter is in the way. As
    /// [`try_lock_exclusive`](Self::try_lock_exclusive).
    #[inline]
    pub fn try_lock_shared(&self, target: u32) -> LockRequest<'_, T, F, Try> {
        LockRequest::start_of(self, (target, LockId::WINDOW), (), Mode::Shared, Intent::TRY)
    }
}

/// The kind of a try-lock of a window, or of a table.
#[derive(Debug)]
pub struct Try<K = ()>(PhantomData<K>);

impl<T: Element, K: Kind<T>> Kind<T> for Try<K> {
    type Guard<'w, F: Fabric> = Option<K::Guard<'w, F>>;
    type Lock<'w, F: Fabric> = K::Lock<'w, F>;

    #[inline(always)] // see `LockRequest::wait`
    fn guard<'w, F: Fabric>(epoch: Epoch<'w, T, F>, lock: K::Lock<'w, F>) -> Option<K::Guard<'w, F>> {
        Some(K::guard(epoch, lock))
    }

    fn failed<'w, F: Fabric>(lock: K::Lock<'w, F>, error: Error) -> Error {
        K::failed(lock, error)
    }

    /// `None` where another owner has the lock.
    #[inline(always)] // see `LockRequest::wait`
    fn outcome<'w, F: Fabric>(
        held: Result<Epoch<'w, T, F>, Fault>,
        lock: K::Lock<'w, F>,
        failed: impl FnOnce(Fault) -> Error,
    ) -> Result<Option<K::Guard<'w, F>>, Error> {
        match held {
            Err(fault) if fault.kind() == FaultKind::TimedOut => Ok(None),
            held => K::outcome(held, lock, failed).map(Some),
        }
    }
}
