//! The memory of a simulated rank, counted.

#![allow(unsafe_code)] // an allocator

use std::alloc::{GlobalAlloc, Layout, System};
use std::sync::atomic::{AtomicUsize, Ordering};

use onesided_fabric::remote_memory::{At, Patience, Rank, RegionId, RemoteMemory};
use onesided_sim::{End, Network, SimFabric, Simulation};

/// Counts the bytes that are allocated, and their peak.
struct Counting;

static NOW: AtomicUsize = AtomicUsize::new(0);
static PEAK: AtomicUsize = AtomicUsize::new(0);

// SAFETY: every call goes to the system's allocator, with the same arguments.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        PEAK.fetch_max(NOW.fetch_add(layout.size(), Ordering::Relaxed) + layout.size(), Ordering::Relaxed);
        // SAFETY: the caller keeps the contract of `GlobalAlloc::alloc`.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, at: *mut u8, layout: Layout) {
        NOW.fetch_sub(layout.size(), Ordering::Relaxed);
        // SAFETY: `at` is from `alloc` with this layout, which is the system's.
        unsafe { System.dealloc(at, layout) }
    }
}

#[global_allocator]
static COUNTING: Counting = Counting;

/// Adds at rank 0, notes that at its own node, and waits there for the next rank's word.
async fn queue_up(fabric: SimFabric) {
    let word = |rank, offset| fabric.word(At { rank, region: RegionId(0), offset }).unwrap();
    let (me, own) = (fabric.rank(), word(fabric.rank(), 8));
    let place = fabric.fetch_add(word(Rank(0), 0), 1).await.unwrap();
    fabric.store(word(me, 16), place).unwrap();
    let next = word(Rank((me.0 + 1) % fabric.size()), 8);
    if me != Rank(0) {
        fabric.wait_until(own, |value| value != 0, Patience::until(u64::MAX)).await.unwrap();
    }
    fabric.write(next, 1, onesided_fabric::remote_memory::Notify::Yes).await.unwrap();
}

/// The simulator's own state of a rank and the program above, without the state of a lock.
#[test]
fn a_rank_is_small() {
    const RANKS: u32 = 20_000;
    let before = NOW.load(Ordering::Relaxed);
    PEAK.store(before, Ordering::Relaxed);
    let report = Simulation::new(Network::default()).ranks(RANKS).run_direct(queue_up);
    assert_eq!(report.end, End::Finished);
    let bytes = (PEAK.load(Ordering::Relaxed) - before) / RANKS as usize;
    assert!(bytes < 700, "{bytes} bytes a rank");
}
