//! The targets that a `lock_all` has locked.

use std::ops::Deref;
use std::sync::{Arc, OnceLock};

use onesided_fabric::Fabric;
use onesided_fabric::remote_memory::Fault;

use crate::locks::context::LOCK_ALL_RANK;
use crate::locks::layout::LockId;
use crate::passive::claim::KeptClaim;
use crate::window::inner::Inner;
use crate::window::target::Target;
use crate::{Access, Element, Epoch, Error};

/// The lock-all word.
pub(crate) const LOCK_ALL: (u32, LockId) = (LOCK_ALL_RANK, LockId::ALL);

/// A target that was accessed.
pub(crate) enum RankLock<'w, T: Element, F: Fabric> {
    /// By its own lock.
    Own(Epoch<'w, T, F>),
    /// Under the lock-all word.
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

/// The accessed target of each rank.
pub(crate) type RankLocks<'w, T, F> = [OnceLock<RankLock<'w, T, F>>];

/// What a `lock_all` has locked. A drop flushes and releases.
pub(crate) struct LockedRanks<'w, T: Element, F: Fabric> {
    pub(crate) inner: &'w Arc<Inner<F>>,
    pub(crate) ranks: Box<RankLocks<'w, T, F>>,
    /// The lock-all word's lock, where there is one and until it is released.
    pub(crate) all: Option<Epoch<'w, T, F>>,
}

impl<'w, T: Element, F: Fabric> LockedRanks<'w, T, F> {
    /// Without accessed targets, with or without the lock-all word.
    pub(crate) fn new(inner: &'w Arc<Inner<F>>, all: Option<Epoch<'w, T, F>>) -> Self {
        Self { inner, ranks: (0..inner.world.size()).map(|_| OnceLock::new()).collect(), all }
    }

    /// A rank's access, if there was one.
    #[inline]
    pub(crate) fn at(&self, rank: u32) -> Option<&Access<'w, T, F>> {
        self.ranks.get(rank as usize)?.get().map(|held| &**held)
    }

    /// A rank's access, if all ranks are locked by the lock-all word.
    pub(crate) fn resolve(&self, rank: u32) -> Option<Result<&Access<'w, T, F>, Fault>> {
        self.all.as_ref()?;
        Some(self.inner.target(rank).map(|target| {
            let lock = &self.ranks[rank as usize]; // the rank was checked by `target`
            &**lock.get_or_init(|| RankLock::All(Access::new(self.inner, target)))
        }))
    }

    /// Keeps a target that was locked by its own lock. If another task was faster, that lock is
    /// kept and this one released.
    pub(crate) fn insert(&self, epoch: Epoch<'w, T, F>) -> &Access<'w, T, F> {
        self.ranks[epoch.target() as usize].get_or_init(|| RankLock::Own(epoch))
    }

    /// Flushes and unlocks.
    pub(crate) async fn unlock(mut self) -> Result<(), Error> {
        let (inner, mut outcome) = (self.inner, Ok(()));
        inner.begin_flushes(self.targets());
        for rank in 0..inner.world.size() {
            let lock = &mut self.ranks[rank as usize];
            let unlocked = if let Some(RankLock::All(access)) = lock.get() {
                inner.fabric().flush_before_release(access.target.fabric_rank()).await.map(drop)
            } else if let Some(RankLock::Own(epoch)) = lock.take() {
                epoch.released().await
            } else {
                continue;
            };
            outcome = outcome.and(unlocked.map_err(|fault| (rank, fault)));
        }
        if let Some(all) = self.all.take() {
            all.unlock_unchanged();
        }
        outcome.map_err(|(rank, fault)| inner.failed_or_expired("unlock_all", rank, fault))
    }

    /// The accessed targets.
    pub(crate) fn targets(&self) -> impl Iterator<Item = &'w Target<F>> + Clone {
        self.ranks.iter().filter_map(OnceLock::get).map(|held| held.target)
    }
}

impl<T: Element, F: Fabric> Drop for LockedRanks<'_, T, F> {
    fn drop(&mut self) {
        let Some(all) = self.all.take() else { return }; // each epoch flushes and releases itself
        all.note_release();
        let (inner, owner, mode) = (self.inner, all.held_word(), all.mode());
        inner.begin_flushes(self.targets());
        let ranks: Vec<_> = self.targets().map(|target| target.rank).collect();
        let _released = std::mem::ManuallyDrop::new(all); // released below
        let claim = KeptClaim { inner: Arc::clone(inner), target_lock: LOCK_ALL, owner, mode };
        inner.run_or_spawn(async move {
            let theirs = &claim.inner;
            for rank in ranks {
                let flushed = match theirs.target(rank) {
                    Ok(target) => theirs.fabric().flush_before_release(target.fabric_rank()).await.map(drop),
                    Err(fault) => Err(fault),
                };
                if let Err(fault) = flushed {
                    theirs.lifecycle.defer(theirs.failed("unlock_all", rank, fault));
                }
            }
            claim.release(None).await;
        });
    }
}
