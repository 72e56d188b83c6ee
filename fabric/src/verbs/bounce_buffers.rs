//! The bounce buffers of operations.

use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, OnceLock};

use onesided_job::lock;
use onesided_remote_memory::{Fault, FaultKind};

use crate::util::free_list::{FreeList, NONE};
use crate::verbs::memory::BounceBuffer;
use crate::verbs::raw::{MemoryRegion, ProtectionDomain};

/// A slot's own cell: one cache line.
const CELL: usize = 64;
/// The size of a large bounce buffer.
const BUFFER: usize = 16 << 10;

/// The maximum number of bytes of one slot.
pub(super) const LONGEST: usize = BUFFER;

/// The slot of a request that has none: the post copies its bytes, and nobody awaits it.
pub(super) const NO_SLOT: u32 = u32::MAX >> 1;

/// What operations in flight need of this rank's memory: a state, a registered 64-byte cell, and a
/// large bounce buffer for more bytes. A slot has two holders: the send queue until the completion,
/// and the caller's future until its drop. The last holder frees it.
#[derive(Debug)]
pub(super) struct BounceBuffers {
    cells: Pool<State, CELL, 10>,
    buffers: Pool<(), BUFFER, 6>,
    ignored: OnceLock<u32>,
}

/// A slot that was taken, and its memory: the cell, or the buffer.
#[derive(Clone, Copy, Debug)]
pub(super) struct TakenSlot<'s> {
    pub(super) slot: u32,
    pub(super) buffer: BounceBuffer<'s>,
}

#[derive(Debug, Default)]
struct State {
    phase: AtomicU32,
    /// Valid in phase `DONE`: 0, or the completion's status.
    status: AtomicU32,
    buffer: AtomicU32,
}

impl State {
    #[inline]
    fn begin(&self, buffer: u32) {
        self.phase.store(POSTED, Ordering::Relaxed);
        self.buffer.store(buffer, Ordering::Relaxed);
    }
}

const POSTED: u32 = 0;
const DETACHED: u32 = 1;
const DONE: u32 = 2;
/// Of the slot of [`ignored`](BounceBuffers::ignored) requests, for ever.
const IGNORED: u32 = 3;

/// The outcome of a slot's operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Outcome {
    /// Its future will read it.
    Awaited,
    /// Not awaited, and successful or ignored.
    Unnoticed,
    /// Not awaited, and ended with this status.
    Missed(u32),
}

impl Outcome {
    #[inline]
    const fn unawaited(status: u32) -> Self {
        if status == 0 { Self::Unnoticed } else { Self::Missed(status) }
    }
}

impl BounceBuffers {
    pub(super) fn new(domain: &Arc<ProtectionDomain>) -> Self {
        Self { cells: Pool::new(domain, 64), buffers: Pool::new(domain, 64), ignored: OnceLock::new() }
    }

    /// Takes a slot for `len` bytes. `None` if none is free and no more can be made.
    #[inline]
    pub(super) fn take(&self, len: usize) -> Option<TakenSlot<'_>> {
        if len > CELL {
            return self.take_buffer(len);
        }
        let slot = self.cells.take()?;
        let (chunk, at) = self.cells.find(slot);
        chunk.items[at].state.begin(NONE);
        Some(TakenSlot { slot, buffer: BounceBuffer::new(&chunk.memory, (at * CELL) as u64) })
    }

    #[inline(never)]
    fn take_buffer(&self, len: usize) -> Option<TakenSlot<'_>> {
        debug_assert!(len <= LONGEST, "longer transfers go in pieces");
        let buffer = self.buffers.take()?;
        let Some(slot) = self.cells.take() else {
            self.buffers.give(buffer);
            return None;
        };
        self.state(slot).begin(buffer);
        Some(TakenSlot { slot, buffer: self.buffers.buffer(buffer) })
    }

    /// Why there is no slot, and none will be freed.
    pub(super) fn why_none(&self) -> Fault {
        let starved = [&self.cells.starved, &self.buffers.starved];
        let why = starved.into_iter().find_map(|starved| Fault::from_bits(starved.load(Ordering::Relaxed)));
        Fault::new(why.map_or(FaultKind::Full, Fault::kind))
    }

    #[inline]
    fn state(&self, slot: u32) -> &State {
        let (chunk, at) = self.cells.find(slot);
        &chunk.items[at].state
    }

    /// The first word of a slot without a large buffer.
    #[inline]
    pub(super) fn word(&self, slot: u32) -> &AtomicU64 {
        let (chunk, at) = self.cells.find(slot);
        BounceBuffer::new(&chunk.memory, (at * CELL) as u64).word()
    }

    /// The memory of a slot.
    #[inline]
    pub(super) fn buffer(&self, slot: u32) -> BounceBuffer<'_> {
        match self.state(slot).buffer.load(Ordering::Relaxed) {
            NONE => self.cells.buffer(slot),
            buffer => self.buffers.buffer(buffer),
        }
    }

    /// The status of the operation once it is done; its result is then in the
    /// [buffer](Self::buffer).
    #[inline]
    pub(super) fn status(&self, slot: u32) -> Option<u32> {
        let state = self.state(slot);
        (state.phase.load(Ordering::Acquire) == DONE).then(|| state.status.load(Ordering::Relaxed))
    }

    /// Changes the status of an operation that is done and awaited.
    pub(super) fn set_status(&self, slot: u32, status: u32) {
        self.state(slot).status.store(status, Ordering::Relaxed);
    }

    /// The send queue's release: the operation completed.
    #[inline]
    pub(super) fn complete(&self, slot: u32, status: u32) -> Outcome {
        if slot == NO_SLOT {
            return Outcome::unawaited(status);
        }
        let state = self.state(slot);
        if state.phase.load(Ordering::Relaxed) == IGNORED {
            return Outcome::Unnoticed;
        }
        state.status.store(status, Ordering::Relaxed);
        if state.phase.swap(DONE, Ordering::AcqRel) == POSTED {
            return Outcome::Awaited;
        }
        self.free(slot);
        Outcome::unawaited(status)
    }

    /// The slot of all requests of which only the completion counts: nobody reads what arrives there, or
    /// is told of a failure. They free the slots of others, and must not lack one themselves.
    pub(super) fn ignored(&self) -> Option<TakenSlot<'_>> {
        if self.ignored.get().is_none() {
            let slot = self.take(8)?.slot;
            self.state(slot).phase.store(IGNORED, Ordering::Relaxed);
            if self.ignored.set(slot).is_err() {
                self.free(slot);
            }
        }
        self.ignored.get().map(|slot| TakenSlot { slot: *slot, buffer: self.cells.buffer(*slot) })
    }

    /// The caller's release, whether or not the operation has completed.
    #[inline]
    pub(super) fn detach(&self, slot: u32) -> Outcome {
        let state = self.state(slot);
        if state.phase.swap(DETACHED, Ordering::AcqRel) == POSTED {
            return Outcome::Unnoticed;
        }
        let status = state.status.load(Ordering::Relaxed);
        self.free(slot);
        Outcome::unawaited(status)
    }

    /// Frees a slot that was never posted, or whose operation the caller has seen complete.
    #[inline]
    pub(super) fn free(&self, slot: u32) {
        let (chunk, at) = self.cells.find(slot);
        let item = &chunk.items[at];
        let buffer = item.state.buffer.load(Ordering::Relaxed);
        if buffer != NONE {
            self.buffers.give(buffer);
        }
        self.cells.free.give(slot, |_| &item.next);
    }
}

/// Buffers of registered memory, `SIZE` bytes each, each with a state. They are registered on
/// demand in chunks of 2^`SHIFT`.
#[derive(Debug)]
struct Pool<S, const SIZE: usize, const SHIFT: u32> {
    domain: Arc<ProtectionDomain>,
    chunks: Box<[OnceLock<Chunk<S>>]>,
    free: FreeList,
    /// The number of chunks.
    made: Mutex<u32>,
    /// Why the last requested chunk could not be made, as a fault's bits; 0 if it was.
    starved: AtomicU64,
}

#[derive(Debug)]
struct Chunk<S> {
    memory: MemoryRegion,
    items: Box<[Item<S>]>,
}

#[derive(Debug)]
struct Item<S> {
    /// The next free buffer, if this one is free.
    next: AtomicU32,
    state: S,
}

impl<S: Default, const SIZE: usize, const SHIFT: u32> Pool<S, SIZE, SHIFT> {
    const MANY: u32 = 1 << SHIFT;

    fn new(domain: &Arc<ProtectionDomain>, chunks: u32) -> Self {
        let chunks = (0..chunks).map(|_| OnceLock::new()).collect();
        let starved = AtomicU64::new(0);
        Self { domain: Arc::clone(domain), chunks, free: FreeList::new(), made: Mutex::default(), starved }
    }

    #[inline]
    fn take(&self) -> Option<u32> {
        self.free.take(|entry| self.next(entry)).or_else(|| self.grow())
    }

    #[inline]
    fn give(&self, entry: u32) {
        self.free.give(entry, |entry| self.next(entry));
    }

    /// Makes a chunk and takes a buffer of it.
    #[cold]
    fn grow(&self) -> Option<u32> {
        let mut made = lock(&self.made);
        if let Some(entry) = self.free.take(|entry| self.next(entry)) {
            return Some(entry); // another thread made the chunk
        }
        let chunk = self.chunks.get(*made as usize)?;
        // Failing to make a chunk is not an error yet: buffers are freed.
        let memory = MemoryRegion::new(&self.domain, (SIZE as u64) << SHIFT);
        self.starved.store(memory.as_ref().map_or_else(|error| error.fault().to_bits(), |_| 0), Ordering::Relaxed);
        let memory = memory.ok()?;
        let item = || Item { next: AtomicU32::new(NONE), state: S::default() };
        let items = (0..Self::MANY).map(|_| item()).collect();
        chunk.set(Chunk { memory, items }).ok()?;
        let first = *made << SHIFT;
        *made += 1;
        (first + 1..first + Self::MANY).rev().for_each(|entry| self.give(entry));
        Some(first)
    }

    /// A buffer's chunk, and its index there.
    #[inline]
    fn find(&self, entry: u32) -> (&Chunk<S>, usize) {
        let chunk = self.chunks[(entry >> SHIFT) as usize].get().expect("an entry belongs to a chunk that was made");
        (chunk, (entry & (Self::MANY - 1)) as usize)
    }

    #[inline]
    fn next(&self, entry: u32) -> &AtomicU32 {
        let (chunk, at) = self.find(entry);
        &chunk.items[at].next
    }

    #[inline]
    fn buffer(&self, entry: u32) -> BounceBuffer<'_> {
        let (chunk, at) = self.find(entry);
        BounceBuffer::new(&chunk.memory, (at * SIZE) as u64)
    }
}
