//! The send queue to one peer: work requests in order, and their completion.
#![allow(unsafe_code)] // a post gives the card access to memory

use std::hint::spin_loop;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use ibverbs_sys::ibv_wc_status;
use onesided_remote_memory::{Fault, FaultKind, Liveness, Rank};

use crate::drive::now;
use crate::verbs::raw::{Local, QueuePair, RawWorkRequest, RawWorkRequests, Remote, Verb};
use crate::verbs::revoke::Revocation;
use crate::verbs::slots::{Outcome, TakenSlot};
use crate::verbs::{Inner, VerbsSegment};

/// A work request id: the queue, 24 bits; the number of the request in it, 40 bits. Requests of one
/// queue complete in the order of their numbers.
const NUMBER_BITS: u32 = 40;
const NUMBER: u64 = (1 << NUMBER_BITS) - 1;

/// The status of a request that was refused before it was posted; the library's own are small.
pub(super) const REFUSED: u32 = 256;
/// The status of a request that found no space for too long.
const NO_SPACE: u32 = 257;

/// The status of a request on a connection that one side has revoked.
const REVOKED: u32 = 258;

/// The connection to a peer.
#[derive(Debug)]
pub(super) struct Peer {
    pub(super) pair: QueuePair,
    /// The start of its home region.
    pub(super) home: Remote,
    /// Held while posting, so that requests are numbered in posting order.
    posting: Mutex<Posting>,
    /// How many requests were posted. Written by the posting thread.
    posted: AtomicU64,
    /// How many have completed. Written by the thread that drains completions.
    completed: AtomicU64,
    /// The maximum number in flight.
    depth: usize,
    /// The request `n` in flight, at `n` modulo the length, a power of two.
    under_way: Box<[AtomicU64]>,
    /// The status that broke the connection; 0 while it works.
    broken: AtomicU32,
    /// When a wait first found it broken; 0 before.
    noticed: AtomicU64,
    /// The number of the last request with a response, plus one: once it has completed, the writes
    /// before it are in memory. Written by the posting thread.
    proof: AtomicU64,
    /// The number of the last request that takes a receive at the peer, plus one. Written by the
    /// posting thread.
    rung: AtomicU64,
    /// How many requests had completed when a post last gave up; `u64::MAX` before.
    stalled: AtomicU64,
    /// Whether a thread has waited for this peer's writes since the last check.
    waited_on: AtomicBool,
    /// The deferred error: the first unawaited fault since the last flush.
    deferred: Mutex<Option<Fault>>,
    /// The state of the revocation of its access.
    pub(super) revocation: Mutex<Revocation>,
}

#[derive(Debug, Default)]
struct Posting {
    /// Whether a write was posted with no later request that has a response.
    unproven: bool,
}

/// A request in flight, in one word: the low half of its number, whether it keeps segments, its
/// slot.
#[derive(Clone, Copy)]
struct Entry(u64);

impl Entry {
    /// No request.
    const EMPTY: u64 = u64::MAX;
    /// Above all slot numbers.
    const KEEPS: u64 = 1 << 31;

    const fn new(number: u64, request: &WorkRequest) -> Self {
        Self(number << 32 | if request.keeps { Self::KEEPS } else { 0 } | request.slot as u64)
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

/// A work request, with the slot of its outcome.
#[derive(Clone, Copy, Debug)]
pub(super) struct WorkRequest {
    pub(super) verb: Verb,
    pub(super) slot: u32,
    /// Source or destination: the slot's memory, or a segment's, which is kept then.
    pub(super) local: Local,
    /// Whether its slot holds references to the segments until it has completed, see
    /// [`Inner::keep`].
    pub(super) keeps: bool,
    /// Whether it is unsignaled: a later request of the same list reports its completion.
    pub(super) unsignaled: bool,
}

impl WorkRequest {
    /// From or to the slot's memory.
    #[inline]
    pub(super) fn new(verb: Verb, taken: &TakenSlot<'_>, len: usize) -> Self {
        Self { verb, slot: taken.slot, local: taken.buffer.local(len as u32), keeps: false, unsignaled: false }
    }
}

/// In-flight references: the segments of a request, and its length.
#[derive(Debug)]
pub(super) struct InFlight {
    pub(super) segments: (VerbsSegment, VerbsSegment),
    pub(super) len: u64,
}

impl Peer {
    /// A connection for `depth` requests in flight.
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
            deferred: Mutex::new(None),
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

    /// Whether requests are in flight.
    pub(super) fn is_busy(&self) -> bool {
        !self.has_completed(self.posted())
    }

    /// Whether `count` more requests can be posted now.
    #[inline]
    fn has_room(&self, count: usize) -> bool {
        // Acquire: an entry is reused only after its completion was drained. A concurrent post may
        // complete before it is counted.
        let under_way = self.posted().saturating_sub(self.completed.load(Ordering::Acquire));
        under_way as usize + count <= self.depth
    }

    /// The entry of a request.
    #[inline]
    fn entry(&self, number: u64) -> &AtomicU64 {
        &self.under_way[number as usize & (self.under_way.len() - 1)]
    }

    /// Whether the first `count` requests have completed.
    pub(super) fn has_completed(&self, count: u64) -> bool {
        self.completed.load(Ordering::Acquire) >= count
    }

    /// Whether writes were posted with no later request that has a response; clears the flag.
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

    /// Whether it is broken.
    pub(super) fn is_broken(&self) -> bool {
        self.broken.load(Ordering::Acquire) != 0
    }

    /// Whether it is broken because one side has revoked the other's access.
    pub(super) fn is_closed(&self) -> bool {
        self.broken.load(Ordering::Acquire) == REVOKED
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

    /// Whether a thread has recorded that since the last call.
    pub(super) fn was_waited_on(&self) -> bool {
        self.waited_on.swap(false, Ordering::Relaxed)
    }

    /// The slot of the oldest request in flight, if it keeps segments.
    pub(super) fn oldest_in_flight(&self) -> Option<u32> {
        let number = self.completed();
        let entry = Entry(self.entry(number).load(Ordering::Acquire));
        (entry.is_of(number) && entry.keeps()).then(|| entry.slot())
    }

    /// Gives up the connection: requests in flight end in an error.
    pub(super) fn fail(&self) {
        self.fail_as(ibv_wc_status::IBV_WC_WR_FLUSH_ERR);
    }

    /// The same after a revocation. Nothing is posted after this returns.
    pub(super) fn close(&self) {
        self.fail_as(REVOKED);
        drop(self.posting()); // waits for a post that started before
    }

    fn fail_as(&self, status: u32) {
        if self.broken.compare_exchange(0, status, Ordering::AcqRel, Ordering::Relaxed).is_ok() {
            self.fail_again();
        }
    }

    /// Sets the queue pair to the error state.
    pub(super) fn fail_again(&self) {
        // If this fails, the queue pair is in the error state already.
        let _ = self.pair.fail();
    }

    /// Stores a deferred error.
    pub(super) fn defer(&self, fault: Fault) {
        self.deferred.lock().unwrap_or_else(PoisonError::into_inner).get_or_insert(fault);
    }

    /// Whether there is a deferred error.
    pub(super) fn has_deferred(&self) -> bool {
        self.deferred.lock().unwrap_or_else(PoisonError::into_inner).is_some()
    }

    /// Takes the deferred error.
    pub(super) fn take_deferred(&self) -> Option<Fault> {
        self.deferred.lock().unwrap_or_else(PoisonError::into_inner).take()
    }
}

impl Inner {
    #[inline]
    pub(super) fn peer(&self, rank: Rank) -> Result<&Peer, Fault> {
        self.peers.get(rank.index()).ok_or_else(|| Fault::of(FaultKind::NoSuchRank, rank))
    }

    /// Takes a slot for `len` bytes. Waits while an operation can still free one, but no longer
    /// than for space in a queue.
    #[inline]
    pub(super) fn take_slot(&self, len: usize) -> Result<TakenSlot<'_>, Fault> {
        self.buffers.take(len).map_or_else(|| self.wait_for_slot(len), Ok)
    }

    #[cold]
    fn wait_for_slot(&self, len: usize) -> Result<TakenSlot<'_>, Fault> {
        let until = now().saturating_add(self.full_after.nanos());
        loop {
            if self.progress() == 0 {
                if !self.is_busy() || now() >= until {
                    return self.buffers.take(len).ok_or_else(|| self.buffers.why_none());
                }
                self.give_up_on_the_dead();
                self.check_connections();
                std::thread::yield_now();
            }
            if let Some(taken) = self.buffers.take(len) {
                return Ok(taken);
            }
        }
    }

    /// Waits until a slot's operation is done.
    #[cold]
    pub(super) fn wait_for(&self, slot: u32) {
        while self.buffers.status(slot).is_none() {
            if self.progress() == 0 {
                self.give_up_on_the_dead();
                self.check_connections();
                std::thread::yield_now();
            }
        }
    }

    /// Whether requests are in flight to any rank.
    pub(super) fn is_busy(&self) -> bool {
        self.peers.iter().any(Peer::is_busy)
    }

    /// Whether a request can be posted to a peer now.
    pub(super) fn has_room(&self, rank: Rank) -> bool {
        self.peer(rank).is_ok_and(|peer| peer.has_room(1))
    }

    /// Waits for space; `None` if nothing completes for too long.
    #[cold]
    fn wait_for_room<'p>(
        &self,
        peer: &'p Peer,
        mut posting: MutexGuard<'p, Posting>,
        count: usize,
    ) -> Option<MutexGuard<'p, Posting>> {
        let (mut completed, mut since) = (peer.completed(), now());
        // A broken connection does not make space; the post is refused.
        while !peer.has_room(count) && !peer.is_broken() {
            drop(posting);
            if self.progress() == 0 {
                self.give_up_on_the_dead();
                self.check_connections();
                std::thread::yield_now();
            }
            if peer.completed() == completed {
                // A long transfer gets more time.
                let idle = now().saturating_sub(since).saturating_sub(self.time_for_bytes(peer));
                // A post after one that gave up does not wait again.
                if idle >= self.full_after.nanos() || peer.stalled.load(Ordering::Relaxed) == completed {
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

    /// Posts requests to one peer as one list; waits for space. Their slots report the outcome, a
    /// refusal included.
    #[inline]
    pub(super) fn post<const N: usize>(&self, rank: Rank, work: [WorkRequest; N]) {
        let Ok(peer) = self.peer(rank) else { return self.refuse(rank, &work) };
        if N > peer.depth {
            return self.refuse(rank, &work);
        }
        let mut posting = peer.posting();
        if !peer.has_room(N) {
            posting = match self.wait_for_room(peer, posting, N) {
                Some(posting) => posting,
                None => return self.refuse_as(rank, &work, NO_SPACE),
            };
        }
        self.post_in_turn((rank, peer), posting, work);
    }

    /// Posts one request if there is space now.
    pub(super) fn try_post(&self, rank: Rank, request: WorkRequest) -> bool {
        let Ok(peer) = self.peer(rank) else { return false };
        let posting = peer.posting();
        let room = peer.has_room(1);
        if room {
            self.post_in_turn((rank, peer), posting, [request]);
        }
        room
    }

    /// Posts requests for which there is space.
    #[inline(always)] // the path of every operation
    fn post_in_turn<const N: usize>(
        &self,
        (rank, peer): (Rank, &Peer),
        mut posting: MutexGuard<'_, Posting>,
        work: [WorkRequest; N],
    ) {
        if peer.broken.load(Ordering::Acquire) != 0 || self.board.liveness(rank) != Liveness::Alive {
            posting.unproven = false; // nothing will prove it; a flush reports the fault once
            drop(posting);
            return self.refuse(rank, &work);
        }
        let first = peer.posted.load(Ordering::Relaxed);
        let mut requests = RawWorkRequests::<N>::new();
        let mut returns = false;
        for (at, request) in work.iter().enumerate() {
            let number = first + at as u64;
            // Before the post: the thread that drains its completion reads the entry.
            peer.entry(number).store(Entry::new(number, request).0, Ordering::Release);
            let request = RawWorkRequest {
                id: u64::from(rank.0) << NUMBER_BITS | number & NUMBER,
                verb: request.verb,
                local: request.local,
                // A later request of the list reports for an unsignaled one.
                signalled: !request.unsignaled || at + 1 == N,
                // Only a fence keeps it from overtaking an earlier read or atomic.
                fenced: returns && self.fences,
                inline: !request.verb.returns() && !request.keeps && request.local.len <= peer.pair.inline(),
            };
            requests.set(at, request);
            returns |= request.verb.returns();
            posting.unproven = request.verb.writes() || (posting.unproven && !request.verb.returns());
            if request.verb.returns() {
                peer.proof.store(number + 1, Ordering::Release);
            }
            if request.verb.takes_receive() {
                peer.rung.store(number + 1, Ordering::Release);
            }
        }
        // SAFETY: the memory is a slot's, which is not freed before its completion is drained, or a
        // segment's, which is kept until then. When the endpoint goes, queue pairs are destroyed
        // before slots and kept segments.
        let posted = unsafe { peer.pair.post(&mut requests) };
        let count = posted.map_or_else(|(count, _)| count, |()| N);
        peer.posted.store(first + count as u64, Ordering::Release);
        drop(posting);
        if count < N {
            // The queue had space, so the library's error is permanent.
            peer.fail();
            self.refuse(rank, &work[count..]);
        }
    }

    #[cold]
    fn refuse(&self, rank: Rank, work: &[WorkRequest]) {
        self.refuse_as(rank, work, REFUSED);
    }

    #[cold]
    fn refuse_as(&self, rank: Rank, work: &[WorkRequest], status: u32) {
        for request in work {
            if request.keeps {
                self.in_flight().remove(&request.slot);
            }
            self.report(rank, self.buffers.complete(request.slot, status));
        }
    }

    /// Holds references to the segments of a request until it has completed. `order.keeps` has to
    /// be set.
    pub(super) fn keep(&self, slot: u32, in_flight: InFlight) {
        self.in_flight().insert(slot, in_flight);
    }

    /// Posts one request that is not awaited.
    pub(super) fn post_and_forget(&self, rank: Rank, request: WorkRequest) {
        let slot = request.slot;
        self.post(rank, [request]);
        self.forget(rank, slot);
    }

    /// Detaches a slot whose outcome is not awaited.
    pub(super) fn forget(&self, rank: Rank, slot: u32) {
        self.report(rank, self.buffers.detach(slot));
    }

    #[inline]
    fn report(&self, rank: Rank, outcome: Outcome) {
        if let (Outcome::Missed(status), Ok(peer)) = (outcome, self.peer(rank)) {
            peer.defer(self.fault(rank, status));
        }
    }

    /// Drains a completion: of the request with this number, and of the unsignaled ones before it.
    /// Only the thread that holds the drain lock calls it.
    pub(super) fn complete(&self, id: u64, status: u32) {
        let rank = Rank((id >> NUMBER_BITS) as u32);
        let Ok(peer) = self.peer(rank) else { return };
        if status != 0 {
            let _ = peer.broken.compare_exchange(0, status, Ordering::AcqRel, Ordering::Relaxed);
        }
        let first = peer.completed.load(Ordering::Relaxed);
        let ahead = id.wrapping_sub(first) & NUMBER;
        if ahead >= peer.depth as u64 {
            return peer.fail(); // a duplicate: no correct card sends one, and no wait may follow
        }
        let last = first + ahead;
        let mut number = first;
        loop {
            // It was written before the request was posted, so the loop ends at once; reading it
            // orders its slot as well.
            let entry = loop {
                let entry = Entry(peer.entry(number).load(Ordering::Acquire));
                if entry.is_of(number) {
                    break entry;
                }
                spin_loop();
            };
            if entry.keeps() {
                self.in_flight().remove(&entry.slot());
            }
            self.report(rank, self.buffers.complete(entry.slot(), if number == last { status } else { 0 }));
            peer.completed.store(number + 1, Ordering::Release);
            if number == last {
                return;
            }
            number += 1;
        }
    }

    /// The fault of a completion's status.
    pub(super) fn fault(&self, rank: Rank, status: u32) -> Fault {
        let broken = self.peer(rank).map_or(0, |peer| peer.broken.load(Ordering::Acquire));
        let kind = match (self.board.liveness(rank), status) {
            // A death takes precedence over the library's status.
            (Liveness::Dead, _) => return Fault::of(FaultKind::PeerDied, rank),
            (Liveness::Left, _) => return Fault::of(FaultKind::PeerLeft, rank),
            _ if self.is_revoked(rank) => return Fault::of(FaultKind::Revoked, rank),
            (Liveness::Alive, NO_SPACE) => return Fault::of(FaultKind::Full, rank),
            (Liveness::Alive, REFUSED) => return Fault::of(FaultKind::Refused, rank).with_detail(broken),
            // The target's card found no such memory, and did nothing.
            (Liveness::Alive, ibv_wc_status::IBV_WC_REM_ACCESS_ERR) => FaultKind::NoSuchRegion,
            (Liveness::Alive, _) => FaultKind::Unknown,
        };
        Fault::of(kind, rank).with_detail(status)
    }

    /// Ends requests in flight to dead ranks at once. Their cards' silence would end them too, but
    /// later.
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
