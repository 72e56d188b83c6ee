//! Atomic operations that give what was there before.

use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use fabric::remote_memory::{Fault, FaultKind};
use fabric::{Drive, Fabric, wait_for};

use crate::{Access, AtomicElement, Element, Error, Op};

/// What an atomic operation does to an element.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Change<T> {
    Apply(Op, T),
    Swap { expected: T, new: T },
}

/// An atomic operation on an element, to be waited for: `.wait()` blocks, `.await` does not. Gives the element as it was
/// before. See [`Access::fetch_and_op`](crate::Access::fetch_and_op).
#[must_use = "an atomic operation may run only when it is waited for"]
pub struct Fetch<'w, T, F: Fabric> {
    access: Access<'w, T, F>,
    operation: &'static str,
    offset: usize,
    state: State<'w, T, F>,
}

enum State<'w, T, F: Fabric> {
    /// The fabric's own operation does it all.
    Direct(F::Op),
    /// Compare-swaps on the word around the element.
    Loop(Loop<'w, T, F>),
    Failed(Fault),
}

struct Loop<'w, T, F: Fabric> {
    op: F::Op,
    word: F::Word<'w>,
    shift: u32,
    change: Change<T>,
    /// What the compare-swap under way expects; a read expects nothing.
    expected: Option<u64>,
}

impl<'w, T: AtomicElement, F: Fabric> Fetch<'w, T, F> {
    #[inline(always)] // see `wait`
    pub(crate) fn start(
        access: Access<'w, T, F>,
        operation: &'static str,
        offset: usize,
        change: Change<T>,
        place: Result<(F::Word<'w>, u32), Fault>,
    ) -> Self {
        let fabric = access.inner.fabric();
        let state = match (place, change) {
            (Err(fault), _) => State::Failed(fault),
            (Ok((word, _)), Change::Apply(Op::Sum, operand)) if T::ADDS => {
                State::Direct(fabric.fetch_add(word, operand.to_bits()))
            }
            (Ok((word, _)), Change::Apply(Op::NoOp, _)) if T::SIZE == 8 => State::Direct(fabric.read(word)),
            (Ok((word, _)), Change::Swap { expected, new }) if T::SIZE == 8 => {
                State::Direct(fabric.compare_swap(word, expected.to_bits(), new.to_bits()))
            }
            (Ok((word, shift)), change) => {
                State::Loop(Loop { op: fabric.read(word), word, shift, change, expected: None })
            }
        };
        Self { access, operation, offset, state }
    }
}

impl<T: AtomicElement, F: Drive> Fetch<'_, T, F> {
    /// Blocks until the operation is done; gives the element as it was before.
    ///
    /// # Errors
    /// See [`Access::fetch_and_op`](crate::Access::fetch_and_op).
    // A handle that is taken apart in registers costs nothing; one that passes through memory costs more than the
    // operation.
    #[inline(always)]
    pub fn wait(self) -> Result<T, Error> {
        let Self { access, operation, offset, state } = self;
        let fabric = access.inner.fabric();
        let outcome = match state {
            State::Direct(op) => wait_for(fabric, op).map(T::from_bits),
            State::Loop(turns) => wait_loop(fabric, turns),
            State::Failed(fault) => Err(fault),
        };
        outcome.map_err(|fault| failed(access, operation, offset, fault))
    }
}

#[inline(never)]
fn wait_loop<T: AtomicElement, F: Drive>(fabric: &F, mut turns: Loop<'_, T, F>) -> Result<T, Fault> {
    wait_for(fabric, std::future::poll_fn(|cx| turns.poll(fabric, cx)))
}

#[cold]
#[inline(never)]
fn failed<T: Element, F: Fabric>(
    access: Access<'_, T, F>,
    operation: &'static str,
    offset: usize,
    fault: Fault,
) -> Error {
    if fault.kind() == FaultKind::Unsupported {
        return Error::Type { operation, window: access.inner.name.clone(), element: std::any::type_name::<T>() };
    }
    access.failed(operation, (offset, 1), fault)
}

// The operations that the fabric gives are Unpin, and nothing else in it could care.
impl<T, F: Fabric> Unpin for Fetch<'_, T, F> {}

impl<T: AtomicElement, F: Fabric> Future for Fetch<'_, T, F> {
    type Output = Result<T, Error>;

    #[inline]
    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let fetch = &mut *self;
        let outcome = match &mut fetch.state {
            State::Direct(op) => ready!(Pin::new(op).poll(cx)).map(T::from_bits),
            State::Loop(turns) => ready!(turns.poll(fetch.access.inner.fabric(), cx)),
            State::Failed(fault) => Err(*fault),
        };
        Poll::Ready(outcome.map_err(|fault| failed(fetch.access.copy(), fetch.operation, fetch.offset, fault)))
    }
}

impl<T: AtomicElement, F: Fabric> Loop<'_, T, F> {
    fn poll(&mut self, fabric: &F, cx: &mut Context<'_>) -> Poll<Result<T, Fault>> {
        loop {
            let found = ready!(Pin::new(&mut self.op).poll(cx))?;
            let mask = u64::MAX >> (64 - 8 * T::SIZE);
            let bits = found >> self.shift & mask;
            let before = T::from_bits(bits);
            if self.expected == Some(found) {
                return Poll::Ready(Ok(before));
            }
            let after = match self.change {
                Change::Apply(Op::NoOp, _) => return Poll::Ready(Ok(before)),
                Change::Apply(op, operand) => {
                    T::apply(op, before, operand).ok_or(Fault::new(FaultKind::Unsupported))?
                }
                Change::Swap { expected, .. } if expected.to_bits() != bits => return Poll::Ready(Ok(before)),
                Change::Swap { new, .. } => new,
            };
            let new = found & !(mask << self.shift) | after.to_bits() << self.shift;
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
