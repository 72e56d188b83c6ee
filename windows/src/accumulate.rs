//! Atomic operations on many elements.

use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use onesided_fabric::remote_memory::{Fault, FaultKind};
use onesided_fabric::{Drive, Fabric, handle, wait_for};

use crate::agent::{Rows, is_wordless, over_rows};
use crate::combine::{Piece, Pieces, Turn, Turns, Work};
use crate::spread::Spread;
use crate::{Access, AtomicElement, Error, Op, Shape};

/// Pending atomic operations on elements: `.wait()` blocks, `.await` does not, [`test`](Self::test)
/// polls. See [`Access::accumulate`](crate::Access::accumulate) and
/// [`Access::get_accumulate`](crate::Access::get_accumulate).
#[must_use = "operations that the fabric does not execute itself progress only while waited on or polled"]
pub struct Accumulate<'w, 'b, T, F: Fabric> {
    access: Access<'w, T, F>,
    operation: &'static str,
    place: (usize, usize),
    spread: Spread<'b>,
    work: Work<'b, T>,
    state: State<'w, 'b, F>,
}

enum State<'w, 'b, F: Fabric> {
    Done(Result<(), Fault>),
    /// Where operations complete at post, everything runs at the first wait or poll.
    Later,
    /// A single word.
    Word(Turn<F>),
    /// Boxed, because a handle with all pending words is slow to move where there are none.
    UnderWay(Box<Turns<'b, F>>),
    /// A request to the memory's agent, made at the first wait or poll.
    Asked(Option<Box<Rows<'w, 'b>>>),
}

impl<F: Fabric> State<'_, '_, F> {
    /// Falls back to the agent where the fabric has no words, and thus nothing was done.
    #[inline(always)] // see `Accumulate::wait`
    fn or_asked(outcome: Result<(), Fault>) -> Self {
        match outcome {
            Err(fault) if is_wordless(fault) => Self::Asked(None),
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
        Self::start_at(access, operation, (range, Spread::whole(offset, shape)), op, operands, results)
    }

    /// The same for elements in a checked range.
    #[inline(always)] // see `wait`
    pub(crate) fn start_at(
        access: Access<'w, T, F>,
        operation: &'static str,
        (range, spread): (Result<u64, Fault>, Spread<'b>),
        op: Op,
        operands: &'b [T],
        results: Option<&'b mut [T]>,
    ) -> Self {
        let work = Work { op, operands, results };
        let allowed = if T::allows(op) { range } else { Err(Fault::new(FaultKind::Unsupported)) };
        let state = match allowed {
            Err(fault) => State::Done(Err(fault)),
            Ok(_) if work.is_posted_whole(&access) => {
                State::or_asked(work.post_all(access.copy(), Pieces::of::<T>(spread)))
            }
            Ok(_) if access.inner.completes_at_post => State::Later,
            Ok(_) => begin(&access, &work, spread),
        };
        Self { access, operation, place: spread.records(), spread, work, state }
    }

    /// A single sum, which was posted or cannot be.
    #[inline(always)] // see `wait`
    pub(crate) fn added(access: Access<'w, T, F>, offset: usize, operands: &'b [T], added: Result<(), Fault>) -> Self {
        let work = Work { op: Op::Sum, operands, results: None };
        let (place, spread) = ((offset, 1), Spread::whole(offset, Shape::Row(1)));
        Self { access, operation: "accumulate", place, spread, work, state: State::or_asked(added) }
    }

    /// An operation that completes, or fails, when it starts.
    #[inline(always)] // see `wait`
    pub(crate) fn done(
        access: Access<'w, T, F>,
        operation: &'static str,
        place: (usize, usize),
        outcome: Result<(), Fault>,
    ) -> Self {
        let work = Work { op: Op::NoOp, operands: &[], results: None };
        let spread = Spread::whole(0, Shape::Row(0));
        Self { access, operation, place, spread, work, state: State::Done(outcome) }
    }
}

#[cold]
#[inline(never)]
fn begin<'w, 'b, T: AtomicElement, F: Fabric>(
    access: &Access<'w, T, F>,
    work: &Work<'_, T>,
    spread: Spread<'b>,
) -> State<'w, 'b, F> {
    let begun = match Piece::of_word::<T>(spread) {
        Some(piece) => Turn::begin(access, work, piece).map(State::Word),
        None => Turns::begin(access, work, Pieces::of::<T>(spread)).map(|turns| State::UnderWay(Box::new(turns))),
    };
    begun.unwrap_or_else(|fault| State::or_asked(Err(fault)))
}

/// Waits for the agent, or reports another fault.
#[cold]
#[inline(never)]
fn wait_asked<'w, T: AtomicElement, F: Drive>(
    access: Access<'w, T, F>,
    mut work: Work<'_, T>,
    mut rows: Rows<'w, '_>,
) -> Result<(), Fault> {
    let (inner, target) = (access.inner, access.target);
    wait_for(inner.fabric(), std::future::poll_fn(|cx| rows.poll(inner, target, &mut work, cx)))
}

impl<T: AtomicElement, F: Drive> Accumulate<'_, '_, T, F> {
    /// Blocks until the operands may be reused, and the results, if any, are available.
    ///
    /// # Errors
    /// See [`Access::accumulate`](crate::Access::accumulate).
    #[inline(always)] // a handle passed through memory costs more than a small accumulate
    pub fn wait(self) -> Result<(), Error> {
        let Self { access, operation, place, spread, mut work, state } = self;
        let outcome = match (state, Piece::of_word::<T>(spread)) {
            (State::Done(outcome), _) => outcome,
            (State::Later, Some(piece)) => match work.run(&access, piece) {
                Err(fault) if is_wordless(fault) => {
                    // Rebuilt: what is passed to a function goes through memory, here and before.
                    let Work { op, operands, results } = work;
                    wait_asked(access.copy(), Work { op, operands, results }, over_rows(spread))
                }
                done => done,
            },
            (State::Later, None) => run_row(access.copy(), work, Pieces::of::<T>(spread)),
            (State::Word(turn), _) => wait_word(access.copy(), work, turn),
            (State::UnderWay(mut turns), _) => wait_turns(access.copy(), work, &mut turns),
            (State::Asked(None), _) => wait_asked(access.copy(), work, over_rows(spread)),
            (State::Asked(Some(rows)), _) => wait_asked(access.copy(), work, *rows),
        };
        outcome.map_err(|fault| access.failed(operation, place, fault))
    }
}

handle!([T: AtomicElement, F], Accumulate<'_, '_, T, F>, (), Error, |accumulate| accumulate.access.inner.fabric());

/// One word after another, each to completion.
#[inline(never)]
fn run_row<T: AtomicElement, F: Drive>(
    access: Access<'_, T, F>,
    mut work: Work<'_, T>,
    mut pieces: Pieces<'_>,
) -> Result<(), Fault> {
    match pieces.try_for_each(|piece| work.run(&access, piece)) {
        // The first word reported this before anything was changed.
        Err(fault) if is_wordless(fault) => {
            let (spread, Work { op, operands, results }) = (pieces.spread(), work);
            wait_asked(access.copy(), Work { op, operands, results }, over_rows(spread))
        }
        done => done,
    }
}

#[cold]
#[inline(never)]
fn wait_word<T: AtomicElement, F: Drive>(
    access: Access<'_, T, F>,
    mut work: Work<'_, T>,
    mut turn: Turn<F>,
) -> Result<(), Fault> {
    wait_for(access.inner.fabric(), std::future::poll_fn(|cx| turn.poll(&access, &mut work, cx)))
}

#[cold]
#[inline(never)]
fn wait_turns<T: AtomicElement, F: Drive>(
    access: Access<'_, T, F>,
    mut work: Work<'_, T>,
    turns: &mut Turns<'_, F>,
) -> Result<(), Fault> {
    wait_for(access.inner.fabric(), std::future::poll_fn(|cx| turns.poll(&access, &mut work, cx)))
}

// The fabric's operations are `Unpin`; nothing else in it is pinned in place.
impl<T, F: Fabric> Unpin for Accumulate<'_, '_, T, F> {}

impl<T: AtomicElement, F: Fabric> Future for Accumulate<'_, '_, T, F> {
    type Output = Result<(), Error>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let Self { access, operation, place, spread, work, state } = &mut *self;
        if let State::Later = state {
            *state = begin(access, work, *spread);
        }
        let outcome = match state {
            State::Done(outcome) => *outcome,
            State::Word(turn) => ready!(turn.poll(access, work, cx)),
            State::UnderWay(turns) => ready!(turns.poll(access, work, cx)),
            State::Asked(rows) => {
                let rows = rows.get_or_insert_with(|| Box::new(over_rows(*spread)));
                ready!(rows.poll(access.inner, access.target, work, cx))
            }
            State::Later => Err(Fault::new(FaultKind::Closed)), // unreachable: it has just started
        };
        *state = State::Done(outcome);
        Poll::Ready(outcome.map_err(|fault| access.copy().failed(operation, *place, fault)))
    }
}

impl<T, F: Fabric> fmt::Debug for Accumulate<'_, '_, T, F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} at {} of {:?}", self.operation, self.place.0, self.access)
    }
}
