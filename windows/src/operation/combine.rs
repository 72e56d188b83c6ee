//! Atomic operations on the words around elements, pipelined as deep as a card allows.

use std::future::{Future, poll_fn};
use std::ops::Range;
use std::task::Poll;

use onesided_fabric::Fabric;
use onesided_fabric::remote_memory::{Fault, Notify};
use onesided_layouts::apply_row;

use crate::datatype::element::{lanes, per_word, to_word};
use crate::datatype::fields::{take, take_mut};
use crate::datatype::type_map::{TypeMap, TypeMapRuns};
use crate::{Access, AtomicElement, Op};

/// The number of words in flight where an operation takes a round trip: what cards accept on one
/// connection.
const AHEAD: usize = 16;

/// The work of an accumulate.
pub(crate) struct Work<'s, T> {
    pub(crate) op: Op,
    pub(crate) type_map: TypeMap<'s>,
    pub(crate) operands: &'s [T],
    /// The destination of the previous values; `None` if they are not wanted.
    pub(crate) results: Option<&'s mut [T]>,
}

/// The elements of an accumulate that are not started, split at words.
struct WordSpans<'s, T> {
    runs: TypeMapRuns<'s>,
    /// The rest of the current run, in elements of the window memory; of all runs, their number.
    run: Range<usize>,
    left: usize,
    operands: &'s [T],
    results: Option<&'s mut [T]>,
}

/// Elements of one word.
struct WordSpan<'s, T> {
    /// The offset of the word in the window memory.
    at: u64,
    /// The index of the first element in the word, and the count.
    lane: usize,
    count: usize,
    /// Of a no-op there are none.
    operands: &'s [T],
    results: Option<&'s mut [T]>,
}

impl<'s, T> Iterator for WordSpans<'s, T> {
    type Item = WordSpan<'s, T>;

    #[inline]
    fn next(&mut self) -> Option<Self::Item> {
        if self.left == 0 {
            return None;
        }
        if self.run.is_empty() {
            self.run = self.runs.next()?;
        }
        let (at, lane) = (self.run.start / per_word::<T>(), self.run.start % per_word::<T>());
        let count = (per_word::<T>() - lane).min(self.run.len());
        self.run.start += count;
        self.left -= count;
        let results = self.results.as_mut().map(|results| take_mut(results, count));
        Some(WordSpan { at: 8 * at as u64, lane, count, operands: take(&mut self.operands, count), results })
    }
}

impl<T: AtomicElement> WordSpan<'_, T> {
    /// Applies the operation, and stores the previous values.
    #[inline]
    async fn run<F: Fabric>(self, access: &Access<'_, T, F>, op: Op) -> Result<(), Fault> {
        let (fabric, Self { at, lane, count, operands, results }) = (access.inner.fabric(), self);
        let word = fabric.word_in(&access.target.data, at)?;
        let mut before = match T::ADDS && op == Op::Sum {
            true => fabric.fetch_add(word, to_word(operands[0])).await?,
            false => {
                change(fabric, word, |mut word| {
                    let elements = lanes::<T>(&mut word);
                    match operands.split_at_checked(elements.len()) {
                        // A length that the compiler knows.
                        Some((operands, _)) if count == elements.len() => apply_row(op, elements, operands),
                        _ => apply_row(op, &mut elements[lane..lane + count], operands),
                    }
                    word
                })
                .await?
            }
        };
        if let Some(results) = results {
            let before = lanes::<T>(&mut before);
            match results.split_at_mut_checked(before.len()) {
                Some((results, _)) if count == before.len() => results.copy_from_slice(before),
                _ => results.copy_from_slice(&before[lane..lane + count]),
            }
        }
        Ok(())
    }
}

/// Changes a word by compare-and-swaps; returns the previous one.
#[inline]
pub(crate) async fn change<F: Fabric>(
    fabric: &F,
    word: F::Word<'_>,
    new: impl Fn(u64) -> u64 + Send,
) -> Result<u64, Fault> {
    let mut found = fabric.read(word).await?;
    loop {
        let (expected, new) = (found, new(found));
        if new == expected {
            return Ok(expected); // a read suffices if nothing changes
        }
        found = fabric.compare_swap(word, expected, new).await?;
        if found == expected {
            return Ok(expected);
        }
    }
}

/// Drives so many futures at a time, and replaces those that complete by the next.
pub(crate) async fn pipelined<A: Future<Output = Result<(), Fault>>>(
    ahead: usize,
    mut rest: impl Iterator<Item = A>,
) -> Result<(), Fault> {
    let mut slots: Vec<_> = rest.by_ref().take(ahead).map(|first| Some(Box::pin(first))).collect();
    poll_fn(|cx| {
        let mut pending = false;
        for slot in &mut slots {
            while let Some(under_way) = slot {
                let Poll::Ready(outcome) = under_way.as_mut().poll(cx) else {
                    pending = true;
                    break;
                };
                outcome?;
                match rest.next() {
                    Some(next) => under_way.set(next),
                    None => *slot = None,
                }
            }
        }
        if pending { Poll::Pending } else { Poll::Ready(Ok(())) }
    })
    .await
}

impl<T: AtomicElement> Work<'_, T> {
    fn spans(&mut self) -> WordSpans<'_, T> {
        let Self { type_map, operands, results, .. } = self;
        let (run, left) = (type_map.row().unwrap_or(0..0), type_map.count());
        WordSpans { runs: type_map.runs(), run, left, operands, results: results.as_deref_mut() }
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
    pub(crate) fn post_all<F: Fabric>(&mut self, access: &Access<'_, T, F>) -> Result<(), Fault> {
        let (fabric, op) = (access.inner.fabric(), self.op);
        for WordSpan { at, operands, .. } in self.spans().take_while(|_| op != Op::NoOp) {
            let (word, operand) = (fabric.word_in(&access.target.data, at)?, to_word(operands[0]));
            match op {
                Op::Sum => drop(fabric.fetch_add(word, operand)),
                _ => drop(fabric.write(word, operand, Notify::No)),
            }
        }
        Ok(())
    }

    /// Runs it word after word, without a wait where operations complete at post.
    pub(crate) async fn run<F: Fabric>(&mut self, access: &Access<'_, T, F>) -> Result<(), Fault> {
        let op = self.op;
        for span in self.spans() {
            span.run(access, op).await?;
        }
        Ok(())
    }

    /// Runs it where an operation is a round trip.
    pub(crate) async fn run_pipelined<F: Fabric>(mut self, access: Access<'_, T, F>) -> Result<(), Fault> {
        let (op, access) = (self.op, &access);
        pipelined(AHEAD, self.spans().map(|span| span.run(access, op))).await
    }
}
