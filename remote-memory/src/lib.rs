//! The boundary between algorithms and fabrics.
//!
//! A lock, a barrier or a protocol is written once, as `async fn`s over [`RemoteMemory`], and knows no fabric. Whoever
//! implements the trait decides what the algorithm becomes:
//!
//! | implementor | what an operation is |
//! |---|---|
//! | shared memory (`onesided_fabric::shm`) | an instruction: done when the call returns, its future compiles away |
//! | RDMA verbs (`onesided_fabric::verbs`) | a posted work request; its future completes from the completion queue |
//! | the simulator (`sim`) | an event in virtual time on a modelled card and wire |
//! | a model checker (loom, in `lock-kit`) | a step whose interleavings are all explored |
//!
//! Everything here is plain data and traits: no I/O, no threads, no atomics, no `unsafe`, no dependency, no `std`.
//!
//! Begin to read at [`RemoteMemory`], then [`At`] (where a word lies), [`Fault`] (what can go wrong, in 8 bytes) and
//! [`Patience`] (when a wait ends). [`Mailbox`] adds small messages, for the locks that a thread at the target serves.
//!
//! # Order
//!
//! Operations that one origin posts to one target **take effect in the order of posting**, as on one reliable connection
//! (InfiniBand Architecture Specification, volume 1, 9.5), with two exceptions:
//!
//! - a write that is posted after a read or an atomic which has not completed may take effect before that read or atomic
//!   (the same section of the specification);
//! - a read that is posted after a write may take effect before others see that write (the store buffers of CPUs).
//!
//! Links of one [chain](RemoteMemory::post) have no such exceptions: they take effect in order, whatever they are.
//! Nothing is promised across different targets.

#![no_std]
#![forbid(unsafe_code)]

mod chain;
mod fault;
mod mailbox;
mod memory;
mod patience;
mod place;

pub use crate::chain::{Chain, Link};
pub use crate::fault::{Fault, FaultKind};
pub use crate::mailbox::{MAX_MESSAGE, Mailbox, Message, Port};
pub use crate::memory::{Notify, RemoteMemory};
pub use crate::patience::{Liveness, Patience, Watch};
pub use crate::place::{At, Rank, RegionId};
