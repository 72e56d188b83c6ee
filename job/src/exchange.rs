//! A rank's place in its job, and how it reaches the others before there is a fabric.

use std::fmt::Debug;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::time::Duration;

use onesided_remote_memory::{Rank, RegionId};

use crate::Error;
use crate::segment::{Aborted, JobSegment, Mapping};

/// A process's (or thread's) membership in a job.
#[derive(Debug, Clone)]
pub struct Job {
    /// This rank.
    pub rank: Rank,
    /// What all ranks of the host share: liveness, doorbells, lanes of packets.
    pub job_segment: Arc<JobSegment>,
    /// The exchange with the other ranks before there is a fabric. Held while the rank is in the
    /// job: if it is dropped before the rank has left, the rank is dead.
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
        self.job_segment.host_of(rank)
    }

    /// Ends all processes of the job, this one with this exit status, 1 instead of 0. Ranks that
    /// have left go on. No destructors run but what [`std::process::exit`] runs.
    pub fn abort(&self, status: u8) -> ! {
        let status = status.max(1);
        self.job_segment.abort(Aborted { rank: self.rank, status });
        self.exchange.abort();
        std::process::exit(status.into())
    }

    /// Whether two ranks are on one host and can share memory.
    ///
    /// # Panics
    /// If the job has no such rank.
    #[must_use]
    pub fn same_host(&self, a: Rank, b: Rank) -> bool {
        self.host_of(a) == self.host_of(b)
    }

    /// This rank's membership once more, for an endpoint beside those that it has: one with connections
    /// of its own, none of which is lost. All ranks make theirs from the same membership, to meet there.
    ///
    /// # Errors
    /// [`Error::Join`] after the 15th time.
    pub fn again(&self) -> Result<Self, Error> {
        let failed = |source| Error::Join { what: "join the job again".to_owned(), source: Some(source) };
        let job_segment = Arc::new(self.job_segment.again(self.rank).map_err(failed)?);
        let (round, later) = (job_segment.round(), job_segment.round() - self.job_segment.round());
        let exchange = Arc::new(Again { exchange: Arc::clone(&self.exchange), round, later });
        Ok(Self { rank: self.rank, job_segment, exchange })
    }

    /// The number of hosts.
    #[must_use]
    pub fn hosts(&self) -> u32 {
        (0..self.job_segment.size()).map(|rank| self.host_of(Rank(rank)) + 1).max().unwrap_or(1)
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
    /// [`Error::Join`]: the name is taken, or the host daemon is gone.
    fn put(&self, name: &str, value: &[u8]) -> Result<(), Error>;

    /// Waits for the value under a name.
    ///
    /// # Errors
    /// - [`Error::Operation`]: no rank put it in time (`TimedOut`), or a rank died meanwhile
    ///   (`PeerDied`), which may have been the one to put it.
    /// - [`Error::Join`]: the host daemon is gone.
    fn get(&self, name: &str, patience: Duration) -> Result<Vec<u8>, Error>;

    /// Lets peers map this rank's region.
    ///
    /// # Errors
    /// [`Error::Allocate`]: the host daemon has no free descriptor, or is gone.
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
    /// [`Error::Open`]: no such region, no descriptors, no memory, or the host daemon is gone.
    fn fetch(&self, rank: Rank, region: RegionId) -> Result<Arc<Mapping>, Error>;

    /// The file of a peer's region, not mapped.
    ///
    /// # Errors
    /// As [`fetch`](Self::fetch).
    fn fetch_file(&self, rank: Rank, region: RegionId) -> Result<OwnedFd, Error>;

    /// Returns when this process may end because the job was [aborted](Job::abort).
    fn abort(&self) {}
}

/// The exchange of a rank that has joined again: other names for its values and regions.
#[derive(Debug)]
struct Again {
    exchange: Arc<dyn Exchange>,
    round: u32,
    /// By how many rounds it is later than that of `exchange`.
    later: u32,
}

impl Again {
    fn name(&self, name: &str) -> String {
        format!("{}+{name}", self.round)
    }

    /// The fabrics count their regions from 0, and the uses of a number in its high bits.
    const fn region(&self, region: RegionId) -> RegionId {
        RegionId(region.0.wrapping_add(self.later << 28))
    }
}

impl Exchange for Again {
    fn put(&self, name: &str, value: &[u8]) -> Result<(), Error> {
        self.exchange.put(&self.name(name), value)
    }

    fn get(&self, name: &str, patience: Duration) -> Result<Vec<u8>, Error> {
        self.exchange.get(&self.name(name), patience)
    }

    fn publish(&self, region: RegionId, memory: &Arc<Mapping>) -> Result<(), Error> {
        self.exchange.publish(self.region(region), memory)
    }

    fn publish_two(&self, regions: [(RegionId, &Arc<Mapping>); 2]) -> Result<(), Error> {
        self.exchange.publish_two(regions.map(|(region, memory)| (self.region(region), memory)))
    }

    fn retract(&self, region: RegionId) {
        self.exchange.retract(self.region(region));
    }

    fn fetch(&self, rank: Rank, region: RegionId) -> Result<Arc<Mapping>, Error> {
        self.exchange.fetch(rank, self.region(region))
    }

    fn fetch_file(&self, rank: Rank, region: RegionId) -> Result<OwnedFd, Error> {
        self.exchange.fetch_file(rank, self.region(region))
    }

    fn abort(&self) {
        self.exchange.abort();
    }
}
