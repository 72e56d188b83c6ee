//! A connection to a peer: how many requests are under way, and whether it works.

use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, OnceLock};

use ibverbs_sys::ibv_wc_status;
use onesided_job::lock;
use onesided_remote_memory::Fault;

use crate::Error;
use crate::verbs::fast_path::{PeerRing, RingAddress};
use crate::verbs::giving::Giving;
use crate::verbs::keepalive::Observation;
use crate::verbs::rails::Load;
use crate::verbs::raw::{QueuePair, Remote};
use crate::verbs::traffic::ConnectionId;

/// The status of a request that was refused before it was posted; the library's own are small.
pub(super) const REFUSED: u32 = 256;

/// The status of a request that found no space for too long.
pub(super) const NO_SPACE: u32 = 257;

/// The status of a request on a connection that one side has revoked.
pub(super) const REVOKED: u32 = 258;

/// The first generation after a break.
const fn after_break(generation: u64) -> u64 {
    ((generation >> 32) + 1) << 32
}

/// Whether a later generation comes after a break.
pub(super) const fn is_after_break(generation: u64, earlier: u64) -> bool {
    generation >> 32 > earlier >> 32
}

/// A connection to a peer.
#[derive(Debug, Default)]
pub(super) struct Peer {
    pub(super) id: ConnectionId,
    /// The request `n` in flight, at `n` modulo the length, a power of two.
    under_way: OnceLock<Box<[AtomicU64]>>,
    /// Held while the connection is made, fails or ends.
    pub(super) connecting: Mutex<Connecting>,
    /// Tells the connections that the two had one after the other: the high half counts those that
    /// broke, the low half those that were [given back](super::giving) since. And what the peer says: of
    /// a rail always, of another connection if it is ahead.
    generation: AtomicU64,
    heard: AtomicU64,
    /// Whether it is being given back.
    pub(super) giving: Giving,
    /// Whether the peer is known to have connected its queue pair as well: requests may be posted.
    ready: AtomicBool,
    /// Whether the connection was asked for.
    pub(super) asked: AtomicBool,
    /// Whether there is to be none for now: one of the two has [too many](super::Inner::is_limited).
    pub(super) refused: AtomicBool,
    /// How many slots the peer's [ring](super::fast_path) has; 0: there is none. And how many short packets of the peer
    /// have come over the queue since this rank last spoke of its own.
    pub(super) slots: AtomicU32,
    pub(super) short: AtomicU32,
    /// The start of its home region.
    pub(super) home: Remote,
    /// How many bytes a post copies, if it has a queue pair.
    pub(super) inline: AtomicU32,
    /// Held while posting, so that requests are numbered in posting order.
    pub(super) posting: Mutex<Posting>,
    /// How many requests were posted, how many of them were signalled, and how many doorbells were rung.
    /// Written by the posting thread.
    pub(super) posted: AtomicU64,
    pub(super) signalled: AtomicU64,
    pub(super) doorbells: AtomicU64,
    /// How many packets are in a list that has room here and is not posted yet. Written while posting.
    pub(super) listed: AtomicUsize,
    /// The number of the last signalled request, plus one. Written like `posted`.
    pub(super) reported: AtomicU64,
    /// How many have completed. Written by the thread that drains completions.
    pub(super) completed: AtomicU64,
    /// The maximum number in flight.
    pub(super) depth: usize,
    /// The status that broke the connection; 0 while it works.
    pub(super) broken: AtomicU32,
    /// When a wait first found it broken; 0 before.
    noticed: AtomicU64,
    /// The number of the last request with a response, plus one: once it has completed, the writes
    /// before it are in memory. Written by the posting thread.
    pub(super) proof: AtomicU64,
    /// The number of the last request that takes a receive at the peer, plus one. Written by the
    /// posting thread.
    pub(super) rung: AtomicU64,
    /// How many requests had completed when a post last gave up, plus one; 0 before.
    pub(super) stalled: AtomicU64,
    /// Whether a thread has waited for this peer's writes since the last check.
    waited_on: AtomicBool,
    /// The deferred error: the first unawaited fault since the last flush.
    deferred: Mutex<Option<Fault>>,
    /// What moves over it of long messages.
    pub(super) load: Mutex<Load>,
    /// The state at the last check of the keepalive.
    pub(super) observation: Mutex<Observation>,
    /// The state of the revocation of its access, of all traffic.
    pub(super) revocation: Mutex<Revocation>,
}

/// This rank's side of a connection.
#[derive(Debug, Default)]
pub(super) struct Connecting {
    pub(super) pair: Option<Arc<QueuePair>>,
    /// The peer's queue pair that it is connected to.
    pub(super) connected: Option<u32>,
}

#[derive(Debug, Default)]
pub(super) struct Posting {
    pub(super) pair: Option<Arc<QueuePair>>,
    /// Whether a write was posted with no later request that has a response.
    pub(super) unproven: bool,
    /// The number of the last request without a response, plus one.
    pub(super) unanswering: u64,
    pub(super) ring: Option<PeerRing>,
}

impl Posting {
    /// Whether packets in the peer's ring may not be placed.
    pub(super) const fn has_unproven_slots(&self) -> bool {
        self.unproven && self.ring.is_some()
    }
}

/// A request in flight, in one word: the low half of its number, whether it keeps segments, its
/// slot.
#[derive(Clone, Copy)]
pub(super) struct Entry(pub(super) u64);

impl Entry {
    /// No request.
    const EMPTY: u64 = u64::MAX;
    /// Above all slot numbers.
    const KEEPS: u64 = 1 << 31;

    pub(super) const fn new(number: u64, keeps: bool, slot: u32) -> Self {
        Self(number << 32 | if keeps { Self::KEEPS } else { 0 } | slot as u64)
    }

    pub(super) const fn is_of(self, number: u64) -> bool {
        (self.0 >> 32) as u32 == number as u32
    }

    pub(super) const fn keeps(self) -> bool {
        self.0 & Self::KEEPS != 0
    }

    pub(super) const fn slot(self) -> u32 {
        (self.0 & (Self::KEEPS - 1)) as u32
    }
}

impl Peer {
    /// A peer that is not connected, for `depth` requests in flight.
    pub(super) fn new(id: ConnectionId, home: Remote, depth: u32) -> Self {
        Self { id, home, depth: depth as usize, ..Self::default() }
    }

    /// Gives it a queue pair.
    pub(super) fn set_pair(&self, connecting: &mut Connecting, pair: QueuePair) {
        let entries = || (0..self.depth.next_power_of_two()).map(|_| AtomicU64::new(Entry::EMPTY)).collect();
        self.under_way.get_or_init(entries);
        self.inline.store(pair.inline(), Ordering::Relaxed);
        let pair = Arc::new(pair);
        lock(&self.posting).pair = Some(Arc::clone(&pair));
        connecting.pair = Some(pair);
    }

    /// Tells its connection from earlier ones.
    pub(super) fn generation(&self) -> u64 {
        self.generation.load(Ordering::Acquire)
    }

    /// How many of its connections broke before this one.
    pub(super) fn breaks(&self) -> u32 {
        (self.generation() >> 32) as u32
    }

    /// The peer has ended all connections before this one.
    pub(super) fn hear(&self, generation: u64) {
        self.heard.fetch_max(generation, Ordering::AcqRel);
    }

    /// Before which one the peer is known to have ended all.
    pub(super) fn heard(&self) -> u64 {
        self.heard.load(Ordering::Acquire)
    }

    /// Ends the connection, and gives its queue pair back: the next request asks for another one.
    /// `None`: requests are still in flight, or there is no queue pair to end.
    pub(super) fn end(&self) -> Option<Arc<QueuePair>> {
        let (mut connecting, mut posting) = (lock(&self.connecting), lock(&self.posting));
        if self.is_busy() {
            return None;
        }
        let pair = connecting.pair.take();
        *connecting = Connecting::default();
        *posting = Posting { unanswering: posting.unanswering, ..Posting::default() };
        self.slots.store(0, Ordering::Relaxed);
        self.ready.store(false, Ordering::Release);
        self.asked.store(false, Ordering::Release);
        self.noticed.store(0, Ordering::Relaxed);
        self.stalled.store(0, Ordering::Relaxed);
        self.giving.end();
        let generation = self.generation();
        let next = if self.is_broken() { after_break(generation) } else { generation + 1 };
        self.generation.store(next.max(self.heard()), Ordering::Release);
        self.broken.store(0, Ordering::Release);
        pair
    }

    /// The peer has a ring for this rank, over the connection of this generation.
    pub(super) fn set_ring(&self, address: RingAddress, generation: u64) {
        let mut posting = lock(&self.posting); // it does not end meanwhile
        let is_new = posting.ring.as_ref().is_none_or(|ring| ring.address != address);
        if generation == self.generation() && is_new {
            posting.ring = Some(PeerRing::new(address));
            self.slots.store(address.slots.into(), Ordering::Relaxed);
        }
    }

    /// Whether this rank's queue pair is connected, and works.
    pub(super) fn is_connected(&self) -> bool {
        (self.is_ready() || lock(&self.connecting).connected.is_some()) && !self.is_broken()
    }

    /// Whether there is to be no connection for now.
    pub(super) fn is_refused(&self) -> bool {
        self.refused.load(Ordering::Acquire)
    }

    /// Whether requests may be posted.
    #[inline]
    pub(super) fn is_ready(&self) -> bool {
        self.ready.load(Ordering::Acquire)
    }

    /// The peer has connected its queue pair to this rank's.
    pub(super) fn set_ready(&self) {
        self.ready.store(true, Ordering::Release);
    }

    /// Requests are posted no more.
    pub(super) fn set_unready(&self) {
        self.ready.store(false, Ordering::Release);
    }

    /// How many requests were posted so far.
    pub(super) fn posted(&self) -> u64 {
        self.posted.load(Ordering::Acquire)
    }

    /// Whether requests are in flight or listed, or packets that none has reported.
    pub(super) fn is_busy(&self) -> bool {
        !self.has_completed(self.posted()) || self.listed.load(Ordering::Relaxed) > 0
    }

    /// The number of the last request whose completion is reported, plus one.
    #[inline]
    pub(super) fn reported(&self) -> u64 {
        self.reported.load(Ordering::Relaxed)
    }

    /// Whether a completion is awaited.
    pub(super) fn awaits_completion(&self) -> bool {
        !self.has_completed(self.reported())
    }

    /// Whether packets were posted that no completion will report.
    pub(super) fn is_unreported(&self) -> bool {
        let posted = self.posted();
        self.reported() < posted && !self.has_completed(posted)
    }

    /// How many requests are in flight.
    #[inline]
    pub(super) fn in_flight(&self) -> usize {
        // Acquire: an entry is reused only after its completion was drained. A concurrent post may
        // complete before it is counted.
        self.posted().saturating_sub(self.completed.load(Ordering::Acquire)) as usize
    }

    /// Whether `count` more requests can be posted now.
    #[inline]
    pub(super) fn has_room(&self, count: usize) -> bool {
        self.is_ready() && !self.is_full(count)
    }

    /// Whether there is no space for `count` more requests.
    #[inline]
    pub(super) fn is_full(&self, count: usize) -> bool {
        self.in_flight() + self.listed.load(Ordering::Relaxed) + count > self.depth
    }

    /// The entry of a request.
    #[inline]
    pub(super) fn entry(&self, number: u64) -> &AtomicU64 {
        let under_way = self.under_way.get().expect("requests are posted on a connection");
        &under_way[number as usize & (under_way.len() - 1)]
    }

    /// Whether the first `count` requests have completed.
    pub(super) fn has_completed(&self, count: u64) -> bool {
        self.completed.load(Ordering::Acquire) >= count
    }

    /// Whether writes were posted with no later request that has a response; clears the flag.
    pub(super) fn is_unproven(&self) -> bool {
        lock(&self.posting).unproven
    }

    /// Whether the writes among the first `count` requests are known to be in memory.
    pub(super) fn has_proven(&self, count: u64) -> bool {
        let proof = self.proof.load(Ordering::Acquire);
        count == 0 || (count < proof && self.has_completed(proof))
    }

    /// How many requests have completed.
    pub(super) fn completed(&self) -> u64 {
        self.completed.load(Ordering::Acquire)
    }

    /// Whether it is broken.
    pub(super) fn is_broken(&self) -> bool {
        self.broken.load(Ordering::Acquire) != 0
    }

    /// Whether it is broken because one side has revoked the other's access.
    pub(super) fn is_closed(&self) -> bool {
        self.broken.load(Ordering::Acquire) == REVOKED
    }

    /// As if a wait had found it broken now for the first time.
    pub(super) fn notice_again(&self, now: u64) {
        self.noticed.store(now, Ordering::Relaxed);
    }

    /// When a wait first found it broken.
    pub(super) fn noticed_broken(&self, now: u64) -> u64 {
        self.noticed.compare_exchange(0, now, Ordering::Relaxed, Ordering::Relaxed).map_or_else(|since| since, |_| now)
    }

    /// Whether a request in flight takes a receive: the peer may delay it without bound.
    pub(super) fn needs_receive(&self) -> bool {
        self.rung.load(Ordering::Acquire) > self.completed()
    }

    /// Records that a thread waits for the peer's writes.
    pub(super) fn wait_on(&self) {
        self.waited_on.store(true, Ordering::Relaxed);
    }

    /// Whether a thread has recorded that since the last check.
    pub(super) fn is_waited_on(&self) -> bool {
        self.waited_on.load(Ordering::Relaxed)
    }

    /// Whether a thread has recorded that since the last call.
    pub(super) fn was_waited_on(&self) -> bool {
        self.waited_on.swap(false, Ordering::Relaxed)
    }

    /// The slot of the oldest request in flight, if it keeps segments.
    pub(super) fn oldest_in_flight(&self) -> Option<u32> {
        let number = self.completed();
        self.under_way.get()?;
        let entry = Entry(self.entry(number).load(Ordering::Acquire));
        (entry.is_of(number) && entry.keeps()).then(|| entry.slot())
    }

    /// Gives up the connection: requests in flight end in an error.
    pub(super) fn fail(&self) {
        self.fail_as(ibv_wc_status::IBV_WC_WR_FLUSH_ERR);
    }

    /// The same after a revocation, or a loss. Nothing is posted after this returns.
    pub(super) fn close(&self, revoked: bool) {
        match revoked {
            true => self.fail_as(REVOKED),
            false => self.fail(),
        }
        drop(lock(&self.posting)); // waits for a post that started before
    }

    fn fail_as(&self, status: u32) {
        if self.broken.compare_exchange(0, status, Ordering::AcqRel, Ordering::Relaxed).is_ok() {
            self.fail_again();
        }
    }

    /// Gives up the connection if it is of an earlier generation than the peer's. Another thread may
    /// have ended it, and this one is a later one.
    pub(super) fn fail_before(&self, generation: u64) {
        let connecting = lock(&self.connecting); // it does not end meanwhile
        if is_after_break(generation, self.generation()) {
            let status = ibv_wc_status::IBV_WC_WR_FLUSH_ERR;
            let _ = self.broken.compare_exchange(0, status, Ordering::AcqRel, Ordering::Relaxed);
        }
        drop(connecting);
        self.fail_again();
    }

    /// Sets the queue pair of a broken connection to the error state.
    pub(super) fn fail_again(&self) {
        let connecting = lock(&self.connecting); // what is connected after this finds it broken
        if self.is_broken() {
            // If this fails, the queue pair is in the error state already.
            let _ = connecting.pair.as_ref().map(|pair| pair.fail());
        }
    }

    /// Resets the queue pair, if there is one.
    pub(super) fn reset(&self) -> Result<(), Error> {
        lock(&self.connecting).pair.as_ref().map_or(Ok(()), |pair| pair.reset())
    }

    /// Stores a deferred error.
    pub(super) fn defer(&self, fault: Fault) {
        lock(&self.deferred).get_or_insert(fault);
    }

    /// Whether there is a deferred error.
    pub(super) fn has_deferred(&self) -> bool {
        lock(&self.deferred).is_some()
    }

    /// Takes the deferred error.
    pub(super) fn take_deferred(&self) -> Option<Fault> {
        lock(&self.deferred).take()
    }
}

/// The state of a revocation.
#[derive(Clone, Copy, Debug, Default)]
pub(super) enum Revocation {
    #[default]
    Not,
    /// The notice is among the first `posted` requests; and its deadline.
    Telling {
        posted: u64,
        until: u64,
    },
    /// The queue pair is in the error state; and the deadline of its requests.
    Closing {
        until: u64,
    },
    Done,
}

#[cfg(test)]
mod tests {
    use onesided_remote_memory::Rank;

    use super::*;
    use crate::verbs::traffic::Traffic;

    #[test]
    fn a_peer_that_asks_late_breaks_no_later_connection() {
        let id = ConnectionId { rank: Rank(1), traffic: Traffic::Messages };
        let peer = Peer::new(id, Remote { address: 0, key: 0 }, 4);
        let asked = after_break(peer.generation());
        peer.fail_before(asked);
        assert!(peer.is_broken());
        assert!(peer.end().is_none());
        assert_eq!((peer.is_broken(), peer.generation()), (false, asked));
        peer.fail_before(asked);
        assert!(!peer.is_broken());
    }
}
