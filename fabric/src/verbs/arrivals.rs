//! The packets that arrive over connections: a receive queue and a completion queue, which the queue
//! pairs of messages share. They are made when this rank's packets are taken, or when a peer asks for
//! the first of those connections.

use std::collections::{BTreeMap, VecDeque};
use std::mem::MaybeUninit;
use std::sync::{Arc, Mutex, PoisonError, RwLock};

use onesided_remote_memory::Rank;

use crate::Error;
use crate::verbs::raw::{CompletionQueue, ProtectionDomain, SharedReceiveQueue};

/// The longest packet in bytes.
pub(super) const LONGEST: u64 = 2048;

#[derive(Debug)]
pub(super) struct Arrivals {
    pub(super) completions: Arc<CompletionQueue>,
    pub(super) receives: Arc<SharedReceiveQueue>,
    /// The rank of each queue pair, by queue pair number.
    by_number: RwLock<BTreeMap<u32, Rank>>,
    /// What was [saved](Self::save). The lock is that of the completion queue, too.
    saved: Mutex<VecDeque<Packet>>,
}

/// A packet that has arrived.
#[derive(Debug)]
pub(super) struct Packet {
    pub(super) from: Rank,
    pub(super) len: usize,
    bytes: PacketBytes,
}

#[derive(Debug)]
enum PacketBytes {
    /// In this receive, until it is posted again.
    Received(u32),
    Saved(Box<[u8]>),
}

impl Packet {
    /// The receive that is to be [posted](Arrivals::post) again.
    pub(super) const fn slot(&self) -> Option<u32> {
        match self.bytes {
            PacketBytes::Received(slot) => Some(slot),
            PacketBytes::Saved(_) => None,
        }
    }
}

impl Arrivals {
    /// The completion queue is never full: it has a place for each receive.
    pub(super) fn new(domain: &Arc<ProtectionDomain>, count: u32) -> Result<Self, Error> {
        let completions = CompletionQueue::new(domain.context(), count)?;
        let receives = SharedReceiveQueue::new(domain, count, LONGEST, 0)?;
        Ok(Self { completions, receives, by_number: RwLock::default(), saved: Mutex::default() })
    }

    pub(super) fn are_of(&self, rank: Rank, queue_pair: u32) {
        self.by_number.write().unwrap_or_else(PoisonError::into_inner).insert(queue_pair, rank);
    }

    /// The queue pair is gone, and what came over it was [saved](Self::save).
    pub(super) fn forget(&self, queue_pair: u32) {
        self.by_number.write().unwrap_or_else(PoisonError::into_inner).remove(&queue_pair);
    }

    /// Posts receives again; those that the card refuses are left.
    pub(super) fn post(&self, unposted: &mut Vec<u32>) {
        unposted.retain(|slot| self.receives.post(*slot).is_err());
    }

    /// The next packet. `unposted`: receives to be [posted](Self::post) again.
    pub(super) fn next(&self, unposted: &mut Vec<u32>) -> Option<Packet> {
        self.post(unposted);
        let mut saved = self.saved.lock().unwrap_or_else(PoisonError::into_inner);
        saved.pop_front().or_else(|| self.poll(unposted))
    }

    /// Copies the packets that have arrived and posts their receives again. Before a queue pair is
    /// reset: a card may delete the completions of a pair then, and with them their receives (libmlx5
    /// does). Whether there were some.
    pub(super) fn save(&self) -> bool {
        let mut saved = self.saved.lock().unwrap_or_else(PoisonError::into_inner);
        let (before, mut unposted) = (saved.len(), Vec::new());
        while let Some(packet) = self.poll(&mut unposted) {
            let mut bytes = vec![0; packet.len].into_boxed_slice();
            self.read(&packet, 0, &mut bytes);
            unposted.extend(packet.slot());
            saved.push_back(Packet { bytes: PacketBytes::Saved(bytes), ..packet });
        }
        self.post(&mut unposted); // one that is refused now is lost
        saved.len() > before
    }

    fn poll(&self, unposted: &mut Vec<u32>) -> Option<Packet> {
        let mut one = [MaybeUninit::uninit()];
        while let [completion] = self.completions.poll(&mut one) {
            let slot = completion.wr_id() as u32;
            let by_number = self.by_number.read().unwrap_or_else(PoisonError::into_inner);
            match by_number.get(&completion.qp_num).filter(|_| completion.error().is_none()) {
                Some(&from) => {
                    return Some(Packet { from, len: completion.len(), bytes: PacketBytes::Received(slot) });
                }
                None => unposted.push(slot),
            }
        }
        None
    }

    /// Copies bytes of a packet from an offset on. Those beyond its end are unspecified.
    pub(super) fn read(&self, packet: &Packet, offset: usize, into: &mut [u8]) {
        match &packet.bytes {
            PacketBytes::Received(slot) => {
                let len = into.len().min((LONGEST as usize).saturating_sub(offset));
                self.receives.read(*slot, offset as u64, &mut into[..len]);
            }
            PacketBytes::Saved(bytes) => {
                let bytes = bytes.get(offset..).unwrap_or_default();
                let len = into.len().min(bytes.len());
                into[..len].copy_from_slice(&bytes[..len]);
            }
        }
    }
}
