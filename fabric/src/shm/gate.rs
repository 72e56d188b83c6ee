//! The gate of memory that its owner takes back: peers pass it for the time of a copy, the owner shuts it and waits until
//! nobody is inside.
//!
//! The hand-shake is Dekker's: who passes announces itself, then looks whether the gate is shut; the owner shuts it, then
//! looks who is inside. A full fence on both sides between the write and the look makes it impossible that both miss the
//! other. On the passing side sequentially consistent operations do for the fence. Explored by loom in `explored`.

use crate::sync::atomic::{AtomicU64, Ordering, fence};

/// What one rank sees of a gate: whether it is shut, and which threads of the rank are inside.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Gate<'a> {
    pub(crate) shut: &'a AtomicU64,
    pub(crate) announced: Announced<'a>,
}

/// Where the threads of one rank say that they are inside. The first one has a place to itself, which it leaves by a store:
/// that is cheaper than to count.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Announced<'a> {
    /// 1 while a thread has it.
    pub(crate) place: &'a AtomicU64,
    /// How many others there are.
    pub(crate) count: &'a AtomicU64,
}

/// A thread that is inside, until it is dropped.
#[derive(Debug)]
pub(crate) enum Inside<'a> {
    Placed(&'a AtomicU64),
    Counted(&'a AtomicU64),
}

impl<'a> Gate<'a> {
    /// Passes, unless the gate is shut. As long as the pass is held the owner does not have its memory back.
    pub(crate) fn pass(self) -> Option<Inside<'a>> {
        // Both in the one order of all sequentially consistent operations and of the owner's fence, so that no fence need
        // stand between them: on x86-64 that is one locked instruction instead of two.
        let Announced { place, count } = self.announced;
        let inside = match place.compare_exchange(0, 1, Ordering::SeqCst, Ordering::Relaxed) {
            Ok(_) => Inside::Placed(place),
            Err(_) => {
                count.fetch_add(1, Ordering::SeqCst);
                Inside::Counted(count)
            }
        };
        #[cfg(onesided_loom)]
        fence(Ordering::SeqCst); // loom has that order for fences only
        (self.shut.load(Ordering::SeqCst) == 0).then_some(inside)
    }
}

impl Drop for Inside<'_> {
    fn drop(&mut self) {
        // Release: what was copied comes before the owner's look that finds nobody inside.
        match self {
            Self::Placed(place) => place.store(0, Ordering::Release),
            Self::Counted(count) => {
                count.fetch_sub(1, Ordering::Release);
            }
        }
    }
}

/// Shuts a gate, for ever. After it, look who [is inside](is_inside).
pub(crate) fn shut(gate: &AtomicU64) {
    gate.store(1, Ordering::Relaxed);
    fence(Ordering::SeqCst);
}

/// Whether a rank is inside a gate that was shut. Once it is not, it never will be.
pub(crate) fn is_inside(rank: Announced<'_>) -> bool {
    // A count below 0 is a peer that is broken: it counts as inside.
    rank.place.load(Ordering::Acquire) != 0 || rank.count.load(Ordering::Acquire) != 0
}
