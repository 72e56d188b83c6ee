//! Registered memory of a simulated rank.

use std::sync::Arc;

use onesided_fabric::{Path, Segment, SegmentKey, debug};
use onesided_remote_memory::{At, Fault, Rank, RegionId, RemoteMemory};

use crate::endpoint::{Shared, SimFabric};
use crate::state::check_range;

/// Registered memory of a simulated rank.
#[derive(Clone, Debug)]
pub struct SimSegment {
    pub(crate) rank: Rank,
    pub(crate) region: u32,
    pub(crate) len: u64,
    /// Its offset in its region.
    pub(crate) at: u64,
    /// Whether it is a part of a region; only the whole is reclaimed.
    pub(crate) part: bool,
    /// Keeps the region of a rank's own segment, or of one of its host.
    pub(crate) _region_ref: Option<Arc<RegionRef>>,
}

pub(crate) struct RegionRef {
    shared: Arc<Shared>,
    pub(crate) rank: Rank,
    pub(crate) region: u32,
    /// Whether it is a mapping by another rank.
    maps: bool,
}

impl SimFabric {
    /// A reference to a region of a rank of this host, already counted.
    pub(crate) fn hold(&self, rank: Rank, region: u32) -> Arc<RegionRef> {
        Arc::new(RegionRef { shared: Arc::clone(&self.shared), rank, region, maps: rank != self.rank() })
    }
}

impl Drop for RegionRef {
    fn drop(&mut self) {
        let mut state = self.shared.lock();
        let memory = &mut state.ranks[self.rank.index()].memory;
        if self.maps {
            return memory.unmap(self.region);
        }
        memory.release(self.region);
        if memory.len(self.region).is_none() {
            state.notes.memory.remove(&(self.rank, self.region));
            drop(state);
            self.shared.user_memory().remove(&(self.rank, self.region));
        }
    }
}

debug!([] RegionRef, |_this| "RegionRef");

impl SimSegment {
    pub(crate) fn check(&self, offset: u64, count: u64) -> Result<(), Fault> {
        check_range(self.rank, self.len, offset, count)
    }

    /// The location of a checked offset.
    pub(crate) const fn place(&self, offset: u64) -> At {
        At { rank: self.rank, region: RegionId(self.region), offset: self.at + offset }
    }
}

impl Segment for SimSegment {
    fn key(&self) -> SegmentKey {
        SegmentKey { rank: self.rank, region: RegionId(self.region), len: self.len, address: self.at, rkey: 0 }
    }
    fn path(&self) -> Path {
        Path::Simulated
    }
}
