//! Operations on fields of a target's records (`MPI_Type_create_struct`).

use std::marker::PhantomData;
use std::sync::Arc;

use onesided_fabric::remote_memory::Fault;
use onesided_fabric::{Fabric, copied, debug};

use crate::datatype::type_map::TypeMap;
use crate::handles::{Fetch, Operation};
use crate::operation::accumulate::start_at;
use crate::operation::fetch::{self, Change};
use crate::operation::handles::State;
use crate::window::inner::Inner;
use crate::window::target::Target;
use crate::{Access, AtomicElement, Element, Field, Fields, Op, Shape};

impl<T: Element, F: Fabric> Access<'_, T, F> {
    /// A field of each record of the target, or a tuple of fields: operations on them leave the
    /// rest of the record unchanged (`MPI_Type_create_struct`).
    ///
    /// ```
    /// # use onesided_windows::{Op, Shape, Window, field};
    /// # onesided_fabric::threads(2, |world| {
    /// #[derive(Clone, Copy, Debug, PartialEq, bytemuck::Pod, bytemuck::Zeroable)]
    /// #[repr(C)]
    /// struct Particle {
    ///     x: f64,
    ///     y: f64,
    ///     mass: f32,
    ///     hits: u32,
    /// }
    /// let particles = Window::<Particle>::allocate(&world, 10).wait()?;
    /// let epoch = particles.lock_shared(1).wait()?;
    /// # if world.rank() == 0 {
    /// let (x, y, mass) = (field!(Particle, x), field!(Particle, y), field!(Particle, mass));
    /// let some = Shape::Blocks { block: 1, starts: &[3, 7, 9] };
    /// epoch.fields(mass).put_shaped(0, some, &[1.5, 2.5, 3.5]).wait()?;
    /// epoch.fields((x, y)).put(6, &[(0.1, 0.2), (0.3, 0.4)]).wait()?;
    /// epoch.fields(field!(Particle, hits)).accumulate(7, &[5, 1], Op::Sum).wait()?;
    /// epoch.flush().wait()?;
    /// let mut seventh = [bytemuck::Zeroable::zeroed()];
    /// epoch.get(7, &mut seventh).wait()?;
    /// assert_eq!(seventh, [Particle { x: 0.3, y: 0.4, mass: 2.5, hits: 5 }]);
    /// # }
    /// # epoch.unlock().wait()?;
    /// # particles.close().wait()
    /// # }).unwrap().into_iter().collect::<Result<(), onesided_windows::Error>>().unwrap();
    /// ```
    ///
    /// Over a card each field of each record is a request: fields that are put together should form
    /// one field, an array or a structure.
    pub const fn fields<S: Fields<T>>(&self, fields: S) -> FieldAccess<'_, T, S, F> {
        FieldAccess { inner: self.inner, target: self.target, fields, record: PhantomData }
    }
}

/// The operations on fields of a target's records. See [`Access::fields`](crate::Access::fields).
///
/// Offsets and shapes count records; values are contiguous.
pub struct FieldAccess<'a, T, S, F: Fabric = onesided_fabric::Any> {
    inner: &'a Arc<Inner<F>>,
    target: &'a Target<F>,
    fields: S,
    record: PhantomData<fn() -> T>,
}

impl<'a, T, F: Fabric, S> FieldAccess<'a, T, S, F> {
    /// The access in elements of another type.
    const fn of<E: Element>(&self) -> Access<'a, E, F> {
        Access::new(self.inner, self.target)
    }
}

impl<'a, T: Element, F: Fabric, S: Fields<T>> FieldAccess<'a, T, S, F> {
    /// Puts the fields of contiguous records. As [`put_shaped`](Self::put_shaped).
    pub fn put(self, offset: usize, values: &'a [S::Values]) -> Operation<'a, T, F> {
        Operation::put_pieces(self.of::<T>(), "put", (offset, Shape::Row(values.len())), self.fields, values)
    }

    /// Gets the fields of contiguous records. As [`get_shaped`](Self::get_shaped).
    pub fn get(self, offset: usize, into: &'a mut [S::Values]) -> Operation<'a, T, F> {
        Operation::get_pieces(self.of::<T>(), "get", (offset, Shape::Row(into.len())), self.fields, into)
    }

    /// Puts the fields of the records of a shape that starts at `offset`, as
    /// [`Access::put_shaped`](crate::Access::put_shaped) puts whole elements.
    ///
    /// # Errors
    /// See [`Access::put_shaped`](crate::Access::put_shaped).
    pub fn put_shaped(self, offset: usize, shape: Shape<'a>, values: &'a [S::Values]) -> Operation<'a, T, F> {
        Operation::put_pieces(self.of::<T>(), "put_shaped", (offset, shape), self.fields, values)
    }

    /// Gets the fields of the records of a shape that starts at `offset`, as
    /// [`Access::get_shaped`](crate::Access::get_shaped) gets whole elements.
    ///
    /// # Errors
    /// See [`Access::get_shaped`](crate::Access::get_shaped).
    ///
    /// # Cancel safety
    /// See [`Access::get_shaped`](crate::Access::get_shaped).
    pub fn get_shaped(self, offset: usize, shape: Shape<'a>, into: &'a mut [S::Values]) -> Operation<'a, T, F> {
        Operation::get_pieces(self.of::<T>(), "get_shaped", (offset, shape), self.fields, into)
    }
}

/// Atomic operations on a field are atomic with respect to those on the same field of the same
/// record, by any rank. The field must be aligned to its size, in records whose size is a multiple
/// of it; otherwise the error is `Misaligned`, as for packed structures, and for
/// [`Located`](crate::Located) values at a multiple of 4.
impl<'a, T: Element, F: Fabric, V: AtomicElement> FieldAccess<'a, T, Field<T, V>, F> {
    fn start(
        self,
        operation: &'static str,
        (offset, shape): (usize, Shape<'a>),
        op: Op,
        operands: &'a [V],
        results: Option<&'a mut [V]>,
    ) -> Operation<'a, V, F> {
        match TypeMap::of_field(offset, shape, self.fields) {
            Ok(type_map) => {
                let range = |_: &Access<'_, V, F>| self.of::<T>().atomic_range(offset, shape.end());
                start_at(self.of(), operation, (type_map, range), op, operands, results)
            }
            Err(fault) => {
                let fault = self.of_owner(fault);
                Operation::new(self.of(), operation, (offset, shape.end()), State::Done(Err(fault)))
            }
        }
    }

    fn of_owner(&self, fault: Fault) -> Fault {
        Fault::of(fault.kind(), self.target.fabric_rank())
    }

    /// Combines the field of contiguous records with operands, as
    /// [`Access::accumulate`](crate::Access::accumulate) does for whole elements.
    ///
    /// # Errors
    /// See [`Access::accumulate`](crate::Access::accumulate);
    /// [`Error::Operation`](crate::Error::Operation) with `Misaligned`.
    ///
    /// # Cancel safety
    /// See [`Access::accumulate`](crate::Access::accumulate).
    pub fn accumulate(self, offset: usize, operands: &'a [V], op: Op) -> Operation<'a, V, F> {
        self.start("accumulate", (offset, Shape::Row(operands.len())), op, operands, None)
    }

    /// Combines the field of the records of a shape that starts at `offset` with operands.
    ///
    /// # Errors
    /// As [`accumulate`](Self::accumulate), and [`Error::Lengths`](crate::Error::Lengths).
    ///
    /// # Cancel safety
    /// See [`Access::accumulate`](crate::Access::accumulate).
    pub fn accumulate_shaped(self, offset: usize, shape: Shape<'a>, operands: &'a [V], op: Op) -> Operation<'a, V, F> {
        self.start("accumulate_shaped", (offset, shape), op, operands, None)
    }

    /// [`accumulate`](Self::accumulate) that also returns the previous values; see
    /// [`Access::get_accumulate`](crate::Access::get_accumulate).
    ///
    /// # Errors
    /// As [`accumulate`](Self::accumulate), and [`Error::Lengths`](crate::Error::Lengths).
    ///
    /// # Cancel safety
    /// See [`Access::get_accumulate`](crate::Access::get_accumulate).
    pub fn get_accumulate(self, offset: usize, operands: &'a [V], results: &'a mut [V], op: Op) -> Operation<'a, V, F> {
        let row = Shape::Row(results.len());
        self.start("get_accumulate", (offset, row), op, operands, Some(results))
    }

    /// [`get_accumulate`](Self::get_accumulate) on the records of a shape that starts at `offset`.
    ///
    /// # Errors
    /// As [`get_accumulate`](Self::get_accumulate).
    ///
    /// # Cancel safety
    /// As [`get_accumulate`](Self::get_accumulate).
    pub fn get_accumulate_shaped(
        self,
        offset: usize,
        shape: Shape<'a>,
        operands: &'a [V],
        results: &'a mut [V],
        op: Op,
    ) -> Operation<'a, V, F> {
        self.start("get_accumulate_shaped", (offset, shape), op, operands, Some(results))
    }

    /// Combines a record's field with an operand and returns the previous value; see
    /// [`Access::fetch_and_op`](crate::Access::fetch_and_op).
    ///
    /// # Errors
    /// See [`Access::fetch_and_op`](crate::Access::fetch_and_op);
    /// [`Error::Operation`](crate::Error::Operation) with `Misaligned`.
    ///
    /// # Cancel safety
    /// See [`Access::fetch_and_op`](crate::Access::fetch_and_op).
    pub fn fetch_and_op(self, record: usize, operand: V, op: Op) -> Fetch<'a, V, F> {
        self.fetch("fetch_and_op", record, Change::Apply(op, operand))
    }

    /// Adds to a record's field and returns the previous value: [`fetch_and_op`](Self::fetch_and_op)
    /// with [`Op::Sum`].
    pub fn fetch_add(self, record: usize, add: V) -> Fetch<'a, V, F> {
        self.fetch("fetch_add", record, Change::Apply(Op::Sum, add))
    }

    /// Replaces a record's field by `new` if it is `expected`, and returns the previous value; see
    /// [`Access::compare_and_swap`](crate::Access::compare_and_swap).
    ///
    /// # Errors
    /// See [`Access::compare_and_swap`](crate::Access::compare_and_swap);
    /// [`Error::Operation`](crate::Error::Operation) with `Misaligned`.
    ///
    /// # Cancel safety
    /// See [`Access::compare_and_swap`](crate::Access::compare_and_swap).
    pub fn compare_and_swap(self, record: usize, expected: V, new: V) -> Fetch<'a, V, F> {
        self.fetch("compare_and_swap", record, Change::Swap { expected, new })
    }

    fn fetch(self, operation: &'static str, record: usize, change: Change<V>) -> Fetch<'a, V, F> {
        let element = self.of::<T>().atomic_range(record, 1).and_then(|_| {
            let type_map = TypeMap::of_field(record, Shape::Row(1), self.fields);
            type_map.map(TypeMap::start).map_err(|fault| self.of_owner(fault))
        });
        fetch::start(self.of(), operation, record, element, change)
    }
}

// It borrows its access, so a copy cannot outlive the lock.
copied!([T, F: Fabric, S: Copy] FieldAccess<'_, T, S, F>);

debug!(
    [T, F: Fabric, S: std::fmt::Debug] FieldAccess<'_, T, S, F>,
    |this| "{:?} of {:?} of window \"{}\"", this.fields, this.target, this.inner.name
);
