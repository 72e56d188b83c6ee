//! Tracks this rank's changes by the card to words of a peer's regions.

use std::sync::atomic::{AtomicU64, Ordering};

use onesided_remote_memory::{Rank, RegionId};

use crate::verbs::Verbs;

/// Regions are distinguished by this many of their numbers' low bits; regions that share them wait
/// for one another.
const BUCKETS: usize = 256;

/// The changes of a peer's regions.
#[derive(Debug)]
pub(super) struct Changes(Box<[Change]>);

/// The last changes that this rank has posted to words of a region, as request counts of the
/// connection to its owner; 0 is none.
#[derive(Debug, Default)]
pub(super) struct Change {
    any: AtomicU64,
    /// A write by word, or a put that followed one.
    write: AtomicU64,
}

impl Default for Changes {
    fn default() -> Self {
        Self((0..BUCKETS).map(|_| Change::default()).collect())
    }
}

impl Changes {
    /// Those of a region; messages have other regions, and their own connections.
    #[inline]
    pub(super) fn of(&self, verbs: &Verbs, region: RegionId) -> &Change {
        &self.0[(2 * region.0 as usize + usize::from(verbs.is_for_messages())) % BUCKETS]
    }
}

impl Change {
    /// Records a posted change; called after the post.
    pub(super) fn note(&self, verbs: &Verbs, rank: Rank, is_write: bool) {
        // Includes posts of other threads in between, which can only lengthen a wait.
        let posted = verbs.posted(rank);
        if is_write {
            self.write.fetch_max(posted, Ordering::Relaxed);
        }
        // Release: a reader of this value sees the write above.
        self.any.fetch_max(posted, Ordering::Release);
    }

    /// Whether all changes are in memory, so that the CPU may follow.
    #[inline]
    pub(super) fn is_placed(&self, verbs: &Verbs, rank: Rank) -> bool {
        // A concurrent post of another thread is unordered with the operation that follows.
        let any = self.any.load(Ordering::Acquire);
        any == 0 || self.has_placed(verbs, rank, any)
    }

    #[cold]
    fn has_placed(&self, verbs: &Verbs, rank: Rank, any: u64) -> bool {
        let placed = verbs.has_placed(rank, any, self.write.load(Ordering::Relaxed));
        if placed {
            // Cleared, unless there is a later one, which is the only way to fail.
            let _ = self.any.compare_exchange(any, 0, Ordering::Relaxed, Ordering::Relaxed);
        }
        placed
    }
}
