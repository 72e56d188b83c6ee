//! A rank's memory of a window, as this rank reaches it.

use std::sync::atomic::{AtomicU64, Ordering};

use onesided_fabric::remote_memory::Rank;
use onesided_fabric::{Fabric, Path, Segment, debug};

use crate::locks::server::RequestSlots;
use crate::window::paths::PathCounts;

/// A rank's window memory, as accessed from here.
pub(crate) struct Target<F: Fabric> {
    /// The rank in the window's world.
    pub(crate) rank: u32,
    pub(crate) data: F::Segment,
    pub(crate) locks: F::Segment,
    /// In bytes.
    pub(crate) len: u64,
    /// `len` where paths are not counted and the window is open, otherwise 0: the range check on
    /// the fast path then fails, and the slow path counts, or reports the close. A separate test on
    /// the path of an operation costs up to half of the operation.
    uncounted_len: AtomicU64,
    /// Which attached memory this is; 0 where the rank has a single region.
    pub(crate) ptr: u64,
    /// Whether the fabric has no words of this memory, so that atomics go through its agent.
    pub(crate) wordless: bool,
    /// How often each path was taken; `None` where counting costs time and was not requested.
    pub(crate) paths: Option<Box<PathCounts>>,
    /// Request slots in use here, of a lock with a server thread.
    pub(crate) request_slots: RequestSlots,
}

debug!([F: Fabric] Target<F>, |this| "rank {}, {} bytes", this.rank, this.len);

impl<F: Fabric> Target<F> {
    /// `rank`: in the window's world. `paths`: the counts, where paths are counted.
    pub(crate) fn new(
        rank: u32,
        (data, locks): (F::Segment, F::Segment),
        (len, ptr): (u64, u64),
        wordless: bool,
        paths: Option<Box<PathCounts>>,
    ) -> Self {
        let uncounted_len = AtomicU64::new(if paths.is_some() { 0 } else { len });
        Self { rank, data, locks, len, uncounted_len, ptr, wordless, paths, request_slots: RequestSlots::default() }
    }

    /// The rank as the fabric numbers it.
    pub(crate) fn fabric_rank(&self) -> Rank {
        self.data.rank()
    }

    /// The length that the range check of the fast path compares with.
    #[inline(always)]
    pub(crate) fn uncounted_len(&self) -> u64 {
        self.uncounted_len.load(Ordering::Relaxed)
    }

    /// Sends every later operation to the slow path of the range check.
    pub(crate) fn close(&self) {
        self.uncounted_len.store(0, Ordering::Relaxed);
    }

    /// Counts an operation that took this path.
    pub(crate) fn count(&self, path: Path) {
        if let Some(paths) = &self.paths {
            paths.add(path);
        }
    }
}
