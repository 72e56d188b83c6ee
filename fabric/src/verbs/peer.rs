//! The connection to one peer: how many requests are under way, and whether it works.

use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use ibverbs_sys::ibv_wc_status;
use onesided_remote_memory::Fault;

use crate::verbs::raw::{QueuePair, Remote};

/// The status of what was refused before it left; the library's own are small.
pub(super) const REFUSED: u32 = 256;

/// The status of what found no room for too long.
pub(super) const CROWDED_OUT: u32 = 257;

/// The status of what met a connection that one side has closed against the other.
pub(super) const REVOKED: u32 = 258;

/// The connection to a peer.
#[derive(Debug)]
pub(super) struct Peer {
    pub(super) pair: QueuePair,
    /// The start of its home region.
    pub(super) home: Remote,
    /// Taken to post, so that requests are numbered in the order in which they are posted.
    posting: Mutex<Posting>,
    /// How many requests were posted. Written by who posts.
    pub(super) posted: AtomicU64,
    /// How many have completed. Written by who takes in completions.
    pub(super) completed: AtomicU64,
    /// How many may be under way.
    pub(super) depth: usize,
    /// The request `n` that is under way, at `n` modulo the length, a power of two.
    pub(super) under_way: Box<[AtomicU64]>,
    /// The status that broke the connection; 0 while it works.
    pub(super) broken: AtomicU32,
    /// When a wait first saw that it is broken; 0 before.
    noticed: AtomicU64,
    /// The number of the last request that brings something back, plus one: the writes before it are in memory when it has
    /// completed. Written by who posts.
    pub(super) proof: AtomicU64,
    /// The number of the last request that takes a receive at the peer, plus one. Written by who posts.
    pub(super) rung: AtomicU64,
    /// How many requests had completed when posting last gave up; `u64::MAX` before.
    pub(super) stalled: AtomicU64,
    /// Whether somebody waits for what comes from it alone, since the last look.
    waited_on: AtomicBool,
    /// The first fault that nobody awaited, since the last flush.
    stuck: Mutex<Option<Fault>>,
    /// How far its access has been revoked.
    pub(super) revocation: Mutex<Revocation>,
}

#[derive(Debug, Default)]
pub(super) struct Posting {
    /// Whether a write was posted that nothing follows yet which brings something back.
    pub(super) unproven: bool,
}

/// A request under way, in a word: its number's low half, whether it keeps segments, its slot.
#[derive(Clone, Copy)]
pub(super) struct Entry(pub(super) u64);

impl Entry {
    /// Of no request.
    const EMPTY: u64 = u64::MAX;
    /// There are fewer slots.
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
    /// A connection for `depth` requests under way.
    pub(super) fn new(pair: QueuePair, home: Remote, depth: u32) -> Self {
        Self {
            pair,
            home,
            posting: Mutex::default(),
            posted: AtomicU64::new(0),
            completed: AtomicU64::new(0),
            depth: depth as usize,
            under_way: (0..depth.next_power_of_two()).map(|_| AtomicU64::new(Entry::EMPTY)).collect(),
            broken: AtomicU32::new(0),
            noticed: AtomicU64::new(0),
            proof: AtomicU64::new(0),
            rung: AtomicU64::new(0),
            stalled: AtomicU64::new(u64::MAX),
            waited_on: AtomicBool::new(false),
            stuck: Mutex::new(None),
            revocation: Mutex::default(),
        }
    }

    #[inline]
    pub(super) fn posting(&self) -> MutexGuard<'_, Posting> {
        self.posting.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// How many requests were posted so far.
    pub(super) fn posted(&self) -> u64 {
        self.posted.load(Ordering::Acquire)
    }

    /// Whether requests are under way.
    pub(super) fn is_busy(&self) -> bool {
        !self.has_completed(self.posted())
    }

    /// Whether `count` more requests can be posted at once.
    #[inline]
    pub(super) fn has_room(&self, count: usize) -> bool {
        // Acquire: an entry is written again only after it was taken in. What somebody posts just now may have completed
        // before it is counted.
        let under_way = self.posted().saturating_sub(self.completed.load(Ordering::Acquire));
        under_way as usize + count <= self.depth
    }

    /// Where the entry of a request lies.
    #[inline]
    pub(super) fn entry(&self, number: u64) -> &AtomicU64 {
        &self.under_way[number as usize & (self.under_way.len() - 1)]
    }

    /// Whether the first `count` requests have completed.
    pub(super) fn has_completed(&self, count: u64) -> bool {
        self.completed.load(Ordering::Acquire) >= count
    }

    /// Whether writes were posted that nothing follows which brings something back; from now on something does.
    pub(super) fn is_unproven(&self) -> bool {
        self.posting().unproven
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

    /// Whether it works no more.
    pub(super) fn is_broken(&self) -> bool {
        self.broken.load(Ordering::Acquire) != 0
    }

    /// Whether that is because one side is not to reach the other any more.
    pub(super) fn is_closed(&self) -> bool {
        self.broken.load(Ordering::Acquire) == REVOKED
    }

    /// Since when it has been known to who waits that it works no more.
    pub(super) fn noticed_broken(&self, now: u64) -> u64 {
        self.noticed.compare_exchange(0, now, Ordering::Relaxed, Ordering::Relaxed).map_or_else(|since| since, |_| now)
    }

    /// Whether a request is under way that takes a receive: the peer may have none to give, for as long as it likes.
    pub(super) fn needs_receive(&self) -> bool {
        self.rung.load(Ordering::Acquire) > self.completed()
    }

    /// Says that somebody waits for what comes from the peer.
    pub(super) fn wait_on(&self) {
        self.waited_on.store(true, Ordering::Relaxed);
    }

    /// Whether somebody has said so since the last call.
    pub(super) fn was_waited_on(&self) -> bool {
        self.waited_on.swap(false, Ordering::Relaxed)
    }

    /// The slot of the oldest request under way, if it keeps segments.
    pub(super) fn oldest_kept(&self) -> Option<u32> {
        let number = self.completed();
        let entry = Entry(self.entry(number).load(Ordering::Acquire));
        (entry.is_of(number) && entry.keeps()).then(|| entry.slot())
    }

    /// Gives the connection up: whatever is under way ends in an error.
    pub(super) fn fail(&self) {
        self.fail_as(ibv_wc_status::IBV_WC_WR_FLUSH_ERR);
    }

    /// The same, because one side is not to reach the other any more. Nothing is posted after this returns.
    pub(super) fn close(&self) {
        self.fail_as(REVOKED);
        drop(self.posting()); // whoever was at it has not seen that
    }

    fn fail_as(&self, status: u32) {
        if self.broken.compare_exchange(0, status, Ordering::AcqRel, Ordering::Relaxed).is_ok() {
            self.fail_again();
        }
    }

    /// Tells the card that the connection is given up.
    pub(super) fn fail_again(&self) {
        // A queue pair that cannot even be failed is in error already.
        let _ = self.pair.fail();
    }

    /// Keeps a fault that nobody awaited.
    pub(super) fn stick(&self, fault: Fault) {
        self.stuck.lock().unwrap_or_else(PoisonError::into_inner).get_or_insert(fault);
    }

    /// Whether there is one.
    pub(super) fn has_stuck(&self) -> bool {
        self.stuck.lock().unwrap_or_else(PoisonError::into_inner).is_some()
    }

    /// Takes the fault that nobody awaited.
    pub(super) fn take_stuck(&self) -> Option<Fault> {
        self.stuck.lock().unwrap_or_else(PoisonError::into_inner).take()
    }
}

/// How far a peer's access has been revoked.
#[derive(Clone, Copy, Debug, Default)]
pub(super) enum Revocation {
    #[default]
    Not,
    /// The notice is among so many requests; how long that may take.
    Telling {
        posted: u64,
        until: u64,
    },
    /// The queue pair is in the error state; until when it may have requests.
    Closing {
        until: u64,
    },
    Done,
}
