//! The packets that have arrived by cards and were not received yet.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};

use onesided_remote_memory::Rank;

use crate::SHORTEST_LIMIT;

/// The most packets that wait. Their receives are not posted again until there is room, so their
/// senders wait.
const LIMIT: usize = 1 << 16;

/// A packet.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Packet {
    pub(crate) from: Rank,
    len: u8,
    bytes: [u8; SHORTEST_LIMIT],
}

impl Packet {
    /// `None` if the bytes are too many.
    pub(crate) fn new(from: Rank, bytes: &[u8]) -> Option<Self> {
        let mut packet = Self { from, len: bytes.len() as u8, bytes: [0; SHORTEST_LIMIT] };
        packet.bytes.get_mut(..bytes.len())?.copy_from_slice(bytes);
        Some(packet)
    }

    pub(crate) fn bytes(&self) -> &[u8] {
        &self.bytes[..usize::from(self.len)]
    }
}

/// The packets in the order of arrival.
#[derive(Debug, Default)]
pub(crate) struct ReceiveQueue {
    /// The queue's length, readable without the lock. Relaxed: a reader that must not miss a change
    /// has armed its doorbell before the load, or holds the lock of the drain.
    len: AtomicUsize,
    queue: Mutex<VecDeque<Packet>>,
}

impl ReceiveQueue {
    pub(crate) fn has_room(&self) -> bool {
        self.len.load(Ordering::Relaxed) < LIMIT
    }

    pub(crate) fn push(&self, packet: Packet) {
        let mut queue = self.queue.lock().unwrap_or_else(PoisonError::into_inner);
        queue.push_back(packet);
        self.len.store(queue.len(), Ordering::Relaxed);
    }

    /// The oldest packet, and whether the queue was full.
    pub(crate) fn pop(&self) -> Option<(Packet, bool)> {
        if self.len.load(Ordering::Relaxed) == 0 {
            return None;
        }
        let mut queue = self.queue.lock().unwrap_or_else(PoisonError::into_inner);
        let was_full = queue.len() >= LIMIT;
        let packet = queue.pop_front();
        self.len.store(queue.len(), Ordering::Relaxed);
        packet.map(|packet| (packet, was_full))
    }
}
