//! The access guard of user memory: a peer acquires access for the time of a copy; the owner closes
//! the guard and waits until no peer has access.
//!
//! The protocol is Dekker's: a peer announces itself, then checks whether the guard is closed; the
//! owner closes it, then checks for accesses. A full fence on each side between the write and the
//! read prevents that both miss each other. The peer's side uses sequentially consistent operations
//! instead of a fence. Checked by loom in `explored`.

use crate::util::sync::atomic::{AtomicU64, Ordering, fence};

/// One rank's view of the guard: whether it is closed, and which threads of the rank have access.
#[derive(Clone, Copy, Debug)]
pub(crate) struct AccessGuard<'a> {
    pub(crate) shut: &'a AtomicU64,
    pub(crate) announced: Announced<'a>,
}

/// Where the threads of one rank announce their access. The first one has a slot of its own, which
/// it clears by a store: that is cheaper than counting.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Announced<'a> {
    /// 1 while a thread has it.
    pub(crate) single: &'a AtomicU64,
    /// The number of other threads.
    pub(crate) count: &'a AtomicU64,
}

/// The access of a thread, until it is dropped.
#[derive(Debug)]
pub(crate) enum Access<'a> {
    Single(&'a AtomicU64),
    Counted(&'a AtomicU64),
}

impl<'a> AccessGuard<'a> {
    /// Acquires access, unless the guard is closed. While the access is held, the owner does not
    /// reclaim its memory.
    pub(crate) fn enter(self) -> Option<Access<'a>> {
        // Both are in the single order of all sequentially consistent operations and of the owner's
        // fence, so no fence is needed between them: on x86-64 that is one locked instruction
        // instead of two.
        let Announced { single, count } = self.announced;
        let inside = match single.compare_exchange(0, 1, Ordering::SeqCst, Ordering::Relaxed) {
            Ok(_) => Access::Single(single),
            Err(_) => {
                count.fetch_add(1, Ordering::SeqCst);
                Access::Counted(count)
            }
        };
        #[cfg(onesided_loom)]
        fence(Ordering::SeqCst); // loom models that order for fences only
        (self.shut.load(Ordering::SeqCst) == 0).then_some(inside)
    }
}

impl Drop for Access<'_> {
    fn drop(&mut self) {
        // Release: the copy comes before the owner's load that finds no access.
        match self {
            Self::Single(single) => single.store(0, Ordering::Release),
            Self::Counted(count) => {
                count.fetch_sub(1, Ordering::Release);
            }
        }
    }
}

/// Closes a guard permanently. Afterwards, check which ranks [have access](is_inside).
pub(crate) fn shut(gate: &AtomicU64) {
    gate.store(1, Ordering::Relaxed);
    fence(Ordering::SeqCst);
}

/// Whether a rank has access through a closed guard. Once it has not, it never will.
pub(crate) fn is_inside(rank: Announced<'_>) -> bool {
    // A count below 0 comes from a broken peer and counts as access.
    rank.single.load(Ordering::Acquire) != 0 || rank.count.load(Ordering::Acquire) != 0
}
