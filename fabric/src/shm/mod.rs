//! The fabric of one host: processes and threads over shared memory.
//!
//! Memory consists of sealed memory files ([`Mapping`]) that peers map when they first need them.
//! They have no names, so a killed process leaves nothing behind. An operation is an instruction
//! and completes at post. A waiter spins, then yields, then sleeps on its rank's doorbell, a futex;
//! a write with `Notify::Yes` wakes only sleepers.
//!
//! Regions are blocks of a file that each rank has and that a peer maps once
//! ([`Fabric::allocate`](crate::Fabric::allocate)); large regions have a file each (`arena`).
//!
//! User memory ([`Fabric::register`](crate::Fabric::register)) cannot be mapped. Threads of the
//! owner's process copy directly, other processes through the kernel (process_vm_readv), or by the
//! owner's progress thread where the system forbids that. Each copy holds access through a guard in
//! shared memory (`access_guard`), which the owner closes to reclaim its memory. The guard lies on a
//! control page, which is allocated like a region.
//!
//! Start with [`Shm`], then [`JobSegment`], the job segment.

mod access_guard;
mod allocation;
mod arena;
mod bulk;
mod collective_buffer;
mod collective_buffers;
mod control;
mod drive;
mod endpoint;
mod gen_ref_count;
mod lane;
mod piece;
mod pieces;
mod process_vm;
mod processes;
mod region;
mod segment;
mod serving;
mod system_error;
#[cfg(test)]
mod tests;
mod transport;
mod user_region;
mod waits;
mod words;

pub use onesided_job::segment::{JobSegment, Mapping};

#[doc(hidden)]
pub use crate::shm::collective_buffer::Contribution;
#[doc(hidden)]
pub use crate::shm::collective_buffers::CollectiveBuffers;
pub use crate::shm::endpoint::{Shm, threads};
#[doc(hidden)]
pub use crate::shm::process_vm::bare;
pub use crate::shm::process_vm::process_vm_works;
#[doc(hidden)]
pub use crate::shm::processes::{are_processes_open, introduce_process, test_process};
pub use crate::shm::segment::{OwnWords, ShmSegment};
#[cfg(feature = "verbs")]
pub(crate) use crate::shm::system_error::explain;
pub use crate::shm::transport::ShmTransport;
pub use crate::shm::waits::{ShmPause, ShmWait};
pub use crate::shm::words::ShmWord;
