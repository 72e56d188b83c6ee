//! Operations on noncontiguous elements (jiang-2004, section 4: noncontiguous data).

use onesided_fabric::Fabric;
use onesided_fabric::remote_memory::{Fault, FaultKind};

use crate::datatype::element::byte_offset;
use crate::datatype::fields::WholeElement;
use crate::datatype::pieces::pieces;
use crate::operation::accumulate::start;
use crate::operation::combine::pipelined;
use crate::operation::handles::{Operation, State};
use crate::{Access, AtomicElement, Element, Fields, Op, Shape};

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
    /// When waited on: [`Error::Range`](crate::Error::Range) if the shape exceeds the target's window memory,
    /// [`Error::Lengths`](crate::Error::Lengths) if it has a different number of elements than the slice, with nothing
    /// transferred. The flush or the unlock reports later failures.
    pub fn put_shaped<'s>(&'s self, offset: usize, shape: Shape<'s>, elements: &'s [T]) -> Operation<'s, T, F> {
        Operation::put_pieces(self.copy(), "put_shaped", (offset, shape), WholeElement, elements)
    }

    /// Gets the elements of a shape that starts at `offset` (`MPI_Get` with a derived datatype at
    /// the target), in the shape's order. Several runs are in flight at a time. Otherwise as
    /// [`get`](Self::get).
    ///
    /// # Errors
    /// When waited on: [`Error::Range`](crate::Error::Range),
    /// [`Error::Lengths`](crate::Error::Lengths), with nothing transferred;
    /// [`Error::Operation`](crate::Error::Operation).
    ///
    /// # Cancel safety
    /// A get that is dropped or leaked has filled in some of its runs.
    pub fn get_shaped<'s>(&'s self, offset: usize, shape: Shape<'s>, into: &'s mut [T]) -> Operation<'s, T, F> {
        Operation::get_pieces(self.copy(), "get_shaped", (offset, shape), WholeElement, into)
    }
}

impl<T: AtomicElement, F: Fabric> Access<'_, T, F> {
    /// [`accumulate`](Self::accumulate) to the elements of a shape that starts at `offset`
    /// (`MPI_Accumulate` with a derived datatype at the target). Where runs overlap, each operand
    /// takes effect, in no particular order.
    ///
    /// # Errors
    /// As [`accumulate`](Self::accumulate), and [`Error::Lengths`](crate::Error::Lengths).
    ///
    /// # Cancel safety
    /// As [`accumulate`](Self::accumulate).
    pub fn accumulate_shaped<'s>(
        &'s self,
        offset: usize,
        shape: Shape<'s>,
        operands: &'s [T],
        op: Op,
    ) -> Operation<'s, T, F> {
        start(self.copy(), "accumulate_shaped", (offset, shape), op, operands, None)
    }

    /// [`get_accumulate`](Self::get_accumulate) on the elements of a shape that starts at `offset`
    /// (`MPI_Get_accumulate` with a derived datatype at the target).
    ///
    /// # Errors
    /// As [`get_accumulate`](Self::get_accumulate).
    ///
    /// # Cancel safety
    /// As [`get_accumulate`](Self::get_accumulate).
    pub fn get_accumulate_shaped<'s>(
        &'s self,
        offset: usize,
        shape: Shape<'s>,
        operands: &'s [T],
        results: &'s mut [T],
        op: Op,
    ) -> Operation<'s, T, F> {
        start(self.copy(), "get_accumulate_shaped", (offset, shape), op, operands, Some(results))
    }
}

impl<'s, T: Element, F: Fabric> Operation<'s, T, F> {
    pub(crate) fn put_pieces<S: Fields<T>>(
        access: Access<'s, T, F>,
        operation: &'static str,
        (offset, shape): (usize, Shape<'s>),
        fields: S,
        values: &'s [S::Values],
    ) -> Self {
        let (elements, checked) = Self::check::<S>(&access, (offset, shape), values.len());
        let pieces = pieces(offset, shape.runs(), values, move |run, values| fields.cut(run, values));
        let Access { inner, target, .. } = access;
        let state = match checked {
            Err(fault) => State::Done(Err(fault)),
            Ok(true) => State::start(inner.put_packed(target, pieces)),
            Ok(false) => State::Done(inner.fabric().put_pieces(&target.data, pieces)),
        };
        Self::new(access, operation, elements, state)
    }

    pub(crate) fn get_pieces<S: Fields<T>>(
        access: Access<'s, T, F>,
        operation: &'static str,
        (offset, shape): (usize, Shape<'s>),
        fields: S,
        into: &'s mut [S::Values],
    ) -> Self {
        let (elements, checked) = Self::check::<S>(&access, (offset, shape), into.len());
        let pieces = pieces(offset, shape.runs(), into, move |run, into| fields.cut_mut(run, into));
        let Access { inner, target, .. } = access;
        let state = match checked {
            Err(fault) => State::Done(Err(fault)),
            Ok(true) => State::start(inner.get_packed(target, pieces)),
            Ok(false) if inner.completes_at_post => State::Done(inner.fabric().get_pieces(&target.data, pieces)),
            Ok(false) => {
                let gets = pieces.map(|(at, into)| inner.fabric().get(&target.data, at, into));
                State::start(pipelined(AHEAD, gets))
            }
        };
        Self::new(access, operation, elements, state)
    }

    /// Checks that the slice fits the shape and the shape the window memory; returns whether the
    /// owner's helper thread executes the operation.
    fn check<S: Fields<T>>(
        access: &Access<'_, T, F>,
        (offset, shape): (usize, Shape<'_>),
        given: usize,
    ) -> ((usize, usize), Result<bool, Fault>) {
        let (Access { inner, target, .. }, wanted) = (access, shape.count());
        if given != wanted {
            return ((wanted, given), Err(Fault::new(FaultKind::TooLong)));
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
