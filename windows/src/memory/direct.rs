//! Windows that are shared: direct loads and stores (`MPI_Win_allocate_shared`, `MPI_Win_shared_query`; MPI-4.1, 12.2.3).

use std::fmt;
use std::marker::PhantomData;
use std::sync::atomic::AtomicU64;

use onesided_fabric::Fabric;

use crate::window::inner::Inner;
use crate::window::target::Target;
use crate::{Element, Error, Window};

/// A rank's part that is mapped in this process: see [`Window::direct`].
///
/// Elements are copied in and out; [`words`](Self::words) gives a slice to the memory itself, of atomics, because no other
/// reference may ever point to it.
///
/// What is stored here is seen by the others, and what they do is seen here, as between the threads of one process: a store
/// of release order and a load of acquire order, or a barrier, or a lock of the window, order what was done before. What this
/// rank itself has put is seen here after a flush.
///
/// On shm the window's own atomic operations and these words' are atomic against one another. **On mixed and verbs they are
/// not**: words are the card's to change there, and a card reads a word, changes it and writes it without regard to the CPU.
/// A store here to a word that an operation of the window changes at the same time may be lost, or undo that change, and so
/// may a `fetch_add` of these words. Loads are always right: a word is written whole. So what the window's atomics change is
/// changed by them alone, or between two synchronisations (fences, barriers, under an exclusive lock) by loads and stores
/// alone.
///
/// The memory of a rank that died stays mapped: it is as that rank left it.
pub struct Direct<'w, T, F: Fabric> {
    inner: &'w Inner<F>,
    target: &'w Target<F>,
    words: &'w [AtomicU64],
    element: PhantomData<fn() -> T>,
}

impl<T: Element, F: Fabric> Window<T, F> {
    /// A rank's part, to be read and written by loads and stores, without a lock.
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
    /// [`Error::Direct`] where the part is not mapped in this process: a peer's on verbs and in the simulator, one of another
    /// host on mixed; memory that a window was [created](Self::create) over or that was attached, even one's own, because it is given back while a
    /// slice would stay. [`Error::Rank`], [`Error::Operation`] if the rank cannot be reached.
    pub fn direct(&self, target: u32) -> Result<Direct<'_, T, F>, Error> {
        let inner = self.inner();
        let reached = inner.begin(target).map_err(|fault| inner.failed("direct", target, fault))?;
        let fabric = inner.fabric();
        match fabric.mapped(&reached.data) {
            Some(words) => Ok(Direct { inner, target: reached, words, element: PhantomData }),
            None => {
                let (window, path) = (inner.name.clone(), fabric.path(&reached.data));
                Err(Error::Direct { target, window, path })
            }
        }
    }
}

impl<'w, T: Element, F: Fabric> Direct<'w, T, F> {
    /// How many elements there are.
    pub const fn len(&self) -> usize {
        self.target.len
    }

    /// Whether there are none.
    pub const fn is_empty(&self) -> bool {
        self.target.len == 0
    }

    /// The part as words of 8 bytes: of elements of that size, each is one. Smaller elements lie in them in the order of
    /// memory, and the last word may be filled up.
    ///
    /// What may be done to them beside the window's own operations, [`Direct`] says.
    pub const fn words(&self) -> &'w [AtomicU64] {
        self.words
    }

    /// Copies elements from `offset` on into a slice. One element of 8 bytes is a single access.
    ///
    /// # Errors
    /// [`Error::Range`].
    pub fn read(&self, offset: usize, into: &mut [T]) -> Result<(), Error> {
        let at = self.range("direct read", offset, into.len())?;
        let (fabric, bytes) = (self.inner.fabric(), bytemuck::cast_slice_mut(into));
        let read = fabric.read_mapped(&self.target.data, at, bytes);
        read.map_err(|fault| self.inner.failed("direct read", self.target.rank, fault))
    }

    /// Copies elements from a slice to `offset` and on. One element of 8 bytes is a single access.
    ///
    /// # Errors
    /// [`Error::Range`].
    pub fn write(&self, offset: usize, elements: &[T]) -> Result<(), Error> {
        let at = self.range("direct write", offset, elements.len())?;
        let (fabric, bytes) = (self.inner.fabric(), bytemuck::cast_slice(elements));
        let written = fabric.write_mapped(&self.target.data, at, bytes);
        written.map_err(|fault| self.inner.failed("direct write", self.target.rank, fault))
    }

    fn range(&self, operation: &'static str, offset: usize, count: usize) -> Result<u64, Error> {
        let (target, len) = (self.target.rank, self.len());
        match offset.checked_add(count) {
            Some(end) if end <= len => Ok((offset * size_of::<T>()) as u64),
            _ => Err(Error::Range { operation, offset, count, target, len, window: self.inner.name.clone() }),
        }
    }
}

impl<T, F: Fabric> fmt::Debug for Direct<'_, T, F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?} of window \"{}\", mapped", self.target, self.inner.name)
    }
}
