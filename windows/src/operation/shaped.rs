//! Operations on noncontiguous elements (jiang-2004, section 4: noncontiguous data).

use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use onesided_fabric::remote_memory::Fault;
use onesided_fabric::{Any, Drive, Fabric, handle, wait_for};

use crate::datatype::element::byte_offset;
use crate::datatype::fields::WholeElement;
use crate::datatype::pieces::{Pieces, PiecesMut};
use crate::handles::Accumulate;
use crate::operation::handles::over;
use crate::{Access, AtomicElement, Element, Error, Fields, Op, Shape};

/// How many pieces of a get are in flight at a time.
const AHEAD: usize = 8;

impl<T: Element, F: Fabric> Access<'_, T, F> {
    /// Puts elements to the positions of a shape that starts at `offset` (`MPI_Put` with a derived
    /// datatype at the target). When it completes the slice may be reused; the put is complete at
    /// the target after a [`flush`](Self::flush) or the unlock. Where runs overlap, the target gets
    /// either element.
    ///
    /// ```
    /// # use onesided_windows::{Shape, Window};
    /// # onesided_fabric::threads(1, |world| {
    /// let matrix = Window::<f32>::allocate(&world, 4 * 10).wait()?; // 4 rows of 10
    /// let column = Shape::Vector { count: 4, block: 1, stride: 10 };
    /// let epoch = matrix.lock_exclusive(0).wait()?;
    /// epoch.put_shaped(7, column, &[1.0, 2.0, 3.0, 4.0]).wait()?;
    /// let mut row = [0.0; 10];
    /// epoch.get(20, &mut row).wait()?;
    /// assert_eq!(row[7], 3.0);
    /// # epoch.unlock().wait()?;
    /// # matrix.close().wait()
    /// # }).unwrap().into_iter().collect::<Result<(), onesided_windows::Error>>().unwrap();
    /// ```
    ///
    /// # Errors
    /// When waited on: [`Error::Range`] if the shape exceeds the target's window memory,
    /// [`Error::Lengths`] if it has a different number of elements than the slice, with nothing
    /// transferred. The flush or the unlock reports later failures.
    pub fn put_shaped<'s>(&'s self, offset: usize, shape: Shape<'s>, elements: &'s [T]) -> Shaped<'s, T, F> {
        Shaped::put(self.copy(), "put_shaped", (offset, shape), WholeElement, elements)
    }

    /// Gets the elements of a shape that starts at `offset` (`MPI_Get` with a derived datatype at
    /// the target), in the shape's order. Several runs are in flight at a time. Otherwise as
    /// [`get`](Self::get).
    ///
    /// # Errors
    /// When waited on: [`Error::Range`], [`Error::Lengths`], with nothing transferred;
    /// [`Error::Operation`].
    ///
    /// # Cancel safety
    /// A get that is dropped or leaked has filled in some of its runs.
    pub fn get_shaped<'s>(&'s self, offset: usize, shape: Shape<'s>, into: &'s mut [T]) -> Shaped<'s, T, F> {
        Shaped::get(self.copy(), "get_shaped", (offset, shape), WholeElement, into)
    }
}

impl<T: AtomicElement, F: Fabric> Access<'_, T, F> {
    /// [`accumulate`](Self::accumulate) to the elements of a shape that starts at `offset`
    /// (`MPI_Accumulate` with a derived datatype at the target). Where runs overlap, each operand
    /// takes effect, in no particular order.
    ///
    /// # Errors
    /// As [`accumulate`](Self::accumulate), and [`Error::Lengths`].
    ///
    /// # Cancel safety
    /// As [`accumulate`](Self::accumulate).
    pub fn accumulate_shaped<'b>(
        &self,
        offset: usize,
        shape: Shape<'b>,
        operands: &'b [T],
        op: Op,
    ) -> Accumulate<'_, 'b, T, F> {
        let lengths = (shape.count(), operands.len());
        match Self::lengths(lengths.0, lengths.1) {
            Ok(()) => Accumulate::start(self.copy(), "accumulate_shaped", (offset, shape), op, operands, None),
            Err(fault) => Accumulate::done(self.copy(), "accumulate_shaped", lengths, Err(fault)),
        }
    }

    /// [`get_accumulate`](Self::get_accumulate) on the elements of a shape that starts at `offset`
    /// (`MPI_Get_accumulate` with a derived datatype at the target).
    ///
    /// # Errors
    /// As [`get_accumulate`](Self::get_accumulate).
    ///
    /// # Cancel safety
    /// As [`get_accumulate`](Self::get_accumulate).
    pub fn get_accumulate_shaped<'b>(
        &self,
        offset: usize,
        shape: Shape<'b>,
        operands: &'b [T],
        results: &'b mut [T],
        op: Op,
    ) -> Accumulate<'_, 'b, T, F> {
        let lengths = (shape.count(), results.len());
        match Self::lengths(lengths.0, lengths.1) {
            Ok(()) => self.get_accumulate_at("get_accumulate_shaped", (offset, shape), operands, results, op),
            Err(fault) => Accumulate::done(self.copy(), "get_accumulate_shaped", lengths, Err(fault)),
        }
    }
}

/// A pending put or get of noncontiguous elements: `.wait()` blocks, `.await` does not,
/// [`test`](Self::test) polls. See [`Access::put_shaped`](crate::Access::put_shaped) and
/// [`Access::get_shaped`](crate::Access::get_shaped).
#[must_use = "the transfer is complete only after a wait"]
pub struct Shaped<'s, T, F: Fabric = Any> {
    access: Access<'s, T, F>,
    operation: &'static str,
    /// The first element and the count; for wrong lengths, both lengths.
    elements: (usize, usize),
    state: State<'s>,
}

enum State<'s> {
    Done(Result<(), Fault>),
    /// Boxed, because the types differ.
    UnderWay(Pin<Box<dyn Future<Output = Result<(), Fault>> + Send + 's>>),
    /// Its result was yielded.
    Over,
}

impl<'s, T: Element, F: Fabric> Shaped<'s, T, F> {
    pub(crate) fn put<S: Fields<T>>(
        access: Access<'s, T, F>,
        operation: &'static str,
        (offset, shape): (usize, Shape<'s>),
        fields: S,
        values: &'s [S::Values],
    ) -> Self {
        let (elements, checked) = Self::check::<S>(&access, (offset, shape), values.len());
        let pieces = Pieces::<T, S>::new(offset, shape.runs(), fields, values);
        let Access { inner, target, .. } = access;
        let state = match checked {
            Err(fault) => State::Done(Err(fault)),
            Ok(true) => State::UnderWay(Box::pin(inner.put_packed(target, pieces))),
            Ok(false) => State::Done(inner.fabric().put_pieces(&target.data, pieces)),
        };
        Self { access, operation, elements, state }
    }

    pub(crate) fn get<S: Fields<T>>(
        access: Access<'s, T, F>,
        operation: &'static str,
        (offset, shape): (usize, Shape<'s>),
        fields: S,
        into: &'s mut [S::Values],
    ) -> Self {
        let (elements, checked) = Self::check::<S>(&access, (offset, shape), into.len());
        let pieces = PiecesMut::<T, S>::new(offset, shape.runs(), fields, into);
        let Access { inner, target, .. } = access;
        let state = match checked {
            Err(fault) => State::Done(Err(fault)),
            Ok(true) => State::UnderWay(Box::pin(inner.get_packed(target, pieces))),
            Ok(false) if inner.completes_at_post => State::Done(inner.fabric().get_pieces(&target.data, pieces)),
            Ok(false) => State::UnderWay(Box::pin(Gets::begin(access.copy(), pieces))),
        };
        Self { access, operation, elements, state }
    }

    /// Checks that the slice fits the shape and the shape the window memory; returns whether the
    /// owner's helper thread executes the operation.
    fn check<S: Fields<T>>(
        access: &Access<'_, T, F>,
        (offset, shape): (usize, Shape<'_>),
        given: usize,
    ) -> ((usize, usize), Result<bool, Fault>) {
        let (Access { inner, target, .. }, lengths) = (access, (shape.count(), given));
        if let Err(fault) = Access::<'_, T, F>::lengths(lengths.0, lengths.1) {
            return (lengths, Err(fault));
        }
        let elements = (offset, shape.end());
        let fits = byte_offset::<T>(offset, elements.1, target.len).is_some();
        if !inner.completes_at_post && fits {
            let pieces = S::PIECES.map_or_else(|| shape.runs().count(), |pieces| pieces.saturating_mul(given));
            if inner.is_packed(target, pieces, given.saturating_mul(size_of::<S::Values>())) {
                return (elements, Ok(true)); // each message counts itself
            }
        }
        (elements, access.range(elements.0, elements.1).map(|_| false))
    }
}

/// Pieces in flight, and those not started yet.
struct Gets<'s, T, F: Fabric, P> {
    access: Access<'s, T, F>,
    pieces: P,
    under_way: [Option<F::Get<'s>>; AHEAD],
}

impl<'s, T: Element, F: Fabric, P: Iterator<Item = (u64, &'s mut [u8])>> Gets<'s, T, F, P> {
    fn begin(access: Access<'s, T, F>, pieces: P) -> Self {
        let mut gets = Self { access, pieces, under_way: [const { None }; AHEAD] };
        for at in 0..AHEAD {
            gets.under_way[at] = gets.next();
        }
        gets
    }

    /// Starts the next piece; `None` if there is none.
    fn next(&mut self) -> Option<F::Get<'s>> {
        let (at, into) = self.pieces.next()?;
        Some(self.access.inner.fabric().get(&self.access.target.data, at, into))
    }
}

// The fabric's operations are `Unpin`; nothing else in it is pinned in place.
impl<T, F: Fabric, P> Unpin for Gets<'_, T, F, P> {}

impl<'s, T: Element, F: Fabric, P: Iterator<Item = (u64, &'s mut [u8])>> Future for Gets<'s, T, F, P> {
    type Output = Result<(), Fault>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Result<(), Fault>> {
        let mut pending = false;
        for at in 0..AHEAD {
            while let Some(get) = &mut self.under_way[at] {
                let Poll::Ready(outcome) = Pin::new(get).poll(cx) else {
                    pending = true;
                    break;
                };
                outcome?;
                self.under_way[at] = self.next();
            }
        }
        if pending { Poll::Pending } else { Poll::Ready(Ok(())) }
    }
}

impl<T: Element, F: Fabric> Shaped<'_, T, F> {
    /// Blocks until the slice may be reused: puts have read it, gets have filled it.
    ///
    /// # Errors
    /// See [`Access::put_shaped`](crate::Access::put_shaped) and
    /// [`Access::get_shaped`](crate::Access::get_shaped).
    #[inline]
    pub fn wait(self) -> Result<(), Error>
    where
        F: Drive,
    {
        let Self { access, operation, elements, state } = self;
        let outcome = match state {
            State::Done(outcome) => outcome,
            State::UnderWay(moves) => wait_for(access.inner.fabric(), moves),
            State::Over => over(),
        };
        outcome.map_err(|fault| access.failed(operation, elements, fault))
    }
}

handle!([T: Element, F], Shaped<'_, T, F>, (), Error, |moves| moves.access.inner.fabric());

impl<T: Element, F: Fabric> Future for Shaped<'_, T, F> {
    type Output = Result<(), Error>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let outcome = match &mut self.state {
            State::Done(outcome) => *outcome,
            State::UnderWay(moves) => ready!(moves.as_mut().poll(cx)),
            State::Over => over(),
        };
        self.state = State::Over;
        Poll::Ready(outcome.map_err(|fault| self.access.copy().failed(self.operation, self.elements, fault)))
    }
}

impl<T, F: Fabric> fmt::Debug for Shaped<'_, T, F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} at {} of {:?}", self.operation, self.elements.0, self.access)
    }
}
