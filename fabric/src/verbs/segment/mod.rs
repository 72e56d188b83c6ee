//! Registered memory, and the region table in which peers find it.
//!
//! Every rank has a home region, whose address and key all ranks learn at the start. It contains
//! the rank's world segment and its region table. A rank that opens a region reads the owner's
//! table entry, one-sided.

mod entry;
mod opened;
mod region_table;

use std::sync::atomic::AtomicU64;
use std::sync::{Arc, OnceLock, PoisonError, RwLock, Weak};

use onesided_job::fork::is_child;
use onesided_remote_memory::{Fault, FaultKind, Rank, RegionId, debug};

use crate::shm::{Mapping, ShmSegment, ShmWord};
use crate::verbs::memory;
use crate::verbs::raw::{Keys, Local, MemoryRegion, Remote, UserRegion};
use crate::{Path, Segment, SegmentKey, UserMemory};

pub(super) use crate::verbs::segment::entry::{Entry, check_within};
pub(super) use crate::verbs::segment::opened::Opened;
pub(super) use crate::verbs::segment::region_table::RegionTable;

/// Registered memory over verbs, an own or a peer's.
#[derive(Clone, Debug)]
pub struct VerbsSegment(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    key: SegmentKey,
    own: Option<Own>,
    /// How the CPU accesses it, if its owner is on this host.
    mapped: OnceLock<ShmSegment>,
}

impl Inner {
    const fn new(key: SegmentKey, own: Option<Own>) -> Self {
        Self { key, own, mapped: OnceLock::new() }
    }
}

/// The owner's part.
#[derive(Debug)]
struct Own {
    memory: Memory,
    /// Its keys at further cards, if it is for messages.
    further: Vec<Keys>,
    region_table: Weak<RegionTable>,
}

#[derive(Debug)]
pub(super) enum Memory {
    Allocated(Arc<MemoryRegion>),
    /// User memory, until it is reclaimed.
    User(RwLock<Option<UserRegion>>),
    /// A part of it, and its offset.
    Part(VerbsSegment, u64),
}

impl Drop for Inner {
    fn drop(&mut self) {
        // The table is memory that a forked child shares with its parent.
        let own = self.own.as_ref().filter(|_| !is_child());
        if let Some(region_table) = own.and_then(|own| own.region_table.upgrade()) {
            region_table.retract(self.key.region);
        }
    }
}

impl VerbsSegment {
    /// A peer's memory.
    pub(super) fn of_peer(key: SegmentKey) -> Self {
        Self(Arc::new(Inner::new(key, None)))
    }

    /// This rank's own memory.
    fn own(&self) -> Result<&Memory, Fault> {
        match &self.0.own {
            Some(own) => Ok(&own.memory),
            None => Err(Fault::of(FaultKind::NotOwn, self.rank())),
        }
    }

    /// Own memory that this rank allocated, for others to map.
    pub(super) fn mapping(&self) -> Result<&Arc<Mapping>, Fault> {
        self.allocated().map(|own| own.memory()).ok_or(Fault::of(FaultKind::NotOwn, self.rank()))
    }

    /// Gives it a mapping, once.
    pub(super) fn map(&self, mapped: ShmSegment) {
        self.0.mapped.get_or_init(|| mapped);
    }

    /// How the CPU accesses it, if its owner is on this host.
    #[inline]
    pub(super) fn by_cpu(&self) -> Option<&ShmSegment> {
        self.0.mapped.get()
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
        user.end().ok_or(Fault::of(FaultKind::Refused, self.rank()))
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
        let (memory, further) = (Memory::Part(self.clone(), offset), Vec::new());
        let own = Own { memory, further, region_table: Weak::new() };
        Ok(Self(Arc::new(Inner::new(key, Some(own)))))
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
    pub(super) fn check(&self, offset: u64, len: u64) -> Result<(), Fault> {
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

    /// The same for the card in a place, of which 0 is the first. `None`: it is not registered there.
    pub(super) fn local_at(&self, place: usize, offset: u64) -> Result<Option<Local>, Fault> {
        let Some(further) = place.checked_sub(1) else { return self.local(offset).map(Some) };
        if let Memory::Part(whole, at) = self.own()? {
            return whole.local_at(place, at + offset);
        }
        let keys = self.0.own.as_ref().and_then(|own| own.further.get(further));
        keys.map(|keys| Ok(Local { key: keys.local, ..self.local(offset)? })).transpose()
    }

    /// Reaches the user's memory, which is not given back meanwhile.
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

    /// A word that only ranks of the owner's host access.
    pub(super) fn same_host_word(&self, offset: u64) -> Result<VerbsWord<'_>, Fault> {
        let mapped = self.by_cpu().ok_or(Fault::of(FaultKind::Unsupported, self.rank()))?;
        mapped.word(offset).map(|_| VerbsWord { of: &self.0, offset: offset | SAME_HOST })
    }

    pub(super) fn read(&self, offset: u64, into: &mut [u8]) -> Result<(), Fault> {
        if let Some(mapped) = self.by_cpu() {
            return mapped.read(offset, into);
        }
        self.check(offset, into.len() as u64)?;
        match self.own()? {
            Memory::Allocated(own) => own.memory().read(offset, into),
            Memory::User(user) => self.with_user_memory(user, |user| memory::read_user(user, offset, into))?,
            Memory::Part(whole, at) => return whole.read(at + offset, into),
        }
        .ok_or(Fault::of(FaultKind::OutOfRange, self.rank()))
    }

    pub(super) fn write(&self, offset: u64, from: &[u8]) -> Result<(), Fault> {
        if let Some(mapped) = self.by_cpu() {
            return mapped.write(offset, from);
        }
        self.check(offset, from.len() as u64)?;
        match self.own()? {
            Memory::Allocated(own) => own.memory().write(offset, from),
            Memory::User(user) => self.with_user_memory(user, |user| memory::write_user(user, offset, from))?,
            Memory::Part(whole, at) => return whole.write(at + offset, from),
        }
        .ok_or(Fault::of(FaultKind::OutOfRange, self.rank()))
    }
}

impl From<MemoryRegion> for Memory {
    fn from(memory: MemoryRegion) -> Self {
        Self::Allocated(Arc::new(memory))
    }
}

impl From<UserRegion> for Memory {
    fn from(memory: UserRegion) -> Self {
        Self::User(RwLock::new(Some(memory)))
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
    fn key(&self) -> SegmentKey {
        self.0.key
    }

    fn path(&self) -> Path {
        if self.by_cpu().is_some() { Path::Cpu } else { Path::Card }
    }

    /// For own memory, and that of ranks of this host. The CPU's change of a word is not atomic against
    /// the card's.
    fn mapped(&self) -> Option<&[AtomicU64]> {
        match self.by_cpu() {
            Some(memory) => memory.words(),
            None => memory::words(self.allocated()?.memory()),
        }
    }
}

fn check(key: &SegmentKey, offset: u64, len: u64) -> Result<(), Fault> {
    match offset.checked_add(len) {
        Some(end) if end <= key.len => Ok(()),
        _ => Err(Fault::of(FaultKind::OutOfRange, key.rank)),
    }
}

/// Marks the offset of a word whose operations the CPU executes: see
/// [`same_host_word`](crate::Fabric::same_host_word).
const SAME_HOST: u64 = 1 << 63;

/// A resolved word: its remote descriptor, and a pointer to an own word.
// Two machine words: with runtime dispatch, shared memory's words are as large as these (see
// `Any`).
#[derive(Clone, Copy)]
pub struct VerbsWord<'f> {
    of: &'f Inner,
    offset: u64,
}

impl<'f> VerbsWord<'f> {
    pub(super) const fn rank(&self) -> Rank {
        self.of.key.rank
    }

    pub(super) const fn is_on_same_host(&self) -> bool {
        self.offset & SAME_HOST != 0
    }

    /// A same-host word as the CPU accesses it.
    pub(super) fn mapped(&self) -> Result<ShmWord<'f>, Fault> {
        let mapped = self.of.mapped.get().ok_or(Fault::of(FaultKind::Unsupported, self.rank()))?;
        mapped.word(self.offset & !SAME_HOST)
    }

    pub(super) const fn region(&self) -> RegionId {
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
    pub(super) fn own(&self) -> Result<&'f AtomicU64, Fault> {
        let memory = self.of.own.as_ref().and_then(|own| own.memory.allocated());
        memory
            .and_then(|own| own.memory().word(self.offset & !SAME_HOST))
            .ok_or(Fault::of(FaultKind::NotOwn, self.rank()))
    }
}

debug!([] VerbsWord<'_>, |this| "VerbsWord({} of {:?})", this.offset, this.of.key);
