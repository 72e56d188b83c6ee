//! Buffers: registered memory that the fabric transfers without a copy.

use std::marker::PhantomData;
use std::ops::Range;
use std::sync::Arc;

use onesided_fabric::remote_memory::{Fault, FaultKind};
use onesided_fabric::{Any, Fabric, Segment, debug};

use crate::error::counted;
use crate::operation::request::Awaited;
use crate::window::inner::Inner;
use crate::{Access, BufferError, Element, Error, Request, Window};

/// Elements in registered memory that only this rank accesses: where the fabric has a card, a put
/// from it and a get into it are not copied by the CPU.
///
/// A transfer owns the buffer and returns it on completion; a transfer that is dropped or leaked
/// takes the memory with it.
///
/// ```
/// # use onesided_windows::Window;
/// # onesided_fabric::threads(2, |world| {
/// # let window = Window::<u64>::allocate(&world, 1000).wait()?;
/// let buffer = window.buffer(1000)?;
/// buffer.write(0, &[world.rank().into(); 1000])?;
/// let epoch = window.lock_exclusive(1).wait()?;
/// let buffer = epoch.put_buffer(0, buffer, 0..1000).wait()?;
/// let buffer = epoch.get_buffer(0, buffer, 0..500).wait()?;
/// assert_eq!(buffer.read(0..2)?, [world.rank().into(); 2]);
/// # epoch.unlock().wait()?;
/// # window.close().wait()
/// # }).unwrap().into_iter().collect::<Result<(), onesided_windows::Error>>().unwrap();
/// ```
pub struct Buffer<T, F: Fabric = Any> {
    inner: Arc<Inner<F>>,
    segment: F::Segment,
    /// In elements.
    len: usize,
    element: PhantomData<fn() -> T>,
}

impl<T: Element, F: Fabric> Buffer<T, F> {
    /// The number of elements.
    pub const fn len(&self) -> usize {
        self.len
    }

    /// Whether it has none.
    pub const fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// A copy of the elements in a range.
    ///
    /// # Errors
    /// [`Error::Range`].
    pub fn read(&self, range: Range<usize>) -> Result<Vec<T>, Error> {
        let at = self.range("read of a buffer", &range)?;
        let mut elements = vec![T::zeroed(); range.len()];
        let read = self.inner.fabric().read_direct(&self.segment, at, bytemuck::cast_slice_mut(&mut elements));
        read.map(|()| elements).map_err(|fault| self.failed("read of a buffer", fault))
    }

    /// Copies elements into the buffer, from `offset` on.
    ///
    /// # Errors
    /// [`Error::Range`].
    pub fn write(&self, offset: usize, elements: &[T]) -> Result<(), Error> {
        let range = offset..offset.saturating_add(elements.len());
        let at = self.range("write to a buffer", &range)?;
        let write = self.inner.fabric().write_direct(&self.segment, at, bytemuck::cast_slice(elements));
        write.map_err(|fault| self.failed("write to a buffer", fault))
    }

    fn range(&self, operation: &'static str, range: &Range<usize>) -> Result<u64, Error> {
        if range.start <= range.end && range.end <= self.len {
            return Ok((range.start * size_of::<T>()) as u64);
        }
        let (target, window) = (self.inner.world.rank(), self.inner.name.clone());
        Err(Error::Range { operation, offset: range.start, count: range.len(), target, len: self.len, window })
    }

    fn failed(&self, operation: &'static str, fault: Fault) -> Error {
        self.inner.failed(operation, self.inner.world.rank(), fault)
    }
}

impl<T: Element, F: Fabric> Window<T, F> {
    /// Registers a buffer of `len` zeroed elements for transfers to and from any target. Not
    /// collective.
    ///
    /// # Errors
    /// [`Error::Operation`]: out of memory, or an error of the fabric.
    pub fn buffer(&self, len: usize) -> Result<Buffer<T, F>, Error> {
        let inner = self.inner();
        let failed = |fault| inner.failed("register a buffer", inner.world.rank(), fault);
        let bytes = len.checked_mul(size_of::<T>()).ok_or(failed(Fault::new(FaultKind::NoMemory)))?;
        let segment = inner.fabric().allocate(bytes.max(8) as u64).map_err(|error| failed(error.fault()))?;
        Ok(Buffer { inner: Arc::clone(inner), segment, len, element: PhantomData })
    }
}

impl<T: Element, F: Fabric> Access<'_, T, F> {
    /// Puts the elements of a buffer's range. The transfer is posted when the call returns, and
    /// returns the buffer when it may be reused; the put is complete at the target after a
    /// [`flush`](Self::flush) or the unlock.
    ///
    /// # Errors
    /// When waited on: [`Error::Range`], of the window memory or of the buffer, with the buffer;
    /// [`Error::Operation`], which loses the buffer.
    ///
    /// # Cancel safety
    /// A dropped transfer goes on; the buffer is lost.
    pub fn put_buffer(
        &self,
        offset: usize,
        from: Buffer<T, F>,
        range: Range<usize>,
    ) -> Request<'_, Buffer<T, F>, F, BufferError<Buffer<T, F>>> {
        self.transfer("put_buffer", offset, from, range, |access, buffer, (at, own), bytes| {
            access.inner.fabric().rdma_write((&buffer.segment, own), (&access.target.data, at), bytes)
        })
    }

    /// Gets elements into a buffer's range. The transfer is posted when the call returns, and
    /// returns the buffer when the elements are in it. Unlike a [`get`](Self::get), single elements
    /// are not atomic.
    ///
    /// # Errors
    /// As [`put_buffer`](Self::put_buffer).
    ///
    /// # Cancel safety
    /// As [`put_buffer`](Self::put_buffer).
    pub fn get_buffer(
        &self,
        offset: usize,
        into: Buffer<T, F>,
        range: Range<usize>,
    ) -> Request<'_, Buffer<T, F>, F, BufferError<Buffer<T, F>>> {
        self.transfer("get_buffer", offset, into, range, |access, buffer, (at, own), bytes| {
            access.inner.fabric().rdma_read((&access.target.data, at), (&buffer.segment, own), bytes)
        })
    }

    fn transfer(
        &self,
        operation: &'static str,
        offset: usize,
        buffer: Buffer<T, F>,
        range: Range<usize>,
        begin: impl FnOnce(&Self, &Buffer<T, F>, (u64, u64), u64) -> F::Transfer,
    ) -> Request<'_, Buffer<T, F>, F, BufferError<Buffer<T, F>>> {
        let elements = (offset, range.len());
        let begun = buffer.range(operation, &range).and_then(|own| {
            let at = self.range(offset, range.len()).map_err(|fault| self.copy().failed(operation, elements, fault))?;
            Ok(begin(self, &buffer, (at, own), (range.len() * size_of::<T>()) as u64))
        });
        Request::new(Awaited::Target(self.inner, self.target.rank), operation, async move {
            match begun {
                Err(error) => Err(BufferError::new(error, Some(buffer))),
                Ok(transfer) => match transfer.await {
                    Ok(()) => Ok(buffer),
                    Err(fault) => Err(self.copy().failed(operation, elements, fault).into()),
                },
            }
        })
    }
}

debug!(
    [T, F: Fabric] Buffer<T, F>,
    |this| "buffer of {}, region {:?}", counted(this.len as u64, "element"), this.segment.key().region
);
