//! A peer by one kind of connection: its state, what is under way over it, and what the policies know of it.

use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Arc, Mutex};

use onesided_job::lock;
use onesided_remote_memory::Fault;

use crate::Error;
use crate::verbs::connection::{Connection, Pairs};
use crate::verbs::fast_path::{PeerRing, RingAddress};
use crate::verbs::giving::Use;
use crate::verbs::keepalive::Observation;
use crate::verbs::rails::Load;
use crate::verbs::raw::{QueuePair, Remote};
use crate::verbs::revoke::Revocation;
use crate::verbs::send_queue::SendQueue;
use crate::verbs::traffic::ConnectionId;

/// The status of a request that was refused before it was posted; the library's own are small.
pub(super) const REFUSED: u32 = 256;

/// The status of a request that found no space for too long.
pub(super) const NO_SPACE: u32 = 257;

/// A peer by one kind of connection.
#[derive(Debug, Default)]
pub(super) struct Peer {
    pub(super) id: ConnectionId,
    /// The start of its home region.
    pub(super) home: Remote,
    pub(super) connection: Connection,
    pub(super) queue: SendQueue,
    /// How many slots the peer's [ring](super::fast_path) has; 0: there is none. And how many short packets of the peer
    /// have come over the queue since this rank last spoke of its own.
    pub(super) slots: AtomicU32,
    pub(super) short: AtomicU32,
    /// Whether a thread has waited for this peer's writes since the last check.
    waited_on: AtomicBool,
    /// The deferred error: the first unawaited fault since the last flush.
    deferred: Mutex<Option<Fault>>,
    /// How much it is used, for who gives it [back](super::giving).
    pub(super) used: Use,
    /// What moves over it of long messages.
    pub(super) load: Mutex<Load>,
    /// The state at the last check of the keepalive.
    pub(super) observation: Mutex<Observation>,
    /// The state of the revocation of its access, of all traffic.
    pub(super) revocation: Mutex<Revocation>,
}

impl Peer {
    /// A peer that is not connected, for `depth` requests in flight.
    pub(super) fn new(id: ConnectionId, home: Remote, depth: u32) -> Self {
        Self { id, home, queue: SendQueue::new(depth), ..Self::default() }
    }

    /// Gives it a queue pair.
    pub(super) fn set_pair(&self, pairs: &mut Pairs, pair: QueuePair) {
        pairs.own = Some(pair.number());
        self.queue.set_pair(pair);
        self.connection.forget_refusal();
    }

    /// Ends the connection, and gives its queue pair back: the next request asks for another one.
    /// `None`: requests are still in flight, or there is no queue pair to end.
    pub(super) fn end(&self) -> Option<Arc<QueuePair>> {
        let (mut pairs, mut posting) = (lock(&self.connection.pairs), self.queue.hold_idle()?);
        let pair = self.queue.end(&mut posting);
        self.slots.store(0, Ordering::Relaxed);
        self.connection.end(&mut pairs);
        pair
    }

    /// The peer has a ring for this rank, over the connection of this generation.
    pub(super) fn set_ring(&self, address: RingAddress, generation: u64) {
        let mut posting = lock(&self.queue.posting); // it does not end meanwhile
        let is_new = posting.ring.as_ref().is_none_or(|ring| ring.address != address);
        if generation == self.connection.generation() && is_new {
            posting.ring = Some(PeerRing::new(address));
            self.slots.store(address.slots.into(), Ordering::Relaxed);
        }
    }

    /// Whether `count` more requests can be posted now.
    #[inline]
    pub(super) fn has_room(&self, count: usize) -> bool {
        self.connection.is_ready() && !self.queue.is_full(count)
    }

    /// Keeps space for one more packet of a list, if there is some.
    pub(super) fn list(&self) -> bool {
        let _posting = lock(&self.queue.posting);
        let has_room = self.has_room(1);
        if has_room {
            self.queue.listed.fetch_add(1, Ordering::Relaxed);
        }
        has_room
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

    /// Gives up the connection: requests in flight end in an error.
    pub(super) fn fail(&self) {
        self.give_up(false);
    }

    fn give_up(&self, revoked: bool) {
        if self.connection.give_up(revoked) {
            self.fail_again();
        }
    }

    /// The same after a revocation, or a loss. Nothing is posted after this returns.
    pub(super) fn close(&self, revoked: bool) {
        self.give_up(revoked);
        drop(lock(&self.queue.posting)); // waits for a post that started before
    }

    /// Sets the queue pair of a broken connection to the error state.
    pub(super) fn fail_again(&self) {
        let _pairs = lock(&self.connection.pairs); // what is connected after this finds it broken
        if self.connection.is_broken() {
            // If this fails, the queue pair is in the error state already.
            let _ = self.queue.pair().map(|pair| pair.fail());
        }
    }

    /// Resets the queue pair, if there is one.
    pub(super) fn reset(&self) -> Result<(), Error> {
        let _pairs = lock(&self.connection.pairs);
        self.queue.pair().map_or(Ok(()), |pair| pair.reset())
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
