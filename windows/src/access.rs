//! The operations on a target's window memory.

use std::fmt;
use std::marker::PhantomData;
use std::sync::Arc;

use onesided_fabric::remote_memory::{Fault, FaultKind};
use onesided_fabric::{AtomicAgent, Fabric, Path};

use crate::element::{per_word, to_word};
use crate::fetch::Change;
use crate::window::{Inner, Target};
use crate::{Accumulate, AtomicElement, Element, Error, Fetch, Flush, Get, Op, Shape};

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
pub struct Access<'w, T, F: Fabric> {
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
        self.target.len
    }

    /// Puts elements (`MPI_Put`). The slice may be reused when the call returns; the put is
    /// complete at the target after a [`flush`](Self::flush) or the unlock. A put of one element of
    /// 8 bytes is a single access.
    ///
    /// # Errors
    /// [`Error::Range`]. The flush or the unlock reports later failures.
    #[inline(always)] // taking a guard's address forces it into memory, which costs more than a small put
    pub fn put(&self, offset: usize, elements: &[T]) -> Result<(), Error> {
        let at = self.range(offset, elements.len()).map_err(|_| self.out_of_range("put", offset, elements.len()))?;
        let put = self.inner.fabric().put(&self.target.data, at, bytemuck::cast_slice(elements));
        put.map_err(|fault| self.inner.failed("put", self.target.rank, fault))
    }

    /// Gets elements (`MPI_Get`). Sees this rank's earlier puts. A get of one element of 8 bytes is
    /// a single access.
    ///
    /// # Errors
    /// When waited on: [`Error::Range`], [`Error::Operation`].
    ///
    /// # Cancel safety
    /// A get that is dropped or leaked leaves the slice with none, some or all of the elements.
    #[inline(always)] // moving a handle out of a call costs several times a small get
    pub fn get<'b>(&self, offset: usize, into: &'b mut [T]) -> Get<'_, 'b, T, F> {
        let count = into.len();
        let get = match self.range(offset, count) {
            Ok(at) => Ok(self.inner.fabric().get(&self.target.data, at, bytemuck::cast_slice_mut(into))),
            Err(fault) => Err(fault),
        };
        Get::new(self.copy(), (offset, count), get)
    }

    /// Completes at the target all operations that this rank has posted to it before the call
    /// (`MPI_Win_flush`), and reports the first deferred error. Every rank that synchronizes with
    /// this one afterwards sees the puts before it.
    pub fn flush(&self) -> Flush<'_, F> {
        Flush::new(self.inner, "flush", self.target.rank, Ok(self.inner.fabric().flush(self.target.fabric_rank())))
    }

    /// Completes locally all operations that this rank has posted to this target
    /// (`MPI_Win_flush_local`).
    pub fn flush_local(&self) -> Flush<'_, F> {
        let flush = self.inner.fabric().flush_local(self.target.fabric_rank());
        Flush::new(self.inner, "flush_local", self.target.rank, Ok(flush))
    }

    /// The byte offset of a range of elements within the target's window memory, for a put or get.
    #[inline]
    pub(crate) fn range(&self, offset: usize, count: usize) -> Result<u64, Fault> {
        match offset.checked_add(count) {
            Some(end) if end <= self.target.uncounted => Ok((offset * size_of::<T>()) as u64),
            _ => counted_range::<T, F>(self.inner, self.target, (offset, count), true),
        }
    }

    /// The same for an atomic operation.
    #[inline]
    pub(crate) fn atomic_range(&self, offset: usize, count: usize) -> Result<u64, Fault> {
        match offset.checked_add(count) {
            Some(end) if end <= self.target.uncounted => Ok((offset * size_of::<T>()) as u64),
            _ => counted_range::<T, F>(self.inner, self.target, (offset, count), false),
        }
    }

    /// Rejects slices of different lengths; [`failed`](Self::failed) then takes both lengths in
    /// place of the range.
    pub(crate) const fn lengths(wanted: usize, given: usize) -> Result<(), Fault> {
        if wanted == given { Ok(()) } else { Err(Fault::new(FaultKind::TooLong)) }
    }

    /// The error of an operation on elements.
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

/// The slow path of a range check: the range is counted, or out of bounds.
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
            // The agent counts operations on memory without words.
            if moved || !target.wordless {
                let path = inner.fabric().path(&target.data);
                // Beside a card, the card executes the atomics even on mapped memory.
                let by_card = !moved && path == Path::Cpu && inner.fabric().capabilities().agent == AtomicAgent::Card;
                target.count(if by_card { Path::Card } else { path });
            }
            Ok((offset * size_of::<T>()) as u64)
        }
        _ => Err(Fault::new(FaultKind::OutOfRange)),
    }
}

impl<'w, T: AtomicElement, F: Fabric> Access<'w, T, F> {
    /// Combines an element with an operand, atomically with respect to all other atomic operations
    /// of this window, and returns the previous value (`MPI_Fetch_and_op`).
    ///
    /// Posted when the call returns where the fabric has the operation (sum and atomic read of
    /// 8-byte integers). Everything else is a loop of compare-and-swaps that does nothing unless
    /// waited on or polled. So is every operation on memory that has no words here (another
    /// process's user memory, on shm), which the memory's agent executes.
    ///
    /// # Errors
    /// When waited on: [`Error::Range`], [`Error::Type`] (the operation does not apply to `T`),
    /// [`Error::Operation`].
    ///
    /// # Cancel safety
    /// If dropped before it completes, it may or may not have taken effect.
    #[inline]
    pub fn fetch_and_op(&self, offset: usize, operand: T, op: Op) -> Fetch<'_, T, F> {
        self.fetch("fetch_and_op", offset, Change::Apply(op, operand))
    }

    /// Adds to an element atomically and returns the previous value:
    /// [`fetch_and_op`](Self::fetch_and_op) with [`Op::Sum`].
    #[inline]
    pub fn fetch_add(&self, offset: usize, add: T) -> Fetch<'_, T, F> {
        self.fetch("fetch_add", offset, Change::Apply(Op::Sum, add))
    }

    /// Reads an element atomically: [`fetch_and_op`](Self::fetch_and_op) with [`Op::NoOp`].
    #[inline]
    pub fn fetch_one(&self, offset: usize) -> Fetch<'_, T, F>
    where
        T: Default,
    {
        self.fetch("fetch_one", offset, Change::Apply(Op::NoOp, T::default()))
    }

    /// Replaces an element by `new` if it is `expected`, atomically; returns the previous value
    /// (`MPI_Compare_and_swap`). Floats are compared by their bits.
    ///
    /// # Errors
    /// When waited on: [`Error::Range`], [`Error::Operation`].
    ///
    /// # Cancel safety
    /// As [`fetch_and_op`](Self::fetch_and_op).
    #[inline]
    pub fn compare_and_swap(&self, offset: usize, expected: T, new: T) -> Fetch<'_, T, F> {
        self.fetch("compare_and_swap", offset, Change::Swap { expected, new })
    }

    /// Combines elements from `offset` on with operands, each atomically with respect to all other
    /// atomic operations of this window (`MPI_Accumulate`, `MPI_Raccumulate`). When the wait
    /// returns, the operands may be reused; the operation is complete at the target after a
    /// [`flush`](Self::flush) or the unlock, as with [`put`](Self::put).
    ///
    /// **Why it has a wait.** Where the fabric has the operation (the sum of 8-byte integers, one
    /// fetch-add per word), all of it is posted when the call returns, and the wait costs nothing.
    /// Everything else is compare-and-swaps on the words around the elements, and each needs the
    /// result of the one before it, so this rank has to drive them. Sixteen words are in flight at
    /// a time, and elements that share a word change in one compare-and-swap. On memory that has no
    /// words here (another process's user memory, on shm) the agent executes every operation, sums
    /// included, and nothing is posted before the wait.
    ///
    /// **Order.** Atomic operations of one rank on one element take effect in the order in which
    /// they are waited on; a sum of 8-byte integers that the fabric executes, in the order of the
    /// calls. Two that are under way at the same time are unordered.
    ///
    /// # Errors
    /// When waited on: [`Error::Range`], [`Error::Type`] (the operation does not apply to `T`),
    /// with nothing changed; [`Error::Operation`]. The flush or the unlock reports later failures
    /// of a posted sum of 8-byte integers.
    ///
    /// # Cancel safety
    /// If dropped or leaked before it completes, it may or may not have taken effect on each
    /// element.
    #[inline(always)] // see Fetch::wait
    pub fn accumulate<'b>(&self, offset: usize, operands: &'b [T], op: Op) -> Accumulate<'_, 'b, T, F> {
        if let (&[operand], true) = (operands, T::ADDS && op == Op::Sum) {
            let word = self.atomic_range(offset, 1).and_then(|at| self.inner.fabric().word_in(&self.target.data, at));
            let added = word.map(|word| drop(self.inner.fabric().fetch_add(word, to_word(operand))));
            return Accumulate::added(self.copy(), offset, operands, added);
        }
        Accumulate::start(self.copy(), "accumulate", (offset, Shape::Row(operands.len())), op, operands, None)
    }

    /// [`accumulate`](Self::accumulate) that also returns the previous values
    /// (`MPI_Get_accumulate`, `MPI_Rget_accumulate`). With [`Op::NoOp`] it is an atomic read of as
    /// many elements as there are results, and the operands may be empty.
    ///
    /// ```
    /// # use onesided_windows::{Op, Window};
    /// # onesided_fabric::threads(1, |world| {
    /// # let window = Window::<i32>::allocate(&world, 4).wait()?;
    /// # let epoch = window.lock_exclusive(0).wait()?;
    /// let mut before = [0; 4];
    /// epoch.accumulate(0, &[1, 5, 3, 7], Op::Replace).wait()?;
    /// epoch.get_accumulate(0, &[4; 4], &mut before, Op::Min).wait()?;
    /// assert_eq!(before, [1, 5, 3, 7]);
    /// epoch.get_accumulate(0, &[], &mut before, Op::NoOp).wait()?;
    /// assert_eq!(before, [1, 4, 3, 4]);
    /// # epoch.unlock().wait()?;
    /// # window.close().wait()
    /// # }).unwrap().into_iter().collect::<Result<(), onesided_windows::Error>>().unwrap();
    /// ```
    ///
    /// When the wait returns, it is complete at the target too.
    ///
    /// # Errors
    /// As [`accumulate`](Self::accumulate), and [`Error::Lengths`] where the numbers of operands
    /// and results differ.
    ///
    /// # Cancel safety
    /// As [`accumulate`](Self::accumulate). Some of the results may have been filled in.
    #[inline(always)] // see Fetch::wait
    pub fn get_accumulate<'b>(
        &self,
        offset: usize,
        operands: &'b [T],
        results: &'b mut [T],
        op: Op,
    ) -> Accumulate<'_, 'b, T, F> {
        self.get_accumulate_at("get_accumulate", (offset, Shape::Row(results.len())), operands, results, op)
    }

    #[inline(always)] // see Fetch::wait
    pub(crate) fn get_accumulate_at<'b>(
        &self,
        operation: &'static str,
        place: (usize, Shape<'b>),
        operands: &'b [T],
        results: &'b mut [T],
        op: Op,
    ) -> Accumulate<'_, 'b, T, F> {
        let given = if op == Op::NoOp { results.len() } else { operands.len() };
        if let Err(fault) = Self::lengths(results.len(), given) {
            return Accumulate::done(self.copy(), operation, (results.len(), given), Err(fault));
        }
        Accumulate::start(self.copy(), operation, place, op, operands, Some(results))
    }

    #[inline(always)] // see Fetch::wait
    fn fetch(&self, operation: &'static str, offset: usize, change: Change<T>) -> Fetch<'_, T, F> {
        let place = self.atomic_range(offset, 1).and_then(|at| {
            // The 8-byte word around the element; window memory is a multiple of 8 bytes long.
            let word = self.inner.fabric().word_in(&self.target.data, at & !7)?;
            Ok((word, offset % const { per_word::<T>() }))
        });
        Fetch::start(self.copy(), operation, (offset, offset), change, place)
    }
}

impl<T, F: Fabric> fmt::Debug for Access<'_, T, F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?} of window \"{}\"", self.target, self.inner.name)
    }
}
