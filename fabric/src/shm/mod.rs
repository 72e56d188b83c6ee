//! The fabric of one host: processes, and threads of one process, over shared memory.

mod board;
mod doorbell;
mod mapping;

pub use crate::shm::board::Board;
pub use crate::shm::mapping::Mapping;
