//! The handle of an unlock: flush, then [release](super::release).

use std::future::Future;
use std::mem::ManuallyDrop;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use onesided_fabric::bootstrap::fork::is_child;
use onesided_fabric::remote_memory::{Fault, FaultKind};
use onesided_fabric::{Any, Drive, Fabric, block_on, debug, handle, wait_for};

use crate::operation::handles::over;
use crate::passive::release::Releasing;
use crate::window::inner::Inner;
use crate::window::target::Target;
use crate::{Access, Element, Epoch, Error};

impl<'w, T: Element, F: Fabric> Epoch<'w, T, F> {
    /// Unlocks (`MPI_Win_unlock`). Completes when everything done under the lock is complete at the
    /// target and the release is posted; the release itself is not waited for. Does nothing unless
    /// waited on or polled; a drop then releases.
    ///
    /// # Errors
    /// [`Error::Operation`] with the first failure of what was done under the lock. The lock is
    /// released all the same, unless the connection to the target is lost: then the others recover
    /// it as after a death.
    #[inline(always)] // a guard passed through memory costs more than the release
    pub fn unlock(self) -> Unlock<'w, T, F> {
        Unlock::of(self)
    }
}

/// An unlock (`MPI_Win_unlock`): `.wait()` blocks, `.await` does not. Does nothing before that. It
/// completes when everything done under the lock is complete at the target and the release is
/// posted; the release itself is not waited for. See [`Epoch::unlock`].
///
/// # Cancel safety
/// May be dropped at any point: it releases the lock, as a drop of the guard does. A panic then
/// poisons nothing.
///
/// # Panics
/// If it is polled again after it has yielded its result.
#[must_use = "dropping the unlock discards its errors"]
pub struct Unlock<'w, T: Element, F: Fabric = Any> {
    inner: &'w Inner<F>,
    target: &'w Target<F>,
    /// `None` once the release is posted.
    held: Option<Epoch<'w, T, F>>,
    flush: Option<F::Flush<'w>>,
    /// The release, where it may find that the lease has expired.
    checked: Option<Releasing<F>>,
    outcome: Result<(), Fault>,
}

impl<'w, T: Element, F: Fabric> Unlock<'w, T, F> {
    #[inline]
    pub(crate) fn new(inner: &'w Inner<F>, target: &'w Target<F>, held: Option<Epoch<'w, T, F>>) -> Self {
        Self { inner, target, held, flush: None, checked: None, outcome: Ok(()) }
    }

    #[inline(always)] // see `Epoch::unlock`
    fn of(held: Epoch<'w, T, F>) -> Self {
        let Access { inner, target, .. } = held.access;
        Self::new(inner, target, Some(held.poisoning_nothing()))
    }

    pub(crate) fn poll_released(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), Fault>> {
        let Self { inner, target, held, flush, checked, outcome } = self;
        if held.is_none() && checked.is_none() {
            over();
        }
        if held.is_some() {
            if is_child() {
                return Poll::Ready(Err(Fault::new(FaultKind::Forked))); // it stays its parent's
            }
            let flush = flush.get_or_insert_with(|| inner.fabric().flush_before_release(target.fabric_rank()));
            *outcome = ready!(Pin::new(flush).poll(cx));
            if let Some(held) = held.take() {
                let held = ManuallyDrop::new(held);
                *checked = held.begin_release();
            }
        }
        if let Some(released) = checked {
            let released = ready!(Pin::new(released).poll(cx));
            (*checked, *outcome) = (None, outcome.and(released));
        }
        Poll::Ready(*outcome)
    }
}

impl<T: Element, F: Fabric> Unlock<'_, T, F> {
    /// Blocks until everything done under the lock is complete at the target and the release is
    /// posted.
    ///
    /// # Errors
    /// As [`Epoch::unlock`], and [`Error::Late`] in a window with a [lease
    /// policy](crate::LeasePolicy).
    #[inline(always)] // a guard passed through memory costs more than the release
    pub fn wait(self) -> Result<(), Error>
    where
        F: Drive,
    {
        let Self { inner, target, held, flush, checked, outcome } = self;
        // Its drop would release again, and the drop of one that is not there would take its address.
        let held = ManuallyDrop::new(held);
        if let Some(released) = checked {
            return wait_checked(inner, target.rank, released, outcome);
        }
        let Some(held) = &*held else { over() };
        if is_child() {
            return Err(inner.failed("unlock", target.rank, Fault::new(FaultKind::Forked)));
        }
        let flush = flush.unwrap_or_else(|| inner.fabric().flush_before_release(target.fabric_rank()));
        let flushed = wait_for(inner.fabric(), flush);
        if let Some(released) = held.begin_release() {
            return wait_checked(inner, target.rank, released, flushed);
        }
        flushed.map_err(|fault| inner.failed("unlock", target.rank, fault))
    }
}

#[cold]
#[inline(never)]
fn wait_checked<F: Drive>(
    inner: &Inner<F>,
    rank: u32,
    released: Releasing<F>,
    outcome: Result<(), Fault>,
) -> Result<(), Error> {
    let outcome = outcome.and(block_on(inner.fabric(), released));
    outcome.map_err(|fault| inner.failed_or_expired("unlock", rank, fault))
}

handle!([T: Element, F], Unlock<'_, T, F>, (), Error, |unlock| unlock.inner.fabric());

// Nothing in it is pinned in place: the fabric's operations are `Unpin`.
impl<T: Element, F: Fabric> Unpin for Unlock<'_, T, F> {}

impl<T: Element, F: Fabric> Future for Unlock<'_, T, F> {
    type Output = Result<(), Error>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        self.poll_released(cx).map_err(|fault| self.inner.failed_or_expired("unlock", self.target.rank, fault))
    }
}

debug!(
    [T: Element, F: Fabric] Unlock<'_, T, F>,
    |this| "unlock of rank {} of window \"{}\"", this.target.rank, this.inner.name
);
