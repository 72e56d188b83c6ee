//! Who holds a piece of memory that is used again and again.
//!
//! One word says which use of it this is, whether its owner has ended that use, and how many peers still hold it. So a peer
//! that comes too late, with a key of an earlier use, is told apart from one that has a right to it, and the owner uses the
//! piece again only when nobody is left. Explored by loom in `explored`.

use crate::sync::atomic::{AtomicU64, Ordering};

// The word: the number of the use, a bit once the owner has ended it, how many hold it.
const USE: u32 = 32;
const ENDED: u64 = 1 << 31;
const HOLDERS: u64 = ENDED - 1;

/// The word, as the owner and its peers see it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Hold<'a>(pub(crate) &'a AtomicU64);

impl Hold<'_> {
    /// The owner's: begins a use, of a piece that nobody holds. What was written of it before is seen by who
    /// [takes](Self::take) it.
    pub(crate) fn begin(self, number: u32) {
        self.0.store(u64::from(number) << USE, Ordering::Release);
    }

    /// A peer's: holds the piece, if this is still the use that it knows of.
    pub(crate) fn take(self, number: u32) -> bool {
        let held = |now: u64| {
            let there = now >> USE == u64::from(number) && now & ENDED == 0 && now & HOLDERS < HOLDERS;
            there.then_some(now + 1)
        };
        // Acquire: what the owner wrote before it began.
        self.0.fetch_update(Ordering::Acquire, Ordering::Relaxed, held).is_ok()
    }

    /// A peer's: ends a hold.
    pub(crate) fn release(self) {
        // Release: what this peer did there comes before the next use.
        self.0.fetch_sub(1, Ordering::Release);
    }

    /// The owner's: ends the use. From now on nobody takes it; `true` if nobody holds it either.
    pub(crate) fn end(self) -> bool {
        self.0.fetch_or(ENDED, Ordering::Acquire) & HOLDERS == 0
    }

    /// Whether nobody holds a piece whose use has ended: then nobody ever will.
    pub(crate) fn is_left(self) -> bool {
        self.0.load(Ordering::Acquire) & HOLDERS == 0
    }
}
