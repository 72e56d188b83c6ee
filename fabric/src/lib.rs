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
mod worlds;

#[cfg(not(onesided_loom))]
mod any;
#[cfg(feature = "conformance")]
pub mod conformance;
#[cfg(not(onesided_loom))]
mod datagrams;
mod dispatch;
mod interface;
#[cfg(not(onesided_loom))]
pub mod shm;
mod util;
#[cfg(all(feature = "verbs", not(onesided_loom)))]
pub mod verbs;
mod waiting;

/// The part of shared memory that loom checks: its atomics cannot lie in memory that processes
/// share.
#[cfg(onesided_loom)]
mod shm {
    mod access_guard;
    mod collective_buffer;
    #[cfg(test)]
    mod explored;
    mod gen_ref_count;
    mod lane;
}

#[doc(no_inline)]
pub use onesided_job as bootstrap;
pub use onesided_job::Error;
pub use onesided_job::segment::{Ticket, WORLD_BYTES};
#[doc(hidden)]
pub use onesided_job::{explain, lock};
pub use onesided_remote_memory as remote_memory;
#[doc(hidden)]
pub use onesided_remote_memory::{copied, debug, delegate, display, entries, questions};

#[cfg(not(onesided_loom))]
pub use crate::any::{Any, endpoint, threads};
#[cfg(not(onesided_loom))]
#[doc(hidden)]
pub use crate::datagrams::{
    Apart, Connecting, DatagramChannel, DatagramCounts, DatagramTransport, DatagramWaits, Datagrams, Identity, Machine,
    Placement, Places, Posted, SharedMachine,
};
pub use crate::dispatch::{Either, EitherFuture, EitherPause};
pub use crate::interface::background::{Background, BackgroundSlot};
pub use crate::interface::capabilities::{AtomicAgent, Capabilities, Path, keeps_order};
pub use crate::interface::endpoint::{Endpoint, Task};
pub use crate::interface::fabric::Fabric;
pub use crate::interface::fencing::{Fence, Fencing};
pub use crate::interface::landing::{Landing, Launch, Missing};
#[doc(hidden)]
pub use crate::interface::note::{LockState, Note, NotedLock, NotedMemory, NotedWindow, WhichLock};
#[doc(hidden)]
pub use crate::interface::offer::{Offer, PeerProcesses, Taken};
pub use crate::interface::segment::{Segment, SegmentKey, WORDLESS};
pub use crate::interface::solicited::{EventInterest, Events, SolicitedEvents};
pub use crate::interface::transport::{
    Absent, Arrival, Channel, ChannelCounts, ChannelMemory, ChannelTo, Packet, Renewed, SHORTEST_LIMIT, Transport,
};
pub use crate::interface::user_memory::UserMemory;
#[doc(hidden)]
pub use crate::util::spin_lock::{SpinGuard, SpinLock};
#[cfg(all(feature = "verbs", not(onesided_loom)))]
pub use crate::verbs::FULL_AFTER;
pub use crate::waiting::drive::{Core, Drive, NOBODY, Polls, block_longer, block_on, poll_now, wait_for, wait_timeout};
pub use crate::waiting::limit::Limit;
pub use crate::waiting::request_sets::WaitAll;
pub use crate::waiting::server_threads::ServerThread;
pub use crate::waiting::tasks::{Driver, Tasks};
#[cfg(not(onesided_loom))]
pub use crate::waiting::waits::dump_on_signal;
pub use crate::waiting::waits::{Dump, dump};
#[doc(hidden)]
pub use crate::waiting::waits::{Told, Wait, telling};
#[doc(hidden)]
pub use crate::worlds::collective::{Group, Sequence, neighbours, slot_bytes};
#[doc(hidden)]
pub use crate::worlds::handle::Call;
pub use crate::worlds::split::Split;
pub use crate::worlds::world::{AllGather, Barrier, World};
