//! Registered memory on one host: a range of a mapping.

use std::fmt;
use std::ptr::NonNull;
use std::sync::Arc;

use remote_memory::{Fault, FaultKind, Rank, RegionId};

use crate::bootstrap::{Exchange, Maker};
use crate::shm::{Mapping, ShmWord};
use crate::{Segment, SegmentKey};

/// A segment of shared memory, one's own or a peer's, mapped here.
#[derive(Clone)]
pub struct ShmSegment {
    start: NonNull<u8>,
    len: u64,
    region: Arc<Region>,
}

/// What keeps the memory mapped, and published while its owner holds it.
struct Region {
    _mapped: Arc<Mapping>,
    rank: Rank,
    id: RegionId,
    /// The owner's way to take the region back.
    published: Option<Arc<dyn Exchange>>,
    maker: Maker,
}

impl Drop for Region {
    fn drop(&mut self) {
        if let Some(exchange) = self.published.as_ref().filter(|_| self.maker.is_here()) {
            exchange.retract(self.id);
        }
    }
}

#[allow(unsafe_code)] // the pointer is kept beside what keeps it valid
mod send {
    use super::ShmSegment;

    // SAFETY: `start` points into a `Mapping`, which is Send and Sync and is kept by `region`.
    unsafe impl Send for ShmSegment {}
    // SAFETY: as above.
    unsafe impl Sync for ShmSegment {}
}

impl ShmSegment {
    /// `len` bytes at `offset` of a mapping. `published`: one's own, to be retracted with the last clone.
    pub(crate) fn new(
        memory: Arc<Mapping>,
        (offset, len): (u64, u64),
        (rank, id): (Rank, RegionId),
        published: Option<Arc<dyn Exchange>>,
    ) -> Result<Self, Fault> {
        let start = memory.bytes(offset, len).ok_or(Fault::of(FaultKind::OutOfRange, rank))?;
        Ok(Self { start, len, region: Arc::new(Region { _mapped: memory, rank, id, published, maker: Maker::this() }) })
    }

    #[inline]
    pub(crate) fn check(&self, offset: u64, len: usize) -> Result<(), Fault> {
        match offset.checked_add(len as u64) {
            Some(end) if end <= self.len => Ok(()),
            _ => Err(Fault::of(FaultKind::OutOfRange, self.region.rank)),
        }
    }
}

#[allow(unsafe_code)] // the checked way from a segment to its bytes
mod access {
    use std::sync::atomic::AtomicU64;

    use remote_memory::{Fault, FaultKind};

    use super::{ShmSegment, ShmWord};
    use crate::copy;

    impl ShmSegment {
        #[inline]
        pub(crate) fn word(&self, offset: u64) -> Result<ShmWord<'_>, Fault> {
            if offset % 8 != 0 {
                return Err(Fault::of(FaultKind::Misaligned, self.region.rank));
            }
            self.check(offset, 8)?;
            // SAFETY: offset + 8 <= len was just checked, and start is valid for len bytes.
            let word = unsafe { self.start.add(offset as usize) };
            // SAFETY: 8 bytes of a mapping that `self` keeps; segments begin at multiples of 8 (pages, or 64-byte lines
            // of the board), and everybody reaches them by atomics or racy copies.
            let word = unsafe { AtomicU64::from_ptr(word.cast().as_ptr()) };
            Ok(ShmWord { word, owner: self.region.rank })
        }

        #[inline]
        pub(crate) fn write(&self, offset: u64, from: &[u8]) -> Result<(), Fault> {
            self.check(offset, from.len())?;
            // SAFETY: offset <= len was just checked.
            let to = unsafe { self.start.add(offset as usize) };
            // SAFETY: from.len() bytes from there lie inside the mapping, which `self` keeps; others reach them by
            // atomics or racy copies.
            unsafe { copy::into_shared(to.as_ptr(), from) };
            Ok(())
        }

        #[inline]
        pub(crate) fn read(&self, offset: u64, into: &mut [u8]) -> Result<(), Fault> {
            self.check(offset, into.len())?;
            // SAFETY: offset <= len was just checked.
            let from = unsafe { self.start.add(offset as usize) };
            // SAFETY: into.len() bytes from there lie inside the mapping, which `self` keeps; others reach them by
            // atomics or racy copies.
            unsafe { copy::out_of_shared(into, from.as_ptr()) };
            Ok(())
        }

        /// Copies between two segments. Where they overlap the bytes may come from before or from within the copy.
        pub(crate) fn transfer(&self, offset: u64, into: (&Self, u64), len: u64) -> Result<(), Fault> {
            let bytes = usize::try_from(len).map_err(|_| Fault::of(FaultKind::OutOfRange, self.region.rank))?;
            self.check(offset, bytes)?;
            into.0.check(into.1, bytes)?;
            // SAFETY: offset <= len of this segment.
            let from = unsafe { self.start.add(offset as usize) };
            // SAFETY: the offset is at most the length of that segment.
            let to = unsafe { into.0.start.add(into.1 as usize) };
            // SAFETY: both ranges were just checked and both mappings are kept; both are shared memory.
            unsafe { copy::copy(to.as_ptr(), from.as_ptr(), bytes) };
            Ok(())
        }
    }
}

impl Segment for ShmSegment {
    fn rank(&self) -> Rank {
        self.region.rank
    }

    fn len(&self) -> u64 {
        self.len
    }

    fn key(&self) -> SegmentKey {
        SegmentKey { rank: self.region.rank, region: self.region.id, len: self.len, address: 0, rkey: 0 }
    }
}

impl fmt::Debug for ShmSegment {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} bytes of {}, region {}", self.len, self.region.rank, self.region.id.0)
    }
}
