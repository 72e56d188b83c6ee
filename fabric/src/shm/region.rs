//! What a region's number says of its memory.

use onesided_remote_memory::RegionId;

use crate::shm::arena::BLOCK;

/// Marks regions of user memory. The rest of the number is the region of the control page.
pub(super) const USER_MEMORY: u32 = 1 << 31;

/// Whether a region is a block of an arena.
pub(super) const fn is_block(region: RegionId) -> bool {
    region.0 & (USER_MEMORY | BLOCK) == BLOCK
}
