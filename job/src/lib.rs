//! How a process finds its job: who it is, who the others are, and how it gets at their memory for the first time.
//!
//! A [`Job`] is made by [`local::jobs`] (ranks as threads), by [`Job::alone`], or by [`join`], from what the environment
//! says: under `onesided run` [`client`] speaks to the launcher; started by others, ranks meet by [`pmi`] or a
//! [`rendezvous`]. The endpoints of all fabrics are made from it.
//!
//! May use: the operating system, atomics, threads. May not know: endpoints, fabrics, windows; they
//! stand above.
//!
//! Begin to read at [`Job`] and [`Exchange`] (what a fabric gets), then [`join`]; then `daemon` (the
//! service that keeps a host's part of the job) and [`launcher`] (the policy of `onesided run`:
//! starting, output, what a failure ends). [`segment`] is what this crate and the fabrics stand on.
//!
//! # Who keeps a job
//!
//! Somebody makes the board, serves values and memory, and declares deaths: the launcher, where it is ours. Otherwise it
//! is rank 0, from a thread, in the launcher's place in all that is said below, and then
//!
//! - **joining is collective**: it returns when all ranks have come, or fails everywhere;
//! - **rank 0 goes last**: having left, it waits until all others have left or died, because they may still need to map
//!   one another's memory. One that ends without leaving still waits, 5 s at most, until the others of its host know that
//!   all have come;
//! - **a rank's death** rank 0 sees by its connection and its process. When rank 0 itself has died, the first of the
//!   others that still runs sees to it. Memory that was mapped stays reachable; new values and new memory are errors.
//!
//! On several hosts each has such a keeper: an agent of the launcher, or the lowest rank of that host. A *bridge* makes
//! their boards alike, so that all that stands above a board knows nothing of it.
#![cfg_attr(onesided_loom, allow(dead_code))] // what is left out would use it

#[cfg(not(onesided_loom))]
mod addresses;
#[cfg(not(onesided_loom))]
pub mod client;
#[cfg(not(onesided_loom))]
mod daemon;
#[cfg(not(onesided_loom))]
pub mod environment;
mod error;
#[cfg(not(onesided_loom))]
mod exchange;
#[cfg(not(onesided_loom))]
mod host;
#[cfg(not(onesided_loom))]
mod host_name;
#[cfg(not(onesided_loom))]
pub mod launcher;
#[cfg(not(onesided_loom))]
pub mod local;
#[cfg(not(onesided_loom))]
pub mod pmi;
#[cfg(not(onesided_loom))]
mod process;
#[cfg(not(onesided_loom))]
mod protocol;
#[cfg(not(onesided_loom))]
pub mod rendezvous;
#[cfg(not(onesided_loom))]
mod secret;
pub mod segment;
#[cfg(not(onesided_loom))]
mod start;
#[cfg(not(onesided_loom))]
mod wire;

pub use crate::error::Error;
#[doc(hidden)]
pub use crate::error::advice;
#[cfg(not(onesided_loom))]
#[doc(hidden)]
pub use crate::process::{Maker, Process, timespec};
#[cfg(not(onesided_loom))]
pub use crate::{
    daemon::{SUSPECT_AFTER, Server},
    exchange::{Exchange, Job},
    secret::Secret,
    start::{JOIN_TIMEOUT, Start, join, patience},
};
