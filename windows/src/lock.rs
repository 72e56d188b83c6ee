//! Lock requests: started by the call, completed by a wait or poll.

use std::fmt;
use std::future::{Future, poll_fn};
use std::mem::ManuallyDrop;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::task::{Context, Poll, Waker, ready};
use std::time::Duration;

use onesided_fabric::remote_memory::{Fault, FaultKind};
use onesided_fabric::{Drive, Fabric, Limit, block_on, handle, wait_for};
use onesided_lock_algos::{AnyLock, Intent, LockAlgorithm, Mode};

use crate::abandoned::Abandonable;
use crate::home::Words;
use crate::homes::Which;
use crate::previous_owner::Holding;
use crate::window::{Inner, Target};
use crate::{Element, Epoch, Error, Window};

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
/// A lock whose owner died is poisoned, as a panic poisons a [`std::sync::Mutex`]: every request
/// for it fails with an error that names the failed rank ([`Error::is_poisoned`]), until a request
/// with [`recover`](Self::recover) has got the lock and released it. The protected data stay
/// inconsistent until then; reporting the failure only once would hand unrepaired data to all later
/// owners.
#[must_use = "dropping the request cancels it"]
pub struct LockRequest<'w, T: Element, F: Fabric> {
    window: &'w Window<T, F>,
    rank: u32,
    which: Which,
    mode: Mode,
    /// The first operation while it is in flight; then its result, or `None` while more is needed.
    started: Option<Result<Started<'w, F>, Fault>>,
    pub(crate) deadline: Option<Duration>,
    pub(crate) wish: Intent,
    /// The rest, once the first operation did not suffice. Boxed, so that a request stays in
    /// registers.
    later: Option<Box<Later<'w, F>>>,
}

/// A rank and one of its locks.
pub(crate) type Spot = (u32, Which);

/// A lock, and whether the first operation sufficed.
type Held<'w, T, F> = Result<(Epoch<'w, T, F>, bool), Fault>;

/// The components of an epoch.
type Parts<'w, F> = (&'w Target<F>, Words<'w, F>, Had);

/// How a lock was acquired.
struct Had {
    holding: Holding,
    /// By the first operation, which executed at the target.
    at_once: bool,
}

/// The rest of an acquire whose first operation did not suffice, and its deadline.
struct Later<'w, F: Fabric> {
    rest: Option<(&'w Target<F>, Words<'w, F>, Abandonable<F>)>,
    limit: Limit<'w, F>,
}

impl<F: Fabric> Default for Later<'_, F> {
    fn default() -> Self {
        Self { rest: None, limit: Limit::NONE }
    }
}

struct Started<'w, F: Fabric> {
    target: &'w Target<F>,
    words: Words<'w, F>,
    op: First<F>,
}

/// The first operation of an acquire.
enum First<F: Fabric> {
    Done(u64),
    Posted(F::Op),
}

impl<F: Fabric> Future for First<F> {
    type Output = Result<u64, Fault>;

    #[inline(always)] // see `LockRequest::wait`
    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        match &mut *self {
            Self::Done(value) => Poll::Ready(Ok(*value)),
            Self::Posted(op) => Pin::new(op).poll(cx),
        }
    }
}

impl<'w, F: Fabric> Started<'w, F> {
    #[inline(always)] // see `LockRequest::wait`
    fn new(inner: &'w Inner<F>, (rank, which): Spot, mode: Mode, wish: Intent) -> Result<Self, Fault> {
        let target = inner.begin(rank)?;
        if let Some(lock) = inner.algorithm.only_word(mode) {
            let home = inner.home(target, which, inner.slotless());
            let words = lock.words(home)?;
            let op = First::Posted(lock.start(inner.fabric(), home, words, mode)?);
            return Ok(Self { target, words, op });
        }
        let leads = which.is_part() && wish.is_patient();
        if let Some(owner) = leads.then(|| inner.lead_owner(mode)).flatten() {
            let (words, first) = start_as_lead(inner, target, owner, mode)?;
            return Ok(Self { target, words, op: First::Done(first) });
        }
        // Destructured: a returned struct lies in memory, and its fields would stay there.
        let (word, owner, op) = Self::with_node(inner, (target, which), mode, wish)?;
        Ok(Self { target, words: (word, owner), op: First::Posted(op) })
    }

    /// The same with any node that is available.
    #[cold]
    #[inline(never)]
    fn with_node(
        inner: &'w Inner<F>,
        (target, which): (&'w Target<F>, Which),
        mode: Mode,
        wish: Intent,
    ) -> Result<(F::Word<'w>, u64, F::Op), Fault> {
        let home = inner.home(target, which, inner.owner(mode)?);
        let words = match wish.is_patient() {
            true => inner.algorithm.words(home),
            false => inner.algorithm.words_to_try(home),
        };
        let words = words.inspect_err(|_| inner.give_back(home.owner))?;
        let op = inner.algorithm.start(inner.fabric(), home, words, mode);
        Ok((words.0, words.1, op.inspect_err(|_| inner.give_back(words.1))?))
    }
}

/// The first operation of the owner in the biased slot, where operations complete at post.
#[inline(always)]
fn start_as_lead<'w, F: Fabric>(
    inner: &'w Inner<F>,
    target: &'w Target<F>,
    owner: u64,
    mode: Mode,
) -> Result<(Words<'w, F>, u64), Fault> {
    macro_rules! start {
        ($lock:expr) => {{
            let words = $lock.words(inner.home(target, Which::PART, owner))?;
            Ok((words, start_at_once($lock, inner, target, words.0, words.1, mode)?))
        }};
    }
    match &inner.algorithm {
        AnyLock::TestAndSet(lock) => start!(lock),
        AnyLock::Mcs(lock) => start!(lock),
        AnyLock::Ticket(lock) => start!(lock),
        AnyLock::FetchAddQueue(lock) => start!(lock),
        AnyLock::TwoLevel(lock) => start!(lock),
        other => start_another(other, inner, target, owner, mode),
    }
}

/// For locks off the fastest path, so that callers stay small.
#[inline(never)]
fn start_another<'w, F: Fabric>(
    lock: &'w AnyLock,
    inner: &'w Inner<F>,
    target: &'w Target<F>,
    owner: u64,
    mode: Mode,
) -> Result<(Words<'w, F>, u64), Fault> {
    let words = lock.words(inner.home(target, Which::PART, owner))?;
    Ok((words, start_at_once(lock, inner, target, words.0, words.1, mode)?))
}

/// A separate function, so that it is small and its result stays in registers.
#[inline(never)]
fn start_at_once<'w, F: Fabric, A: LockAlgorithm<Words<'w, F> = Words<'w, F>>>(
    lock: &'w A,
    inner: &'w Inner<F>,
    target: &'w Target<F>,
    word: F::Word<'w>,
    owner: u64,
    mode: Mode,
) -> Result<u64, Fault> {
    let words = (word, owner);
    let started = inner.home(target, Which::PART, owner).of_lead();
    match started.and_then(|home| lock.start(inner.fabric(), home, words, mode)) {
        Ok(op) => at_once(op).map_err(|fault| failed_at_once(inner, target, words, mode, fault)),
        Err(fault) => Err(never_started(inner, owner, fault)),
    }
}

#[cold]
#[inline(never)]
fn never_started<F: Fabric>(inner: &Inner<F>, owner: u64, fault: Fault) -> Fault {
    inner.give_back(owner);
    fault
}

/// Ends an acquire whose first operation failed, where operations complete at post.
#[cold]
#[inline(never)]
fn failed_at_once<'w, F: Fabric>(
    inner: &'w Inner<F>,
    target: &'w Target<F>,
    words: Words<'w, F>,
    mode: Mode,
    fault: Fault,
) -> Fault {
    let home = inner.home(target, Which::PART, words.1);
    // Nothing of it is in flight, so cancelling it completes in one poll.
    let contends = pin!(inner.algorithm.contend(inner.fabric(), home, words, mode, Err(fault), &|| Intent::CANCELLED));
    let _ = contends.poll(&mut Context::from_waker(Waker::noop()));
    inner.give_up(home.owner, Err(fault), fault);
    fault
}

/// The value of an operation, where operations complete at post.
#[inline(always)]
pub(crate) fn at_once<O: Future<Output = Result<u64, Fault>> + Unpin>(mut op: O) -> Result<u64, Fault> {
    match Pin::new(&mut op).poll(&mut Context::from_waker(Waker::noop())) {
        Poll::Ready(value) => value,
        Poll::Pending => Err(Fault::new(FaultKind::Protocol)), // a fabric that claims to complete at post and does not
    }
}

// Nothing in it is pinned in place: what must not move is boxed.
impl<T: Element, F: Fabric> Unpin for LockRequest<'_, T, F> {}

impl<'w, T: Element, F: Fabric> LockRequest<'w, T, F> {
    #[inline(always)] // see `wait`
    pub(crate) fn start(window: &'w Window<T, F>, rank: u32, mode: Mode, wish: Intent) -> Self {
        Self::start_of(window, (rank, Which::PART), mode, wish)
    }

    /// The same for any lock of the rank.
    #[inline(always)] // see `wait`
    pub(crate) fn start_of(window: &'w Window<T, F>, (rank, which): Spot, mode: Mode, wish: Intent) -> Self {
        Self {
            window,
            rank,
            which,
            mode,
            started: Some(Started::new(window.inner(), (rank, which), mode, wish)),
            deadline: None,
            wish,
            later: None,
        }
    }

    /// Sets a deadline, counted from the first wait or poll. When it passes, the request fails with
    /// [`TimedOut`](Error::is_timed_out); the endpoint finishes the operations in flight and
    /// releases the lock if they take it.
    pub const fn deadline(mut self, after: Duration) -> Self {
        self.deadline = Some(after);
        self
    }

    /// Takes the lock over from a rank that died while it held it. [`Epoch::previous_owner`] then
    /// names that rank, and the lock is held exclusively whatever mode was requested, because no
    /// other rank should see inconsistent data. The unlock ends the poisoning.
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
    pub const fn recover(mut self) -> Self {
        self.wish = self.wish.recovering();
        self
    }

    /// Waits until the lock is held; also returns whether the first operation sufficed, at the
    /// target. Then words that were read behind it were read under the lock, and where the fabric
    /// [keeps order](Fabric::keeps_order) all operations behind it executed under the lock.
    ///
    /// # Cancel safety
    /// As the request.
    pub(crate) async fn held(self) -> Result<(Epoch<'w, T, F>, bool), Error> {
        self.held_as(|_| ()).await
    }

    /// The same; `tell` may change the request at each poll.
    pub(crate) async fn held_as(mut self, tell: impl Fn(&mut Self)) -> Result<(Epoch<'w, T, F>, bool), Error> {
        let held = poll_fn(|cx| {
            tell(&mut self);
            self.poll_held(cx)
        });
        held.await.map_err(|fault| self.failed(fault))
    }

    /// A new request like this one.
    pub(crate) fn again(&self) -> Self {
        Self::start_of(self.window, self.spot(), self.mode, self.wish)
    }

    pub(crate) const fn inner(&self) -> &'w Arc<Inner<F>> {
        self.window.inner()
    }

    pub(crate) const fn spot(&self) -> Spot {
        (self.rank, self.which)
    }

    pub(crate) fn failed(&self, fault: Fault) -> Error {
        failed(self.inner(), self.rank, self.mode, fault)
    }

    /// The same for a request that is consumed.
    #[inline]
    pub(crate) fn failing(&self) -> impl Fn(Fault) -> Error + use<'w, T, F> {
        let (inner, rank, mode) = (self.inner(), self.rank, self.mode);
        move |fault| failed(inner, rank, mode, fault)
    }

    pub(crate) fn poll_held(&mut self, cx: &mut Context<'_>) -> Poll<Held<'w, T, F>> {
        let (inner, which) = (self.window.inner(), self.which);
        if let Some(after) = self.deadline.take() {
            self.later.get_or_insert_default().limit.said = Some(after); // the deadline may be set between polls
        }
        let outcome = match self.poll_stage(cx) {
            Poll::Pending => {
                let Some(later) = &mut self.later else { return Poll::Pending };
                ready!(later.limit.poll(cx, inner.fabric()));
                Err(Fault::new(FaultKind::TimedOut))
            }
            Poll::Ready(outcome) => outcome,
        };
        // The endpoint finishes what was started.
        self.give_up(outcome.as_ref().err().copied().unwrap_or(Fault::new(FaultKind::Closed)));
        Poll::Ready(outcome.map(|(target, words, Had { holding, at_once })| {
            (Epoch::new(inner, (target, which), words, holding), at_once)
        }))
    }

    /// The lock if the first operation took it; otherwise nothing is held or waited for yet.
    pub(crate) fn poll_first(&mut self, cx: &mut Context<'_>) -> Poll<Result<Option<Epoch<'w, T, F>>, Error>> {
        let first = ready!(self.poll_started(cx)).map_err(|fault| self.failed(fault))?;
        Poll::Ready(Ok(first.map(|(target, words, Had { holding, .. })| {
            self.give_up(Fault::new(FaultKind::Closed)); // the epoch owns the lock
            Epoch::new(self.inner(), (target, self.which), words, holding)
        })))
    }

    fn poll_stage(&mut self, cx: &mut Context<'_>) -> Poll<Result<Parts<'w, F>, Fault>> {
        if let Some(held) = ready!(self.poll_started(cx))? {
            return Poll::Ready(Ok(held));
        }
        match self.later.as_mut().and_then(|later| later.rest.as_mut()) {
            Some((target, words, rest)) => {
                let held = rest.poll(cx, self.wish.recovers); // may be set between polls
                held.map_ok(|holding| (*target, *words, Had { holding, at_once: false }))
            }
            None => Poll::Ready(Err(Fault::new(FaultKind::Closed))),
        }
    }

    /// The first operation. `None` once more than it is needed.
    fn poll_started(&mut self, cx: &mut Context<'_>) -> Poll<Result<Option<Parts<'w, F>>, Fault>> {
        let (inner, spot, mode) = (self.window.inner(), (self.rank, self.which), self.mode);
        match &mut self.started {
            // In place, so that dropping the request meanwhile drops this too.
            Some(Ok(Started { target, words, op })) => {
                let (target, words) = (*target, *words);
                let first = ready!(Pin::new(op).poll(cx));
                self.started = None; // nothing left to cancel
                match first {
                    Ok(first) if inner.algorithm.holds::<F>(words, mode, first) => {
                        let at_once = inner.starts_at_target();
                        let had = Had { holding: Holding::cleanly(mode), at_once };
                        return Poll::Ready(Ok(Some((target, words, had))));
                    }
                    first => {
                        let first = std::future::ready(first);
                        let rest = Abandonable::new(Arc::clone(inner), (spot, mode, self.wish), words.1, first);
                        let later = self.later.get_or_insert_default();
                        later.rest = Some((target, words, rest));
                    }
                }
            }
            Some(Err(fault)) => return Poll::Ready(Err(*fault)),
            None => {}
        }
        Poll::Ready(Ok(None))
    }

    /// Ends the request; taking the lock consumes it.
    fn give_up(&mut self, why: Fault) {
        self.later = None;
        if let Some(Ok(started)) = self.started.replace(Err(why)) {
            abandon(self.window.inner(), (self.rank, self.which), self.mode, started);
        }
    }

    /// Takes the started operation.
    #[inline]
    fn take(&mut self) -> Result<Started<'w, F>, Fault> {
        self.started.take().unwrap_or_else(|| Err(Fault::new(FaultKind::Closed)))
    }
}

impl<'w, T: Element, F: Drive> LockRequest<'w, T, F> {
    /// Blocks until the lock is held.
    ///
    /// # Errors
    /// - [`Error::Lock`]: the owner died ([`Error::is_poisoned`]; see [`recover`](Self::recover)),
    ///   the deadline passed ([`Error::is_timed_out`]), or the target died.
    /// - [`Error::Lock`] with `Deadlock`: this rank holds more locks of the target than it has
    ///   slots (one for each rank and 31 more, at most 1024) and waits for a lock of a failed rank,
    ///   and so does the named rank: neither can tell whether the other is the owner it waits for.
    /// - [`Error::Lock`] with `Full`, in a window with a [lease policy](crate::LeasePolicy) or with
    ///   [`LockAllDesign::Global`](crate::LockAllDesign::Global): this rank holds as many locks of
    ///   the target as it has slots. Readers count too, because a reader that takes over an expired
    ///   lease holds the lock exclusively.
    /// - [`Error::Rank`].
    #[inline(always)] // see `hold`
    pub fn wait(self) -> Result<Epoch<'w, T, F>, Error> {
        let failed = self.failing();
        self.hold().map_err(failed)
    }

    // A request that stays in registers costs nothing; one that passes through memory costs more
    // than the lock.
    #[inline(always)]
    pub(crate) fn hold(self) -> Result<Epoch<'w, T, F>, Fault> {
        let (inner, which, mode, wish) = (self.window.inner(), self.which, self.mode, self.wish);
        if self.deadline.is_some() || self.later.is_some() {
            return self.hold_slowly();
        }
        let Started { target, words, op } = ManuallyDrop::new(self).take()?;
        let holding = match wait_for(inner.fabric(), op) {
            Ok(first) if inner.algorithm.holds::<F>(words, mode, first) => Holding::cleanly(mode),
            first => contend(inner, (target, which), words, (mode, wish), first)?,
        };
        Ok(Epoch::new(inner, (target, which), words, holding))
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

/// The contended rest of an acquire, separate so that the uncontended path stays small.
#[cold]
#[inline(never)]
fn contend<'w, F: Drive>(
    inner: &'w Inner<F>,
    (target, which): (&'w Target<F>, Which),
    words: Words<'w, F>,
    (mode, wish): (Mode, Intent),
    first: Result<u64, Fault>,
) -> Result<Holding, Fault> {
    let home = inner.home(target, which, words.1);
    let held = match inner.late {
        None => block_on(inner.fabric(), inner.algorithm.contend(inner.fabric(), home, words, mode, first, &|| wish)),
        Some(_) => block_on(inner.fabric(), inner.contend(home, words, mode, first, &|| wish)),
    };
    held.map(Holding::of).inspect_err(|fault| inner.give_up(words.1, first, *fault))
}

impl<F: Fabric> Inner<F> {
    /// Frees the slot of an owner whose acquire failed, given the result of its first operation.
    pub(crate) fn give_up(&self, owner: u64, first: Result<u64, Fault>, fault: Fault) {
        use FaultKind::{Closed, Deadlock, LeaseExpired, OwnerDied, ParticipantDied, TimedOut};
        let never_began = first.is_err_and(|fault| !fault.is_unknown());
        // A node whose queue failed may still be written to: it is never reused.
        let is_free = never_began || self.algorithm.nodes_are_own();
        if is_free || matches!(fault.kind(), Closed | Deadlock | TimedOut | OwnerDied | LeaseExpired | ParticipantDied)
        {
            self.give_back(owner);
        }
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
            abandon(self.window.inner(), (self.rank, self.which), self.mode, started);
        }
    }
}

/// Cancels an acquire.
#[cold]
fn abandon<F: Fabric>(inner: &Arc<Inner<F>>, spot: Spot, mode: Mode, started: Started<'_, F>) {
    drop(Abandonable::new(Arc::clone(inner), (spot, mode, Intent::CANCELLED), started.words.1, started.op));
}

impl<T: Element, F: Fabric> fmt::Debug for LockRequest<'_, T, F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} on rank {} of {:?}", operation(self.mode), self.rank, self.window)
    }
}
