//! Further cards: devices or ports behind the first one that `ONESIDED_DEVICE` names. They carry
//! [rails](super::rails) and nothing else.
//!
//! Rail `i` goes from this rank's card `i` to the peer's card `i`, each modulo how many they have. A card
//! has its own protection domain, so that memory of messages is registered at each, and completion queue,
//! which is drained with the first one's. Peers find a region's keys at further cards in its owner's home:
//! a word for each, read at the first transfer and kept. A rail whose key is not known takes part in later
//! transfers.

use std::collections::HashMap;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::atomic::AtomicU64;
use std::sync::{Arc, Mutex};

use onesided_job::lock;
use onesided_remote_memory::{Rank, RegionId};
use rustix::event::epoll;
use rustix::fd::OwnedFd;

use crate::verbs::bounce_buffers::TakenSlot;
use crate::verbs::device::Device;
use crate::verbs::peer::Peer;
use crate::verbs::queue::WorkRequest;
use crate::verbs::raw::{
    CompletionQueue, Local, MemoryRegion, ProtectionDomain, Registration, Remote, SharedReceiveQueue, Verb,
};
use crate::verbs::segment::{Memory, RegionTable};
use crate::verbs::traffic::{ConnectionId, Traffic};
use crate::verbs::{Inner, Verbs, VerbsSegment, completion_queue, drive, raw};
use crate::{Error, SegmentKey};

/// The most of them: the first rail is on the first card.
pub(super) const MOST: usize = Traffic::RAILS.len() - 1;

/// A further card.
#[derive(Debug)]
pub(super) struct Card {
    pub(super) domain: Arc<ProtectionDomain>,
    pub(super) completions: Arc<CompletionQueue>,
    /// Nothing takes one of them.
    pub(super) receives: Arc<SharedReceiveQueue>,
    /// When it may connect again, after it could not.
    pub(super) again: AtomicU64,
    /// What is read as a proof, by peers and into which.
    scratch: MemoryRegion,
}

impl Card {
    /// For so many connections of a depth.
    pub(super) fn new(device: &Device, depth: u32, connections: u32) -> Result<Self, Error> {
        let domain = ProtectionDomain::new(&device.context)?;
        let completions = completion_queue(device, 1, depth, connections)?;
        let receives = SharedReceiveQueue::new(&domain, 1, 0, drive::RECEIVE)?;
        let scratch = MemoryRegion::new(&domain, 8)?;
        Ok(Self { domain, completions, receives, again: AtomicU64::new(0), scratch })
    }

    /// What its peers read as a proof.
    pub(super) fn home(&self) -> Remote {
        self.scratch.remote()
    }
}

/// The further cards of a rank.
#[derive(Debug)]
pub(super) struct Cards {
    all: Box<[Card]>,
    /// Readable when any of the completion queues is, if there are several.
    events: Option<OwnedFd>,
    /// By the owner, and the region's place in its table.
    known: Mutex<HashMap<(Rank, u32), PeerKeys>>,
}

/// The keys of a peer's region at its further cards.
#[derive(Debug)]
struct PeerKeys {
    region: RegionId,
    /// The slot of the read that asks for them.
    asked: Option<u32>,
    /// 0: the region has none there.
    keys: [u32; MOST],
}

impl Cards {
    pub(super) fn new(all: Vec<Card>, first: &CompletionQueue) -> Result<Self, Error> {
        let failed = |error: rustix::io::Errno| raw::failed("epoll", error.into());
        let listen = || {
            let events = epoll::create(epoll::CreateFlags::CLOEXEC)?;
            for queue in all.iter().map(|card| &*card.completions).chain([first]) {
                epoll::add(&events, queue, epoll::EventData::new_u64(0), epoll::EventFlags::IN)?;
            }
            Ok(events)
        };
        let events = if all.is_empty() { None } else { Some(listen().map_err(failed)?) };
        Ok(Self { all: all.into(), events, known: Mutex::default() })
    }

    pub(super) const fn len(&self) -> usize {
        self.all.len()
    }

    /// The further card that a connection goes over. `None`: the first one.
    pub(super) fn of(&self, traffic: Traffic) -> Option<&Card> {
        self.all.get((traffic.rail() % (1 + self.all.len())).wrapping_sub(1))
    }

    pub(super) fn completions(&self) -> impl Iterator<Item = &CompletionQueue> {
        self.all.iter().map(|card| &*card.completions)
    }
}

impl Inner {
    /// Becomes readable after a completion for which an event was requested, at any card.
    pub(super) fn completion_events(&self) -> BorrowedFd<'_> {
        self.cards.events.as_ref().map_or_else(|| self.completions.as_fd(), AsFd::as_fd)
    }

    /// Takes the events of completions: whether there were some.
    pub(super) fn take_completion_events(&self) -> bool {
        self.cards.completions().fold(self.completions.take_events(), |any, queue| queue.take_events() || any)
    }

    /// A read for its completion alone.
    pub(super) fn proof(&self, peer: &Peer, taken: &TakenSlot<'_>) -> WorkRequest {
        let read = WorkRequest::new(Verb::Read { from: peer.home }, taken, 8);
        let local = self.cards.of(peer.id.traffic).map_or(read.local, |card| Local {
            address: card.scratch.address(),
            len: 8,
            key: card.scratch.local_key(),
        });
        WorkRequest { local, ..read }
    }

    /// The places of this rank's card and the peer's that a connection goes over: 0 is the first one's.
    pub(super) fn places(&self, id: ConnectionId) -> (usize, usize) {
        let theirs = self.connector.addresses[id.rank.index()].ports.len();
        (id.traffic.rail() % (1 + self.cards.len()), id.traffic.rail() % theirs)
    }

    /// The key of a peer's region at its card in a place, if it is known; else it is asked for.
    pub(super) fn key_at(&self, key: &SegmentKey, place: usize) -> Option<u32> {
        let Some(further) = place.checked_sub(1) else { return Some(key.rkey) };
        let mut known = lock(&self.cards.known);
        let of = (key.rank, RegionTable::index(key.region));
        if let Some(PeerKeys { region, asked, keys }) = known.get_mut(&of) {
            if let Some(slot) = *asked {
                let is_read = self.buffers.status(slot)? == 0;
                if is_read {
                    let mut words = [0; 8 * MOST];
                    self.buffers.buffer(slot).read(&mut words);
                    let (words, _) = words.as_chunks();
                    *keys = std::array::from_fn(|at| {
                        let word = u64::from_le_bytes(words[at]);
                        if word >> 32 == u64::from(region.0) { word as u32 } else { 0 }
                    });
                }
                self.buffers.free(slot);
                *asked = None;
                if !is_read {
                    known.remove(&of); // asked for again next time
                    return None;
                }
            }
            if *region == key.region {
                return Some(keys[further]).filter(|key| *key != 0);
            }
        }
        let peer = self.messages(key.rank).ok()?;
        let taken = self.buffers.take(8 * MOST)?;
        let from = peer.home.after(RegionTable::keys_of(key.region, self.connector.addresses.len() as u32));
        if self.try_post(peer, WorkRequest::new(Verb::Read { from }, &taken, 8 * MOST)) {
            known.insert(of, PeerKeys { region: key.region, asked: Some(taken.slot), keys: [0; MOST] });
        } else {
            self.buffers.free(taken.slot);
        }
        None
    }
}

impl Verbs {
    /// Publishes memory to peers. That of messages is registered at the further cards, up to one that
    /// refuses it: rails over that one and those behind it do not move it.
    pub(super) fn publish<M>(&self, mut memory: Registration<M>) -> Result<VerbsSegment, Error>
    where
        Memory: From<Registration<M>>,
    {
        let cards = if self.is_for_messages() { &*self.0.cards.all } else { &[] };
        let further = cards.iter().map_while(|card| memory.also_at(&card.domain).ok()).collect();
        self.0.region_table.publish((memory.len(), memory.remote()), memory.into(), further)
    }
}
