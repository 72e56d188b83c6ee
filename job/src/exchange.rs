//! A rank's place in its job, and how it reaches the others before there is a fabric.

use std::fmt::Debug;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::time::Duration;

use onesided_remote_memory::{Rank, RegionId};

use crate::Error;
use crate::segment::{Board, Mapping};

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
