//! This rank's own window memory.

use std::fmt;
use std::marker::PhantomData;
use std::ops::Range;

use onesided_fabric::Fabric;
use onesided_fabric::remote_memory::Fault;

use crate::datatype::element::{byte_offset, elements_in};
use crate::window::inner::Inner;
use crate::{Element, Error, Window};

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

    /// A copy of the elements in a range.
    ///
    /// # Panics
    /// If the range is out of bounds, as for a slice.
    pub fn read(&self, range: Range<usize>) -> Vec<T> {
        assert!(range.start <= range.end, "read of elements {range:?}: it ends before it starts");
        // Checked before the allocation, which a wrong length could make fail and abort the
        // process.
        let read = self.range("read", range.start, range.len()).and_then(|_| {
            let mut elements = vec![T::zeroed(); range.len()];
            self.read_into(range.start, &mut elements).map(|()| elements)
        });
        read.unwrap_or_else(|error| panic!("{error}"))
    }

    /// Copies elements from `offset` on into a slice.
    ///
    /// # Errors
    /// [`Error::Range`].
    pub fn read_into(&self, offset: usize, into: &mut [T]) -> Result<(), Error> {
        let at = self.range("read", offset, into.len())?;
        self.inner
            .fabric()
            .read_own(&self.inner.memory.own, at, bytemuck::cast_slice_mut(into))
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
            .write_own(&self.inner.memory.own, at, bytemuck::cast_slice(elements))
            .map_err(self.failed("write"))
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

impl<T: Element, F: Fabric> fmt::Debug for Local<'_, T, F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} elements of window \"{}\"", self.len(), self.inner.name)
    }
}
