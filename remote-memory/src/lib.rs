//! The boundary between algorithms and fabrics.
//!
//! A lock, a barrier or a protocol is written once, as `async fn`s over [`RemoteMemory`], and knows
//! no fabric. The implementor of the trait decides what an operation becomes:
//!
//! | implementor | what an operation is |
//! |---|---|
//! | shared memory (`onesided_fabric::shm`) | an instruction: done when the call returns, its future compiles away |
//! | RDMA verbs (`onesided_fabric::verbs`) | a posted work request; its future completes from the completion queue |
//! | the simulator (`sim`) | an event in virtual time on a modelled card and wire |
//! | a model checker (loom, in `lock-kit`) | a step whose interleavings are all explored |
//!
//! The crate has plain data and traits: no I/O, no threads, no atomics, no `unsafe`, no dependency,
//! no `std`.
//!
//! Start at [`RemoteMemory`], then [`At`] (the address of a word), [`Fault`] (an error in 8 bytes)
//! and [`Patience`] (when a wait ends without success).
//!
//! # Order
//!
//! Operations that one origin posts to one target **take effect in the order of posting**, as on
//! one reliable connection (InfiniBand Architecture Specification, volume 1, 9.5), with two
//! exceptions:
//!
//! - a write that is posted after a read or an atomic that has not completed may take effect before
//!   that read or atomic (the same section of the specification);
//! - a read that is posted after a write may take effect before the write is visible to others (the
//!   store buffers of CPUs).
//!
//! The links of one [chain](RemoteMemory::post) take effect in order, without these exceptions.
//! Operations on different targets have no order.

#![no_std]
#![forbid(unsafe_code)]

mod at;
mod chain;
mod collective;
mod fault;
mod forms;
mod memory;
mod patience;

pub use crate::at::{At, Rank, RegionId};
pub use crate::chain::{Chain, Link};
pub use crate::collective::Collective;
pub use crate::fault::{Fault, FaultKind};
pub use crate::memory::{Notify, RemoteMemory};
pub use crate::patience::{Liveness, Patience, Watch};
