//! What may be done to a target's part while a lock is held.

use std::fmt;
use std::marker::PhantomData;
use std::sync::Arc;

use onesided_fabric::remote_memory::{Fault, FaultKind};
use onesided_fabric::{AtomicAgent, Fabric, Path};

use crate::datatype::element::{per_word, to_word};
use crate::operation::fetch::Change;
use crate::window::inner::Inner;
use crate::window::target::Target;
use crate::{Accumulate, AtomicElement, Element, Error, Fetch, Flush, Get, Op, Shape};

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

    /// Gets elements (`MPI_Get`) when it is waited for. It sees what this rank has put before. A get of one element of
    /// 8 bytes is a single access.
    ///
    /// # Errors
    /// When waited for: [`Error::Range`], [`Error::Operation`].
    ///
    /// # Cancel safety
    /// A get that is dropped, or leaked, leaves the slice as it was, or with some of the elements or all.
    #[inline(always)] // a handle that is copied out of a call costs several times a small get
    pub fn get<'b>(&self, offset: usize, into: &'b mut [T]) -> Get<'_, 'b, T, F> {
        let count = into.len();
        let get = match self.range(offset, count) {
            Ok(at) => Ok(self.inner.fabric().get(&self.target.data, at, bytemuck::cast_slice_mut(into))),
            Err(fault) => Err(fault),
        };
        Get::new(self.copy(), (offset, count), get)
    }

    /// Completes everything that this rank has posted to this target before the call, there (`MPI_Win_flush`), and reports the first
    /// failure of what nobody waited for. What was put before it is seen by every rank that synchronises with this one
    /// after it.
    pub fn flush(&self) -> Flush<'_, F> {
        Flush::new(self.inner, "flush", self.target.rank, Ok(self.inner.fabric().flush(self.target.fabric_rank())))
    }

    /// Completes everything that this rank has posted to this target, here (`MPI_Win_flush_local`).
    pub fn flush_local(&self) -> Flush<'_, F> {
        let flush = self.inner.fabric().flush_local(self.target.fabric_rank());
        Flush::new(self.inner, "flush_local", self.target.rank, Ok(flush))
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

impl<'w, T: AtomicElement, F: Fabric> Access<'w, T, F> {
    /// Combines an element with an operand, atomically against all other atomic operations of this window, and gives
    /// what was there before (`MPI_Fetch_and_op`).
    ///
    /// The fabric's own operation where there is one (sum and atomic read of 8-byte integers): then it is posted when the
    /// call returns. Everything else is a loop of compare-swaps that runs when it is waited for. So is, for its agent, every
    /// operation on memory that has no words here (lent by its owner, on shm): it is asked only when it is waited for.
    ///
    /// # Errors
    /// When waited for: [`Error::Range`], [`Error::Type`] (an operation that is not for `T`), [`Error::Operation`].
    ///
    /// # Cancel safety
    /// One that is dropped before it is done may have taken effect or not.
    #[inline]
    pub fn fetch_and_op(&self, offset: usize, operand: T, op: Op) -> Fetch<'_, T, F> {
        self.fetch("fetch_and_op", offset, Change::Apply(op, operand))
    }

    /// Adds to an element, atomically, and gives what was there before: [`fetch_and_op`](Self::fetch_and_op) with
    /// [`Op::Sum`].
    #[inline]
    pub fn fetch_add(&self, offset: usize, add: T) -> Fetch<'_, T, F> {
        self.fetch("fetch_add", offset, Change::Apply(Op::Sum, add))
    }

    /// Reads an element, atomically: [`fetch_and_op`](Self::fetch_and_op) with [`Op::NoOp`].
    #[inline]
    pub fn fetch_one(&self, offset: usize) -> Fetch<'_, T, F>
    where
        T: Default,
    {
        self.fetch("fetch_one", offset, Change::Apply(Op::NoOp, T::default()))
    }

    /// If an element is `expected`, makes it `new`, atomically; gives what was there before
    /// (`MPI_Compare_and_swap`). Floats are compared by their bits.
    ///
    /// # Errors
    /// When waited for: [`Error::Range`], [`Error::Operation`].
    ///
    /// # Cancel safety
    /// As [`fetch_and_op`](Self::fetch_and_op).
    #[inline]
    pub fn compare_and_swap(&self, offset: usize, expected: T, new: T) -> Fetch<'_, T, F> {
        self.fetch("compare_and_swap", offset, Change::Swap { expected, new })
    }

    /// Combines elements from `offset` on with operands, each of them atomically against all other atomic operations of
    /// this window (`MPI_Accumulate`, `MPI_Raccumulate`). When it has been waited for, the operands may be used again,
    /// and the target has the outcome after a [`flush`](Self::flush) or the unlock, as with [`put`](Self::put).
    ///
    /// **Why it is to be waited for.** Where the fabric's own operation does it (the sum of 8-byte integers, one
    /// fetch-add a word), all of it is posted when the call returns, and the wait costs nothing. Everything else is
    /// compare-swaps on the words around the elements, and a compare-swap has to know what the one before it found:
    /// this rank has to be there for it. Sixteen words are under way at once, and elements that share a word change in one
    /// compare-swap. On memory that has no words here (lent by its owner, on shm) the agent does it, a sum too, and is asked
    /// only when it is waited for.
    ///
    /// **Order.** Atomic operations of one rank on one element take effect in the order in which they were waited for;
    /// a sum of 8-byte integers where the fabric does it, when it was called. Two that are under way at the same time have no
    /// order.
    ///
    /// # Errors
    /// When waited for: [`Error::Range`], [`Error::Type`] (an operation that is not for `T`), with nothing changed;
    /// [`Error::Operation`]. What fails in a sum of 8-byte integers that was posted is reported by the flush or the unlock.
    ///
    /// # Cancel safety
    /// One that is dropped, or leaked, before it is done may have taken effect on each element or not.
    #[inline(always)] // see Fetch::wait
    pub fn accumulate<'b>(&self, offset: usize, operands: &'b [T], op: Op) -> Accumulate<'_, 'b, T, F> {
        if let (&[operand], true) = (operands, T::ADDS && op == Op::Sum) {
            let word = self.atomic_range(offset, 1).and_then(|at| self.inner.fabric().word_in(&self.target.data, at));
            let added = word.map(|word| drop(self.inner.fabric().fetch_add(word, to_word(operand))));
            return Accumulate::added(self.copy(), offset, operands, added);
        }
        Accumulate::start(self.copy(), "accumulate", (offset, Shape::Row(operands.len())), op, operands, None)
    }

    /// [`accumulate`](Self::accumulate), and gives the elements as they were before (`MPI_Get_accumulate`,
    /// `MPI_Rget_accumulate`). With [`Op::NoOp`] it is an atomic read of as many elements as there are results, and there
    /// need be no operands.
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
    /// It is done, at the target too, when it was waited for.
    ///
    /// # Errors
    /// As [`accumulate`](Self::accumulate), and [`Error::Lengths`] where there are not as many operands as results.
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
            // The 8-byte word around the element; parts are a multiple of 8 bytes long.
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
