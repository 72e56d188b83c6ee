//! A rank's own regions, and the entries in which peers find them.

use std::collections::{HashMap, VecDeque};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, OnceLock, Weak};

use onesided_job::lock;
use onesided_remote_memory::{Fault, FaultKind, Rank, RegionId};

use crate::verbs::cards;
use crate::verbs::raw::{Keys, MemoryRegion, ProtectionDomain, Remote};
use crate::verbs::segment::entry::{Entry, INDEX_BITS, INDEX_MASK, MAX_REGIONS};
use crate::verbs::segment::{Inner, Memory, Own, VerbsSegment};
use crate::{Error, Segment, SegmentKey, WORLD_BYTES};

/// The region table: own regions, and the entries in which peers find them.
#[derive(Debug)]
pub(in crate::verbs) struct RegionTable {
    home: VerbsSegment,
    memory: Arc<MemoryRegion>,
    /// The number of ranks.
    size: u32,
    indices: Mutex<FreeIndices>,
    /// Regions with a word resolved by number: the word borrows from here, so they stay.
    pinned: Box<[OnceLock<VerbsSegment>]>,
    /// The number of cuts.
    cuts: AtomicU64,
}

#[derive(Debug)]
struct FreeIndices {
    /// The next region of each free index, least recently used first.
    free: VecDeque<RegionId>,
    taken: HashMap<RegionId, Weak<Inner>>,
}

impl RegionTable {
    /// The offset of the notices and the cut table in a home region, after the entries: a word of
    /// each for each rank.
    const NOTICES: u64 = WORLD_BYTES + MAX_REGIONS as u64 * Entry::BYTES;
    /// The bytes of a region's keys at further cards.
    const KEYS: u64 = 8 * cards::MOST as u64;

    /// With keys at further cards, if this rank has some.
    pub(in crate::verbs) fn new(
        domain: &Arc<ProtectionDomain>,
        (rank, size): (Rank, u32),
        has_further: bool,
    ) -> Result<Arc<Self>, Error> {
        let end = if has_further { MAX_REGIONS as u32 } else { 0 };
        let memory =
            Arc::new(MemoryRegion::new(domain, Self::keys_of(RegionId(0), size) + Self::KEYS * u64::from(end))?);
        let Remote { address, key: rkey } = memory.remote();
        let key = SegmentKey { rank, region: RegionId(0), len: WORLD_BYTES, address, rkey };
        let own = Some(Own {
            memory: Memory::Allocated(Arc::clone(&memory)),
            further: Vec::new(),
            region_table: Weak::new(),
        });
        let home = VerbsSegment(Arc::new(Inner::new(key, own)));
        let free = (1..MAX_REGIONS as u32).map(RegionId).collect();
        let indices = Mutex::new(FreeIndices { free, taken: HashMap::from([(RegionId(0), Arc::downgrade(&home.0))]) });
        let pinned = (0..MAX_REGIONS).map(|_| OnceLock::new()).collect();
        Ok(Arc::new(Self { home, memory, size, indices, pinned, cuts: AtomicU64::new(0) }))
    }

    /// The offset in a home region of a rank's notice that it has [revoked](crate::Fabric::revoke)
    /// the owner's access.
    pub(in crate::verbs) const fn notice_of(rank: Rank) -> u64 {
        Self::NOTICES + 16 * rank.0 as u64
    }

    /// The offset in a home region of the owner's cut of a rank: 0 before, then its number among
    /// the owner's cuts.
    pub(in crate::verbs) const fn cut_of(rank: Rank) -> u64 {
        Self::notice_of(rank) + 8
    }

    /// A region's place in the table.
    pub(in crate::verbs) const fn index(region: RegionId) -> u32 {
        region.0 & INDEX_MASK
    }

    /// The offset in a home region of the words with a region's keys at further cards, in a world of
    /// `size` ranks: the region's number, 32 bits; the key there, 32 bits.
    pub(in crate::verbs) const fn keys_of(region: RegionId, size: u32) -> u64 {
        Self::notice_of(Rank(size)) + Self::KEYS * Self::index(region) as u64
    }

    fn cut(&self, rank: Rank) -> Option<&AtomicU64> {
        self.memory.memory().word(Self::cut_of(rank))
    }

    /// Records that no operation of a rank on this rank's memory takes effect any more.
    pub(in crate::verbs) fn record_cut(&self, rank: Rank) {
        let number = self.cuts.fetch_add(1, Ordering::Relaxed) + 1;
        self.cut(rank).expect("there is a word for each rank").store(number, Ordering::Release);
    }

    /// Whether this rank has cut another.
    pub(in crate::verbs) fn has_cut(&self, rank: Rank) -> bool {
        self.cut(rank).is_some_and(|cut| cut.load(Ordering::Acquire) != 0)
    }

    /// Whether a rank has revoked this one's access.
    pub(in crate::verbs) fn is_noticed(&self, rank: Rank) -> bool {
        self.memory.memory().word(Self::notice_of(rank)).is_some_and(|notice| notice.load(Ordering::Acquire) != 0)
    }

    /// The world segment, at the start of the home region.
    pub(in crate::verbs) const fn home(&self) -> &VerbsSegment {
        &self.home
    }

    /// Publishes memory of a length at an address to peers, with its keys at further cards.
    pub(in crate::verbs) fn publish(
        self: &Arc<Self>,
        (len, Remote { address, key: rkey }): (u64, Remote),
        memory: Memory,
        further: Vec<Keys>,
    ) -> Result<VerbsSegment, Error> {
        let Some(region) = lock(&self.indices).free.pop_front() else {
            let fault = Fault::of(FaultKind::Full, self.home.rank());
            return Err(Error::allocate(len, format!("{MAX_REGIONS} regions are there already"), fault));
        };
        let key = SegmentKey { rank: self.home.rank(), region, len, address, rkey };
        self.enter_keys(region, &further);
        let own = Some(Own { memory, further, region_table: Arc::downgrade(self) });
        let segment = Arc::new(Inner::new(key, own));
        lock(&self.indices).taken.insert(region, Arc::downgrade(&segment));
        self.enter(region, Entry::new(&key));
        Ok(VerbsSegment(segment))
    }

    /// Retracts a region: peers cannot look it up any more.
    pub(super) fn retract(&self, region: RegionId) {
        self.enter(region, Entry([0; 4]));
        let mut indices = lock(&self.indices);
        indices.taken.remove(&region);
        // The next region at this index has another number. A pinned region keeps its index.
        if self.pinned[(region.0 & INDEX_MASK) as usize].get().is_none() {
            indices.free.push_back(RegionId(region.0.wrapping_add(1 << INDEX_BITS)));
        }
    }

    /// Makes a region unavailable to peers; its index stays taken.
    pub(super) fn hide(&self, region: RegionId) {
        self.enter(region, Entry([0; 4]));
        lock(&self.indices).taken.remove(&region);
    }

    /// Writes an entry: clears the checksum first, and sets it last. Peers may read at any time.
    fn enter(&self, region: RegionId, entry: Entry) {
        let word = |at: u64| self.memory.memory().word(Entry::offset(region) + at * 8);
        for (at, value) in [(3, 0), (0, entry.0[0]), (1, entry.0[1]), (2, entry.0[2]), (3, entry.0[3])] {
            word(at).expect("the directory has an entry for each place").store(value, Ordering::Release);
        }
    }

    /// Writes a region's keys at further cards. Peers ask for them when they have the region's key.
    fn enter_keys(&self, region: RegionId, further: &[Keys]) {
        for at in 0..cards::MOST {
            let word = self.memory.memory().word(Self::keys_of(region, self.size) + 8 * at as u64);
            let key = further.get(at).map_or(0, |keys| keys.remote);
            // There is none without further cards.
            word.into_iter().for_each(|word| word.store(u64::from(region.0) << 32 | u64::from(key), Ordering::Release));
        }
    }

    /// An own region by its number.
    pub(in crate::verbs) fn find(&self, region: RegionId) -> Result<VerbsSegment, Fault> {
        let found = lock(&self.indices).taken.get(&region).and_then(Weak::upgrade);
        found.map(VerbsSegment).ok_or(Fault::of(FaultKind::NoSuchRegion, self.home.rank()))
    }

    /// An own region by its number, kept for the life of the endpoint; peers cannot find it any
    /// more after its last handle has gone. For user memory, which has no words here, only the
    /// number is kept.
    pub(in crate::verbs) fn pin(&self, region: RegionId) -> Result<&VerbsSegment, Fault> {
        let segment = self.find(region)?;
        let keep = || {
            let key = segment.key();
            let Some(memory) = segment.allocated() else { return VerbsSegment::of_peer(key) };
            let memory = Memory::Allocated(Arc::clone(memory));
            let own = Some(Own { memory, further: Vec::new(), region_table: Weak::new() });
            VerbsSegment(Arc::new(Inner::new(key, own)))
        };
        Ok(self.pinned[(region.0 & INDEX_MASK) as usize].get_or_init(keep))
    }
}
