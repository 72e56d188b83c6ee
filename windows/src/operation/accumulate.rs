//! Atomic operations on many elements.

use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use onesided_fabric::remote_memory::Fault;
use onesided_fabric::{Any, Drive, Fabric, handle, wait_for};

use crate::datatype::element::{refused, to_word};
use crate::datatype::type_map::TypeMap;
use crate::helper::{HelperAccumulate, by_helper, is_wordless};
use crate::operation::combine::{WordSpan, WordSpans, WordUpdate, WordUpdates, Work};
use crate::operation::handles::over;
use crate::{Access, AtomicElement, Element, Error, Op, Shape};

impl<T: Element, F: Fabric> Access<'_, T, F> {
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
    /// words here (user memory, on shm) the memory's agent executes every operation, sums included,
    /// and nothing is posted before the wait.
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
    pub fn accumulate<'b>(&self, offset: usize, operands: &'b [T], op: Op) -> Accumulate<'_, 'b, T, F>
    where
        T: AtomicElement,
    {
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
    ) -> Accumulate<'_, 'b, T, F>
    where
        T: AtomicElement,
    {
        self.get_accumulate_at("get_accumulate", (offset, Shape::Row(results.len())), operands, results, op)
    }

    #[inline(always)] // see Fetch::wait
    pub(crate) fn get_accumulate_at<'b>(
        &self,
        operation: &'static str,
        at_shape: (usize, Shape<'b>),
        operands: &'b [T],
        results: &'b mut [T],
        op: Op,
    ) -> Accumulate<'_, 'b, T, F>
    where
        T: AtomicElement,
    {
        let given = if op == Op::NoOp { results.len() } else { operands.len() };
        if let Err(fault) = Self::lengths(results.len(), given) {
            return Accumulate::done(self.copy(), operation, (results.len(), given), Err(fault));
        }
        Accumulate::start(self.copy(), operation, at_shape, op, operands, Some(results))
    }
}

/// Pending atomic operations on elements: `.wait()` blocks, `.await` does not, [`test`](Self::test)
/// polls. See [`Access::accumulate`](crate::Access::accumulate) and
/// [`Access::get_accumulate`](crate::Access::get_accumulate).
#[must_use = "operations that the fabric does not execute itself progress only while waited on or polled"]
pub struct Accumulate<'w, 'b, T, F: Fabric = Any> {
    access: Access<'w, T, F>,
    operation: &'static str,
    elements: (usize, usize),
    type_map: TypeMap<'b>,
    work: Work<'b, T>,
    state: State<'w, 'b, F>,
}

enum State<'w, 'b, F: Fabric> {
    Done(Result<(), Fault>),
    /// Where operations complete at post, everything runs at the first wait or poll.
    AtWait,
    /// A single word.
    Word(WordUpdate<F>),
    /// Boxed, because a handle with all pending words is slow to move where there are none.
    UnderWay(Box<WordUpdates<'b, F>>),
    /// A request to the memory's agent, made at the first wait or poll.
    Helper(Option<Box<HelperAccumulate<'w, 'b>>>),
    /// Its result was yielded.
    Over,
}

impl<F: Fabric> State<'_, '_, F> {
    /// Falls back to the agent where the fabric has no words, and thus nothing was done.
    #[inline(always)] // see `Accumulate::wait`
    fn or_helper(outcome: Result<(), Fault>) -> Self {
        match outcome {
            Err(fault) if is_wordless(fault) => Self::Helper(None),
            done => Self::Done(done),
        }
    }
}

impl<'w, 'b, T: AtomicElement, F: Fabric> Accumulate<'w, 'b, T, F> {
    /// Posts what can be posted immediately, and the first operations of the rest.
    #[inline(always)] // see `wait`
    pub(crate) fn start(
        access: Access<'w, T, F>,
        operation: &'static str,
        (offset, shape): (usize, Shape<'b>),
        op: Op,
        operands: &'b [T],
        results: Option<&'b mut [T]>,
    ) -> Self {
        let range = access.atomic_range(offset, shape.end());
        Self::start_at(access, operation, (range, TypeMap::of_shape(offset, shape)), op, operands, results)
    }

    /// The same for elements in a checked range.
    #[inline(always)] // see `wait`
    pub(crate) fn start_at(
        access: Access<'w, T, F>,
        operation: &'static str,
        (range, type_map): (Result<u64, Fault>, TypeMap<'b>),
        op: Op,
        operands: &'b [T],
        results: Option<&'b mut [T]>,
    ) -> Self {
        let work = Work { op, operands, results };
        let allowed = if T::allows(op) { range } else { Err(refused(op)) };
        let state = match allowed {
            Err(fault) => State::Done(Err(fault)),
            Ok(_) if work.completes_by_post(&access) => {
                State::or_helper(work.post_all(access.copy(), WordSpans::of::<T>(type_map)))
            }
            Ok(_) if access.inner.completes_at_post => State::AtWait,
            Ok(_) => begin(&access, &work, type_map),
        };
        Self { access, operation, elements: type_map.records(), type_map, work, state }
    }

    /// A single sum, which was posted or cannot be.
    #[inline(always)] // see `wait`
    pub(crate) fn added(access: Access<'w, T, F>, offset: usize, operands: &'b [T], added: Result<(), Fault>) -> Self {
        let work = Work { op: Op::Sum, operands, results: None };
        let (elements, type_map) = ((offset, 1), TypeMap::of_shape(offset, Shape::Row(1)));
        Self { access, operation: "accumulate", elements, type_map, work, state: State::or_helper(added) }
    }

    /// An operation that completes, or fails, when it starts.
    #[inline(always)] // see `wait`
    pub(crate) fn done(
        access: Access<'w, T, F>,
        operation: &'static str,
        elements: (usize, usize),
        outcome: Result<(), Fault>,
    ) -> Self {
        let work = Work { op: Op::NoOp, operands: &[], results: None };
        let type_map = TypeMap::of_shape(0, Shape::Row(0));
        Self { access, operation, elements, type_map, work, state: State::Done(outcome) }
    }
}

#[cold]
#[inline(never)]
fn begin<'w, 'b, T: AtomicElement, F: Fabric>(
    access: &Access<'w, T, F>,
    work: &Work<'_, T>,
    type_map: TypeMap<'b>,
) -> State<'w, 'b, F> {
    let begun = match WordSpan::of_word::<T>(type_map) {
        Some(span) => WordUpdate::begin(access, work, span).map(State::Word),
        None => WordUpdates::begin(access, work, WordSpans::of::<T>(type_map))
            .map(|updates| State::UnderWay(Box::new(updates))),
    };
    begun.unwrap_or_else(|fault| State::or_helper(Err(fault)))
}

/// Waits for the agent, or reports another fault.
#[cold]
#[inline(never)]
fn wait_helper<'w, T: AtomicElement, F: Drive>(
    access: Access<'w, T, F>,
    mut work: Work<'_, T>,
    mut helper: HelperAccumulate<'w, '_>,
) -> Result<(), Fault> {
    let (inner, target) = (access.inner, access.target);
    wait_for(inner.fabric(), std::future::poll_fn(|cx| helper.poll(inner, target, &mut work, cx)))
}

impl<T: AtomicElement, F: Fabric> Accumulate<'_, '_, T, F> {
    /// Blocks until the operands may be reused, and the results, if any, are available.
    ///
    /// # Errors
    /// See [`Access::accumulate`](crate::Access::accumulate).
    #[inline(always)] // a handle passed through memory costs more than a small accumulate
    pub fn wait(self) -> Result<(), Error>
    where
        F: Drive,
    {
        let Self { access, operation, elements, type_map, mut work, state } = self;
        let outcome = match (state, WordSpan::of_word::<T>(type_map)) {
            (State::Done(outcome), _) => outcome,
            (State::AtWait, Some(span)) => match work.run(&access, span) {
                Err(fault) if is_wordless(fault) => {
                    // Rebuilt: what is passed to a function goes through memory, here and before.
                    let Work { op, operands, results } = work;
                    wait_helper(access.copy(), Work { op, operands, results }, by_helper(type_map))
                }
                done => done,
            },
            (State::AtWait, None) => run_words(access.copy(), work, WordSpans::of::<T>(type_map)),
            (State::Word(update), _) => wait_word(access.copy(), work, update),
            (State::UnderWay(mut updates), _) => wait_words(access.copy(), work, &mut updates),
            (State::Helper(None), _) => wait_helper(access.copy(), work, by_helper(type_map)),
            (State::Helper(Some(helper)), _) => wait_helper(access.copy(), work, *helper),
            (State::Over, _) => over(),
        };
        outcome.map_err(|fault| access.failed(operation, elements, fault))
    }
}

handle!([T: AtomicElement, F], Accumulate<'_, '_, T, F>, (), Error, |accumulate| accumulate.access.inner.fabric());

/// One word after another, each to completion.
#[inline(never)]
fn run_words<T: AtomicElement, F: Drive>(
    access: Access<'_, T, F>,
    mut work: Work<'_, T>,
    mut spans: WordSpans<'_>,
) -> Result<(), Fault> {
    match spans.try_for_each(|span| work.run(&access, span)) {
        // The first word reported this before anything was changed.
        Err(fault) if is_wordless(fault) => {
            let (type_map, Work { op, operands, results }) = (spans.type_map(), work);
            wait_helper(access.copy(), Work { op, operands, results }, by_helper(type_map))
        }
        done => done,
    }
}

#[cold]
#[inline(never)]
fn wait_word<T: AtomicElement, F: Drive>(
    access: Access<'_, T, F>,
    mut work: Work<'_, T>,
    mut update: WordUpdate<F>,
) -> Result<(), Fault> {
    wait_for(access.inner.fabric(), std::future::poll_fn(|cx| update.poll(&access, &mut work, cx)))
}

#[cold]
#[inline(never)]
fn wait_words<T: AtomicElement, F: Drive>(
    access: Access<'_, T, F>,
    mut work: Work<'_, T>,
    updates: &mut WordUpdates<'_, F>,
) -> Result<(), Fault> {
    wait_for(access.inner.fabric(), std::future::poll_fn(|cx| updates.poll(&access, &mut work, cx)))
}

// The fabric's operations are `Unpin`; nothing else in it is pinned in place.
impl<T, F: Fabric> Unpin for Accumulate<'_, '_, T, F> {}

impl<T: AtomicElement, F: Fabric> Future for Accumulate<'_, '_, T, F> {
    type Output = Result<(), Error>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let Self { access, operation, elements, type_map, work, state } = &mut *self;
        if let State::AtWait = state {
            *state = begin(access, work, *type_map);
        }
        let outcome = match state {
            State::Done(outcome) => *outcome,
            State::Word(update) => ready!(update.poll(access, work, cx)),
            State::UnderWay(updates) => ready!(updates.poll(access, work, cx)),
            State::Helper(helper) => {
                let helper = helper.get_or_insert_with(|| Box::new(by_helper(*type_map)));
                ready!(helper.poll(access.inner, access.target, work, cx))
            }
            State::AtWait => unreachable!("it has just started"),
            State::Over => over(),
        };
        *state = State::Over;
        Poll::Ready(outcome.map_err(|fault| access.copy().failed(operation, *elements, fault)))
    }
}

impl<T, F: Fabric> fmt::Debug for Accumulate<'_, '_, T, F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} at {} of {:?}", self.operation, self.elements.0, self.access)
    }
}
