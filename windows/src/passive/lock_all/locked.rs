//! The parts that a `lock_all` has locked.

use std::ops::Deref;
use std::sync::{Arc, OnceLock};

use onesided_fabric::Fabric;
use onesided_fabric::remote_memory::Fault;

use crate::locks::context::LOCK_ALL_RANK;
use crate::locks::layout::LockId;
use crate::passive::release::release;
use crate::window::inner::Inner;
use crate::window::target::Target;
use crate::{Access, Element, Epoch};

/// Where the lock of all parts at once is.
pub(crate) const LOCK_ALL: (u32, LockId) = (LOCK_ALL_RANK, LockId::ALL);

/// A part that was reached.
pub(crate) enum RankLock<'w, T: Element, F: Fabric> {
    /// By its own lock.
    Own(Epoch<'w, T, F>),
    /// Under the lock of all.
    All(Access<'w, T, F>),
}

impl<'w, T: Element, F: Fabric> Deref for RankLock<'w, T, F> {
    type Target = Access<'w, T, F>;

    #[inline]
    fn deref(&self) -> &Access<'w, T, F> {
        match self {
            Self::Own(epoch) => epoch,
            Self::All(access) => access,
        }
    }
}

/// A part of each rank, once it was reached.
pub(crate) type RankLocks<'w, T, F> = [OnceLock<RankLock<'w, T, F>>];

/// What a `lock_all` has locked. Dropped, it flushes that and releases.
pub(crate) struct LockedRanks<'w, T: Element, F: Fabric> {
    pub(crate) inner: &'w Arc<Inner<F>>,
    pub(crate) ranks: Box<RankLocks<'w, T, F>>,
    /// The lock of all parts at once, where there is one and until it is released.
    pub(crate) all: Option<Epoch<'w, T, F>>,
}

impl<'w, T: Element, F: Fabric> LockedRanks<'w, T, F> {
    /// Nothing yet, under a lock of all or without one.
    pub(crate) fn new(inner: &'w Arc<Inner<F>>, all: Option<Epoch<'w, T, F>>) -> Self {
        Self { inner, ranks: (0..inner.world.size()).map(|_| OnceLock::new()).collect(), all }
    }

    /// A rank's part, if it was reached.
    #[inline]
    pub(crate) fn at(&self, rank: u32) -> Option<&Access<'w, T, F>> {
        self.ranks.get(rank as usize)?.get().map(|held| &**held)
    }

    /// A rank's part, if one lock is that of all parts.
    pub(crate) fn resolve(&self, rank: u32) -> Option<Result<&Access<'w, T, F>, Fault>> {
        self.all.as_ref()?;
        Some(self.inner.target(rank).map(|target| {
            let lock = &self.ranks[rank as usize]; // there is such a rank
            &**lock.get_or_init(|| RankLock::All(Access::new(self.inner, target)))
        }))
    }

    /// A part that was locked, by its own lock. If somebody has reached it meanwhile, that is kept and this one released.
    pub(crate) fn insert(&self, epoch: Epoch<'w, T, F>) -> &Access<'w, T, F> {
        self.ranks[epoch.target() as usize].get_or_init(|| RankLock::Own(epoch))
    }

    /// Of the parts that were reached.
    pub(crate) fn targets(&self) -> impl Iterator<Item = &'w Target<F>> {
        self.ranks.iter().filter_map(OnceLock::get).map(|held| held.target)
    }
}

impl<T: Element, F: Fabric> Drop for LockedRanks<'_, T, F> {
    fn drop(&mut self) {
        let Some(all) = self.all.take() else { return }; // each part flushes and releases itself
        let (inner, mode, owner) = (self.inner, all.mode(), all.held_word());
        inner.begin_flushes(self.targets());
        let ranks: Vec<_> = self.targets().map(|target| target.rank).collect();
        let _released = std::mem::ManuallyDrop::new(all); // below
        let theirs = Arc::clone(inner);
        inner.run_or_spawn(async move {
            for rank in ranks {
                let flushed = match theirs.target(rank) {
                    Ok(target) => theirs.fabric().flush_before_release(target.fabric_rank()).await.map(drop),
                    Err(fault) => Err(fault),
                };
                if let Err(fault) = flushed {
                    theirs.lifecycle.defer(theirs.failed("unlock_all", rank, fault));
                }
            }
            release(&theirs, LOCK_ALL, owner, mode).await;
        });
    }
}
