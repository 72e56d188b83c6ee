//! Copies between private memory and memory that others read and write at the same time.
//!
//! A plain `memcpy` of such bytes is a data race, which is undefined behaviour on any hardware. So
//! is a race between atomic accesses of different sizes. The copies here are neither:
//!
//! - *On x86-64* they are inline assembly. To the compiler a block is opaque: it reads one range
//!   and writes the other. Its accesses are no accesses of Rust code, but those of an agent outside
//!   of the program, like a network card or another process, and race with Rust's atomics as theirs
//!   do: the processor defines the result. Each byte that arrives is one that was written (Intel
//!   SDM volume 3A, 9.2: no out-of-thin-air values).
//! - *On every other architecture, aarch64 among them, and under miri* they are `lanes`: relaxed
//!   atomic accesses of whole aligned words, the one size by which Rust code accesses bytes that
//!   are copied. A part of a word is taken out of the loaded word, and changed by
//!   compare-and-swaps, which leave its other bytes to their writers. So no two sizes race, and no
//!   architecture needs a proof of its own.
//!
//! A copy of 8 aligned bytes is one atomic access, so a word is never seen half written. A copy
//! into shared memory is a release, and a copy out of it an acquire: a rank that reads a flag and
//! then the data that it announces sees the data written before the flag. On x86-64 this constrains
//! the compiler alone.
//!
//! Measured against memcpy on x86-64: 16-byte moves are the fastest sound copy of few bytes, 32-byte ones
//! up to 4 KiB, and `rep movsb` beyond that, within a few percent of memcpy. Relaxed 8-byte lanes
//! reach a third of either. A processor without 32-byte registers (AVX) uses `rep movsb` from 1 KiB on; one
//! without fast `rep movsb` (ERMSB) uses 16-byte moves instead, and so does a copy that an AMD processor
//! does slowly by it.
#![allow(unsafe_code)] // raw pointers into shared memory

use std::sync::atomic::{AtomicU64, Ordering, fence};

/// From this size up, the string instruction amortises its start-up cost against 16-byte moves.
#[cfg(all(target_arch = "x86_64", not(miri)))]
const STRING_MOVE: usize = 1024;

/// From this size up, 32-byte moves are faster than 16-byte ones, and up to that one than the string
/// instruction: streams of messages of 2 KiB between two cores gained an eighth.
#[cfg(all(target_arch = "x86_64", not(miri)))]
const WIDE_MOVES: std::ops::Range<usize> = 256..4096;

/// Whether `rep movsb` takes ten to twenty times as long: on AMD Zen 3 and 4 it does if the
/// destination is at a little higher offset in its page than the source (glibc bug 30994). A vector
/// is, as a rule: it begins 16 bytes into its page, a window at its start.
#[cfg(all(target_arch = "x86_64", not(miri)))]
#[inline]
fn is_slow_string(to: *mut u8, from: *const u8) -> bool {
    matches!(to.addr().wrapping_sub(from.addr()) % 4096, 1..64)
}

/// Copies private bytes into shared memory.
///
/// # Safety
/// The aligned words that contain the `from.len()` bytes at `to` are valid for reads and writes.
/// Others access them only by atomics of whole words or by this module's copies.
#[inline]
pub unsafe fn into_shared(to: *mut u8, from: &[u8]) {
    if let (true, Ok(word)) = (to.addr().is_multiple_of(8), <[u8; 8]>::try_from(from)) {
        // SAFETY: the caller vouches for 8 bytes, just found aligned.
        let to = unsafe { AtomicU64::from_ptr(to.cast()) };
        to.store(u64::from_ne_bytes(word), Ordering::Release);
    } else {
        fence(Ordering::Release);
        #[cfg(all(target_arch = "x86_64", not(miri)))]
        // SAFETY: the caller vouches for `to`; `from` is a live shared slice, so it is not written.
        unsafe {
            copy(to, from.as_ptr(), from.len());
        }
        #[cfg(any(not(target_arch = "x86_64"), miri))]
        // SAFETY: the caller's promise is the same.
        unsafe {
            lanes::into_shared(to, from);
        }
    }
}

/// Copies shared memory into private bytes.
///
/// # Safety
/// The aligned words that contain the `to.len()` bytes at `from` are valid for reads. Others access
/// them only by atomics of whole words or by this module's copies.
#[inline(always)] // a copied word is cheaper than a call
pub unsafe fn out_of_shared(to: &mut [u8], from: *const u8) {
    if let (true, Ok(word)) = (from.addr().is_multiple_of(8), <&mut [u8; 8]>::try_from(&mut *to)) {
        // SAFETY: the caller vouches for 8 bytes, just found aligned; a load writes nothing, so the
        // cast is harmless.
        let from = unsafe { AtomicU64::from_ptr(from.cast_mut().cast()) };
        *word = from.load(Ordering::Acquire).to_ne_bytes();
    } else {
        #[cfg(all(target_arch = "x86_64", not(miri)))]
        // SAFETY: the caller vouches for `from`; `to` is exclusively borrowed.
        unsafe {
            copy(to.as_mut_ptr(), from, to.len());
        }
        #[cfg(any(not(target_arch = "x86_64"), miri))]
        // SAFETY: the caller's promise is the same.
        unsafe {
            lanes::out_of_shared(to, from);
        }
        fence(Ordering::Acquire);
    }
}

/// Copies between two ranges of shared memory. Where they overlap, a byte arrives that was there
/// before the copy, or one that the copy has written.
///
/// # Safety
/// For each range as [`into_shared`] and [`out_of_shared`].
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
        // SAFETY: the processor has the registers. The first 32 bytes move, then 64 each from the first
        // multiple of 32 behind `to` on (stores that cross cache lines take longer) up to below len - 64,
        // then the last 64: every access lies in ranges that the caller vouches for.
        len if WIDE_MOVES.contains(&len) && std::is_x86_feature_detected!("avx") => unsafe {
            asm!(
                "vmovdqu ymm0, [{from}]",
                "vmovdqu [{to}], ymm0",
                "2:",
                "vmovdqu ymm0, [{from} + {at}]",
                "vmovdqu ymm1, [{from} + {at} + 32]",
                "vmovdqu [{to} + {at}], ymm0",
                "vmovdqu [{to} + {at} + 32], ymm1",
                "add {at}, 64",
                "cmp {at}, {last}",
                "jb 2b",
                "vmovdqu ymm0, [{from} + {last}]",
                "vmovdqu ymm1, [{from} + {last} + 32]",
                "vmovdqu [{to} + {last}], ymm0",
                "vmovdqu [{to} + {last} + 32], ymm1",
                "vzeroupper",
                at = inout(reg) 32 - to.addr() % 32 => _, from = in(reg) from, to = in(reg) to, last = in(reg) len - 64,
                // `vzeroupper` clears the upper halves of all of these.
                out("xmm0") _, out("xmm1") _, out("xmm2") _, out("xmm3") _, out("xmm4") _, out("xmm5") _, out("xmm6") _,
                out("xmm7") _, out("xmm8") _, out("xmm9") _, out("xmm10") _, out("xmm11") _, out("xmm12") _,
                out("xmm13") _, out("xmm14") _, out("xmm15") _, options(nostack),
            );
        },
        // SAFETY: `rep movsb` moves `len` bytes between ranges that the caller vouches for; the ABI
        // keeps the direction flag clear.
        STRING_MOVE.. if std::is_x86_feature_detected!("ermsb") && !is_slow_string(to, from) => unsafe {
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

/// Copies between two ranges of shared memory. Where they overlap, a byte arrives that was there
/// before the copy, or one that the copy has written.
///
/// # Safety
/// For each range as [`into_shared`] and [`out_of_shared`].
#[cfg(any(not(target_arch = "x86_64"), miri))]
pub unsafe fn copy(to: *mut u8, from: *const u8, len: usize) {
    let mut buffer = [0; 512];
    for at in (0..len).step_by(buffer.len()) {
        let piece = &mut buffer[..512.min(len - at)];
        // SAFETY: at + piece.len() <= len, a range that the caller vouches for.
        unsafe { lanes::out_of_shared(piece, from.wrapping_add(at)) };
        // SAFETY: as above.
        unsafe { lanes::into_shared(to.wrapping_add(at), piece) };
    }
}

/// The copies by atomic words.
#[cfg(any(not(target_arch = "x86_64"), miri, test))]
mod lanes {
    use std::sync::atomic::{AtomicU64, Ordering};

    /// The word that contains a byte, and the byte's index in it.
    ///
    /// # Safety
    /// As [`into_shared`](super::into_shared) of the byte. A word that is only loaded may be
    /// read-only.
    unsafe fn word_around<'w>(byte: *mut u8) -> (&'w AtomicU64, usize) {
        let index = byte.addr() % 8;
        // SAFETY: the aligned word that contains the byte, for which the caller vouches.
        (unsafe { AtomicU64::from_ptr(byte.wrapping_sub(index).cast()) }, index)
    }

    /// # Safety
    /// As [`into_shared`](super::into_shared).
    pub(super) unsafe fn into_shared(mut to: *mut u8, mut from: &[u8]) {
        while !from.is_empty() {
            // SAFETY: the range has a byte here.
            let (word, index) = unsafe { word_around(to) };
            let (part, rest) = from.split_at(from.len().min(8 - index));
            if let Ok(whole) = part.try_into() {
                word.store(u64::from_ne_bytes(whole), Ordering::Relaxed);
            } else {
                let change = |word: u64| {
                    let mut bytes = word.to_ne_bytes();
                    bytes[index..index + part.len()].copy_from_slice(part);
                    Some(u64::from_ne_bytes(bytes))
                };
                let _ = word.fetch_update(Ordering::Relaxed, Ordering::Relaxed, change); // never refused
            }
            (to, from) = (to.wrapping_add(part.len()), rest);
        }
    }

    /// # Safety
    /// As [`out_of_shared`](super::out_of_shared).
    pub(super) unsafe fn out_of_shared(mut to: &mut [u8], mut from: *const u8) {
        while !to.is_empty() {
            // SAFETY: the range has a byte here; the word is only loaded, so the cast is harmless.
            let (word, index) = unsafe { word_around(from.cast_mut()) };
            let len = to.len().min(8 - index);
            let (part, rest) = to.split_at_mut(len);
            part.copy_from_slice(&word.load(Ordering::Relaxed).to_ne_bytes()[index..index + len]);
            (to, from) = (rest, from.wrapping_add(len));
        }
    }
}

/// Zeroes shared memory.
///
/// # Safety
/// As [`into_shared`] of `len` bytes.
pub unsafe fn zero(to: *mut u8, len: usize) {
    #[cfg(all(target_arch = "x86_64", not(miri)))]
    // SAFETY: `rep stosb` writes `len` bytes of a range that the caller vouches for; the ABI keeps
    // the direction flag clear.
    unsafe {
        std::arch::asm!("rep stosb", inout("rcx") len => _, inout("rdi") to => _, in("al") 0_u8,
            options(nostack, preserves_flags));
    }
    #[cfg(any(not(target_arch = "x86_64"), miri))]
    for at in (0..len).step_by(4096) {
        // SAFETY: the piece ends at `len` or before, inside the range that the caller vouches for.
        unsafe { lanes::into_shared(to.wrapping_add(at), &[0; 4096][..4096.min(len - at)]) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The copies of this architecture, and the others'.
    #[test]
    fn copies_every_size_and_alignment_and_nothing_beside() {
        type Into = unsafe fn(*mut u8, &[u8]);
        type OutOf = unsafe fn(&mut [u8], *const u8);
        type Between = unsafe fn(*mut u8, *const u8, usize);
        let between: Between = |to, from, len| {
            let mut buffer = vec![0; len];
            // SAFETY: the caller's.
            unsafe { lanes::out_of_shared(&mut buffer, from) };
            // SAFETY: the caller's.
            unsafe { lanes::into_shared(to, &buffer) };
        };
        let ways: [(Into, OutOf, Between); 2] =
            [(into_shared, out_of_shared, copy), (lanes::into_shared, lanes::out_of_shared, between)];
        let source: Vec<u8> = (0..5000_u32).map(|i| (i * 7 + i / 256) as u8 | 1).collect();
        for (into_shared, out_of_shared, copy) in ways {
            for len in (0..=130).chain([255, 256, 257, 1023, 1024, 1025, 4095, 4096, 4099]) {
                for (left, right) in [(0, 0), (1, 0), (0, 3), (5, 5), (8, 16)] {
                    // Words, because the copies may access those around the bytes.
                    let mut there = vec![0_u64; len / 8 + 8];
                    let start = there.as_mut_ptr().cast::<u8>();
                    // SAFETY: `there` has right + len + at least 16 bytes, and only this thread
                    // accesses it.
                    unsafe { into_shared(start.wrapping_add(right), &source[left..left + len]) };
                    let mut back = vec![0; len];
                    // SAFETY: as above.
                    unsafe { out_of_shared(&mut back, start.wrapping_add(right)) };
                    assert_eq!(back, source[left..left + len], "len {len}");
                    let bytes: Vec<u8> = there.iter().flat_map(|word| word.to_ne_bytes()).collect();
                    assert_eq!(bytes[right..right + len], source[left..left + len], "len {len}");
                    assert!(bytes[..right].iter().chain(&bytes[right + len..]).all(|byte| *byte == 0), "len {len}");
                    let mut other = vec![0_u64; len / 8 + 8];
                    let other_start = other.as_mut_ptr().cast::<u8>();
                    // SAFETY: as above, of either.
                    unsafe { copy(other_start.wrapping_add(left), start.wrapping_add(right), len) };
                    let bytes: Vec<u8> = other.iter().flat_map(|word| word.to_ne_bytes()).collect();
                    assert_eq!(bytes[left..left + len], source[left..left + len], "len {len}");
                    assert!(bytes[..left].iter().chain(&bytes[left + len..]).all(|byte| *byte == 0), "len {len}");
                }
            }
        }
    }

    /// Whatever arrives where source and destination overlap, it is a byte of the source, and
    /// nothing beside the destination changes.
    #[test]
    fn an_overlapping_copy_invents_nothing() {
        for (from, to, len) in [(0, 1, 7), (8, 0, 100), (0, 8, 100), (3, 40, 1000), (40, 3, 5000), (0, 1, 5000)] {
            let mut words = vec![0_u64; 640];
            let start = words.as_mut_ptr().cast::<u8>();
            let source: Vec<u8> = (0..len).map(|at| (at % 200) as u8 + 1).collect();
            // SAFETY: `words` has 5120 bytes, at least 40 + 5000, which this thread alone accesses.
            unsafe { into_shared(start.wrapping_add(from), &source) };
            let before: Vec<u8> = words.iter().flat_map(|word| word.to_ne_bytes()).collect();
            let start = words.as_mut_ptr().cast::<u8>();
            // SAFETY: as above.
            unsafe { copy(start.wrapping_add(to), start.wrapping_add(from), len) };
            let after: Vec<u8> = words.iter().flat_map(|word| word.to_ne_bytes()).collect();
            assert!(after[to..to + len].iter().all(|byte| source.contains(byte)), "{from} {to} {len}");
            assert_eq!((&after[..to], &after[to + len..]), (&before[..to], &before[to + len..]), "{from} {to} {len}");
        }
    }

    /// Threads that write neighbouring bytes of one word lose none of them.
    #[test]
    fn parts_of_a_word_leave_the_rest_to_others() {
        let words = [const { AtomicU64::new(0) }; 2];
        std::thread::scope(|scope| {
            for (offset, len) in [(0, 3), (3, 7), (10, 6)] {
                let words = &words;
                scope.spawn(move || {
                    for round in 0..if cfg!(miri) { 50 } else { 50_000 } {
                        let byte = words[0].as_ptr().cast::<u8>().wrapping_add(offset);
                        let mut back = vec![0; len];
                        // SAFETY: within the two words, which all threads access by these copies.
                        unsafe { lanes::into_shared(byte, &vec![round as u8; len]) };
                        // SAFETY: as above.
                        unsafe { lanes::out_of_shared(&mut back, byte) };
                        assert_eq!(back, vec![round as u8; len]);
                    }
                });
            }
        });
    }

    #[test]
    fn zeroes_what_it_shall_and_nothing_beside() {
        for len in [0, 1, 7, 8, 63, 4096, 10_000] {
            let mut there = vec![u64::from_ne_bytes([1; 8]); len / 8 + 3];
            // SAFETY: `there` has 8 + len + at least 8 bytes, and only this thread accesses it.
            unsafe { zero(there.as_mut_ptr().cast::<u8>().wrapping_add(8), len) };
            let there: Vec<u8> = there.iter().flat_map(|word| word.to_ne_bytes()).collect();
            let (before, rest) = there.split_at(8);
            assert!(before.iter().chain(&rest[len..]).all(|byte| *byte == 1), "len {len}");
            assert!(rest[..len].iter().all(|byte| *byte == 0), "len {len}");
        }
    }
}
