//! An allocator that counts, for the tests of several crates.

#![allow(unsafe_code)] // an allocator

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;
use std::sync::atomic::{AtomicUsize, Ordering};

/// Counts allocations, the bytes that are allocated, and their peak.
struct Counting;

// Of each thread, because the one that starts the tests allocates beside them.
thread_local! {
    static ALLOCATIONS: Cell<usize> = const { Cell::new(0) };
    /// Not from 0: a thread frees what others allocated, too.
    static NOW: Cell<usize> = const { Cell::new(1 << 40) };
    static PEAK: Cell<usize> = const { Cell::new(0) };
}

/// The bytes that all threads have allocated and not freed.
static OF_ALL: AtomicUsize = AtomicUsize::new(0);

// SAFETY: every call goes to the system's allocator, with the same arguments.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        ALLOCATIONS.set(ALLOCATIONS.get() + 1);
        NOW.set(NOW.get() + layout.size());
        OF_ALL.fetch_add(layout.size(), Ordering::Relaxed);
        PEAK.set(PEAK.get().max(NOW.get()));
        // SAFETY: the caller keeps the contract of `GlobalAlloc::alloc`.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, at: *mut u8, layout: Layout) {
        NOW.set(NOW.get() - layout.size());
        OF_ALL.fetch_sub(layout.size(), Ordering::Relaxed);
        // SAFETY: `at` is from `alloc` with this layout, which is the system's.
        unsafe { System.dealloc(at, layout) }
    }
}

#[global_allocator]
static COUNTING: Counting = Counting;

/// The bytes that this thread has allocated and not freed, and a constant.
#[allow(dead_code)] // not every test asks for all
pub(crate) fn allocated() -> usize {
    NOW.get()
}

/// The bytes that all threads of the process have allocated and not freed.
#[allow(dead_code)]
pub(crate) fn allocated_by_all() -> usize {
    OF_ALL.load(Ordering::Relaxed)
}

/// The number of allocations of this thread so far.
#[allow(dead_code)]
pub(crate) fn allocations() -> usize {
    ALLOCATIONS.get()
}

/// The most bytes that are allocated during a call, beyond those before it.
#[allow(dead_code)]
pub(crate) fn peak_of(run: impl FnOnce()) -> usize {
    let before = allocated();
    PEAK.set(before);
    run();
    PEAK.get() - before
}
