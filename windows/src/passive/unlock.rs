//! The handle of an unlock: flush, then [release](super::release).

use std::future::Future;
use std::mem::ManuallyDrop;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use onesided_fabric::bootstrap::fork::is_child;
use onesided_fabric::remote_memory::{Fault, FaultKind};
use onesided_fabric::{Any, Drive, Fabric, block_on, debug, handle, wait_for};

use crate::operation::handles::over;
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
        let Access { inner, target, .. } = self.access;
        Unlock::new(inner, target, Some(self.poisoning_nothing()))
    }

    /// The same without the handle. A drop before it completes releases as well.
    pub(crate) async fn released(self) -> Result<(), Fault> {
        if is_child() {
            return Err(Fault::new(FaultKind::Forked)); // it stays its parent's
        }
        let held = self.poisoning_nothing();
        let Access { inner, target, .. } = held.access;
        let flushed = inner.fabric().flush_before_release(target.fabric_rank()).await;
        match ManuallyDrop::new(held).begin_release() {
            Some(released) => flushed.and(released.await),
            None => flushed,
        }
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
    /// `None` once it was polled.
    held: Option<Epoch<'w, T, F>>,
    rest: Option<Pin<Box<dyn Future<Output = Result<(), Fault>> + Send + 'w>>>,
}

impl<'w, T: Element, F: Fabric> Unlock<'w, T, F> {
    #[inline]
    pub(crate) fn new(inner: &'w Inner<F>, target: &'w Target<F>, held: Option<Epoch<'w, T, F>>) -> Self {
        Self { inner, target, held, rest: None }
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
        let Self { inner, target, held, rest } = self;
        // Its drop would release again, and the drop of one that is not there would take its address.
        let held = ManuallyDrop::new(held);
        if let Some(rest) = rest {
            return wait_rest(inner, target.rank, Ok(()), rest);
        }
        let Some(held) = &*held else { over() };
        if is_child() {
            return Err(inner.failed("unlock", target.rank, Fault::new(FaultKind::Forked)));
        }
        let flushed = wait_for(inner.fabric(), inner.fabric().flush_before_release(target.fabric_rank()));
        if let Some(released) = held.begin_release() {
            return wait_rest(inner, target.rank, flushed, released);
        }
        flushed.map_err(|fault| inner.failed("unlock", target.rank, fault))
    }
}

#[cold]
#[inline(never)]
fn wait_rest<F: Drive>(
    inner: &Inner<F>,
    rank: u32,
    flushed: Result<(), Fault>,
    rest: impl Future<Output = Result<(), Fault>> + Send,
) -> Result<(), Error> {
    let outcome = flushed.and(block_on(inner.fabric(), rest));
    outcome.map_err(|fault| inner.failed_or_expired("unlock", rank, fault))
}

handle!([T: Element, F], Unlock<'_, T, F>, (), Error, |unlock| unlock.inner.fabric());

// Nothing in it is pinned in place: what must not move is boxed.
impl<T: Element, F: Fabric> Unpin for Unlock<'_, T, F> {}

impl<T: Element, F: Fabric> Future for Unlock<'_, T, F> {
    type Output = Result<(), Error>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let Self { inner, target, held, rest } = &mut *self;
        let released = rest.get_or_insert_with(|| match held.take() {
            Some(held) => Box::pin(held.released()),
            None => over(),
        });
        let outcome = ready!(released.as_mut().poll(cx));
        *rest = None;
        Poll::Ready(outcome.map_err(|fault| inner.failed_or_expired("unlock", target.rank, fault)))
    }
}

debug!(
    [T: Element, F: Fabric] Unlock<'_, T, F>,
    |this| "unlock of rank {} of window \"{}\"", this.target.rank, this.inner.name
);
