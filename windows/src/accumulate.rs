//! Atomic operations on many elements: as many words under way at once as a card keeps busy.

use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use fabric::remote_memory::{Fault, FaultKind, Notify};
use fabric::{Drive, Fabric, poll_now, wait_for};

use crate::element::{lanes, per_word, to_word};
use crate::shape::Runs;
use crate::{Access, AtomicElement, Error, Op, Shape};

/// How many words are under way at once, where an operation takes a round trip.
const AHEAD: usize = 16;

/// Atomic operations on elements, to be waited for: `.wait()` blocks, `.await` does not, [`test`](Self::test) looks. See
/// [`Access::accumulate`](crate::Access::accumulate) and [`Access::get_accumulate`](crate::Access::get_accumulate).
#[must_use = "what a fabric does not add by itself runs only while it is waited for"]
pub struct Accumulate<'w, 'b, T, F: Fabric> {
    access: Access<'w, T, F>,
    operation: &'static str,
    place: (usize, usize),
    state: State<'b, T, F>,
}

enum State<'b, T, F: Fabric> {
    Done(Result<(), Fault>),
    /// Where an operation is done when it is posted, all is done when somebody asks.
    Later(Work<'b, T>),
    UnderWay(Work<'b, T>, [Option<Turn<F>>; AHEAD]),
}

/// What is still to be begun.
struct Work<'b, T> {
    op: Op,
    operands: &'b [T],
    /// Where the elements go as they were before; `None` if nobody wants them.
    results: Option<&'b mut [T]>,
    pieces: Pieces<'b>,
}

/// The elements of an accumulate, cut at words.
struct Pieces<'s> {
    runs: Runs<'s>,
    /// In elements of the part: where the shape lies, and what is left of the run that was begun.
    offset: usize,
    run: std::ops::Range<usize>,
    /// How many operands were given out.
    done: usize,
    per_word: usize,
}

/// Elements of one word.
#[derive(Clone, Copy)]
struct Piece {
    /// Which word of the part.
    word: usize,
    /// The first of them in the word, and how many.
    lane: usize,
    count: usize,
    /// The operand of the first.
    operand: usize,
}

/// A word under way.
struct Turn<F: Fabric> {
    piece: Piece,
    op: F::Op,
    step: Step,
}

#[derive(Clone, Copy)]
enum Step {
    /// The fabric's own operation: what it brings is what was there before.
    Direct,
    /// A read, to know what a compare-swap may expect.
    Read,
    /// A compare-swap that expects this.
    Swap(u64),
}

impl Iterator for Pieces<'_> {
    type Item = Piece;

    #[inline]
    fn next(&mut self) -> Option<Piece> {
        if self.run.is_empty() {
            let run = self.runs.next()?;
            self.run = self.offset + run.start..self.offset + run.end;
        }
        let lane = self.run.start % self.per_word;
        let count = (self.per_word - lane).min(self.run.len());
        let piece = Piece { word: self.run.start / self.per_word, lane, count, operand: self.done };
        self.run.start += count;
        self.done += count;
        Some(piece)
    }
}

impl<T: AtomicElement> Work<'_, T> {
    /// What the operation makes of a word.
    #[inline]
    fn apply(&self, piece: Piece, found: u64) -> u64 {
        let mut word = found;
        let elements = &mut lanes::<T>(&mut word)[piece.lane..piece.lane + piece.count];
        if self.op != Op::NoOp {
            for (element, operand) in elements.iter_mut().zip(&self.operands[piece.operand..]) {
                *element = T::apply(self.op, *element, *operand);
            }
        }
        word
    }

    /// Keeps what was there before.
    #[inline]
    fn keep(&mut self, piece: Piece, mut before: u64) {
        if let Some(results) = &mut self.results {
            let elements = &lanes::<T>(&mut before)[piece.lane..piece.lane + piece.count];
            results[piece.operand..piece.operand + piece.count].copy_from_slice(elements);
        }
    }

    /// Whether the fabric's fetch-add does it all.
    fn adds(&self) -> bool {
        T::ADDS && self.op == Op::Sum
    }

    /// Begins with a word.
    #[inline]
    fn begin<F: Fabric>(&self, access: &Access<'_, T, F>, piece: Piece) -> Result<Turn<F>, Fault> {
        let (fabric, word) = (access.inner.fabric(), word(access, piece)?);
        let (op, step) = match self.adds() {
            true => (fabric.fetch_add(word, to_word(self.operands[piece.operand])), Step::Direct),
            false => (fabric.read(word), Step::Read),
        };
        Ok(Turn { piece, op, step })
    }

    /// Posts the whole at once, where nobody has to wait for the outcome of an operation to know the next. `false`:
    /// somebody has.
    fn post_all<F: Fabric>(&mut self, access: &Access<'_, T, F>) -> Result<bool, Fault> {
        let fabric = access.inner.fabric();
        if self.results.is_some() {
            return Ok(false);
        }
        match self.op {
            Op::NoOp => {}
            Op::Sum if T::ADDS => {
                for piece in self.pieces.by_ref() {
                    drop(fabric.fetch_add(word(access, piece)?, to_word(self.operands[piece.operand])));
                }
            }
            // Elsewhere a write may be lost to an atomic that it meets, and may overtake one before it.
            Op::Replace if size_of::<T>() == 8 && fabric.write_is_atomic() && fabric.capabilities().immediate => {
                for piece in self.pieces.by_ref() {
                    let value = to_word(self.operands[piece.operand]);
                    drop(fabric.write(word(access, piece)?, value, Notify::No));
                }
            }
            _ => return Ok(false),
        }
        Ok(true)
    }

    /// What follows when a step has found this word; `None` if nothing does.
    #[inline]
    fn go_on<F: Fabric>(
        &mut self,
        access: &Access<'_, T, F>,
        piece: Piece,
        step: Step,
        found: u64,
    ) -> Result<Option<(F::Op, Step)>, Fault> {
        let done = match step {
            Step::Direct => true,
            Step::Swap(expected) => expected == found,
            Step::Read => false,
        };
        // What changes nothing is done with the look at the word.
        let new = if done { found } else { self.apply(piece, found) };
        if new == found {
            self.keep(piece, found);
            return Ok(None);
        }
        let op = access.inner.fabric().compare_swap(word(access, piece)?, found, new);
        Ok(Some((op, Step::Swap(found))))
    }
}

#[inline]
fn word<'a, T, F: Fabric>(access: &'a Access<'_, T, F>, piece: Piece) -> Result<F::Word<'a>, Fault> {
    access.inner.fabric().word_in(&access.target.data, 8 * piece.word as u64)
}

impl<'w, 'b, T: AtomicElement, F: Fabric> Accumulate<'w, 'b, T, F> {
    /// Posts what can be posted at once, and the first operations of the rest.
    #[inline(always)] // see `wait`
    pub(crate) fn start(
        access: Access<'w, T, F>,
        operation: &'static str,
        (offset, shape): (usize, Shape<'b>),
        op: Op,
        operands: &'b [T],
        results: Option<&'b mut [T]>,
    ) -> Self {
        let pieces = Pieces { runs: shape.runs(), offset, run: 0..0, done: 0, per_word: const { per_word::<T>() } };
        let mut work = Work { op, operands, results, pieces };
        let place = (offset, shape.end());
        let allowed = if T::allows(op) { Ok(()) } else { Err(Fault::new(FaultKind::Unsupported)) };
        let begun = allowed.and_then(|()| access.range(offset, place.1)).and_then(|_| work.post_all(&access));
        let state = match begun {
            Ok(true) => State::Done(Ok(())),
            Ok(false) if access.inner.fabric().capabilities().immediate => State::Later(work),
            Ok(false) => begin_all(&access, work),
            Err(fault) => State::Done(Err(fault)),
        };
        Self { access, operation, place, state }
    }

    /// What is done, or refused, when it begins.
    pub(crate) const fn done(
        access: Access<'w, T, F>,
        operation: &'static str,
        place: (usize, usize),
        outcome: Result<(), Fault>,
    ) -> Self {
        Self { access, operation, place, state: State::Done(outcome) }
    }

    fn poll_state(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), Fault>> {
        let outcome = loop {
            match &mut self.state {
                State::Done(outcome) => return Poll::Ready(*outcome),
                State::UnderWay(work, turns) => break ready!(poll_turns(&self.access, work, turns, cx)),
                State::Later(_) => {}
            }
            let later = std::mem::replace(&mut self.state, State::Done(Ok(())));
            if let State::Later(work) = later {
                self.state = begin_all(&self.access, work);
            }
        };
        self.state = State::Done(outcome);
        Poll::Ready(outcome)
    }
}

/// Puts the first words under way.
fn begin_all<'b, T: AtomicElement, F: Fabric>(access: &Access<'_, T, F>, mut work: Work<'b, T>) -> State<'b, T, F> {
    let mut turns = [const { None }; AHEAD];
    for turn in &mut turns {
        let Some(piece) = work.pieces.next() else { break };
        match work.begin(access, piece) {
            Ok(begun) => *turn = Some(begun),
            Err(fault) => return State::Done(Err(fault)),
        }
    }
    State::UnderWay(work, turns)
}

/// Drives every word that is under way, and begins others in the place of those that are done.
fn poll_turns<T: AtomicElement, F: Fabric>(
    access: &Access<'_, T, F>,
    work: &mut Work<'_, T>,
    turns: &mut [Option<Turn<F>>; AHEAD],
    cx: &mut Context<'_>,
) -> Poll<Result<(), Fault>> {
    let mut under_way = false;
    for place in turns {
        while let Some(turn) = place {
            let Poll::Ready(found) = Pin::new(&mut turn.op).poll(cx) else {
                under_way = true;
                break;
            };
            *place = match work.go_on(access, turn.piece, turn.step, found?)? {
                Some((op, step)) => Some(Turn { piece: turn.piece, op, step }),
                None => match work.pieces.next() {
                    Some(piece) => Some(work.begin(access, piece)?),
                    None => None,
                },
            };
        }
    }
    if under_way { Poll::Pending } else { Poll::Ready(Ok(())) }
}

impl<T: AtomicElement, F: Drive> Accumulate<'_, '_, T, F> {
    /// Blocks until the operands may be used again, and the results, if there are any, are there.
    ///
    /// # Errors
    /// See [`Access::accumulate`](crate::Access::accumulate).
    #[inline(always)] // a handle that passes through memory costs more than a small accumulate
    pub fn wait(self) -> Result<(), Error> {
        let Self { access, operation, place, state } = self;
        let outcome = match state {
            State::Done(outcome) => outcome,
            State::Later(work) => run(access.copy(), work),
            State::UnderWay(work, turns) => wait_turns(access.copy(), work, turns),
        };
        outcome.map_err(|fault| access.failed(operation, place, fault))
    }

    /// Whether it is done, without waiting; what it needs for that goes on (`MPI_Test`). Asked again it says so again.
    ///
    /// # Errors
    /// As [`wait`](Self::wait).
    pub fn test(&mut self) -> Result<bool, Error> {
        let inner = self.access.inner;
        match poll_now(inner.fabric(), self) {
            Poll::Ready(outcome) => outcome.map(|()| true),
            Poll::Pending => Ok(false),
        }
    }
}

#[cold]
#[inline(never)]
fn wait_turns<T: AtomicElement, F: Drive>(
    access: Access<'_, T, F>,
    mut work: Work<'_, T>,
    mut turns: [Option<Turn<F>>; AHEAD],
) -> Result<(), Fault> {
    wait_for(access.inner.fabric(), std::future::poll_fn(|cx| poll_turns(&access, &mut work, &mut turns, cx)))
}

/// One word after another, each to its end.
#[inline(never)]
fn run<T: AtomicElement, F: Drive>(access: Access<'_, T, F>, mut work: Work<'_, T>) -> Result<(), Fault> {
    while let Some(piece) = work.pieces.next() {
        let Turn { mut op, mut step, .. } = work.begin(&access, piece)?;
        while let Some(next) = work.go_on(&access, piece, step, wait_for(access.inner.fabric(), op)?)? {
            (op, step) = next;
        }
    }
    Ok(())
}

// The operations that the fabric gives are Unpin, and nothing else in it could care.
impl<T, F: Fabric> Unpin for Accumulate<'_, '_, T, F> {}

impl<T: AtomicElement, F: Fabric> Future for Accumulate<'_, '_, T, F> {
    type Output = Result<(), Error>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let outcome = ready!(self.poll_state(cx));
        Poll::Ready(outcome.map_err(|fault| self.access.copy().failed(self.operation, self.place, fault)))
    }
}

impl<T, F: Fabric> fmt::Debug for Accumulate<'_, '_, T, F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} at {} of {:?}", self.operation, self.place.0, self.access)
    }
}
