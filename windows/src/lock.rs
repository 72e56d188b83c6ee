//! Acquiring a lock: started now, finished when it is waited for.

use std::fmt;
use std::future::Future;
use std::mem::ManuallyDrop;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll, Waker, ready};
use std::time::Duration;

use fabric::remote_memory::{Fault, FaultKind, Rank};
use fabric::{Drive, Fabric, block_on, wait_for};
use lock_algos::{LockAlgorithm, Mode, Owner, Place, TestAndSet};

use crate::window::{Inner, Target};
use crate::{Element, Epoch, Error, Window};

/// The words of a target's lock.
pub(crate) type Words<'w, F> = <TestAndSet as LockAlgorithm>::Words<'w, F>;

/// Where a window keeps the lock of one target.
#[derive(Debug)]
pub(crate) struct Home<'w, F: Fabric> {
    pub(crate) fabric: &'w F,
    pub(crate) locks: &'w F::Segment,
}

impl<F: Fabric> Clone for Home<'_, F> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<F: Fabric> Copy for Home<'_, F> {}

impl<'w, F: Fabric> Place<'w, F> for Home<'w, F> {
    #[inline]
    fn home(&self, index: usize) -> Result<F::Word<'w>, Fault> {
        self.fabric.word_in(self.locks, 8 * index as u64)
    }

    fn node_of(&self, _rank: Rank, _slot: u16, _index: usize) -> Result<F::Word<'w>, Fault> {
        Err(Fault::new(FaultKind::Unsupported))
    }

    /// No design of a window has nodes yet.
    #[inline]
    fn slots(&self) -> u16 {
        0
    }

    fn lock(&self) -> u64 {
        0
    }

    #[inline]
    fn owner(&self) -> Owner {
        Owner { rank: self.fabric.rank(), slot: 0, generation: 0 }
    }
}

/// The name of an acquire in errors.
pub(crate) const fn operation(mode: Mode) -> &'static str {
    match mode {
        Mode::Exclusive => "lock_exclusive",
        Mode::Shared => "lock_shared",
    }
}

/// A lock that was asked for: the first operation has left (the nonblocking lock of jiang-2004, sections 3 and 5.1).
/// `.wait()` blocks until it is held, `.await` does not block.
///
/// # Cancel safety
/// A request that is dropped, at whatever point, is not tried any more. What is under way of it is finished by the endpoint,
/// even while the application computes, and released if it took the lock.
#[must_use = "a lock that nobody waits for is released at once"]
pub struct LockRequest<'w, T: Element, F: Fabric> {
    window: &'w Window<T, F>,
    rank: u32,
    mode: Mode,
    started: Option<Result<Started<'w, F>, Fault>>,
    deadline: Option<Duration>,
}

struct Started<'w, F: Fabric> {
    target: &'w Target<F>,
    words: Words<'w, F>,
    op: F::Op,
}

impl<'w, F: Fabric> Started<'w, F> {
    #[inline(always)] // see `LockRequest::wait`
    fn new(inner: &'w Inner<F>, rank: u32, mode: Mode) -> Result<Self, Fault> {
        let target = inner.begin(rank)?;
        let words = inner.algorithm.words(inner.home(target), mode)?;
        Ok(Self { target, words, op: inner.algorithm.start(inner.fabric(), words, mode)? })
    }
}

impl<'w, T: Element, F: Fabric> LockRequest<'w, T, F> {
    #[inline(always)] // see `wait`
    pub(crate) fn start(window: &'w Window<T, F>, rank: u32, mode: Mode) -> Self {
        Self { window, rank, mode, started: Some(Started::new(window.inner(), rank, mode)), deadline: None }
    }

    /// Gives up after this time: the error is then [`TimedOut`](Error::is_timed_out), and the endpoint finishes what is
    /// under way, and releases what that takes.
    pub const fn deadline(mut self, after: Duration) -> Self {
        self.deadline = Some(after);
        self
    }

    /// Waits until the lock is held, and tells whether the first operation sufficed: then words that were read behind it
    /// were read under the lock, and where the fabric [keeps order](Fabric::keeps_order) everything was done under it.
    ///
    /// # Cancel safety
    /// As the request.
    pub(crate) async fn held(mut self) -> Result<(Epoch<'w, T, F>, bool), Error> {
        let (window, rank, mode) = (self.window, self.rank, self.mode);
        let inner = window.inner();
        let failed = |fault| failed(inner, rank, mode, fault);
        // In place, so that a drop meanwhile is the drop of the request.
        let first = std::future::poll_fn(|cx| match &mut self.started {
            Some(Ok(started)) => Pin::new(&mut started.op).poll(cx),
            Some(Err(fault)) => Poll::Ready(Err(*fault)),
            None => Poll::Ready(Err(Fault::new(FaultKind::Closed))),
        });
        let first = first.await;
        let started = self.take();
        let (first, Started { target, words, .. }) = (first.map_err(failed)?, started.map_err(failed)?);
        if inner.algorithm.holds::<F>(words, mode, first) {
            return Ok((Epoch::new(inner, target, words, mode), true));
        }
        let rest = Abandonable::contending(Arc::clone(inner), rank, mode, first);
        let deadline = self.deadline.and_then(|after| Deadline::after(inner.fabric(), target, after));
        let acquire = Ok(Acquire { target, words, rest, deadline });
        LockFuture { window, rank, mode, acquire }.await.map(|epoch| (epoch, false))
    }

    /// What was started; a request is consumed by whoever takes it.
    #[inline]
    fn take(&mut self) -> Result<Started<'w, F>, Fault> {
        self.started.take().unwrap_or_else(|| Err(Fault::new(FaultKind::Closed)))
    }
}

impl<'w, T: Element, F: Drive> LockRequest<'w, T, F> {
    /// Blocks until the lock is held.
    ///
    /// # Errors
    /// [`Error::Lock`]: its owner died ([`Error::is_owner_died`]), the deadline passed ([`Error::is_timed_out`]), the
    /// target died; [`Error::Rank`].
    // A request that is taken apart in registers costs nothing; one that passes through memory costs more than the lock.
    #[inline(always)]
    pub fn wait(self) -> Result<Epoch<'w, T, F>, Error> {
        let (inner, rank, mode) = (self.window.inner(), self.rank, self.mode);
        if self.deadline.is_some() {
            return self.wait_slowly();
        }
        let failed = |fault| failed(inner, rank, mode, fault);
        let Started { target, words, op } = ManuallyDrop::new(self).take().map_err(failed)?;
        let first = wait_for(inner.fabric(), op).map_err(failed)?;
        if !inner.algorithm.holds::<F>(words, mode, first) {
            contend(inner, target, words, mode, first).map_err(failed)?;
        }
        Ok(Epoch::new(inner, target, words, mode))
    }

    #[cold]
    #[inline(never)]
    fn wait_slowly(self) -> Result<Epoch<'w, T, F>, Error> {
        let inner = self.window.inner();
        block_on(inner.fabric(), self.into_future())
    }
}

/// The contended rest of an acquire, apart so that the uncontended path stays small.
#[cold]
#[inline(never)]
fn contend<'w, F: Drive>(
    inner: &'w Inner<F>,
    target: &'w Target<F>,
    words: Words<'w, F>,
    mode: Mode,
    first: u64,
) -> Result<(), Fault> {
    block_on(inner.fabric(), inner.algorithm.contend(inner.fabric(), inner.home(target), words, mode, first, || true))
        .map(drop)
}

#[cold]
#[inline(never)]
fn failed<F: Fabric>(inner: &Inner<F>, target: u32, mode: Mode, fault: Fault) -> Error {
    match fault.kind() {
        FaultKind::NoSuchRank => inner.failed(operation(mode), target, fault),
        _ => {
            let fault = inner.world.translate(fault);
            Error::Lock { operation: operation(mode), target, window: inner.name.clone(), fault }
        }
    }
}

impl<T: Element, F: Fabric> Drop for LockRequest<'_, T, F> {
    #[inline]
    fn drop(&mut self) {
        if let Some(Ok(started)) = self.started.take() {
            abandon(self.window.inner(), self.rank, self.mode, started);
        }
    }
}

/// Walks away from an acquire.
#[cold]
fn abandon<F: Fabric>(inner: &Arc<Inner<F>>, rank: u32, mode: Mode, started: Started<'_, F>) {
    drop(Abandonable::new(Arc::clone(inner), rank, mode, started.op));
}

impl<'w, T: Element, F: Fabric> IntoFuture for LockRequest<'w, T, F> {
    type Output = Result<Epoch<'w, T, F>, Error>;
    type IntoFuture = LockFuture<'w, T, F>;

    fn into_future(mut self) -> LockFuture<'w, T, F> {
        let (window, rank, mode) = (self.window, self.rank, self.mode);
        let acquire = self.take().map(|Started { target, words, op }| Acquire {
            target,
            words,
            rest: Abandonable::new(Arc::clone(window.inner()), rank, mode, op),
            deadline: self.deadline.and_then(|after| Deadline::after(window.inner().fabric(), target, after)),
        });
        LockFuture { window, rank, mode, acquire }
    }
}

/// A point in time, waited for by pauses on the lock's word, which may each end early.
struct Deadline<'w, F: Fabric> {
    fabric: &'w F,
    word: F::Word<'w>,
    until: u64,
    pause: F::Pause<'w>,
}

impl<'w, F: Fabric> Deadline<'w, F> {
    /// `None` where the lock has no word, which its acquire then tells.
    fn after(fabric: &'w F, target: &'w Target<F>, after: Duration) -> Option<Self> {
        let nanos = u64::try_from(after.as_nanos()).unwrap_or(u64::MAX);
        let word = fabric.word_in(&target.locks, 0).ok()?;
        Some(Self { fabric, word, until: fabric.now().saturating_add(nanos), pause: fabric.pause(word, nanos) })
    }

    fn poll(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        loop {
            ready!(Pin::new(&mut self.pause).poll(cx));
            match self.until.saturating_sub(self.fabric.now()) {
                0 => return Poll::Ready(()),
                left => self.pause = self.fabric.pause(self.word, left),
            }
        }
    }
}

/// The future of a [`LockRequest`].
pub struct LockFuture<'w, T: Element, F: Fabric> {
    window: &'w Window<T, F>,
    rank: u32,
    mode: Mode,
    acquire: Result<Acquire<'w, F>, Fault>,
}

struct Acquire<'w, F: Fabric> {
    target: &'w Target<F>,
    words: Words<'w, F>,
    rest: Abandonable<F>,
    deadline: Option<Deadline<'w, F>>,
}

// Nothing in it is pinned in place: what must not move is boxed.
impl<T: Element, F: Fabric> Unpin for LockFuture<'_, T, F> {}

impl<'w, T: Element, F: Fabric> Future for LockFuture<'w, T, F> {
    type Output = Result<Epoch<'w, T, F>, Error>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let Self { window, rank, mode, acquire } = &mut *self;
        let outcome = acquire.as_mut().map_err(|fault| *fault).and_then(|acquire| match acquire.rest.poll(cx) {
            Poll::Ready(outcome) => outcome.map(|()| Poll::Ready((acquire.target, acquire.words))),
            Poll::Pending => match acquire.deadline.as_mut().map(|deadline| deadline.poll(cx)) {
                Some(Poll::Ready(())) => Err(Fault::new(FaultKind::TimedOut)),
                _ => Ok(Poll::Pending),
            },
        });
        match outcome {
            Ok(Poll::Pending) => Poll::Pending,
            Ok(Poll::Ready((target, words))) => Poll::Ready(Ok(Epoch::new(window.inner(), target, words, *mode))),
            Err(fault) => {
                *acquire = Err(fault); // what was begun goes to the endpoint
                Poll::Ready(Err(failed(window.inner(), *rank, *mode, fault)))
            }
        }
    }
}

/// The rest of an acquire that owns what it needs. Dropped before it is done, it is handed to the endpoint, which
/// finishes what is under way and releases the lock if that took it; the window's end waits for this.
struct Abandonable<F: Fabric> {
    inner: Arc<Inner<F>>,
    rank: u32,
    mode: Mode,
    wanted: Arc<AtomicBool>,
    rest: Option<Rest>,
}

type Rest = Pin<Box<dyn Future<Output = Result<(), Fault>> + Send>>;

impl<F: Fabric> Abandonable<F> {
    fn new(inner: Arc<Inner<F>>, rank: u32, mode: Mode, op: F::Op) -> Self {
        let wanted = Arc::new(AtomicBool::new(true));
        let (theirs, still) = (Arc::clone(&inner), Arc::clone(&wanted));
        let rest = Box::pin(async move {
            let target = theirs.target(rank)?;
            let words = theirs.algorithm.words(theirs.home(target), mode)?;
            let wanted = || still.load(Ordering::Relaxed);
            theirs.algorithm.finish(theirs.fabric(), theirs.home(target), words, mode, op, wanted).await.map(drop)
        });
        Self { inner, rank, mode, wanted, rest: Some(rest) }
    }

    /// The rest behind a first operation that did not suffice.
    fn contending(inner: Arc<Inner<F>>, rank: u32, mode: Mode, first: u64) -> Self {
        let wanted = Arc::new(AtomicBool::new(true));
        let (theirs, still) = (Arc::clone(&inner), Arc::clone(&wanted));
        let rest = Box::pin(async move {
            let target = theirs.target(rank)?;
            let words = theirs.algorithm.words(theirs.home(target), mode)?;
            let wanted = || still.load(Ordering::Relaxed);
            theirs.algorithm.contend(theirs.fabric(), theirs.home(target), words, mode, first, wanted).await.map(drop)
        });
        Self { inner, rank, mode, wanted, rest: Some(rest) }
    }

    fn poll(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), Fault>> {
        let Some(rest) = &mut self.rest else { return Poll::Ready(Err(Fault::new(FaultKind::Closed))) };
        let outcome = ready!(rest.as_mut().poll(cx));
        self.rest = None;
        Poll::Ready(outcome)
    }
}

impl<F: Fabric> Drop for Abandonable<F> {
    fn drop(&mut self) {
        let Some(rest) = self.rest.take() else { return };
        self.wanted.store(false, Ordering::Relaxed);
        let (inner, rank, mode) = (Arc::clone(&self.inner), self.rank, self.mode);
        let mut task = Box::pin(async move {
            // An acquire that fails holds nothing.
            if rest.await.is_ok() {
                release(&inner, rank, mode).await;
            }
        });
        // Where an operation is done when it is posted, most of them end here.
        if pin!(&mut task).poll(&mut Context::from_waker(Waker::noop())).is_pending() {
            self.inner.adopt(task);
        }
    }
}

/// Flushes and releases for somebody who is gone; the window keeps what goes wrong.
pub(crate) async fn release<F: Fabric>(inner: &Inner<F>, rank: u32, mode: Mode) {
    let outcome = async {
        let target = inner.target(rank)?;
        inner.fabric().flush_before_release(target.fabric_rank()).await?;
        let words = inner.algorithm.words(inner.home(target), mode)?;
        let started = inner.algorithm.start_release(inner.fabric(), inner.home(target), words, mode)?;
        inner.algorithm.finish_release(inner.fabric(), inner.home(target), words, mode, started).await
    };
    if let Err(fault) = outcome.await {
        inner.keep(inner.failed("unlock", rank, fault));
    }
}

impl<T: Element, F: Fabric> fmt::Debug for LockRequest<'_, T, F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} on rank {} of {:?}", operation(self.mode), self.rank, self.window)
    }
}

impl<T: Element, F: Fabric> fmt::Debug for LockFuture<'_, T, F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} on rank {} of {:?}", operation(self.mode), self.rank, self.window)
    }
}
