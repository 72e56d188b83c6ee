//! Registered memory, and the region table in which peers find it.
//!
//! Every rank has a home region, whose address and key all ranks learn at the start. It contains
//! the rank's world segment and its region table. A rank that opens a region reads the owner's
//! table entry, one-sided.

use std::collections::{HashMap, VecDeque};
use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError, RwLock, Weak};

use onesided_remote_memory::{Fault, FaultKind, Rank, RegionId};

use crate::bootstrap::Maker;
use crate::once_table::OnceTable;
use crate::shm::Mapping;
use crate::verbs::memory;
use crate::verbs::raw::{Local, MemoryRegion, ProtectionDomain, Remote, UserRegion};
use crate::{Error, Segment, SegmentKey, UserMemory, WORLD_BYTES};

/// The maximum number of regions of a rank, as the bits of a region's number that are its index in
/// the table. The other bits distinguish successive regions of one index.
const INDEX_BITS: u32 = 12;
const MAX_REGIONS: usize = 1 << INDEX_BITS;
const INDEX_MASK: u32 = MAX_REGIONS as u32 - 1;

/// Registered memory over verbs, an own or a peer's.
#[derive(Clone, Debug)]
pub struct VerbsSegment(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    key: SegmentKey,
    own: Option<Own>,
}

/// The owner's part.
#[derive(Debug)]
struct Own {
    memory: Memory,
    region_table: Weak<RegionTable>,
    maker: Maker,
}

#[derive(Debug)]
enum Memory {
    Allocated(Arc<MemoryRegion>),
    /// User memory, until it is reclaimed.
    User(RwLock<Option<UserRegion>>),
    /// A part of it, and its offset.
    Part(VerbsSegment, u64),
}

impl Drop for Inner {
    fn drop(&mut self) {
        // The table is memory that a forked child shares with its parent.
        let own = self.own.as_ref().filter(|own| own.maker.is_here());
        if let Some(region_table) = own.and_then(|own| own.region_table.upgrade()) {
            region_table.retract(self.key.region);
        }
    }
}

impl VerbsSegment {
    /// A peer's memory.
    pub(super) fn of_peer(key: SegmentKey) -> Self {
        Self(Arc::new(Inner { key, own: None }))
    }

    /// This rank's own memory.
    fn own(&self) -> Result<&Memory, Fault> {
        match &self.0.own {
            Some(own) => Ok(&own.memory),
            None => Err(Fault::of(FaultKind::NotOwn, self.rank())),
        }
    }

    /// Own memory that this rank allocated, for others to map.
    pub(crate) fn mapping(&self) -> Result<&Arc<Mapping>, Fault> {
        self.allocated().map(|own| own.shared()).ok_or(Fault::of(FaultKind::NotOwn, self.rank()))
    }

    /// Memory that this rank allocated; `None` for any other.
    pub(super) fn allocated(&self) -> Option<&Arc<MemoryRegion>> {
        self.own().ok().and_then(Memory::allocated)
    }

    /// Deregisters user memory and returns it.
    pub(super) fn reclaim(&self) -> Result<UserMemory, Fault> {
        let Memory::User(user) = self.own()? else { return Err(Fault::of(FaultKind::Unsupported, self.rank())) };
        if let Some(region_table) = self.0.own.as_ref().and_then(|own| own.region_table.upgrade()) {
            region_table.hide(self.0.key.region);
        }
        let user = user.write().unwrap_or_else(PoisonError::into_inner).take();
        let user = user.ok_or(Fault::new(FaultKind::Closed))?;
        user.deregister().ok_or(Fault::of(FaultKind::Refused, self.rank()))
    }

    /// A part of this rank's user memory. It has no table entry: peers look up the whole.
    pub(super) fn part(&self, offset: u64, len: u64) -> Result<Self, Fault> {
        let refused = |kind| Err(Fault::of(kind, self.rank()));
        match self.own()? {
            Memory::Allocated(_) => return refused(FaultKind::Unsupported),
            Memory::User(_) | Memory::Part(..) if !offset.is_multiple_of(8) => return refused(FaultKind::Misaligned),
            Memory::User(_) | Memory::Part(..) if len == 0 => return refused(FaultKind::OutOfRange),
            Memory::User(_) | Memory::Part(..) => self.check(offset, len)?,
        }
        let key = SegmentKey { len, address: self.0.key.address + offset, ..self.0.key };
        let own = Own { memory: Memory::Part(self.clone(), offset), region_table: Weak::new(), maker: Maker::this() };
        Ok(Self(Arc::new(Inner { key, own: Some(own) })))
    }

    /// Whether both are one memory.
    pub(super) fn is(&self, other: &Self) -> bool {
        match (self.own(), other.own()) {
            (Ok(Memory::Part(whole, _)), _) => whole.is(other),
            (_, Ok(Memory::Part(whole, _))) => self.is(whole),
            _ => Arc::ptr_eq(&self.0, &other.0),
        }
    }

    /// Refuses ranges that are not inside.
    pub(crate) fn check(&self, offset: u64, len: u64) -> Result<(), Fault> {
        check(&self.0.key, offset, len)
    }

    /// A remote address in it.
    pub(super) fn remote(&self, offset: u64) -> Remote {
        Remote { address: self.0.key.address, key: self.0.key.rkey }.after(offset)
    }

    /// A local address in own memory.
    pub(super) fn local(&self, offset: u64) -> Result<Local, Fault> {
        let key = match self.own()? {
            Memory::Allocated(memory) => memory.local_key(),
            Memory::User(user) => self.with_user_memory(user, UserRegion::local_key)?,
            Memory::Part(whole, at) => return whole.local(at + offset),
        };
        Ok(Local { address: self.0.key.address + offset, len: 0, key })
    }

    /// Runs with user memory, which is not reclaimed meanwhile.
    fn with_user_memory<R>(
        &self,
        user: &RwLock<Option<UserRegion>>,
        run: impl FnOnce(&UserRegion) -> R,
    ) -> Result<R, Fault> {
        let user = user.read().unwrap_or_else(PoisonError::into_inner);
        user.as_ref().map(run).ok_or(Fault::of(FaultKind::NoSuchRegion, self.rank()))
    }

    /// User memory has no words here: a reference to one would outlive the registration.
    pub(super) fn word(&self, offset: u64) -> Result<VerbsWord<'_>, Fault> {
        let of = &*self.0;
        match offset.is_multiple_of(8) {
            true => check(&of.key, offset, 8).map(|()| VerbsWord { of, offset }),
            false => Err(Fault::of(FaultKind::Misaligned, of.key.rank)),
        }
    }

    pub(super) fn read(&self, offset: u64, into: &mut [u8]) -> Result<(), Fault> {
        self.check(offset, into.len() as u64)?;
        match self.own()? {
            Memory::Allocated(own) => memory::read(own.memory(), offset, into),
            Memory::User(user) => self.with_user_memory(user, |user| memory::read_user(user, offset, into))?,
            Memory::Part(whole, at) => return whole.read(at + offset, into),
        }
        .ok_or(Fault::of(FaultKind::OutOfRange, self.rank()))
    }

    pub(super) fn write(&self, offset: u64, from: &[u8]) -> Result<(), Fault> {
        self.check(offset, from.len() as u64)?;
        match self.own()? {
            Memory::Allocated(own) => memory::write(own.memory(), offset, from),
            Memory::User(user) => self.with_user_memory(user, |user| memory::write_user(user, offset, from))?,
            Memory::Part(whole, at) => return whole.write(at + offset, from),
        }
        .ok_or(Fault::of(FaultKind::OutOfRange, self.rank()))
    }
}

impl Memory {
    fn allocated(&self) -> Option<&Arc<MemoryRegion>> {
        match self {
            Self::Allocated(memory) => Some(memory),
            Self::User(_) | Self::Part(..) => None,
        }
    }
}

impl Segment for VerbsSegment {
    fn rank(&self) -> Rank {
        self.0.key.rank
    }

    fn len(&self) -> u64 {
        self.0.key.len
    }

    fn key(&self) -> SegmentKey {
        self.0.key
    }
}

fn check(key: &SegmentKey, offset: u64, len: u64) -> Result<(), Fault> {
    match offset.checked_add(len) {
        Some(end) if end <= key.len => Ok(()),
        _ => Err(Fault::of(FaultKind::OutOfRange, key.rank)),
    }
}

/// The offset of a key within the owner's table entry for its number: the whole, or a part of user
/// memory.
pub(super) fn check_within(there: &SegmentKey, key: &SegmentKey) -> Result<u64, Fault> {
    let offset = key.address.checked_sub(there.address).filter(|offset| offset % 8 == 0);
    let same = (key.region, key.rkey) == (there.region, there.rkey) && key.len > 0;
    match offset.filter(|offset| same && check(there, *offset, key.len).is_ok()) {
        Some(offset) => Ok(offset),
        None => Err(Fault::of(FaultKind::NoSuchRegion, there.rank)),
    }
}

/// A resolved word: its remote descriptor, and a pointer to an own word.
// Two machine words: with runtime dispatch, shared memory's words are as large as these (see
// `Any`).
#[derive(Clone, Copy)]
pub struct VerbsWord<'f> {
    of: &'f Inner,
    offset: u64,
}

impl<'f> VerbsWord<'f> {
    pub(crate) const fn rank(&self) -> Rank {
        self.of.key.rank
    }

    pub(crate) const fn region(&self) -> RegionId {
        self.of.key.region
    }

    /// Its remote address.
    pub(super) const fn remote(&self) -> Remote {
        Remote { address: self.of.key.address, key: self.of.key.rkey }.after(self.offset)
    }

    /// The own word in memory. An aligned load is atomic against the card's atomics; a CPU atomic
    /// is not. The only change by the CPU is
    /// [`store`](onesided_remote_memory::RemoteMemory::store), for words that no other rank may
    /// write at that time.
    pub(crate) fn own(&self) -> Result<&'f AtomicU64, Fault> {
        let memory = self.of.own.as_ref().and_then(|own| own.memory.allocated());
        memory.and_then(|own| own.memory().word(self.offset)).ok_or(Fault::of(FaultKind::NotOwn, self.rank()))
    }
}

impl fmt::Debug for VerbsWord<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "VerbsWord({} of {:?})", self.offset, self.of.key)
    }
}

/// The region table: own regions, and the entries in which peers find them.
#[derive(Debug)]
pub(super) struct RegionTable {
    home: VerbsSegment,
    memory: Arc<MemoryRegion>,
    indices: Mutex<FreeIndices>,
    /// Regions with a word resolved by number: the word borrows from here, so they stay.
    pinned: Box<[OnceLock<VerbsSegment>]>,
}

#[derive(Debug)]
struct FreeIndices {
    /// The next region of each free index, least recently used first.
    free: VecDeque<RegionId>,
    taken: HashMap<RegionId, Weak<Inner>>,
}

/// An entry of the region table: four words, so that it never crosses a cache line.
///
/// | word | |
/// |---|---|
/// | 0 | region number, 32 bits; remote key, 32 bits |
/// | 1 | address |
/// | 2 | length |
/// | 3 | a checksum of the three before it, which invalidates an entry that is being changed; 0: no region |
#[derive(Clone, Copy, Debug)]
pub(super) struct Entry([u64; 4]);

impl Entry {
    pub(super) const BYTES: u64 = 32;

    fn new(key: &SegmentKey) -> Self {
        let first = u64::from(key.region.0) << 32 | u64::from(key.rkey);
        Self([first, key.address, key.len, Self::seal([first, key.address, key.len])])
    }

    fn seal(words: [u64; 3]) -> u64 {
        let mixed =
            words.iter().fold(1_u64, |mixed, word| (mixed ^ word).wrapping_mul(0x9e37_79b9_7f4a_7c15).rotate_left(29));
        mixed | 1
    }

    /// The offset of a region's entry in its owner's home.
    pub(super) const fn offset(region: RegionId) -> u64 {
        WORLD_BYTES + (region.0 & INDEX_MASK) as u64 * Self::BYTES
    }

    /// Decodes an owner's entry for a region.
    pub(super) fn decode(
        bytes: &[u8; Self::BYTES as usize],
        rank: Rank,
        region: RegionId,
    ) -> Result<SegmentKey, Fault> {
        let mut words = [0; 4];
        for (word, bytes) in words.iter_mut().zip(bytes.chunks_exact(8)) {
            *word = bytes.iter().rev().fold(0, |word, byte| word << 8 | u64::from(*byte));
        }
        let [first, address, len, seal] = words;
        if seal != Self::seal([first, address, len]) || first >> 32 != u64::from(region.0) {
            return Err(Fault::of(FaultKind::NoSuchRegion, rank));
        }
        Ok(SegmentKey { rank, region, len, address, rkey: first as u32 })
    }
}

impl RegionTable {
    /// The offset of the notices in a home region, after the entries: a word for each rank.
    const NOTICES: u64 = WORLD_BYTES + MAX_REGIONS as u64 * Entry::BYTES;

    pub(super) fn new(domain: &Arc<ProtectionDomain>, rank: Rank, size: u32) -> Result<Arc<Self>, Error> {
        let memory = Arc::new(MemoryRegion::new(domain, Self::notice_of(Rank(size)))?);
        let key = SegmentKey {
            rank,
            region: RegionId(0),
            len: WORLD_BYTES,
            address: memory.address(),
            rkey: memory.remote_key(),
        };
        let own = Some(Own {
            memory: Memory::Allocated(Arc::clone(&memory)),
            region_table: Weak::new(),
            maker: Maker::this(),
        });
        let home = VerbsSegment(Arc::new(Inner { key, own }));
        let free = (1..MAX_REGIONS as u32).map(RegionId).collect();
        let indices = Mutex::new(FreeIndices { free, taken: HashMap::from([(RegionId(0), Arc::downgrade(&home.0))]) });
        let pinned = (0..MAX_REGIONS).map(|_| OnceLock::new()).collect();
        Ok(Arc::new(Self { home, memory, indices, pinned }))
    }

    /// The offset in a home region of a rank's notice that it has [revoked](crate::Fabric::revoke)
    /// the owner's access.
    pub(super) const fn notice_of(rank: Rank) -> u64 {
        Self::NOTICES + 8 * rank.0 as u64
    }

    /// Whether a rank has revoked this one's access.
    pub(super) fn is_noticed(&self, rank: Rank) -> bool {
        self.memory.memory().word(Self::notice_of(rank)).is_some_and(|notice| notice.load(Ordering::Acquire) != 0)
    }

    fn indices(&self) -> MutexGuard<'_, FreeIndices> {
        self.indices.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The world segment, at the start of the home region.
    pub(super) const fn home(&self) -> &VerbsSegment {
        &self.home
    }

    /// Publishes memory to peers.
    pub(super) fn publish(self: &Arc<Self>, memory: MemoryRegion) -> Result<VerbsSegment, Error> {
        let remote = (memory.memory().len() as u64, memory.address(), memory.remote_key());
        self.enter_new(remote, Memory::Allocated(Arc::new(memory)))
    }

    /// Publishes user memory to peers.
    pub(super) fn publish_user(self: &Arc<Self>, memory: UserRegion) -> Result<VerbsSegment, Error> {
        let remote = (memory.bytes().1 as u64, memory.address(), memory.remote_key());
        self.enter_new(remote, Memory::User(RwLock::new(Some(memory))))
    }

    fn enter_new(
        self: &Arc<Self>,
        (len, address, rkey): (u64, u64, u32),
        memory: Memory,
    ) -> Result<VerbsSegment, Error> {
        let Some(region) = self.indices().free.pop_front() else {
            let fault = Fault::of(FaultKind::Full, self.home.rank());
            return Err(Error::Allocate {
                len,
                what: format!("{MAX_REGIONS} regions are there already"),
                fault,
                source: None,
            });
        };
        let key = SegmentKey { rank: self.home.rank(), region, len, address, rkey };
        let own = Some(Own { memory, region_table: Arc::downgrade(self), maker: Maker::this() });
        let segment = Arc::new(Inner { key, own });
        self.indices().taken.insert(region, Arc::downgrade(&segment));
        self.enter(region, Entry::new(&key));
        Ok(VerbsSegment(segment))
    }

    /// Retracts a region: peers cannot look it up any more.
    fn retract(&self, region: RegionId) {
        self.enter(region, Entry([0; 4]));
        let mut indices = self.indices();
        indices.taken.remove(&region);
        // The next region at this index has another number. A pinned region keeps its index.
        if self.pinned[(region.0 & INDEX_MASK) as usize].get().is_none() {
            indices.free.push_back(RegionId(region.0.wrapping_add(1 << INDEX_BITS)));
        }
    }

    /// Makes a region unavailable to peers; its index stays taken.
    fn hide(&self, region: RegionId) {
        self.enter(region, Entry([0; 4]));
        self.indices().taken.remove(&region);
    }

    /// Writes an entry: clears the checksum first, and sets it last. Peers may read at any time.
    fn enter(&self, region: RegionId, entry: Entry) {
        let word = |at: u64| self.memory.memory().word(Entry::offset(region) + at * 8);
        for (at, value) in [(3, 0), (0, entry.0[0]), (1, entry.0[1]), (2, entry.0[2]), (3, entry.0[3])] {
            word(at).expect("the directory has an entry for each place").store(value, Ordering::Release);
        }
    }

    /// An own region by its number.
    pub(super) fn find(&self, region: RegionId) -> Result<VerbsSegment, Fault> {
        let found = self.indices().taken.get(&region).and_then(Weak::upgrade);
        found.map(VerbsSegment).ok_or(Fault::of(FaultKind::NoSuchRegion, self.home.rank()))
    }

    /// An own region by its number, kept for the life of the endpoint; peers cannot find it any
    /// more after its last handle has gone. For user memory, which has no words here, only the
    /// number is kept.
    pub(super) fn pin(&self, region: RegionId) -> Result<&VerbsSegment, Fault> {
        let segment = self.find(region)?;
        let keep = || {
            let key = segment.key();
            let Some(memory) = segment.allocated() else { return VerbsSegment::of_peer(key) };
            let memory = Memory::Allocated(Arc::clone(memory));
            let own = Some(Own { memory, region_table: Weak::new(), maker: Maker::this() });
            VerbsSegment(Arc::new(Inner { key, own }))
        };
        Ok(self.pinned[(region.0 & INDEX_MASK) as usize].get_or_init(keep))
    }
}

/// Peers' regions whose words were resolved by number, kept until the end: words borrow from them.
#[derive(Debug, Default)]
pub(super) struct Opened {
    /// Their numbers in the table.
    numbers: Mutex<HashMap<(Rank, RegionId), u32>>,
    table: OnceTable<VerbsSegment>,
}

impl Opened {
    /// A peer's region, looked up on first use.
    pub(super) fn get(
        &self,
        of: (Rank, RegionId),
        look_up: impl FnOnce() -> Result<SegmentKey, Fault>,
    ) -> Result<&VerbsSegment, Fault> {
        let numbers = || self.numbers.lock().unwrap_or_else(PoisonError::into_inner);
        let met = numbers().get(&of).copied();
        let number = match met {
            Some(number) => number,
            None => {
                let segment = VerbsSegment::of_peer(look_up()?);
                let mut numbers = numbers();
                let next = numbers.len() as u32;
                let number = *numbers.entry(of).or_insert(next);
                // The table entry exists before its number is published.
                let _ = self.table.get_or_try_init(number, || Ok::<_, Fault>(segment))?;
                number
            }
        };
        self.table.get_or_try_init(number, || Err(Fault::of(FaultKind::NoSuchRegion, of.0)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_entry_is_believed_only_whole() {
        let key =
            SegmentKey { rank: Rank(3), region: RegionId(5 << 12 | 9), len: 1 << 33, address: 77 << 40, rkey: 11 };
        let entry = Entry::new(&key);
        let bytes = |words: [u64; 4]| {
            let mut bytes = [0; 32];
            bytes.chunks_exact_mut(8).zip(words).for_each(|(to, word)| to.copy_from_slice(&word.to_le_bytes()));
            bytes
        };
        assert_eq!(Entry::decode(&bytes(entry.0), key.rank, key.region), Ok(key));
        let none = Err(Fault::of(FaultKind::NoSuchRegion, key.rank));
        assert_eq!(Entry::decode(&bytes([0; 4]), key.rank, RegionId(0)), none);
        assert_eq!(Entry::decode(&bytes(entry.0), key.rank, RegionId(9)), none);
        let part = |offset: u64, len| SegmentKey { len, address: key.address.wrapping_add(offset), ..key };
        assert_eq!(check_within(&key, &key), Ok(0));
        assert_eq!(check_within(&key, &part(16, key.len - 16)), Ok(16));
        for wrong in [part(16, key.len - 15), part(4, 8), part(0, 0), part(u64::MAX - 7, 8), part(key.len, 8)] {
            assert_eq!(check_within(&key, &wrong), none.map(|_| 0), "{wrong:?}");
        }
        assert_eq!(check_within(&key, &SegmentKey { rkey: 12, ..key }), none.map(|_| 0));
        for at in 0..4 {
            let mut torn = entry.0;
            torn[at] ^= 1 << (at * 9 + 1);
            assert_eq!(Entry::decode(&bytes(torn), key.rank, key.region), none);
        }
    }
}
