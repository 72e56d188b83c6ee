//! Acquiring a lock: started now, finished when it is waited for.

use std::fmt;
use std::future::{Future, poll_fn};
use std::mem::ManuallyDrop;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll, Waker, ready};
use std::time::Duration;

use fabric::remote_memory::{Fault, FaultKind, Rank};
use fabric::{Drive, Fabric, block_on, handle, wait_for};
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
/// `.wait()` blocks until it is held, `.await` does not block, `.test()` looks.
///
/// # Cancel safety
/// A request that is dropped, at whatever point, is not tried any more. What is under way of it is finished by the endpoint,
/// even while the application computes, and released if it took the lock.
#[must_use = "a lock that nobody waits for is released at once"]
pub struct LockRequest<'w, T: Element, F: Fabric> {
    window: &'w Window<T, F>,
    rank: u32,
    mode: Mode,
    /// The first operation, while it is under way; then how it ended, or `None` while more is.
    started: Option<Result<Started<'w, F>, Fault>>,
    deadline: Option<Duration>,
    /// What is there once more than the first operation is waited for. Boxed, so that a request stays in registers.
    later: Option<Box<Later<'w, F>>>,
}

/// A lock, and whether the first operation sufficed.
type Held<'w, T, F> = Result<(Epoch<'w, T, F>, bool), Error>;

/// The rest of an acquire whose first operation did not suffice, and when it has to end.
struct Later<'w, F: Fabric> {
    rest: Option<(&'w Target<F>, Words<'w, F>, Abandonable<F>)>,
    until: Option<Deadline<'w, F>>,
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
        let words = inner.algorithm.words(inner.home(target))?;
        Ok(Self { target, words, op: inner.algorithm.start(inner.fabric(), inner.home(target), words, mode)? })
    }
}

// Nothing in it is pinned in place: what must not move is boxed.
impl<T: Element, F: Fabric> Unpin for LockRequest<'_, T, F> {}

impl<'w, T: Element, F: Fabric> LockRequest<'w, T, F> {
    #[inline(always)] // see `wait`
    pub(crate) fn start(window: &'w Window<T, F>, rank: u32, mode: Mode) -> Self {
        Self {
            window,
            rank,
            mode,
            started: Some(Started::new(window.inner(), rank, mode)),
            deadline: None,
            later: None,
        }
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
    pub(crate) async fn held(mut self) -> Held<'w, T, F> {
        poll_fn(|cx| self.poll_held(cx)).await
    }

    fn poll_held(&mut self, cx: &mut Context<'_>) -> Poll<Held<'w, T, F>> {
        let (inner, rank, mode) = (self.window.inner(), self.rank, self.mode);
        if let Some(after) = self.deadline.take() {
            // It may be said at any time.
            let first = self.started.as_ref().and_then(|started| started.as_ref().ok()).map(|started| started.target);
            let rest = self.later.as_ref().and_then(|later| later.rest.as_ref()).map(|(target, ..)| *target);
            if let Some(target) = first.or(rest) {
                let until = Deadline::after(inner.fabric(), target, after);
                self.later.get_or_insert_with(|| Box::new(Later { rest: None, until: None })).until = until;
            }
        }
        let outcome = match self.poll_stage(cx) {
            Poll::Pending => {
                match self.later.as_mut().and_then(|later| later.until.as_mut()).map(|until| until.poll(cx)) {
                    Some(Poll::Ready(())) => Err(Fault::new(FaultKind::TimedOut)),
                    _ => return Poll::Pending,
                }
            }
            Poll::Ready(outcome) => outcome,
        };
        // What was begun goes to the endpoint.
        self.give_up(outcome.as_ref().err().copied().unwrap_or(Fault::new(FaultKind::Closed)));
        Poll::Ready(match outcome {
            Ok((target, words, at_once)) => Ok((Epoch::new(inner, target, words, mode), at_once)),
            Err(fault) => Err(failed(inner, rank, mode, fault)),
        })
    }

    #[allow(clippy::type_complexity, reason = "the parts of an epoch, and whether it was had at once")]
    fn poll_stage(&mut self, cx: &mut Context<'_>) -> Poll<Result<(&'w Target<F>, Words<'w, F>, bool), Fault>> {
        let (inner, rank, mode) = (self.window.inner(), self.rank, self.mode);
        match &mut self.started {
            // In place, so that a drop meanwhile is the drop of the request.
            Some(Ok(Started { target, words, op })) => {
                let (target, words) = (*target, *words);
                let first = ready!(Pin::new(op).poll(cx));
                self.started = None; // there is nothing to walk away from
                match first {
                    Ok(first) if inner.algorithm.holds::<F>(words, mode, first) => {
                        return Poll::Ready(Ok((target, words, true)));
                    }
                    Ok(first) => {
                        let rest = Abandonable::new(Arc::clone(inner), rank, mode, std::future::ready(Ok(first)));
                        let later = self.later.get_or_insert_with(|| Box::new(Later { rest: None, until: None }));
                        later.rest = Some((target, words, rest));
                    }
                    Err(fault) => return Poll::Ready(Err(fault)),
                }
            }
            Some(Err(fault)) => return Poll::Ready(Err(*fault)),
            None => {}
        }
        match self.later.as_mut().and_then(|later| later.rest.as_mut()) {
            Some((target, words, rest)) => rest.poll(cx).map_ok(|()| (*target, *words, false)),
            None => Poll::Ready(Err(Fault::new(FaultKind::Closed))),
        }
    }

    /// Ends it; a request is consumed by whoever takes the lock.
    fn give_up(&mut self, why: Fault) {
        self.later = None;
        if let Some(Ok(started)) = self.started.replace(Err(why)) {
            abandon(self.window.inner(), self.rank, self.mode, started);
        }
    }

    /// What was started.
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
        if self.deadline.is_some() || self.later.is_some() {
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
        block_on(self.window.inner().fabric(), self)
    }
}

handle!(['w, T: Element, F], LockRequest<'w, T, F>, Epoch<'w, T, F>, Error, |lock| lock.window.inner().fabric());

impl<'w, T: Element, F: Fabric> Future for LockRequest<'w, T, F> {
    type Output = Result<Epoch<'w, T, F>, Error>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        self.poll_held(cx).map_ok(|(epoch, _)| epoch)
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
    /// `first` gives the value of the first operation.
    fn new(
        inner: Arc<Inner<F>>,
        rank: u32,
        mode: Mode,
        first: impl Future<Output = Result<u64, Fault>> + Send + 'static,
    ) -> Self {
        let wanted = Arc::new(AtomicBool::new(true));
        let (theirs, still) = (Arc::clone(&inner), Arc::clone(&wanted));
        let rest = Box::pin(async move {
            let target = theirs.target(rank)?;
            let words = theirs.algorithm.words(theirs.home(target))?;
            let first = first.await?;
            if theirs.algorithm.holds::<F>(words, mode, first) {
                return Ok(());
            }
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
        let flushed = inner.fabric().flush_before_release(target.fabric_rank()).await;
        let words = inner.algorithm.words(inner.home(target))?;
        let started = inner.algorithm.start_release(inner.fabric(), inner.home(target), words, mode)?;
        let released = inner.algorithm.finish_release(inner.fabric(), inner.home(target), words, mode, started).await;
        flushed.and(released) // it is released whatever became of what was done under it
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
