//! The limits: the same rows by bare instructions, with a full fence where there is a flush.
#![allow(unsafe_code)] // the bare memory, for memcpy

use std::sync::atomic::Ordering;

use crate::bench::bare;
use crate::bench::rank::RankOfBench;
use crate::bench::sweep::loops::Row;

pub(super) fn copy_in(rank: &RankOfBench, row: Row<'_>, n: u64, fenced: bool) {
    // SAFETY: the bare memory has ROOM bytes, a row no more; it begins with a page; nobody else uses it.
    unsafe { bare::copy_in(rank.bytes(), row.buffer, (row.pieces, fenced), n) }
}

pub(super) fn copy_out(rank: &RankOfBench, row: Row<'_>, n: u64, fenced: bool) {
    // SAFETY: as above.
    unsafe { bare::copy_out(row.buffer, rank.bytes(), (row.pieces, fenced), n) }
}

pub(super) fn strided(rank: &RankOfBench, row: Row<'_>, n: u64, _: bool) {
    // SAFETY: as above; a row of strided pieces has half as many elements as there is room for.
    unsafe { bare::store_every_second(rank.bytes(), row.buffer, n) }
}

pub(super) fn add_each(rank: &RankOfBench, row: Row<'_>, n: u64, _: bool) {
    // SAFETY: as in `copy_in`.
    unsafe { bare::add_each(rank.bytes(), row.buffer, n) }
}

pub(super) fn fetch_each(rank: &RankOfBench, row: Row<'_>, n: u64, _: bool) {
    // SAFETY: as in `copy_in`.
    unsafe { bare::fetch_each(rank.bytes(), row.buffer, row.results, n) }
}

pub(super) fn fetch_add(rank: &RankOfBench, row: Row<'_>, n: u64, _: bool) {
    bare::fetch_add(rank.word(1), n * row.pieces as u64);
}

pub(super) fn compare_swap(rank: &RankOfBench, row: Row<'_>, n: u64, _: bool) {
    bare::compare_swap(rank.word(1), n * row.pieces as u64);
}

/// The words in which the target tells its process and where its plain memory lies.
const TOLD: [u64; 2] = [2, 3];

/// Tells the others where the target's plain memory lies, if this is the target's and there is some.
pub(super) fn tell(rank: &RankOfBench, plain: &mut [u64]) {
    if !plain.is_empty() {
        rank.word(TOLD[0]).store(std::process::id().into(), Ordering::Relaxed);
        rank.word(TOLD[1]).store(plain.as_mut_ptr() as u64, Ordering::Relaxed);
    }
}

/// Process and address of the target's plain memory.
fn there(rank: &RankOfBench) -> (u32, u64) {
    let [pid, address] = TOLD.map(|number| rank.word(number).load(Ordering::Relaxed));
    (pid as u32, address)
}

pub(super) fn write_there(rank: &RankOfBench, row: Row<'_>, n: u64, _: bool) {
    // SAFETY: as much room as for any row, which its owner keeps and does not touch until the window has been closed.
    unsafe { bare::write_there(there(rank), row.buffer, row.pieces, n) }
}

pub(super) fn read_there(rank: &RankOfBench, row: Row<'_>, n: u64, _: bool) {
    // SAFETY: as above.
    unsafe { bare::read_there(there(rank), row.buffer, row.pieces, n) }
}
