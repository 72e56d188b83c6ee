//! The machine's own limits: loops over bare instructions. `benches/limits.c` has the same in C.
#![allow(unsafe_code)] // memcpy into shared memory

use std::ffi::{c_int, c_void};
use std::hint::{black_box, spin_loop};
use std::sync::atomic::{AtomicU64, Ordering, fence};

use onesided_fabric::shm::bare::{Range, process_vm_readv, process_vm_writev};

use crate::bench::worker::timing::poll_until;

/// The smallest lock: compare-and-swap to acquire it, a store to release it.
#[inline(never)]
pub(crate) fn cas_store(word: &AtomicU64, n: u64) {
    for _ in 0..n {
        while word.compare_exchange(0, 1, Ordering::Acquire, Ordering::Relaxed).is_err() {
            spin_loop();
        }
        word.store(0, Ordering::Release);
    }
}

/// The same with a compare-and-swap to release it, as robust locks need it.
#[inline(never)]
pub(crate) fn cas_cas(word: &AtomicU64, n: u64) {
    for _ in 0..n {
        while word.compare_exchange(0, 1, Ordering::Acquire, Ordering::Relaxed).is_err() {
            spin_loop();
        }
        let _ = word.compare_exchange(1, 0, Ordering::Release, Ordering::Relaxed);
    }
}

/// The smallest lock that counts readers: compare-and-swap to acquire it, an addition to release
/// it.
#[inline(never)]
pub(crate) fn cas_add(word: &AtomicU64, n: u64) {
    for _ in 0..n {
        while word.compare_exchange(0, 1, Ordering::Acquire, Ordering::Relaxed).is_err() {
            spin_loop();
        }
        word.fetch_sub(1, Ordering::Release);
    }
}

#[inline(never)]
pub(crate) fn fetch_add(word: &AtomicU64, n: u64) {
    // Without a use of the result, the compiler emits another instruction.
    let mut sum = 0_u64;
    for _ in 0..n {
        sum = sum.wrapping_add(word.fetch_add(1, Ordering::AcqRel));
    }
    black_box(sum);
}

#[inline(never)]
pub(crate) fn compare_swap(word: &AtomicU64, n: u64) {
    word.store(0, Ordering::Relaxed); // so that each compare-and-swap succeeds
    for i in 0..n {
        let _ = word.compare_exchange(i, i + 1, Ordering::AcqRel, Ordering::Acquire);
    }
}

#[inline(never)]
pub(crate) fn store(word: &AtomicU64, n: u64) {
    for i in 0..n {
        word.store(i, Ordering::Release);
    }
}

/// A store that is visible before any later access of this thread: what a flushed put promises.
#[inline(never)]
pub(crate) fn store_fence(word: &AtomicU64, n: u64) {
    for i in 0..n {
        word.swap(i, Ordering::SeqCst);
    }
}

/// One side of a ping-pong by stores: answers `n` times on `to` to what arrives on `from`. The side
/// with `first` begins.
#[inline(never)]
pub(crate) fn ping_pong(to: &AtomicU64, from: &AtomicU64, n: u64, first: bool) {
    for i in 1..=n {
        if first {
            to.store(i, Ordering::Release);
        }
        poll_until(1000, || from.load(Ordering::Acquire) >= i);
        if !first {
            to.store(i, Ordering::Release);
        }
    }
}

/// Acquires and releases a compare-and-swap lock until `stop` is `stopped`; returns how often.
/// Waiters yield after a hundred attempts.
#[inline(never)]
pub(crate) fn contend(word: &AtomicU64, stop: &AtomicU64, stopped: u64) -> u64 {
    let mut acquired = 0;
    while stop.load(Ordering::Relaxed) != stopped {
        poll_until(100, || word.compare_exchange(0, 1, Ordering::Acquire, Ordering::Relaxed).is_ok());
        word.store(0, Ordering::Release);
        acquired += 1;
    }
    acquired
}

/// `n` times: copies `from` to shared memory in `pieces` of equal length, then executes a full
/// fence if asked to.
///
/// # Safety
/// `to` is aligned to 8 and valid for writes of as many bytes as `from` has, which other threads
/// access only by atomic reads.
#[inline(never)]
pub(crate) unsafe fn copy_in(to: *mut u8, from: &[u64], (pieces, fence_it): (usize, bool), n: u64) {
    let len = from.len() / pieces;
    for _ in 0..n {
        let mut fenced = !fence_it;
        for (i, piece) in from.chunks_exact(len).enumerate() {
            // SAFETY: `to` is as long as `from`, so the address of piece i is in bounds.
            let destination = unsafe { to.cast::<u64>().add(i * len) };
            if let [value] = piece {
                // SAFETY: aligned because `to` is; the caller vouches that it is valid and accessed
                // by atomics alone.
                let word = unsafe { AtomicU64::from_ptr(destination) };
                if fence_it && i + 1 == pieces {
                    fenced = true;
                    word.swap(*value, Ordering::SeqCst); // cheaper than a store and a fence, as in `store_fence`
                } else {
                    word.store(*value, Ordering::Release);
                }
            } else {
                // SAFETY: the caller vouches for the destination, and `piece` is a live slice elsewhere.
                unsafe { std::ptr::copy_nonoverlapping(black_box(piece).as_ptr(), black_box(destination), len) };
            }
        }
        if !fenced {
            fence(Ordering::SeqCst);
        }
    }
}

/// `n` times: adds each word of `from` to the word at the same index in shared memory, atomically.
///
/// # Safety
/// `to` is aligned to 8 and valid for writes of as many bytes as `from` has, which other threads
/// access by atomics alone.
#[inline(never)]
pub(crate) unsafe fn add_each(to: *mut u8, from: &[u64], n: u64) {
    let mut sum = 0_u64; // as in `fetch_add`
    for _ in 0..n {
        for (i, value) in from.iter().enumerate() {
            // SAFETY: `to` is as long as `from`, so word i is in bounds.
            let address = unsafe { to.cast::<u64>().add(i) };
            // SAFETY: aligned because `to` is; the caller vouches that it is valid and accessed by
            // atomics alone.
            sum = sum.wrapping_add(unsafe { AtomicU64::from_ptr(address) }.fetch_add(*value, Ordering::AcqRel));
        }
    }
    black_box(sum);
}

/// `n` times: adds each word of `from` to the word at the same index in shared memory, atomically,
/// and writes the old values to `before`.
///
/// # Safety
/// As [`add_each`].
#[inline(never)]
pub(crate) unsafe fn fetch_each(to: *mut u8, from: &[u64], before: &mut [u64], n: u64) {
    for _ in 0..n {
        for (i, (value, before)) in from.iter().zip(&mut *before).enumerate() {
            // SAFETY: `to` is as long as `from`, so word i is in bounds.
            let address = unsafe { to.cast::<u64>().add(i) };
            // SAFETY: aligned because `to` is; the caller vouches that it is valid and accessed by
            // atomics alone.
            *before = unsafe { AtomicU64::from_ptr(address) }.fetch_add(*value, Ordering::AcqRel);
        }
        black_box(&mut *before);
    }
}

/// `n` times: stores the words of `from` to every second word of shared memory, then executes a
/// full fence.
///
/// # Safety
/// `to` is aligned to 8 and valid for writes of twice as many bytes as `from` has, which other
/// threads access by atomics alone.
#[inline(never)]
pub(crate) unsafe fn store_every_second(to: *mut u8, from: &[u64], n: u64) {
    for _ in 0..n {
        for (i, value) in black_box(from).iter().enumerate() {
            // SAFETY: `to` has twice as many words as `from`.
            let address = unsafe { to.cast::<u64>().add(2 * i) };
            // SAFETY: aligned because `to` is; the caller vouches that it is valid and accessed by
            // atomics alone.
            unsafe { AtomicU64::from_ptr(address) }.store(*value, Ordering::Release);
        }
        fence(Ordering::SeqCst);
    }
}

/// The ranges of a piece here and of its copy in another process.
fn ranges(piece: &mut [u64], to: u64) -> [Range; 2] {
    let len = size_of_val(piece);
    [Range { base: piece.as_mut_ptr().cast(), len }, Range { base: to as *mut c_void, len }]
}

/// Writes pieces to another process's memory, with one system call each.
///
/// # Safety
/// The process has as many bytes at the address, which no thread accesses during the call.
#[inline(never)]
pub(crate) unsafe fn write_there((pid, to): (u32, u64), from: &mut [u64], pieces: usize, n: u64) {
    let len = from.len() / pieces;
    for _ in 0..n {
        for (i, piece) in from.chunks_exact_mut(len).enumerate() {
            let [here, there] = ranges(piece, to + 8 * (i * len) as u64);
            // SAFETY: one range on each side; the kernel reads the local one, and the caller
            // vouches for the other.
            let written = unsafe { process_vm_writev(pid as c_int, &here, 1, &there, 1, 0) };
            assert_eq!(written, here.len as isize, "the other process keeps its memory");
        }
    }
}

/// Reads pieces from another process's memory, with one system call each.
///
/// # Safety
/// As [`write_there`].
#[inline(never)]
pub(crate) unsafe fn read_there((pid, from): (u32, u64), to: &mut [u64], pieces: usize, n: u64) {
    let len = to.len() / pieces;
    for _ in 0..n {
        for (i, piece) in to.chunks_exact_mut(len).enumerate() {
            let [here, there] = ranges(piece, from + 8 * (i * len) as u64);
            // SAFETY: one range on each side; the kernel writes the local one, which is exclusively
            // borrowed.
            let read = unsafe { process_vm_readv(pid as c_int, &here, 1, &there, 1, 0) };
            assert_eq!(read, here.len as isize, "the other process keeps its memory");
        }
    }
}

/// `n` times: copies shared memory to `to` in `pieces` of equal length, then executes a full fence
/// if asked to.
///
/// # Safety
/// `from` is aligned to 8 and valid for reads of as many bytes as `to` has, which no thread writes
/// during the call.
#[inline(never)]
pub(crate) unsafe fn copy_out(to: &mut [u64], from: *mut u8, (pieces, fenced): (usize, bool), n: u64) {
    let len = to.len() / pieces;
    for _ in 0..n {
        for (i, piece) in to.chunks_exact_mut(len).enumerate() {
            // SAFETY: `from` is as long as `to`, so the address of piece i is in bounds.
            let address = unsafe { from.cast::<u64>().add(i * len) };
            if let [word] = piece {
                // SAFETY: aligned because `from` is; the caller vouches that it is valid.
                *word = unsafe { AtomicU64::from_ptr(address) }.load(Ordering::Acquire);
                black_box(word);
            } else {
                // SAFETY: the caller vouches for the address, and `piece` is exclusively borrowed.
                unsafe { std::ptr::copy_nonoverlapping(black_box(address), black_box(piece).as_mut_ptr(), len) };
            }
        }
        if fenced {
            fence(Ordering::SeqCst);
        }
    }
}
