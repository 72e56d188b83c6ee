//! Connections of messages that are given back: with [`MESSAGES_CONNECTIONS`], a rank that has more ends
//! those that are idle. The next message makes another one. Nothing is lost, and messages notice nothing.
//!
//! Beside datagrams a rank never has more. One that had to refuse a connection gives the least used one back:
//! one that carried fewer requests for a while than messages count for a new one. Packets to that peer are
//! datagrams again, in the same sequence, and those that were refused ask again when enough messages count.
//!
//! A connection ends by agreement. The rank that gives it back has no request in flight, posts none any
//! more, and says so, with a number. Its peer decides once for each number:
//!
//! - It agrees if it has no request in flight either and has posted none since it was last asked. All that
//!   either has sent has then arrived. It saves its packets, ends its queue pair, and counts one generation
//!   more; and so does the other rank when it hears that.
//! - Or it keeps the connection, and the other rank goes on with it.
//!
//! Where both give the connection back at the same time, the lower rank's wish counts.

use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};

use onesided_job::{lock, setting};
use onesided_remote_memory::Liveness;

use crate::verbs::Inner;
use crate::verbs::datagrams::{CONNECT_AFTER, CONNECTIONS, COUNTED, MESSAGES_CHANNEL, MESSAGES_RELIABLE};
use crate::verbs::fast_path::{FAST_PATHS, SLOTS};
use crate::verbs::peer::{Peer, Revocation};
use crate::verbs::traffic::{ConnectionId, Traffic};
use crate::{ChannelCounts, Error};

/// How many connections of messages a rank has before it gives idle ones back. Without it there is no
/// limit. With datagrams [and connections](super::MESSAGES_CHANNEL): how many it has at most, 16 without it.
pub const MESSAGES_CONNECTIONS: &str = "ONESIDED_MESSAGES_CONNECTIONS";

/// How often a rank with too many looks for idle ones, in nanoseconds.
pub(super) const SCAN: u64 = 100_000_000;

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
    /// How many ranks have a [fast path](super::fast_path) to this one at most, if that was said; and how many slots
    /// one has.
    pub(super) fast_paths: Option<u32>,
    pub(super) slots: AtomicU32,
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
        let fast_paths = setting::number(FAST_PATHS, 0_u32.., "of at least 0")?;
        let is_reliable = setting::chosen(MESSAGES_RELIABLE, ["off", "on"])? == 1;
        if is_reliable && !beside_datagrams {
            let what = format!("{MESSAGES_RELIABLE}=on needs {MESSAGES_CHANNEL}=both");
            return Err(Error::Join { what, source: None });
        }
        let (most, slots) = (AtomicU32::new(most), AtomicU32::new(SLOTS.into()));
        Ok(Self { beside_datagrams, connect_after, is_reliable, most, fast_paths, slots, ..Self::default() })
    }
}

/// What becomes of a connection that a rank gives back.
#[derive(Debug, Default)]
pub(super) struct Giving {
    /// The number of this rank's wish, or 0; and of its last one.
    number: AtomicU32,
    last: AtomicU32,
    /// The peer's wish that this rank has not agreed to.
    kept: AtomicU32,
    /// How many requests had been posted when that was last looked at.
    posted: AtomicU64,
}

impl Giving {
    pub(super) fn number(&self) -> u32 {
        self.number.load(Ordering::Acquire)
    }

    pub(super) fn is_under_way(&self) -> bool {
        self.number() != 0
    }

    pub(super) fn end(&self) {
        self.number.store(0, Ordering::Release);
    }
}

impl Peer {
    /// How many requests were posted since this was last asked.
    fn used(&self) -> u64 {
        let posted = self.posted();
        posted.saturating_sub(self.giving.posted.swap(posted, Ordering::Relaxed))
    }

    /// Posts nothing any more, if nothing is in flight. A rank `is_asked` that may not post yet agrees.
    fn begin_to_give(&self, is_asked: bool) -> bool {
        let connecting = lock(&self.connecting); // nothing makes it ready meanwhile
        let posting = lock(&self.posting);
        let is_made = self.is_ready() || is_asked && connecting.connected.is_some();
        // What is in the peer's ring is found there.
        let is_over = !self.is_busy() && !posting.has_unproven_slots();
        let may = is_made && is_over && !self.is_broken() && !self.giving.is_under_way();
        if may {
            let last = self.giving.last.load(Ordering::Relaxed).wrapping_add(1).max(1);
            self.giving.last.store(last, Ordering::Relaxed);
            self.giving.number.store(last, Ordering::Release);
            self.set_unready();
        }
        may
    }

    /// The peer keeps the connection.
    pub(super) fn keep(&self) {
        let _connecting = lock(&self.connecting);
        // Unless it broke meanwhile, and another one is to be made.
        if self.giving.is_under_way() {
            self.giving.end();
            self.set_ready();
        }
    }
}

impl Inner {
    /// Whether there may be too many.
    pub(super) fn has_limit(&self) -> bool {
        let most = self.limits.most.load(Ordering::Relaxed) as usize;
        let all = Traffic::RAILS.len() * (self.connector.addresses.len() - 1);
        most < all && (self.datagrams.is_none() || self.limits.wants_one_back.load(Ordering::Relaxed))
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
        let is_whole = |peer: &&Peer| peer.is_connected() && !peer.giving.is_under_way();
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
        Some(begun.take(over?).collect())
    }

    /// Whether so many requests since the last look are so few that the connection may be given back.
    fn is_little(&self, used: u64) -> bool {
        used < if self.limits.beside_datagrams { self.limits.connect_after.into() } else { 1 }
    }

    /// Whether this rank gives back a connection as its peer wishes; if so, it has.
    pub(super) fn agrees_to_give(&self, peer: &Peer, number: u32) -> bool {
        if peer.giving.kept.load(Ordering::Relaxed) == number {
            return false;
        }
        self.progress(); // the rank may compute
        self.report_packets(peer);
        let own_counts = peer.giving.is_under_way() && self.rank < peer.id.rank;
        let stops = || peer.giving.is_under_way() || peer.begin_to_give(true);
        if own_counts || !self.is_little(peer.used()) || peer.is_waited_on() || !stops() {
            peer.giving.kept.store(number, Ordering::Relaxed);
            return false;
        }
        self.give_back(peer);
        self.ring();
        true
    }

    /// What became of the connections of messages so far.
    pub(super) fn connection_counts(&self) -> ChannelCounts {
        let Limits { made, refused, given_back, rings, .. } = &self.limits;
        let counts = [made, refused, given_back, rings].map(|count| count.load(Ordering::Relaxed));
        let [made, refused, given_back, rings] = counts;
        ChannelCounts { made, refused, given_back, rings, ..ChannelCounts::default() }
    }

    /// Ends a connection on which neither side posts anything.
    pub(super) fn give_back(&self, peer: &Peer) {
        let Ok([memory, ..]) = self.peers_of(peer.id.rank) else { return };
        // Held against a cut.
        let revocation = lock(&memory.revocation);
        let is_to_end = peer.giving.is_under_way() && !peer.is_broken();
        if is_to_end && matches!(*revocation, Revocation::Not) {
            self.save();
            self.end_connection(peer);
            self.limits.given_back.fetch_add(u64::from(peer.id.traffic == Traffic::Messages), Ordering::Relaxed);
            self.limits.wants_one_back.store(false, Ordering::Relaxed);
        }
        drop(revocation);
        self.ring();
    }
}
