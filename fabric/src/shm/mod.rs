//! The fabric of one host: processes, and threads of one process, over shared memory.
//!
//! Memory is sealed memory files ([`Mapping`]) that peers map when they first need them; nothing has a name, so nothing
//! is left behind by a kill. An operation is an instruction and is done when the call returns. Who waits spins, then
//! yields, then sleeps on the doorbell of its rank, a futex; who writes with `Notify::Yes` wakes only a sleeper.
//!
//! Begin to read at [`Shm`]; then [`Board`], what all ranks share from the start.

mod board;
mod doorbell;
mod endpoint;
mod headroom;
mod mapping;
mod once_table;
mod ring;
mod segment;
#[cfg(test)]
mod tests;
mod waits;

pub use crate::shm::board::Board;
#[cfg(feature = "verbs")]
pub(crate) use crate::shm::endpoint::explain;
pub use crate::shm::endpoint::{Shm, ShmWord, threads};
pub use crate::shm::mapping::Mapping;
pub use crate::shm::segment::ShmSegment;
pub use crate::shm::waits::{ShmPause, ShmRecv, ShmSend, ShmWait};
