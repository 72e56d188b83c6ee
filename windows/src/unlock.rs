//! Releasing a lock.

use std::fmt;
use std::future::Future;
use std::mem::ManuallyDrop;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use onesided_fabric::remote_memory::Fault;
use onesided_fabric::{Drive, Fabric, block_on, handle, wait_for};
use onesided_lock_algos::{LockAlgorithm, Mode};

use crate::lock::Spot;
use crate::window::{Inner, Target};
use crate::{Element, Epoch, Error};

/// A release that is waited for. If it is dropped before it completes, the endpoint finishes it.
pub(crate) struct Releasing<F: Fabric>(Box<Late<F>>);

struct Late<F: Fabric> {
    inner: Arc<Inner<F>>,
    rank: u32,
    /// `None` once it is done.
    rest: Option<Rest>,
}

type Rest = Pin<Box<dyn Future<Output = Result<(), Fault>> + Send>>;

impl<F: Fabric> Releasing<F> {
    pub(crate) fn new(
        inner: &Arc<Inner<F>>,
        rank: u32,
        rest: impl Future<Output = Result<(), Fault>> + Send + 'static,
    ) -> Self {
        Self(Box::new(Late { inner: Arc::clone(inner), rank, rest: Some(Box::pin(rest)) }))
    }
}

impl<F: Fabric> Future for Releasing<F> {
    type Output = Result<(), Fault>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let rest = &mut self.0.rest;
        let released = match rest {
            Some(release) => ready!(release.as_mut().poll(cx)),
            None => Ok(()),
        };
        *rest = None;
        Poll::Ready(released)
    }
}

impl<F: Fabric> Drop for Late<F> {
    fn drop(&mut self) {
        let Some(rest) = self.rest.take() else { return };
        let (inner, rank) = (Arc::clone(&self.inner), self.rank);
        self.inner.spawn(Box::pin(async move {
            if let Err(fault) = rest.await {
                inner.keep(inner.failed_late("unlock", rank, fault));
            }
        }));
    }
}

/// An unlock (`MPI_Win_unlock`): `.wait()` blocks, `.await` does not. Does nothing before that. It
/// completes when everything done under the lock is complete at the target and the release is
/// posted; the release itself is not waited for. See [`Epoch::unlock`].
///
/// # Cancel safety
/// May be dropped at any point: it releases the lock as a drop of the guard does.
#[must_use = "dropping the unlock discards its errors"]
pub struct Unlock<'w, T: Element, F: Fabric> {
    inner: &'w Inner<F>,
    target: &'w Target<F>,
    /// `None` once it is released.
    held: Option<Epoch<'w, T, F>>,
    flush: Option<F::Flush<'w>>,
    /// The release, where it may find that the lease has expired.
    late: Option<Releasing<F>>,
    outcome: Result<(), Fault>,
}

impl<'w, T: Element, F: Fabric> Unlock<'w, T, F> {
    #[inline]
    pub(crate) fn new(inner: &'w Inner<F>, target: &'w Target<F>, held: Option<Epoch<'w, T, F>>) -> Self {
        Self { inner, target, held, flush: None, late: None, outcome: Ok(()) }
    }

    pub(crate) const fn rank(&self) -> u32 {
        self.target.rank
    }

    pub(crate) fn poll_released(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), Fault>> {
        let Self { inner, target, held, flush, late, outcome } = self;
        if held.is_some() {
            let flush = flush.get_or_insert_with(|| inner.fabric().flush_before_release(target.fabric_rank()));
            *outcome = ready!(Pin::new(flush).poll(cx));
            if let Some(held) = held.take() {
                let held = ManuallyDrop::new(held);
                if held.may_be_late() {
                    let mut released = held.release_late();
                    match Pin::new(&mut released).poll(cx) {
                        Poll::Ready(released) => *outcome = outcome.and(released),
                        Poll::Pending => *late = Some(released),
                    }
                } else {
                    held.post_release();
                }
            }
        }
        if let Some(released) = late {
            let released = ready!(Pin::new(released).poll(cx));
            (*late, *outcome) = (None, outcome.and(released));
        }
        Poll::Ready(*outcome)
    }
}

impl<T: Element, F: Drive> Unlock<'_, T, F> {
    /// Blocks until everything done under the lock is complete at the target and the release is
    /// posted.
    ///
    /// # Errors
    /// [`Error::Operation`] with the first failure of what was done under the lock. The lock is
    /// released all the same. [`Error::Late`] in a window with a [lease
    /// policy](crate::LeasePolicy).
    #[inline(always)] // a guard passed through memory costs more than the release
    pub fn wait(self) -> Result<(), Error> {
        let Self { inner, target, held, flush, late, outcome } = self;
        if let Some(released) = late {
            return wait_late(inner, target.rank, released, outcome);
        }
        let Some(held) = held else { return outcome.map_err(|fault| inner.failed_late("unlock", target.rank, fault)) };
        let held = ManuallyDrop::new(held); // its drop would release again
        let flush = flush.unwrap_or_else(|| inner.fabric().flush_before_release(target.fabric_rank()));
        let flushed = wait_for(inner.fabric(), flush);
        if held.may_be_late() {
            return wait_late(inner, target.rank, held.release_late(), flushed);
        }
        held.post_release();
        flushed.map_err(|fault| inner.failed("unlock", target.rank, fault))
    }
}

#[cold]
#[inline(never)]
fn wait_late<F: Drive>(
    inner: &Inner<F>,
    rank: u32,
    released: Releasing<F>,
    outcome: Result<(), Fault>,
) -> Result<(), Error> {
    let outcome = outcome.and(block_on(inner.fabric(), released));
    outcome.map_err(|fault| inner.failed_late("unlock", rank, fault))
}

handle!([T: Element, F], Unlock<'_, T, F>, (), Error, |unlock| unlock.inner.fabric());

// Nothing in it is pinned in place: the fabric's operations are `Unpin`.
impl<T: Element, F: Fabric> Unpin for Unlock<'_, T, F> {}

impl<T: Element, F: Fabric> Future for Unlock<'_, T, F> {
    type Output = Result<(), Error>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        self.poll_released(cx).map_err(|fault| self.inner.failed_late("unlock", self.target.rank, fault))
    }
}

impl<T: Element, F: Fabric> fmt::Debug for Unlock<'_, T, F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "unlock of rank {} of window \"{}\"", self.target.rank, self.inner.name)
    }
}

impl<F: Fabric> Inner<F> {
    /// Finishes a release and frees its owner's slot.
    pub(crate) async fn finish_release(
        &self,
        (rank, which): Spot,
        owner: u64,
        mode: Mode,
        started: impl Future<Output = Result<u64, Fault>> + Send,
    ) -> Result<(), Fault> {
        let home = self.home(self.target(rank)?, which, owner);
        let words = home.words()?;
        let released = self.algorithm.finish_release(self.fabric(), home, words, mode, started).await;
        self.end_release(owner, released)
    }

    /// Frees the slot of an owner, given the result of its release.
    pub(crate) fn end_release(&self, owner: u64, released: Result<(), Fault>) -> Result<(), Fault> {
        match released {
            Ok(()) => self.give_back(owner),
            Err(_) => self.end_failed(owner), // peers may still write to its node
        }
        released
    }

    /// Frees the slot of an owner whose release failed, if no peer can write to its node any more.
    #[cold]
    pub(crate) fn end_failed(&self, owner: u64) {
        if self.algorithm.nodes_are_own() {
            self.give_back(owner);
        }
    }
}
