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
//!   operations to the card. The fabric reports it ([`keeps_order`](crate::keeps_order())); a
//!   put or get that depends on a lock or a version waits for the word first.
//!
//! # Failures
//!
//! The memory of a dead or departed rank of this host is still mapped. Access is refused all the
//! same, as on the card's path, so that peer status means the same throughout a world. So is access
//! to a rank of this host whose connection is lost, as soon as the loss is recorded. Only what the
//! CPU has begun before may still take effect after the cut: a put that is under way.

use std::sync::{Arc, OnceLock};

use onesided_job::Job;
use onesided_remote_memory::{Fault, FaultKind, Link, Rank, RegionId, RemoteMemory};

use crate::shm::ShmSegment;
use crate::verbs::changes::{Change, Changes};
use crate::verbs::words::VerbsOp;
use crate::verbs::{Inner, Verbs, VerbsSegment, VerbsWord};
use crate::{Error, Segment, SegmentKey};

/// Which ranks the CPU reaches.
#[derive(Debug, Default)]
pub(super) struct HostPaths {
    /// By rank; `None` for ranks that only the card reaches. Empty if it reaches all.
    host_peers: Box<[Option<HostPeer>]>,
    /// The host of each rank, if hosts are pretended.
    pub(super) pretended: Box<[u32]>,
}

/// A rank of this host.
#[derive(Debug, Default)]
struct HostPeer {
    changes: Changes,
    /// Its world segment once opened.
    world: OnceLock<VerbsSegment>,
}

impl HostPaths {
    pub(super) fn new(size: u32, pretended: Box<[u32]>, is_host_peer: impl Fn(Rank) -> bool) -> Self {
        let host_peers = (0..size).map(|rank| is_host_peer(Rank(rank)).then(HostPeer::default)).collect();
        Self { host_peers, pretended }
    }

    /// The same for another world of these ranks.
    pub(super) fn again(&self) -> Self {
        let host_peers = self.host_peers.iter().map(|peer| peer.as_ref().map(|_| HostPeer::default())).collect();
        Self { host_peers, pretended: self.pretended.clone() }
    }

    /// Whether the CPU reaches no rank.
    pub(super) const fn are_none(&self) -> bool {
        self.host_peers.is_empty()
    }

    #[inline]
    fn host_peer(&self, rank: Rank) -> Option<&HostPeer> {
        self.host_peers.get(rank.index())?.as_ref()
    }

    /// Whether the CPU reaches a rank.
    #[inline]
    pub(super) fn reach(&self, rank: Rank) -> bool {
        self.host_peer(rank).is_some()
    }
}

/// The path to the bytes of a segment.
pub(super) enum DataPath<'s> {
    /// The CPU: all changes that this rank has posted to the region are in memory.
    Cpu(&'s ShmSegment),
    /// The card: the only path, or behind changes in flight.
    Card,
}

impl Inner {
    /// Publishes an own segment so that the ranks of this host can map it.
    pub(super) fn share(&self, own: &VerbsSegment) -> Result<(), Error> {
        let SegmentKey { rank, region, len, .. } = own.key();
        if self.paths.reach(rank) {
            let failed = |fault: Fault| Error::operation("publish a segment")(fault);
            let (mapping, exchange) = (own.mapping().map_err(failed)?, Arc::clone(&self.exchange));
            exchange.publish(region, mapping)?;
            own.map(ShmSegment::new(mapping.clone(), (0, len), (rank, region), rank, Some(exchange)).map_err(failed)?);
        }
        Ok(())
    }

    /// A peer's segment, mapped if its owner is on this host.
    pub(super) fn of_peer(&self, key: SegmentKey) -> Result<VerbsSegment, Error> {
        let (segment, SegmentKey { rank, region, len, .. }) = (VerbsSegment::of_peer(key), key);
        if self.paths.reach(rank) {
            match self.exchange.fetch(rank, region) {
                Ok(memory) => {
                    let mapped = ShmSegment::new(memory, (0, len), (rank, region), self.rank, None);
                    segment.map(mapped.map_err(Error::operation("map a peer's segment"))?);
                }
                // The card has just found it, so it is user memory, which only its owner can map.
                Err(error) if error.fault().kind() == FaultKind::NoSuchRegion => {}
                Err(error) => return Err(error),
            }
        }
        Ok(segment)
    }

    /// A peer's world segment, opened once if the CPU reaches it.
    pub(super) fn world_of_peer(
        &self,
        rank: Rank,
        open: impl FnOnce() -> Result<VerbsSegment, Error>,
    ) -> Result<VerbsSegment, Error> {
        let Some(HostPeer { world, .. }) = self.paths.host_peer(rank) else { return open() };
        if let Some(world) = world.get() {
            return Ok(world.clone());
        }
        let opened = open()?;
        Ok(world.get_or_init(|| opened).clone())
    }
}

impl Verbs {
    /// Joins a job: ranks of the same host by shared memory, the others by cards. Every rank of the
    /// job has to call it.
    ///
    /// # Errors
    /// As [`new`](Self::new), and [`Error::Allocate`] where the host's ranks cannot share the world
    /// segment.
    pub fn mixed(job: Job) -> Result<Self, Error> {
        let (me, hosts) = (job.rank, job.clone());
        let paths = HostPaths::new(job.job_segment.size(), Box::default(), |rank| hosts.same_host(me, rank));
        Self::join(job, paths)
    }

    /// Like [`mixed`](Self::mixed), but with the ranks dealt out to `hosts` pretended hosts, so that a
    /// world on one machine uses both paths in tests and trials. Ranks on different hosts stay
    /// apart.
    ///
    /// # Errors
    /// As [`mixed`](Self::mixed).
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
        let is_host_peer = |rank: Rank| of_each[rank.index()] == of_each[me.index()];
        Self::join(job, HostPaths::new(of_each.len() as u32, pretended, is_host_peer))
    }

    /// Where changes of words of a rank's region are recorded, if puts and gets of it may use the CPU.
    #[inline]
    pub(super) fn changes_of(&self, of: (Rank, RegionId)) -> Option<&Change> {
        Some(self.0.paths.host_peer(of.0)?.changes.of(self, of.1))
    }

    /// Records that a change of this word was posted.
    #[inline]
    pub(super) fn note(&self, link: Link<VerbsWord<'_>>) {
        if let Some(change) = self.changes_of((link.word().rank(), link.word().region())) {
            match link {
                Link::Read { .. } => {}
                Link::Write { word, .. } => change.note(self, word.rank(), true),
                Link::CompareSwap { word, .. } | Link::FetchAdd { word, .. } => change.note(self, word.rank(), false),
            }
        }
    }

    /// Records that bytes were put by the card.
    pub(super) fn note_put(&self, to: &VerbsSegment) {
        if let Some(change) = self.changes_of((to.rank(), to.key().region)) {
            change.note(self, to.rank(), true);
        }
    }

    /// The path to take now.
    #[inline]
    pub(super) fn data_path<'s>(&self, segment: &'s VerbsSegment) -> DataPath<'s> {
        let Some(memory) = segment.by_cpu() else { return DataPath::Card };
        let SegmentKey { rank, region, .. } = segment.key();
        match self.changes_of((rank, region)) {
            Some(change) if change.is_placed(self, rank) => DataPath::Cpu(memory),
            _ => DataPath::Card,
        }
    }

    /// Moves bytes between an own segment and another by the CPU, if that is the path.
    pub(super) fn copied(
        &self,
        own: (&VerbsSegment, u64),
        other: (&VerbsSegment, u64),
        len: u64,
        copy: impl FnOnce((&ShmSegment, u64), (&ShmSegment, u64)) -> Result<(), Fault>,
    ) -> Option<Result<(), Fault>> {
        // User memory is the card's alone.
        let (DataPath::Cpu(theirs), Some(mine)) = (self.data_path(other.0), own.0.by_cpu()) else { return None };
        if mine.rank() != self.rank() {
            return Some(Err(Fault::of(FaultKind::NotOwn, own.0.rank())));
        }
        // Errors about the ranges come first, as on the card's path.
        let checked = own.0.check(own.1, len).and_then(|()| other.0.check(other.1, len));
        Some(checked.and_then(|()| {
            self.check_usable(other.0.rank())?;
            copy((mine, own.1), (theirs, other.1))
        }))
    }

    /// An operation of the CPU on a same-host word: not after the connection to its rank is lost. After
    /// the end of the rank the memory is still mapped here.
    #[inline]
    pub(super) fn by_cpu(&self, link: Link<VerbsWord<'_>>) -> VerbsOp {
        let operate = || {
            let word = link.word().mapped()?;
            self.check_connected(word.rank())?;
            Ok(match link {
                Link::Read { .. } => word.load(),
                Link::Write { value, .. } => {
                    word.store(value);
                    0
                }
                Link::CompareSwap { expected, new, .. } => word.compare_swap(expected, new),
                Link::FetchAdd { add, .. } => word.fetch_add(add),
            })
        };
        VerbsOp::ended(operate())
    }
}
