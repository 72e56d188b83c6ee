//! Handles without a value: get and flush.

use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use onesided_fabric::bootstrap::fork;
use onesided_fabric::remote_memory::Fault;
use onesided_fabric::{Any, Drive, Fabric, handle, wait_for};

use crate::error::counted;
use crate::window::inner::Inner;
use crate::{Access, Element, Error};

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
    pub fn get<'b>(&self, offset: usize, into: &'b mut [T]) -> Get<'_, 'b, T, F> {
        let count = into.len();
        let get = match self.range(offset, count) {
            Ok(at) => Ok(self.inner.fabric().get(&self.target.data, at, bytemuck::cast_slice_mut(into))),
            Err(fault) => Err(fault),
        };
        Get::new(self.copy(), (offset, count), get)
    }

    /// Completes at the target all operations that this rank has posted to it before the call
    /// (`MPI_Win_flush`), and reports the first deferred error. Every rank that synchronizes with
    /// this one afterwards sees the puts before it.
    pub fn flush(&self) -> Flush<'_, F> {
        let flush = || self.inner.fabric().flush(self.target.fabric_rank());
        Flush::new(self.inner, "flush", self.target.rank, fork::check().map(|()| flush()))
    }

    /// Completes locally all operations that this rank has posted to this target
    /// (`MPI_Win_flush_local`).
    pub fn flush_local(&self) -> Flush<'_, F> {
        let flush = || self.inner.fabric().flush_local(self.target.fabric_rank());
        Flush::new(self.inner, "flush_local", self.target.rank, fork::check().map(|()| flush()))
    }
}

/// A pending get: `.wait()` blocks, `.await` does not. See [`Access::get`](crate::Access::get).
#[must_use = "the slice has the elements only after a wait"]
pub struct Get<'w, 'b, T, F: Fabric = Any> {
    access: Access<'w, T, F>,
    /// The first element and the count.
    elements: (usize, usize),
    state: State<F::Get<'b>>,
}

/// A pending operation.
enum State<O> {
    UnderWay(O),
    Done(Result<(), Fault>),
    /// Its result was yielded.
    Over,
}

impl<O> State<O> {
    #[inline(always)] // see `Access::get`
    fn of(begun: Result<O, Fault>) -> Self {
        match begun {
            Ok(operation) => Self::UnderWay(operation),
            Err(fault) => Self::Done(Err(fault)),
        }
    }
}

impl<O: Future<Output = Result<(), Fault>> + Unpin> State<O> {
    #[inline(always)] // see `Get::wait`
    fn wait<F: Drive>(self, fabric: &F) -> Result<(), Fault> {
        match self {
            Self::UnderWay(operation) => wait_for(fabric, operation),
            Self::Done(outcome) => outcome,
            Self::Over => over(),
        }
    }

    #[inline]
    fn poll(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), Fault>> {
        let outcome = match self {
            Self::UnderWay(operation) => ready!(Pin::new(operation).poll(cx)),
            Self::Done(outcome) => *outcome,
            Self::Over => over(),
        };
        *self = Self::Over;
        Poll::Ready(outcome)
    }
}

/// A handle yields its result once, as futures do.
#[cold]
#[inline(never)]
pub(crate) fn over() -> ! {
    panic!("a handle yields its result once");
}

impl<'w, 'b, T: Element, F: Fabric> Get<'w, 'b, T, F> {
    #[inline(always)] // see `Access::get`
    pub(crate) fn new(access: Access<'w, T, F>, elements: (usize, usize), get: Result<F::Get<'b>, Fault>) -> Self {
        Self { access, elements, state: State::of(get) }
    }
}

impl<T: Element, F: Fabric> Get<'_, '_, T, F> {
    /// Blocks until the slice has the elements.
    ///
    /// # Errors
    /// See [`Access::get`](crate::Access::get).
    #[inline(always)] // a handle passed through memory costs more than a small get
    pub fn wait(self) -> Result<(), Error>
    where
        F: Drive,
    {
        let Self { access, elements, state } = self;
        state.wait(access.inner.fabric()).map_err(|fault| access.failed("get", elements, fault))
    }
}

handle!([T: Element, F], Get<'_, '_, T, F>, (), Error, |get| get.access.inner.fabric());

impl<T: Element, F: Fabric> Future for Get<'_, '_, T, F> {
    type Output = Result<(), Error>;

    #[inline]
    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let outcome = ready!(self.state.poll(cx));
        Poll::Ready(outcome.map_err(|fault| self.access.copy().failed("get", self.elements, fault)))
    }
}

impl<T, F: Fabric> fmt::Debug for Get<'_, '_, T, F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (offset, count) = self.elements;
        write!(f, "get of {} at {offset} from {:?}", counted(count as u64, "element"), self.access)
    }
}

/// A pending flush: `.wait()` blocks, `.await` does not. See
/// [`Access::flush`](crate::Access::flush).
#[must_use = "a flush guarantees completion only after a wait"]
pub struct Flush<'w, F: Fabric = Any> {
    inner: &'w Inner<F>,
    operation: &'static str,
    target: u32,
    state: State<F::Flush<'w>>,
}

impl<'w, F: Fabric> Flush<'w, F> {
    #[inline]
    pub(crate) fn new(
        inner: &'w Inner<F>,
        operation: &'static str,
        target: u32,
        flush: Result<F::Flush<'w>, Fault>,
    ) -> Self {
        Self { inner, operation, target, state: State::of(flush) }
    }
}

impl<F: Fabric> Flush<'_, F> {
    /// Blocks until the flush completes.
    ///
    /// # Errors
    /// [`Error::Operation`] with the first deferred error of operations on the target.
    #[inline(always)] // see `Get::wait`
    pub fn wait(self) -> Result<(), Error>
    where
        F: Drive,
    {
        let Self { inner, operation, target, state } = self;
        state.wait(inner.fabric()).map_err(|fault| inner.failed(operation, target, fault))
    }
}

handle!([F], Flush<'_, F>, (), Error, |flush| flush.inner.fabric());

impl<F: Fabric> Future for Flush<'_, F> {
    type Output = Result<(), Error>;

    #[inline]
    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let outcome = ready!(self.state.poll(cx));
        Poll::Ready(outcome.map_err(|fault| self.inner.failed(self.operation, self.target, fault)))
    }
}

impl<F: Fabric> fmt::Debug for Flush<'_, F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} of rank {} of window \"{}\"", self.operation, self.target, self.inner.name)
    }
}
