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
//! `matching` decides which receive gets which message; `engine` runs the protocols, without I/O,
//! clock or threads; `progress` drives the engine over a fabric, in whatever task of the rank
//! waits; `collectives` are algorithms over messages of a context of their own; `tasks` are those
//! that every wait moves; `served_lock` is built from the interface, which are the other files. May
//! use: [`onesided_fabric`], through its traits, [`onesided_layouts`], and of [`onesided_lock_algos`]
//! the queue of served locks. May not know which fabric it runs on, or windows.

#![forbid(unsafe_code)]

mod buffer;
mod collectives;
mod create;
mod destination;
mod elements;
mod engine;
mod error;
mod explanation;
mod group;
mod handler;
mod layers;
mod lists;
mod matching;
mod memory;
mod messages;
mod offered;
mod persistent;
mod pieces;
mod probe;
mod progress;
mod receive;
mod rules;
mod send;
mod served_lock;
mod shaped;
mod source;
mod taken;
mod tasks;
mod transfers;
mod wire;

pub use onesided_layouts::{Located, Op, Operand, Shape};

pub use crate::buffer::Buffer;
pub use crate::collectives::{
    Block, Collective, CollectiveCall, CollectiveFault, CollectiveRequest, Commutative, InPlace, Reduction,
};
pub use crate::create::CreateMessages;
pub use crate::error::{Error, Unmatched, WrongMembers};
pub use crate::explanation::Explanation;
pub use crate::group::CreateGroup;
pub use crate::handler::ProgressMode;
pub use crate::memory::Registrations;
pub use crate::messages::Messages;
pub use crate::persistent::{PersistentRecv, PersistentSend};
pub use crate::probe::{MatchProbe, Message, Probe, Probing};
pub use crate::receive::{Receive, Recv, RecvBuffer, RecvInto};
pub use crate::rules::{OfferedFrom, Protocol, Rules, UnknownRule};
pub use crate::send::{SendBuffer, SendRequest};
pub use crate::served_lock::{AcquireServed, CreateServedLock, ServedGuard, ServedLock};
pub use crate::source::{Payload, Source, Status, Tag, Tags};
