//! Access to a target under a `lock_all`.

use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use onesided_fabric::remote_memory::{Fault, FaultKind};
use onesided_fabric::{Drive, Fabric, Limit, handle, wait_for};
use onesided_lock_algos::{Intent, Mode};

use crate::passive::lock_all::of_all;
use crate::passive::lock_all::reader::Reader;
use crate::{Access, Element, Error, LockAll, LockRequest};

/// How often a waiter checks whether another task has locked the target.
const POLL_INTERVAL: Duration = Duration::from_millis(1);

/// A pending access to a target: `.wait()` blocks, `.await` does not, `.test()` polls. Completes
/// immediately if the target is locked already; otherwise the first operation of its lock is
/// posted. See [`LockAll::at`].
///
/// A waiter also completes when another thread or task locks the same target; its own lock request
/// is then cancelled.
///
/// # Cancel safety
/// If dropped before it completes, it leaves nothing locked that was not: the endpoint finishes and
/// releases what was started. The target may be requested again.
#[must_use = "the target is locked only after a wait"]
pub struct At<'a, 'w, T: Element, F: Fabric> {
    all: &'a LockAll<'w, T, F>,
    target: u32,
    state: State<'a, 'w, T, F>,
}

/// Small, so that a target that is locked already passes through registers.
enum State<'a, 'w, T: Element, F: Fabric> {
    Here(&'a Access<'w, T, F>),
    Failed(Fault),
    Requested(Box<Requested<'w, T, F>>),
}

struct Requested<'w, T: Element, F: Fabric> {
    reader: Reader<'w, T, F>,
    /// The time until the next check.
    interval: Limit<'w, F>,
}

impl<'a, 'w, T: Element, F: Fabric> At<'a, 'w, T, F> {
    #[inline]
    pub(crate) const fn here(all: &'a LockAll<'w, T, F>, access: &'a Access<'w, T, F>) -> Self {
        Self { all, target: access.target.rank, state: State::Here(access) }
    }

    /// For a target that is not locked yet.
    #[cold]
    #[inline(never)]
    pub(crate) fn start(all: &'a LockAll<'w, T, F>, target: u32) -> Self {
        let state = match all.locked_ranks.resolve(target) {
            Some(Ok(access)) => State::Here(access),
            Some(Err(fault)) => State::Failed(fault),
            None if target >= all.window.world().size() => State::Failed(Fault::new(FaultKind::NoSuchRank)),
            None => {
                let request = LockRequest::start(all.window, target, Mode::Shared, Intent::LOCK);
                State::Requested(Box::new(Requested { reader: Reader::new(request), interval: Limit::NONE }))
            }
        };
        Self { all, target, state }
    }

    fn poll_resolved(&mut self, cx: &mut Context<'_>) -> Poll<Result<&'a Access<'w, T, F>, Error>> {
        let Self { all, target, state } = self;
        let (all, inner) = (*all, all.window.inner());
        let requested = match state {
            State::Here(access) => return Poll::Ready(Ok(*access)),
            State::Failed(fault) => return Poll::Ready(Err(inner.failed("access", *target, *fault))),
            State::Requested(requested) => requested,
        };
        let access = loop {
            // Of two requests, the later may queue behind a writer that waits for the lock of the
            // earlier.
            if let Some(access) = all.locked_ranks.at(*target) {
                break access;
            }
            match requested.reader.poll_held(cx) {
                Poll::Ready(Ok(epoch)) => break all.locked_ranks.insert(epoch),
                Poll::Ready(Err(error)) => return Poll::Ready(Err(of_all(error))),
                Poll::Pending => {
                    if !requested.interval.is_set() {
                        requested.interval.said = Some(POLL_INTERVAL);
                    }
                    ready!(requested.interval.poll(cx, inner.fabric()));
                    requested.interval.said = Some(POLL_INTERVAL);
                }
            }
        };
        *state = State::Here(access);
        Poll::Ready(Ok(access))
    }
}

impl<'a, 'w, T: Element, F: Drive> At<'a, 'w, T, F> {
    /// Blocks until the target is locked.
    ///
    /// # Errors
    /// [`Error::Lock`], for the reasons of [`lock_shared`](crate::Window::lock_shared): other
    /// targets may still be requested, and this one again. [`Error::Rank`]; with the lock-all word,
    /// [`Error::Operation`] if the target cannot be reached.
    #[inline]
    pub fn wait(self) -> Result<&'a Access<'w, T, F>, Error> {
        match self.state {
            State::Here(access) => Ok(access),
            _ => wait_longer(self),
        }
    }
}

#[cold]
#[inline(never)]
fn wait_longer<'a, 'w, T: Element, F: Drive>(at: At<'a, 'w, T, F>) -> Result<&'a Access<'w, T, F>, Error> {
    wait_for(at.all.window.inner().fabric(), at)
}

handle!(
    ['a, 'w, T: Element, F], At<'a, 'w, T, F>, &'a Access<'w, T, F>, Error,
    |at| at.all.window.inner().fabric()
);

// Nothing in it is pinned in place: what must not move is boxed.
impl<T: Element, F: Fabric> Unpin for At<'_, '_, T, F> {}

impl<'a, 'w, T: Element, F: Fabric> Future for At<'a, 'w, T, F> {
    type Output = Result<&'a Access<'w, T, F>, Error>;

    #[inline]
    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        match self.state {
            State::Here(access) => Poll::Ready(Ok(access)),
            _ => self.poll_resolved(cx),
        }
    }
}

impl<T: Element, F: Fabric> fmt::Debug for At<'_, '_, T, F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "rank {} of {:?}", self.target, self.all)
    }
}
