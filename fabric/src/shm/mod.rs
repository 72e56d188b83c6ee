//! The fabric of one host: processes, and threads of one process, over shared memory.
//!
//! Memory is sealed memory files ([`Mapping`]) that peers map when they first need them; nothing has a name, so nothing
//! is left behind by a kill. An operation is an instruction and is done when the call returns. Who waits spins, then
//! yields, then sleeps on the doorbell of its rank, a futex; who writes with `Notify::Yes` wakes only a sleeper.
//!
//! Regions are cut from a file that each rank has, and that a peer maps once ([`Fabric::allocate`](crate::Fabric::allocate)),
//! or large ones have a file each (`arena`).
//!
//! Memory that the user made cannot be mapped: it is lent ([`Fabric::register`](crate::Fabric::register)). Threads of the
//! owner's process copy to and from it at once, other processes by the kernel (process_vm_readv), or by the owner's helper
//! thread where the system forbids that. Each copy passes a gate in shared memory, which the owner shuts before it has its
//! memory back (`gate`).
//!
//! Begin to read at [`Shm`]; then [`Board`], what all ranks share from the start.

mod allocation;
mod arena;
mod board_ring;
mod bulk;
mod control;
mod drive;
mod endpoint;
mod gate;
mod hold;
mod lent;
mod messages;
mod piece;
mod pieces;
mod process_vm;
mod region;
mod ring;
mod segment;
mod serving;
mod system_error;
#[cfg(test)]
mod tests;
mod waits;
mod words;

pub use onesided_job::segment::{Board, Mapping};

pub use crate::shm::endpoint::{Shm, threads};
#[doc(hidden)]
pub use crate::shm::process_vm::bare;
pub use crate::shm::process_vm::process_vm_works;
pub use crate::shm::segment::ShmSegment;
#[cfg(feature = "verbs")]
pub(crate) use crate::shm::system_error::explain;
pub use crate::shm::waits::{ShmPause, ShmRecv, ShmSend, ShmWait};
pub use crate::shm::words::ShmWord;
