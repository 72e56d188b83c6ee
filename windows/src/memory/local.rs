//! This rank's own window memory.

use std::marker::PhantomData;
use std::ops::Range;

use onesided_fabric::remote_memory::Fault;
use onesided_fabric::{Fabric, debug};

use crate::datatype::element::{byte_offset, elements_in};
use crate::window::inner::Inner;
use crate::{Element, Error, Shape, Window};

impl<T: Element, F: Fabric> Window<T, F> {
    /// This rank's own window memory, for direct loads and stores. The caller orders them against
    /// peers' accesses: under a lock, or before a barrier.
    pub fn local(&self) -> Local<'_, T, F> {
        Local::new(&self.inner)
    }
}

/// This rank's own window memory, for direct reads and writes without the fabric's atomics.
///
/// Elements are copied: no reference ever points into the window, because peers may write at any
/// time. An access to one element of 8 bytes is a single access.
pub struct Local<'w, T, F: Fabric = onesided_fabric::Any> {
    inner: &'w Inner<F>,
    element: PhantomData<fn() -> T>,
}

impl<'w, T: Element, F: Fabric> Local<'w, T, F> {
    pub(crate) const fn new(inner: &'w Inner<F>) -> Self {
        Self { inner, element: PhantomData }
    }

    pub(crate) const fn inner(&self) -> &'w Inner<F> {
        self.inner
    }

    /// The number of elements.
    pub fn len(&self) -> usize {
        elements_in::<T>(self.bytes())
    }

    /// Whether it has no elements.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// A copy of one element.
    ///
    /// ```
    /// # use onesided_windows::{Shape, Window};
    /// # onesided_fabric::threads(1, |world| {
    /// let matrix = Window::<u64>::allocate(&world, 4 * 10).wait()?; // 4 rows of 10
    /// let own = matrix.local();
    /// own.set(7, 1)?;
    /// own.set(27, own.get(7)? + 1)?;
    /// let mut column = [0; 4];
    /// own.read_shaped(7, Shape::Vector { count: 4, block: 1, stride: 10 }, &mut column)?;
    /// assert_eq!(column, [1, 0, 2, 0]);
    /// # matrix.close().wait()
    /// # }).unwrap().into_iter().collect::<Result<(), onesided_windows::Error>>().unwrap();
    /// ```
    ///
    /// # Errors
    /// [`Error::Range`].
    pub fn get(&self, offset: usize) -> Result<T, Error> {
        let mut element = T::zeroed();
        self.read_into(offset, std::slice::from_mut(&mut element)).map(|()| element)
    }

    /// Stores one element.
    ///
    /// # Errors
    /// [`Error::Range`].
    pub fn set(&self, offset: usize, element: T) -> Result<(), Error> {
        self.write(offset, &[element])
    }

    /// A copy of the elements in a range.
    ///
    /// # Panics
    /// If the range is out of bounds, as for a slice.
    #[track_caller]
    pub fn read(&self, range: Range<usize>) -> Vec<T> {
        assert!(range.start <= range.end, "read of elements {range:?}: it ends before it starts");
        // Checked before the allocation, which a wrong length could make fail and abort the
        // process.
        let read = self.range("read", range.start, range.len()).and_then(|_| {
            let mut elements = vec![T::zeroed(); range.len()];
            self.read_into(range.start, &mut elements).map(|()| elements)
        });
        match read {
            Ok(elements) => elements,
            Err(error) => panic!("{error}"), // in a closure it would not be the caller's
        }
    }

    /// Copies elements from `offset` on into a slice.
    ///
    /// # Errors
    /// [`Error::Range`].
    pub fn read_into(&self, offset: usize, into: &mut [T]) -> Result<(), Error> {
        let at = self.range("read", offset, into.len())?;
        self.inner
            .fabric()
            .read_direct(&self.inner.memory.own, at, bytemuck::cast_slice_mut(into))
            .map_err(self.failed("read"))
    }

    /// Copies elements from a slice to `offset` and on.
    ///
    /// # Errors
    /// [`Error::Range`].
    pub fn write(&self, offset: usize, elements: &[T]) -> Result<(), Error> {
        let at = self.range("write", offset, elements.len())?;
        self.inner
            .fabric()
            .write_direct(&self.inner.memory.own, at, bytemuck::cast_slice(elements))
            .map_err(self.failed("write"))
    }

    /// Copies the elements of a shape that starts at `offset` into a slice, in the shape's order.
    ///
    /// # Errors
    /// [`Error::Range`] if the shape exceeds the memory, [`Error::Lengths`] if it has a different
    /// number of elements than the slice; nothing is copied then.
    pub fn read_shaped(&self, offset: usize, shape: Shape<'_>, into: &mut [T]) -> Result<(), Error> {
        let mut rest = bytemuck::cast_slice_mut(into);
        self.each_run("read_shaped", (offset, shape), rest.len(), |at, len| {
            let (run, others) = std::mem::take(&mut rest).split_at_mut(len);
            rest = others;
            self.inner.fabric().read_direct(&self.inner.memory.own, at, run)
        })
    }

    /// Copies a slice to the positions of a shape that starts at `offset`. Where runs overlap, the
    /// later one stays.
    ///
    /// # Errors
    /// As [`read_shaped`](Self::read_shaped).
    pub fn write_shaped(&self, offset: usize, shape: Shape<'_>, elements: &[T]) -> Result<(), Error> {
        let mut rest = bytemuck::cast_slice(elements);
        self.each_run("write_shaped", (offset, shape), rest.len(), |at, len| {
            let (run, others) = rest.split_at(len);
            rest = others;
            self.inner.fabric().write_direct(&self.inner.memory.own, at, run)
        })
    }

    /// Calls `copy` with the offset and the length in bytes of each run of a shape that has as many
    /// `bytes` as the slice.
    fn each_run(
        &self,
        operation: &'static str,
        (offset, shape): (usize, Shape<'_>),
        bytes: usize,
        mut copy: impl FnMut(u64, usize) -> Result<(), Fault>,
    ) -> Result<(), Error> {
        let (wanted, given, size) = (shape.count(), bytes / size_of::<T>(), size_of::<T>());
        if wanted != given {
            let (target, window) = (self.inner.world.rank(), self.inner.name.clone());
            return Err(Error::Lengths { operation, wanted, given, target, window });
        }
        let start = self.range(operation, offset, shape.end())?;
        let copied = shape.runs().try_for_each(|run| copy(start + (run.start * size) as u64, run.len() * size));
        copied.map_err(self.failed(operation))
    }

    fn bytes(&self) -> u64 {
        self.inner.memory.len(self.inner.world.rank())
    }

    fn failed(&self, operation: &'static str) -> impl FnOnce(Fault) -> Error {
        move |fault| self.inner.failed(operation, self.inner.world.rank(), fault)
    }

    fn range(&self, operation: &'static str, offset: usize, count: usize) -> Result<u64, Error> {
        byte_offset::<T>(offset, count, self.bytes()).ok_or_else(|| {
            let (target, len, window) = (self.inner.world.rank(), self.len(), self.inner.name.clone());
            Error::Range { operation, offset, count, target, len, window }
        })
    }
}

debug!([T: Element, F: Fabric] Local<'_, T, F>, |this| "{} elements of window \"{}\"", this.len(), this.inner.name);
