//! The handle of most calls that wait.

use std::fmt;
use std::future::{Future, poll_fn};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use onesided_fabric::remote_memory::{Fault, FaultKind};
use onesided_fabric::{Any, Drive, Fabric, Limit, World, block_on, handle};

use crate::Error;
use crate::active::signals::Signal;
use crate::operation::handles::over;
use crate::window::inner::Inner;

/// A pending call: [`wait`](Self::wait) blocks, `.await` does not, [`test`](Self::test) polls. The
/// method that returns it documents its effect, its errors and its cancel safety; most do nothing
/// before the first wait or poll.
///
/// A [`deadline`](Self::deadline) is set before the first wait or poll.
///
/// # Panics
/// A request yields its result once: it panics when it is polled after that, as futures may.
#[must_use = "the call completes only when it is waited on or polled"]
pub struct Request<'a, R, F: Fabric = Any, E = Error> {
    operation: &'static str,
    awaited: Awaited<'a, F>,
    deadline: Option<Duration>,
    /// `None` once its result was yielded.
    pending: Option<Pending<'a, R, E>>,
}

type Pending<'a, R, E> = Pin<Box<dyn Future<Output = Result<R, E>> + Send + 'a>>;

impl<'a, R, F: Fabric, E> Request<'a, R, F, E> {
    /// `operation` is its name in errors.
    pub(crate) fn new(
        awaited: Awaited<'a, F>,
        operation: &'static str,
        future: impl Future<Output = Result<R, E>> + Send + 'a,
    ) -> Self {
        Self { operation, awaited, deadline: None, pending: Some(Box::pin(future)) }
    }

    /// Sets a deadline, counted from the first wait or poll. When it passes, the call fails with
    /// [`TimedOut`](Error::is_timed_out) and is dropped, with the effect that its cancel safety
    /// documents: a lock is left free. After a collective call no later collective of this rank
    /// succeeds, as for a [barrier](onesided_fabric::World::barrier); memory that the call would
    /// have returned is lost.
    pub fn deadline(mut self, after: Duration) -> Self {
        self.deadline = Some(after);
        self
    }
}

impl<'a, R: 'a, F: Fabric, E: From<Error> + 'a> Request<'a, R, F, E> {
    /// Takes the rest of the call, which has begun.
    fn take(&mut self) -> Pending<'a, R, E> {
        let pending = self.pending.take().unwrap_or_else(|| over());
        match self.deadline.take() {
            Some(after) => Box::pin(limited(pending, self.awaited.clone(), self.operation, after)),
            None => pending,
        }
    }
}

async fn limited<'a, R, F: Fabric, E: From<Error>>(
    mut pending: Pending<'a, R, E>,
    awaited: Awaited<'a, F>,
    operation: &'static str,
    after: Duration,
) -> Result<R, E> {
    let mut limit = Limit::NONE;
    limit.said = Some(after);
    let outcome = poll_fn(|cx| match pending.as_mut().poll(cx) {
        Poll::Ready(outcome) => Poll::Ready(Some(outcome)),
        Poll::Pending => limit.poll(cx, awaited.fabric()).map(|()| None),
    });
    let outcome = outcome.await;
    drop(pending); // cancels it
    outcome.unwrap_or_else(|| Err(awaited.timed_out(operation).into()))
}

impl<'a, R: 'a, F: Drive, E: From<Error> + 'a> Request<'a, R, F, E> {
    /// Blocks until the call completes.
    ///
    /// # Errors
    /// Those of the method that returned it.
    pub fn wait(mut self) -> Result<R, E> {
        let pending = self.take();
        block_on(self.awaited.fabric(), pending)
    }
}

handle!(['a, R: 'a, F, E: From<Error> + 'a], Request<'a, R, F, E>, R, E, |request| &request.awaited.fabric().clone());

// Nothing in it is pinned in place: what must not move is boxed.
impl<R, F: Fabric, E> Unpin for Request<'_, R, F, E> {}

impl<'a, R: 'a, F: Fabric, E: From<Error> + 'a> Future for Request<'a, R, F, E> {
    type Output = Result<R, E>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let mut pending = self.take();
        let outcome = pending.as_mut().poll(cx);
        if outcome.is_pending() {
            self.pending = Some(pending);
        }
        outcome
    }
}

impl<R, F: Fabric, E> fmt::Debug for Request<'_, R, F, E> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "pending {}", self.operation)
    }
}

/// What a request waits for: what its error names when the deadline passes.
#[derive(Clone)]
pub(crate) enum Awaited<'a, F: Fabric> {
    /// An operation on a target.
    Target(&'a Inner<F>, u32),
    /// The lock of a target.
    Lock(&'a Inner<F>, u32),
    /// A lock of a table, by rank and number.
    TableLock(&'a Inner<F>, u32, u64),
    /// The exposures of targets.
    Exposures(&'a Inner<F>, Arc<[u32]>),
    /// All ranks, for a window of this name.
    AllRanks(World<F>, Arc<str>),
    /// The peers that use user memory.
    Users(World<F>),
}

impl<F: Fabric> Awaited<'_, F> {
    /// All ranks, for a window.
    pub(crate) fn all_ranks(inner: &Inner<F>) -> Self {
        Self::AllRanks(inner.world.clone(), inner.name.clone())
    }

    fn fabric(&self) -> &F {
        match self {
            Self::Target(inner, _) | Self::Lock(inner, _) | Self::TableLock(inner, ..) | Self::Exposures(inner, _) => {
                inner.fabric()
            }
            Self::AllRanks(world, _) | Self::Users(world) => world.fabric(),
        }
    }

    #[cold]
    pub(crate) fn timed_out(&self, operation: &'static str) -> Error {
        let fault = Fault::new(FaultKind::TimedOut);
        match self {
            Self::Target(inner, target) => inner.failed(operation, *target, fault),
            Self::Lock(inner, target) => Error::Lock { operation, target: *target, window: inner.name.clone(), fault },
            Self::TableLock(inner, target, lock) => {
                Error::TableLock { operation, lock: *lock, target: *target, table: inner.name.clone(), fault }
            }
            Self::Exposures(inner, targets) => {
                let exposed = |rank: &u32| inner.has_signalled(*rank, Signal::Exposed, inner.counts.next_access(*rank));
                let missing = targets.iter().find(|rank| !exposed(rank)).or(targets.first());
                inner.failed(operation, missing.copied().unwrap_or(0), fault)
            }
            Self::AllRanks(world, window) => {
                world.give_up_collectives();
                Error::Collective { operation, window: window.clone(), fault }
            }
            Self::Users(_) => Error::TakeBack { fault },
        }
    }
}
