//! The targets that a `lock_all` has locked.

use std::future::Future;
use std::ops::Deref;
use std::pin::pin;
use std::sync::{Arc, OnceLock};
use std::task::{Context, Waker};

use onesided_fabric::Fabric;
use onesided_fabric::remote_memory::Fault;

use crate::abandoned::release;
use crate::home::ROOM;
use crate::homes::Which;
use crate::window::{Inner, Target};
use crate::{Access, Element, Epoch};

/// The lock-all word.
pub(crate) const SPOT: (u32, Which) = (ROOM, Which::ALL);

/// A target that was accessed.
pub(crate) enum Held<'w, T: Element, F: Fabric> {
    /// By its own lock.
    Alone(Epoch<'w, T, F>),
    /// Under the lock-all word.
    Under(Access<'w, T, F>),
}

impl<'w, T: Element, F: Fabric> Deref for Held<'w, T, F> {
    type Target = Access<'w, T, F>;

    #[inline]
    fn deref(&self) -> &Access<'w, T, F> {
        match self {
            Self::Alone(epoch) => epoch,
            Self::Under(access) => access,
        }
    }
}

/// The accessed target of each rank.
pub(crate) type Parts<'w, T, F> = [OnceLock<Held<'w, T, F>>];

/// What a `lock_all` has locked. A drop flushes and releases.
pub(crate) struct Reached<'w, T: Element, F: Fabric> {
    pub(crate) inner: &'w Arc<Inner<F>>,
    pub(crate) parts: Box<Parts<'w, T, F>>,
    /// The lock-all word's lock, where there is one and until it is released.
    pub(crate) all: Option<Epoch<'w, T, F>>,
}

impl<'w, T: Element, F: Fabric> Reached<'w, T, F> {
    /// Without accessed targets, with or without the lock-all word.
    pub(crate) fn nothing(inner: &'w Arc<Inner<F>>, all: Option<Epoch<'w, T, F>>) -> Self {
        Self { inner, parts: (0..inner.world.size()).map(|_| OnceLock::new()).collect(), all }
    }

    /// A rank's access, if there was one.
    #[inline]
    pub(crate) fn at(&self, rank: u32) -> Option<&Access<'w, T, F>> {
        self.parts.get(rank as usize)?.get().map(|held| &**held)
    }

    /// A rank's access, if all ranks are locked by the lock-all word.
    pub(crate) fn reach(&self, rank: u32) -> Option<Result<&Access<'w, T, F>, Fault>> {
        self.all.as_ref()?;
        Some(self.inner.target(rank).map(|target| {
            let part = &self.parts[rank as usize]; // the rank was checked by `target`
            &**part.get_or_init(|| Held::Under(Access::new(self.inner, target)))
        }))
    }

    /// Keeps a target that was locked by its own lock. If another task was faster, that lock is
    /// kept and this one released.
    pub(crate) fn keep(&self, epoch: Epoch<'w, T, F>) -> &Access<'w, T, F> {
        self.parts[epoch.target() as usize].get_or_init(|| Held::Alone(epoch))
    }

    /// The accessed targets.
    pub(crate) fn targets(&self) -> impl Iterator<Item = &'w Target<F>> {
        self.parts.iter().filter_map(OnceLock::get).map(|held| held.target)
    }
}

impl<T: Element, F: Fabric> Drop for Reached<'_, T, F> {
    fn drop(&mut self) {
        let Some(all) = self.all.take() else { return }; // each epoch flushes and releases itself
        let (inner, mode, owner) = (self.inner, all.mode(), all.held_word());
        inner.begin_flushes(self.targets());
        let ranks: Vec<_> = self.targets().map(|target| target.rank).collect();
        let _released = std::mem::ManuallyDrop::new(all); // released below
        let theirs = Arc::clone(inner);
        let mut task = Box::pin(async move {
            for rank in ranks {
                let flushed = match theirs.target(rank) {
                    Ok(target) => theirs.fabric().flush_before_release(target.fabric_rank()).await.map(drop),
                    Err(fault) => Err(fault),
                };
                if let Err(fault) = flushed {
                    theirs.keep(theirs.failed("unlock_all", rank, fault));
                }
            }
            release(&theirs, SPOT, owner, mode).await;
        });
        if pin!(&mut task).poll(&mut Context::from_waker(Waker::noop())).is_pending() {
            inner.spawn(task);
        }
    }
}
