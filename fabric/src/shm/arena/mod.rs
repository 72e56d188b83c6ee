//! Memory that is mapped once and reused, so that allocating a region costs no system call and no
//! help of other ranks.
//!
//! Each rank allocates its regions as *blocks* of one memory file; peers map the file when they
//! first open a block. Its length is address space alone: pages are allocated at the first write,
//! and free ranges keep theirs, up to a limit.
//!
//! A block is found by its region number, which contains a slot of the table at the file's start
//! and the slot's *generation*. No number is reused. A peer holds a reference to a block while it
//! has a segment of it (`hold`), and the owner reuses the range only when no peer does: a handle
//! that was kept too long accesses memory that no other region uses. The references of a killed
//! peer are never dropped.
//!
//! A range is zeroed when its use ends. For a large one that seems unwritten this is not worth the
//! time: it is set aside with its pages, whatever they hold. The pages are given up when other
//! ranges need the space, or the range itself is needed.
//!
//! A peer without address space for a whole arena maps only the blocks that it opens.
//!
//! Regions that do not fit here get a separate file: large ones, and all where the system or a
//! limit forbids the arena.

mod free;
mod owner;
#[cfg(test)]
mod tests;

use std::io;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use onesided_job::fork::is_child;
use onesided_remote_memory::RegionId;

use crate::shm::Mapping;
use crate::shm::arena::free::PAGE;
use crate::shm::gen_ref_count::GenRefCount;

pub(crate) use crate::shm::arena::owner::Owner;

/// Marks the regions that are blocks. On its own it is the arena itself, as it is published.
pub(crate) const BLOCK: u32 = 1 << 30;

// A block's region number, below the mark: the slot's generation, from 1 on, and the slot.
const SLOT_BITS: u32 = 14;
const LAST_USE: u32 = (1 << (30 - SLOT_BITS)) - 1;

// A slot of the table: the block's generation and reference count, its start, and its length.
const SLOT: u64 = 32;
const START_AT: u64 = 8;
const LEN_AT: u64 = 16;

/// One slot exists for this many bytes of the arena.
const BYTES_A_SLOT: u64 = 8 << 10;

fn slots_in(arena: u64) -> u32 {
    (arena / BYTES_A_SLOT).min(1 << SLOT_BITS) as u32
}

/// A rank's arena, as it is mapped here.
#[derive(Debug)]
pub(crate) struct Arena {
    /// All of it, or the table.
    memory: Arc<Mapping>,
    /// Without address space for all of it: its file, of which blocks are mapped one by one.
    rest: Option<OwnedFd>,
    slots: u32,
}

impl Arena {
    pub(crate) fn new(memory: Arc<Mapping>) -> Self {
        let slots = slots_in(memory.len() as u64);
        Self { memory, rest: None, slots }
    }

    /// A peer's arena that is too long to be mapped as a whole.
    ///
    /// # Errors
    /// As [`Mapping::part`].
    pub(crate) fn by_piece(file: OwnedFd) -> io::Result<Self> {
        let slots = slots_in(Mapping::length(&file)?);
        let table = Mapping::part(&file, 0, (u64::from(slots) * SLOT).next_multiple_of(PAGE))?;
        Ok(Self { memory: Arc::new(table), rest: Some(file), slots })
    }

    /// A field of a slot; `None` if there is no such slot.
    fn field(&self, slot: u32, at: u64) -> Option<&AtomicU64> {
        self.memory.word(u64::from(slot) * SLOT + at).filter(|_| slot < self.slots)
    }

    fn refs(&self, slot: u32) -> Option<GenRefCount<'_>> {
        self.field(slot, 0).map(GenRefCount)
    }

    /// Takes a peer's reference to a block. Returns the block, its start in its
    /// [memory](Block::memory), and its length.
    /// # Errors
    /// `NotFound` if the block does not exist or its use has ended; else the error of the mapping.
    pub(crate) fn open(self: &Arc<Self>, region: RegionId) -> io::Result<(Block, u64, u64)> {
        let (slot, number) = (slot_of(region), (region.0 & !BLOCK) >> SLOT_BITS);
        let held = number != 0 && self.refs(slot).is_some_and(|refs| refs.take(number));
        if !held {
            return Err(io::ErrorKind::NotFound.into());
        }
        let mut block = Block { arena: Arc::clone(self), slot, part: None, owner: None };
        let field = |at| self.field(slot, at).map_or(0, |field| field.load(Ordering::Relaxed));
        let (start, len) = (field(START_AT), field(LEN_AT));
        if start % 8 != 0 {
            return Err(io::ErrorKind::InvalidData.into()); // its words would be misaligned
        }
        let Some(file) = &self.rest else { return Ok((block, start, len)) };
        let page = start / PAGE * PAGE;
        let end = start.checked_add(len).and_then(|end| end.checked_next_multiple_of(PAGE));
        let end = end.ok_or(io::ErrorKind::InvalidData)?;
        block.part = Some(Arc::new(Mapping::part(file, page, end - page)?));
        Ok((block, start - page, len))
    }
}

/// The slot of a piece.
pub(crate) const fn slot_of(region: RegionId) -> u32 {
    region.0 & ((1 << SLOT_BITS) - 1)
}

fn region(slot: u32, number: u32) -> RegionId {
    RegionId(BLOCK | number << SLOT_BITS | slot)
}

/// A block that its owner uses, or that a peer references.
#[derive(Debug)]
pub(crate) struct Block {
    arena: Arc<Arena>,
    slot: u32,
    /// The mapping of this block alone.
    part: Option<Arc<Mapping>>,
    /// Set for an own block.
    owner: Option<Arc<Owner>>,
}

impl Block {
    /// The mapping that contains it.
    pub(crate) fn memory(&self) -> &Arc<Mapping> {
        self.part.as_ref().unwrap_or(&self.arena.memory)
    }
}

impl Drop for Block {
    fn drop(&mut self) {
        // A forked child's is a copy.
        if is_child() {
            return;
        }
        match &self.owner {
            Some(owner) => owner.end(self.slot),
            None => {
                if let Some(refs) = self.arena.refs(self.slot) {
                    refs.release();
                }
            }
        }
    }
}
