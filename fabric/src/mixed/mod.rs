//! Ranks of one host by shared memory, all others by RDMA cards, in one world.
//!
//! # The path of an operation
//!
//! | operation | to a rank of this host, this rank included | to any other rank |
//! |---|---|---|
//! | put, get, RDMA read and write | the CPU, through a mapping of the peer's memory | the card |
//! | words: locks, the accumulate family, plain reads and writes | the card, by loopback | the card |
//! | messages, doorbells | the card, by loopback | the card |
//!
//! **Words have one agent.** The card is the one agent of the atomics of a region that some ranks
//! access through it (see [`AtomicAgent`](crate::AtomicAgent)): its atomics and the CPU's are not
//! atomic with one another, so the ranks of the owner's host use the card, too. Devices that claim
//! otherwise (`IBV_ATOMIC_GLOB`) are not trusted, because this could not be tested.
//!
//! **Messages and doorbells** use the card because a rank sleeps on its card's events, which no
//! futex raises. Doorbells stay in order with the words on the same connection.
//!
//! A segment is a memory file registered with the card. The ranks of the host map it when they open
//! it, by the job's [exchange](crate::bootstrap::Exchange).
//!
//! # Order between the two paths
//!
//! - *A word after a put.* The CPU's stores come first in program order; the request is posted
//!   afterwards. Posting takes a lock and rings the card's doorbell behind a store barrier
//!   (`ibv_post_send` owes that to the buffers that it sends from). So the stores are visible to
//!   all caches before the card acts, and a rank that sees the word (through its card, or in its
//!   own memory) sees the data. A [flush](crate::Fabric::flush), and the one before a release, add
//!   a full fence.
//! - *A put or get after words of the same region.* It uses the CPU only if the changes that this
//!   rank has posted to words of that region are known to be in memory: compare-swaps and
//!   fetch-adds once they have completed, writes once a later flush has (a write's completion does
//!   not prove its placement). Otherwise it uses the card, in order after them on the same
//!   connection. So one rank's operations on one region take effect in order, as the boundary
//!   promises.
//! - *A put or get after words of another region* may overtake them. A stronger rule is
//!   impractical: every barrier writes a word of the world segment, and would force all later
//!   operations to the card. The fabric reports it ([`keeps_order`](crate::Fabric::keeps_order)); a
//!   put or get that depends on a lock or a version waits for the word first.
//!
//! # Failures
//!
//! The memory of a dead or departed rank of this host is still mapped. Access is refused all the
//! same, as on the card's path, so that peer status means the same throughout a world. So is access
//! to a rank of this host whose connection is lost, as soon as the loss is recorded. Only what the
//! CPU has begun before may still take effect after the cut: a put that is under way.
//!
//! Start with [`Mixed`], then `segment` (the two handles of a segment) and `order` (word changes in
//! flight).

mod bulk;
mod changes;
mod segment;
mod words;

use std::fmt;
use std::sync::{Arc, OnceLock};

use onesided_job::{Exchange, Job};
use onesided_remote_memory::{Rank, RemoteMemory};

use crate::mixed::changes::Changes;
use crate::verbs::Verbs;
use crate::{Error, Fabric};

pub use crate::mixed::bulk::{MixedGet, MixedTransfer};
pub use crate::mixed::segment::{MixedSegment, MixedWord};

/// An endpoint in a world whose ranks share hosts. Cheap to clone; all clones are one endpoint.
#[derive(Clone)]
pub struct Mixed {
    verbs: Verbs,
    paths: Arc<HostPaths>,
}

/// What a rank has besides the cards.
struct HostPaths {
    name: &'static str,
    exchange: Arc<dyn Exchange>,
    /// By rank; `None` for ranks that only the card reaches.
    host_peers: Box<[Option<HostPeer>]>,
    /// The host of each rank, if hosts are pretended.
    pretended: Box<[u32]>,
}

/// A rank of this host.
struct HostPeer {
    changes: Changes,
    /// Its world segment once opened; this rank's own from the start.
    world: OnceLock<MixedSegment>,
}

impl Mixed {
    /// Joins a job: ranks of the same host by shared memory, the others by cards. Every rank of the
    /// job has to call it.
    ///
    /// # Errors
    /// As [`Verbs::new`], and [`Error::Allocate`] where the host's ranks cannot share the world
    /// segment.
    pub fn new(job: Job) -> Result<Self, Error> {
        let (me, hosts) = (job.rank, job.clone());
        Self::with(job, "mixed", Box::default(), |rank| hosts.same_host(me, rank))
    }

    /// The same by cards alone: the fabric named `verbs`. It serves to measure the card's cost and
    /// to test its failures.
    ///
    /// # Errors
    /// As [`Verbs::new`].
    pub fn by_cards(job: Job) -> Result<Self, Error> {
        Self::with(job, "verbs", Box::default(), |_| false)
    }

    /// Like [`new`](Self::new), but with the ranks dealt out to `hosts` pretended hosts, so that a
    /// world on one machine uses both paths in tests and trials. Ranks on different hosts stay
    /// apart.
    ///
    /// # Errors
    /// As [`new`](Self::new).
    pub fn pretending(job: Job, hosts: u32) -> Result<Self, Error> {
        let (me, hosts) = (job.rank, hosts.max(1));
        // Numbered in the order of their lowest ranks.
        let parts: Vec<_> = (0..job.job_segment.size()).map(|rank| (job.host_of(Rank(rank)), rank % hosts)).collect();
        let mut first: Vec<_> = Vec::new();
        let host = |part| {
            first.iter().position(|known| *known == part).unwrap_or_else(|| {
                first.push(part);
                first.len() - 1
            })
        };
        let pretended: Box<[u32]> = parts.into_iter().map(host).map(|host| host as u32).collect();
        let of_each = pretended.clone();
        Self::with(job, "mixed", pretended, |rank| of_each[rank.index()] == of_each[me.index()])
    }

    fn with(
        job: Job,
        name: &'static str,
        pretended: Box<[u32]>,
        is_host_peer: impl Fn(Rank) -> bool,
    ) -> Result<Self, Error> {
        let (me, exchange) = (job.rank, Arc::clone(&job.exchange));
        let host_peer =
            |rank| is_host_peer(rank).then(|| HostPeer { changes: Changes::default(), world: OnceLock::new() });
        let host_peers: Box<[_]> = (0..job.job_segment.size()).map(Rank).map(host_peer).collect();
        let paths = Arc::new(HostPaths { name, exchange, host_peers, pretended });
        let join = |verbs: &Verbs| {
            let fabric = Self { verbs: verbs.clone(), paths: Arc::clone(&paths) };
            if let Some(HostPeer { world, .. }) = fabric.host_peer(me) {
                let home = fabric.publish(verbs.world_segment(me)?)?;
                world.get_or_init(|| home);
            }
            Ok(())
        };
        let verbs = Verbs::join(job, join)?;
        Ok(Self { verbs, paths })
    }

    /// How many requests this rank has posted to its card for a target so far. Operations by the
    /// CPU do not count.
    #[must_use]
    pub fn card_requests(&self, target: Rank) -> u64 {
        self.verbs.posted(target)
    }

    /// Whether the CPU reaches any rank.
    fn has_host_peers(&self) -> bool {
        self.paths.host_peers.iter().any(Option::is_some)
    }

    /// The state of a rank of this host; `None` for another rank.
    #[inline]
    fn host_peer(&self, rank: Rank) -> Option<&HostPeer> {
        self.paths.host_peers.get(rank.index())?.as_ref()
    }
}

impl fmt::Debug for Mixed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let host_peers = self.paths.host_peers.iter().flatten().count();
        write!(f, "Mixed({} of {}, {host_peers} by shared memory, {:?})", self.rank(), self.size(), self.verbs)
    }
}
