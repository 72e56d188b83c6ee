//! Every operation at every size, with a flush after each one and with one flush after many.
#![allow(unsafe_code)] // the bare memory, for memcpy

use std::cell::RefCell;
use std::hint::black_box;
use std::iter;

use windows::{Error, Fetch, Op, Window};

use crate::bench::bare;
use crate::bench::rank::{LARGEST, ROOM, RankOfBench};
use crate::bench::report::Metric;
use crate::bench::rounds::{self, Probe};
use crate::bench::worker::Effort;
use crate::failure::Failure;

type Access<'w> = windows::Access<'w, u64, fabric::Any>;

/// An operation, and what does the same without a library.
struct Operation {
    name: &'static str,
    /// So many times, the whole row and a flush.
    run: fn(&Access<'_>, Row<'_>, u64) -> Result<(), Error>,
    limit: &'static str,
    bare: fn(&RankOfBench, Row<'_>, u64),
    /// In bytes.
    largest: usize,
}

#[rustfmt::skip] // a table
const OPERATIONS: [Operation; 5] = [
    Operation { name: "put",              run: put,              limit: "memcpy to shared + fence",   bare: copy_in,      largest: LARGEST },
    Operation { name: "get",              run: get,              limit: "memcpy from shared + fence", bare: copy_out,     largest: LARGEST },
    Operation { name: "accumulate",       run: accumulate,       limit: "fetch-add of each word",     bare: add_each,     largest: EACH },
    Operation { name: "fetch_and_op",     run: fetch_and_op,     limit: "fetch-add",                  bare: fetch_add,    largest: WORD },
    Operation { name: "compare_and_swap", run: compare_and_swap, limit: "CAS",                        bare: compare_swap, largest: WORD },
];

/// The smallest size, and all that an atomic operation has.
const WORD: usize = 8;
/// The largest accumulate, which is an atomic operation on each word: more of them only takes longer.
const EACH: usize = 4 << 10;
/// How many operations go before one flush, if there is [`ROOM`] for them.
const MANY: usize = 64;

/// The operations before one flush: local pieces, all as long, and the places in the window that are as far from each
/// other.
struct Row<'b> {
    buffer: &'b mut [u64],
    pieces: usize,
}

/// What is measured, in bytes: 8, and the powers of four (`--quick`) or two up to 4 MiB.
pub(crate) fn sizes(effort: Effort) -> impl Iterator<Item = usize> {
    let (first, factor) = match effort {
        Effort::Full => (2 * WORD, 2),
        Effort::Quick => (2 * WORD, 4),
    };
    iter::once(WORD)
        .chain(iter::successors(Some(first), move |size| Some(size * factor)).take_while(|size| *size <= LARGEST))
}

pub(crate) fn run(rank: &RankOfBench, effort: Effort) -> Result<(), Failure> {
    let window = Window::<u64>::allocate(&rank.world, ROOM / WORD)?;
    // The other ranks sleep in `close`.
    if rank.world.rank() == 0 {
        let epoch = window.lock_exclusive(rank.peer()).wait()?;
        let buffer = RefCell::new(vec![1_u64; ROOM / WORD]);
        for size in sizes(effort) {
            let operations = OPERATIONS.iter().filter(|operation| size <= operation.largest);
            let probes = operations.flat_map(|operation| operation.probes(rank, &epoch, &buffer, size)).collect();
            rounds::run(rank, effort, probes)?;
        }
        epoch.unlock()?;
    }
    Ok(window.close()?)
}

impl Operation {
    fn probes<'p>(
        &'p self,
        rank: &'p RankOfBench,
        access: &'p Access<'_>,
        buffer: &'p RefCell<Vec<u64>>,
        size: usize,
    ) -> Vec<Probe<'p>> {
        let rates: &[Metric] =
            if self.largest > WORD { &[Metric::Bandwidth, Metric::MessageRate] } else { &[Metric::MessageRate] };
        let mut probes = Vec::new();
        for (many, pieces, metrics) in [("", 1, &[Metric::Latency][..]), ("many ", MANY.min(ROOM / size), rates)] {
            let limit = format!("{many}{}", self.limit);
            let row = move |run: &mut dyn FnMut(Row<'_>)| {
                run(Row { buffer: &mut buffer.borrow_mut()[..pieces * size / WORD], pieces });
            };
            let ours = move |n| {
                let mut done = Ok(());
                row(&mut |row| done = (self.run)(access, row, n));
                done
            };
            let mut both = vec![Probe::ours(&format!("{many}{} + flush", self.name), &limit, ours)];
            if rank.has_limits() {
                both.push(Probe::limit(&limit, move |n| row(&mut |row| (self.bare)(rank, row, n))));
            }
            probes.extend(both.into_iter().map(|probe| probe.of_size(size).measures(metrics).each_time(pieces)));
        }
        probes
    }
}

impl Row<'_> {
    /// How many elements a piece has.
    fn len(&self) -> usize {
        self.buffer.len() / self.pieces
    }
}

// The timed loops, each a function of its own, so that no loop's code depends on another's.

#[inline(never)]
fn put(access: &Access<'_>, row: Row<'_>, n: u64) -> Result<(), Error> {
    let len = row.len();
    for _ in 0..n {
        for (i, piece) in row.buffer.chunks_exact(len).enumerate() {
            access.put(i * len, black_box(piece))?;
        }
        access.flush().wait()?;
    }
    Ok(())
}

#[inline(never)]
fn get(access: &Access<'_>, row: Row<'_>, n: u64) -> Result<(), Error> {
    let len = row.len();
    for _ in 0..n {
        if row.pieces == 1 {
            access.get(0, black_box(&mut *row.buffer)).wait()?;
        } else {
            let pieces = row.buffer.chunks_exact_mut(len).enumerate();
            let gets: Vec<_> = pieces.map(|(i, piece)| access.get(i * len, black_box(piece))).collect();
            gets.into_iter().try_for_each(windows::Get::wait)?;
        }
        access.flush().wait()?;
    }
    Ok(())
}

#[inline(never)]
fn accumulate(access: &Access<'_>, row: Row<'_>, n: u64) -> Result<(), Error> {
    let len = row.len();
    for _ in 0..n {
        for (i, piece) in row.buffer.chunks_exact(len).enumerate() {
            access.accumulate(i * len, black_box(piece), Op::Sum).wait()?;
        }
        access.flush().wait()?;
    }
    Ok(())
}

#[inline(never)]
fn fetch_and_op(access: &Access<'_>, row: Row<'_>, n: u64) -> Result<(), Error> {
    fetch(access, row, n, |place, _| access.fetch_and_op(place, 1, Op::Sum))
}

#[inline(never)]
fn compare_and_swap(access: &Access<'_>, row: Row<'_>, n: u64) -> Result<(), Error> {
    fetch(access, row, n, |place, expected| access.compare_and_swap(place, expected, expected.wrapping_add(1)))
}

/// Starts the operation on each word of the row, waits for all of them and flushes, `n` times. The buffer has what each
/// word is expected to be: wrong the first time at most, so that compare-swaps swap.
#[inline(always)]
fn fetch<'a>(
    access: &'a Access<'_>,
    row: Row<'_>,
    n: u64,
    start: impl Fn(usize, u64) -> Fetch<'a, u64, fabric::Any>,
) -> Result<(), Error> {
    let after = |expected, old: u64| if old == expected { old.wrapping_add(1) } else { old };
    if let [word] = &mut *row.buffer {
        let mut expected = *word; // in a register
        for _ in 0..n {
            expected = after(expected, start(0, expected).wait()?);
            access.flush().wait()?;
        }
        *word = expected;
        return Ok(());
    }
    for _ in 0..n {
        let fetches: Vec<_> = row.buffer.iter().enumerate().map(|(place, word)| start(place, *word)).collect();
        for (word, fetch) in row.buffer.iter_mut().zip(fetches) {
            *word = after(*word, fetch.wait()?);
        }
        access.flush().wait()?;
    }
    Ok(())
}

fn copy_in(rank: &RankOfBench, row: Row<'_>, n: u64) {
    // SAFETY: the bare memory has ROOM bytes, a row no more; it begins with a page; nobody else uses it.
    unsafe { bare::copy_in(rank.bytes(), row.buffer, row.pieces, n) }
}

fn copy_out(rank: &RankOfBench, row: Row<'_>, n: u64) {
    // SAFETY: as above.
    unsafe { bare::copy_out(row.buffer, rank.bytes(), row.pieces, n) }
}

fn add_each(rank: &RankOfBench, row: Row<'_>, n: u64) {
    // SAFETY: as above.
    unsafe { bare::add_each(rank.bytes(), row.buffer, n) }
}

fn fetch_add(rank: &RankOfBench, row: Row<'_>, n: u64) {
    bare::fetch_add(rank.word(1), n * row.pieces as u64);
}

fn compare_swap(rank: &RankOfBench, row: Row<'_>, n: u64) {
    bare::compare_swap(rank.word(1), n * row.pieces as u64);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_go_from_a_word_to_the_largest() {
        for effort in [Effort::Full, Effort::Quick] {
            let sizes: Vec<_> = sizes(effort).collect();
            assert_eq!((sizes[0], sizes[sizes.len() - 1]), (8, 4 << 20));
            assert!(sizes.iter().all(|size| size.is_power_of_two()), "{sizes:?}");
            assert!(sizes.is_sorted(), "{sizes:?}");
        }
    }
}
