//! Allocation of a rank's memory: a block of its arena, or a separate file; and how a peer opens a
//! block.

#[cfg(test)]
mod tests;

use std::io;
use std::sync::Arc;

use onesided_job::fork;
use onesided_job::lock;
use onesided_job::segment::headroom;
use onesided_remote_memory::{Fault, FaultKind, Liveness, Rank, RegionId};

use crate::shm::arena::{Arena, BLOCK, Owner, slot_of};
use crate::shm::system_error::explain;
use crate::shm::{Mapping, Shm, ShmSegment};
use crate::{Error, Segment as _, SegmentKey};

/// Memory for a region.
pub(super) enum Fresh {
    /// Peers find it in the arena.
    Block(ShmSegment),
    /// Not published yet.
    File(RegionId, Arc<Mapping>),
}

impl Shm {
    pub(super) fn failed(&self, len: u64, what: &str, kind: FaultKind, source: Option<io::Error>) -> Error {
        Error::Allocate { len, what: what.into(), fault: Fault::of(kind, self.me()), source }
    }

    pub(super) fn create(&self, len: u64) -> Result<Fresh, Error> {
        let bytes = usize::try_from(len).ok().filter(|bytes| *bytes > 0 && *bytes <= isize::MAX as usize);
        let out = || self.failed(len, "the length is 0 or not addressable", FaultKind::OutOfRange, None);
        let bytes = bytes.ok_or_else(out)?;
        let failed = |source| {
            let (what, kind) = explain(&source);
            self.failed(len, what, kind, Some(source))
        };
        fork::refuse().and_then(|()| headroom::admit(len)).map_err(failed)?;
        if let Some((id, piece, start)) = self.own_arena().and_then(|arena| arena.allocate(len)) {
            let segment = ShmSegment::of_block(piece, (start, len), (self.me(), id), self.me());
            return segment.map(Fresh::Block).map_err(Error::operation("allocate"));
        }
        let memory = Mapping::reserve(bytes).map_err(failed)?;
        Ok(Fresh::File(self.next_region(), Arc::new(memory)))
    }

    /// This rank's arena, made on first use. On failure, the caller's separate file reports the
    /// cause.
    fn own_arena(&self) -> Option<Arc<Owner>> {
        let mut arena = lock(&self.0.arena);
        if arena.is_none() {
            let exchange = Arc::clone(&self.0.job.exchange);
            *arena = Owner::create(exchange, self.job_segment().size()).ok()?;
        }
        arena.clone()
    }

    /// The segment of a file that peers can map. Dropping it retracts the region.
    fn published(&self, id: RegionId, memory: Arc<Mapping>) -> Result<ShmSegment, Error> {
        let (exchange, len) = (Arc::clone(&self.0.job.exchange), memory.len() as u64);
        ShmSegment::new(memory, (0, len), (self.me(), id), self.me(), Some(exchange))
            .map_err(Error::operation("allocate"))
    }

    pub(super) fn publish(&self, fresh: Fresh) -> Result<ShmSegment, Error> {
        match fresh {
            Fresh::Block(segment) => Ok(segment),
            Fresh::File(id, memory) => {
                self.0.job.exchange.publish(id, &memory)?;
                self.published(id, memory)
            }
        }
    }

    /// See [`Fabric::allocate_two`](crate::Fabric::allocate_two).
    pub(super) fn allocate_both(&self, [first, second]: [u64; 2]) -> Result<(ShmSegment, ShmSegment), Error> {
        match (self.create(first)?, self.create(second)?) {
            (Fresh::File(id, memory), Fresh::File(other_id, other)) => {
                self.0.job.exchange.publish_two([(id, &memory), (other_id, &other)])?;
                Ok((self.published(id, memory)?, self.published(other_id, other)?))
            }
            (first, second) => Ok((self.publish(first)?, self.publish(second)?)),
        }
    }

    /// A rank's arena, opened on first use.
    fn arena_of(&self, rank: Rank) -> Result<Arc<Arena>, Error> {
        if rank == self.me() {
            let own = lock(&self.0.arena);
            return own.as_ref().map(|own| Arc::clone(own.arena())).ok_or_else(|| no_block(rank));
        }
        let reached = &self.0.arenas[rank.index()];
        if let Some(arena) = reached.get() {
            return Ok(Arc::clone(arena));
        }
        let (exchange, arena) = (&self.0.job.exchange, RegionId(BLOCK));
        let arena = match exchange.fetch(rank, arena) {
            Err(error) if error.fault().kind() == FaultKind::NoMemory => {
                let pieces = Arena::by_piece(exchange.fetch_file(rank, arena)?);
                pieces.map_err(|source| self.no_room(rank, source))?
            }
            fetched => Arena::new(fetched?),
        };
        Ok(Arc::clone(reached.get_or_init(|| Arc::new(arena))))
    }

    /// Opens a block of an existing rank.
    pub(super) fn open_block(&self, key: &SegmentKey) -> Result<ShmSegment, Error> {
        let &SegmentKey { rank, region, len, .. } = key;
        // The arena of a rank that left is still mapped.
        if self.job_segment().liveness(rank) == Liveness::Left {
            return Err(Error::open(rank, "it has left", FaultKind::PeerLeft));
        }
        let (piece, start, there) = self.arena_of(rank)?.open(region).map_err(|source| self.no_room(rank, source))?;
        if len == 0 || len > there {
            return Err(Error::open(rank, "the key's length is not the region's", FaultKind::OutOfRange));
        }
        ShmSegment::of_block(piece, (start, len), (rank, region), self.me()).map_err(Error::operation("open"))
    }

    /// A block addressed by its region number is never released, so its slot is never reused.
    pub(super) fn piece(&self, rank: Rank, region: RegionId) -> Result<&ShmSegment, Fault> {
        let reach = || {
            let arena = self.arena_of(rank).map_err(|error| error.fault())?;
            let (piece, start, len) = arena.open(region).map_err(|source| self.no_room(rank, source).fault())?;
            ShmSegment::of_block(piece, (start, len), (rank, region), self.me())
        };
        let piece = self.0.pieces[rank.index()].get_or_try_init(slot_of(region), reach)?;
        if piece.key().region == region { Ok(piece) } else { Err(Fault::of(FaultKind::NoSuchRegion, rank)) }
    }

    /// Why a block of a rank cannot be mapped: it does not exist, or this rank has no memory.
    fn no_room(&self, rank: Rank, source: io::Error) -> Error {
        if source.kind() == io::ErrorKind::NotFound {
            return no_block(rank);
        }
        let (what, kind) = explain(&source);
        Error::Open { rank, what: what.into(), fault: Fault::of(kind, self.me()), source: Some(source) }
    }
}

fn no_block(rank: Rank) -> Error {
    Error::open(rank, "it has no such region", FaultKind::NoSuchRegion)
}
