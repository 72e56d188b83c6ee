//! Flushing, and unlocking, all ranks at once: step by step, so that nothing is allocated for it.

use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use fabric::remote_memory::{Fault, Rank};
use fabric::{Drive, Fabric, handle, wait_for};

use crate::window::Inner;
use crate::{Element, Epoch, Error, Unlock};

/// A flush of every target, to be waited for: `.wait()` blocks, `.await` does not, `.test()` looks. See
/// [`LockAll::flush_all`](crate::LockAll::flush_all).
#[must_use = "a flush promises something only after it was waited for"]
pub struct FlushAll<'a, 'w, T: Element, F: Fabric> {
    operation: &'static str,
    inner: &'a Inner<F>,
    /// Of those that are not flushed.
    epochs: &'a [Epoch<'w, T, F>],
    begin: fn(&'a F, Rank) -> F::Flush<'a>,
    /// Of the first of them.
    flush: Option<F::Flush<'a>>,
    outcome: Result<(), (u32, Fault)>,
}

impl<'a, 'w, T: Element, F: Fabric> FlushAll<'a, 'w, T, F> {
    pub(crate) fn new(
        operation: &'static str,
        inner: &'a Inner<F>,
        epochs: &'a [Epoch<'w, T, F>],
        begin: fn(&'a F, Rank) -> F::Flush<'a>,
    ) -> Self {
        if !inner.immediate {
            for epoch in epochs {
                drop(begin(inner.fabric(), epoch.target.fabric_rank())); // all are under way
            }
        }
        Self { operation, inner, epochs, begin, flush: None, outcome: Ok(()) }
    }
}

impl<T: Element, F: Drive> FlushAll<'_, '_, T, F> {
    /// Blocks until all are flushed.
    ///
    /// # Errors
    /// [`Error::Operation`] with the first failure of what was posted and not waited for.
    pub fn wait(self) -> Result<(), Error> {
        wait_for(self.inner.fabric(), self)
    }
}

handle!(['a, 'w, T: Element, F], FlushAll<'a, 'w, T, F>, (), Error, |all| all.inner.fabric());

// Nothing in it is pinned in place: what a fabric gives is Unpin.
impl<T: Element, F: Fabric> Unpin for FlushAll<'_, '_, T, F> {}

impl<T: Element, F: Fabric> Future for FlushAll<'_, '_, T, F> {
    type Output = Result<(), Error>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let Self { operation, inner, epochs, begin, flush, outcome } = &mut *self;
        while let Some((epoch, rest)) = epochs.split_first() {
            let under_way = flush.get_or_insert_with(|| begin(inner.fabric(), epoch.target.fabric_rank()));
            let flushed = ready!(Pin::new(under_way).poll(cx));
            *outcome = outcome.and(flushed.map_err(|fault| (epoch.target(), fault)));
            (*flush, *epochs) = (None, rest);
        }
        Poll::Ready((*outcome).map_err(|(rank, fault)| inner.failed(operation, rank, fault)))
    }
}

impl<T: Element, F: Fabric> fmt::Debug for FlushAll<'_, '_, T, F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} of window \"{}\", {} ranks are left", self.operation, self.inner.name, self.epochs.len())
    }
}

/// An unlock of every rank, to be waited for: `.wait()` blocks, `.await` does not, `.test()` looks. Nothing happens before. See
/// [`LockAll::unlock_all`](crate::LockAll::unlock_all).
///
/// # Cancel safety
/// Dropped before it is done, at whatever point, it releases all locks as a drop of the guard does.
#[must_use = "an unlock that nobody waits for cannot tell what went wrong"]
pub struct UnlockAll<'w, T: Element, F: Fabric> {
    inner: &'w Inner<F>,
    epochs: std::vec::IntoIter<Epoch<'w, T, F>>,
    begun: bool,
    unlock: Option<Unlock<'w, T, F>>,
    outcome: Result<(), (u32, Fault)>,
}

impl<'w, T: Element, F: Fabric> UnlockAll<'w, T, F> {
    pub(crate) fn new(inner: &'w Inner<F>, epochs: Vec<Epoch<'w, T, F>>) -> Self {
        Self { inner, epochs: epochs.into_iter(), begun: inner.immediate, unlock: None, outcome: Ok(()) }
    }
}

impl<T: Element, F: Drive> UnlockAll<'_, T, F> {
    /// Blocks until everything done under the locks is complete at the targets and the releases are posted.
    ///
    /// # Errors
    /// [`Error::Operation`] with the first failure of what was done under the locks. They are released all the same.
    pub fn wait(self) -> Result<(), Error> {
        wait_for(self.inner.fabric(), self)
    }
}

handle!(['w, T: Element, F], UnlockAll<'w, T, F>, (), Error, |all| all.inner.fabric());

// Nothing in it is pinned in place: what a fabric gives is Unpin.
impl<T: Element, F: Fabric> Unpin for UnlockAll<'_, T, F> {}

impl<T: Element, F: Fabric> Future for UnlockAll<'_, T, F> {
    type Output = Result<(), Error>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let Self { inner, epochs, begun, unlock, outcome } = &mut *self;
        if !std::mem::replace(begun, true) {
            for epoch in epochs.as_slice() {
                drop(inner.fabric().flush_before_release(epoch.target.fabric_rank())); // all are under way
            }
        }
        while let Some(next) = unlock.take().or_else(|| epochs.next().map(Epoch::unlock)) {
            let under_way = unlock.insert(next);
            let (rank, unlocked) = (under_way.rank(), ready!(under_way.poll_released(cx)));
            *outcome = outcome.and(unlocked.map_err(|fault| (rank, fault)));
            *unlock = None;
        }
        Poll::Ready((*outcome).map_err(|(rank, fault)| inner.failed_late("unlock_all", rank, fault)))
    }
}

impl<T: Element, F: Fabric> fmt::Debug for UnlockAll<'_, T, F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "unlock_all of window \"{}\", {} ranks are left", self.inner.name, self.epochs.len())
    }
}
