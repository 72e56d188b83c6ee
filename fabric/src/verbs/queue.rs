//! The send queue to one peer: what is posted, in order, and how it ends.
#![allow(unsafe_code)] // posting hands memory to the card

use std::hint::spin_loop;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use ibverbs_sys::ibv_wc_status;
use onesided_remote_memory::{Fault, FaultKind, Liveness, Rank};

use crate::drive::now;
use crate::verbs::raw::{Local, QueuePair, Remote, Request, Requests, Verb};
use crate::verbs::revoke::Revocation;
use crate::verbs::slots::{Outcome, Room};
use crate::verbs::{Inner, VerbsSegment};

/// A work request's number: whose queue, 24 bits; the number of the request in it, 40 bits. Requests of one queue
/// complete in the order of their numbers.
const NUMBER_BITS: u32 = 40;
const NUMBER: u64 = (1 << NUMBER_BITS) - 1;

/// The status of what was refused before it left; the library's own are small.
pub(super) const REFUSED: u32 = 256;
/// The status of what found no room for too long.
const CROWDED_OUT: u32 = 257;

/// The status of what met a connection that one side has closed against the other.
const REVOKED: u32 = 258;

/// The connection to a peer.
#[derive(Debug)]
pub(super) struct Peer {
    pub(super) pair: QueuePair,
    /// The start of its home region.
    pub(super) home: Remote,
    /// Taken to post, so that requests are numbered in the order in which they are posted.
    posting: Mutex<Posting>,
    /// How many requests were posted. Written by who posts.
    posted: AtomicU64,
    /// How many have completed. Written by who takes in completions.
    completed: AtomicU64,
    /// How many may be under way.
    depth: usize,
    /// The request `n` that is under way, at `n` modulo the length, a power of two.
    under_way: Box<[AtomicU64]>,
    /// The status that broke the connection; 0 while it works.
    broken: AtomicU32,
    /// When a wait first saw that it is broken; 0 before.
    noticed: AtomicU64,
    /// The number of the last request that brings something back, plus one: the writes before it are in memory when it has
    /// completed. Written by who posts.
    proof: AtomicU64,
    /// The number of the last request that takes a receive at the peer, plus one. Written by who posts.
    rung: AtomicU64,
    /// How many requests had completed when posting last gave up; `u64::MAX` before.
    stalled: AtomicU64,
    /// Whether somebody waits for what comes from it alone, since the last look.
    waited_on: AtomicBool,
    /// The first fault that nobody awaited, since the last flush.
    stuck: Mutex<Option<Fault>>,
    /// How far its access has been revoked.
    pub(super) revocation: Mutex<Revocation>,
}

#[derive(Debug, Default)]
struct Posting {
    /// Whether a write was posted that nothing follows yet which brings something back.
    unproven: bool,
}

/// A request under way, in a word: its number's low half, whether it keeps segments, its slot.
#[derive(Clone, Copy)]
struct Entry(u64);

impl Entry {
    /// Of no request.
    const EMPTY: u64 = u64::MAX;
    /// There are fewer slots.
    const KEEPS: u64 = 1 << 31;

    const fn new(number: u64, order: &Order) -> Self {
        Self(number << 32 | if order.keeps { Self::KEEPS } else { 0 } | order.slot as u64)
    }

    const fn is_of(self, number: u64) -> bool {
        (self.0 >> 32) as u32 == number as u32
    }

    const fn keeps(self) -> bool {
        self.0 & Self::KEEPS != 0
    }

    const fn slot(self) -> u32 {
        (self.0 & (Self::KEEPS - 1)) as u32
    }
}

/// A request to be posted, with the slot that it reports to.
#[derive(Clone, Copy, Debug)]
pub(super) struct Order {
    pub(super) verb: Verb,
    pub(super) slot: u32,
    /// From or to where: the slot's memory, or a segment's, which is kept then.
    pub(super) local: Local,
    /// The segments that it moves bytes between are kept under its slot until it has completed, see [`Inner::keep`].
    pub(super) keeps: bool,
    /// A later request of the same list tells of its completion.
    pub(super) quiet: bool,
}

impl Order {
    /// From or to the slot's memory.
    #[inline]
    pub(super) fn new(verb: Verb, room: &Room<'_>, len: usize) -> Self {
        Self { verb, slot: room.slot, local: room.piece.local(len as u32), keeps: false, quiet: false }
    }
}

/// What a request moves bytes between, and how many.
#[derive(Debug)]
pub(super) struct Kept {
    pub(super) segments: (VerbsSegment, VerbsSegment),
    pub(super) len: u64,
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
    fn posting(&self) -> MutexGuard<'_, Posting> {
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
    fn has_room(&self, count: usize) -> bool {
        // Acquire: an entry is written again only after it was taken in. What somebody posts just now may have completed
        // before it is counted.
        let under_way = self.posted().saturating_sub(self.completed.load(Ordering::Acquire));
        under_way as usize + count <= self.depth
    }

    /// Where the entry of a request lies.
    #[inline]
    fn entry(&self, number: u64) -> &AtomicU64 {
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

impl Inner {
    #[inline]
    pub(super) fn peer(&self, rank: Rank) -> Result<&Peer, Fault> {
        self.peers.get(rank.index()).ok_or_else(|| Fault::of(FaultKind::NoSuchRank, rank))
    }

    /// A slot for `len` bytes, waiting for one while any operation can still give one back, but not for longer than for room
    /// in a queue.
    #[inline]
    pub(super) fn take_slot(&self, len: usize) -> Result<Room<'_>, Fault> {
        self.slots.take(len).map_or_else(|| self.wait_for_slot(len), Ok)
    }

    #[cold]
    fn wait_for_slot(&self, len: usize) -> Result<Room<'_>, Fault> {
        let until = now().saturating_add(self.full_after.nanos());
        loop {
            if self.progress() == 0 {
                if !self.is_busy() || now() >= until {
                    return self.slots.take(len).ok_or_else(|| self.slots.why_none());
                }
                self.give_up_on_the_dead();
                self.patrol();
                std::thread::yield_now();
            }
            if let Some(room) = self.slots.take(len) {
                return Ok(room);
            }
        }
    }

    /// Waits until a slot's operation is done.
    #[cold]
    pub(super) fn wait_for(&self, slot: u32) {
        while self.slots.status(slot).is_none() {
            if self.progress() == 0 {
                self.give_up_on_the_dead();
                self.patrol();
                std::thread::yield_now();
            }
        }
    }

    /// Whether requests are under way to anybody.
    pub(super) fn is_busy(&self) -> bool {
        self.peers.iter().any(Peer::is_busy)
    }

    /// Whether a request can be posted to a peer at once.
    pub(super) fn has_room(&self, rank: Rank) -> bool {
        self.peer(rank).is_ok_and(|peer| peer.has_room(1))
    }

    /// Waits for room; `None` if nothing completes for too long.
    #[cold]
    fn wait_for_room<'p>(
        &self,
        peer: &'p Peer,
        mut posting: MutexGuard<'p, Posting>,
        count: usize,
    ) -> Option<MutexGuard<'p, Posting>> {
        let (mut completed, mut since) = (peer.completed(), now());
        // What is broken takes nothing any more, and refuses.
        while !peer.has_room(count) && !peer.is_broken() {
            drop(posting);
            if self.progress() == 0 {
                self.give_up_on_the_dead();
                self.patrol();
                std::thread::yield_now();
            }
            if peer.completed() == completed {
                // A request that moves many bytes has more time.
                let quiet = now().saturating_sub(since).saturating_sub(self.time_for_bytes(peer));
                // Whoever comes after one that gave up waits no longer than that one.
                if quiet >= self.full_after.nanos() || peer.stalled.load(Ordering::Relaxed) == completed {
                    peer.stalled.store(completed, Ordering::Relaxed);
                    return None;
                }
            } else {
                (completed, since) = (peer.completed(), now());
            }
            posting = peer.posting();
        }
        Some(posting)
    }

    /// Posts requests to one peer as one list, waiting for room. Their slots tell how they end, a refusal included.
    #[inline]
    pub(super) fn post<const N: usize>(&self, rank: Rank, orders: [Order; N]) {
        let Ok(peer) = self.peer(rank) else { return self.refuse(rank, &orders) };
        if N > peer.depth {
            return self.refuse(rank, &orders);
        }
        let mut posting = peer.posting();
        if !peer.has_room(N) {
            posting = match self.wait_for_room(peer, posting, N) {
                Some(posting) => posting,
                None => return self.refuse_as(rank, &orders, CROWDED_OUT),
            };
        }
        self.post_in_turn((rank, peer), posting, orders);
    }

    /// Posts one request if there is room for it at once.
    pub(super) fn try_post(&self, rank: Rank, order: Order) -> bool {
        let Ok(peer) = self.peer(rank) else { return false };
        let posting = peer.posting();
        let room = peer.has_room(1);
        if room {
            self.post_in_turn((rank, peer), posting, [order]);
        }
        room
    }

    /// Posts requests for which there is room.
    #[inline(always)] // the path of every operation
    fn post_in_turn<const N: usize>(
        &self,
        (rank, peer): (Rank, &Peer),
        mut posting: MutexGuard<'_, Posting>,
        orders: [Order; N],
    ) {
        if peer.broken.load(Ordering::Acquire) != 0 || self.board.liveness(rank) != Liveness::Alive {
            posting.unproven = false; // nothing ever proves it; who flushes is told of it once
            drop(posting);
            return self.refuse(rank, &orders);
        }
        let first = peer.posted.load(Ordering::Relaxed);
        let mut requests = Requests::<N>::new();
        let mut returns = false;
        for (at, order) in orders.iter().enumerate() {
            let number = first + at as u64;
            // Before it is posted: whoever takes its completion in reads it.
            peer.entry(number).store(Entry::new(number, order).0, Ordering::Release);
            let request = Request {
                id: u64::from(rank.0) << NUMBER_BITS | number & NUMBER,
                verb: order.verb,
                local: order.local,
                // A request that does not report is one that a later one of this list reports for.
                signalled: !order.quiet || at + 1 == N,
                // Only a fence keeps it from overtaking a read or an atomic before it.
                fenced: returns && self.fences,
                inline: !order.verb.returns() && !order.keeps && order.local.len <= peer.pair.inline(),
            };
            requests.set(at, request);
            returns |= order.verb.returns();
            posting.unproven = order.verb.writes() || (posting.unproven && !order.verb.returns());
            if order.verb.returns() {
                peer.proof.store(number + 1, Ordering::Release);
            }
            if order.verb.takes_receive() {
                peer.rung.store(number + 1, Ordering::Release);
            }
        }
        // SAFETY: the memory is a slot's, which is not freed before its completion is taken in, or of a segment that is
        // kept until then. When the endpoint goes, queue pairs are destroyed before slots and kept segments.
        let posted = unsafe { peer.pair.post(&mut requests) };
        let count = posted.map_or_else(|(count, _)| count, |()| N);
        peer.posted.store(first + count as u64, Ordering::Release);
        drop(posting);
        if count < N {
            // The queue had room: what the library says is no passing state.
            peer.fail();
            self.refuse(rank, &orders[count..]);
        }
    }

    #[cold]
    fn refuse(&self, rank: Rank, orders: &[Order]) {
        self.refuse_as(rank, orders, REFUSED);
    }

    #[cold]
    fn refuse_as(&self, rank: Rank, orders: &[Order], status: u32) {
        for order in orders {
            if order.keeps {
                self.kept().remove(&order.slot);
            }
            self.settle(rank, self.slots.complete(order.slot, status));
        }
    }

    /// Keeps the segments that a request will move bytes between, until it has completed. `order.keeps` has to be set.
    pub(super) fn keep(&self, slot: u32, kept: Kept) {
        self.kept().insert(slot, kept);
    }

    /// Posts one request that nobody waits for.
    pub(super) fn post_and_forget(&self, rank: Rank, order: Order) {
        let slot = order.slot;
        self.post(rank, [order]);
        self.forget(rank, slot);
    }

    /// Lets go of a slot whose outcome nobody waits for.
    pub(super) fn forget(&self, rank: Rank, slot: u32) {
        self.settle(rank, self.slots.detach(slot));
    }

    #[inline]
    fn settle(&self, rank: Rank, outcome: Outcome) {
        if let (Outcome::Missed(status), Ok(peer)) = (outcome, self.peer(rank)) {
            peer.stick(self.fault(rank, status));
        }
    }

    /// Takes in a completion: of the request with this number, and of those before it that do not report. Only one thread
    /// at a time does: the one that reaps.
    pub(super) fn complete(&self, id: u64, status: u32) {
        let rank = Rank((id >> NUMBER_BITS) as u32);
        let Ok(peer) = self.peer(rank) else { return };
        if status != 0 {
            let _ = peer.broken.compare_exchange(0, status, Ordering::AcqRel, Ordering::Relaxed);
        }
        let first = peer.completed.load(Ordering::Relaxed);
        let ahead = id.wrapping_sub(first) & NUMBER;
        if ahead >= peer.depth as u64 {
            return peer.fail(); // of a request that has completed: no card does that, and no wait may be for it
        }
        let last = first + ahead;
        let mut number = first;
        loop {
            // It was written before the request was posted, so the loop ends at once; that it was read shows its slot too.
            let entry = loop {
                let entry = Entry(peer.entry(number).load(Ordering::Acquire));
                if entry.is_of(number) {
                    break entry;
                }
                spin_loop();
            };
            if entry.keeps() {
                self.kept().remove(&entry.slot());
            }
            self.settle(rank, self.slots.complete(entry.slot(), if number == last { status } else { 0 }));
            peer.completed.store(number + 1, Ordering::Release);
            if number == last {
                return;
            }
            number += 1;
        }
    }

    /// What a completion's status means.
    pub(super) fn fault(&self, rank: Rank, status: u32) -> Fault {
        let broken = self.peer(rank).map_or(0, |peer| peer.broken.load(Ordering::Acquire));
        let kind = match (self.board.liveness(rank), status) {
            // That says it all, whichever of the library's numbers it came as.
            (Liveness::Dead, _) => return Fault::of(FaultKind::PeerDied, rank),
            (Liveness::Left, _) => return Fault::of(FaultKind::PeerLeft, rank),
            _ if self.is_revoked(rank) => return Fault::of(FaultKind::Revoked, rank),
            (Liveness::Alive, CROWDED_OUT) => return Fault::of(FaultKind::Full, rank),
            (Liveness::Alive, REFUSED) => return Fault::of(FaultKind::Refused, rank).with_detail(broken),
            // The target's card found no such memory, and did nothing.
            (Liveness::Alive, ibv_wc_status::IBV_WC_REM_ACCESS_ERR) => FaultKind::NoSuchRegion,
            (Liveness::Alive, _) => FaultKind::Unknown,
        };
        Fault::of(kind, rank).with_detail(status)
    }

    /// Ends at once what is under way to ranks that died: their cards' silence would end it too, but later.
    pub(super) fn give_up_on_the_dead(&self) {
        self.turn();
        if self.board.failed_rank().is_none() {
            return;
        }
        for (rank, peer) in (0..).map(Rank).zip(&self.peers) {
            if self.board.liveness(rank) == Liveness::Dead {
                peer.fail();
            }
        }
    }
}
