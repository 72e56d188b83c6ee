//! A rank's own regions, and the entries in which peers find them.

use std::collections::{HashMap, VecDeque};
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError, RwLock, Weak};

use onesided_job::Maker;
use onesided_remote_memory::{Fault, FaultKind, Rank, RegionId};

use crate::verbs::raw::{LentRegion, MemoryRegion, ProtectionDomain};
use crate::verbs::segment::entry::{Entry, PLACE, PLACE_BITS, PLACES};
use crate::verbs::segment::{Inner, Memory, Own, VerbsSegment};
use crate::{Error, Segment, SegmentKey, WORLD_BYTES};

/// One's own regions, and the entries in which peers find them.
#[derive(Debug)]
pub(in crate::verbs) struct Directory {
    home: VerbsSegment,
    memory: Arc<MemoryRegion>,
    places: Mutex<Places>,
    /// Regions that a word was resolved in by number: the word borrows from here, so they stay.
    pinned: Box<[OnceLock<VerbsSegment>]>,
}

#[derive(Debug)]
struct Places {
    /// The next region of each free place, the place that was free longest first.
    free: VecDeque<RegionId>,
    taken: HashMap<RegionId, Weak<Inner>>,
}

impl Directory {
    /// Where the notices lie in a home region, behind the entries: a word for each rank.
    const NOTICES: u64 = WORLD_BYTES + PLACES as u64 * Entry::BYTES;

    pub(in crate::verbs) fn new(domain: &Arc<ProtectionDomain>, rank: Rank, size: u32) -> Result<Arc<Self>, Error> {
        let memory = Arc::new(MemoryRegion::new(domain, Self::notice_of(Rank(size)))?);
        let key = SegmentKey {
            rank,
            region: RegionId(0),
            len: WORLD_BYTES,
            address: memory.address(),
            rkey: memory.remote_key(),
        };
        let own =
            Some(Own { memory: Memory::Allocated(Arc::clone(&memory)), directory: Weak::new(), maker: Maker::this() });
        let home = VerbsSegment(Arc::new(Inner { key, own }));
        let free = (1..PLACES as u32).map(RegionId).collect();
        let places = Mutex::new(Places { free, taken: HashMap::from([(RegionId(0), Arc::downgrade(&home.0))]) });
        let pinned = (0..PLACES).map(|_| OnceLock::new()).collect();
        Ok(Arc::new(Self { home, memory, places, pinned }))
    }

    /// Where in a home region a rank says that it has [revoked](crate::Fabric::revoke) the access of whose home it is.
    pub(in crate::verbs) const fn notice_of(rank: Rank) -> u64 {
        Self::NOTICES + 8 * rank.0 as u64
    }

    /// Whether a rank has said so to this one.
    pub(in crate::verbs) fn is_noticed(&self, rank: Rank) -> bool {
        self.memory.memory().word(Self::notice_of(rank)).is_some_and(|notice| notice.load(Ordering::Acquire) != 0)
    }

    fn places(&self) -> MutexGuard<'_, Places> {
        self.places.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The world segment, at the start of the home region.
    pub(in crate::verbs) const fn home(&self) -> &VerbsSegment {
        &self.home
    }

    /// Makes memory known to peers.
    pub(in crate::verbs) fn publish(self: &Arc<Self>, memory: MemoryRegion) -> Result<VerbsSegment, Error> {
        let place = (memory.memory().len() as u64, memory.address(), memory.remote_key());
        self.enter_new(place, Memory::Allocated(Arc::new(memory)))
    }

    /// Makes the user's memory known to peers.
    pub(in crate::verbs) fn lend(self: &Arc<Self>, memory: LentRegion) -> Result<VerbsSegment, Error> {
        let place = (memory.bytes().1 as u64, memory.address(), memory.remote_key());
        self.enter_new(place, Memory::Lent(RwLock::new(Some(memory))))
    }

    fn enter_new(
        self: &Arc<Self>,
        (len, address, rkey): (u64, u64, u32),
        memory: Memory,
    ) -> Result<VerbsSegment, Error> {
        let Some(region) = self.places().free.pop_front() else {
            let fault = Fault::of(FaultKind::Full, self.home.rank());
            return Err(Error::Allocate {
                len,
                what: format!("{PLACES} regions are there already"),
                fault,
                source: None,
            });
        };
        let key = SegmentKey { rank: self.home.rank(), region, len, address, rkey };
        let own = Some(Own { memory, directory: Arc::downgrade(self), maker: Maker::this() });
        let segment = Arc::new(Inner { key, own });
        self.places().taken.insert(region, Arc::downgrade(&segment));
        self.enter(region, Entry::new(&key));
        Ok(VerbsSegment(segment))
    }

    /// Takes a region back: peers that look for it from now on find none.
    pub(super) fn retract(&self, region: RegionId) {
        self.enter(region, Entry([0; 4]));
        let mut places = self.places();
        places.taken.remove(&region);
        // The next region at this place has another number. A pinned one keeps its place.
        if self.pinned[(region.0 & PLACE) as usize].get().is_none() {
            places.free.push_back(RegionId(region.0.wrapping_add(1 << PLACE_BITS)));
        }
    }

    /// Lets nobody find a region any more whose place stays taken.
    pub(super) fn hide(&self, region: RegionId) {
        self.enter(region, Entry([0; 4]));
        self.places().taken.remove(&region);
    }

    /// Writes an entry, the seal first taken away and last put there. Peers read it at any time.
    fn enter(&self, region: RegionId, entry: Entry) {
        let word = |at: u64| self.memory.memory().word(Entry::offset(region) + at * 8);
        for (at, value) in [(3, 0), (0, entry.0[0]), (1, entry.0[1]), (2, entry.0[2]), (3, entry.0[3])] {
            word(at).expect("the directory has an entry for each place").store(value, Ordering::Release);
        }
    }

    /// One's own region by its number.
    pub(in crate::verbs) fn find(&self, region: RegionId) -> Result<VerbsSegment, Fault> {
        let found = self.places().taken.get(&region).and_then(Weak::upgrade);
        found.map(VerbsSegment).ok_or(Fault::of(FaultKind::NoSuchRegion, self.home.rank()))
    }

    /// One's own region by its number, kept for as long as the endpoint; peers do not find it any more when its last handle has
    /// gone. Of the user's memory, which has no address here, only what its number means is kept.
    pub(in crate::verbs) fn pin(&self, region: RegionId) -> Result<&VerbsSegment, Fault> {
        let segment = self.find(region)?;
        let keep = || {
            let key = segment.key();
            let Some(memory) = segment.allocated() else { return VerbsSegment::of_peer(key) };
            let memory = Memory::Allocated(Arc::clone(memory));
            let own = Some(Own { memory, directory: Weak::new(), maker: Maker::this() });
            VerbsSegment(Arc::new(Inner { key, own }))
        };
        Ok(self.pinned[(region.0 & PLACE) as usize].get_or_init(keep))
    }
}
