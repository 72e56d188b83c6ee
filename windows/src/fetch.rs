//! Atomic operations that return the previous value.

use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use onesided_fabric::remote_memory::{Fault, FaultKind};
use onesided_fabric::{Drive, Fabric, handle, wait_for};

use crate::agent::{Call, Request, is_wordless};
use crate::element::{from_word, lanes, same_bits, to_word};
use crate::window::{Inner, Target};
use crate::{Access, AtomicElement, Error, Op};

/// The change of an element by an atomic operation.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Change<T> {
    Apply(Op, T),
    Swap { expected: T, new: T },
}

/// A pending atomic operation on an element: `.wait()` blocks, `.await` does not. Yields the
/// previous value. See [`Access::fetch_and_op`](crate::Access::fetch_and_op).
#[must_use = "an atomic operation may do nothing unless waited on or polled"]
pub struct Fetch<'w, T, F: Fabric> {
    access: Access<'w, T, F>,
    operation: &'static str,
    offset: usize,
    state: State<'w, T, F>,
}

enum State<'w, T, F: Fabric> {
    /// The fabric's own operation.
    Direct(F::Op),
    /// Compare-and-swaps on the word around the element.
    Loop(Loop<'w, T, F>),
    /// A request to the memory's agent.
    Asked(Call<'w>),
    Done(Result<T, Fault>),
}

struct Loop<'w, T, F: Fabric> {
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
        place: Result<(F::Word<'w>, usize), Fault>,
    ) -> Self {
        let fabric = access.inner.fabric();
        let whole = size_of::<T>() == 8;
        let state = match (place, change) {
            (Err(fault), change) => {
                let (op, one, other) = match change {
                    Change::Apply(op, operand) => (Some(op), operand, operand),
                    Change::Swap { expected, new } => (None, expected, new),
                };
                match wordless(access.inner, access.target, element, op, one, other, fault) {
                    Ok(call) => State::Asked(call),
                    Err(fault) => State::Done(Err(fault)),
                }
            }
            (Ok(_), Change::Apply(op, _)) if !T::allows(op) => State::Done(Err(Fault::new(FaultKind::Unsupported))),
            (Ok((word, _)), Change::Apply(Op::Sum, operand)) if T::ADDS => {
                State::Direct(fabric.fetch_add(word, to_word(operand)))
            }
            (Ok((word, _)), Change::Apply(Op::NoOp, _)) if whole => State::Direct(fabric.read(word)),
            (Ok((word, _)), Change::Swap { expected, new }) if whole => {
                State::Direct(fabric.compare_swap(word, to_word(expected), to_word(new)))
            }
            (Ok((word, lane)), change) => {
                State::Loop(Loop { op: fabric.read(word), word, lane, change, expected: None })
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
) -> Result<Call<'w>, Fault> {
    let request = match op {
        _ if !is_wordless(fault) => return Err(fault),
        Some(op) if !T::allows(op) => return Err(Fault::new(FaultKind::Unsupported)),
        Some(op) => {
            let all = offset..offset + 1; // the range was checked before the word was looked up
            Request::of_runs(op, true, usize::MAX, (&mut { all }, &mut std::iter::empty()), &mut &[operand][..])
        }
        None => Request::swap(offset, operand, new),
    };
    Ok(inner.call(target, request))
}

fn element<T: AtomicElement>(bytes: &[u8]) -> Result<T, Fault> {
    bytemuck::try_pod_read_unaligned(bytes).map_err(|_| Fault::new(FaultKind::Protocol))
}

#[cold]
#[inline(never)]
fn wait_asked<T: AtomicElement, F: Drive>(fabric: &F, call: Call<'_>) -> Result<T, Fault> {
    element(&wait_for(fabric, call)?)
}

impl<T: AtomicElement, F: Drive> Fetch<'_, T, F> {
    /// Blocks until the operation completes; returns the previous value.
    ///
    /// # Errors
    /// See [`Access::fetch_and_op`](crate::Access::fetch_and_op).
    // A handle that stays in registers costs nothing; one passed through memory costs more than the
    // operation.
    #[inline(always)]
    pub fn wait(self) -> Result<T, Error> {
        let Self { access, operation, offset, state } = self;
        let fabric = access.inner.fabric();
        let outcome = match state {
            State::Direct(op) => wait_for(fabric, op).map(from_word),
            State::Loop(turns) => wait_loop(fabric, turns),
            State::Asked(call) => wait_asked(fabric, call),
            State::Done(outcome) => outcome,
        };
        outcome.map_err(|fault| access.failed(operation, (offset, 1), fault))
    }
}

handle!([T: AtomicElement, F], Fetch<'_, T, F>, T, Error, |fetch| fetch.access.inner.fabric());

#[inline(never)]
fn wait_loop<T: AtomicElement, F: Drive>(fabric: &F, mut turns: Loop<'_, T, F>) -> Result<T, Fault> {
    wait_for(fabric, std::future::poll_fn(|cx| turns.poll(fabric, cx)))
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
            State::Loop(turns) => ready!(turns.poll(fetch.access.inner.fabric(), cx)),
            State::Asked(call) => ready!(call.as_mut().poll(cx)).and_then(|bytes| element(&bytes)),
            State::Done(outcome) => *outcome,
        };
        fetch.state = State::Done(outcome);
        Poll::Ready(outcome.map_err(|fault| fetch.access.copy().failed(fetch.operation, (fetch.offset, 1), fault)))
    }
}

impl<T: AtomicElement, F: Fabric> Loop<'_, T, F> {
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
