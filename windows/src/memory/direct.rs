//! Shared windows: direct loads and stores (`MPI_Win_allocate_shared`, `MPI_Win_shared_query`;
//! MPI-4.1, 12.2.3).

use std::marker::PhantomData;
use std::sync::atomic::AtomicU64;

use onesided_fabric::{Fabric, Segment, debug};

use crate::datatype::element::{byte_offset, elements_in};
use crate::window::inner::Inner;
use crate::window::target::Target;
use crate::{Element, Error, Window};

/// A rank's window memory that is mapped in this process: see [`Window::direct`].
///
/// Elements are copied in and out; [`words`](Self::words) is a slice of the memory itself, as
/// atomics, because no other reference may point to it.
///
/// Visibility is as between the threads of one process: a store of release order and a load of
/// acquire order, a barrier, or a lock of the window order earlier operations. This rank's own puts
/// are visible here after a flush.
///
/// On shm the window's atomic operations and these words' are atomic with respect to each other.
/// **On mixed and verbs they are not**: there the card executes the window's atomics, and it reads,
/// modifies and writes a word without regard to the CPU. A store, or a `fetch_add`, here to a word
/// that an operation of the window changes at the same time may be lost, or undo that change. Loads
/// are always correct: a word is written whole. So words that the window's atomics change must be
/// changed by them alone, or, between two synchronizations (fences, barriers, an exclusive lock),
/// by loads and stores alone.
///
/// The memory of a failed rank stays mapped with its last content.
pub struct Direct<'w, T, F: Fabric = onesided_fabric::Any> {
    inner: &'w Inner<F>,
    target: &'w Target<F>,
    words: &'w [AtomicU64],
    element: PhantomData<fn() -> T>,
}

impl<T: Element, F: Fabric> Window<T, F> {
    /// A rank's window memory, for direct loads and stores without a lock.
    ///
    /// ```
    /// # use std::sync::atomic::Ordering;
    /// # use onesided_windows::Window;
    /// # onesided_fabric::threads(2, |world| {
    /// let window = Window::<u64>::allocate(&world, 100).wait()?;
    /// let neighbour = window.direct(1 - world.rank())?;
    /// neighbour.words()[7].store(5, Ordering::Release);
    /// while window.direct(world.rank())?.words()[7].load(Ordering::Acquire) != 5 {
    ///     std::hint::spin_loop();
    /// }
    /// # drop(neighbour);
    /// # window.close().wait()
    /// # }).unwrap().into_iter().collect::<Result<(), onesided_windows::Error>>().unwrap();
    /// ```
    ///
    /// # Errors
    /// [`Error::Direct`] where the window memory is not mapped in this process: that of a peer on
    /// verbs and in the simulator, or of another host on mixed; and for memory that a window was
    /// [created](Self::create) over or that was attached, even this rank's own, because it may be
    /// taken back while a slice exists. [`Error::Rank`], [`Error::Operation`] if the rank cannot be
    /// reached.
    pub fn direct(&self, target: u32) -> Result<Direct<'_, T, F>, Error> {
        let inner = self.inner();
        let reached = inner.begin(target).map_err(|fault| inner.failed("direct", target, fault))?;
        match reached.data.mapped() {
            Some(words) => {
                let words = &words[..reached.len.div_ceil(8) as usize]; // empty memory has a word of its own
                Ok(Direct { inner, target: reached, words, element: PhantomData })
            }
            None => {
                let (window, path) = (inner.name.clone(), reached.data.path());
                Err(Error::Direct { target, window, path })
            }
        }
    }
}

impl<'w, T: Element, F: Fabric> Direct<'w, T, F> {
    /// The number of elements.
    pub const fn len(&self) -> usize {
        elements_in::<T>(self.target.len)
    }

    /// Whether it has no elements.
    pub const fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The window memory as words of 8 bytes: elements of that size are a word each. Smaller
    /// elements are packed in memory order, and the last word may be padded.
    ///
    /// See [`Direct`] for their use beside the window's own operations.
    pub const fn words(&self) -> &'w [AtomicU64] {
        self.words
    }

    /// Copies elements from `offset` on into a slice. One element of 8 bytes is a single access.
    ///
    /// # Errors
    /// [`Error::Range`].
    pub fn read_into(&self, offset: usize, into: &mut [T]) -> Result<(), Error> {
        let at = self.range("direct read", offset, into.len())?;
        let (fabric, bytes) = (self.inner.fabric(), bytemuck::cast_slice_mut(into));
        let read = fabric.read_direct(&self.target.data, at, bytes);
        read.map_err(|fault| self.inner.failed("direct read", self.target.rank, fault))
    }

    /// Copies elements from a slice, from `offset` on. One element of 8 bytes is a single access.
    ///
    /// # Errors
    /// [`Error::Range`].
    pub fn write(&self, offset: usize, elements: &[T]) -> Result<(), Error> {
        let at = self.range("direct write", offset, elements.len())?;
        let (fabric, bytes) = (self.inner.fabric(), bytemuck::cast_slice(elements));
        let written = fabric.write_direct(&self.target.data, at, bytes);
        written.map_err(|fault| self.inner.failed("direct write", self.target.rank, fault))
    }

    fn range(&self, operation: &'static str, offset: usize, count: usize) -> Result<u64, Error> {
        byte_offset::<T>(offset, count, self.target.len).ok_or_else(|| {
            let (target, len, window) = (self.target.rank, self.len(), self.inner.name.clone());
            Error::Range { operation, offset, count, target, len, window }
        })
    }
}

debug!([T, F: Fabric] Direct<'_, T, F>, |this| "{:?} of window \"{}\", mapped", this.target, this.inner.name);
