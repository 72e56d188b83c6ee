//! Ranks of one host by shared memory, all others by RDMA cards, in one world.
//!
//! # Which way an operation takes
//!
//! | operation | to a rank of this host, oneself included | to any other rank |
//! |---|---|---|
//! | put, get, RDMA read and write | the CPU, through a mapping of the peer's memory | the card |
//! | words: locks, the accumulate family, plain reads and writes | the card, by loopback | the card |
//! | messages, doorbells | the card, by loopback | the card |
//!
//! **Words have one agent.** A region that some ranks reach through a card has that card as the one agent of its atomics
//! (see [`AtomicAgent`](crate::AtomicAgent)): its atomics and the CPU's are not atomic with one another, so the ranks of its own host
//! take the card, too. Devices that say otherwise (`IBV_ATOMIC_GLOB`) are not believed: nothing here could try it.
//!
//! **Messages and doorbells** take the card because a rank sleeps on its card's events, which no futex raises, and because
//! they keep their order with the words on the same connection.
//!
//! A segment is a memory file that is registered with the card and that the ranks of the host map, when they open it, from
//! the job's [exchange](onesided_job::Exchange).
//!
//! # Order between the two ways
//!
//! - *A word behind a put.* The CPU's stores come first in program order, and the card is told of the request afterwards:
//!   posting takes a lock and rings the card's doorbell behind a barrier for stores (`ibv_post_send` owes that to the
//!   buffers it sends from). So the stores are in the memory that all caches agree on before the card moves, and whoever
//!   sees the word (through its card, or by a look at its own memory) sees the data. A [flush](crate::Fabric::flush), and
//!   the one before a release, add a full fence of their own.
//! - *A put or get behind words of the same region.* It takes the CPU only if the changes that this rank has posted to
//!   words of that region are known to be in memory: compare-swaps and fetch-adds when they have completed, writes when a
//!   later flush has (a write's completion does not prove that it is placed). Otherwise it takes the card, in order behind
//!   them on the same connection. So what this rank does to one region takes effect in order, as the boundary promises.
//! - *A put or get behind words of another region* may overtake them. Nothing else would do: a rank writes a word of the
//!   world segment in every barrier, and would take the card ever after. The fabric says so
//!   ([`keeps_order`](crate::Fabric::keeps_order)), and who puts or gets behind a lock, or a version, waits for that.
//!
//! # Death
//!
//! The memory of a dead or departed rank of this host is still mapped. It is refused all the same, as over the card, so
//! that a rank's end is one thing in one world: its locks cannot be reached any more.
//!
//! Begin to read at [`Mixed`], then `segment` (the two handles of a segment), `order` (what is known of words under way).

mod bulk;
mod order;
mod segment;
mod words;

use std::fmt;
use std::sync::{Arc, OnceLock};

use onesided_job::{Exchange, Job};
use onesided_remote_memory::{Rank, RemoteMemory};

use crate::mixed::order::Changes;
use crate::verbs::Verbs;
use crate::{Error, Fabric};

pub use crate::mixed::bulk::{MixedGet, MixedTransfer};
pub use crate::mixed::segment::{MixedSegment, MixedWord};

/// A rank's end of a world whose ranks share hosts. Cheap to clone; all clones are one endpoint.
#[derive(Clone)]
pub struct Mixed {
    verbs: Verbs,
    ways: Arc<Ways>,
}

/// What there is beside the cards.
struct Ways {
    name: &'static str,
    exchange: Arc<dyn Exchange>,
    /// By rank; none of those that only the card reaches.
    near: Box<[Option<Near>]>,
    /// On which host each rank is, if hosts are pretended.
    pretended: Box<[u32]>,
}

/// A rank of this host.
struct Near {
    changes: Changes,
    /// Its world segment, once it was reached; one's own from the start.
    world: OnceLock<MixedSegment>,
}

impl Mixed {
    /// Joins a job: ranks of the same host by shared memory, the others by cards. Every rank of the job has to do it.
    ///
    /// # Errors
    /// As [`Verbs::new`], and [`Error::Allocate`] where the host's ranks cannot be given the world segment.
    pub fn new(job: Job) -> Result<Self, Error> {
        let (me, hosts) = (job.rank, job.clone());
        Self::with(job, "mixed", Box::default(), |rank| hosts.same_host(me, rank))
    }

    /// The same by cards alone: `verbs`, chosen by name. What the card costs is measured so, and its faults are met.
    ///
    /// # Errors
    /// As [`Verbs::new`].
    pub fn by_cards(job: Job) -> Result<Self, Error> {
        Self::with(job, "verbs", Box::default(), |_| false)
    }

    /// As [`new`](Self::new), but as if the ranks were on `hosts` hosts, dealt out in turn: so that a world on one machine
    /// meets both ways, in tests and trials. Ranks that are on several hosts already stay apart.
    ///
    /// # Errors
    /// As [`new`](Self::new).
    pub fn pretending(job: Job, hosts: u32) -> Result<Self, Error> {
        let (me, hosts) = (job.rank, hosts.max(1));
        // Numbered in the order of their lowest ranks.
        let parts: Vec<_> = (0..job.board.size()).map(|rank| (job.host_of(Rank(rank)), rank % hosts)).collect();
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
        is_near: impl Fn(Rank) -> bool,
    ) -> Result<Self, Error> {
        let (me, exchange) = (job.rank, Arc::clone(&job.exchange));
        let near = |rank| is_near(rank).then(|| Near { changes: Changes::default(), world: OnceLock::new() });
        let near: Box<[_]> = (0..job.board.size()).map(Rank).map(near).collect();
        let ways = Arc::new(Ways { name, exchange, near, pretended });
        let join = |verbs: &Verbs| {
            let fabric = Self { verbs: verbs.clone(), ways: Arc::clone(&ways) };
            if let Some(Near { world, .. }) = fabric.near(me) {
                let home = fabric.publish(verbs.world_segment(me)?)?;
                world.get_or_init(|| home);
            }
            Ok(())
        };
        let verbs = Verbs::join(job, join)?;
        Ok(Self { verbs, ways })
    }

    /// How many requests this rank has posted to its card for a target so far: what went by the CPU is not among them.
    #[must_use]
    pub fn card_requests(&self, target: Rank) -> u64 {
        self.verbs.posted(target)
    }

    /// Whether any rank is reached by the CPU.
    fn has_near(&self) -> bool {
        self.ways.near.iter().any(Option::is_some)
    }

    /// A rank of this host, if it is one.
    #[inline]
    fn near(&self, rank: Rank) -> Option<&Near> {
        self.ways.near.get(rank.index())?.as_ref()
    }
}

impl fmt::Debug for Mixed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let near = self.ways.near.iter().flatten().count();
        write!(f, "Mixed({} of {}, {near} by shared memory, {:?})", self.rank(), self.size(), self.verbs)
    }
}
