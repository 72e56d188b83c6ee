//! The memory that the ranks of a host share from the start, and its parts: [mappings](Mapping) of
//! sealed memory files, doorbells, copies between private and shared bytes.
//!
//! Under loom only the doorbell is compiled: loom's atomics cannot lie in shared memory.

#[cfg(not(onesided_loom))]
mod abort;
#[cfg(not(onesided_loom))]
mod bells;
#[doc(hidden)]
pub mod copy;
#[doc(hidden)]
pub mod doorbell;
#[cfg(not(onesided_loom))]
#[doc(hidden)]
pub mod headroom;
#[cfg(not(onesided_loom))]
mod job_segment;
#[cfg(not(onesided_loom))]
mod lanes;
#[cfg(not(onesided_loom))]
mod lost_connections;
#[cfg(not(onesided_loom))]
mod mapping;
#[cfg(not(onesided_loom))]
mod rows;

#[cfg(not(onesided_loom))]
pub use crate::segment::abort::Aborted;
pub use crate::segment::doorbell::Ticket;
#[cfg(not(onesided_loom))]
pub use crate::segment::job_segment::JobSegment;
#[cfg(not(onesided_loom))]
pub use crate::segment::mapping::Mapping;

/// How many bytes of the job segment each rank has for collectives: its world segment.
pub const WORLD_BYTES: u64 = 4096;
