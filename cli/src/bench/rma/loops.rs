//! The timed loops. Each is a function of its own, so that the compiler optimizes it alone.

use std::hint::black_box;

use onesided_windows::handles::Fetch;
use onesided_windows::{Error, Op, Shape};

pub(crate) type Access<'w> = onesided_windows::Access<'w, u64, onesided_fabric::Any>;

/// The operations before one flush: local pieces of equal length, at equally distant displacements
/// in the window.
pub(crate) struct Row<'b> {
    pub(crate) buffer: &'b mut [u64],
    /// As long as the buffer, for small operations.
    pub(crate) results: &'b mut [u64],
    pub(crate) pieces: usize,
}

impl<'b> Row<'b> {
    /// A single piece.
    pub(crate) const fn of(buffer: &'b mut [u64]) -> Self {
        Self { buffer, results: &mut [], pieces: 1 }
    }

    /// The elements of a piece.
    fn len(&self) -> usize {
        self.buffer.len() / self.pieces
    }
}

/// A loop of so many rows, each with a flush if there is to be one.
pub(crate) type Loop = fn(&Access<'_>, Row<'_>, u64, bool) -> Result<(), Error>;

/// Does the same `n` times, each time with a flush after it if `flush`.
#[inline(always)] // into the loop of each operation
fn repeat(
    access: &Access<'_>,
    (n, flush): (u64, bool),
    mut operation: impl FnMut() -> Result<(), Error>,
) -> Result<(), Error> {
    for _ in 0..n {
        operation()?;
        if flush {
            access.flush().wait()?;
        }
    }
    Ok(())
}

#[inline(never)]
pub(crate) fn put(access: &Access<'_>, row: Row<'_>, n: u64, _: bool) -> Result<(), Error> {
    let len = row.len();
    repeat(access, (n, true), || {
        for (i, piece) in row.buffer.chunks_exact(len).enumerate() {
            access.put(i * len, black_box(piece))?;
        }
        Ok(())
    })
}

/// Puts to every second element of the window.
#[inline(never)]
pub(crate) fn strided_put(access: &Access<'_>, row: Row<'_>, n: u64, _: bool) -> Result<(), Error> {
    let len = row.len();
    let shape = Shape::Vector { count: len, block: 1, stride: 2 };
    repeat(access, (n, true), || {
        for (i, piece) in row.buffer.chunks_exact(len).enumerate() {
            access.put_shaped(2 * i * len, black_box(shape), black_box(piece)).wait()?;
        }
        Ok(())
    })
}

#[inline(never)]
pub(crate) fn get(access: &Access<'_>, row: Row<'_>, n: u64, flush: bool) -> Result<(), Error> {
    let len = row.len();
    repeat(access, (n, flush), || {
        if row.pieces == 1 {
            return access.get(0, black_box(&mut *row.buffer)).wait();
        }
        let pieces = row.buffer.chunks_exact_mut(len).enumerate();
        let gets: Vec<_> = pieces.map(|(i, piece)| access.get(i * len, black_box(piece))).collect();
        gets.into_iter().try_for_each(onesided_windows::handles::Get::wait)
    })
}

#[inline(never)]
pub(crate) fn accumulate(access: &Access<'_>, row: Row<'_>, n: u64, flush: bool) -> Result<(), Error> {
    let len = row.len();
    repeat(access, (n, flush), || {
        if row.pieces == 1 {
            return access.accumulate(0, black_box(&*row.buffer), Op::Sum).wait();
        }
        let pieces = row.buffer.chunks_exact(len).enumerate();
        let all: Vec<_> = pieces.map(|(i, piece)| access.accumulate(i * len, black_box(piece), Op::Sum)).collect();
        all.into_iter().try_for_each(onesided_windows::handles::Operation::wait)
    })
}

#[inline(never)]
pub(crate) fn get_accumulate(access: &Access<'_>, row: Row<'_>, n: u64, flush: bool) -> Result<(), Error> {
    let len = row.len();
    repeat(access, (n, flush), || {
        if row.pieces == 1 {
            return access.get_accumulate(0, black_box(&*row.buffer), black_box(&mut *row.results), Op::Sum).wait();
        }
        let pieces = row.buffer.chunks_exact(len).zip(row.results.chunks_exact_mut(len)).enumerate();
        let start = |(i, (piece, results))| access.get_accumulate(i * len, black_box(piece), results, Op::Sum);
        let all: Vec<_> = pieces.map(start).collect();
        all.into_iter().try_for_each(onesided_windows::handles::Operation::wait)
    })
}

#[inline(never)]
pub(crate) fn fetch_and_op(access: &Access<'_>, row: Row<'_>, n: u64, flush: bool) -> Result<(), Error> {
    fetch(access, row, (n, flush), |displacement, _| access.fetch_and_op(displacement, 1, Op::Sum))
}

#[inline(never)]
pub(crate) fn compare_and_swap(access: &Access<'_>, row: Row<'_>, n: u64, flush: bool) -> Result<(), Error> {
    fetch(access, row, (n, flush), |displacement, expected| {
        access.compare_and_swap(displacement, expected, expected.wrapping_add(1))
    })
}

/// `n` times: starts the operation on each word of the row, waits for all of them, and flushes. The
/// buffer has the expected value of each word. Only the first may be wrong, so that
/// compare-and-swaps succeed.
#[inline(always)]
fn fetch<'a>(
    access: &'a Access<'_>,
    row: Row<'_>,
    (n, flush): (u64, bool),
    start: impl Fn(usize, u64) -> Fetch<'a, u64, onesided_fabric::Any>,
) -> Result<(), Error> {
    let after = |expected, old: u64| if old == expected { old.wrapping_add(1) } else { old };
    if let [word] = &mut *row.buffer {
        let mut expected = *word; // in a register
        for _ in 0..n {
            expected = after(expected, start(0, expected).wait()?);
            if flush {
                access.flush().wait()?;
            }
        }
        *word = expected;
        return Ok(());
    }
    repeat(access, (n, flush), || {
        let fetches: Vec<_> = row.buffer.iter().enumerate().map(|(at, word)| start(at, *word)).collect();
        for (word, fetch) in row.buffer.iter_mut().zip(fetches) {
            *word = after(*word, fetch.wait()?);
        }
        Ok(())
    })
}
