//! Several locks at once.

use std::future::Future;
use std::pin::Pin;

use onesided_fabric::{Fabric, debug};
use onesided_lock_algos::{Intent, Mode};

use crate::handles::LockRequest;
use crate::locks::layout::LockId;
use crate::operation::request::{Awaited, Begin, Request};
use crate::passive::cancelled::Unclaimed;
use crate::passive::lock::{Kind, operation};
use crate::{Element, Error, Window};

impl<T: Element, F: Fabric> Window<T, F> {
    /// Locks several ranks, each once, in ascending order, each when the one before is held, so that callers
    /// of this function cannot deadlock each other; returns the guards in that order. Does nothing unless
    /// waited on or polled. `.recover()` takes poisoned locks over, as
    /// [`LockRequest::recover`] does; each guard tells its [previous owner](crate::Epoch::previous_owner).
    ///
    /// ```
    /// # use onesided_windows::{Mode, Window};
    /// # onesided_fabric::threads(2, |world| {
    /// # let window = Window::<u64>::allocate(&world, 1).wait()?;
    /// let guards = window.lock_many(&[1, 0], Mode::Exclusive).recover().wait()?;
    /// assert_eq!(guards.iter().map(|guard| guard.target()).collect::<Vec<_>>(), [0, 1]);
    /// # drop(guards);
    /// # window.close().wait()
    /// # }).unwrap().into_iter().collect::<Result<(), onesided_windows::Error>>().unwrap();
    /// ```
    ///
    /// # Errors
    /// Those of [`LockRequest::wait`] of the first lock that fails; the locks taken before are
    /// released.
    ///
    /// # Cancel safety
    /// If dropped before it completes, it leaves nothing locked.
    pub fn lock_many(&self, ranks: &[u32], mode: Mode) -> ManyLocks<'_, T, F> {
        let mut ranks = ranks.to_vec();
        ranks.sort_unstable();
        ranks.dedup();
        let awaited = Awaited::Lock(self.inner(), ranks.first().copied().unwrap_or_default());
        let locks = ranks.into_iter().map(|rank| ((rank, LockId::WINDOW), ())).collect();
        Many { window: self, locks, mode, intent: Intent::LOCK }.request(awaited)
    }
}

/// A request for several locks.
pub(crate) type ManyLocks<'w, T, F, K = ()> =
    Request<'w, Vec<<K as Kind<T>>::Guard<'w, F>>, F, Error, Many<'w, T, F, K>>;

/// The locks that a request asks for, one after the other.
pub struct Many<'w, T: Element, F: Fabric, K: Kind<T> = ()> {
    pub(crate) window: &'w Window<T, F>,
    /// In the order in which they are taken.
    pub(crate) locks: Vec<((u32, LockId), K::Lock<'w, F>)>,
    pub(crate) mode: Mode,
    pub(crate) intent: Intent,
}

impl<'w, T: Element, F: Fabric, K: Kind<T>> Many<'w, T, F, K> {
    pub(crate) fn request(self, awaited: Awaited<'w, F>) -> ManyLocks<'w, T, F, K> {
        let operation = operation(self.mode);
        Request::unboxed(awaited, operation, self)
    }
}

impl<'w, T: Element, F: Fabric, K: Kind<T>> Begin<Vec<K::Guard<'w, F>>> for Many<'w, T, F, K>
where
    K::Guard<'w, F>: Send,
{
    type Call = Pin<Box<dyn Future<Output = Result<Vec<K::Guard<'w, F>>, Error>> + Send + 'w>>;

    fn begin(self) -> Self::Call {
        let Self { window, locks, mode, intent } = self;
        Box::pin(async move {
            let mut held = Vec::with_capacity(locks.len());
            for (target_lock, lock) in locks {
                let request = LockRequest::<'w, T, F, K>::start_of(window, target_lock, lock, mode, intent);
                let (epoch, _) = request.held().await?;
                held.push((Unclaimed::new(epoch), lock));
            }
            let guard = |(epoch, lock): (Unclaimed<'w, T, F>, _)| K::guard(epoch.claim(), lock);
            Ok(held.into_iter().map(guard).collect())
        })
    }
}

impl<'w, T: Element, F: Fabric, K: Kind<T>> ManyLocks<'w, T, F, K> {
    /// Takes poisoned locks over: see [`LockRequest::recover`]. Those are held exclusively whatever mode was
    /// requested. Where a later lock fails, or the request is dropped, they stay poisoned.
    ///
    /// # Panics
    /// If it was polled before.
    #[track_caller]
    pub fn recover(mut self) -> Self {
        let Some(many) = self.not_begun() else { panic!("`recover` comes before the first poll") };
        many.intent = many.intent.recovering();
        self
    }
}

debug!(
    [T: Element, F: Fabric, K: Kind<T>] Many<'_, T, F, K>,
    |this| "{} of {} locks of {:?}", operation(this.mode), this.locks.len(), this.window
);
