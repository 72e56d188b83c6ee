//! The machine's own limits: loops over bare instructions. `benches/limits.c` has the same in C.
#![allow(unsafe_code)] // memcpy into shared memory

use std::ffi::{c_int, c_void};
use std::hint::{black_box, spin_loop};
use std::sync::atomic::{AtomicU64, Ordering, fence};

use onesided_fabric::shm::bare::{Range, process_vm_readv, process_vm_writev};

/// The smallest lock there is: compare-swap to take it, store to free it.
#[inline(never)]
pub(crate) fn cas_store(word: &AtomicU64, n: u64) {
    for _ in 0..n {
        while word.compare_exchange(0, 1, Ordering::Acquire, Ordering::Relaxed).is_err() {
            spin_loop();
        }
        word.store(0, Ordering::Release);
    }
}

/// The same with a compare-swap to free it, as locks that can be taken away need it.
#[inline(never)]
pub(crate) fn cas_cas(word: &AtomicU64, n: u64) {
    for _ in 0..n {
        while word.compare_exchange(0, 1, Ordering::Acquire, Ordering::Relaxed).is_err() {
            spin_loop();
        }
        let _ = word.compare_exchange(1, 0, Ordering::Release, Ordering::Relaxed);
    }
}

/// The smallest lock that counts readers: compare-swap to take it, an addition to free it.
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
    // A sum, for a value that nobody uses makes it another instruction.
    let mut sum = 0_u64;
    for _ in 0..n {
        sum = sum.wrapping_add(word.fetch_add(1, Ordering::AcqRel));
    }
    black_box(sum);
}

#[inline(never)]
pub(crate) fn compare_swap(word: &AtomicU64, n: u64) {
    word.store(0, Ordering::Relaxed); // whoever used it before: each is to succeed
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

/// A store that is seen by whoever's later store is not: what a flushed put promises.
#[inline(never)]
pub(crate) fn store_fence(word: &AtomicU64, n: u64) {
    for i in 0..n {
        word.swap(i, Ordering::SeqCst);
    }
}

/// One side of a ping-pong by stores: answers `n` times on `to` what arrives on `from`. `first` begins.
#[inline(never)]
pub(crate) fn ping_pong(to: &AtomicU64, from: &AtomicU64, n: u64, first: bool) {
    for i in 1..=n {
        if first {
            to.store(i, Ordering::Release);
        }
        let mut looks = 0;
        while from.load(Ordering::Acquire) < i {
            looks += 1;
            if looks % 1000 == 0 {
                std::thread::yield_now(); // both may have to share one core
            } else {
                spin_loop();
            }
        }
        if !first {
            to.store(i, Ordering::Release);
        }
    }
}

/// How often a lock by compare-swap was acquired until `stop`: spins, and yields after a hundred attempts.
#[inline(never)]
pub(crate) fn contend(word: &AtomicU64, stop: &AtomicU64, stopped: u64) -> u64 {
    let mut acquired = 0;
    while stop.load(Ordering::Relaxed) != stopped {
        let mut attempts = 0;
        while word.compare_exchange(0, 1, Ordering::Acquire, Ordering::Relaxed).is_err() {
            attempts += 1;
            if attempts % 100 == 0 {
                std::thread::yield_now();
            } else {
                spin_loop();
            }
        }
        word.store(0, Ordering::Release);
        acquired += 1;
    }
    acquired
}

/// # Safety
/// `to` is valid for writes of `from.len()` bytes, which nobody else uses meanwhile.
#[inline(never)]
pub(crate) unsafe fn memcpy_in(to: *mut u8, from: &[u8], n: u64) {
    for _ in 0..n {
        // SAFETY: the caller vouches for `to`; `from` is a live slice elsewhere.
        unsafe { std::ptr::copy_nonoverlapping(black_box(from).as_ptr(), black_box(to), from.len()) };
    }
}

/// # Safety
/// `from` is valid for reads of `to.len()` bytes, which nobody writes meanwhile.
#[inline(never)]
pub(crate) unsafe fn memcpy_out(to: &mut [u8], from: *const u8, n: u64) {
    for _ in 0..n {
        // SAFETY: the caller vouches for `from`; `to` is exclusively borrowed.
        unsafe { std::ptr::copy_nonoverlapping(black_box(from), black_box(&mut *to).as_mut_ptr(), to.len()) };
    }
}

/// `n` times: a row of `pieces` of `from`, all as long, copied to shared memory one by one, then a full fence if there is
/// to be one.
///
/// # Safety
/// `to` is aligned to 8 and valid for writes of as many bytes as `from` has, which others at most read by atomics.
#[inline(never)]
pub(crate) unsafe fn copy_in(to: *mut u8, from: &[u64], (pieces, fence_it): (usize, bool), n: u64) {
    let len = from.len() / pieces;
    for _ in 0..n {
        let mut fenced = !fence_it;
        for (i, piece) in from.chunks_exact(len).enumerate() {
            // SAFETY: piece i of `from` has its place in `to`, which is as long.
            let place = unsafe { to.cast::<u64>().add(i * len) };
            if let [value] = piece {
                // SAFETY: aligned, for `to` is; valid by the caller's word, and used by atomics alone.
                let word = unsafe { AtomicU64::from_ptr(place) };
                if fence_it && i + 1 == pieces {
                    fenced = true;
                    word.swap(*value, Ordering::SeqCst); // as `store_fence`: cheaper than a store and a fence
                } else {
                    word.store(*value, Ordering::Release);
                }
            } else {
                // SAFETY: as in `memcpy_in`, for this piece.
                unsafe { std::ptr::copy_nonoverlapping(black_box(piece).as_ptr(), black_box(place), len) };
            }
        }
        if !fenced {
            fence(Ordering::SeqCst);
        }
    }
}

/// `n` times: each word of `from` added to its place in shared memory, atomically.
///
/// # Safety
/// `to` is aligned to 8 and valid for writes of as many bytes as `from` has, which others use by atomics alone.
#[inline(never)]
pub(crate) unsafe fn add_each(to: *mut u8, from: &[u64], n: u64) {
    let mut sum = 0_u64; // as in `fetch_add`
    for _ in 0..n {
        for (i, value) in from.iter().enumerate() {
            // SAFETY: word i of `from` has its place in `to`, which is as long.
            let place = unsafe { to.cast::<u64>().add(i) };
            // SAFETY: aligned, for `to` is; valid by the caller's word, and used by atomics alone.
            sum = sum.wrapping_add(unsafe { AtomicU64::from_ptr(place) }.fetch_add(*value, Ordering::AcqRel));
        }
    }
    black_box(sum);
}

/// `n` times: each word of `from` added to its place in shared memory, atomically, and what was there before into `before`.
///
/// # Safety
/// As [`add_each`].
#[inline(never)]
pub(crate) unsafe fn fetch_each(to: *mut u8, from: &[u64], before: &mut [u64], n: u64) {
    for _ in 0..n {
        for (i, (value, before)) in from.iter().zip(&mut *before).enumerate() {
            // SAFETY: word i of `from` has its place in `to`, which is as long.
            let place = unsafe { to.cast::<u64>().add(i) };
            // SAFETY: aligned, for `to` is; valid by the caller's word, and used by atomics alone.
            *before = unsafe { AtomicU64::from_ptr(place) }.fetch_add(*value, Ordering::AcqRel);
        }
        black_box(&mut *before);
    }
}

/// `n` times: each word of `from` stored to every second word of shared memory, then a full fence.
///
/// # Safety
/// `to` is aligned to 8 and valid for writes of twice as many bytes as `from` has, which others use by atomics alone.
#[inline(never)]
pub(crate) unsafe fn store_every_second(to: *mut u8, from: &[u64], n: u64) {
    for _ in 0..n {
        for (i, value) in black_box(from).iter().enumerate() {
            // SAFETY: twice as many words as `from` has lie behind `to`.
            let place = unsafe { to.cast::<u64>().add(2 * i) };
            // SAFETY: aligned, for `to` is; valid by the caller's word, and used by atomics alone.
            unsafe { AtomicU64::from_ptr(place) }.store(*value, Ordering::Release);
        }
        fence(Ordering::SeqCst);
    }
}

/// A piece here, and its place in another process.
fn ranges(piece: &mut [u64], to: u64) -> [Range; 2] {
    let len = size_of_val(piece);
    [Range { base: piece.as_mut_ptr().cast(), len }, Range { base: to as *mut c_void, len }]
}

/// Writes pieces into another process's memory, with a call of the kernel's each.
///
/// # Safety
/// The process has as many bytes at the address, which nobody uses meanwhile.
#[inline(never)]
pub(crate) unsafe fn write_there((pid, to): (u32, u64), from: &mut [u64], pieces: usize, n: u64) {
    let len = from.len() / pieces;
    for _ in 0..n {
        for (i, piece) in from.chunks_exact_mut(len).enumerate() {
            let [here, there] = ranges(piece, to + 8 * (i * len) as u64);
            // SAFETY: one range each; the kernel reads the one here, and the caller vouches for the other.
            let written = unsafe { process_vm_writev(pid as c_int, &here, 1, &there, 1, 0) };
            assert_eq!(written, here.len as isize, "the other process keeps its memory");
        }
    }
}

/// [`write_there`] the other way.
///
/// # Safety
/// As [`write_there`].
#[inline(never)]
pub(crate) unsafe fn read_there((pid, from): (u32, u64), to: &mut [u64], pieces: usize, n: u64) {
    let len = to.len() / pieces;
    for _ in 0..n {
        for (i, piece) in to.chunks_exact_mut(len).enumerate() {
            let [here, there] = ranges(piece, from + 8 * (i * len) as u64);
            // SAFETY: one range each; the kernel writes the one here, which is borrowed for that.
            let read = unsafe { process_vm_readv(pid as c_int, &here, 1, &there, 1, 0) };
            assert_eq!(read, here.len as isize, "the other process keeps its memory");
        }
    }
}

/// [`copy_in`] the other way.
///
/// # Safety
/// `from` is aligned to 8 and valid for reads of as many bytes as `to` has, which nobody writes meanwhile.
#[inline(never)]
pub(crate) unsafe fn copy_out(to: &mut [u64], from: *mut u8, (pieces, fenced): (usize, bool), n: u64) {
    let len = to.len() / pieces;
    for _ in 0..n {
        for (i, piece) in to.chunks_exact_mut(len).enumerate() {
            // SAFETY: piece i of `to` has its place in `from`, which is as long.
            let place = unsafe { from.cast::<u64>().add(i * len) };
            if let [word] = piece {
                // SAFETY: aligned, for `from` is; valid by the caller's word.
                *word = unsafe { AtomicU64::from_ptr(place) }.load(Ordering::Acquire);
                black_box(word);
            } else {
                // SAFETY: as in `memcpy_out`, for this piece.
                unsafe { std::ptr::copy_nonoverlapping(black_box(place), black_box(piece).as_mut_ptr(), len) };
            }
        }
        if fenced {
            fence(Ordering::SeqCst);
        }
    }
}
