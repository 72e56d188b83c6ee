//! Flushing all targets, step by step and without an allocation.

use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::sync::OnceLock;
use std::task::{Context, Poll, ready};

use onesided_fabric::remote_memory::{Fault, Rank};
use onesided_fabric::{Drive, Fabric, handle, wait_for};

use crate::passive::lock_all::locked::RankLocks;
use crate::window::inner::Inner;
use crate::{Element, Error};

/// A pending flush of every accessed target: `.wait()` blocks, `.await` does not, `.test()` polls.
/// See [`LockAll::flush_all`](crate::LockAll::flush_all).
#[must_use = "a flush guarantees completion only after a wait"]
pub struct FlushAll<'a, 'w, T: Element, F: Fabric> {
    operation: &'static str,
    inner: &'a Inner<F>,
    /// The targets that are not flushed yet.
    ranks: &'a RankLocks<'w, T, F>,
    begin: fn(&'a F, Rank) -> F::Flush<'a>,
    /// The flush of the first of them.
    flush: Option<F::Flush<'a>>,
    outcome: Result<(), (u32, Fault)>,
}

impl<'a, 'w, T: Element, F: Fabric> FlushAll<'a, 'w, T, F> {
    pub(crate) fn new(
        operation: &'static str,
        inner: &'a Inner<F>,
        ranks: &'a RankLocks<'w, T, F>,
        begin: fn(&'a F, Rank) -> F::Flush<'a>,
    ) -> Self {
        if !inner.completes_at_post {
            for access in ranks.iter().filter_map(OnceLock::get) {
                drop(begin(inner.fabric(), access.target.fabric_rank())); // starts all flushes
            }
        }
        Self { operation, inner, ranks, begin, flush: None, outcome: Ok(()) }
    }
}

impl<T: Element, F: Drive> FlushAll<'_, '_, T, F> {
    /// Blocks until all targets are flushed.
    ///
    /// # Errors
    /// [`Error::Operation`] with the first deferred error.
    pub fn wait(self) -> Result<(), Error> {
        wait_for(self.inner.fabric(), self)
    }
}

handle!(['a, 'w, T: Element, F], FlushAll<'a, 'w, T, F>, (), Error, |all| all.inner.fabric());

// Nothing in it is pinned in place: the fabric's operations are `Unpin`.
impl<T: Element, F: Fabric> Unpin for FlushAll<'_, '_, T, F> {}

impl<T: Element, F: Fabric> Future for FlushAll<'_, '_, T, F> {
    type Output = Result<(), Error>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let Self { operation, inner, ranks, begin, flush, outcome } = &mut *self;
        while let Some((lock, rest)) = ranks.split_first() {
            if let Some(access) = lock.get() {
                let under_way = flush.get_or_insert_with(|| begin(inner.fabric(), access.target.fabric_rank()));
                let flushed = ready!(Pin::new(under_way).poll(cx));
                *outcome = outcome.and(flushed.map_err(|fault| (access.target(), fault)));
                *flush = None;
            }
            *ranks = rest;
        }
        Poll::Ready((*outcome).map_err(|(rank, fault)| inner.failed(operation, rank, fault)))
    }
}

impl<T: Element, F: Fabric> fmt::Debug for FlushAll<'_, '_, T, F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} of window \"{}\", {} ranks left", self.operation, self.inner.name, self.ranks.len())
    }
}
