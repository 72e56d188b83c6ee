//! The generation and reference count of memory that is reused.
//!
//! One word holds the generation, whether its owner has ended it, and how many peers hold
//! references. A peer with a key of an earlier generation is refused, and the owner reuses the
//! memory only when no peer holds a reference. Checked by loom in `explored`.

use crate::util::sync::atomic::{AtomicU64, Ordering};

// The word: the generation, a bit once the owner has ended it, the reference count.
const USE: u32 = 32;
const ENDED: u64 = 1 << 31;
const REFS: u64 = ENDED - 1;

/// The word, as the owner and its peers see it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct GenRefCount<'a>(pub(crate) &'a AtomicU64);

impl GenRefCount<'_> {
    /// Owner: begins a generation of memory without references. Earlier writes are visible to a
    /// peer that [takes](Self::take) a reference.
    pub(crate) fn begin(self, number: u32) {
        self.0.store(u64::from(number) << USE, Ordering::Release);
    }

    /// Peer: takes a reference if the generation matches.
    pub(crate) fn take(self, number: u32) -> bool {
        let held = |now: u64| {
            let there = now >> USE == u64::from(number) && now & ENDED == 0 && now & REFS < REFS;
            there.then_some(now + 1)
        };
        // Acquire: the owner's writes before it began.
        self.0.fetch_update(Ordering::Acquire, Ordering::Relaxed, held).is_ok()
    }

    /// Peer: drops a reference.
    pub(crate) fn release(self) {
        // Release: this peer's accesses come before the next generation.
        self.0.fetch_sub(1, Ordering::Release);
    }

    /// Owner: ends the generation. No reference can be taken from now on; `true` if none is left.
    pub(crate) fn end(self) -> bool {
        self.0.fetch_or(ENDED, Ordering::Acquire) & REFS == 0
    }

    /// Whether an ended generation has no references left; this is final.
    pub(crate) fn is_left(self) -> bool {
        self.0.load(Ordering::Acquire) & REFS == 0
    }
}
