//! The lock of a window that is made: the library's, or the program's own.

use std::sync::Arc;

use onesided_fabric::{Fabric, World};
use onesided_lock_algos::LockAlgorithm;

use crate::locks::design::backoff;
use crate::locks::parse::unknown;
use crate::locks::window_lock::{Erased, OtherLock, WindowLock};
use crate::window::exchange::Flavor;
use crate::{Builder, Element, Error, LockAllDesign, LockDesign, Request, Window};

impl<T: Element> Builder<T> {
    /// The designs of the lock and of `lock_all`, and the lock itself.
    pub(super) fn lock_of<F: Fabric>(
        &self,
        world: &World<F>,
        own: Option<Arc<dyn OtherLock<F>>>,
    ) -> Result<(LockDesign, LockAllDesign, WindowLock<F>), Error> {
        let design = if own.is_some() { LockDesign::Own } else { self.design()? };
        let (all, capabilities) = (self.all(design)?, world.fabric().capabilities());
        self.lease.check(design, world, &self.name)?;
        let library = design.algorithm(&capabilities);
        match (own, self.lease.lease) {
            (own, _) if all == LockAllDesign::Global && (own.is_some() || library.is_none()) => {
                Err(unknown("lock_all", all.name(), "on-demand, each-target"))
            }
            (Some(own), _) => Ok((design, all, WindowLock::Other(own))),
            (None, Some((policy, _))) if all == LockAllDesign::Global => {
                let why = "a waiter for a global lock_all cannot tell whose lease has expired";
                Err(Error::LeasePolicy { window: self.name.clone(), policy, design, why })
            }
            (None, _) => {
                let lock = library.unwrap_or_default();
                let global = || WindowLock::global(lock, backoff(&capabilities));
                Ok((design, all, if all == LockAllDesign::Global { global() } else { self.lease.lock(lock) }))
            }
        }
    }

    /// Allocates a window as [`allocate`](Self::allocate) does, whose lock is a [`LockAlgorithm`]
    /// of the program's own, or two functions ([`Simple`](onesided_lock_algos::Simple)). Verify the
    /// lock with `onesided-lock-kit` first.
    ///
    /// Every operation of the window's epochs works as with the library's locks. What the lock does
    /// not do, the window does not: a lock without recovery stays held by a dead owner. There are
    /// no lease policies, no global `lock_all`, and no tables of such locks.
    ///
    /// ```
    /// use onesided_windows::Window;
    /// # use onesided_lock_algos::{Simple, SimpleLock, SimpleUse};
    /// # use onesided_fabric::remote_memory::{Fault, RemoteMemory};
    /// # #[derive(Clone, Copy, Debug)]
    /// # struct OneWord;
    /// # impl SimpleLock for OneWord {
    /// #     const NAME: &'static str = "one-word";
    /// #     const WORDS: usize = 1;
    /// #     async fn acquire<M: RemoteMemory>(&self, lock: SimpleUse<'_, '_, M>) -> Result<(), Fault> {
    /// #         let mut lock = lock;
    /// #         while lock.memory.compare_swap(lock.word(0), 0, 1).await? != 0 {
    /// #             lock.pause(0).await?;
    /// #         }
    /// #         Ok(())
    /// #     }
    /// #     async fn release<M: RemoteMemory>(&self, lock: SimpleUse<'_, '_, M>) -> Result<(), Fault> {
    /// #         lock.memory.compare_swap(lock.word(0), 1, 0).await.map(drop)
    /// #     }
    /// # }
    /// # onesided_fabric::threads(2, |world| {
    /// let window = Window::<u64>::builder().allocate_with_lock(Simple::new(OneWord), &world, 8).wait()?;
    /// let epoch = window.lock_exclusive(0).wait()?;
    /// let old = epoch.fetch_add(0, 1).wait()?;
    /// epoch.unlock().wait()?;
    /// # window.close().wait()
    /// # }).unwrap().into_iter().collect::<Result<(), onesided_windows::Error>>().unwrap();
    /// ```
    ///
    /// # Errors
    /// As [`allocate`](Self::allocate), and [`Error::Design`] for a global `lock_all`.
    ///
    /// # Cancel safety
    /// Not cancel safe: collective, as a [barrier](World::barrier).
    pub fn allocate_with_lock<A: LockAlgorithm, F: Fabric>(
        self,
        lock: A,
        world: &World<F>,
        len: usize,
    ) -> Request<'_, Window<T, F>, F> {
        const { assert!(!A::SERVED, "a lock that a thread serves is one of the library's") };
        let awaited = self.awaited(world);
        let made = self.make(Some(Arc::new(Erased(lock))), world, (Flavor::Allocated, None), len);
        Request::new(awaited, "create", made)
    }
}
