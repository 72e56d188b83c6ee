//! Atomic operations that return the previous value.

use std::task::Poll;

use onesided_fabric::remote_memory::{Fault, FaultKind, RemoteMemory};
use onesided_fabric::{Any, Fabric};

use crate::datatype::element::{from_word, lanes, per_word, refused, same_bits, to_word};
use crate::helper::{HelperRequest, is_wordless};
use crate::operation::combine::change;
use crate::operation::handles::{Operation, State};
use crate::window::retry::poll_once;
use crate::{Access, AtomicElement, Element, Op};

impl<T: Element, F: Fabric> Access<'_, T, F> {
    /// Combines an element with an operand, atomically with respect to all other atomic operations
    /// of this window, and returns the previous value (`MPI_Fetch_and_op`).
    ///
    /// Starts when it is called. Where the fabric has no such operation (it has the sum, the atomic read
    /// and the compare-and-swap of 8 bytes), it is a loop of compare-and-swaps that progresses while it is
    /// waited on or polled. On memory that has no words here (user memory, on shm) the memory's agent
    /// executes every operation.
    ///
    /// # Errors
    /// When waited on: [`Error::Range`](crate::Error::Range),
    /// [`Error::Type`](crate::Error::Type) (the operation does not apply to `T`),
    /// [`Error::Operation`](crate::Error::Operation).
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
    /// When waited on: [`Error::Range`](crate::Error::Range), [`Error::Operation`](crate::Error::Operation).
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

    #[inline(always)] // see `Operation::wait`
    fn fetch(&self, operation: &'static str, offset: usize, change: Change<T>) -> Fetch<'_, T, F>
    where
        T: AtomicElement,
    {
        start(self.copy(), operation, offset, self.atomic_range(offset, 1).map(|_| offset), change)
    }
}

/// The change of an element by an atomic operation.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Change<T> {
    Apply(Op, T),
    Swap { expected: T, new: T },
}

/// A pending atomic operation on an element, which yields the previous value.
pub type Fetch<'s, T, F = Any> = Operation<'s, T, F, <F as RemoteMemory>::Op, T>;

/// Starts it. `offset` counts as the caller does, `element` in elements of this type.
#[inline(always)] // see `Operation::wait`
pub(crate) fn start<'s, T: AtomicElement, F: Fabric>(
    access: Access<'s, T, F>,
    operation: &'static str,
    offset: usize,
    element: Result<usize, Fault>,
    change: Change<T>,
) -> Fetch<'s, T, F> {
    let fabric = access.inner.fabric();
    let is_direct = match change {
        Change::Apply(Op::Sum, _) => T::ADDS,
        Change::Apply(op, _) => op == Op::NoOp && size_of::<T>() == 8,
        Change::Swap { .. } => size_of::<T>() == 8,
    };
    let state = match element {
        Ok(element) if is_direct => match fabric.word_in(&access.target.data, 8 * element as u64) {
            Ok(word) => State::Posted(match change {
                Change::Apply(Op::Sum, operand) => fabric.fetch_add(word, to_word(operand)),
                Change::Apply(..) => fabric.read(word),
                Change::Swap { expected, new } => fabric.compare_swap(word, to_word(expected), to_word(new)),
            }),
            Err(_) => begin(access.copy(), element, change),
        },
        Ok(element) => match now(access.copy(), element, change) {
            Some(before) => State::Done(Ok(before)),
            None => begin(access.copy(), element, change),
        },
        Err(fault) => State::Done(Err(fault)),
    };
    Operation::new(access, operation, (offset, 1), state)
}

/// Starts compare-and-swaps on the word around the element, or a request to the memory's agent.
#[cold]
#[inline(never)]
fn begin<'s, T: AtomicElement, F: Fabric>(
    access: Access<'s, T, F>,
    element: usize,
    change: Change<T>,
) -> State<'s, F::Op, T> {
    State::start(async move {
        if let Change::Apply(op, _) = change
            && !T::allows(op)
        {
            return Err(refused(op));
        }
        match by_words(&access, element, change).await {
            Err(fault) if is_wordless(fault) => by_helper(&access, element, change).await,
            done => done,
        }
    })
}

/// Changes an element where that takes no wait; `None` if it does, or fails.
#[inline(never)]
pub(crate) fn now<T: AtomicElement, F: Fabric>(
    access: Access<'_, T, F>,
    element: usize,
    change: Change<T>,
) -> Option<T> {
    match change {
        Change::Apply(op, _) if !T::allows(op) => None,
        _ if !access.inner.completes_at_post => None,
        _ => match poll_once(by_words(&access, element, change)) {
            Poll::Ready(done) => done.ok(),
            Poll::Pending => None,
        },
    }
}

async fn by_words<T: AtomicElement, F: Fabric>(
    Access { inner, target, .. }: &Access<'_, T, F>,
    element: usize,
    wanted: Change<T>,
) -> Result<T, Fault> {
    let (fabric, lane) = (inner.fabric(), element % per_word::<T>());
    let word = fabric.word_in(&target.data, (element / per_word::<T>() * 8) as u64)?;
    if let Change::Apply(Op::Sum, operand) = wanted
        && T::ADDS
    {
        return fabric.fetch_add(word, to_word(operand)).await.map(from_word);
    }
    let changed = change(fabric, word, |mut word| {
        let element = &mut lanes::<T>(&mut word)[lane];
        *element = match wanted {
            Change::Apply(op, operand) => T::apply(op, *element, operand),
            Change::Swap { expected, new } if same_bits(expected, *element) => new,
            Change::Swap { .. } => *element,
        };
        word
    });
    changed.await.map(|mut before| lanes::<T>(&mut before)[lane])
}

async fn by_helper<T: AtomicElement, F: Fabric>(
    Access { inner, target, .. }: &Access<'_, T, F>,
    element: usize,
    change: Change<T>,
) -> Result<T, Fault> {
    let request = match change {
        Change::Apply(op, operand) => {
            let mut run = element..element + 1;
            HelperRequest::of_runs(op, true, usize::MAX, (&mut run, &mut std::iter::empty()), &mut &[operand][..])
        }
        Change::Swap { expected, new } => HelperRequest::swap(element, expected, new),
    };
    let before = inner.call(target, request).await?;
    bytemuck::try_pod_read_unaligned(&before).map_err(|_| Fault::new(FaultKind::Protocol))
}
