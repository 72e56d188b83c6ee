//! Copies between private memory and memory that others read and write at the same time.
//!
//! A plain `memcpy` of such bytes is a data race, which is undefined behaviour on any hardware. On
//! x86-64 the copies here are inline assembly: the compiler knows only that they read one range and
//! write the other, and the processor defines racing byte moves (each byte is one that was written;
//! Intel SDM volume 3A, 9.2: no out-of-thin-air values). They mean the same as a loop of relaxed
//! byte atomics, which is what miri and every other architecture run.
//!
//! A copy of 8 aligned bytes is one atomic access, so a word is never seen half written. A copy
//! into shared memory is a release, and a copy out of it an acquire: a rank that reads a flag and
//! then the data that it announces sees the data written before the flag. On x86-64 this constrains
//! the compiler alone.
//!
//! Measured against memcpy on x86-64: 16-byte moves are the fastest sound copy up to about 1 KiB,
//! and `rep movsb` beyond that, within a few percent of memcpy from 4 KiB up. Relaxed 8-byte lanes
//! reach a third of either. A processor without fast `rep movsb` (ERMSB) uses 16-byte moves
//! throughout.
#![allow(unsafe_code)] // raw pointers into shared memory

use std::sync::atomic::{AtomicU64, Ordering, fence};

/// From this size up, the string instruction amortises its start-up cost.
#[cfg(all(target_arch = "x86_64", not(miri)))]
const STRING_MOVE: usize = 1024;

/// Copies private bytes into shared memory.
///
/// # Safety
/// `to` is valid for writes of `from.len()` bytes. Others access them only by atomics or by this
/// module's copies.
#[inline]
pub unsafe fn into_shared(to: *mut u8, from: &[u8]) {
    if let (true, Ok(word)) = (to.addr().is_multiple_of(8), <[u8; 8]>::try_from(from)) {
        // SAFETY: the caller vouches for 8 bytes, just found aligned.
        let to = unsafe { AtomicU64::from_ptr(to.cast()) };
        to.store(u64::from_ne_bytes(word), Ordering::Release);
    } else {
        fence(Ordering::Release);
        // SAFETY: the caller vouches for `to`; `from` is a live shared slice, so it is not written.
        unsafe { copy(to, from.as_ptr(), from.len()) };
    }
}

/// Copies shared memory into private bytes.
///
/// # Safety
/// `from` is valid for reads of `to.len()` bytes. Others access them only by atomics or by this
/// module's copies.
#[inline(always)] // a copied word is cheaper than a call
pub unsafe fn out_of_shared(to: &mut [u8], from: *const u8) {
    if let (true, Ok(word)) = (from.addr().is_multiple_of(8), <&mut [u8; 8]>::try_from(&mut *to)) {
        // SAFETY: the caller vouches for 8 bytes, just found aligned; a load writes nothing, so the
        // cast is harmless.
        let from = unsafe { AtomicU64::from_ptr(from.cast_mut().cast()) };
        *word = from.load(Ordering::Acquire).to_ne_bytes();
    } else {
        // SAFETY: the caller vouches for `from`; `to` is exclusively borrowed.
        unsafe { copy(to.as_mut_ptr(), from, to.len()) };
        fence(Ordering::Acquire);
    }
}

/// Copies between two ranges that may both be shared. They must not overlap.
///
/// # Safety
/// Both are valid for `len` bytes. Others access shared bytes only by atomics or by this module's
/// copies.
#[cfg(all(target_arch = "x86_64", not(miri)))]
#[inline]
pub unsafe fn copy(to: *mut u8, from: *const u8, len: usize) {
    use std::arch::asm;
    /// Two moves of one width that overlap in the middle.
    macro_rules! both_ends {
        ($move:literal, $class:ident, $format:literal, $width:literal) => {
            // SAFETY: len is at least the width, so both moves stay inside ranges that the caller
            // vouches for. Both loads come before both stores.
            unsafe {
                asm!(
                    concat!($move, " {a", $format, "}, [{from}]"),
                    concat!($move, " {b", $format, "}, [{from} + {len} - ", $width, "]"),
                    concat!($move, " [{to}], {a", $format, "}"),
                    concat!($move, " [{to} + {len} - ", $width, "], {b", $format, "}"),
                    a = out($class) _, b = out($class) _, from = in(reg) from, to = in(reg) to, len = in(reg) len,
                    options(nostack, preserves_flags),
                )
            }
        };
    }
    match len {
        0 => {}
        // SAFETY: one byte that the caller vouches for.
        1 => unsafe {
            asm!("mov {a}, [{from}]", "mov [{to}], {a}", a = out(reg_byte) _, from = in(reg) from, to = in(reg) to,
                options(nostack, preserves_flags));
        },
        2..4 => both_ends!("mov", reg, ":x", "2"),
        4..8 => both_ends!("mov", reg, ":e", "4"),
        8..16 => both_ends!("mov", reg, "", "8"),
        16..32 => both_ends!("movdqu", xmm_reg, "", "16"),
        // SAFETY: `rep movsb` moves `len` bytes between ranges that the caller vouches for; the ABI
        // keeps the direction flag clear.
        STRING_MOVE.. if std::is_x86_feature_detected!("ermsb") => unsafe {
            asm!("rep movsb", inout("rcx") len => _, inout("rdi") to => _, inout("rsi") from => _,
                options(nostack, preserves_flags));
        },
        _ => {
            // SAFETY: the loop moves 32 bytes at offsets 0, 32, … below len - 32, then the last 32
            // bytes: every access lies in ranges that the caller vouches for.
            unsafe {
                asm!(
                    "2:",
                    "movdqu {a}, [{from} + {at}]",
                    "movdqu {b}, [{from} + {at} + 16]",
                    "movdqu [{to} + {at}], {a}",
                    "movdqu [{to} + {at} + 16], {b}",
                    "add {at}, 32",
                    "cmp {at}, {last}",
                    "jb 2b",
                    "movdqu {a}, [{from} + {last}]",
                    "movdqu {b}, [{from} + {last} + 16]",
                    "movdqu [{to} + {last}], {a}",
                    "movdqu [{to} + {last} + 16], {b}",
                    a = out(xmm_reg) _, b = out(xmm_reg) _, at = inout(reg) 0_usize => _,
                    from = in(reg) from, to = in(reg) to, last = in(reg) len - 32,
                    options(nostack),
                );
            }
        }
    }
}

/// Copies between two ranges that may both be shared. They must not overlap.
///
/// # Safety
/// Both are valid for `len` bytes. Others access shared bytes only by atomics or by this module's
/// copies.
#[cfg(any(not(target_arch = "x86_64"), miri))]
pub unsafe fn copy(to: *mut u8, from: *const u8, len: usize) {
    use std::sync::atomic::AtomicU8;
    let mut at = 0;
    while at < len {
        // SAFETY: at < len, inside the range that the caller vouches for.
        let (to, from) = unsafe { (to.add(at), from.add(at).cast_mut()) };
        if to.addr() % 8 == 0 && from.addr() % 8 == 0 && len - at >= 8 {
            // SAFETY: 8 aligned bytes inside the ranges; the source is only loaded from.
            let (to, from) = unsafe { (AtomicU64::from_ptr(to.cast()), AtomicU64::from_ptr(from.cast())) };
            to.store(from.load(Ordering::Relaxed), Ordering::Relaxed);
            at += 8;
        } else {
            // SAFETY: one byte inside the ranges; the source is only loaded from.
            let (to, from) = unsafe { (AtomicU8::from_ptr(to), AtomicU8::from_ptr(from)) };
            to.store(from.load(Ordering::Relaxed), Ordering::Relaxed);
            at += 1;
        }
    }
}

/// Zeroes shared memory.
///
/// # Safety
/// `to` is valid for writes of `len` bytes. Others access them only by atomics or by this module's
/// copies.
pub unsafe fn zero(to: *mut u8, len: usize) {
    #[cfg(all(target_arch = "x86_64", not(miri)))]
    // SAFETY: `rep stosb` writes `len` bytes of a range that the caller vouches for; the ABI keeps
    // the direction flag clear.
    unsafe {
        std::arch::asm!("rep stosb", inout("rcx") len => _, inout("rdi") to => _, in("al") 0_u8,
            options(nostack, preserves_flags));
    }
    #[cfg(any(not(target_arch = "x86_64"), miri))]
    {
        const NOTHING: [u8; 4096] = [0; 4096];
        let mut at = 0;
        while at < len {
            let piece = NOTHING.len().min(len - at);
            // SAFETY: at < len, inside the range that the caller vouches for.
            let to = unsafe { to.add(at) };
            // SAFETY: at + piece <= len; the source is a constant.
            unsafe { copy(to, NOTHING.as_ptr(), piece) };
            at += piece;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn copies_every_size_and_alignment_and_nothing_beside() {
        let source: Vec<u8> = (0..5000_u32).map(|i| (i * 7 + i / 256) as u8 | 1).collect();
        for len in (0..=130).chain([255, 256, 257, 1023, 1024, 1025, 4096, 4099]) {
            for (left, right) in [(0, 0), (1, 0), (0, 3), (5, 5), (8, 16)] {
                let mut there = vec![0; len + 32];
                // SAFETY: `there` has right + len + at least 16 bytes, and only this thread
                // accesses it.
                unsafe { into_shared(there[right..].as_mut_ptr(), &source[left..left + len]) };
                assert_eq!(there[right..right + len], source[left..left + len], "len {len}");
                assert!(there[..right].iter().chain(&there[right + len..]).all(|byte| *byte == 0), "len {len}");
                let mut back = vec![0; len];
                // SAFETY: as above.
                unsafe { out_of_shared(&mut back, there[right..].as_ptr()) };
                assert_eq!(back, source[left..left + len], "len {len}");
            }
        }
    }
    #[test]
    fn zeroes_what_it_shall_and_nothing_beside() {
        for len in [0, 1, 7, 8, 63, 4096, 10_000] {
            let mut there = vec![1_u8; len + 16];
            // SAFETY: `there` has 8 + len + 8 bytes, and only this thread accesses it.
            unsafe { zero(there[8..].as_mut_ptr(), len) };
            let (before, rest) = there.split_at(8);
            assert!(before.iter().chain(&rest[len..]).all(|byte| *byte == 1), "len {len}");
            assert!(rest[..len].iter().all(|byte| *byte == 0), "len {len}");
        }
    }
}
