//! The gate of memory that its owner takes back: peers pass it for the time of a copy, the owner shuts it and waits until
//! nobody is inside.
//!
//! The hand-shake is Dekker's: who passes announces itself, then looks whether the gate is shut; the owner shuts it, then
//! looks who is inside. A full fence on both sides between the write and the look makes it impossible that both miss the
//! other. On the passing side sequentially consistent operations do for the fence. Explored by loom in `explored`.

use crate::sync::atomic::{AtomicU64, Ordering, fence};

/// What one rank sees of a gate: whether it is shut, and how many threads of the rank are inside.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Gate<'a> {
    pub(crate) shut: &'a AtomicU64,
    pub(crate) inside: &'a AtomicU64,
}

/// A thread that is inside, until it is dropped.
#[derive(Debug)]
pub(crate) struct Inside<'a>(&'a AtomicU64);

impl<'a> Gate<'a> {
    /// Passes, unless the gate is shut. As long as the pass is held the owner does not have its memory back.
    pub(crate) fn pass(self) -> Option<Inside<'a>> {
        // Both in the one order of all sequentially consistent operations, so that no fence need stand between them: on
        // x86-64 that is one locked instruction instead of two.
        self.inside.fetch_add(1, Ordering::SeqCst);
        let inside = Inside(self.inside);
        #[cfg(onesided_loom)]
        fence(Ordering::SeqCst); // loom has that order for fences only
        (self.shut.load(Ordering::SeqCst) == 0).then_some(inside)
    }
}

impl Drop for Inside<'_> {
    fn drop(&mut self) {
        // Release: what was copied comes before the owner's look that finds nobody inside.
        self.0.fetch_sub(1, Ordering::Release);
    }
}

/// Shuts a gate, for ever. After it, look who [is inside](is_inside).
pub(crate) fn shut(gate: &AtomicU64) {
    gate.store(1, Ordering::Relaxed);
    fence(Ordering::SeqCst);
}

/// Whether a rank is inside a gate that was shut. Once it is not, it never will be.
pub(crate) fn is_inside(inside: &AtomicU64) -> bool {
    // A count below 0 is a peer that is broken: it counts as inside.
    inside.load(Ordering::Acquire) != 0
}
