//! Connections of messages that are given back: with [`MESSAGES_CONNECTIONS`], a rank that has more ends
//! those that are idle. The next message makes another one. Nothing is lost, and messages notice nothing.
//!
//! Beside datagrams a rank never has more. One that had to refuse a connection gives the least used one back:
//! one that carried fewer requests for a while than messages count for a new one. Packets to that peer are
//! datagrams again, in the same sequence, and those that were refused ask again when enough messages count.
//! So does a [fast path](super::fast_path) that was refused: the least used ring goes with its connection.
//!
//! A connection ends by agreement. The rank that gives it back has no request in flight, posts none any
//! more, and says so, with a number. Its peer decides once for each number:
//!
//! - It agrees if it has no request in flight either and has posted none since it was last asked. All that
//!   either has sent has then arrived. It saves its packets, ends its queue pair, and counts one generation
//!   more; and so does the other rank when it hears that.
//! - Or it keeps the connection, and the other rank goes on with it.
//!
//! Where both give the connection back at the same time, both agree.

use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};

use onesided_job::{lock, setting};
use onesided_remote_memory::Liveness;

use crate::verbs::Inner;
use crate::verbs::datagrams::{CONNECT_AFTER, CONNECTIONS, COUNTED, MESSAGES_CHANNEL, MESSAGES_RELIABLE};
use crate::verbs::fast_path::{FAST_PATHS, SLOTS};
use crate::verbs::peer::Peer;
use crate::verbs::revoke::Revocation;
use crate::verbs::traffic::{ConnectionId, Traffic};
use crate::{Channel, ChannelCounts, Error};

/// How many connections of messages a rank has before it gives idle ones back. Without it there is no
/// limit. With datagrams [and connections](super::MESSAGES_CHANNEL): how many it has at most, 16 without it.
pub const MESSAGES_CONNECTIONS: &str = "ONESIDED_MESSAGES_CONNECTIONS";

/// How often a rank with too many looks for idle ones, in nanoseconds.
pub(super) const SCAN: u64 = 100_000_000;

/// Nothing was said of how many fast paths there may be.
pub(super) const UNSAID: u32 = u32::MAX;

/// The limits of connections of messages, and how many there are.
#[derive(Debug, Default)]
pub(super) struct Limits {
    /// Whether packets take both datagrams and connections; and for how many messages to a rank one is made.
    pub(super) beside_datagrams: bool,
    pub(super) connect_after: u32,
    /// Whether such packets over connections are kept.
    pub(super) is_reliable: bool,
    /// How many there may be before idle ones are given back, or, beside datagrams, at all.
    pub(super) most: AtomicU32,
    /// Whether one was refused for that limit since one was last given back.
    pub(super) wants_one_back: AtomicBool,
    /// How many ranks have a [fast path](super::fast_path) to this one at most, or [`UNSAID`]; and how many slots
    /// one has.
    pub(super) fast_paths: AtomicU32,
    pub(super) slots: AtomicU32,
    /// Whether one was refused since one was last given back.
    pub(super) wants_ring_back: AtomicBool,
    /// How many of those were made.
    pub(super) rings: AtomicU64,
    /// How many to others were made, were refused, and were given back.
    pub(super) made: AtomicU64,
    pub(super) refused: AtomicU64,
    pub(super) given_back: AtomicU64,
}

impl Limits {
    /// Reads the environment.
    pub(super) fn read(beside_datagrams: bool) -> Result<Self, Error> {
        let count = |name| setting::number(name, 1_u32.., "of at least 1");
        let most = count(MESSAGES_CONNECTIONS)?.unwrap_or(if beside_datagrams { CONNECTIONS } else { u32::MAX });
        let connect_after = count(CONNECT_AFTER)?.unwrap_or(COUNTED);
        let fast_paths = setting::number(FAST_PATHS, 0_u32..UNSAID, "of at least 0")?.unwrap_or(UNSAID).into();
        let is_reliable = setting::chosen(MESSAGES_RELIABLE, ["off", "on"])? == 1;
        if is_reliable && !beside_datagrams {
            let what = format!("{MESSAGES_RELIABLE}=on needs {MESSAGES_CHANNEL}=both");
            return Err(Error::Join { what, source: None });
        }
        let (most, slots) = (AtomicU32::new(most), AtomicU32::new(SLOTS.into()));
        Ok(Self { beside_datagrams, connect_after, is_reliable, most, fast_paths, slots, ..Self::default() })
    }
}

/// How many requests had been posted on a connection when that was last looked at.
#[derive(Debug, Default)]
pub(super) struct Use(AtomicU64);

impl Peer {
    /// How many requests were posted since this was last asked.
    fn used(&self) -> u64 {
        let posted = self.queue.posted();
        posted.saturating_sub(self.used.0.swap(posted, Ordering::Relaxed))
    }

    /// Posts nothing any more, if nothing is in flight. A rank `is_asked` that may not post yet agrees.
    pub(super) fn begin_to_give(&self, is_asked: bool) -> bool {
        // What is in the peer's ring is found there.
        let idle = || self.queue.hold_idle().filter(|posting| !posting.has_unproven_slots());
        self.connection.begin_to_give(is_asked, idle)
    }
}

impl Inner {
    /// Whether there may be too many.
    pub(super) fn has_limit(&self) -> bool {
        let most = self.limits.most.load(Ordering::Relaxed) as usize;
        let all = Traffic::RAILS.len() * (self.connector.addresses.len() - 1);
        let wants_ring_back = self.limits.wants_ring_back.load(Ordering::Relaxed);
        let wants_one_back = self.datagrams.is_none() || self.limits.wants_one_back.load(Ordering::Relaxed);
        wants_ring_back || most < all && wants_one_back
    }

    /// The idle connections that are to be given back now, if there are too many; nothing is posted on
    /// them any more.
    pub(super) fn too_many(&self) -> Option<Vec<ConnectionId>> {
        if !self.has_limit() {
            return None;
        }
        self.progress(); // the rank may compute
        let is_of_messages = |peer: &&Peer| match self.limits.beside_datagrams {
            true => self.is_limited(peer.id),
            false => peer.id.traffic != Traffic::Memory && peer.id.rank != self.rank,
        };
        let is_whole = |peer: &&Peer| peer.connection.is_connected() && peer.connection.gives().is_none();
        let is_alive = |peer: &&Peer| self.job_segment.liveness(peer.id.rank) == Liveness::Alive;
        let connected: Vec<_> = self.known_peers().filter(is_of_messages).filter(is_whole).filter(is_alive).collect();
        let most = self.limits.most.load(Ordering::Relaxed) as usize;
        // Beside datagrams there are not more: one makes room.
        let most = if self.limits.beside_datagrams { most.saturating_sub(1) } else { most };
        let over = connected.len().checked_sub(most).filter(|over| *over > 0);
        if !self.is_full() {
            self.limits.wants_one_back.store(false, Ordering::Relaxed);
        }
        let mut idle: Vec<_> = connected.into_iter().map(|peer| (peer.used(), peer)).collect();
        idle.retain(|(used, peer)| self.is_little(*used) && !peer.is_waited_on());
        idle.sort_by_key(|(used, _)| *used);
        idle.iter().for_each(|(_, peer)| self.report_packets(peer));
        let begun = idle.into_iter().filter(|(_, peer)| peer.begin_to_give(false)).map(|(_, peer)| peer.id);
        Some(begun.take(over.unwrap_or(0)).chain(self.least_used_ring()).collect())
    }

    /// The connection with the least used ring, if one is wanted back and it is to be given back now.
    fn least_used_ring(&self) -> Option<ConnectionId> {
        let arrivals = self.arrivals.get().filter(|_| self.limits.wants_ring_back.load(Ordering::Relaxed))?;
        let (rank, used) = arrivals.uses_of_rings().into_iter().min_by_key(|(_, used)| *used)?;
        let peer = self.messages(rank).ok()?;
        self.report_packets(peer);
        (self.is_little(used) && peer.begin_to_give(false)).then_some(peer.id)
    }

    /// Whether so many requests since the last look are so few that the connection may be given back.
    fn is_little(&self, used: u64) -> bool {
        used < if self.limits.beside_datagrams { self.limits.connect_after.into() } else { 1 }
    }

    /// Whether a peer's connection is so little used that this rank agrees to give it back.
    pub(super) fn may_spare(&self, peer: &Peer) -> bool {
        self.progress(); // the rank may compute
        self.report_packets(peer);
        self.is_little(peer.used()) && !peer.is_waited_on()
    }

    /// What became of the connections of messages so far.
    pub(super) fn connection_counts(&self) -> ChannelCounts {
        let Limits { made, refused, given_back, rings, .. } = &self.limits;
        let counts = [made, refused, given_back, rings].map(|count| count.load(Ordering::Relaxed));
        let [made, refused, given_back, rings] = counts;
        let mut counts = ChannelCounts { made, refused, given_back, rings, ..ChannelCounts::default() };
        if let Some(arrivals) = self.arrivals.get() {
            let [connections, rings] = arrivals.memory(self.depth);
            counts.memory[Channel::Connection as usize] = connections;
            counts.memory[Channel::FastPath as usize] = rings;
        }
        counts
    }

    /// Ends a connection on which neither side posts anything.
    pub(super) fn give_back(&self, peer: &Peer) {
        let Ok([memory, ..]) = self.peers_of(peer.id.rank) else { return };
        // Held against a cut.
        let revocation = lock(&memory.revocation);
        let is_to_end = peer.connection.gives().is_some() && !peer.connection.is_broken();
        if is_to_end && matches!(*revocation, Revocation::Not) {
            self.save();
            self.end_connection(peer);
            self.limits.given_back.fetch_add(u64::from(peer.id.traffic == Traffic::Messages), Ordering::Relaxed);
            self.limits.wants_one_back.store(false, Ordering::Relaxed);
            self.limits.wants_ring_back.store(false, Ordering::Relaxed);
        }
        drop(revocation);
        self.ring();
    }
}
