//! RDMA primitives, the endpoint that drives them, and the fabrics `shm` and `verbs`.
//!
//! This crate may use the job (`onesided-job`), the operating system, atomics, threads and
//! libibverbs. It does not know windows, locks or message protocols, which are generic over
//! [`Fabric`].
//!
//! Start with [`Fabric`] (what every fabric provides) and [`Drive`] (what a thread can wait on),
//! then [`shm`] (processes and threads of one host), `verbs` (RDMA cards and Soft-RoCE, feature
//! `verbs`; with `verbs::mixed` both in one world), and [`bootstrap`] (how a process finds its job).
//! [`World`] is what users hold: a fabric with its collectives.
#![cfg_attr(onesided_loom, allow(dead_code))] // its users are not compiled under loom

#[macro_use]
mod handle;

#[cfg(not(onesided_loom))]
mod any;
mod arrival;
mod background;
mod capabilities;
mod collective;
#[cfg(feature = "conformance")]
pub mod conformance;
#[cfg(not(onesided_loom))]
mod datagrams;
mod dispatch;
mod drive;
mod endpoint;
mod error;
#[cfg(any(feature = "verbs", onesided_loom))]
mod event_requests;
mod fabric;
mod fencing;
#[cfg(any(feature = "verbs", onesided_loom))]
mod free_list;
#[cfg(all(feature = "verbs", not(onesided_loom)))]
mod full_after;
mod limit;
mod links;
#[cfg(any(feature = "verbs", onesided_loom))]
mod listener;
mod members;
mod note;
mod offer;
mod once_table;
#[cfg(not(onesided_loom))]
mod oversubscription;
#[cfg(not(onesided_loom))]
mod peer_status;
mod request_sets;
mod segment;
mod server_threads;
#[cfg(not(onesided_loom))]
pub mod shm;
mod solicited;
mod spin_lock;
mod split;
mod sync;
mod tasks;
mod transport;
mod user_memory;
#[cfg(all(feature = "verbs", not(onesided_loom)))]
pub mod verbs;
mod waits;
mod world;

/// The part of shared memory that loom checks: its atomics cannot lie in memory that processes
/// share.
#[cfg(onesided_loom)]
mod shm {
    mod access_guard;
    #[cfg(test)]
    mod explored;
    mod gen_ref_count;
    mod lane;
}

#[doc(no_inline)]
pub use onesided_job as bootstrap;
#[doc(hidden)]
pub use onesided_job::explain;
pub use onesided_job::segment::{Ticket, WORLD_BYTES};
pub use onesided_remote_memory as remote_memory;

#[cfg(not(onesided_loom))]
pub use crate::any::{Any, endpoint, threads};
pub use crate::background::{Background, BackgroundSlot};
pub use crate::capabilities::{AtomicAgent, Capabilities, Path, keeps_order};
#[doc(hidden)]
pub use crate::collective::{Group, Sequence, neighbours, slot_bytes};
#[cfg(not(onesided_loom))]
#[doc(hidden)]
pub use crate::datagrams::{
    Channel, DatagramCounts, DatagramTransport, DatagramWaits, Datagrams, Identity, Machine, Posted, SharedMachine,
    lock_machine,
};
pub use crate::dispatch::{Either, EitherFuture, EitherPause};
pub use crate::drive::{Core, Drive, NOBODY, block_longer, block_on, poll_now, wait_for, wait_timeout};
pub use crate::endpoint::{Endpoint, Task};
pub use crate::error::Error;
pub use crate::fabric::Fabric;
pub use crate::fencing::{Fence, Fencing};
#[cfg(all(feature = "verbs", not(onesided_loom)))]
pub use crate::full_after::FULL_AFTER;
#[doc(hidden)]
pub use crate::handle::Call;
pub use crate::limit::Limit;
#[doc(hidden)]
pub use crate::note::{LockState, Note, NotedLock, NotedMemory, NotedWindow, WhichLock};
#[doc(hidden)]
pub use crate::offer::{Offer, PeerProcesses, Taken};
pub use crate::request_sets::WaitAll;
pub use crate::segment::{Segment, SegmentKey, WORDLESS};
pub use crate::server_threads::ServerThread;
pub use crate::solicited::{EventInterest, Events, SolicitedEvents};
#[doc(hidden)]
pub use crate::spin_lock::{SpinGuard, SpinLock};
pub use crate::split::Split;
pub use crate::transport::{Arrival, Renewed, SHORTEST_LIMIT, Transport};
pub use crate::user_memory::UserMemory;
#[cfg(not(onesided_loom))]
pub use crate::waits::dump_on_signal;
pub use crate::waits::{Dump, dump};
#[doc(hidden)]
pub use crate::waits::{Told, Wait, telling};
pub use crate::world::{AllGather, Barrier, World};
