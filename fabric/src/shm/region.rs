//! What a region's number says of its memory.

use onesided_remote_memory::RegionId;

use crate::shm::arena::PIECE;

/// Marks the regions that are lent and not mapped: what is published of them is their control page.
pub(super) const LENT: u32 = 1 << 31;

/// Whether a region is a piece of an arena.
pub(super) const fn is_piece(region: RegionId) -> bool {
    region.0 & (LENT | PIECE) == PIECE
}
