//! Lock requests: started by the call, completed by a wait or poll.

use std::future::{Future, poll_fn};
use std::mem::ManuallyDrop;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use onesided_fabric::remote_memory::{Fault, FaultKind};
use onesided_fabric::{Any, Drive, Fabric, Limit, block_on, debug, handle, wait_for};
use onesided_lock_algos::{Intent, Mode};

use crate::locks::layout::LockId;
use crate::operation::handles::over;
use crate::passive::acquire::{First, FirstOp, Started};
use crate::passive::cancelled::{Cancellable, cancel};
use crate::passive::claim::Claim;
use crate::passive::previous_owner::Holding;
use crate::window::inner::Inner;
use crate::window::target::Target;
use crate::{Element, Epoch, Error, Window};

impl<T: Element, F: Fabric> Window<T, F> {
    /// Locks a rank's window memory exclusively (`MPI_Win_lock`). The first operation is posted
    /// when the call returns; then wait on the request or await it.
    ///
    /// A lock is not reentrant: a rank that holds it, exclusively or shared, and waits for it
    /// without a [`deadline`](LockRequest::deadline) waits until its own unlock, which a single
    /// thread never reaches. That is no error at once, because another thread or task of the rank
    /// may have the guard, and release it. At a deadline the error says so, except of a lock of the
    /// [program's own](crate::Builder::allocate_with_lock). [`Epochs`](crate::Epochs) checks its own calls
    /// ([`Error::AlreadyLocked`]).
    #[inline]
    pub fn lock_exclusive(&self, target: u32) -> LockRequest<'_, T, F> {
        LockRequest::start(self, target, Mode::Exclusive, Intent::LOCK)
    }

    /// Locks a rank's window memory together with other shared holders (`MPI_Win_lock`, shared).
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

/// A lock request: its first operation is posted (the nonblocking lock of jiang-2004, sections 3
/// and 5.1). `.wait()` blocks until the lock is held, `.await` does not block, `.test()` polls.
///
/// # Cancel safety
/// A request may be dropped at any point. The endpoint finishes its operations in flight, even
/// while the application computes, and releases the lock if they took it.
///
/// # Failed owners
/// A lock is poisoned if its exclusive owner died, or left with a leaked guard, or may have, or if its
/// [guard](Epoch) was dropped by a panic, which poisons a [`std::sync::Mutex`] too: every request for it fails with an
/// error that names the failed rank ([`Error::is_poisoned`]), until a request with
/// [`recover`](Self::recover) has got the lock and released it. The protected data stay
/// inconsistent until then; reporting the failure only once would hand unrepaired data to all later
/// owners.
///
/// A shared owner that died or left poisons nothing: the next owner gets the lock as after any other reader.
/// Where the lock only counts its readers, that takes the suspicion timeout: 10 ms, or a second if
/// the dead rank's memory is gone with it, as on cards.
///
/// # Panics
/// If it is polled again after it has yielded its result.
#[must_use = "dropping the request cancels it"]
pub struct LockRequest<'w, T: Element, F: Fabric = Any, K: Kind<T> = ()> {
    window: &'w Window<T, F>,
    rank: u32,
    id: LockId,
    mode: Mode,
    lock: K::Lock<'w, F>,
    /// The first operation, until the first poll.
    started: Option<Result<Started<'w, F>, Fault>>,
    deadline: Option<Duration>,
    intent: Intent,
    /// From the first poll on. Boxed, so that a request stays in registers.
    pending: Option<Box<Pending<'w, F>>>,
}

/// What a lock belongs to: a window (`()`), or a [`LockTable`](crate::LockTable); and whether the
/// request only tries. Without a lifetime, so that futures that hold a request are [`Send`].
pub trait Kind<T: Element>: 'static {
    /// What the guard knows of its lock besides.
    #[doc(hidden)]
    type Lock<'w, F: Fabric>: Copy + Send;
    /// The guard: an [`Epoch`], or a [`TableGuard`](crate::TableGuard). Of a try-lock, an `Option`
    /// of it.
    type Guard<'w, F: Fabric>;
    #[doc(hidden)]
    fn guard<'w, F: Fabric>(epoch: Epoch<'w, T, F>, lock: Self::Lock<'w, F>) -> Self::Guard<'w, F>;
    #[doc(hidden)]
    fn failed<'w, F: Fabric>(lock: Self::Lock<'w, F>, error: Error) -> Error;
    #[doc(hidden)]
    #[inline(always)] // see `LockRequest::wait`
    fn outcome<'w, F: Fabric>(
        held: Result<Epoch<'w, T, F>, Fault>,
        lock: Self::Lock<'w, F>,
        failed: impl FnOnce(Fault) -> Error,
    ) -> Result<Self::Guard<'w, F>, Error> {
        held.map(|epoch| Self::guard(epoch, lock)).map_err(failed)
    }
}

impl<T: Element> Kind<T> for () {
    type Guard<'w, F: Fabric> = Epoch<'w, T, F>;
    type Lock<'w, F: Fabric> = ();

    #[inline(always)] // see `LockRequest::wait`
    fn guard<'w, F: Fabric>(epoch: Epoch<'w, T, F>, (): ()) -> Epoch<'w, T, F> {
        epoch
    }

    fn failed<F: Fabric>((): (), error: Error) -> Error {
        error
    }
}

/// A lock, and whether the first operation sufficed, which executed at the target.
pub(crate) type PollHeld<'w, T, F> = Result<(Epoch<'w, T, F>, bool), Fault>;

/// An acquire that is polled, and its deadline.
struct Pending<'w, F: Fabric> {
    target: &'w Target<F>,
    owner: u64,
    rest: Cancellable<F>,
    limit: Limit<'w, F>,
}

// Nothing in it is pinned in place: what must not move is boxed.
impl<'w, T: Element, F: Fabric, K: Kind<T>> Unpin for LockRequest<'w, T, F, K> {}

impl<'w, T: Element, F: Fabric> LockRequest<'w, T, F> {
    #[inline(always)] // see `wait`
    pub(crate) fn start(window: &'w Window<T, F>, rank: u32, mode: Mode, intent: Intent) -> Self {
        Self::start_of(window, (rank, LockId::WINDOW), (), mode, intent)
    }

    /// Makes a new request like this one.
    pub(crate) fn again(&self) -> impl Fn() -> Self + use<'w, T, F> {
        let (window, target_lock, mode, intent) = (self.window, self.target_lock(), self.mode, self.intent);
        move || Self::start_of(window, target_lock, (), mode, intent)
    }
}

impl<'w, T: Element, F: Fabric, K: Kind<T>> LockRequest<'w, T, F, K> {
    /// The same for any lock of the rank.
    #[inline(always)] // see `wait`
    pub(crate) fn start_of(
        window: &'w Window<T, F>,
        (rank, id): (u32, LockId),
        lock: K::Lock<'w, F>,
        mode: Mode,
        intent: Intent,
    ) -> Self {
        Self {
            window,
            rank,
            id,
            mode,
            lock,
            started: Some(Started::new(window.inner(), (rank, id), mode, intent)),
            deadline: None,
            intent,
            pending: None,
        }
    }

    /// Sets a deadline, counted from the first wait or poll. When it passes, the request fails with
    /// [`TimedOut`](Error::is_timed_out); the endpoint finishes the operations in flight and
    /// releases the lock if they take it.
    pub const fn deadline(mut self, after: Duration) -> Self {
        self.deadline = Some(after);
        self
    }

    /// Takes the lock over if it is poisoned: from a rank that died, or may have died, or panicked,
    /// while it held it exclusively. [`Epoch::previous_owner`] then names that rank, and the lock
    /// is held exclusively whatever mode was requested, because no other rank should see
    /// inconsistent data. The unlock ends the poisoning. A lock that is not poisoned is acquired as
    /// without this.
    ///
    /// # Panics
    /// If it was polled before.
    ///
    /// ```
    /// # use onesided_windows::{Error, Window};
    /// # fn repair(_: &onesided_windows::Epoch<'_, u64, onesided_fabric::Any>) -> Result<(), Error> { Ok(()) }
    /// # onesided_fabric::threads(2, |world| {
    /// # let window = Window::<u64>::allocate(&world, 1).wait()?;
    /// let epoch = window.lock_exclusive(1).recover().wait()?;
    /// if let Some(previous) = epoch.previous_owner() {
    ///     eprintln!("{previous}");
    ///     repair(&epoch)?;
    /// }
    /// epoch.unlock().wait()?;
    /// # window.close().wait()
    /// # }).unwrap().into_iter().collect::<Result<(), Error>>().unwrap();
    /// ```
    #[inline]
    #[track_caller]
    pub const fn recover(mut self) -> Self {
        assert!(self.started.is_some(), "`recover` comes before the first poll");
        self.intent = self.intent.recovering();
        self
    }

    /// Waits until the lock is held, whose guard is not [claimed](Epoch::claim) yet; also returns
    /// whether the first operation sufficed, at the target. Then words that were read behind it were
    /// read under the lock, and where the fabric [keeps order](onesided_fabric::keeps_order) all
    /// operations behind it executed under the lock.
    ///
    /// # Cancel safety
    /// As the request.
    pub(crate) async fn held(mut self) -> Result<(Epoch<'w, T, F>, bool), Error> {
        let held = poll_fn(|cx| self.poll_held(cx)).await;
        held.map(|(epoch, by_first)| (epoch.unclaimed(), by_first)).map_err(|fault| self.failed(fault))
    }

    pub(crate) const fn inner(&self) -> &'w Arc<Inner<F>> {
        self.window.inner()
    }

    pub(crate) const fn lock(&self) -> K::Lock<'w, F> {
        self.lock
    }

    pub(crate) const fn mode(&self) -> Mode {
        self.mode
    }

    pub(crate) const fn target_lock(&self) -> (u32, LockId) {
        (self.rank, self.id)
    }

    pub(crate) fn failed(&self, fault: Fault) -> Error {
        self.failing()(fault)
    }

    /// The same for a request that is consumed.
    #[inline]
    pub(crate) fn failing(&self) -> impl Fn(Fault) -> Error + use<'w, T, F, K> {
        let (inner, rank, mode, lock) = (self.inner(), self.rank, self.mode, self.lock);
        move |fault| K::failed(lock, failed(inner, rank, mode, fault))
    }

    pub(crate) fn poll_held(&mut self, cx: &mut Context<'_>) -> Poll<PollHeld<'w, T, F>> {
        let (inner, id, mode) = (self.window.inner(), self.id, self.mode);
        let at_target = inner.locks.starts_at_target();
        match self.started.take() {
            Some(Err(fault)) => return Poll::Ready(Err(fault)),
            Some(Ok(Started { target, owner, first: First::Held(holding) })) => {
                return Poll::Ready(Ok((Epoch::new(inner, (target, id), owner, holding), at_target)));
            }
            Some(Ok(Started { target, owner, first: First::Under(op) })) => {
                let mut limit = Limit::NONE;
                limit.said = self.deadline.take();
                let rest = Cancellable::new(Claim { inner, target, id, owner, mode }, self.intent, op);
                self.pending = Some(Box::new(Pending { target, owner, rest, limit }));
            }
            None => {}
        }
        let Some(pending) = &mut self.pending else { over() };
        let outcome = match pending.rest.poll(cx) {
            Poll::Ready(outcome) => outcome.map(|(holding, by_first)| {
                (Epoch::new(inner, (pending.target, id), pending.owner, holding), by_first && at_target)
            }),
            Poll::Pending => {
                ready!(pending.limit.poll(cx, inner.fabric()));
                Err(cancel(self.pending.take()).map_or(Fault::new(FaultKind::TimedOut), |cancelled| cancelled.fault))
            }
        };
        self.pending = None;
        Poll::Ready(outcome)
    }

    /// The same, or nothing once the request contends for the lock.
    pub(crate) fn poll_first(&mut self, cx: &mut Context<'_>) -> Poll<Option<PollHeld<'w, T, F>>> {
        match self.poll_held(cx) {
            Poll::Pending if !self.pending.as_ref().is_some_and(|pending| pending.rest.contends()) => Poll::Pending,
            Poll::Pending => Poll::Ready(None),
            Poll::Ready(held) => Poll::Ready(Some(held)),
        }
    }

    /// Takes the started operation.
    #[inline]
    fn take(&mut self) -> Result<Started<'w, F>, Fault> {
        self.started.take().unwrap_or_else(|| over())
    }
}

impl<'w, T: Element, F: Fabric, K: Kind<T>> LockRequest<'w, T, F, K> {
    /// Blocks until the lock is held.
    ///
    /// # Errors
    /// - [`Error::Lock`]: the lock is poisoned ([`Error::is_poisoned`]; see
    ///   [`recover`](Self::recover)), the deadline passed ([`Error::is_timed_out`]), or the target
    ///   died.
    /// - [`Error::Lock`] with `NoSlot`: this rank has as many locks of the window as
    ///   [`lock_slots`](crate::Builder::lock_slots) allows. Exclusive requests for test-and-set
    ///   locks without a [lease policy](crate::LeasePolicy) need no slot.
    /// - [`Error::Rank`].
    /// - For a lock of a table, [`Error::TableLock`] and [`Error::NoSuchLock`] instead.
    #[inline(always)] // see `hold`
    pub fn wait(self) -> Result<K::Guard<'w, F>, Error>
    where
        F: Drive,
    {
        let (failed, lock) = (self.failing(), self.lock);
        K::outcome(self.hold(), lock, failed)
    }

    // A request that stays in registers costs nothing; one that passes through memory costs more
    // than the lock.
    #[inline(always)]
    fn hold(self) -> Result<Epoch<'w, T, F>, Fault>
    where
        F: Drive,
    {
        let (inner, id, mode, intent) = (self.window.inner(), self.id, self.mode, self.intent);
        if self.deadline.is_some() || self.pending.is_some() {
            return self.hold_slowly();
        }
        let Started { target, owner, first } = ManuallyDrop::new(self).take()?;
        let holding = match first {
            First::Held(holding) => holding,
            First::Under(op) => wait_under(Claim { inner, target, id, owner, mode }, intent, op)?,
        };
        Ok(Epoch::new(inner, (target, id), owner, holding))
    }

    #[cold]
    #[inline(never)]
    fn hold_slowly(mut self) -> Result<Epoch<'w, T, F>, Fault>
    where
        F: Drive,
    {
        block_on(self.inner().fabric(), poll_fn(|cx| self.poll_held(cx))).map(|(epoch, _)| epoch)
    }
}

/// Waits for the first operation, and for the lock if that did not take it.
#[inline(never)] // what the operation is would be asked where it is known
fn wait_under<F: Drive>(claim: Claim<'_, F>, intent: Intent, op: FirstOp<F>) -> Result<Holding, Fault> {
    let Claim { inner, owner, mode, .. } = claim;
    match wait_for(inner.fabric(), op) {
        Ok(first) if inner.locks.algorithm.holds(owner, mode, first) => Ok(Holding::cleanly(mode)),
        first => claim.contend(intent, first),
    }
}

handle!(
    ['w, T: Element, F, K: Kind<T>], LockRequest<'w, T, F, K>, K::Guard<'w, F>, Error,
    |lock| lock.window.inner().fabric()
);

impl<'w, T: Element, F: Fabric, K: Kind<T>> Future for LockRequest<'w, T, F, K> {
    type Output = Result<K::Guard<'w, F>, Error>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let held = ready!(self.poll_held(cx)).map(|(epoch, _)| epoch);
        Poll::Ready(K::outcome(held, self.lock, |fault| self.failed(fault)))
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

impl<'w, T: Element, F: Fabric, K: Kind<T>> Drop for LockRequest<'w, T, F, K> {
    #[inline]
    fn drop(&mut self) {
        if let Some(Ok(started)) = self.started.take() {
            cancel_started::<T, F>(self.window.inner(), self.id, self.mode, started);
        }
    }
}

/// Cancels an acquire.
#[cold]
fn cancel_started<'w, T: Element, F: Fabric>(
    inner: &'w Arc<Inner<F>>,
    id: LockId,
    mode: Mode,
    Started { target, owner, first }: Started<'w, F>,
) {
    match first {
        First::Held(holding) => drop(Epoch::<T, F>::new(inner, (target, id), owner, holding).unclaimed()),
        First::Under(op) => {
            drop(Cancellable::new(Claim { inner, target, id, owner, mode }, Intent::CANCELLED, op));
        }
    }
}

debug!(
    ['w, T: Element, F: Fabric, K: Kind<T>] LockRequest<'w, T, F, K>,
    |this| "{} on rank {} of {:?}", operation(this.mode), this.rank, this.window
);
