//! The send queue to one peer: work requests in order, and their completion.
#![allow(unsafe_code)] // a post gives the card access to memory

use std::sync::MutexGuard;
use std::sync::atomic::Ordering;

use onesided_job::fork::is_child;
use onesided_job::lock;
use onesided_remote_memory::{Fault, FaultKind, Liveness, Rank};

use crate::verbs::arrivals::Arrivals;
use crate::verbs::bounce_buffers::{NO_SLOT, TakenSlot};
use crate::verbs::connection::Phase;
use crate::verbs::fast_path::PeerRing;
use crate::verbs::peer::{NO_SPACE, Peer, REFUSED};
use crate::verbs::raw::{Local, RawWorkRequest, RawWorkRequests, SIGNALLED, Verb};
use crate::verbs::send_queue::{Entry, Posting};
use crate::verbs::traffic::{ConnectionId, Traffic};
use crate::verbs::{Inner, VerbsSegment};
use crate::waiting::drive::now;

/// A work request id: the connection, 22 bits; the number of the request in it, 40 bits. Requests of one
/// queue complete in the order of their numbers.
pub(super) const NUMBER_BITS: u32 = 40;
pub(super) const NUMBER: u64 = (1 << NUMBER_BITS) - 1;

/// The most packets of a list.
pub(super) const LIST: usize = 16;

/// A work request, with the slot of its outcome.
#[derive(Clone, Copy, Debug)]
pub(super) struct WorkRequest {
    pub(super) verb: Verb,
    pub(super) slot: u32,
    /// Source or destination: the slot's memory, or a segment's, which is kept then; without a slot,
    /// what the post copies.
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

impl Inner {
    #[inline]
    pub(super) fn peer(&self, to: ConnectionId) -> Result<&Peer, Fault> {
        let peer = self.peers.get(to.number()).ok_or_else(|| Fault::of(FaultKind::NoSuchRank, to.rank))?;
        Ok(peer.get_or_init(|| self.new_peer(to)))
    }

    /// The connection of messages with a rank.
    pub(super) fn messages(&self, rank: Rank) -> Result<&Peer, Fault> {
        self.peer(ConnectionId { rank, traffic: Traffic::Messages })
    }

    #[cold]
    fn new_peer(&self, to: ConnectionId) -> Box<Peer> {
        Box::new(Peer::new(to, self.connector.addresses[to.rank.index()].port(to.traffic).home, self.depth))
    }

    /// The connections that were spoken of so far.
    pub(super) fn known_peers(&self) -> impl Iterator<Item = &Peer> {
        self.peers.iter().filter_map(|peer| peer.get().map(Box::as_ref))
    }

    /// Takes a slot for `len` bytes. Waits while an operation can still free one, but no longer
    /// than for space in a queue.
    #[inline]
    pub(super) fn take_slot(&self, len: usize) -> Result<TakenSlot<'_>, Fault> {
        self.buffers.take(len).map_or_else(|| self.wait_for_slot(len), Ok)
    }

    #[cold]
    fn wait_for_slot(&self, len: usize) -> Result<TakenSlot<'_>, Fault> {
        let until = now().saturating_add(self.keepalive.full_after());
        loop {
            if self.progress() == 0 {
                self.known_peers().for_each(|peer| self.report_packets(peer));
                if !self.is_busy() || now() >= until || is_child() {
                    return self.buffers.take(len).ok_or_else(|| self.buffers.why_none());
                }
                self.save_packets();
                self.turn();
                self.check_connections();
                std::thread::yield_now();
            }
            if let Some(taken) = self.buffers.take(len) {
                return Ok(taken);
            }
        }
    }

    /// [Saves](Arrivals::save) the packets that have arrived: whether there were some.
    pub(super) fn save(&self) -> bool {
        let arrivals = self.arrivals.get();
        if arrivals.is_some() && self.has_one_queue {
            self.drain_all();
        }
        arrivals.is_some_and(Arrivals::save)
    }

    /// The same: while this rank waits for a peer to take packets in, the peer may wait for this
    /// rank to do so.
    pub(super) fn save_packets(&self) {
        if self.save() {
            self.ring();
        }
    }

    /// Waits until a slot's operation is done.
    #[cold]
    pub(super) fn wait_for(&self, slot: u32) {
        while self.buffers.status(slot).is_none() {
            if self.progress() == 0 {
                self.turn();
                self.check_connections();
                std::thread::yield_now();
            }
        }
    }

    /// Whether requests are in flight to any rank.
    pub(super) fn is_busy(&self) -> bool {
        self.known_peers().any(|peer| peer.queue.is_busy())
    }

    /// Whether a request can be posted to a peer now.
    pub(super) fn has_room(&self, to: ConnectionId) -> bool {
        self.peer(to).is_ok_and(|peer| {
            self.ask_to_connect(peer);
            peer.has_room(1)
        })
    }

    /// Whether requests can be posted now: there is space for them, and where answers are lost (see
    /// `device`), no atomic follows a request in flight that has none.
    #[inline]
    fn can_post(&self, peer: &Peer, posting: &Posting, work: &[WorkRequest]) -> bool {
        let may_be_lost = self.unanswered.is_some() && work.iter().any(|request| request.verb.is_atomic());
        peer.has_room(work.len()) && (!may_be_lost || peer.queue.has_completed(posting.unanswering))
    }

    /// Waits until requests can be posted; `None` if nothing completes for too long.
    #[cold]
    fn wait_for_room<'p>(
        &self,
        peer: &'p Peer,
        mut posting: MutexGuard<'p, Posting>,
        work: &[WorkRequest],
    ) -> Option<MutexGuard<'p, Posting>> {
        let (mut completed, mut since) = (peer.queue.completed(), now());
        // A broken connection does not make space, a peer that has ended does not connect, nor does one that
        // has too many, and a forked child sees no completion; the post is refused.
        while !self.can_post(peer, &posting, work)
            && !peer.connection.is_broken()
            && peer.connection.phase() != Phase::Refused
            && !is_child()
            && (peer.connection.is_ready() || self.job_segment.liveness(peer.id.rank) == Liveness::Alive)
        {
            drop(posting);
            self.ask_to_connect(peer);
            if self.progress() == 0 {
                self.report_packets(peer);
                self.save_packets();
                self.turn();
                self.check_connections();
                std::thread::yield_now();
            }
            if peer.queue.completed() == completed {
                // A long transfer gets more time.
                let idle = now().saturating_sub(since).saturating_sub(self.time_for_bytes(peer));
                // A post after one that gave up does not wait again.
                if idle >= self.keepalive.full_after() || peer.queue.stalled.load(Ordering::Relaxed) == completed + 1 {
                    peer.queue.stalled.store(completed + 1, Ordering::Relaxed);
                    return None;
                }
            } else {
                (completed, since) = (peer.queue.completed(), now());
            }
            posting = lock(&peer.queue.posting);
        }
        Some(posting)
    }

    /// Posts requests to one peer as one list; waits for space. Their slots report the outcome, a
    /// refusal included.
    #[inline]
    pub(super) fn post<const N: usize>(&self, to: ConnectionId, work: [WorkRequest; N]) {
        let Ok(peer) = self.peer(to) else { return self.refuse(to, &work) };
        if N > peer.queue.depth {
            return self.refuse(to, &work);
        }
        let mut posting = lock(&peer.queue.posting);
        if !self.can_post(peer, &posting, &work) {
            posting = match self.wait_for_room(peer, posting, &work) {
                Some(posting) => posting,
                None => return self.refuse_as(to, &work, NO_SPACE),
            };
        }
        self.post_in_turn::<N>(peer, posting, &work, self.job_segment.liveness(to.rank) == Liveness::Alive);
    }

    /// Posts up to [`LIST`] packets, for which space was [kept](Peer::list), as one list.
    pub(super) fn post_packets(&self, peer: &Peer, packets: &[WorkRequest]) {
        let alive = self.job_segment.liveness(peer.id.rank) == Liveness::Alive;
        self.post_in_turn::<LIST>(peer, peer.queue.posting_list(), packets, alive);
        packets.iter().for_each(|packet| self.forget(peer.id, packet.slot));
    }

    /// Posts a packet that is no longer than what a post copies, if there is space now.
    pub(super) fn try_post_copy(&self, peer: &Peer, verb: Verb, bytes: &[u8]) -> bool {
        let local = Self::copied(bytes);
        self.try_post_to(peer, WorkRequest { verb, slot: NO_SLOT, local, keeps: false, unsignaled: false }, true)
    }

    fn copied(bytes: &[u8]) -> Local {
        Local { address: bytes.as_ptr().expose_provenance() as u64, len: bytes.len() as u32, key: 0 }
    }

    /// Writes what [a slot](super::fast_path) has for a packet into the peer's ring, if there is one, and space now:
    /// the bytes of a slot's memory, or those that the post copies.
    pub(super) fn try_place(&self, peer: &Peer, from: Result<(u32, Local), &[u8]>) -> bool {
        let (slot, local) = from.unwrap_or_else(|bytes| (NO_SLOT, Self::copied(bytes)));
        let alive = self.job_segment.liveness(peer.id.rank) == Liveness::Alive;
        let mut posting = lock(&peer.queue.posting);
        let ring = posting.ring.as_mut().filter(|_| alive && peer.has_room(1) && !peer.connection.is_broken());
        let Some(to) = ring.map(PeerRing::next) else { return false };
        let request = WorkRequest { verb: Verb::Place { to }, slot, local, keeps: false, unsignaled: false };
        self.post_in_turn::<1>(peer, posting, &[request], alive);
        true
    }

    /// Posts one request if there is space now.
    pub(super) fn try_post(&self, peer: &Peer, request: WorkRequest) -> bool {
        self.try_post_to(peer, request, self.job_segment.liveness(peer.id.rank) == Liveness::Alive)
    }

    /// The same with the caller's opinion on whether the rank is `alive`.
    pub(super) fn try_post_to(&self, peer: &Peer, request: WorkRequest, alive: bool) -> bool {
        let posting = lock(&peer.queue.posting);
        let room = peer.has_room(1);
        if room {
            self.post_in_turn::<1>(peer, posting, &[request], alive);
        } else {
            drop(posting);
            if !self.is_limited(peer.id) {
                self.ask_to_connect(peer); // otherwise messages count for it
            }
        }
        room
    }

    /// Posts requests as one list if there is space now, over the connection of this generation.
    pub(super) fn try_post_over<const N: usize>(&self, peer: &Peer, generation: u64, work: [WorkRequest; N]) -> bool {
        let alive = self.job_segment.liveness(peer.id.rank) == Liveness::Alive;
        let posting = lock(&peer.queue.posting); // it does not end meanwhile
        let may = peer.has_room(N) && !peer.connection.is_broken() && peer.connection.generation() == generation;
        if may {
            self.post_in_turn::<N>(peer, posting, &work, alive);
        }
        may
    }

    /// Posts 1 to `N` requests for which there is space; refuses them unless the rank is `alive`.
    #[inline(always)] // the path of every operation
    fn post_in_turn<const N: usize>(
        &self,
        peer: &Peer,
        mut posting: MutexGuard<'_, Posting>,
        work: &[WorkRequest],
        alive: bool,
    ) {
        if peer.connection.is_broken() || !alive || !peer.connection.is_ready() || is_child() {
            posting.unproven = false; // nothing will prove it; a flush reports the fault once
            drop(posting);
            return self.refuse(peer.id, work);
        }
        self.post_on::<N>(peer, posting, work);
    }

    /// Whether the completion of a request is reported. A later request of its list reports for an
    /// unsignaled one, and a later packet, or a [read](Self::report_packets), for a packet.
    #[inline]
    fn is_signalled(peer: &Peer, (request, is_last): (&WorkRequest, bool), number: u64) -> bool {
        match request.verb {
            Verb::Send { .. } | Verb::Place { .. } => {
                number + 1 >= peer.queue.reported() + SIGNALLED.min(peer.queue.depth as u64 / 2)
            }
            _ => !request.unsignaled || is_last,
        }
    }

    /// For whoever waits until nothing is in flight: if packets were posted behind the last signalled
    /// request, or into the peer's ring, a read behind them reports that they are over, and placed.
    pub(super) fn report_packets(&self, peer: &Peer) {
        if peer.queue.is_unreported() || peer.slots.load(Ordering::Relaxed) > 0 {
            let posting = lock(&peer.queue.posting);
            // Also on a broken connection, where it ends in an error.
            if (peer.queue.is_unreported() || posting.has_unproven_slots())
                && posting.pair.is_some()
                && !peer.queue.is_full(1)
                && let Some(read) = self.ignored_read(peer)
            {
                self.post_on::<1>(peer, posting, &[read]);
            }
        }
    }

    /// A read for its completion alone: if it fails, nothing of what was sent is missing.
    pub(super) fn ignored_read(&self, peer: &Peer) -> Option<WorkRequest> {
        Some(self.proof(peer, &self.buffers.ignored()?))
    }

    #[inline(always)]
    fn post_on<const N: usize>(&self, peer: &Peer, mut posting: MutexGuard<'_, Posting>, work: &[WorkRequest]) {
        let Posting { pair: Some(pair), unproven, unanswering, .. } = &mut *posting else {
            unreachable!("a connection that is ready has a queue pair")
        };
        let (first, reported) = (peer.queue.posted.load(Ordering::Relaxed), peer.queue.reported());
        let mut requests = RawWorkRequests::<N>::new();
        let mut returns = false;
        for (at, request) in work.iter().enumerate() {
            let number = first + at as u64;
            // Before the post: the thread that drains its completion reads the entry.
            peer.queue.entry(number).store(Entry::new(number, request.keeps, request.slot).0, Ordering::Release);
            let signalled = Self::is_signalled(peer, (request, at + 1 == work.len()), number);
            if signalled {
                peer.queue.reported.store(number + 1, Ordering::Relaxed);
                peer.queue.signalled.fetch_add(1, Ordering::Relaxed);
            }
            // A handler that sleeps until a solicited packet has to give receives back before they are gone.
            let verb = match request.verb {
                Verb::Send { solicited } => Verb::Send { solicited: solicited || number.is_multiple_of(self.solicits) },
                verb => verb,
            };
            let request = RawWorkRequest {
                id: (peer.id.number() as u64) << NUMBER_BITS | number & NUMBER,
                verb,
                local: request.local,
                signalled,
                // Only a fence keeps it from overtaking an earlier read or atomic.
                fenced: returns && self.fences,
                inline: request.slot == NO_SLOT
                    || !request.verb.returns() && !request.keeps && request.local.len <= pair.inline(),
            };
            requests.set(at, request);
            returns |= request.verb.returns();
            *unproven = request.verb.writes() || (*unproven && !request.verb.returns());
            if request.verb.returns() {
                peer.queue.proof.store(number + 1, Ordering::Release);
            } else {
                *unanswering = number + 1;
            }
            if request.verb.takes_receive() {
                peer.queue.rung.store(number + 1, Ordering::Release);
            }
        }
        // SAFETY: there is a request, and there are no more than the list has. The memory is a slot's,
        // which is not freed before its completion is drained, or a segment's, which is kept until then,
        // or that of a caller who waits for this, and who has it copied.
        // When the endpoint goes, queue pairs are destroyed before slots and kept segments.
        let posted = unsafe { pair.post(&mut requests, work.len()) };
        let count = posted.map_or_else(|(count, _)| count, |()| work.len());
        peer.queue.posted.store(first + count as u64, Ordering::Release);
        peer.queue.doorbells.store(peer.queue.doorbells.load(Ordering::Relaxed) + 1, Ordering::Relaxed);
        if count < work.len() {
            peer.queue.reported.store(reported, Ordering::Relaxed); // the signalled one may not be posted
        }
        drop(posting);
        if count < work.len() {
            // The queue had space, so the library's error is permanent.
            peer.fail();
            self.refuse(peer.id, &work[count..]);
        }
    }

    #[cold]
    fn refuse(&self, to: ConnectionId, work: &[WorkRequest]) {
        self.refuse_as(to, work, REFUSED);
    }

    #[cold]
    fn refuse_as(&self, to: ConnectionId, work: &[WorkRequest], status: u32) {
        for request in work {
            if request.keeps {
                lock(&self.in_flight).remove(&request.slot);
            }
            self.report(to, self.buffers.complete(request.slot, status));
        }
    }

    /// Holds references to the segments of a request until it has completed. `order.keeps` has to
    /// be set.
    pub(super) fn keep(&self, slot: u32, in_flight: InFlight) {
        lock(&self.in_flight).insert(slot, in_flight);
    }

    /// Posts one request that is not awaited.
    pub(super) fn post_and_forget(&self, to: ConnectionId, request: WorkRequest) {
        let slot = request.slot;
        self.post(to, [request]);
        self.forget(to, slot);
    }

    /// Detaches a slot whose outcome is not awaited.
    pub(super) fn forget(&self, to: ConnectionId, slot: u32) {
        self.report(to, self.buffers.detach(slot));
    }
}
