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
#[derive(Debug)]
pub(crate) struct Packet {
    pub(crate) from: Rank,
    bytes: Bytes,
}

/// Short ones without an allocation.
#[derive(Debug)]
enum Bytes {
    Short([u8; SHORTEST_LIMIT], u8),
    Long(Box<[u8]>),
}

impl Packet {
    /// A packet of `len` bytes, which `read` copies.
    pub(crate) fn new(from: Rank, len: usize, read: impl FnOnce(&mut [u8]) -> Option<()>) -> Option<Self> {
        let bytes = if len <= SHORTEST_LIMIT {
            let mut bytes = [0; SHORTEST_LIMIT];
            read(&mut bytes[..len])?;
            Bytes::Short(bytes, len as u8)
        } else {
            let mut bytes = vec![0; len].into_boxed_slice();
            read(&mut bytes)?;
            Bytes::Long(bytes)
        };
        Some(Self { from, bytes })
    }

    pub(crate) fn bytes(&self) -> &[u8] {
        match &self.bytes {
            Bytes::Short(bytes, len) => &bytes[..usize::from(*len)],
            Bytes::Long(bytes) => bytes,
        }
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
