//! Distributed locks as algorithms over remote memory.
//!
//! May use: [`RemoteMemory`]. May not use: I/O, a clock of its own, threads, atomics, `unsafe`. That is why the code that
//! ships over shared memory and verbs is the very code that the simulator runs and that loom explores.
//!
//! Begin to read at [`LockAlgorithm`].

#![forbid(unsafe_code)]

mod algorithm;

pub use crate::algorithm::{LockAlgorithm, Mode, Owner, Place};
pub use remote_memory;
