//! A lock-free list of free entries.

use crate::util::sync::atomic::{AtomicU32, AtomicU64, Ordering};

/// No entry.
pub(crate) const NONE: u32 = u32::MAX;

/// A stack of free entries. Taking or returning one costs one compare-swap, and the entry used
/// last, which is still in the caches, is used next.
///
/// The head counts its changes, which avoids the ABA problem of an entry taken and returned in
/// between.
#[derive(Debug)]
pub(crate) struct FreeList {
    /// The first free entry in the low half, the count in the high half.
    head: AtomicU64,
}

impl FreeList {
    pub(crate) fn new() -> Self {
        Self { head: AtomicU64::new(u64::from(NONE)) }
    }

    /// Takes an entry. `next` returns the word that links an entry to the one behind it.
    #[inline]
    pub(crate) fn take<'n>(&self, next: impl Fn(u32) -> &'n AtomicU32) -> Option<u32> {
        let mut head = self.head.load(Ordering::Acquire);
        loop {
            let entry = head as u32;
            if entry == NONE {
                return None;
            }
            // Another holder may write the word by now; the count has changed then.
            let behind = next(entry).load(Ordering::Relaxed);
            match self.head.compare_exchange_weak(head, succeed(head, behind), Ordering::Acquire, Ordering::Acquire) {
                Ok(_) => return Some(entry),
                Err(found) => head = found,
            }
        }
    }

    /// Returns an entry. The holder's accesses happen before those of the next holder.
    #[inline]
    pub(crate) fn give<'n>(&self, entry: u32, next: impl Fn(u32) -> &'n AtomicU32) {
        let mut head = self.head.load(Ordering::Relaxed);
        loop {
            next(entry).store(head as u32, Ordering::Relaxed);
            match self.head.compare_exchange_weak(head, succeed(head, entry), Ordering::Release, Ordering::Relaxed) {
                Ok(_) => return,
                Err(found) => head = found,
            }
        }
    }
}

/// The head after `head` with this entry first.
#[inline]
const fn succeed(head: u64, first: u32) -> u64 {
    (head >> 32).wrapping_add(1) << 32 | first as u64
}

/// Checked by loom: `RUSTFLAGS="--cfg onesided_loom" cargo test -p onesided-fabric --lib
/// --release`.
#[cfg(all(test, onesided_loom))]
mod explored {
    use loom::cell::UnsafeCell;
    use loom::sync::Arc;
    use loom::thread;

    use super::*;

    struct Entries {
        list: FreeList,
        next: [AtomicU32; 2],
        used: [UnsafeCell<u32>; 2],
    }

    impl Entries {
        fn new() -> Self {
            let pieces = Self {
                list: FreeList::new(),
                next: [AtomicU32::new(NONE), AtomicU32::new(NONE)],
                used: [UnsafeCell::new(0), UnsafeCell::new(0)],
            };
            for entry in 0..2 {
                pieces.list.give(entry, |entry| &pieces.next[entry as usize]);
            }
            pieces
        }

        /// Takes an entry, has exclusive access (loom detects two holders), returns it.
        fn use_one(&self) -> bool {
            let next = |entry: u32| &self.next[entry as usize];
            let Some(entry) = self.list.take(next) else { return false };
            self.used[entry as usize].with_mut(|used| {
                // SAFETY: the entry was taken, so no other thread accesses it; loom reports a
                // concurrent access, which is what is tested.
                #[allow(unsafe_code)]
                unsafe {
                    *used += 1
                }
            });
            self.list.give(entry, next);
            true
        }
    }

    fn explore(threads: usize, rounds: usize, preemptions: usize) {
        let mut model = loom::model::Builder::new();
        model.preemption_bound = Some(preemptions);
        model.check(move || {
            let pieces = Arc::new(Entries::new());
            let others: Vec<_> = (1..threads)
                .map(|_| {
                    let pieces = Arc::clone(&pieces);
                    thread::spawn(move || (0..rounds).filter(|_| pieces.use_one()).count())
                })
                .collect();
            let mut served = (0..rounds).filter(|_| pieces.use_one()).count();
            served += others.into_iter().map(|other| other.join().unwrap()).sum::<usize>();
            assert!(threads > 2 || served == threads * rounds, "two entries are enough for two threads");
            let next = |entry: u32| &pieces.next[entry as usize];
            let mut left: Vec<_> = std::iter::from_fn(|| pieces.list.take(next)).collect();
            left.sort_unstable();
            assert_eq!(left, [0, 1], "an entry was lost, or is there twice");
        });
    }

    #[test]
    fn two_threads_never_hold_the_same_piece() {
        explore(2, 2, 3);
    }

    #[test]
    fn three_threads_never_hold_the_same_piece() {
        explore(3, 1, 3);
    }
}
