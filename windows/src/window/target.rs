//! A rank's memory of a window, as this rank reaches it.

use std::fmt;

use onesided_fabric::remote_memory::Rank;
use onesided_fabric::{Fabric, Path, Segment};

use crate::locks::server::RequestSlots;
use crate::window::paths::PathCounts;

/// A rank's part of the window, as it is reached from here.
pub(crate) struct Target<F: Fabric> {
    /// As the window's world counts.
    pub(crate) rank: u32,
    pub(crate) data: F::Segment,
    pub(crate) locks: F::Segment,
    /// In elements.
    pub(crate) len: usize,
    /// The same, where nothing is counted; otherwise 0, so that whoever looks for a range here goes on to count it. A test
    /// of its own on the path of an operation costs up to half of the operation.
    pub(crate) uncounted_len: usize,
    /// Which attached memory it is; 0 where the rank has one part.
    pub(crate) ptr: u64,
    /// Whether the fabric has no words of it, so that atomics go by its agent.
    pub(crate) wordless: bool,
    /// How often which path was taken; `None` where nobody asked and counting costs something.
    pub(crate) paths: Option<Box<PathCounts>>,
    /// Of a lock that a thread there serves.
    pub(crate) request_slots: RequestSlots,
}

impl<F: Fabric> fmt::Debug for Target<F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "rank {}, {} elements", self.rank, self.len)
    }
}

impl<F: Fabric> Target<F> {
    /// The rank as the fabric names it.
    pub(crate) fn fabric_rank(&self) -> Rank {
        self.data.rank()
    }

    /// Counts an operation that took this path.
    pub(crate) fn count(&self, path: Path) {
        if let Some(paths) = &self.paths {
            paths.add(path);
        }
    }
}
