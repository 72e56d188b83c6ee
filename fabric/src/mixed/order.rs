//! What is known of the words of a peer's regions that this rank has changed through the card.

use std::sync::atomic::{AtomicU64, Ordering};

use onesided_remote_memory::{Rank, RegionId};

use crate::verbs::Verbs;

/// Regions are told apart by so many of their numbers' low bits; those that share them wait for one another.
const PLACES: usize = 256;

/// A peer's regions.
#[derive(Debug)]
pub(super) struct Changes(Box<[Change]>);

/// The last changes that this rank has posted to words of a region, as counts of requests on the connection to its owner; 0
/// is none.
#[derive(Debug, Default)]
pub(super) struct Change {
    any: AtomicU64,
    /// A write by word, or a put that went behind one.
    write: AtomicU64,
}

impl Default for Changes {
    fn default() -> Self {
        Self((0..PLACES).map(|_| Change::default()).collect())
    }
}

impl Changes {
    #[inline]
    pub(super) fn of(&self, region: RegionId) -> &Change {
        &self.0[region.0 as usize % PLACES]
    }
}

impl Change {
    /// A change was posted; call it after the posting.
    pub(super) fn note(&self, verbs: &Verbs, rank: Rank, is_write: bool) {
        // What other threads have posted meanwhile is counted with it: then more is waited for than need be.
        let posted = verbs.posted(rank);
        if is_write {
            self.write.fetch_max(posted, Ordering::Relaxed);
        }
        // Release: whoever sees it sees the write above.
        self.any.fetch_max(posted, Ordering::Release);
    }

    /// Whether all of them are in memory, so that the CPU may come next.
    #[inline]
    pub(super) fn is_settled(&self, verbs: &Verbs, rank: Rank) -> bool {
        // What another thread posts at the same time has no order with what this one is about to do.
        let any = self.any.load(Ordering::Acquire);
        any == 0 || self.has_settled(verbs, rank, any)
    }

    #[cold]
    fn has_settled(&self, verbs: &Verbs, rank: Rank, any: u64) -> bool {
        let settled = verbs.has_settled(rank, any, self.write.load(Ordering::Relaxed));
        if settled {
            // Forgotten, unless there is a later one; its failure means just that.
            let _ = self.any.compare_exchange(any, 0, Ordering::Relaxed, Ordering::Relaxed);
        }
        settled
    }
}
