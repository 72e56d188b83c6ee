//! Messages with tags over RDMA primitives: matching, eager and rendezvous protocols.
//!
//! Start at [`Messages`], a communicator.
//!
//! | MPI | here |
//! |---|---|
//! | a communicator | [`Messages::new`] of a world or of a split of it |
//! | `MPI_Comm_create_group` | [`Messages::create_group`] |
//! | send, isend; wait, test | [`Messages::send`]; `.wait()`, `.await`, `.test()` |
//! | ssend, issend | [`Messages::send_synchronous`], [`Messages::send_synchronous_shaped`] |
//! | recv, irecv | [`Messages::recv`], [`Messages::recv_into`] |
//! | `MPI_Type_vector`, `MPI_Type_indexed` | [`Shape`], [`Messages::send_shaped`], [`Messages::recv_shaped`] |
//! | `MPI_Send_init`, `MPI_Recv_init`; `MPI_Start`, `MPI_Startall` | [`Messages::send_init`], [`Messages::recv_init`]; [`PersistentSend::start`], [`PersistentSend::start_all`], and those of [`PersistentRecv`] |
//! | any source, any tag | [`Source::Any`], [`Tags::Any`] |
//! | probe, iprobe | [`Messages::probe`] |
//! | mprobe, mrecv | [`Messages::match_probe`], [`Message`] |
//! | cancel | drop of the handle of a receive |
//! | barrier, bcast, reduce, allreduce, gather, ... | [`Messages::barrier`], [`Messages::broadcast`], [`Messages::all_reduce`], ... |
//! | nonblocking collectives: ibarrier, ... | the same, with [`CollectiveRequest::start`] |
//! | progress threads of an implementation | [`Messages::set_progress`] |
//! | (ULFM) ack_failed | [`Messages::acknowledge_failures`] |
//! | (none) a lock that a thread serves | [`ServedLock`] |
//!
//! # How it is built
//!
//! From the bottom to the top: none uses what stands below it in this list, but that a communicator keeps
//! the state of its collectives.
//!
//! - `engine` runs the protocols, without I/O, clock or threads: `matching` decides which receive gets
//!   which message, `wire` has the packets;
//! - `driver` moves the messages of a rank: `progress` drives the engine over a fabric, in whatever task of
//!   the rank waits, by transfers of registered memory and by `tasks` that every wait moves;
//! - `api` is what users call: communicators, sends, receives and probes;
//! - `collectives` are algorithms over messages of a context of their own;
//! - `served_lock` is built from the interface.
//!
//! May use: [`onesided_fabric`], through its traits, [`onesided_layouts`], and of [`onesided_lock_algos`]
//! the queue of served locks. May not know which fabric it runs on, or windows.

#![forbid(unsafe_code)]

mod api;
mod collectives;
mod driver;
mod engine;
mod served_lock;

pub use onesided_fabric::{Channel, ChannelCounts, ChannelMemory};
pub use onesided_layouts::{Located, Op, Operand, Shape};

pub use crate::api::buffer::Buffer;
pub use crate::api::create::CreateMessages;
pub use crate::api::error::{Error, Unmatched, WrongMembers};
pub use crate::api::explanation::Explanation;
pub use crate::api::group::CreateGroup;
pub use crate::api::messages::Messages;
pub use crate::api::persistent::{PersistentRecv, PersistentSend};
pub use crate::api::probe::{MatchProbe, Message, Probe, Probing};
pub use crate::api::receive::{Receive, Recv, RecvBuffer, RecvInto};
pub use crate::api::send::{SendBuffer, SendRequest};
pub use crate::api::statistics::{SentMessages, SentTo, Statistics};
pub use crate::collectives::{
    Block, Collective, CollectiveCall, CollectiveFault, CollectiveRequest, Commutative, InPlace, Reduction,
};
pub use crate::driver::handler::ProgressMode;
pub use crate::driver::memory::Registrations;
pub use crate::driver::rules::{Condition, Rule, Rules, WrongRule};
pub use crate::engine::protocol::Protocol;
pub use crate::engine::source::{Payload, Source, Status, Tag, Tags};
pub use crate::served_lock::{AcquireServed, CreateServedLock, ServedGuard, ServedLock};
