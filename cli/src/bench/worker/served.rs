//! The lock of a design that a thread serves, over messages (jiang-2004, section 4).

use onesided_two_sided::ServedLock;
use onesided_windows::LockDesign;

use crate::bench::worker::rank::BenchRank;
use crate::failure::Failure;

/// The lock at `home` with the same thread over messages; `None` if no thread serves the design's.
/// Collective.
pub(crate) fn over_messages(rank: &BenchRank, design: LockDesign, home: u32) -> Result<Option<ServedLock>, Failure> {
    let Some((thread, is_apart)) = design.server_thread() else { return Ok(None) };
    let create = ServedLock::new(&rank.world, home, thread);
    let create = if is_apart { create.with_own_thread() } else { create };
    Ok(Some(create.wait()?))
}
