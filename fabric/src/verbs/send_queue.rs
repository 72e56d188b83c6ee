//! What is under way to a peer: requests by their numbers, from the post to the completion.

use std::sync::atomic::{AtomicU32, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock};

use onesided_job::lock;

use crate::verbs::fast_path::PeerRing;
use crate::verbs::raw::QueuePair;

/// The requests to a peer. They are numbered as they are posted, and complete in that order.
#[derive(Debug, Default)]
pub(super) struct SendQueue {
    /// The request `n` in flight, at `n` modulo the length, a power of two.
    under_way: OnceLock<Box<[AtomicU64]>>,
    /// The maximum number in flight.
    pub(super) depth: usize,
    /// How many bytes a post copies, if there is a queue pair.
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
    /// The number of the last request with a response, plus one: once it has completed, the writes
    /// before it are in memory. Written by the posting thread.
    pub(super) proof: AtomicU64,
    /// The number of the last request that takes a receive at the peer, plus one. Written by the
    /// posting thread.
    pub(super) rung: AtomicU64,
    /// How many requests had completed when a post last gave up, plus one; 0 before.
    pub(super) stalled: AtomicU64,
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

impl SendQueue {
    /// An empty one for `depth` requests in flight.
    pub(super) fn new(depth: u32) -> Self {
        Self { depth: depth as usize, ..Self::default() }
    }

    /// Gives it a queue pair.
    pub(super) fn set_pair(&self, pair: QueuePair) {
        let entries = || (0..self.depth.next_power_of_two()).map(|_| AtomicU64::new(Entry::EMPTY)).collect();
        self.under_way.get_or_init(entries);
        self.inline.store(pair.inline(), Ordering::Relaxed);
        lock(&self.posting).pair = Some(Arc::new(pair));
    }

    /// Its queue pair, if there is one.
    pub(super) fn pair(&self) -> Option<Arc<QueuePair>> {
        lock(&self.posting).pair.clone()
    }

    /// Gives its queue pair back. `posting`: [nothing is in flight](Self::hold_idle).
    pub(super) fn end(&self, posting: &mut Posting) -> Option<Arc<QueuePair>> {
        self.stalled.store(0, Ordering::Relaxed);
        let unanswering = posting.unanswering;
        std::mem::replace(posting, Posting { unanswering, ..Posting::default() }).pair
    }

    /// To be held while nothing is in flight. `None`: something is.
    pub(super) fn hold_idle(&self) -> Option<MutexGuard<'_, Posting>> {
        let posting = lock(&self.posting);
        (!self.is_busy()).then_some(posting)
    }

    /// To post the packets of a list, whose space is kept no more.
    pub(super) fn posting_list(&self) -> MutexGuard<'_, Posting> {
        let posting = lock(&self.posting);
        self.listed.store(0, Ordering::Relaxed);
        posting
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

    /// Whether there is no space for `count` more requests.
    #[inline]
    pub(super) fn is_full(&self, count: usize) -> bool {
        // Acquire: an entry is reused only after its completion was drained. A concurrent post may
        // complete before it is counted.
        let in_flight = self.posted().saturating_sub(self.completed()) as usize;
        in_flight + self.listed.load(Ordering::Relaxed) + count > self.depth
    }

    /// The entry of a request.
    #[inline]
    pub(super) fn entry(&self, number: u64) -> &AtomicU64 {
        let under_way = self.under_way.get().expect("requests are posted on a connection");
        &under_way[number as usize & (under_way.len() - 1)]
    }

    /// How many requests have completed.
    #[inline]
    pub(super) fn completed(&self) -> u64 {
        self.completed.load(Ordering::Acquire)
    }

    /// Whether the first `count` requests have completed.
    pub(super) fn has_completed(&self, count: u64) -> bool {
        self.completed() >= count
    }

    /// Whether writes were posted with no later request that has a response.
    pub(super) fn is_unproven(&self) -> bool {
        lock(&self.posting).unproven
    }

    /// Whether the writes among the first `count` requests are known to be in memory.
    pub(super) fn has_proven(&self, count: u64) -> bool {
        let proof = self.proof.load(Ordering::Acquire);
        count == 0 || (count < proof && self.has_completed(proof))
    }

    /// Whether a request in flight takes a receive: the peer may delay it without bound.
    pub(super) fn needs_receive(&self) -> bool {
        self.rung.load(Ordering::Acquire) > self.completed()
    }

    /// The slot of the oldest request in flight, if it keeps segments.
    pub(super) fn oldest_in_flight(&self) -> Option<u32> {
        let number = self.completed();
        self.under_way.get()?;
        let entry = Entry(self.entry(number).load(Ordering::Acquire));
        (entry.is_of(number) && entry.keeps()).then(|| entry.slot())
    }
}
