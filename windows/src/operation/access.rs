//! The operations on a target's window memory.

use std::marker::PhantomData;
use std::sync::{Arc, OnceLock};

use onesided_fabric::bootstrap::fork::is_child;
use onesided_fabric::remote_memory::{Fault, FaultKind};
use onesided_fabric::{AtomicAgent, Fabric, Path, Segment, debug};

use crate::datatype::element::{byte_offset, elements_in, refused_by};
use crate::window::inner::Inner;
use crate::window::target::Target;
use crate::{Element, Error, Window};

/// The operations on one target's window memory. Given out by whatever permits them: an
/// [`Epoch`](crate::Epoch), a [`LockAll`](crate::LockAll), [`Epochs`](crate::Epochs).
///
/// Offsets and lengths are in elements. No operation needs the target's participation.
///
/// # Requests
///
/// A call starts an operation; an operation that may have to wait returns a handle: `.wait()`
/// blocks (`MPI_Wait`), `.await` does not, `.test()` polls (`MPI_Test`). Any number of handles may
/// be pending; waiting on one after another waits for all. Dropping or leaking a handle is memory
/// safe: the caller's slices are written only by the call and while its handle is waited on or
/// polled.
///
/// | MPI | here | complete when |
/// |---|---|---|
/// | `MPI_Put`, `MPI_Rput` | [`put`](Self::put) | the slice may be reused: when the call returns, so there is no request |
/// | `MPI_Get`, `MPI_Rget` | [`get`](Self::get) | the slice has the elements |
/// | `MPI_Accumulate`, `MPI_Raccumulate` | [`accumulate`](Self::accumulate) | the operands may be reused |
/// | `MPI_Get_accumulate`, `MPI_Rget_accumulate` | [`get_accumulate`](Self::get_accumulate) | the results are here, and the operation is complete at the target |
/// | `MPI_Fetch_and_op`, `MPI_Compare_and_swap` | [`fetch_and_op`](Self::fetch_and_op), [`compare_and_swap`](Self::compare_and_swap) | the same |
/// | `MPI_Win_flush` | [`flush`](Self::flush) | all that was posted before the call is complete at the target |
///
/// MPI has no request for completion at the target. Here a flush is one: started right after a put,
/// it completes when that put, and whatever was posted before it, is complete at the target.
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
pub struct Access<'w, T, F: Fabric = onesided_fabric::Any> {
    pub(crate) inner: &'w Arc<Inner<F>>,
    pub(crate) target: &'w Target<F>,
    pub(crate) element: PhantomData<fn() -> T>,
}

impl<'w, T: Element, F: Fabric> Access<'w, T, F> {
    pub(crate) const fn new(inner: &'w Arc<Inner<F>>, target: &'w Target<F>) -> Self {
        Self { inner, target, element: PhantomData }
    }

    /// Not `Clone`: a copy in the caller's hands would outlive the lock.
    pub(crate) const fn copy(&self) -> Self {
        Self { ..*self }
    }

    /// The target's rank.
    pub const fn target(&self) -> u32 {
        self.target.rank
    }

    /// The number of elements of the target's window memory.
    #[allow(clippy::len_without_is_empty, reason = "window memory is not a container")]
    pub const fn len(&self) -> usize {
        elements_in::<T>(self.target.len)
    }

    /// Puts elements (`MPI_Put`). The slice may be reused when the call returns; the put is
    /// complete at the target after a [`flush`](Self::flush) or the unlock. A put of one element of
    /// 8 bytes is a single access.
    ///
    /// # Errors
    /// [`Error::Range`]. The flush or the unlock reports later failures.
    #[inline(always)] // taking a guard's address forces it into memory, which costs more than a small put
    pub fn put(&self, offset: usize, elements: &[T]) -> Result<(), Error> {
        let at = self
            .range(offset, elements.len())
            .map_err(|fault| self.copy().failed("put", (offset, elements.len()), fault))?;
        let put = self.inner.fabric().put(&self.target.data, at, bytemuck::cast_slice(elements));
        put.map_err(|fault| self.inner.failed("put", self.target.rank, fault))
    }

    /// The byte offset of a range of elements within the target's window memory, for a put or get.
    #[inline]
    pub(crate) fn range(&self, offset: usize, count: usize) -> Result<u64, Fault> {
        match byte_offset::<T>(offset, count, self.target.uncounted_len()) {
            Some(at) if !is_child() => Ok(at),
            _ => counted_range::<T, F>(self.inner, self.target, (offset, count), true),
        }
    }

    /// The same for an atomic operation.
    #[inline]
    pub(crate) fn atomic_range(&self, offset: usize, count: usize) -> Result<u64, Fault> {
        match byte_offset::<T>(offset, count, self.target.uncounted_len()) {
            Some(at) if !is_child() => Ok(at),
            _ => counted_range::<T, F>(self.inner, self.target, (offset, count), false),
        }
    }

    /// The error of an operation on elements; of slices of different lengths, both in place of the range.
    #[cold]
    #[inline(never)]
    pub(crate) fn failed(self, operation: &'static str, (offset, count): (usize, usize), fault: Fault) -> Error {
        let window = || self.inner.name.clone();
        match fault.kind() {
            FaultKind::OutOfRange => self.out_of_range(operation, offset, count),
            FaultKind::TooLong => {
                let (target, wanted, given) = (self.target.rank, offset, count);
                Error::Lengths { operation, wanted, given, target, window: window() }
            }
            FaultKind::Unsupported if fault.rank().is_none() => {
                let (op, target) = (refused_by(fault), self.target.rank);
                Error::Type { operation, op, target, window: window(), element: std::any::type_name::<T>() }
            }
            _ => self.inner.failed(operation, self.target.rank, fault),
        }
    }

    #[cold]
    #[inline(never)]
    fn out_of_range(&self, operation: &'static str, offset: usize, count: usize) -> Error {
        let (target, len, window) = (self.target.rank, self.len(), self.inner.name.clone());
        Error::Range { operation, offset, count, target, len, window }
    }
}

/// The slow path of a range check: the range is counted, or out of bounds, or the window is closed.
/// The accesses to a window's targets, each made when it is first asked for.
pub(crate) struct Accesses<'w, T: Element, F: Fabric> {
    pub(crate) window: &'w Window<T, F>,
    by_rank: Box<[OnceLock<Access<'w, T, F>>]>,
}

impl<'w, T: Element, F: Fabric> Accesses<'w, T, F> {
    pub(crate) fn new(window: &'w Window<T, F>) -> Self {
        Self { window, by_rank: (0..window.world().size()).map(|_| OnceLock::new()).collect() }
    }

    pub(crate) fn at(&self, target: u32) -> Result<&Access<'w, T, F>, Error> {
        let inner = self.window.inner();
        let reached = inner.begin(target).map_err(|fault| inner.failed("at", target, fault))?;
        Ok(self.by_rank[target as usize].get_or_init(|| Access::new(inner, reached)))
    }

    pub(crate) fn targets(&self) -> impl Iterator<Item = &'w Target<F>> + Clone {
        self.by_rank.iter().filter_map(OnceLock::get).map(|access| access.target)
    }
}

#[cold]
#[inline(never)]
fn counted_range<T, F: Fabric>(
    inner: &Inner<F>,
    target: &Target<F>,
    (offset, count): (usize, usize),
    moved: bool,
) -> Result<u64, Fault> {
    let at = byte_offset::<T>(offset, count, target.len).ok_or(Fault::new(FaultKind::OutOfRange))?;
    inner.check_open()?;
    // The agent counts operations on memory without words.
    if moved || !target.wordless {
        let path = target.data.path();
        // Beside a card, the card executes the atomics even on mapped memory.
        let by_card = !moved && path == Path::Cpu && inner.fabric().capabilities().agent == AtomicAgent::Card;
        target.count(if by_card { Path::Card } else { path });
    }
    Ok(at)
}

debug!([T, F: Fabric] Access<'_, T, F>, |this| "{:?} of window \"{}\"", this.target, this.inner.name);
