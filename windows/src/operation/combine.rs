//! Atomic operations on the words around elements, pipelined as deep as a card allows.

use std::future::Future;
use std::ops::Range;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use onesided_fabric::remote_memory::{Fault, Notify};
use onesided_fabric::{Drive, Fabric, wait_for};
use onesided_layouts::apply_row;

use crate::datatype::element::{lanes, per_word, to_word};
use crate::datatype::type_map::{TypeMap, TypeMapRuns};
use crate::{Access, AtomicElement, Op};

/// The number of words in flight where an operation takes a round trip: what cards accept on one
/// connection.
const AHEAD: usize = 16;

/// The work of an accumulate.
pub(crate) struct Work<'b, T> {
    pub(crate) op: Op,
    pub(crate) operands: &'b [T],
    /// The destination of the previous values; `None` if they are not wanted.
    pub(crate) results: Option<&'b mut [T]>,
}

/// The elements of an accumulate that are not started, split at words.
pub(crate) struct WordSpans<'s> {
    runs: TypeMapRuns<'s>,
    /// The rest of the current run, in elements of the window memory.
    run: Range<usize>,
    /// The number of operands that were handed out.
    done: usize,
    per_word: usize,
}

/// Elements of one word.
#[derive(Clone, Copy)]
pub(crate) struct WordSpan {
    /// The index of the word in the window memory.
    word: usize,
    /// The index of the first element in the word, and the count.
    lane: usize,
    count: usize,
    /// The index of the first operand.
    operand: usize,
}

/// A pending word.
pub(crate) struct WordUpdate<F: Fabric> {
    span: WordSpan,
    op: F::Op,
    step: Step,
}

#[derive(Clone, Copy)]
enum Step {
    /// The fabric's own operation: returns the previous word.
    Direct,
    /// A read, to know what a compare-and-swap may expect.
    Read,
    /// A compare-and-swap that expects this.
    Swap(u64),
}

impl<'s> WordSpans<'s> {
    pub(crate) const fn of<T>(type_map: TypeMap<'s>) -> Self {
        let per_word = per_word::<T>();
        Self { runs: type_map.runs(), run: 0..0, done: 0, per_word }
    }

    /// The elements of all pieces.
    pub(crate) const fn type_map(&self) -> TypeMap<'s> {
        self.runs.type_map()
    }
}

impl Iterator for WordSpans<'_> {
    type Item = WordSpan;

    #[inline]
    fn next(&mut self) -> Option<WordSpan> {
        if self.run.is_empty() {
            self.run = self.runs.next()?;
        }
        let lane = self.run.start % self.per_word;
        let count = (self.per_word - lane).min(self.run.len());
        let span = WordSpan { word: self.run.start / self.per_word, lane, count, operand: self.done };
        self.run.start += count;
        self.done += count;
        Some(span)
    }
}

impl WordSpan {
    /// Contiguous elements, if they are in one word.
    #[inline]
    pub(crate) const fn of_word<T>(type_map: TypeMap<'_>) -> Option<Self> {
        let per_word = per_word::<T>();
        match type_map.row() {
            Some((offset, count @ 1..)) if offset % per_word + count <= per_word => {
                Some(Self { word: offset / per_word, lane: offset % per_word, count, operand: 0 })
            }
            _ => None,
        }
    }
}

impl<T: AtomicElement> Work<'_, T> {
    /// Applies the operation to a word.
    #[inline]
    fn apply(&self, span: WordSpan, found: u64) -> u64 {
        let mut word = found;
        let elements = lanes::<T>(&mut word);
        let operands = self.operands.get(span.operand..).unwrap_or_default(); // a no-op has no operands
        match operands.split_at_checked(elements.len()) {
            // A length that the compiler knows.
            Some((operands, _)) if span.count == elements.len() => apply_row(self.op, elements, operands),
            _ => apply_row(self.op, &mut elements[span.lane..span.lane + span.count], operands),
        }
        word
    }

    /// Stores the previous values.
    #[inline]
    fn keep(&mut self, span: WordSpan, mut before: u64) {
        let Some(results) = &mut self.results else { return };
        let (results, before) = (&mut results[span.operand..], lanes::<T>(&mut before));
        match results.split_at_mut_checked(before.len()) {
            Some((results, _)) if span.count == before.len() => results.copy_from_slice(before),
            _ => results[..span.count].copy_from_slice(&before[span.lane..span.lane + span.count]),
        }
    }

    /// Whether the fabric's fetch-add does everything.
    fn adds(&self) -> bool {
        T::ADDS && self.op == Op::Sum
    }

    /// Starts a word.
    #[inline]
    fn begin<F: Fabric>(&self, access: &Access<'_, T, F>, span: WordSpan) -> Result<WordUpdate<F>, Fault> {
        let (fabric, word) = (access.inner.fabric(), word(access, span)?);
        let (op, step) = match self.adds() {
            true => (fabric.fetch_add(word, to_word(self.operands[span.operand])), Step::Direct),
            false => (fabric.read(word), Step::Read),
        };
        Ok(WordUpdate { span, op, step })
    }

    /// Whether the whole can be posted without waiting for intermediate results.
    #[inline]
    pub(crate) fn completes_by_post<F: Fabric>(&self, access: &Access<'_, T, F>) -> bool {
        // Elsewhere a write may be lost to a concurrent atomic, and may overtake an earlier one.
        let writes =
            || size_of::<T>() == 8 && access.inner.completes_at_post && access.inner.fabric().write_is_atomic();
        self.results.is_none()
            && match self.op {
                Op::NoOp => true,
                Op::Sum => T::ADDS,
                Op::Replace => writes(),
                _ => false,
            }
    }

    /// Posts everything.
    #[inline(never)]
    pub(crate) fn post_all<F: Fabric>(&self, access: Access<'_, T, F>, spans: WordSpans<'_>) -> Result<(), Fault> {
        let (access, fabric) = (&access, access.inner.fabric());
        match self.op {
            Op::Sum => {
                for span in spans {
                    drop(fabric.fetch_add(word(access, span)?, to_word(self.operands[span.operand])));
                }
            }
            Op::Replace => {
                for span in spans {
                    let value = to_word(self.operands[span.operand]);
                    drop(fabric.write(word(access, span)?, value, Notify::No));
                }
            }
            _ => {}
        }
        Ok(())
    }

    /// Drives a word to completion.
    #[inline(always)] // see `Accumulate::wait`
    pub(crate) fn run<F: Drive>(&mut self, access: &Access<'_, T, F>, span: WordSpan) -> Result<(), Fault> {
        let WordUpdate { mut op, mut step, .. } = self.begin(access, span)?;
        while let Some(next) = self.next_step(access, span, step, wait_for(access.inner.fabric(), op)?)? {
            (op, step) = next;
        }
        Ok(())
    }

    /// The step after one that read `found`; `None` if the word is done.
    #[inline(always)] // as `run`
    fn next_step<F: Fabric>(
        &mut self,
        access: &Access<'_, T, F>,
        span: WordSpan,
        step: Step,
        found: u64,
    ) -> Result<Option<(F::Op, Step)>, Fault> {
        let done = match step {
            Step::Direct => true,
            Step::Swap(expected) => expected == found,
            Step::Read => false,
        };
        // A read suffices if nothing changes.
        let new = if done { found } else { self.apply(span, found) };
        if new == found {
            self.keep(span, found);
            return Ok(None);
        }
        let op = access.inner.fabric().compare_swap(word(access, span)?, found, new);
        Ok(Some((op, Step::Swap(found))))
    }
}

impl<F: Fabric> WordUpdate<F> {
    /// Starts a word.
    #[inline(never)] // its callers are cold, so nothing would be inlined, and the posting code exists once
    pub(crate) fn begin<T: AtomicElement>(
        access: &Access<'_, T, F>,
        work: &Work<'_, T>,
        span: WordSpan,
    ) -> Result<Self, Fault> {
        work.begin(access, span)
    }

    /// Drives it to completion.
    #[inline(never)] // as `begin`
    pub(crate) fn poll<T: AtomicElement>(
        &mut self,
        access: &Access<'_, T, F>,
        work: &mut Work<'_, T>,
        cx: &mut Context<'_>,
    ) -> Poll<Result<(), Fault>> {
        loop {
            let found = ready!(Pin::new(&mut self.op).poll(cx))?;
            match work.next_step(access, self.span, self.step, found)? {
                Some((op, step)) => (self.op, self.step) = (op, step),
                None => return Poll::Ready(Ok(())),
            }
        }
    }
}

#[inline]
fn word<'a, T, F: Fabric>(access: &'a Access<'_, T, F>, span: WordSpan) -> Result<F::Word<'a>, Fault> {
    access.inner.fabric().word_in(&access.target.data, 8 * span.word as u64)
}

/// Words in flight, and those not started yet.
pub(crate) struct WordUpdates<'s, F: Fabric> {
    spans: WordSpans<'s>,
    /// Up to [`AHEAD`] of them.
    updates: Vec<Option<WordUpdate<F>>>,
}

impl<'s, F: Fabric> WordUpdates<'s, F> {
    /// Starts the first words.
    #[inline(never)] // its callers are cold, so nothing would be inlined
    pub(crate) fn begin<T: AtomicElement>(
        access: &Access<'_, T, F>,
        work: &Work<'_, T>,
        mut spans: WordSpans<'s>,
    ) -> Result<Self, Fault> {
        let updates = spans.by_ref().take(AHEAD).map(|span| WordUpdate::begin(access, work, span).map(Some));
        let updates = updates.collect::<Result<_, _>>()?;
        Ok(Self { spans, updates })
    }

    /// Drives the words in flight, and replaces completed ones by the next.
    #[inline(never)] // as `begin`
    pub(crate) fn poll<T: AtomicElement>(
        &mut self,
        access: &Access<'_, T, F>,
        work: &mut Work<'_, T>,
        cx: &mut Context<'_>,
    ) -> Poll<Result<(), Fault>> {
        let mut under_way = false;
        for slot in &mut self.updates {
            while let Some(update) = slot {
                let Poll::Ready(done) = update.poll(access, work, cx) else {
                    under_way = true;
                    break;
                };
                done?;
                *slot = self.spans.next().map(|span| WordUpdate::begin(access, work, span)).transpose()?;
            }
        }
        if under_way { Poll::Pending } else { Poll::Ready(Ok(())) }
    }
}
