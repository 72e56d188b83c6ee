//! The packets that arrive over connections: a receive queue and a completion queue, which the queue
//! pairs of messages share. They are made when this rank's packets are taken, or when a peer asks for
//! the first of those connections.

use std::collections::HashMap;
use std::mem::MaybeUninit;
use std::sync::{Arc, PoisonError, RwLock};

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
    by_number: RwLock<HashMap<u32, Rank>>,
}

/// A packet, until its receive is posted again.
#[derive(Clone, Copy, Debug)]
pub(super) struct Packet {
    pub(super) from: Rank,
    pub(super) len: usize,
    pub(super) slot: u32,
}

impl Arrivals {
    /// The completion queue is never full: it has a place for each receive.
    pub(super) fn new(domain: &Arc<ProtectionDomain>, count: u32) -> Result<Self, Error> {
        let completions = CompletionQueue::new(domain.context(), count)?;
        let receives = SharedReceiveQueue::new(domain, count, LONGEST, 0)?;
        Ok(Self { completions, receives, by_number: RwLock::default() })
    }

    pub(super) fn are_of(&self, rank: Rank, queue_pair: u32) {
        self.by_number.write().unwrap_or_else(PoisonError::into_inner).insert(queue_pair, rank);
    }

    /// Posts receives again; those that the card refuses are left.
    pub(super) fn post(&self, unposted: &mut Vec<u32>) {
        unposted.retain(|slot| self.receives.post(*slot).is_err());
    }

    /// The next packet. `unposted`: receives to be [posted](Self::post) again.
    pub(super) fn next(&self, unposted: &mut Vec<u32>) -> Option<Packet> {
        self.post(unposted);
        let mut one = [MaybeUninit::uninit()];
        while let [completion] = self.completions.poll(&mut one) {
            let slot = completion.wr_id() as u32;
            let by_number = self.by_number.read().unwrap_or_else(PoisonError::into_inner);
            match by_number.get(&completion.qp_num).filter(|_| completion.error().is_none()) {
                Some(&from) => return Some(Packet { from, len: completion.len(), slot }),
                None => unposted.push(slot),
            }
        }
        None
    }

    /// Copies bytes of a packet from an offset on. Those beyond its end are unspecified.
    pub(super) fn read(&self, packet: Packet, offset: usize, into: &mut [u8]) {
        let len = into.len().min((LONGEST as usize).saturating_sub(offset));
        self.receives.read(packet.slot, offset as u64, &mut into[..len]);
    }
}
