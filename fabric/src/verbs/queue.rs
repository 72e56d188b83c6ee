//! The send queue to one peer: what is posted, in order, and how it ends.
#![allow(unsafe_code)] // posting hands memory to the card

use std::collections::VecDeque;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use ibverbs_sys::ibv_wc_status;
use remote_memory::{Fault, FaultKind, Liveness, Rank};

use crate::verbs::raw::{Local, QueuePair, Remote, Request, Verb};
use crate::verbs::slots::{NO_SLOT, Outcome};
use crate::verbs::{Inner, VerbsSegment};

/// A work request's number: whose queue, 24 bits; the number of the request in it, 40 bits. Requests of one queue
/// complete in the order of their numbers.
const NUMBER_BITS: u32 = 40;
const NUMBER: u64 = (1 << NUMBER_BITS) - 1;

/// The status of what was refused before it left; the library's own are small.
const REFUSED: u32 = 256;

/// The connection to a peer.
#[derive(Debug)]
pub(super) struct Peer {
    pub(super) pair: QueuePair,
    /// The start of its home region.
    pub(super) home: Remote,
    queue: Mutex<Queue>,
    /// How many requests have completed.
    completed: AtomicU64,
    /// The status that broke the connection; 0 while it works.
    broken: AtomicU32,
    /// The first fault that nobody awaited, since the last flush.
    stuck: Mutex<Option<Fault>>,
}

#[derive(Debug, Default)]
struct Queue {
    posted: u64,
    under_way: VecDeque<Entry>,
    /// Whether a write was posted that no read follows yet.
    unproven: bool,
}

/// A posted request that has not completed.
#[derive(Debug)]
struct Entry {
    slot: u32,
    _kept: Option<(VerbsSegment, VerbsSegment)>,
}

/// A request to be posted, with the slot that it reports to.
#[derive(Debug)]
pub(super) struct Order {
    pub(super) verb: Verb,
    pub(super) slot: u32,
    /// How many bytes, from or to the slot's memory unless there is `local`.
    pub(super) len: usize,
    pub(super) local: Option<Local>,
    pub(super) kept: Option<(VerbsSegment, VerbsSegment)>,
    /// A later request of the same list tells of its completion.
    pub(super) quiet: bool,
}

impl Order {
    /// From or to the slot's memory.
    pub(super) const fn new(verb: Verb, slot: u32, len: usize) -> Self {
        Self { verb, slot, len, local: None, kept: None, quiet: false }
    }
}

impl Peer {
    pub(super) fn new(pair: QueuePair, home: Remote) -> Self {
        Self {
            pair,
            home,
            queue: Mutex::default(),
            completed: AtomicU64::new(0),
            broken: AtomicU32::new(0),
            stuck: Mutex::new(None),
        }
    }

    fn queue(&self) -> MutexGuard<'_, Queue> {
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// How many requests were posted so far.
    pub(super) fn posted(&self) -> u64 {
        self.queue().posted
    }

    /// Whether the first `count` requests have completed.
    pub(super) fn has_completed(&self, count: u64) -> bool {
        self.completed.load(Ordering::Acquire) >= count
    }

    /// Whether writes were posted that no read follows; from now on one does.
    pub(super) fn take_unproven(&self) -> bool {
        std::mem::take(&mut self.queue().unproven)
    }

    /// Gives the connection up: whatever is under way ends in an error.
    fn fail(&self) {
        if self
            .broken
            .compare_exchange(0, ibv_wc_status::IBV_WC_WR_FLUSH_ERR, Ordering::AcqRel, Ordering::Relaxed)
            .is_ok()
        {
            // A queue pair that cannot even be failed is in error already.
            let _ = self.pair.fail();
        }
    }

    /// Keeps a fault that nobody awaited.
    pub(super) fn stick(&self, fault: Fault) {
        self.stuck.lock().unwrap_or_else(PoisonError::into_inner).get_or_insert(fault);
    }

    /// Takes the fault that nobody awaited.
    pub(super) fn take_stuck(&self) -> Option<Fault> {
        self.stuck.lock().unwrap_or_else(PoisonError::into_inner).take()
    }
}

impl Inner {
    pub(super) fn peer(&self, rank: Rank) -> Result<&Peer, Fault> {
        self.peers.get(rank.index()).ok_or(Fault::of(FaultKind::NoSuchRank, rank))
    }

    /// A slot for `len` bytes, waiting for one while any operation can still give one back.
    pub(super) fn take_slot(&self, len: usize) -> Result<u32, Fault> {
        loop {
            if let Some(slot) = self.slots.take(len) {
                return Ok(slot);
            }
            if self.progress() == 0 {
                if self.under_way.load(Ordering::Relaxed) == 0 {
                    return Err(NO_SLOT);
                }
                self.give_up_on_the_dead();
                std::thread::yield_now();
            }
        }
    }

    /// Whether a request can be posted to a peer at once.
    pub(super) fn has_room(&self, rank: Rank) -> bool {
        self.peer(rank).is_ok_and(|peer| peer.queue().under_way.len() < self.depth)
    }

    /// Posts requests to one peer as one list, waiting for room. Their slots tell how they end, a refusal included.
    pub(super) fn post<const N: usize>(&self, rank: Rank, orders: [Order; N]) {
        let Ok(peer) = self.peer(rank) else { return self.refuse(rank, orders.iter()) };
        let mut queue = peer.queue();
        while queue.under_way.len() + N > self.depth && N <= self.depth {
            drop(queue);
            if self.progress() == 0 {
                self.give_up_on_the_dead();
                std::thread::yield_now();
            }
            queue = peer.queue();
        }
        let lost = peer.broken.load(Ordering::Acquire) != 0 || self.board.liveness(rank) != Liveness::Alive;
        if lost || N > self.depth {
            drop(queue);
            return self.refuse(rank, orders.iter());
        }
        let mut returns = false;
        let requests: [_; N] = std::array::from_fn(|at| {
            let Order { verb, slot, len, local, .. } = &orders[at];
            let request = Request {
                id: u64::from(rank.0) << NUMBER_BITS | (queue.posted + at as u64) & NUMBER,
                verb: *verb,
                local: match local {
                    Some(local) => Local { len: *len as u32, ..*local },
                    None => self.slots.piece(*slot).local(*len),
                },
                // A request that does not report is one that a later one of this list reports for.
                signalled: !orders[at].quiet || at + 1 == N,
                // Only a fence keeps it from overtaking a read or an atomic before it.
                fenced: returns,
                inline: !verb.returns() && local.is_none() && *len <= peer.pair.inline() as usize,
            };
            returns |= verb.returns();
            request
        });
        // SAFETY: the memory is a slot's, which is not freed before its completion is taken in, or a segment's that the
        // entry below keeps until then. When the endpoint goes, queue pairs are destroyed before slots and entries.
        let posted = unsafe { peer.pair.post(&requests) };
        let count = posted.as_ref().map_or_else(|(count, _)| *count, |()| N);
        let mut orders = orders.into_iter();
        for order in orders.by_ref().take(count) {
            queue.posted += 1;
            queue.unproven |= order.verb.writes();
            queue.under_way.push_back(Entry { slot: order.slot, _kept: order.kept });
        }
        self.under_way.fetch_add(count, Ordering::Relaxed);
        drop(queue);
        if posted.is_err() {
            // The queue had room: what the library says is no passing state.
            peer.fail();
            self.refuse(rank, orders.as_slice().iter());
        }
    }

    fn refuse<'o>(&self, rank: Rank, orders: impl Iterator<Item = &'o Order>) {
        for order in orders {
            self.settle(rank, self.slots.complete(order.slot, REFUSED));
        }
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

    fn settle(&self, rank: Rank, outcome: Outcome) {
        if let (Outcome::Missed(status), Ok(peer)) = (outcome, self.peer(rank)) {
            peer.stick(self.fault(rank, status));
        }
    }

    /// Takes in a completion: of the request with this number, and of those before it that do not report.
    pub(super) fn complete(&self, id: u64, status: u32) {
        let rank = Rank((id >> NUMBER_BITS) as u32);
        let Ok(peer) = self.peer(rank) else { return };
        if status != 0 {
            let _ = peer.broken.compare_exchange(0, status, Ordering::AcqRel, Ordering::Relaxed);
        }
        let mut last = false;
        while !last {
            let mut queue = peer.queue();
            let first = queue.posted - queue.under_way.len() as u64;
            let Some(entry) = queue.under_way.pop_front() else { return };
            drop(queue);
            last = first & NUMBER == id & NUMBER;
            self.settle(rank, self.slots.complete(entry.slot, if last { status } else { 0 }));
            peer.completed.store(first + 1, Ordering::Release);
            self.under_way.fetch_sub(1, Ordering::Relaxed);
        }
    }

    /// What a completion's status means.
    pub(super) fn fault(&self, rank: Rank, status: u32) -> Fault {
        let broken = self.peer(rank).map_or(0, |peer| peer.broken.load(Ordering::Acquire));
        let kind = match (self.board.liveness(rank), status) {
            (Liveness::Dead, _) => FaultKind::PeerDied,
            (Liveness::Left, _) => FaultKind::PeerLeft,
            (Liveness::Alive, REFUSED) => return Fault::of(FaultKind::Refused, rank).with_detail(broken),
            // The target's card found no such memory, and did nothing.
            (Liveness::Alive, ibv_wc_status::IBV_WC_REM_ACCESS_ERR) => FaultKind::NoSuchRegion,
            (Liveness::Alive, _) => FaultKind::Unknown,
        };
        Fault::of(kind, rank).with_detail(status)
    }

    /// Ends at once what is under way to ranks that died: their cards' silence would end it too, but later.
    pub(super) fn give_up_on_the_dead(&self) {
        if self.board.casualty().is_none() {
            return;
        }
        for (rank, peer) in (0..).map(Rank).zip(&self.peers) {
            if self.board.liveness(rank) == Liveness::Dead {
                peer.fail();
            }
        }
    }
}
