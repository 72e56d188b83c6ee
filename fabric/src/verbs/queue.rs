//! The send queue to one peer: what is posted, in order, and how it ends.
#![allow(unsafe_code)] // posting hands memory to the card

use std::sync::MutexGuard;
use std::sync::atomic::Ordering;

use onesided_remote_memory::{Fault, FaultKind, Liveness, Rank};

use crate::drive::now;
use crate::verbs::peer::{CROWDED_OUT, Entry, Peer, Posting, REFUSED};
use crate::verbs::raw::{Local, Request, Requests, Verb};
use crate::verbs::slots::Room;
use crate::verbs::{Inner, VerbsSegment};

/// A work request's number: whose queue, 24 bits; the number of the request in it, 40 bits. Requests of one queue
/// complete in the order of their numbers.
pub(super) const NUMBER_BITS: u32 = 40;
pub(super) const NUMBER: u64 = (1 << NUMBER_BITS) - 1;

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
            peer.entry(number).store(Entry::new(number, order.keeps, order.slot).0, Ordering::Release);
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
}
