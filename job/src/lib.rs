//! How a process finds its job: its rank, its peers, and the first access to their memory.
//!
//! A [`Job`] comes from [`local::jobs`] (ranks as threads), from [`Job::alone`], or from [`join`],
//! which follows the environment: under `onesided run` the [`client`] talks to the launcher;
//! otherwise ranks meet by [`pmi`] or a [`rendezvous`]. Every fabric makes its endpoint from a
//! `Job`.
//!
//! May use: the operating system, atomics, threads. May not know: endpoints, fabrics, windows; they
//! stand above.
//!
//! Begin to read at [`Job`] and [`Exchange`] (what a fabric gets), then [`join`]; then `daemon`
//! (the service that keeps a host's part of the job) and [`launcher`] (the policy of `onesided
//! run`: starting, output, what a failure ends). [`segment`] is what this crate and the fabrics
//! stand on.
//!
//! # Who keeps a job
//!
//! A daemon creates the job segment, serves values and memory, and declares deaths. Under `onesided
//! run` this is the launcher. Otherwise a thread of rank 0 takes the launcher's part, and then:
//!
//! - **Joining is collective**: it returns when all ranks have arrived, or fails on all.
//! - **Rank 0 ends last**: after leaving, it waits until all others have left or died, because they
//!   may still need to map one another's memory. If it ends without leaving, it waits at most 5 s
//!   until the other ranks of its host know that all have arrived.
//! - **Rank 0 detects the death of a rank** by the end of its process. If rank 0 itself dies, the
//!   lowest surviving rank takes over detection. Mapped memory stays accessible; new values and new
//!   memory are errors.
//!
//! On several hosts each host has such a daemon: an agent of the launcher, or the lowest rank of
//! that host. A *control relay* keeps their job segments consistent, transparently to the layers
//! above.
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
pub mod fork;
#[cfg(not(onesided_loom))]
mod frame;
#[cfg(not(onesided_loom))]
mod head_daemon;
#[cfg(not(onesided_loom))]
mod host_name;
#[cfg(not(onesided_loom))]
pub mod launcher;
#[cfg(not(onesided_loom))]
pub mod local;
mod lock;
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
#[doc(hidden)]
pub mod setting;
#[cfg(not(onesided_loom))]
mod start;
mod statistics;
mod wait;
#[cfg(not(onesided_loom))]
mod wire;

pub use crate::error::Error;
#[doc(hidden)]
pub use crate::error::{advice, explain, zeroed};
#[doc(hidden)]
pub use crate::lock::lock;
#[cfg(not(onesided_loom))]
#[doc(hidden)]
pub use crate::process::{Process, timespec};
pub use crate::statistics::{STATISTICS, Statistics};
pub use crate::wait::{REPORT, Wait};
#[cfg(not(onesided_loom))]
pub use crate::{
    daemon::{SUSPECT_AFTER, Server},
    exchange::{Exchange, Job},
    secret::Secret,
    start::{JOIN_TIMEOUT, Start, join, patience},
};
