//! The packets that arrive over connections: a receive queue, which the queue pairs of messages
//! share, and the completion queue of these receives: one of their own, or that of all else, by
//! [`MESSAGES_QUEUES`]. They are made when this rank's packets are taken, or when a peer asks for
//! the first of those connections.

use std::collections::{BTreeMap, VecDeque};
use std::mem::MaybeUninit;
use std::sync::Arc;

use ibverbs_sys::ibv_wc;
use onesided_remote_memory::Rank;

use crate::util::spin_lock::SpinLock;
use crate::verbs::drive::PACKET;
use crate::verbs::fast_path::{Ring, RingAddress};
use crate::verbs::raw::{CompletionQueue, ProtectionDomain, SharedReceiveQueue};
use crate::{Channel, ChannelMemory, Error};

/// In how many completion queues the requests of messages complete: `two`, one for the packets that
/// arrive and one for all else, or `one` (yu-2004, section 4.3). Datagrams have one.
pub const MESSAGES_QUEUES: &str = "ONESIDED_MESSAGES_QUEUES";

/// The longest packet in bytes.
pub(super) const LONGEST: u64 = 2048;

/// After this time in nanoseconds what comes by a ring follows another packet with an event.
const SOON: u64 = 2_000_000;

#[derive(Debug)]
pub(super) struct Arrivals {
    pub(super) completions: Arc<CompletionQueue>,
    pub(super) receives: Arc<SharedReceiveQueue>,
    shares_queue: bool,
    /// Held while their own queue is polled, too.
    arrived: SpinLock<Arrived>,
}

#[derive(Debug, Default)]
struct Arrived {
    /// The rank of each queue pair, by queue pair number.
    by_number: BTreeMap<u32, Rank>,
    /// What was [taken from a shared queue](Arrivals::complete), or [saved](Arrivals::save).
    waiting: VecDeque<Packet>,
    /// The fast paths to this rank, and which of them is looked at first.
    rings: Vec<Ring>,
    first: usize,
    /// Whether they are looked at before the queue.
    rings_first: bool,
    /// Whether packets have come since it was looked how long a sleep may be, and when some last had.
    has_come: bool,
    came_at: u64,
}

/// A packet that has arrived.
#[derive(Debug)]
pub(super) struct Packet {
    pub(super) from: Rank,
    pub(super) channel: Channel,
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
    /// Their completion queue is `shared`, or their own. It is never full: it has a place for each
    /// receive.
    pub(super) fn new(
        domain: &Arc<ProtectionDomain>,
        count: u32,
        shared: Option<&Arc<CompletionQueue>>,
    ) -> Result<Self, Error> {
        let own = || CompletionQueue::new(domain.context(), count);
        let completions = shared.map_or_else(own, |shared| Ok(Arc::clone(shared)))?;
        let receives = SharedReceiveQueue::new(domain, count, LONGEST, PACKET)?;
        let arrived = SpinLock::new(Arrived::default());
        Ok(Self { completions, receives, shares_queue: shared.is_some(), arrived })
    }

    pub(super) fn are_of(&self, rank: Rank, queue_pair: u32) {
        self.arrived.lock().by_number.insert(queue_pair, rank);
    }

    /// The queue pair is gone, and what came over it was [saved](Self::save).
    pub(super) fn forget(&self, queue_pair: u32) {
        let mut arrived = self.arrived.lock();
        arrived.by_number.remove(&queue_pair);
        let ended = arrived.rings.iter().position(|ring| ring.queue_pair == queue_pair);
        let ended = ended.map(|at| arrived.rings.swap_remove(at));
        drop(arrived);
        drop(ended); // its registration ends, which takes time
    }

    /// Where the ring of a queue pair is.
    pub(super) fn ring_of(&self, queue_pair: u32) -> Option<RingAddress> {
        self.arrived.lock().rings.iter().find(|ring| ring.queue_pair == queue_pair).map(Ring::address)
    }

    /// The ranks that have rings here.
    pub(super) fn ranks_with_rings(&self) -> Vec<Rank> {
        self.arrived.lock().rings.iter().map(|ring| ring.from).collect()
    }

    /// The same, with how many packets came by each since this was last asked.
    pub(super) fn uses_of_rings(&self) -> Vec<(Rank, u64)> {
        let mut arrived = self.arrived.lock();
        arrived.rings.iter_mut().map(|ring| (ring.from, std::mem::take(&mut ring.used))).collect()
    }

    /// What connections whose queues have room for so many requests, and the fast paths to this rank, take of its memory.
    pub(super) fn memory(&self, depth: u32) -> [ChannelMemory; 2] {
        let arrived = self.arrived.lock();
        let (connections, rings) = (arrived.by_number.len() as u32, arrived.rings.iter().map(Ring::len));
        let of_queues = u64::from(connections) * u64::from(depth) * ChannelMemory::REQUEST;
        let bytes = self.receives.len() + of_queues;
        [
            ChannelMemory { count: connections, bytes },
            ChannelMemory { count: arrived.rings.len() as u32, bytes: rings.sum() },
        ]
    }

    pub(super) fn add_ring(&self, ring: Ring) {
        self.arrived.lock().rings.push(ring);
    }

    /// How long a thread may sleep for an event of the card, in nanoseconds: what comes by rings has none, and follows
    /// a packet that has one soon.
    pub(super) fn longest_sleep(&self, now: u64) -> u64 {
        let mut arrived = self.arrived.lock();
        if std::mem::take(&mut arrived.has_come) {
            arrived.came_at = now;
        }
        if arrived.rings.is_empty() || now.saturating_sub(arrived.came_at) > SOON { u64::MAX } else { SOON / 8 }
    }

    /// Posts receives again; those that the card refuses are left.
    #[inline]
    pub(super) fn post(&self, unposted: &mut Vec<u32>) {
        if !unposted.is_empty() {
            unposted.retain(|slot| self.receives.post(*slot).is_err());
        }
    }

    /// The next packet. `unposted`: receives to be [posted](Self::post) again.
    #[inline]
    pub(super) fn next(&self, unposted: &mut Vec<u32>) -> Option<Packet> {
        self.post(unposted);
        let mut arrived = self.arrived.lock();
        arrived.rings_first = !arrived.rings_first; // neither holds up the other
        let first = if arrived.rings_first { arrived.take_from_rings() } else { None };
        let next = first.or_else(|| arrived.waiting.pop_front()).or_else(|| self.poll(&arrived, unposted));
        next.or_else(|| arrived.take_from_rings())
    }

    /// Polls up to `polls` times for the next packet, which then waits.
    pub(super) fn spin(&self, polls: u32, unposted: &mut Vec<u32>) {
        let mut arrived = self.arrived.lock();
        if arrived.waiting.is_empty() {
            let found = (0..polls).find_map(|_| self.poll(&arrived, unposted));
            arrived.waiting.extend(found);
        }
    }

    /// Whether packets that were taken out of their receives are to be received still.
    pub(super) fn packets_wait(&self) -> bool {
        !self.arrived.lock().waiting.is_empty()
    }

    /// Takes in a completion of a shared queue.
    pub(super) fn complete(&self, completion: &ibv_wc) {
        let mut arrived = self.arrived.lock();
        match arrived.packet(completion) {
            Ok(packet) => {
                arrived.waiting.push_back(packet);
                arrived.has_come = true;
            }
            Err(slot) => self.post(&mut vec![slot]), // one that is refused is lost
        }
    }

    /// Copies the packets that have arrived and posts their receives again. Before a queue pair is
    /// reset: a card may delete the completions of a pair then, and with them their receives (libmlx5
    /// does). Whether there were some.
    pub(super) fn save(&self) -> bool {
        let (mut arrived, mut unposted, mut were_some) = (self.arrived.lock(), Vec::new(), false);
        while let Some(packet) = self.poll(&arrived, &mut unposted) {
            arrived.waiting.push_back(packet);
        }
        let slots = arrived.rings.iter().map(|ring| u32::from(ring.slots)).sum(); // whatever a peer writes meanwhile
        let in_rings: Vec<_> = (0..slots).map_while(|_: u32| arrived.take_from_rings()).collect();
        arrived.waiting.extend(in_rings);
        for packet in &mut arrived.waiting {
            let Some(slot) = packet.slot() else { continue };
            let mut bytes = vec![0; packet.len].into_boxed_slice();
            self.read(packet, 0, &mut bytes);
            packet.bytes = PacketBytes::Saved(bytes);
            unposted.push(slot);
            were_some = true;
        }
        self.post(&mut unposted); // one that is refused now is lost
        were_some
    }

    #[inline]
    fn poll(&self, arrived: &Arrived, unposted: &mut Vec<u32>) -> Option<Packet> {
        let mut one = [MaybeUninit::uninit()];
        while !self.shares_queue
            && let [completion] = self.completions.poll(&mut one)
        {
            match arrived.packet(completion) {
                Ok(packet) => return Some(packet),
                Err(slot) => unposted.push(slot),
            }
        }
        None
    }

    /// Copies bytes of a packet from an offset on. Those beyond its end are unspecified.
    #[inline]
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

impl Arrived {
    /// The packet that a receive has got, or the receive.
    #[inline]
    fn packet(&self, completion: &ibv_wc) -> Result<Packet, u32> {
        let slot = completion.wr_id() as u32;
        let from = self.by_number.get(&completion.qp_num).filter(|_| completion.error().is_none());
        let bytes = PacketBytes::Received(slot);
        from.map(|&from| Packet { from, channel: Channel::Connection, len: completion.len(), bytes }).ok_or(slot)
    }

    /// The next packet of a ring, of each in turn.
    #[inline]
    fn take_from_rings(&mut self) -> Option<Packet> {
        let count = self.rings.len();
        (self.first..self.first + count).find_map(|at| {
            let ring = &mut self.rings[at % count];
            let bytes = ring.take()?;
            (self.first, self.has_come) = ((at + 1) % count, true);
            let (len, bytes) = (bytes.len(), PacketBytes::Saved(bytes));
            Some(Packet { from: ring.from, channel: Channel::FastPath, len, bytes })
        })
    }
}
