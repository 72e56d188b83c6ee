//! The limits: the same rows by bare instructions, with a full fence for a flush.
#![allow(unsafe_code)] // memcpy to and from bare memory

use std::sync::atomic::Ordering;

use crate::bench::baselines::bare;
use crate::bench::rma::loops::Row;
use crate::bench::worker::rank::BenchRank;

/// A loop of so many rows, each with a fence if there is to be one.
pub(crate) type Bare = fn(&BenchRank, Row<'_>, u64, bool);

pub(crate) fn copy_in(rank: &BenchRank, row: Row<'_>, n: u64, fenced: bool) {
    // SAFETY: the transfer area has TRANSFER_AREA bytes, and a row has no more; it is page-aligned;
    // no other rank accesses it now.
    unsafe { bare::copy_in(rank.transfer_area(), row.buffer, (row.pieces, fenced), n) }
}

pub(crate) fn copy_out(rank: &BenchRank, row: Row<'_>, n: u64, fenced: bool) {
    // SAFETY: as above.
    unsafe { bare::copy_out(row.buffer, rank.transfer_area(), (row.pieces, fenced), n) }
}

pub(super) fn strided(rank: &BenchRank, row: Row<'_>, n: u64, _: bool) {
    // SAFETY: as above; a row of strided pieces has at most half as many elements as the transfer
    // area.
    unsafe { bare::store_every_second(rank.transfer_area(), row.buffer, n) }
}

pub(super) fn add_each(rank: &BenchRank, row: Row<'_>, n: u64, _: bool) {
    // SAFETY: as in `copy_in`.
    unsafe { bare::add_each(rank.transfer_area(), row.buffer, n) }
}

pub(super) fn fetch_each(rank: &BenchRank, row: Row<'_>, n: u64, _: bool) {
    // SAFETY: as in `copy_in`.
    unsafe { bare::fetch_each(rank.transfer_area(), row.buffer, row.results, n) }
}

pub(super) fn fetch_add(rank: &BenchRank, row: Row<'_>, n: u64, _: bool) {
    bare::fetch_add(rank.word(1), n * row.pieces as u64);
}

pub(super) fn compare_swap(rank: &BenchRank, row: Row<'_>, n: u64, _: bool) {
    bare::compare_swap(rank.word(1), n * row.pieces as u64);
}

/// The bare words of the target's process id and of the address of its plain memory.
const PLAIN: [u64; 2] = [2, 3];

/// Publishes the address of the target's plain memory. Other ranks pass an empty slice.
pub(super) fn publish(rank: &BenchRank, plain: &mut [u64]) {
    if !plain.is_empty() {
        rank.word(PLAIN[0]).store(std::process::id().into(), Ordering::Relaxed);
        rank.word(PLAIN[1]).store(plain.as_mut_ptr() as u64, Ordering::Relaxed);
    }
}

/// The process id of the target and the address of its plain memory.
fn plain_of_target(rank: &BenchRank) -> (u32, u64) {
    let [pid, address] = PLAIN.map(|number| rank.word(number).load(Ordering::Relaxed));
    (pid as u32, address)
}

pub(super) fn write_there(rank: &BenchRank, row: Row<'_>, n: u64, _: bool) {
    // SAFETY: the plain memory is as large as any row; its owner keeps it and does not access it
    // until the window is closed.
    unsafe { bare::write_there(plain_of_target(rank), row.buffer, row.pieces, n) }
}

pub(super) fn read_there(rank: &BenchRank, row: Row<'_>, n: u64, _: bool) {
    // SAFETY: as above.
    unsafe { bare::read_there(plain_of_target(rank), row.buffer, row.pieces, n) }
}
