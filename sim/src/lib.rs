//! The simulated fabric.
//!
//! [`SimFabric`] is a [`Fabric`](onesided_fabric::Fabric): windows, locks and messages run on it
//! unchanged, in virtual time, from one rank to hundreds of thousands, with faults, in one thread.
//! The same seed gives the same [trace](Report::trace).
//!
//! May use: the crate `fabric` and its traits. May not use: a clock, threads, I/O, `unsafe`.
//!
//! A [`Profile`] is a testbed: the costs of its cards, wires and hosts, each with unit and source,
//! and the measurements that they were set from.
//!
//! Start reading at [`Simulation`] (runs programs) and [`Network`] (the costs of cards and wires);
//! inside, at `state/flight.rs`, where an operation passes through its stages, and `processors.rs`,
//! where threads share cores.

#![forbid(unsafe_code)]

mod agenda;
mod bulk;
mod contexts;
mod datagrams;
mod endpoint;
mod futures;
mod landing;
mod memory;
mod microbench;
mod network;
mod operation;
mod processors;
mod profile;
mod rank;
mod report;
mod segment;
mod simulation;
mod solicited;
mod state;
mod testbed;
mod transport;
mod words;

pub use crate::datagrams::SimDatagrams;
pub use crate::endpoint::{SimFabric, Word};
pub use crate::futures::{Flush, Get, Op, Pause, Transfer, Wait};
pub use crate::network::Network;
pub use crate::profile::{Check, Parameter, Profile, ProfileError};
pub use crate::report::{Counts, End, LockWait, Report, Stuck, WaitsFor};
pub use crate::segment::SimSegment;
pub use crate::simulation::Simulation;
pub use crate::testbed::{Card, Host};
pub use crate::transport::{ConnectionTransport, SimTransport, SimWaits};
pub use onesided_fabric::{NotedLock, NotedMemory, NotedWindow, WhichLock};
