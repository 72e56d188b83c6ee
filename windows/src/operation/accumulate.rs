//! Atomic operations on many elements.

use std::task::Poll;

use onesided_fabric::Fabric;
use onesided_fabric::remote_memory::{Fault, FaultKind};

use crate::datatype::element::{refused, to_word};
use crate::datatype::type_map::TypeMap;
use crate::helper::{accumulate_by_helper, is_wordless};
use crate::operation::combine::Work;
use crate::operation::fetch::{self, Change};
use crate::operation::handles::{Operation, State};
use crate::window::retry::poll_once;
use crate::{Access, AtomicElement, Element, Op, Shape};

impl<T: Element, F: Fabric> Access<'_, T, F> {
    /// Combines elements from `offset` on with operands, each atomically with respect to all other
    /// atomic operations of this window (`MPI_Accumulate`, `MPI_Raccumulate`). When the wait
    /// returns, the operands may be reused; the operation is complete at the target after a
    /// [`flush`](Self::flush) or the unlock, as with [`put`](Self::put).
    ///
    /// **Why it has a wait.** It starts when it is called. Where the fabric has the operation (the sum
    /// of 8-byte integers, one fetch-add per word), and where operations complete at post, the wait
    /// costs nothing. Everything else is compare-and-swaps on the words around the elements, and each
    /// needs the result of the one before it, so this rank has to drive them. Sixteen words are in
    /// flight at a time, and elements that share a word change in one compare-and-swap. On memory that
    /// has no words here (user memory, on shm) the memory's agent executes every operation, sums
    /// included.
    ///
    /// **Order.** Atomic operations of one rank on one element take effect in the order of the calls if
    /// each is waited for before the next, and sums of 8-byte integers that the fabric executes always.
    /// Others that are under way at the same time are unordered.
    ///
    /// # Errors
    /// When waited on: [`Error::Range`](crate::Error::Range),
    /// [`Error::Type`](crate::Error::Type) (the operation does not apply to `T`), with nothing
    /// changed; [`Error::Operation`](crate::Error::Operation). The flush or the unlock reports later
    /// failures of a posted sum of 8-byte integers.
    ///
    /// # Cancel safety
    /// If dropped or leaked before it completes, it may or may not have taken effect on each
    /// element.
    #[inline(always)] // see `Operation::wait`
    pub fn accumulate<'s>(&'s self, offset: usize, operands: &'s [T], op: Op) -> Operation<'s, T, F>
    where
        T: AtomicElement,
    {
        let done = match *operands {
            [operand] if T::ADDS && op == Op::Sum => {
                let at = self.atomic_range(offset, 1);
                let word = at.and_then(|at| self.inner.fabric().word_in(&self.target.data, at));
                word.map(|word| drop(self.inner.fabric().fetch_add(word, to_word(operand)))).is_ok()
            }
            [operand] => self.change_now(offset, operand, op).is_some(),
            _ => false,
        };
        if done {
            return Operation::new(self.copy(), "accumulate", (offset, 1), State::Done(Ok(())));
        }
        start(self.copy(), "accumulate", (offset, Shape::Row(operands.len())), op, operands, None)
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
    /// As [`accumulate`](Self::accumulate), and [`Error::Lengths`](crate::Error::Lengths) where the numbers of operands
    /// and results differ.
    ///
    /// # Cancel safety
    /// As [`accumulate`](Self::accumulate). Some of the results may have been filled in.
    #[inline(always)] // see `Operation::wait`
    pub fn get_accumulate<'s>(
        &'s self,
        offset: usize,
        operands: &'s [T],
        results: &'s mut [T],
        op: Op,
    ) -> Operation<'s, T, F>
    where
        T: AtomicElement,
    {
        if let (&[operand], [result]) = (operands, &mut *results)
            && let Some(before) = self.change_now(offset, operand, op)
        {
            *result = before;
            return Operation::new(self.copy(), "get_accumulate", (offset, 1), State::Done(Ok(())));
        }
        let row = (offset, Shape::Row(results.len()));
        start(self.copy(), "get_accumulate", row, op, operands, Some(results))
    }

    /// Changes one element where that takes no wait; `None` if it does, or fails.
    #[inline(always)] // see `Operation::wait`
    fn change_now(&self, offset: usize, operand: T, op: Op) -> Option<T>
    where
        T: AtomicElement,
    {
        let here = self.inner.completes_at_post && self.atomic_range(offset, 1).is_ok();
        if here { fetch::now(self.copy(), offset, Change::Apply(op, operand)) } else { None }
    }
}

/// Starts an accumulate: posts what can be posted, and the first operations of the rest.
#[inline(always)] // see `Operation::wait`
pub(crate) fn start<'s, T: AtomicElement, F: Fabric>(
    access: Access<'s, T, F>,
    operation: &'static str,
    (offset, shape): (usize, Shape<'s>),
    op: Op,
    operands: &'s [T],
    results: Option<&'s mut [T]>,
) -> Operation<'s, T, F> {
    let range = |access: &Access<'s, T, F>| access.atomic_range(offset, shape.end());
    start_at(access, operation, (TypeMap::of_shape(offset, shape), range), op, operands, results)
}

/// The same for elements in a range that is checked.
#[inline(always)] // see `Operation::wait`
pub(crate) fn start_at<'s, T: AtomicElement, F: Fabric>(
    access: Access<'s, T, F>,
    operation: &'static str,
    (type_map, range): (TypeMap<'s>, impl FnOnce(&Access<'s, T, F>) -> Result<u64, Fault>),
    op: Op,
    operands: &'s [T],
    results: Option<&'s mut [T]>,
) -> Operation<'s, T, F> {
    let wanted = type_map.count();
    let given = match &results {
        Some(results) if op == Op::NoOp || results.len() != wanted => results.len(),
        _ => operands.len(),
    };
    if given != wanted {
        let fault = Fault::new(FaultKind::TooLong);
        return Operation::new(access, operation, (wanted, given), State::Done(Err(fault)));
    }
    let allowed = if T::allows(op) { range(&access) } else { Err(refused(op)) };
    let state = match allowed {
        Err(fault) => State::Done(Err(fault)),
        Ok(_) => begin(access.copy(), Work { op, type_map, operands, results }),
    };
    Operation::new(access, operation, type_map.records(), state)
}

#[inline(never)]
fn begin<'s, T: AtomicElement, F: Fabric, O>(access: Access<'s, T, F>, mut work: Work<'s, T>) -> State<'s, O> {
    let done = if work.completes_by_post(&access) {
        work.post_all(&access)
    } else if access.inner.completes_at_post
        && let Poll::Ready(done) = poll_once(work.run(&access))
    {
        done
    } else {
        return State::start(work.run_pipelined(access));
    };
    match done {
        // The first word reported this before anything was changed.
        Err(fault) if is_wordless(fault) => State::start(accumulate_by_helper(access, work)),
        done => State::Done(done),
    }
}
