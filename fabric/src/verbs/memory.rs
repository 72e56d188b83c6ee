//! The bytes of registered memory. The card may write them at any time; the CPU accesses them by
//! atomics and racy copies.
#![allow(unsafe_code)] // raw copies

use std::sync::atomic::AtomicU64;

use onesided_job::segment::copy;

use crate::shm::Mapping;
use crate::verbs::raw::{Local, MemoryRegion, UserRegion};

/// Copies bytes into user memory; `None` if they do not fit.
pub(super) fn write_user(memory: &UserRegion, offset: u64, from: &[u8]) -> Option<()> {
    let to = address_in(memory, offset, from.len())?;
    // SAFETY: that many bytes of whole words, which the region keeps registered; there are no
    // references to them, and the card and other threads write them as the copy allows.
    unsafe { copy::into_shared(to, from) };
    Some(())
}

/// Copies bytes out of user memory; `None` if the range does not fit.
pub(super) fn read_user(memory: &UserRegion, offset: u64, into: &mut [u8]) -> Option<()> {
    let from = address_in(memory, offset, into.len())?;
    // SAFETY: as in `write_user`.
    unsafe { copy::out_of_shared(into, from) };
    Some(())
}

fn address_in(memory: &UserRegion, offset: u64, len: usize) -> Option<*mut u8> {
    let (start, there) = (memory.memory().start(), memory.memory().len());
    let offset = usize::try_from(offset).ok()?;
    let fits = offset.checked_add(len).is_some_and(|end| end <= there);
    // SAFETY: offset <= offset + len <= the region's length.
    fits.then(|| unsafe { start.add(offset) }.as_ptr())
}

/// All words of a mapping.
pub(super) fn words(memory: &Mapping) -> Option<&[AtomicU64]> {
    let start = memory.bytes(0, memory.len() as u64)?;
    // SAFETY: that many words of the mapping, which begins at a page and outlives the slice; the
    // card and other threads access them by atomics and racy copies.
    Some(unsafe { std::slice::from_raw_parts(start.cast().as_ptr(), memory.len() / 8) })
}

/// The part of registered memory that an operation of this rank uses: a result cell, or a bounce
/// buffer.
#[derive(Clone, Copy, Debug)]
pub(super) struct BounceBuffer<'m> {
    region: &'m MemoryRegion,
    offset: u64,
}

impl<'m> BounceBuffer<'m> {
    pub(super) const fn new(region: &'m MemoryRegion, offset: u64) -> Self {
        Self { region, offset }
    }

    /// Its first `len` bytes as a scatter-gather entry.
    #[inline]
    pub(super) fn local(&self, len: u32) -> Local {
        Local { address: self.region.address() + self.offset, len, key: self.region.local_key() }
    }

    /// Its first word.
    #[inline]
    pub(super) fn word(&self) -> &'m AtomicU64 {
        self.region.memory().word(self.offset).expect("buffers are aligned parts of their region")
    }

    pub(super) fn write(&self, at: usize, from: &[u8]) {
        self.region.memory().write(self.offset + at as u64, from).expect("the buffer was taken for this length");
    }

    pub(super) fn read(&self, into: &mut [u8]) {
        self.region.memory().read(self.offset, into).expect("the buffer was taken for this length");
    }
}
