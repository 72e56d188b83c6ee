//! What a communicator keeps of its collectives.

use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use onesided_fabric::lock;
use onesided_fabric::remote_memory::{Fault, FaultKind};
use onesided_fabric::shm::CollectiveBuffers;

use crate::engine::{CallFailure, TOLD};

/// The most memory that is kept for the next calls, in bytes.
const KEPT: usize = 64 << 20;
/// What most calls need, without an allocation.
const SHORT: usize = 64;

/// The bits that say what a call is: those of its tag but its number.
const WHAT_BITS: u32 = 16;

/// The collectives of a communicator at a rank.
#[derive(Debug)]
pub(crate) struct State {
    /// The number of calls that have begun, above what the last one is ([`WHAT_BITS`]), and of those that are over.
    begun: AtomicU64,
    over: AtomicU64,
    /// Those of the members, if all are on this host.
    buffers: Option<CollectiveBuffers>,
    /// The failure of the earliest call that failed.
    failure: Mutex<Option<CallFailure>>,
    has_failed: AtomicBool,
    /// Memory for the next calls.
    kept: Mutex<Vec<Vec<u128>>>,
    /// The number of messages of collectives, of all communicators, that no call waits for yet, and
    /// whether a call has failed somewhere ([`TOLD`]).
    early: Arc<AtomicU32>,
}

impl State {
    pub(crate) fn new(early: Arc<AtomicU32>) -> Self {
        let (begun, over, kept) = (AtomicU64::new(0), AtomicU64::new(0), Mutex::default());
        let has_failed = AtomicBool::new(false);
        Self { begun, over, buffers: None, failure: Mutex::default(), has_failed, kept, early }
    }

    /// Before the first call.
    pub(crate) fn set_buffers(&mut self, buffers: Option<CollectiveBuffers>) {
        self.buffers = buffers;
    }

    #[inline]
    pub(super) const fn buffers(&self) -> Option<&CollectiveBuffers> {
        self.buffers.as_ref()
    }

    /// Whether there may be messages that no call waits for.
    #[inline]
    pub(super) fn has_early(&self) -> bool {
        self.early.load(Ordering::Relaxed) & !TOLD != 0
    }

    /// Whether a call of a communicator of this rank has failed somewhere.
    #[inline]
    pub(super) fn was_told(&self) -> bool {
        self.early.load(Ordering::Relaxed) & TOLD != 0
    }

    /// Begins a call: its number, and what the one before it was.
    pub(super) fn begin(&self, what: u16) -> (u64, u16) {
        let next = |begun: u64| Some(((begun >> WHAT_BITS) + 1) << WHAT_BITS | u64::from(what));
        let (Ok(before) | Err(before)) = self.begun.fetch_update(Ordering::Relaxed, Ordering::Relaxed, next);
        ((before >> WHAT_BITS) + 1, before as u16)
    }

    fn begun(&self) -> u64 {
        self.begun.load(Ordering::Relaxed) >> WHAT_BITS
    }

    /// A call is over. If all are, this rank has passed those before the last one: that one's contributions are
    /// compared with it by the next.
    #[inline]
    pub(super) fn end(&self) {
        // Acquire and release: what the calls of all threads have read comes before this rank has passed them.
        let over = self.over.fetch_add(1, Ordering::AcqRel) + 1;
        if let Some(buffers) = &self.buffers
            && self.begun() == over
        {
            buffers.pass(over - 1);
        }
    }

    /// Whether one call is under way, and none has failed: what that one left is no stray.
    pub(super) fn is_only(&self) -> bool {
        // In this order, so that a call that begins or fails meanwhile counts.
        let over = self.over.load(Ordering::Acquire);
        self.begun() == over + 1 && !self.has_failed.load(Ordering::Relaxed)
    }

    /// Keeps the failure of the earliest call that failed: `false` if one of this call or of an earlier one
    /// is kept already.
    pub(super) fn fail(&self, failure: CallFailure) -> bool {
        let mut earliest = lock(&self.failure);
        let is_new = earliest.is_none_or(|known| !known.ends(failure.number));
        if is_new {
            *earliest = Some(failure);
        }
        self.has_failed.store(true, Ordering::Relaxed);
        is_new
    }

    /// The failure of the earliest call, of this rank or of one that told it.
    #[inline]
    pub(super) fn failed(&self) -> Option<CallFailure> {
        if self.has_failed.load(Ordering::Relaxed) { *lock(&self.failure) } else { None }
    }

    /// Memory of at least so many bytes, which are anything, to be [kept](Self::keep) afterwards.
    pub(super) fn memory(&self, len: usize) -> Result<Vec<u128>, Fault> {
        let words = len.div_ceil(size_of::<u128>());
        if words == 0 {
            return Ok(Vec::new());
        }
        let mut memory = lock(&self.kept).pop().unwrap_or_default();
        memory.try_reserve_exact(words.saturating_sub(memory.len())).map_err(|_| Fault::new(FaultKind::NoMemory))?;
        if memory.len() < words {
            memory.resize(words, 0);
        }
        Ok(memory)
    }

    /// Keeps memory for the next calls.
    pub(super) fn keep(&self, memory: Vec<u128>) {
        let mut kept = lock(&self.kept);
        let bytes = |memory: &Vec<u128>| size_of_val(&memory[..]);
        if !memory.is_empty() && kept.iter().map(bytes).sum::<usize>() + bytes(&memory) <= KEPT {
            kept.push(memory);
        }
    }

    /// Memory of a length for a call.
    pub(super) fn scratch(&self, len: usize) -> Result<Scratch<'_>, Fault> {
        let memory = if len > SHORT { self.memory(len)? } else { Vec::new() };
        Ok(Scratch { state: self, short: [0; SHORT / size_of::<u128>()], memory, len })
    }
}

/// The first bytes of memory.
pub(super) fn bytes(words: &mut [u128], len: usize) -> &mut [u8] {
    &mut bytemuck::cast_slice_mut(words)[..len]
}

/// Memory of a call, which begins at a multiple of 16 bytes. Its bytes are anything.
pub(super) struct Scratch<'s> {
    state: &'s State,
    short: [u128; SHORT / size_of::<u128>()],
    memory: Vec<u128>,
    len: usize,
}

impl Scratch<'_> {
    pub(super) fn bytes(&mut self) -> &mut [u8] {
        bytes(if self.len > SHORT { &mut self.memory } else { &mut self.short }, self.len)
    }
}

impl Drop for Scratch<'_> {
    fn drop(&mut self) {
        if !self.memory.is_empty() {
            self.state.keep(std::mem::take(&mut self.memory));
        }
    }
}
