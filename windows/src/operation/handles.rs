//! The handle of operations, and those without a value: get and flush.

use std::future::{Future, Ready};
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use onesided_fabric::bootstrap::fork;
use onesided_fabric::remote_memory::{Fault, Rank};
use onesided_fabric::{Any, Drive, Fabric, debug, handle, wait_for};

use crate::datatype::element::from_word;
use crate::window::retry::poll_once;
use crate::{Access, AtomicElement, Element, Error};

impl<T: Element, F: Fabric> Access<'_, T, F> {
    /// Gets elements (`MPI_Get`). Sees this rank's earlier puts. A get of one element of 8 bytes is
    /// a single access.
    ///
    /// # Errors
    /// When waited on: [`Error::Range`], [`Error::Operation`].
    ///
    /// # Cancel safety
    /// A get that is dropped or leaked leaves the slice with none, some or all of the elements.
    #[inline(always)] // moving a handle out of a call costs several times a small get
    pub fn get<'s>(&'s self, offset: usize, into: &'s mut [T]) -> Get<'s, T, F> {
        let elements = (offset, into.len());
        let state = match self.range(offset, into.len()) {
            Ok(at) => State::Posted(self.inner.fabric().get(&self.target.data, at, bytemuck::cast_slice_mut(into))),
            Err(fault) => State::Done(Err(fault)),
        };
        Get::new(self.copy(), "get", elements, state)
    }

    /// Completes at the target all operations that this rank has posted to it before the call
    /// (`MPI_Win_flush`), and reports the first deferred error. Every rank that synchronizes with
    /// this one afterwards sees the puts before it.
    ///
    /// # Errors
    /// When waited on: [`Error::Operation`] with the first deferred error of operations on the
    /// target.
    #[inline]
    pub fn flush(&self) -> Flush<'_, T, F> {
        self.flush_by("flush", F::flush)
    }

    /// Completes locally all operations that this rank has posted to this target
    /// (`MPI_Win_flush_local`).
    ///
    /// # Errors
    /// As [`flush`](Self::flush).
    #[inline]
    pub fn flush_local(&self) -> Flush<'_, T, F> {
        self.flush_by("flush_local", F::flush_local)
    }

    #[inline(always)]
    fn flush_by<'s>(
        &'s self,
        operation: &'static str,
        flush: impl FnOnce(&'s F, Rank) -> F::Flush<'s>,
    ) -> Flush<'s, T, F> {
        let state = match fork::check() {
            Ok(()) => State::Posted(flush(self.inner.fabric(), self.target.fabric_rank())),
            Err(fault) => State::Done(Err(fault)),
        };
        Operation { access: self.copy(), operation, elements: None, state }
    }
}

/// A pending operation on a target: [`wait`](Self::wait) blocks, `.await` does not,
/// [`test`](Self::test) polls. The method that returns it documents its effect, its errors and its
/// cancel safety.
///
/// # Panics
/// If it is polled again after it has yielded its result.
#[must_use = "an operation is complete, and has its result, only after a wait"]
pub struct Operation<'s, T, F: Fabric = Any, O = Ready<Result<(), Fault>>, R = ()> {
    access: Access<'s, T, F>,
    operation: &'static str,
    /// The first element and the count; with [`TooLong`](onesided_fabric::remote_memory::FaultKind),
    /// the lengths that differ. None of a flush, whose faults are of other operations.
    elements: Option<(usize, usize)>,
    state: State<'s, O, R>,
}

/// A pending get.
pub type Get<'s, T, F = Any> = Operation<'s, T, F, <F as Fabric>::Get<'s>>;

/// A pending flush.
pub type Flush<'s, T, F = Any> = Operation<'s, T, F, <F as Fabric>::Flush<'s>>;

pub(crate) enum State<'s, O, R = ()> {
    /// One operation of the fabric.
    Posted(O),
    Done(Result<R, Fault>),
    /// Several operations of the fabric, or requests to the memory's agent.
    Steps(Pin<Box<dyn Future<Output = Result<R, Fault>> + Send + 's>>),
    /// Its result was yielded.
    Over,
}

impl<'s, O, R> State<'s, O, R> {
    /// Starts what takes more than one operation of the fabric.
    #[cold]
    #[inline(never)]
    pub(crate) fn start(steps: impl Future<Output = Result<R, Fault>> + Send + 's) -> Self {
        let mut steps = Box::pin(steps);
        match poll_once(steps.as_mut()) {
            Poll::Ready(outcome) => Self::Done(outcome),
            Poll::Pending => Self::Steps(steps),
        }
    }
}

/// What an operation yields: nothing, or an element, of the word that the fabric's operation yields.
pub trait Yielded<V>: Copy {
    #[doc(hidden)]
    fn of(posted: V) -> Self;
}

impl Yielded<()> for () {
    #[inline(always)]
    fn of((): ()) {}
}

impl<T: AtomicElement> Yielded<u64> for T {
    #[inline(always)]
    fn of(word: u64) -> T {
        from_word(word)
    }
}

impl<'s, T: Element, F: Fabric, O, R> Operation<'s, T, F, O, R> {
    #[inline(always)] // see `Access::get`
    pub(crate) const fn new(
        access: Access<'s, T, F>,
        operation: &'static str,
        elements: (usize, usize),
        state: State<'s, O, R>,
    ) -> Self {
        Self { access, operation, elements: Some(elements), state }
    }

    #[inline(always)] // see `wait`
    fn failed(
        access: Access<'s, T, F>,
        operation: &'static str,
        elements: Option<(usize, usize)>,
        fault: Fault,
    ) -> Error {
        match elements {
            Some(elements) => access.failed(operation, elements, fault),
            None => access.inner.failed(operation, access.target.rank, fault),
        }
    }
}

impl<T: Element, F: Fabric, V, O: Future<Output = Result<V, Fault>> + Unpin, R: Yielded<V>> Operation<'_, T, F, O, R> {
    /// Blocks until the operation completes; returns the previous value if it yields one.
    ///
    /// # Errors
    /// Those of the method that returned it.
    #[inline(always)] // a handle that passes through memory costs more than a small operation
    pub fn wait(self) -> Result<R, Error>
    where
        F: Drive,
    {
        let Self { access, operation, elements, state } = self;
        let outcome = match state {
            State::Posted(posted) => wait_for(access.inner.fabric(), posted).map(R::of),
            State::Done(outcome) => outcome,
            State::Steps(steps) => wait_for(access.inner.fabric(), steps),
            State::Over => over(),
        };
        match outcome {
            Ok(found) => Ok(found),
            Err(fault) => Err(Self::failed(access, operation, elements, fault)), // a closure would refer to them
        }
    }
}

handle!(
    ['s, T: Element, F, V, O: Future<Output = Result<V, Fault>> + Unpin, R: Yielded<V>],
    Operation<'s, T, F, O, R>, R, Error, |operation| operation.access.inner.fabric()
);

// The fabric's operations are `Unpin`, and what takes several is boxed.
impl<T, F: Fabric, O, R> Unpin for Operation<'_, T, F, O, R> {}

impl<T: Element, F: Fabric, V, O: Future<Output = Result<V, Fault>> + Unpin, R: Yielded<V>> Future
    for Operation<'_, T, F, O, R>
{
    type Output = Result<R, Error>;

    #[inline]
    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let Self { access, operation, elements, state } = &mut *self;
        let outcome = match state {
            State::Posted(posted) => ready!(Pin::new(posted).poll(cx)).map(R::of),
            State::Done(outcome) => *outcome,
            State::Steps(steps) => ready!(steps.as_mut().poll(cx)),
            State::Over => over(),
        };
        *state = State::Over;
        Poll::Ready(outcome.map_err(|fault| Self::failed(access.copy(), operation, *elements, fault)))
    }
}

debug!([T, F: Fabric, O, R] Operation<'_, T, F, O, R>, |this| "{} on {:?}", this.operation, this.access);

/// A handle yields its result once, as futures do.
#[cold]
#[inline(never)]
pub(crate) fn over() -> ! {
    panic!("a handle yields its result once");
}
