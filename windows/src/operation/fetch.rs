//! Atomic operations that return the previous value.

use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use onesided_fabric::remote_memory::{Fault, FaultKind};
use onesided_fabric::{Any, Drive, Fabric, handle, wait_for};

use crate::datatype::element::{from_word, lanes, per_word, refused, same_bits, to_word};
use crate::helper::{HelperCall, HelperRequest, is_wordless};
use crate::operation::handles::over;
use crate::window::inner::Inner;
use crate::window::target::Target;
use crate::{Access, AtomicElement, Element, Error, Op};

impl<T: Element, F: Fabric> Access<'_, T, F> {
    /// Combines an element with an operand, atomically with respect to all other atomic operations
    /// of this window, and returns the previous value (`MPI_Fetch_and_op`).
    ///
    /// Posted when the call returns where the fabric has the operation (sum and atomic read of
    /// 8-byte integers). Everything else is a loop of compare-and-swaps that does nothing unless
    /// waited on or polled. On memory that has no words here (user memory, on shm) the memory's
    /// agent executes every operation, and nothing is posted before the wait.
    ///
    /// # Errors
    /// When waited on: [`Error::Range`], [`Error::Type`] (the operation does not apply to `T`),
    /// [`Error::Operation`].
    ///
    /// # Cancel safety
    /// If dropped before it completes, it may or may not have taken effect.
    #[inline]
    pub fn fetch_and_op(&self, offset: usize, operand: T, op: Op) -> Fetch<'_, T, F>
    where
        T: AtomicElement,
    {
        self.fetch("fetch_and_op", offset, Change::Apply(op, operand))
    }

    /// Adds to an element atomically and returns the previous value:
    /// [`fetch_and_op`](Self::fetch_and_op) with [`Op::Sum`].
    #[inline]
    pub fn fetch_add(&self, offset: usize, add: T) -> Fetch<'_, T, F>
    where
        T: AtomicElement,
    {
        self.fetch("fetch_add", offset, Change::Apply(Op::Sum, add))
    }

    /// Reads an element atomically: [`fetch_and_op`](Self::fetch_and_op) with [`Op::NoOp`].
    #[inline]
    pub fn fetch_one(&self, offset: usize) -> Fetch<'_, T, F>
    where
        T: AtomicElement + Default,
    {
        self.fetch("fetch_one", offset, Change::Apply(Op::NoOp, T::default()))
    }

    /// Replaces an element by `new` if it is `expected`, atomically; returns the previous value
    /// (`MPI_Compare_and_swap`). Floats are compared by their bits.
    ///
    /// # Errors
    /// When waited on: [`Error::Range`], [`Error::Operation`].
    ///
    /// # Cancel safety
    /// As [`fetch_and_op`](Self::fetch_and_op).
    #[inline]
    pub fn compare_and_swap(&self, offset: usize, expected: T, new: T) -> Fetch<'_, T, F>
    where
        T: AtomicElement,
    {
        self.fetch("compare_and_swap", offset, Change::Swap { expected, new })
    }

    #[inline(always)] // see Fetch::wait
    fn fetch(&self, operation: &'static str, offset: usize, change: Change<T>) -> Fetch<'_, T, F>
    where
        T: AtomicElement,
    {
        let word_and_lane = self.atomic_range(offset, 1).and_then(|at| {
            // The 8-byte word around the element; window memory is a multiple of 8 bytes long.
            let word = self.inner.fabric().word_in(&self.target.data, at & !7)?;
            Ok((word, offset % const { per_word::<T>() }))
        });
        Fetch::start(self.copy(), operation, (offset, offset), change, word_and_lane)
    }
}

/// The change of an element by an atomic operation.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Change<T> {
    Apply(Op, T),
    Swap { expected: T, new: T },
}

/// A pending atomic operation on an element: `.wait()` blocks, `.await` does not. Yields the
/// previous value. See [`Access::fetch_and_op`](crate::Access::fetch_and_op).
#[must_use = "an atomic operation may do nothing unless waited on or polled"]
pub struct Fetch<'w, T, F: Fabric = Any> {
    access: Access<'w, T, F>,
    operation: &'static str,
    offset: usize,
    state: State<'w, T, F>,
}

enum State<'w, T, F: Fabric> {
    /// The fabric's own operation.
    Direct(F::Op),
    /// Compare-and-swaps on the word around the element.
    CasLoop(CasLoop<'w, T, F>),
    /// A request to the memory's agent.
    Helper(HelperCall<'w>),
    Done(Result<T, Fault>),
    /// Its result was yielded.
    Over,
}

struct CasLoop<'w, T, F: Fabric> {
    op: F::Op,
    word: F::Word<'w>,
    /// The index of the element in its word.
    lane: usize,
    change: Change<T>,
    /// What the pending compare-and-swap expects; `None` for a read.
    expected: Option<u64>,
}

impl<'w, T: AtomicElement, F: Fabric> Fetch<'w, T, F> {
    #[inline(always)] // see `wait`
    pub(crate) fn start(
        access: Access<'w, T, F>,
        operation: &'static str,
        // The offset in elements as the caller counts, for errors, and in elements of this type.
        (offset, element): (usize, usize),
        change: Change<T>,
        word_and_lane: Result<(F::Word<'w>, usize), Fault>,
    ) -> Self {
        let fabric = access.inner.fabric();
        let is_word = size_of::<T>() == 8;
        let state = match (word_and_lane, change) {
            (Err(fault), change) => {
                let (op, one, other) = match change {
                    Change::Apply(op, operand) => (Some(op), operand, operand),
                    Change::Swap { expected, new } => (None, expected, new),
                };
                match wordless(access.inner, access.target, element, op, one, other, fault) {
                    Ok(call) => State::Helper(call),
                    Err(fault) => State::Done(Err(fault)),
                }
            }
            (Ok(_), Change::Apply(op, _)) if !T::allows(op) => State::Done(Err(refused(op))),
            (Ok((word, _)), Change::Apply(Op::Sum, operand)) if T::ADDS => {
                State::Direct(fabric.fetch_add(word, to_word(operand)))
            }
            (Ok((word, _)), Change::Apply(Op::NoOp, _)) if is_word => State::Direct(fabric.read(word)),
            (Ok((word, _)), Change::Swap { expected, new }) if is_word => {
                State::Direct(fabric.compare_swap(word, to_word(expected), to_word(new)))
            }
            (Ok((word, lane)), change) => {
                State::CasLoop(CasLoop { op: fabric.read(word), word, lane, change, expected: None })
            }
        };
        Self { access, operation, offset, state }
    }
}

/// Where the fabric has no word, requests the operation from the agent: `op`, or a swap without
/// one.
///
/// Takes and returns single words: arguments and results in memory make a fetch half as slow again.
#[cold]
#[inline(never)]
fn wordless<'w, T: AtomicElement, F: Fabric>(
    inner: &'w Inner<F>,
    target: &'w Target<F>,
    offset: usize,
    op: Option<Op>,
    operand: T,
    new: T,
    fault: Fault,
) -> Result<HelperCall<'w>, Fault> {
    let request = match op {
        _ if !is_wordless(fault) => return Err(fault),
        Some(op) if !T::allows(op) => return Err(refused(op)),
        Some(op) => {
            let all = offset..offset + 1; // the range was checked before the word was looked up
            HelperRequest::of_runs(op, true, usize::MAX, (&mut { all }, &mut std::iter::empty()), &mut &[operand][..])
        }
        None => HelperRequest::swap(offset, operand, new),
    };
    Ok(inner.call(target, request))
}

fn element<T: AtomicElement>(bytes: &[u8]) -> Result<T, Fault> {
    bytemuck::try_pod_read_unaligned(bytes).map_err(|_| Fault::new(FaultKind::Protocol))
}

#[cold]
#[inline(never)]
fn wait_helper<T: AtomicElement, F: Drive>(fabric: &F, call: HelperCall<'_>) -> Result<T, Fault> {
    element(&wait_for(fabric, call)?)
}

impl<T: AtomicElement, F: Fabric> Fetch<'_, T, F> {
    /// Blocks until the operation completes; returns the previous value.
    ///
    /// # Errors
    /// See [`Access::fetch_and_op`](crate::Access::fetch_and_op).
    // A handle that stays in registers costs nothing; one passed through memory costs more than the
    // operation.
    #[inline(always)]
    pub fn wait(self) -> Result<T, Error>
    where
        F: Drive,
    {
        let Self { access, operation, offset, state } = self;
        let fabric = access.inner.fabric();
        let outcome = match state {
            State::Direct(op) => wait_for(fabric, op).map(from_word),
            State::CasLoop(steps) => wait_loop(fabric, steps),
            State::Helper(call) => wait_helper(fabric, call),
            State::Done(outcome) => outcome,
            State::Over => over(),
        };
        outcome.map_err(|fault| access.failed(operation, (offset, 1), fault))
    }
}

handle!([T: AtomicElement, F], Fetch<'_, T, F>, T, Error, |fetch| fetch.access.inner.fabric());

#[inline(never)]
fn wait_loop<T: AtomicElement, F: Drive>(fabric: &F, mut steps: CasLoop<'_, T, F>) -> Result<T, Fault> {
    wait_for(fabric, std::future::poll_fn(|cx| steps.poll(fabric, cx)))
}

// The fabric's operations are `Unpin`; nothing else in it is pinned in place.
impl<T, F: Fabric> Unpin for Fetch<'_, T, F> {}

impl<T: AtomicElement, F: Fabric> Future for Fetch<'_, T, F> {
    type Output = Result<T, Error>;

    #[inline]
    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let fetch = &mut *self;
        let outcome = match &mut fetch.state {
            State::Direct(op) => ready!(Pin::new(op).poll(cx)).map(from_word),
            State::CasLoop(steps) => ready!(steps.poll(fetch.access.inner.fabric(), cx)),
            State::Helper(call) => ready!(call.as_mut().poll(cx)).and_then(|bytes| element(&bytes)),
            State::Done(outcome) => *outcome,
            State::Over => over(),
        };
        fetch.state = State::Over;
        Poll::Ready(outcome.map_err(|fault| fetch.access.copy().failed(fetch.operation, (fetch.offset, 1), fault)))
    }
}

impl<T: AtomicElement, F: Fabric> CasLoop<'_, T, F> {
    fn poll(&mut self, fabric: &F, cx: &mut Context<'_>) -> Poll<Result<T, Fault>> {
        loop {
            let found = ready!(Pin::new(&mut self.op).poll(cx))?;
            let mut new = found;
            let element = &mut lanes::<T>(&mut new)[self.lane];
            let before = *element;
            *element = match self.change {
                Change::Apply(op, operand) => T::apply(op, before, operand),
                Change::Swap { expected, new } if same_bits(expected, before) => new,
                Change::Swap { .. } => before,
            };
            // A read suffices if nothing changes.
            if self.expected == Some(found) || new == found {
                return Poll::Ready(Ok(before));
            }
            self.op = fabric.compare_swap(self.word, found, new);
            self.expected = Some(found);
        }
    }
}

impl<T, F: Fabric> fmt::Debug for Fetch<'_, T, F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} on rank {} of window \"{}\"", self.operation, self.access.target.rank, self.access.inner.name)
    }
}
