//! One-sided remote memory access and distributed locks, over shared memory and RDMA verbs.
//!
//! Every rank of a [`World`] exposes window memory ([`Window`]). Every other rank can read, write,
//! update atomically and lock it, **without help of the target**. The same program runs as threads,
//! as processes of one host over shared memory, and as processes over RDMA verbs (cards, or
//! Soft-RoCE on any Ethernet).
//!
//! ```
//! use onesided::{Window, World};
//!
//! fn main() -> onesided::Result<()> {
//!     let world = World::init()?; // under `onesided run`, or alone
//!     let scores = Window::<u64>::allocate(&world, 1024).wait()?; // collective: 1024 elements on every rank
//!
//!     let next = (world.rank() + 1) % world.size();
//!     let epoch = scores.lock_exclusive(next).wait()?; // the first compare-and-swap is posted when the call returns
//!     let old = epoch.fetch_add(0, 1).wait()?;
//!     epoch.put(8, &[old, 42])?;
//!     epoch.unlock().wait()?; // data complete at the target, release posted
//!
//!     world.barrier().wait()?;
//!     println!("rank {}: {:?}", world.rank(), scores.local().read(0..10));
//!     scores.close().wait()?;
//!     Ok(())
//! }
//! ```
//!
//! # Where to go from here
//!
//! - [`World`]: rank, size, barrier, [`split`](World::split); [`threads`] for ranks as threads.
//! - [`Window`]: memory by [`allocate`](Window::allocate), [`create`](Window::create),
//!   [`create_over`](Window::create_over), [`dynamic`](Window::dynamic); synchronisation by
//!   [`lock_exclusive`](Window::lock_exclusive), [`lock_shared`](Window::lock_shared),
//!   [`lock_all`](Window::lock_all), [`fence`](Window::fence), [`post`](Window::post) and
//!   [`start`](Window::start). Each gives an [`Access`], which has the operations.
//! - [`Mutex`] and [`RwLock`]: one value with its lock, as in `std::sync`. [`LockTable`]: a million
//!   locks, by number.
//! - [`Epoch::fencing_token`]: numbers that rise from one owner of a lock to the next.
//! - Shortcuts: [`Window::locked`] (lock, operate and unlock in one call), [`Window::versioned`]
//!   (reads without locks), [`Window::scope`] (many operations on borrowed slices at the same
//!   time), [`Window::direct`] (loads and stores where window memory is mapped), [`Access::signal`]
//!   and [`Local::wait_until`].
//! - [`Messages`]: messages with tags, sends and receives; collectives, from
//!   [`barrier`](Messages::barrier) to [`all_to_all`](Messages::all_to_all). [`ServedLock`]: a lock
//!   that a thread serves over messages.
//! - [`Request`] and [`handles`]: what a call that may have to wait returns.
//! - [`manual`]: [getting started](manual::getting_started), [recipes](manual::recipes),
//!   [terms of MPI](manual::mpi), processes, memory model, locks, failures, fabrics, simulation.
//! - [`onesided_lock_algos`]: the lock algorithms. [`onesided_fabric`]: the fabrics.
//!
//! # Elements
//!
//! A window holds plain data ([`Element`]): integers, floats, arrays of them, and structures that
//! derive `Pod` of [`bytemuck`], which is re-exported:
//!
//! ```
//! use onesided::bytemuck::{Pod, Zeroable};
//!
//! #[derive(Clone, Copy, Debug, PartialEq, Pod, Zeroable)]
//! #[bytemuck(crate = "onesided::bytemuck")]
//! #[repr(C)]
//! struct Particle {
//!     position: [f32; 3],
//!     charge: f32,
//! }
//!
//! # fn main() -> onesided::Result<()> {
//! # let world = onesided::World::init()?;
//! let particles = onesided::Window::<Particle>::allocate(&world, 100).wait()?;
//! particles.local().set(7, Particle { position: [0.0; 3], charge: 1.0 })?;
//! assert_eq!(particles.local().get(7)?.charge, 1.0);
//! # particles.close().wait()?;
//! # Ok(())
//! # }
//! ```
//!
//! # Features
//!
//! - `verbs`: the fabric over libibverbs. Off by default: shared memory needs no other package.

#![forbid(unsafe_code)]

#[doc(inline)]
pub use onesided_fabric as fabric;
pub use onesided_fabric::{Any, Dump, ServerThread, World, dump};
#[doc(inline)]
pub use onesided_lock_algos as lock_algos;
pub use onesided_remote_memory::{Fault, FaultKind};
pub use onesided_two_sided as two_sided;
pub use onesided_two_sided::Error as MessageError;
pub use onesided_two_sided::Statistics as MessageStatistics;
pub use onesided_two_sided::{Block, Collective, CollectiveCall, CollectiveFault, Commutative, InPlace, Reduction};
pub use onesided_two_sided::{
    Channel, ChannelCounts, ChannelMemory, Condition, Explanation, Message, Messages, Payload, PersistentRecv,
    PersistentSend, ProgressMode, Protocol, Registrations, Rule, Rules, SentMessages, SentTo, ServedGuard, ServedLock,
    Source, Status, Tag, Tags, Unmatched, WrongMembers, WrongRule,
};
pub use onesided_windows::Error as WindowError;
pub use onesided_windows::{
    Access, AccessEpoch, AtomicElement, Buffer, BufferError, Builder, Direct, Element, Epoch, Epochs, FenceEpoch,
    Field, FieldAccess, Fields, LeasePolicy, Local, Located, LockAll, LockAllDesign, LockDesign, LockTable, Locked,
    Mode, Mutex, NoCheckEpoch, Op, PreviousOwner, ReadGuard, RemotePtr, Request, Runs, RwLock, Scope, Shape,
    TableGuard, Versioned, VersionedEpoch, Window, WindowMemory, WriteGuard, bytemuck, field, info,
};

mod error;
#[cfg(all(debug_assertions, not(test)))]
#[doc(hidden)]
pub mod instances;
pub mod manual;
mod threads;

/// The handles that are types of their own, where a boxed [`Request`] would cost more than the
/// call, and those of worlds and messages. Each has `wait`, `.await`, `test` and `wait_timeout`;
/// the method that returns it documents its errors and its cancel safety.
pub mod handles {
    pub use onesided_fabric::{AllGather, Barrier, Split};
    pub use onesided_two_sided::{AcquireServed, CreateServedLock};
    pub use onesided_two_sided::{Buffer as MessageBuffer, RecvBuffer, SendBuffer};
    pub use onesided_two_sided::{
        CollectiveRequest, CreateGroup, CreateMessages, MatchProbe, Probe, Probing, Receive, Recv, RecvInto,
        SendRequest,
    };
    pub use onesided_windows::handles::*;
}

pub use crate::error::{Error, Result};
pub use crate::threads::threads;
