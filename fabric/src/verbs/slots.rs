//! The landing slots of operations.

use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

use remote_memory::{Fault, FaultKind};

use crate::free_list::{FreeList, NONE};
use crate::verbs::memory::Piece;
use crate::verbs::raw::{MemoryRegion, ProtectionDomain};

/// A slot's own cell: one cache line.
const CELL: u64 = 64;
/// A staging buffer.
const BUFFER: u64 = 16 << 10;

/// Up to how many bytes travel through a slot.
pub(super) const LONGEST: usize = BUFFER as usize;

/// What operations under way need of this rank's memory: a state, a 64-byte registered cell, and for more bytes a
/// staging buffer. A slot has two holders, the send queue until the completion and the caller's future until it is
/// dropped; whoever lets go last frees it.
#[derive(Debug)]
pub(super) struct Slots {
    cells: Pool,
    buffers: Pool,
    states: Box<[OnceLock<Box<[State]>>]>,
}

#[derive(Debug)]
struct State {
    phase: AtomicU32,
    /// Valid in phase `DONE`: 0, or the completion's status.
    status: AtomicU32,
    buffer: AtomicU32,
}

const POSTED: u32 = 0;
const DETACHED: u32 = 1;
const DONE: u32 = 2;

/// What became of a slot's operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Outcome {
    /// Its future will see.
    Awaited,
    /// Nobody waited for it, and it went well.
    Unnoticed,
    /// Nobody waited for it, and it ended in this status.
    Missed(u32),
}

impl Slots {
    pub(super) fn new(domain: &Arc<ProtectionDomain>) -> Self {
        let cells = Pool::new(domain, CELL, 10, 64);
        let states = (0..cells.chunks.len()).map(|_| OnceLock::new()).collect();
        Self { cells, buffers: Pool::new(domain, BUFFER, 6, 64), states }
    }

    /// Takes a slot for `len` bytes. `None` if there is none now, and no more can be made.
    #[inline]
    pub(super) fn take(&self, len: usize) -> Option<u32> {
        debug_assert!(len <= LONGEST, "longer transfers go in pieces");
        let buffer = if len > CELL as usize { self.buffers.take()? } else { NONE };
        let Some(slot) = self.cells.take() else {
            self.give_buffer(buffer);
            return None;
        };
        let state = self.state(slot);
        state.phase.store(POSTED, Ordering::Relaxed);
        state.buffer.store(buffer, Ordering::Relaxed);
        Some(slot)
    }

    /// Why there is no slot, and none to come back.
    pub(super) fn why_none(&self) -> Fault {
        let starved = [&self.cells, &self.buffers].into_iter().any(|pool| pool.starved.load(Ordering::Relaxed));
        Fault::new(if starved { FaultKind::NoMemory } else { FaultKind::Full })
    }

    #[inline]
    fn state(&self, slot: u32) -> &State {
        let (chunk, at) = self.cells.place(slot);
        let states = self.states[chunk].get_or_init(|| {
            let state =
                || State { phase: AtomicU32::new(POSTED), status: AtomicU32::new(0), buffer: AtomicU32::new(NONE) };
            (0..1 << self.cells.shift).map(|_| state()).collect()
        });
        &states[at]
    }

    /// The memory of a slot.
    #[inline]
    pub(super) fn piece(&self, slot: u32) -> Piece<'_> {
        match self.state(slot).buffer.load(Ordering::Relaxed) {
            NONE => self.cells.piece(slot),
            buffer => self.buffers.piece(buffer),
        }
    }

    /// The status of the operation once it is done; what it brought is in the [piece](Self::piece) then.
    #[inline]
    pub(super) fn status(&self, slot: u32) -> Option<u32> {
        let state = self.state(slot);
        (state.phase.load(Ordering::Acquire) == DONE).then(|| state.status.load(Ordering::Relaxed))
    }

    /// The send queue lets go: the operation completed.
    #[inline]
    pub(super) fn complete(&self, slot: u32, status: u32) -> Outcome {
        let state = self.state(slot);
        state.status.store(status, Ordering::Relaxed);
        if state.phase.swap(DONE, Ordering::AcqRel) == POSTED {
            return Outcome::Awaited;
        }
        self.free(slot);
        if status == 0 { Outcome::Unnoticed } else { Outcome::Missed(status) }
    }

    /// The caller lets go, not knowing whether the operation has completed.
    #[inline]
    pub(super) fn detach(&self, slot: u32) -> Outcome {
        let state = self.state(slot);
        if state.phase.swap(DETACHED, Ordering::AcqRel) == POSTED {
            return Outcome::Unnoticed;
        }
        let status = state.status.load(Ordering::Relaxed);
        self.free(slot);
        if status == 0 { Outcome::Unnoticed } else { Outcome::Missed(status) }
    }

    /// Gives back a slot that was never posted, or whose operation the caller has seen to be done.
    #[inline]
    pub(super) fn free(&self, slot: u32) {
        self.give_buffer(self.state(slot).buffer.load(Ordering::Relaxed));
        self.cells.give(slot);
    }

    #[inline]
    fn give_buffer(&self, buffer: u32) {
        if buffer != NONE {
            self.buffers.give(buffer);
        }
    }
}

/// Pieces of registered memory, all of one size, registered by the chunk as they are needed.
#[derive(Debug)]
struct Pool {
    domain: Arc<ProtectionDomain>,
    size: u64,
    /// A chunk has 2 to the power of this many pieces.
    shift: u32,
    chunks: Box<[OnceLock<Chunk>]>,
    free: FreeList,
    /// How many chunks there are.
    made: Mutex<u32>,
    /// Whether the last chunk that was asked for could not be had.
    starved: AtomicBool,
}

#[derive(Debug)]
struct Chunk {
    memory: MemoryRegion,
    /// Of each free piece the one behind it.
    next: Box<[AtomicU32]>,
}

impl Pool {
    /// Pieces of `size` bytes, 2^`shift` in a chunk.
    fn new(domain: &Arc<ProtectionDomain>, size: u64, shift: u32, chunks: u32) -> Self {
        let chunks = (0..chunks).map(|_| OnceLock::new()).collect();
        Self {
            domain: Arc::clone(domain),
            size,
            shift,
            chunks,
            free: FreeList::new(),
            made: Mutex::default(),
            starved: AtomicBool::new(false),
        }
    }

    #[inline]
    fn take(&self) -> Option<u32> {
        self.free.take(|piece| self.next(piece)).or_else(|| self.grow())
    }

    #[inline]
    fn give(&self, piece: u32) {
        self.free.give(piece, |piece| self.next(piece));
    }

    /// Makes a chunk and takes a piece of it.
    #[cold]
    fn grow(&self) -> Option<u32> {
        let mut made = self.made.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(piece) = self.free.take(|piece| self.next(piece)) {
            return Some(piece); // somebody else made the chunk
        }
        let chunk = self.chunks.get(*made as usize)?;
        // A chunk that cannot be had is no error yet: pieces come back.
        let memory = MemoryRegion::new(&self.domain, self.size << self.shift);
        self.starved.store(memory.is_err(), Ordering::Relaxed);
        let memory = memory.ok()?;
        let next = (0..1 << self.shift).map(|_| AtomicU32::new(NONE)).collect();
        chunk.set(Chunk { memory, next }).ok()?;
        let first = *made << self.shift;
        *made += 1;
        (first + 1..first + (1 << self.shift)).rev().for_each(|piece| self.give(piece));
        Some(first)
    }

    #[inline]
    const fn place(&self, piece: u32) -> (usize, usize) {
        ((piece >> self.shift) as usize, (piece & ((1 << self.shift) - 1)) as usize)
    }

    #[inline]
    fn chunk(&self, chunk: usize) -> &Chunk {
        self.chunks[chunk].get().expect("a piece is of a chunk that was made")
    }

    #[inline]
    fn next(&self, piece: u32) -> &AtomicU32 {
        let (chunk, at) = self.place(piece);
        &self.chunk(chunk).next[at]
    }

    #[inline]
    fn piece(&self, piece: u32) -> Piece<'_> {
        let (chunk, at) = self.place(piece);
        Piece::new(&self.chunk(chunk).memory, at as u64 * self.size)
    }
}
