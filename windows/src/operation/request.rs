//! The handle of most calls that wait.

use std::future::{Future, Ready, poll_fn};
use std::mem;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use onesided_fabric::remote_memory::{Fault, FaultKind};
use onesided_fabric::{Any, Drive, Fabric, Limit, World, block_on, debug, handle};
use onesided_lock_algos::Intent;

use crate::active::signals::Signal;
use crate::operation::handles::over;
use crate::passive::cancelled::{Cancelled, cancel};
use crate::window::group::Closing;
use crate::window::inner::Inner;
use crate::{Error, LockTable};

/// A pending call: [`wait`](Self::wait) blocks, `.await` does not, [`test`](Self::test) polls. The
/// method that returns it documents its effect, its errors and its cancel safety; most do nothing
/// before the first wait or poll.
///
/// A [`deadline`](Self::deadline) is set before the first wait or poll.
///
/// # Panics
/// A request yields its result once: it panics when it is polled after that, as futures may.
///
/// `C` begins the call where a box would cost as much as the call: the call is boxed at the first
/// poll, and never by `wait`. All other calls are boxed.
#[must_use = "the call completes only when it is waited on or polled"]
pub struct Request<'a, R, F: Fabric = Any, E = Error, C = fn() -> Ready<Result<R, E>>> {
    operation: &'static str,
    awaited: Awaited<'a, F>,
    deadline: Option<Duration>,
    state: State<'a, R, E, C>,
}

enum State<'a, R, E, C> {
    /// Nothing is left to do.
    Ready(R),
    NotBegun(C),
    Boxed(Boxed<'a, R, E>),
    /// Its result was yielded.
    Over,
}

/// A call that begins when its [`Request`] is first waited on or polled: until then it is only its
/// arguments, which are small.
pub trait Begin<R, E = Error>: Send {
    /// The call.
    type Call: Future<Output = Result<R, E>> + Send;
    /// Begins it.
    fn begin(self) -> Self::Call;
}

impl<R, E, A: Future<Output = Result<R, E>> + Send, C: FnOnce() -> A + Send> Begin<R, E> for C {
    type Call = A;

    #[inline]
    fn begin(self) -> A {
        self()
    }
}

type Boxed<'a, R, E> = Pin<Box<dyn Future<Output = Result<R, E>> + Send + 'a>>;

impl<'a, R, F: Fabric, E> Request<'a, R, F, E> {
    /// `operation` is its name in errors.
    pub(crate) fn new(
        awaited: Awaited<'a, F>,
        operation: &'static str,
        call: impl Future<Output = Result<R, E>> + Send + 'a,
    ) -> Self {
        Self { operation, awaited, deadline: None, state: State::Boxed(Box::pin(call)) }
    }

    /// A call that has its result.
    #[inline]
    pub(crate) const fn ready(awaited: Awaited<'a, F>, operation: &'static str, result: R) -> Self {
        Self { operation, awaited, deadline: None, state: State::Ready(result) }
    }
}

impl<'a, R, F: Fabric, E, C> Request<'a, R, F, E, C> {
    /// Does not box the call before its first poll.
    #[inline]
    pub(crate) const fn unboxed(awaited: Awaited<'a, F>, operation: &'static str, call: C) -> Self {
        Self { operation, awaited, deadline: None, state: State::NotBegun(call) }
    }

    /// Sets a deadline, counted from the first wait or poll. When it passes, the call fails with
    /// [`TimedOut`](Error::is_timed_out) and is dropped, with the effect that its cancel safety
    /// documents: a lock is left free. After a collective call no later collective of this rank
    /// succeeds, as for a [barrier](onesided_fabric::World::barrier); the same call may have
    /// succeeded at others, which then wait in their next collective until this rank leaves.
    /// Memory that the call would have returned is lost.
    pub fn deadline(mut self, after: Duration) -> Self {
        self.deadline = Some(after);
        self
    }
}

/// A call that takes locks, and takes poisoned ones over if it is to.
pub trait Recover {
    #[doc(hidden)]
    fn recover(&mut self);
}

/// A call that takes locks as `intent` says.
pub(crate) struct Locking<C> {
    pub(crate) intent: Intent,
    pub(crate) call: C,
}

impl<C> Recover for Locking<C> {
    fn recover(&mut self) {
        self.intent = self.intent.recovering();
    }
}

impl<R, A: Future<Output = Result<R, Error>> + Send, C: FnOnce(Intent) -> A + Send> Begin<R> for Locking<C> {
    type Call = A;

    #[inline]
    fn begin(self) -> A {
        (self.call)(self.intent)
    }
}

impl<R, F: Fabric, C: Recover> Request<'_, R, F, Error, C> {
    /// Takes poisoned locks over: see [`LockRequest::recover`](crate::handles::LockRequest::recover).
    /// Those are held exclusively whatever mode was requested; a value that one protects may have been
    /// written back in part. Where a later lock fails, or the request is dropped, they stay poisoned.
    ///
    /// # Panics
    /// If it was polled before.
    #[track_caller]
    pub fn recover(mut self) -> Self {
        let State::NotBegun(call) = &mut self.state else { panic!("`recover` comes before the first poll") };
        call.recover();
        self
    }
}

impl<'a, R: 'a, F: Fabric, E: From<Error> + 'a, C: Begin<R, E> + 'a> Request<'a, R, F, E, C> {
    /// Takes the rest of the call, which has begun.
    fn take(&mut self) -> Boxed<'a, R, E> {
        let pending = match mem::replace(&mut self.state, State::Over) {
            State::NotBegun(call) => Box::pin(call.begin()),
            State::Boxed(pending) => pending,
            State::Ready(_) | State::Over => over(),
        };
        match self.deadline.take() {
            Some(after) => Box::pin(limited(pending, self.awaited.clone(), self.operation, after)),
            None => pending,
        }
    }
}

async fn limited<'a, R, F: Fabric, E: From<Error>>(
    mut pending: Boxed<'a, R, E>,
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
    match outcome.await {
        Some(outcome) => outcome,
        None => Err(awaited.timed_out(operation, cancel(pending)).into()),
    }
}

impl<'a, R: 'a, F: Fabric, E: From<Error> + 'a, C: Begin<R, E> + 'a> Request<'a, R, F, E, C> {
    /// Blocks until the call completes.
    ///
    /// # Errors
    /// Those of the method that returned it.
    #[inline]
    pub fn wait(mut self) -> Result<R, E>
    where
        F: Drive,
    {
        if let State::Ready(result) = self.state {
            return Ok(result);
        }
        if self.deadline.is_none()
            && let State::NotBegun(call) = self.state
        {
            return block_on(self.awaited.fabric(), call.begin());
        }
        let pending = self.take();
        block_on(self.awaited.fabric(), pending)
    }
}

handle!(
    ['a, R: 'a, F, E: From<Error> + 'a, C: Begin<R, E> + 'a], Request<'a, R, F, E, C>, R, E,
    |request| &request.awaited.fabric().clone()
);

// Nothing in it is pinned in place: a call is boxed before its first poll, or waited for elsewhere.
impl<R, F: Fabric, E, C> Unpin for Request<'_, R, F, E, C> {}

impl<'a, R: 'a, F: Fabric, E: From<Error> + 'a, C: Begin<R, E> + 'a> Future for Request<'a, R, F, E, C> {
    type Output = Result<R, E>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        if let State::Ready(_) = self.state
            && let State::Ready(result) = mem::replace(&mut self.state, State::Over)
        {
            return Poll::Ready(Ok(result));
        }
        let mut pending = self.take();
        let outcome = pending.as_mut().poll(cx);
        if outcome.is_pending() {
            self.state = State::Boxed(pending);
        }
        outcome
    }
}

debug!([R, F: Fabric, E, C] Request<'_, R, F, E, C>, |this| "pending {}", this.operation);

/// What a request waits for: what its error names when the deadline passes.
#[derive(Clone)]
pub(crate) enum Awaited<'a, F: Fabric> {
    /// An operation on a target.
    Target(&'a Inner<F>, u32),
    /// The lock of a target.
    Lock(&'a Inner<F>, u32),
    /// A lock of a table, by number.
    TableLock(&'a LockTable<F>, u64),
    /// Signals of peers, by rank and number.
    Signals(&'a Inner<F>, Signal, Arc<[(u32, u64)]>),
    /// All ranks, in a fence.
    Fence(&'a Inner<F>),
    /// All ranks, in a close.
    Close(Box<Closing<F>>),
    /// All ranks, for a window of this name.
    AllRanks(World<F>, Arc<str>),
    /// The peers that use user memory.
    Users(World<F>),
}

impl<F: Fabric> Awaited<'_, F> {
    /// All ranks, in the close of a window.
    pub(crate) fn close(inner: &Inner<F>) -> Self {
        Self::Close(Box::new(Closing::awaited(inner)))
    }

    fn fabric(&self) -> &F {
        match self {
            Self::Target(inner, _) | Self::Lock(inner, _) | Self::Signals(inner, ..) | Self::Fence(inner) => {
                inner.fabric()
            }
            Self::TableLock(table, _) => table.inner().fabric(),
            Self::Close(closing) => closing.world.fabric(),
            Self::AllRanks(world, _) | Self::Users(world) => world.fabric(),
        }
    }

    /// The error of the deadline; `cancelled` is the acquire that the call waited for.
    #[cold]
    pub(crate) fn timed_out(&self, operation: &'static str, cancelled: Option<Cancelled>) -> Error {
        let fault = Fault::new(FaultKind::TimedOut);
        match self {
            Self::Target(inner, target) => inner.failed(operation, *target, fault),
            Self::Lock(inner, target) => {
                let (target, fault) = cancelled.map_or((*target, fault), |lock| (lock.target_lock.0, lock.fault));
                let fault = inner.world.translate(fault);
                Error::Lock { operation, target, window: inner.name.clone(), fault }
            }
            Self::TableLock(table, lock) => {
                let (lock, fault) =
                    cancelled.map_or((*lock, fault), |lock| (table.number_of(lock.target_lock), lock.fault));
                table.failed_lock(operation, lock, fault)
            }
            // Names the first rank that has not signalled, and how many others.
            Self::Signals(inner, signal, awaited) => {
                let mut missing = awaited.iter().filter(|(rank, number)| !inner.has_signalled(*rank, *signal, *number));
                let target = missing.next().or(awaited.first()).map_or(0, |(rank, _)| *rank);
                let others = missing.count() as u32;
                let late = inner.world.fabric_rank(target).map(|rank| Fault::of(FaultKind::TimedOut, rank));
                inner.failed(operation, target, late.map_or(fault, |late| late.with_detail(others)))
            }
            Self::Fence(inner) => {
                let fault = inner.world.give_up_collectives_of(*inner);
                Error::Collective { operation, window: inner.name.clone(), fault }
            }
            Self::Close(closing) => closing.timed_out(operation),
            Self::AllRanks(world, window) => {
                Error::Collective { operation, window: window.clone(), fault: world.give_up_collectives() }
            }
            Self::Users(_) => Error::TakeBack { fault },
        }
    }
}
