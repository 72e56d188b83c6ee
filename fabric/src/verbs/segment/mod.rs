//! Registered memory, and the directory in which peers find it.
//!
//! Every rank has a home region, whose address and key all ranks learn at the start: its world segment, then a
//! directory of its regions. Whoever wants to reach a region reads its entry, one-sided.

mod entry;
mod opened;
mod region_table;

use std::fmt;
use std::sync::atomic::AtomicU64;
use std::sync::{Arc, PoisonError, RwLock, Weak};

use onesided_job::Maker;
use onesided_remote_memory::{Fault, FaultKind, Rank, RegionId};

use crate::shm::Mapping;
use crate::verbs::memory;
use crate::verbs::raw::{LentRegion, Local, MemoryRegion, Remote};
use crate::{Segment, SegmentKey, UserMemory};

pub(super) use crate::verbs::segment::entry::{Entry, check_within};
pub(super) use crate::verbs::segment::opened::Opened;
pub(super) use crate::verbs::segment::region_table::Directory;

/// Registered memory over verbs, one's own or a peer's.
#[derive(Clone, Debug)]
pub struct VerbsSegment(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    key: SegmentKey,
    own: Option<Own>,
}

/// What only the owner has.
#[derive(Debug)]
struct Own {
    memory: Memory,
    directory: Weak<Directory>,
    maker: Maker,
}

#[derive(Debug)]
enum Memory {
    Allocated(Arc<MemoryRegion>),
    /// The user's, until it is given back.
    Lent(RwLock<Option<LentRegion>>),
    /// A part of that, and where it begins.
    Part(VerbsSegment, u64),
}

impl Drop for Inner {
    fn drop(&mut self) {
        // The directory is memory that a forked child shares with its parent.
        let own = self.own.as_ref().filter(|own| own.maker.is_here());
        if let Some(directory) = own.and_then(|own| own.directory.upgrade()) {
            directory.retract(self.key.region);
        }
    }
}

impl VerbsSegment {
    /// A peer's memory.
    pub(super) fn of_peer(key: SegmentKey) -> Self {
        Self(Arc::new(Inner { key, own: None }))
    }

    /// One's own memory, where it is.
    fn own(&self) -> Result<&Memory, Fault> {
        match &self.0.own {
            Some(own) => Ok(&own.memory),
            None => Err(Fault::of(FaultKind::NotOwn, self.rank())),
        }
    }

    /// One's own memory that this rank allocated, to be mapped by others.
    pub(crate) fn mapping(&self) -> Result<&Arc<Mapping>, Fault> {
        self.allocated().map(|own| own.shared()).ok_or(Fault::of(FaultKind::NotOwn, self.rank()))
    }

    /// What was allocated by this rank; `None` of everything else.
    pub(super) fn allocated(&self) -> Option<&Arc<MemoryRegion>> {
        self.own().ok().and_then(Memory::allocated)
    }

    /// Takes the user's memory away from the card and gives it back.
    pub(super) fn reclaim(&self) -> Result<UserMemory, Fault> {
        let Memory::Lent(lent) = self.own()? else { return Err(Fault::of(FaultKind::Unsupported, self.rank())) };
        if let Some(directory) = self.0.own.as_ref().and_then(|own| own.directory.upgrade()) {
            directory.hide(self.0.key.region);
        }
        let lent = lent.write().unwrap_or_else(PoisonError::into_inner).take();
        let lent = lent.ok_or(Fault::new(FaultKind::Closed))?;
        lent.give_back().ok_or(Fault::of(FaultKind::Refused, self.rank()))
    }

    /// A part of the user's memory that this rank has lent. It has no entry in the directory: peers look up the whole.
    pub(super) fn part(&self, offset: u64, len: u64) -> Result<Self, Fault> {
        let refused = |kind| Err(Fault::of(kind, self.rank()));
        match self.own()? {
            Memory::Allocated(_) => return refused(FaultKind::Unsupported),
            Memory::Lent(_) | Memory::Part(..) if !offset.is_multiple_of(8) => return refused(FaultKind::Misaligned),
            Memory::Lent(_) | Memory::Part(..) if len == 0 => return refused(FaultKind::OutOfRange),
            Memory::Lent(_) | Memory::Part(..) => self.check(offset, len)?,
        }
        let key = SegmentKey { len, address: self.0.key.address + offset, ..self.0.key };
        let own = Own { memory: Memory::Part(self.clone(), offset), directory: Weak::new(), maker: Maker::this() };
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

    /// Refuses what does not lie inside.
    pub(crate) fn check(&self, offset: u64, len: u64) -> Result<(), Fault> {
        check(&self.0.key, offset, len)
    }

    /// A place in it, as the card at its owner counts.
    pub(super) fn remote(&self, offset: u64) -> Remote {
        Remote { address: self.0.key.address, key: self.0.key.rkey }.after(offset)
    }

    /// A place in one's own, as one's own card counts.
    pub(super) fn local(&self, offset: u64) -> Result<Local, Fault> {
        let key = match self.own()? {
            Memory::Allocated(memory) => memory.local_key(),
            Memory::Lent(lent) => self.while_lent(lent, LentRegion::local_key)?,
            Memory::Part(whole, at) => return whole.local(at + offset),
        };
        Ok(Local { address: self.0.key.address + offset, len: 0, key })
    }

    /// Reaches the user's memory, which is not given back meanwhile.
    fn while_lent<R>(&self, lent: &RwLock<Option<LentRegion>>, run: impl FnOnce(&LentRegion) -> R) -> Result<R, Fault> {
        let lent = lent.read().unwrap_or_else(PoisonError::into_inner);
        lent.as_ref().map(run).ok_or(Fault::of(FaultKind::NoSuchRegion, self.rank()))
    }

    /// A word of the user's memory has no address here: it would outlive the loan.
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
            Memory::Lent(lent) => self.while_lent(lent, |lent| memory::read_lent(lent, offset, into))?,
            Memory::Part(whole, at) => return whole.read(at + offset, into),
        }
        .ok_or(Fault::of(FaultKind::OutOfRange, self.rank()))
    }

    pub(super) fn write(&self, offset: u64, from: &[u8]) -> Result<(), Fault> {
        self.check(offset, from.len() as u64)?;
        match self.own()? {
            Memory::Allocated(own) => memory::write(own.memory(), offset, from),
            Memory::Lent(lent) => self.while_lent(lent, |lent| memory::write_lent(lent, offset, from))?,
            Memory::Part(whole, at) => return whole.write(at + offset, from),
        }
        .ok_or(Fault::of(FaultKind::OutOfRange, self.rank()))
    }
}

impl Memory {
    fn allocated(&self) -> Option<&Arc<MemoryRegion>> {
        match self {
            Self::Allocated(memory) => Some(memory),
            Self::Lent(_) | Self::Part(..) => None,
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

/// A word that was resolved: the way to it through the card, and to one's own by a look as well.
// Two machine words: where shared memory is chosen at run time, its words are as large as these (see `Any`).
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

    /// As the card at its owner counts.
    pub(super) const fn place(&self) -> Remote {
        Remote { address: self.of.key.address, key: self.of.key.rkey }.after(self.offset)
    }

    /// One's own word itself. An aligned load is atomic to the card's atomics; a change by the CPU is not, and there is
    /// none but [`store`](onesided_remote_memory::RemoteMemory::store), for words that nobody else may write at that time.
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
