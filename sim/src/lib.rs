//! The simulated fabric.
//!
//! [`SimFabric`] is a [`Fabric`](onesided_fabric::Fabric): windows, locks and messages run on it
//! unchanged, in virtual time, from one rank to hundreds of thousands, with faults, in one thread.
//! The same seed gives the same [trace](Report::trace).
//!
//! May use: the crate `fabric` and its traits. May not use: a clock, threads, I/O, `unsafe`.
//!
//! Start reading at [`Simulation`] (runs programs) and [`Network`] (the costs of cards and wires);
//! inside, at `state.rs`, where an operation passes through its stages.

#![forbid(unsafe_code)]

mod agenda;
mod bulk;
mod endpoint;
mod futures;
mod memory;
mod network;
mod operation;
mod rank;
mod report;
mod segment;
mod simulation;
mod state;
mod words;

pub use crate::endpoint::{SimFabric, Word};
pub use crate::futures::{Flush, Get, Op, Pause, Recv, Send, Transfer, Wait};
pub use crate::network::Network;
pub use crate::report::{Counts, End, Report, Stuck, WaitsFor};
pub use crate::segment::SimSegment;
pub use crate::simulation::Simulation;
