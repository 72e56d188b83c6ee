//! Access to a target under a `lock_all`.

use std::future::{Future, poll_fn};
use std::pin::{Pin, pin};
use std::task::{Context, Poll, ready};
use std::time::Duration;

use onesided_fabric::remote_memory::{Fault, FaultKind};
use onesided_fabric::{Any, Drive, Fabric, Limit, debug, handle};

use crate::operation::handles::over;
use crate::operation::request::Awaited;
use crate::passive::lock_all::OPERATION;
use crate::passive::lock_all::reader::read_lock;
use crate::{Access, Element, Error, LockAll, Request};

/// How often a waiter checks whether another task has locked the target.
const POLL_INTERVAL: Duration = Duration::from_millis(1);

/// A pending access to a target: `.wait()` blocks, `.await` does not, `.test()` polls. See
/// [`LockAll::at`].
///
/// # Panics
/// If it is polled again after it has yielded its result.
#[must_use = "the target is locked only after a wait"]
pub struct At<'a, 'w, T: Element, F: Fabric = Any> {
    all: &'a LockAll<'w, T, F>,
    target: u32,
    state: State<'a, 'w, T, F>,
}

/// Small, so that a target that is locked already passes through registers.
enum State<'a, 'w, T: Element, F: Fabric> {
    Here(&'a Access<'w, T, F>),
    Requested(Box<Request<'a, &'a Access<'w, T, F>, F>>),
    Over,
}

impl<'a, 'w, T: Element, F: Fabric> At<'a, 'w, T, F> {
    #[inline]
    pub(crate) const fn here(all: &'a LockAll<'w, T, F>, access: &'a Access<'w, T, F>) -> Self {
        Self { all, target: access.target.rank, state: State::Here(access) }
    }

    /// Sets a deadline: see [`Request::deadline`]. A target that is locked already needs none.
    pub fn deadline(mut self, after: Duration) -> Self {
        if let State::Requested(request) = self.state {
            self.state = State::Requested(Box::new(request.deadline(after)));
        }
        self
    }
}

impl<'w, T: Element, F: Fabric> LockAll<'w, T, F> {
    /// For a target that is not locked yet.
    #[cold]
    #[inline(never)]
    pub(crate) fn lock_target(&self, target: u32) -> At<'_, 'w, T, F> {
        let inner = self.window.inner();
        let failed = |fault| inner.failed("at", target, fault);
        let request = match self.locked_ranks.resolve(target) {
            Some(Ok(access)) => return At::here(self, access),
            Some(Err(fault)) => Err(failed(fault)),
            None if target >= inner.world.size() => Err(failed(Fault::new(FaultKind::NoSuchRank))),
            None => Ok(read_lock(self.window.lock_shared(target), None)),
        };
        let request = Request::new(Awaited::Lock(inner, target), OPERATION, async move {
            let (mut lock, mut interval) = (pin!(request?), Limit::NONE);
            interval.said = Some(POLL_INTERVAL);
            let held = poll_fn(|cx| {
                loop {
                    // Of two requests, the later may queue behind a writer that waits for the lock
                    // of the earlier.
                    if let Some(access) = self.locked_ranks.at(target) {
                        return Poll::Ready(Ok(access));
                    }
                    if let Poll::Ready(held) = lock.as_mut().poll(cx) {
                        return Poll::Ready(held.map(|epoch| self.locked_ranks.insert(epoch)));
                    }
                    ready!(interval.poll(cx, inner.fabric()));
                    interval.said = Some(POLL_INTERVAL);
                }
            });
            held.await.map_err(|error| error.of_call(OPERATION))
        });
        At { all: self, target, state: State::Requested(Box::new(request)) }
    }
}

impl<'a, 'w, T: Element, F: Fabric> At<'a, 'w, T, F> {
    /// Blocks until the target is locked.
    ///
    /// # Errors
    /// See [`LockAll::at`].
    #[inline]
    pub fn wait(self) -> Result<&'a Access<'w, T, F>, Error>
    where
        F: Drive,
    {
        match self.state {
            State::Here(access) => Ok(access),
            State::Requested(request) => request.wait(),
            State::Over => over(),
        }
    }
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
        let outcome = match &mut self.state {
            State::Here(access) => Ok(*access),
            State::Requested(request) => ready!(Pin::new(&mut **request).poll(cx)),
            State::Over => over(),
        };
        self.state = State::Over;
        Poll::Ready(outcome)
    }
}

debug!([T: Element, F: Fabric] At<'_, '_, T, F>, |this| "rank {} of {:?}", this.target, this.all);
