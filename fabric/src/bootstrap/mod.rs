//! How a process finds its job: who it is, who the others are, and how it gets at their memory for the first time.
//!
//! A [`Job`] is made by [`local::jobs`] (ranks as threads), by [`Job::alone`], or by [`join`], from what the environment
//! says: under `onesided run` [`client`] speaks to the launcher; started by others, ranks meet by [`pmi`] or a
//! [`rendezvous`]. The endpoints of all fabrics are made from it.
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

/// A process's (or thread's) place in a job.
#[derive(Debug, Clone)]
pub struct Job {
    /// Which rank this is.
    pub rank: Rank,
    /// What all ranks of the host share: who lives, doorbells, message rings.
    pub board: Arc<Board>,
    /// The way to the others before there is a fabric. Kept for as long as the rank is in the job: to the launcher, a
    /// rank whose connection ends before it has left is dead.
    pub exchange: Arc<dyn Exchange>,
}

impl Job {
    /// On which host a rank is: hosts are numbered from 0 in the order of their lowest ranks, so rank 0 is on host 0. All
    /// are on host 0 where the ranks are threads, and in a world of one.
    ///
    /// # Panics
    /// If the job has no such rank.
    #[must_use]
    pub fn host_of(&self, rank: Rank) -> u32 {
        self.board.host_of(rank)
    }

    /// Whether two ranks are on one host, so that they can share memory.
    ///
    /// # Panics
    /// If the job has no such rank.
    #[must_use]
    pub fn same_host(&self, a: Rank, b: Rank) -> bool {
        self.host_of(a) == self.host_of(b)
    }

    /// How many hosts the ranks are on.
    #[must_use]
    pub fn hosts(&self) -> u32 {
        (0..self.board.size()).map(|rank| self.host_of(Rank(rank)) + 1).max().unwrap_or(1)
    }
}

/// The way to the others before there is a fabric: small values by name, and memory by region.
///
/// Nothing here needs the other ranks' help once they have put or published.
pub trait Exchange: Debug + Send + Sync {
    /// Makes a value known to all ranks under a name (at most 64 bytes of printable ASCII). Each name once.
    ///
    /// # Errors
    /// [`Error::Join`]: the name is taken, or the launcher is gone.
    fn put(&self, name: &str, value: &[u8]) -> Result<(), Error>;

    /// The value under a name, waiting until somebody puts it.
    ///
    /// # Errors
    /// [`Error::Operation`]: nobody did in time (`TimedOut`), or a rank died meanwhile (`PeerDied`; nobody knows whose
    /// value it would have been). [`Error::Join`]: the launcher is gone.
    fn get(&self, name: &str, patience: Duration) -> Result<Vec<u8>, Error>;

    /// Lets peers map this rank's region.
    ///
    /// # Errors
    /// [`Error::Allocate`]: no descriptors left at the launcher, or it is gone.
    fn publish(&self, region: RegionId, memory: &Arc<Mapping>) -> Result<(), Error>;

    /// Lets peers map two regions, in the time of one: both, or none.
    ///
    /// # Errors
    /// As [`publish`](Self::publish).
    fn publish_two(&self, regions: [(RegionId, &Arc<Mapping>); 2]) -> Result<(), Error> {
        let [(first, memory), (second, other)] = regions;
        self.publish(first, memory)?;
        self.publish(second, other).inspect_err(|_| self.retract(first))
    }

    /// Takes a region back. Peers that have mapped it keep it mapped.
    fn retract(&self, region: RegionId);

    /// Maps a peer's region.
    ///
    /// # Errors
    /// [`Error::Open`]: there is none, no descriptors, no memory, or the launcher is gone.
    fn fetch(&self, rank: Rank, region: RegionId) -> Result<Arc<Mapping>, Error>;

    /// The file of a peer's region, not mapped.
    ///
    /// # Errors
    /// As [`fetch`](Self::fetch).
    fn fetch_file(&self, rank: Rank, region: RegionId) -> Result<OwnedFd, Error>;
}

/// A duration for the system's calls.
pub(crate) fn timespec(duration: Duration) -> rustix::time::Timespec {
    let tv_sec = i64::try_from(duration.as_secs()).unwrap_or(i64::MAX);
    rustix::time::Timespec { tv_sec, tv_nsec: duration.subsec_nanos().into() }
}
