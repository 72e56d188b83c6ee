//! What may be done to a target's part while a lock is held.

use std::fmt;
use std::marker::PhantomData;
use std::sync::Arc;

use onesided_fabric::remote_memory::{Fault, FaultKind};
use onesided_fabric::{AtomicAgent, Fabric, Path};

use crate::window::inner::Inner;
use crate::window::target::Target;
use crate::{Element, Error};

/// The operations on one target's part of a window. Lent by whatever holds the lock: an [`Epoch`](crate::Epoch), a
/// [`LockAll`](crate::LockAll), [`Epochs`](crate::Epochs).
///
/// Offsets and lengths are in elements. None of the operations needs the target to do anything.
///
/// # Requests
///
/// A call begins an operation, and whatever may have to be waited for gives a handle: `.wait()` blocks (`MPI_Wait`),
/// `.await` does not, `.test()` looks (`MPI_Test`). Any number of them may be open at the same time; to wait for one after
/// another is to wait for all. A handle that is dropped or leaked never harms memory: the caller's slices are written to by
/// the call and by its handle's own wait, and by nobody behind their back.
///
/// | MPI | here | when it is done |
/// |---|---|---|
/// | `MPI_Put`, `MPI_Rput` | [`put`](Self::put) | the slice may be used again: when the call returns, so that there is no request |
/// | `MPI_Get`, `MPI_Rget` | [`get`](Self::get) | the slice has the elements |
/// | `MPI_Accumulate`, `MPI_Raccumulate` | [`accumulate`](Self::accumulate) | the operands may be used again |
/// | `MPI_Get_accumulate`, `MPI_Rget_accumulate` | [`get_accumulate`](Self::get_accumulate) | the results are there, and the target has the outcome |
/// | `MPI_Fetch_and_op`, `MPI_Compare_and_swap` | [`fetch_and_op`](Self::fetch_and_op), [`compare_and_swap`](Self::compare_and_swap) | the same |
/// | `MPI_Win_flush` | [`flush`](Self::flush) | the target has all that was posted before the call |
///
/// MPI has no request for "the target has it". Here a flush is one: begun right after a put, it is done when that put,
/// and whatever was posted before, has come to the target.
///
/// ```
/// # use onesided_windows::Window;
/// # onesided_fabric::threads(2, |world| {
/// # let window = Window::<u64>::allocate(&world, 100).wait()?;
/// # let epoch = window.lock_shared(1)
/// #     .wait()?;
/// epoch.put(0, &[7; 100])?;
/// let mut arrived = epoch.flush();
/// while arrived.test()?.is_none() {
///     std::hint::spin_loop(); // or something more useful
/// }
/// # drop(arrived);
/// # epoch.unlock().wait()?;
/// # window.close().wait()
/// # }).unwrap().into_iter().collect::<Result<(), onesided_windows::Error>>().unwrap();
/// ```
pub struct Access<'w, T, F: Fabric> {
    pub(crate) inner: &'w Arc<Inner<F>>,
    pub(crate) target: &'w Target<F>,
    pub(crate) element: PhantomData<fn() -> T>,
}

impl<'w, T: Element, F: Fabric> Access<'w, T, F> {
    pub(crate) const fn new(inner: &'w Arc<Inner<F>>, target: &'w Target<F>) -> Self {
        Self { inner, target, element: PhantomData }
    }

    /// Not `Clone`: a user's copy would outlive the lock.
    pub(crate) const fn copy(&self) -> Self {
        Self { ..*self }
    }

    /// Which rank's part it is.
    pub const fn target(&self) -> u32 {
        self.target.rank
    }

    /// How many elements it has.
    #[allow(clippy::len_without_is_empty, reason = "a part is a place, not a container")]
    pub const fn len(&self) -> usize {
        self.target.len
    }

    /// Puts elements (`MPI_Put`). The slice may be used again when the call returns; the target's part has them after a
    /// [`flush`](Self::flush) or the unlock. A put of one element of 8 bytes is a single access.
    ///
    /// # Errors
    /// [`Error::Range`]. What fails later is reported by the flush or the unlock.
    #[inline(always)] // a guard whose address is taken passes through memory, which costs more than a small put
    pub fn put(&self, offset: usize, elements: &[T]) -> Result<(), Error> {
        let at = self.range(offset, elements.len()).map_err(|_| self.out_of_range("put", offset, elements.len()))?;
        let put = self.inner.fabric().put(&self.target.data, at, bytemuck::cast_slice(elements));
        put.map_err(|fault| self.inner.failed("put", self.target.rank, fault))
    }

    /// The byte offset of elements that all lie in the target's part, to be put or got.
    #[inline]
    pub(crate) fn range(&self, offset: usize, count: usize) -> Result<u64, Fault> {
        match offset.checked_add(count) {
            Some(end) if end <= self.target.uncounted_len => Ok((offset * size_of::<T>()) as u64),
            _ => counted_range::<T, F>(self.inner, self.target, (offset, count), true),
        }
    }

    /// The same for an atomic operation.
    #[inline]
    pub(crate) fn atomic_range(&self, offset: usize, count: usize) -> Result<u64, Fault> {
        match offset.checked_add(count) {
            Some(end) if end <= self.target.uncounted_len => Ok((offset * size_of::<T>()) as u64),
            _ => counted_range::<T, F>(self.inner, self.target, (offset, count), false),
        }
    }

    /// Refuses slices that do not have the same length; [`failed`](Self::failed) is given both in the place's stead.
    pub(crate) const fn lengths(wanted: usize, given: usize) -> Result<(), Fault> {
        if wanted == given { Ok(()) } else { Err(Fault::new(FaultKind::TooLong)) }
    }

    /// The rich error of an operation on elements.
    #[cold]
    #[inline(never)]
    pub(crate) fn failed(self, operation: &'static str, (offset, count): (usize, usize), fault: Fault) -> Error {
        let window = || self.inner.name.clone();
        match fault.kind() {
            FaultKind::OutOfRange => self.out_of_range(operation, offset, count),
            FaultKind::TooLong => Error::Lengths { operation, wanted: offset, given: count, window: window() },
            FaultKind::Unsupported if fault.rank().is_none() => {
                Error::Type { operation, window: window(), element: std::any::type_name::<T>() }
            }
            _ => self.inner.failed(operation, self.target.rank, fault),
        }
    }

    #[cold]
    #[inline(never)]
    fn out_of_range(&self, operation: &'static str, offset: usize, count: usize) -> Error {
        let (target, len, window) = (self.target.rank, self.target.len, self.inner.name.clone());
        Error::Range { operation, offset, count, target, len, window }
    }
}

/// A range past what is not counted: it is counted, or lies past the end.
#[cold]
#[inline(never)]
fn counted_range<T, F: Fabric>(
    inner: &Inner<F>,
    target: &Target<F>,
    (offset, count): (usize, usize),
    moved: bool,
) -> Result<u64, Fault> {
    match offset.checked_add(count) {
        Some(end) if end <= target.len => {
            // What has no words the agent counts.
            if moved || !target.wordless {
                let path = inner.fabric().path(&target.data);
                // What is mapped beside a card has its words changed by the card.
                let by_card = !moved && path == Path::Cpu && inner.fabric().capabilities().agent == AtomicAgent::Card;
                target.count(if by_card { Path::Card } else { path });
            }
            Ok((offset * size_of::<T>()) as u64)
        }
        _ => Err(Fault::new(FaultKind::OutOfRange)),
    }
}

impl<T, F: Fabric> fmt::Debug for Access<'_, T, F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?} of window \"{}\"", self.target, self.inner.name)
    }
}
