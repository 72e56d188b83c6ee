//! How a process finds its job: its rank, its peers, and the first access to their memory.
//!
//! A [`Job`] comes from [`local::jobs`] (ranks as threads), from [`Job::alone`], or from [`join`],
//! which follows the environment: under `onesided run` the [`client`] talks to the launcher;
//! otherwise ranks meet by [`pmi`] or a [`rendezvous`]. Every fabric makes its endpoint from a
//! `Job`.
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
//! - **Rank 0 detects the death of a rank** by its connection and its process. If rank 0 itself
//!   dies, the lowest surviving rank takes over detection. Mapped memory stays accessible; new
//!   values and new memory are errors.
//!
//! On several hosts each host has such a daemon: an agent of the launcher, or the lowest rank of
//! that host. A *control relay* keeps their job segments consistent, transparently to the layers
//! above.

mod addresses;
pub(crate) mod bridge;
pub mod client;
pub mod environment;
mod host;
mod host_name;
pub mod launcher;
pub mod local;
pub mod pmi;
mod process;
mod protocol;
pub mod rendezvous;
mod secret;
mod server;
mod session;
mod start;
mod succession;
mod tables;
mod wire;

use std::fmt::Debug;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::time::Duration;

use onesided_remote_memory::{Rank, RegionId};

pub use crate::bootstrap::bridge::SUSPECT_AFTER;
pub use crate::bootstrap::secret::Secret;
pub use crate::bootstrap::server::Server;
#[cfg(feature = "verbs")]
pub(crate) use crate::bootstrap::start::patience;
pub use crate::bootstrap::start::{JOIN_TIMEOUT, Start, join};

#[doc(hidden)]
pub use crate::bootstrap::process::Maker;
pub(crate) use crate::bootstrap::process::Process;

use crate::Error;
use crate::shm::{Board, Mapping};

/// A process's (or thread's) membership in a job.
#[derive(Debug, Clone)]
pub struct Job {
    /// This rank.
    pub rank: Rank,
    /// What all ranks of the host share: liveness, doorbells, message rings.
    pub board: Arc<Board>,
    /// The exchange with the other ranks before there is a fabric. Held while the rank is in the
    /// job: the launcher takes the end of a connection before leaving for the rank's death.
    pub exchange: Arc<dyn Exchange>,
}

impl Job {
    /// The host of a rank. Hosts are numbered from 0 in the order of their lowest ranks, so rank 0
    /// is on host 0. All ranks are on host 0 if they are threads, and in a world of one.
    ///
    /// # Panics
    /// If the job has no such rank.
    #[must_use]
    pub fn host_of(&self, rank: Rank) -> u32 {
        self.board.host_of(rank)
    }

    /// Whether two ranks are on one host and can share memory.
    ///
    /// # Panics
    /// If the job has no such rank.
    #[must_use]
    pub fn same_host(&self, a: Rank, b: Rank) -> bool {
        self.host_of(a) == self.host_of(b)
    }

    /// The number of hosts.
    #[must_use]
    pub fn hosts(&self) -> u32 {
        (0..self.board.size()).map(|rank| self.host_of(Rank(rank)) + 1).max().unwrap_or(1)
    }
}

/// The exchange between ranks before there is a fabric: small values by name, and memory by region.
///
/// It needs no help of the other ranks once they have put or published.
pub trait Exchange: Debug + Send + Sync {
    /// Publishes a value to all ranks under a name: at most 64 bytes of printable ASCII, and used
    /// once.
    ///
    /// # Errors
    /// [`Error::Join`]: the name is taken, or the launcher is gone.
    fn put(&self, name: &str, value: &[u8]) -> Result<(), Error>;

    /// Waits for the value under a name.
    ///
    /// # Errors
    /// - [`Error::Operation`]: no rank put it in time (`TimedOut`), or a rank died meanwhile
    ///   (`PeerDied`), which may have been the one to put it.
    /// - [`Error::Join`]: the launcher is gone.
    fn get(&self, name: &str, patience: Duration) -> Result<Vec<u8>, Error>;

    /// Lets peers map this rank's region.
    ///
    /// # Errors
    /// [`Error::Allocate`]: the launcher has no free descriptor, or is gone.
    fn publish(&self, region: RegionId, memory: &Arc<Mapping>) -> Result<(), Error>;

    /// Lets peers map both regions or neither, in one round trip.
    ///
    /// # Errors
    /// As [`publish`](Self::publish).
    fn publish_two(&self, regions: [(RegionId, &Arc<Mapping>); 2]) -> Result<(), Error> {
        let [(first, memory), (second, other)] = regions;
        self.publish(first, memory)?;
        self.publish(second, other).inspect_err(|_| self.retract(first))
    }

    /// Withdraws a region. Peers that have mapped it keep it mapped.
    fn retract(&self, region: RegionId);

    /// Maps a peer's region.
    ///
    /// # Errors
    /// [`Error::Open`]: no such region, no descriptors, no memory, or the launcher is gone.
    fn fetch(&self, rank: Rank, region: RegionId) -> Result<Arc<Mapping>, Error>;

    /// The file of a peer's region, not mapped.
    ///
    /// # Errors
    /// As [`fetch`](Self::fetch).
    fn fetch_file(&self, rank: Rank, region: RegionId) -> Result<OwnedFd, Error>;
}

/// Converts a duration for system calls.
pub(crate) fn timespec(duration: Duration) -> rustix::time::Timespec {
    let tv_sec = i64::try_from(duration.as_secs()).unwrap_or(i64::MAX);
    rustix::time::Timespec { tv_sec, tv_nsec: duration.subsec_nanos().into() }
}
