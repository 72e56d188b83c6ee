//! A lock that is held.

use std::fmt;
use std::future::Future;
use std::mem::ManuallyDrop;
use std::ops::Deref;
use std::pin::pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};

use fabric::Fabric;
use fabric::remote_memory::Fault;
use lock_algos::{LockAlgorithm, Mode};

use crate::lock::{Words, release};
use crate::window::{Inner, Target};
use crate::{Access, Element, Unlock};

/// A target's lock that is held, and the operations that may be done under it (through [`Access`], to which it derefs).
///
/// [`unlock`](Self::unlock) releases and reports; a drop does the same but cannot report: what goes wrong is then
/// reported by [`Window::close`](crate::Window::close). A guard that is leaked leaves the target locked, and nothing else.
#[must_use = "if unused the lock is released at once"]
pub struct Epoch<'w, T: Element, F: Fabric> {
    access: Access<'w, T, F>,
    words: Words<'w, F>,
    mode: Mode,
}

impl<'w, T: Element, F: Fabric> Epoch<'w, T, F> {
    #[inline]
    pub(crate) fn new(inner: &'w Arc<Inner<F>>, target: &'w Target<F>, words: Words<'w, F>, mode: Mode) -> Self {
        Self { access: Access::new(inner, target), words, mode }
    }

    /// How the lock is held.
    pub const fn mode(&self) -> Mode {
        self.mode
    }

    /// Unlocks (`MPI_Win_unlock`), when it is waited for: it is done when everything done under the lock is complete at the
    /// target and the release is posted. Nobody waits for a release.
    ///
    /// # Errors
    /// [`Error::Operation`](crate::Error::Operation) with the first failure of what was done under the lock. The lock is
    /// released all the same.
    #[inline(always)] // a guard that passes through memory costs more than the release
    pub fn unlock(self) -> Unlock<'w, T, F> {
        let Access { inner, target, .. } = self.access;
        Unlock::new(inner, target, Some(self))
    }

    pub(crate) fn fabric(&self) -> &'w F {
        self.access.inner.fabric()
    }

    /// Keeps an error for the window's end.
    pub(crate) fn keep(&self, error: crate::Error) {
        self.access.inner.keep(error);
    }

    /// Unlocks where nothing but what was waited for was done under the lock.
    pub(crate) fn unlock_unchanged(self) {
        ManuallyDrop::new(self).post_release();
    }

    /// Unlocks without waiting for what was done under the lock: the release is posted behind it. What failed is
    /// reported by the next flush, or the window's end.
    pub(crate) fn unlock_behind(self) {
        let inner = self.access.inner;
        if inner.immediate {
            return ManuallyDrop::new(self).post_release();
        }
        if let Some(release) = inner.algorithm.release_link(inner.fabric(), self.words, self.mode) {
            inner.fabric().post_release(release);
            let _released = ManuallyDrop::new(self);
        } // else its drop flushes and releases
    }

    /// Posts the release; what is left of it, if anything, goes to the endpoint.
    #[inline(always)] // see `unlock`
    pub(crate) fn post_release(&self) {
        let Self { access: Access { inner, target, .. }, words, mode } = self;
        match inner.algorithm.start_release(inner.fabric(), inner.home(target), *words, *mode) {
            Ok(_) if inner.algorithm.releases_in_one_step(inner.home(target), *mode) => {}
            started => adopt_release(inner, target.rank, *mode, started),
        }
    }
}

/// Gives the rest of a release to the endpoint.
#[cold]
#[inline(never)]
fn adopt_release<F: Fabric>(inner: &Arc<Inner<F>>, rank: u32, mode: Mode, started: Result<F::Op, Fault>) {
    let inner = Arc::clone(inner);
    let adopts = Arc::clone(&inner);
    adopts.adopt(Box::pin(async move {
        let outcome = async {
            let target = inner.target(rank)?;
            let words = inner.algorithm.words(inner.home(target))?;
            inner.algorithm.finish_release(inner.fabric(), inner.home(target), words, mode, started?).await
        };
        if let Err(fault) = outcome.await {
            inner.keep(inner.failed("unlock", rank, fault));
        }
    }));
}

impl<T: Element, F: Fabric> Drop for Epoch<'_, T, F> {
    #[inline]
    fn drop(&mut self) {
        let inner = self.access.inner;
        let rank = self.access.target.rank;
        let flushed = pin!(inner.fabric().flush_before_release(self.access.target.fabric_rank()))
            .poll(&mut Context::from_waker(Waker::noop()));
        match flushed {
            Poll::Ready(flushed) => {
                self.post_release();
                if let Err(fault) = flushed {
                    inner.keep(inner.failed("unlock", rank, fault));
                }
            }
            Poll::Pending => {
                let (inner, mode) = (Arc::clone(self.access.inner), self.mode);
                self.access.inner.adopt(Box::pin(async move { release(&inner, rank, mode).await }));
            }
        }
    }
}

impl<'w, T: Element, F: Fabric> Deref for Epoch<'w, T, F> {
    type Target = Access<'w, T, F>;

    #[inline]
    fn deref(&self) -> &Access<'w, T, F> {
        &self.access
    }
}

impl<T: Element, F: Fabric> fmt::Debug for Epoch<'_, T, F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?} lock on {:?}", self.mode, self.access)
    }
}
