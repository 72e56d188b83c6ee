//! Acquiring a lock: started now, finished when it is waited for.

use std::fmt;
use std::future::{Future, poll_fn};
use std::mem::ManuallyDrop;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use onesided_fabric::remote_memory::{Fault, FaultKind};
use onesided_fabric::{Drive, Fabric, Limit, block_on, handle, wait_for};
use onesided_lock_algos::{Intent, LockAlgorithm, Mode};

use crate::locks::context::Words;
use crate::locks::layout::LockId;
use crate::passive::acquire::{Started, contend};
use crate::passive::cancelled::Cancellable;
use crate::passive::previous_owner::Holding;
use crate::window::inner::Inner;
use crate::window::target::Target;
use crate::{Element, Epoch, Error, Window};

impl<T: Element, F: Fabric> Window<T, F> {
    /// Locks a rank's part for this origin alone (`MPI_Win_lock`, exclusive). The first operation has left when the call
    /// returns; the request is then waited for or awaited.
    #[inline]
    pub fn lock_exclusive(&self, target: u32) -> LockRequest<'_, T, F> {
        LockRequest::start(self, target, Mode::Exclusive, Intent::LOCK)
    }

    /// Locks a rank's part together with other shared holders (`MPI_Win_lock`, shared).
    #[inline]
    pub fn lock_shared(&self, target: u32) -> LockRequest<'_, T, F> {
        LockRequest::start(self, target, Mode::Shared, Intent::LOCK)
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
///
/// # Death
/// A lock that its owner left by dying is poisoned, as a [`std::sync::Mutex`] is by a panic: whoever asks for it, now and
/// later, gets an error that names the dead rank ([`Error::is_poisoned`]), until somebody has asked with
/// [`inherit`](Self::recover), got it, and given it back. For what the dead owner left half done stays so: an error that
/// only the next one got would leave all others with data that nobody has looked at.
#[must_use = "a lock that nobody waits for is released at once"]
pub struct LockRequest<'w, T: Element, F: Fabric> {
    window: &'w Window<T, F>,
    rank: u32,
    id: LockId,
    mode: Mode,
    /// The first operation, while it is under way; then how it ended, or `None` while more is.
    started: Option<Result<Started<'w, F>, Fault>>,
    pub(crate) deadline: Option<Duration>,
    pub(crate) intent: Intent,
    /// What is there once more than the first operation is waited for. Boxed, so that a request stays in registers.
    contended: Option<Box<Contended<'w, F>>>,
}

/// A lock, and whether the first operation sufficed.
type PollHeld<'w, T, F> = Result<(Epoch<'w, T, F>, bool), Fault>;

/// The parts of an epoch.
type Acquired<'w, F> = (&'w Target<F>, Words<'w, F>, How);

/// How a lock was had.
struct How {
    holding: Holding,
    /// By the first operation, which was at the target.
    by_first: bool,
}

/// The rest of an acquire whose first operation did not suffice, and when it has to end.
struct Contended<'w, F: Fabric> {
    rest: Option<(&'w Target<F>, Words<'w, F>, Cancellable<F>)>,
    limit: Limit<'w, F>,
}

impl<F: Fabric> Default for Contended<'_, F> {
    fn default() -> Self {
        Self { rest: None, limit: Limit::NONE }
    }
}

// Nothing in it is pinned in place: what must not move is boxed.
impl<T: Element, F: Fabric> Unpin for LockRequest<'_, T, F> {}

impl<'w, T: Element, F: Fabric> LockRequest<'w, T, F> {
    #[inline(always)] // see `wait`
    pub(crate) fn start(window: &'w Window<T, F>, rank: u32, mode: Mode, intent: Intent) -> Self {
        Self::start_of(window, (rank, LockId::WINDOW), mode, intent)
    }

    /// The same for any lock of the rank.
    #[inline(always)] // see `wait`
    pub(crate) fn start_of(window: &'w Window<T, F>, (rank, id): (u32, LockId), mode: Mode, intent: Intent) -> Self {
        Self {
            window,
            rank,
            id,
            mode,
            started: Some(Started::new(window.inner(), (rank, id), mode, intent)),
            deadline: None,
            intent,
            contended: None,
        }
    }

    /// Gives up after this time: the error is then [`TimedOut`](Error::is_timed_out), and the endpoint finishes what is
    /// under way, and releases what that takes.
    pub const fn deadline(mut self, after: Duration) -> Self {
        self.deadline = Some(after);
        self
    }

    /// Takes the lock from a rank that died while it held it: [`Epoch::previous_owner`] tells then from whom, and the lock is held
    /// exclusively whatever was asked for, because what the dead rank left half done is for nobody else to see. The unlock
    /// heals it: who comes later is not told any more.
    ///
    /// ```
    /// # use onesided_windows::{Error, Window};
    /// # fn repair(_: &onesided_windows::Epoch<'_, u64, onesided_fabric::Any>) -> Result<(), Error> { Ok(()) }
    /// # onesided_fabric::threads(2, |world| {
    /// # let window = Window::<u64>::allocate(&world, 1).wait()?;
    /// let epoch = window.lock_exclusive(1).recover().wait()?;
    /// if let Some(inheritance) = epoch.previous_owner() {
    ///     eprintln!("{inheritance}");
    ///     repair(&epoch)?;
    /// }
    /// epoch.unlock().wait()?;
    /// # window.close().wait()
    /// # }).unwrap().into_iter().collect::<Result<(), Error>>().unwrap();
    /// ```
    #[inline]
    pub const fn recover(mut self) -> Self {
        self.intent = self.intent.recovering();
        self
    }

    /// Waits until the lock is held, and tells whether the first operation sufficed, at the target: then words that were read there
    /// behind it were read under the lock, and where the fabric [keeps order](Fabric::keeps_order) everything was done under it.
    ///
    /// # Cancel safety
    /// As the request.
    pub(crate) async fn held(self) -> Result<(Epoch<'w, T, F>, bool), Error> {
        self.held_telling(|_| ()).await
    }

    /// The same where more may be said at each look.
    pub(crate) async fn held_telling(mut self, tell: impl Fn(&mut Self)) -> Result<(Epoch<'w, T, F>, bool), Error> {
        let held = poll_fn(|cx| {
            tell(&mut self);
            self.poll_held(cx)
        });
        held.await.map_err(|fault| self.failed(fault))
    }

    /// The same once more.
    pub(crate) fn again(&self) -> Self {
        Self::start_of(self.window, self.target_lock(), self.mode, self.intent)
    }

    pub(crate) const fn inner(&self) -> &'w Arc<Inner<F>> {
        self.window.inner()
    }

    pub(crate) const fn target_lock(&self) -> (u32, LockId) {
        (self.rank, self.id)
    }

    pub(crate) fn failed(&self, fault: Fault) -> Error {
        failed(self.inner(), self.rank, self.mode, fault)
    }

    /// The same, of a request that is consumed.
    #[inline]
    pub(crate) fn failing(&self) -> impl Fn(Fault) -> Error + use<'w, T, F> {
        let (inner, rank, mode) = (self.inner(), self.rank, self.mode);
        move |fault| failed(inner, rank, mode, fault)
    }

    pub(crate) fn poll_held(&mut self, cx: &mut Context<'_>) -> Poll<PollHeld<'w, T, F>> {
        let (inner, id) = (self.window.inner(), self.id);
        if let Some(after) = self.deadline.take() {
            self.contended.get_or_insert_default().limit.said = Some(after); // it may be said at any time
        }
        let outcome = match self.poll_stage(cx) {
            Poll::Pending => {
                let Some(contended) = &mut self.contended else { return Poll::Pending };
                ready!(contended.limit.poll(cx, inner.fabric()));
                Err(Fault::new(FaultKind::TimedOut))
            }
            Poll::Ready(outcome) => outcome,
        };
        // What was begun goes to the endpoint.
        self.cancel_rest(outcome.as_ref().err().copied().unwrap_or(Fault::new(FaultKind::Closed)));
        Poll::Ready(outcome.map(|(target, words, How { holding, by_first })| {
            (Epoch::new(inner, (target, id), words, holding), by_first)
        }))
    }

    /// Whether the first operation sufficed, and the lock if it did: otherwise nothing is held, and nobody waits yet.
    pub(crate) fn poll_first(&mut self, cx: &mut Context<'_>) -> Poll<Result<Option<Epoch<'w, T, F>>, Error>> {
        let first = ready!(self.poll_started(cx)).map_err(|fault| self.failed(fault))?;
        Poll::Ready(Ok(first.map(|(target, words, How { holding, .. })| {
            self.cancel_rest(Fault::new(FaultKind::Closed)); // the lock is the epoch's
            Epoch::new(self.inner(), (target, self.id), words, holding)
        })))
    }

    fn poll_stage(&mut self, cx: &mut Context<'_>) -> Poll<Result<Acquired<'w, F>, Fault>> {
        if let Some(held) = ready!(self.poll_started(cx))? {
            return Poll::Ready(Ok(held));
        }
        match self.contended.as_mut().and_then(|contended| contended.rest.as_mut()) {
            Some((target, words, rest)) => {
                let held = rest.poll(cx, self.intent.recovers); // it may be said at any time
                held.map_ok(|holding| (*target, *words, How { holding, by_first: false }))
            }
            None => Poll::Ready(Err(Fault::new(FaultKind::Closed))),
        }
    }

    /// The first operation. `None` once more than it is needed.
    fn poll_started(&mut self, cx: &mut Context<'_>) -> Poll<Result<Option<Acquired<'w, F>>, Fault>> {
        let (inner, target_lock, mode) = (self.window.inner(), (self.rank, self.id), self.mode);
        match &mut self.started {
            // In place, so that a drop meanwhile is the drop of the request.
            Some(Ok(Started { target, words, op })) => {
                let (target, words) = (*target, *words);
                let first = ready!(Pin::new(op).poll(cx));
                self.started = None; // there is nothing to walk away from
                match first {
                    Ok(first) if inner.locks.algorithm.holds::<F>(words, mode, first) => {
                        let by_first = inner.locks.starts_at_target();
                        let had = How { holding: Holding::cleanly(mode), by_first };
                        return Poll::Ready(Ok(Some((target, words, had))));
                    }
                    first => {
                        let first = std::future::ready(first);
                        let rest =
                            Cancellable::new(Arc::clone(inner), (target_lock, mode, self.intent), words.1, first);
                        let contended = self.contended.get_or_insert_default();
                        contended.rest = Some((target, words, rest));
                    }
                }
            }
            Some(Err(fault)) => return Poll::Ready(Err(*fault)),
            None => {}
        }
        Poll::Ready(Ok(None))
    }

    /// Ends it; a request is consumed by whoever takes the lock.
    fn cancel_rest(&mut self, why: Fault) {
        self.contended = None;
        if let Some(Ok(started)) = self.started.replace(Err(why)) {
            cancel(self.window.inner(), (self.rank, self.id), self.mode, started);
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
    /// [`Error::Lock`]: its owner died ([`Error::is_poisoned`]; see [`inherit`](Self::recover)), the deadline passed
    /// ([`Error::is_timed_out`]), the target died; `Deadlock`: this rank has more locks there than it has slots (one for each rank and
    /// 31 more, at most 1024), and waits for a lock of the dead, and the named rank does so as well, so that neither knows whether
    /// the other one is what it waits for; in a window with a [policy for late owners](crate::LeasePolicy), or with
    /// [`LockAllDesign::Global`](crate::LockAllDesign::Global), `Full`: this rank has as many locks there as it has slots
    /// (readers count as well, because one that finds a late owner has the lock alone); [`Error::Rank`].
    #[inline(always)] // see `hold`
    pub fn wait(self) -> Result<Epoch<'w, T, F>, Error> {
        let failed = self.failing();
        self.hold().map_err(failed)
    }

    // A request that is taken apart in registers costs nothing; one that passes through memory costs more than the lock.
    #[inline(always)]
    pub(crate) fn hold(self) -> Result<Epoch<'w, T, F>, Fault> {
        let (inner, id, mode, intent) = (self.window.inner(), self.id, self.mode, self.intent);
        if self.deadline.is_some() || self.contended.is_some() {
            return self.hold_slowly();
        }
        let Started { target, words, op } = ManuallyDrop::new(self).take()?;
        let holding = match wait_for(inner.fabric(), op) {
            Ok(first) if inner.locks.algorithm.holds::<F>(words, mode, first) => Holding::cleanly(mode),
            first => contend(inner, (target, id), words, (mode, intent), first)?,
        };
        Ok(Epoch::new(inner, (target, id), words, holding))
    }

    #[cold]
    #[inline(never)]
    fn hold_slowly(mut self) -> Result<Epoch<'w, T, F>, Fault> {
        block_on(self.inner().fabric(), poll_fn(|cx| self.poll_held(cx))).map(|(epoch, _)| epoch)
    }
}

handle!(['w, T: Element, F], LockRequest<'w, T, F>, Epoch<'w, T, F>, Error, |lock| lock.window.inner().fabric());

impl<'w, T: Element, F: Fabric> Future for LockRequest<'w, T, F> {
    type Output = Result<Epoch<'w, T, F>, Error>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        self.poll_held(cx).map_ok(|(epoch, _)| epoch).map_err(|fault| self.failed(fault))
    }
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
            cancel(self.window.inner(), (self.rank, self.id), self.mode, started);
        }
    }
}

/// Walks away from an acquire.
#[cold]
fn cancel<F: Fabric>(inner: &Arc<Inner<F>>, target_lock: (u32, LockId), mode: Mode, started: Started<'_, F>) {
    drop(Cancellable::new(Arc::clone(inner), (target_lock, mode, Intent::CANCELLED), started.words.1, started.op));
}

impl<T: Element, F: Fabric> fmt::Debug for LockRequest<'_, T, F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} on rank {} of {:?}", operation(self.mode), self.rank, self.window)
    }
}
