//! Memory that is mapped once and used again and again, so that a region costs no system call and nobody's help.
//!
//! Each rank has one memory file of which it cuts its regions, *pieces*, when it allocates; peers map the file when they
//! first meet one. Its length is address space alone: pages come when they are first written, and places keep them while
//! they are free, up to a limit.
//!
//! A piece is found by its region's number, which names a slot of the table at the file's beginning and a *use* of that
//! slot. No number comes twice. A peer holds a piece for as long as it has a segment of it (`hold`), and the owner uses its
//! place again only when nobody does: who kept a handle too long reaches memory that nobody else has. A peer that was killed
//! holds for ever what it held.
//!
//! A place is zeroed when its use ends. Of a large one that nobody seems to have written to this is not worth the while:
//! it is put aside with its pages, whatever they hold, and they are given up when others need their room, or the place itself
//! is needed.
//!
//! A peer that has no room for all of an arena maps the pieces that it meets.
//!
//! What has no room here gets a file of its own: large regions, and all of them where the system or a limit forbids the
//! arena.

mod free;
mod owner;
#[cfg(test)]
mod tests;

use std::io;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use onesided_job::Maker;
use onesided_remote_memory::RegionId;

use crate::shm::Mapping;
use crate::shm::arena::free::PAGE;
use crate::shm::hold::Hold;

pub(crate) use crate::shm::arena::owner::Owner;

/// Marks the regions that are pieces. With nothing else it is the arena itself, as it is published.
pub(crate) const PIECE: u32 = 1 << 30;

// A piece's region, below the mark: which use of the slot it is, from 1 on, and the slot.
const SLOT_BITS: u32 = 14;
const LAST_USE: u32 = (1 << (30 - SLOT_BITS)) - 1;

// A slot of the table: who holds the piece, where it begins, and how long it is.
const SLOT: u64 = 32;
const START_AT: u64 = 8;
const LEN_AT: u64 = 16;

/// Of how many bytes of the arena there is one slot.
const BYTES_A_SLOT: u64 = 8 << 10;

fn slots_in(arena: u64) -> u32 {
    (arena / BYTES_A_SLOT).min(1 << SLOT_BITS) as u32
}

/// A rank's arena, as it is mapped here.
#[derive(Debug)]
pub(crate) struct Arena {
    /// All of it, or the table.
    memory: Arc<Mapping>,
    /// Where there is no room for all of it: its file, of which pieces are mapped one by one.
    rest: Option<OwnedFd>,
    slots: u32,
}

impl Arena {
    pub(crate) fn new(memory: Arc<Mapping>) -> Self {
        let slots = slots_in(memory.len() as u64);
        Self { memory, rest: None, slots }
    }

    /// A peer's that is too long to be mapped as a whole.
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

    fn hold(&self, slot: u32) -> Option<Hold<'_>> {
        self.field(slot, 0).map(Hold)
    }

    /// Holds a piece for a peer. Gives it with where it begins in its [memory](Piece::memory), and how long it is.
    ///
    /// # Errors
    /// `NotFound` if there is no such piece, or no longer; what forbids to map it.
    pub(crate) fn open(self: &Arc<Self>, region: RegionId) -> io::Result<(Piece, u64, u64)> {
        let (slot, number) = (slot_of(region), (region.0 & !PIECE) >> SLOT_BITS);
        let held = number != 0 && self.hold(slot).is_some_and(|hold| hold.take(number));
        if !held {
            return Err(io::ErrorKind::NotFound.into());
        }
        let mut piece = Piece { arena: Arc::clone(self), slot, part: None, owner: None, maker: Maker::this() };
        let field = |at| self.field(slot, at).map_or(0, |field| field.load(Ordering::Relaxed));
        let (start, len) = (field(START_AT), field(LEN_AT));
        if start % 8 != 0 {
            return Err(io::ErrorKind::InvalidData.into()); // its words would not be aligned
        }
        let Some(file) = &self.rest else { return Ok((piece, start, len)) };
        let page = start / PAGE * PAGE;
        let end = start.checked_add(len).and_then(|end| end.checked_next_multiple_of(PAGE));
        let end = end.ok_or(io::ErrorKind::InvalidData)?;
        piece.part = Some(Arc::new(Mapping::part(file, page, end - page)?));
        Ok((piece, start - page, len))
    }
}

/// The slot of a piece.
pub(crate) const fn slot_of(region: RegionId) -> u32 {
    region.0 & ((1 << SLOT_BITS) - 1)
}

fn region(slot: u32, number: u32) -> RegionId {
    RegionId(PIECE | number << SLOT_BITS | slot)
}

/// A piece that its owner uses, or that a peer holds.
#[derive(Debug)]
pub(crate) struct Piece {
    arena: Arc<Arena>,
    slot: u32,
    /// What is mapped of it alone.
    part: Option<Arc<Mapping>>,
    /// One's own.
    owner: Option<Arc<Owner>>,
    maker: Maker,
}

impl Piece {
    /// Where it is mapped.
    pub(crate) fn memory(&self) -> &Arc<Mapping> {
        self.part.as_ref().unwrap_or(&self.arena.memory)
    }
}

impl Drop for Piece {
    fn drop(&mut self) {
        // A forked child's is a copy.
        if !self.maker.is_here() {
            return;
        }
        match &self.owner {
            Some(owner) => owner.end(self.slot),
            None => {
                if let Some(hold) = self.arena.hold(self.slot) {
                    hold.release();
                }
            }
        }
    }
}
