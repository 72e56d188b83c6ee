//! Several locks at once.

use onesided_fabric::Fabric;
use onesided_lock_algos::{Intent, Mode};

use crate::handles::{Begin, LockRequest, Recover};
use crate::locks::layout::LockId;
use crate::operation::request::{Awaited, Locking};
use crate::passive::lock::{Kind, operation};
use crate::{Element, Epoch, Error, Request, Window};

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
    pub fn lock_many<'w>(
        &'w self,
        ranks: &[u32],
        mode: Mode,
    ) -> Request<'w, Vec<Epoch<'w, T, F>>, F, Error, impl Begin<Vec<Epoch<'w, T, F>>> + Recover + use<'w, T, F>> {
        let mut ranks = ranks.to_vec();
        ranks.sort_unstable();
        ranks.dedup();
        let awaited = Awaited::Lock(self.inner(), ranks.first().copied().unwrap_or_default());
        let locks = ranks.into_iter().map(|rank| ((rank, LockId::WINDOW), ())).collect();
        lock_in_order::<T, F, ()>(self, locks, mode, awaited)
    }
}

/// Takes the locks one after the other.
pub(crate) fn lock_in_order<'w, T: Element, F: Fabric, K: Kind<T>>(
    window: &'w Window<T, F>,
    locks: Vec<((u32, LockId), K::Lock<'w, F>)>,
    mode: Mode,
    awaited: Awaited<'w, F>,
) -> Request<'w, Vec<K::Guard<'w, F>>, F, Error, impl Begin<Vec<K::Guard<'w, F>>> + Recover> {
    let call = move |intent| async move {
        let mut held = Vec::with_capacity(locks.len());
        for (target_lock, lock) in locks {
            let request = LockRequest::<'w, T, F, K>::start_of(window, target_lock, lock, mode, intent);
            let (epoch, _) = request.held().await?;
            held.push((epoch, lock));
        }
        Ok(held.into_iter().map(|(epoch, lock)| K::guard(epoch.claim(), lock)).collect())
    };
    Request::unboxed(awaited, operation(mode), Locking { intent: Intent::LOCK, call })
}
