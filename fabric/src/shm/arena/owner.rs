//! The owner's side of an arena: blocks are allocated, and their ranges reused.

use std::collections::VecDeque;
use std::io;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex};

use onesided_job::fork::is_child;
use onesided_job::{Error, Exchange, lock};
use onesided_remote_memory::RegionId;
use rustix::process::{Resource, getrlimit};

use crate::shm::Mapping;
use crate::shm::arena::free::{Free, FreeRange, PAGE};
use crate::shm::arena::{Arena, BLOCK, Block, LAST_USE, LEN_AT, SLOT, START_AT, region, slots_in};
use crate::shm::gen_ref_count::GenRefCount;

/// The maximum length of an arena, of all ranks' arenas together, and the minimum, below which
/// there is none. It is bounded because a process that locks its memory (mlockall) has all pages of
/// its mappings.
const LONGEST: u64 = 128 << 20;
const LONGEST_TOGETHER: u64 = 8 << 30;
const SHORTEST: u64 = 1 << 20;
/// The maximum share of an arena for one block, as a divisor.
const PIECES: u64 = 4;

/// Up to this many bytes a block has its pages when it is allocated, near its owner's CPU.
const PRESENT: u64 = 64 << 10;
/// How many bytes of pages free ranges keep at most, and those of all ranks together.
const KEPT_BYTES: u64 = 32 << 20;
const KEPT_BYTES_TOGETHER: u64 = 256 << 20;

/// How many pages of a large block its owner checks for contents.
const SAMPLES: u64 = 64;

/// How many blocks that peers still referenced are checked again at an allocation.
const PROBES: usize = 8;

/// This rank's arena, from which it allocates.
#[derive(Debug)]
pub(crate) struct Owner {
    arena: Arc<Arena>,
    exchange: Arc<dyn Exchange>,
    state: Mutex<State>,
}

#[derive(Debug)]
struct State {
    free: Free,
    /// The last use of each used slot.
    uses: Vec<Use>,
    /// Slots that may be used again.
    spare: Vec<u32>,
    /// Slots whose use has ended while peers held references.
    ended: VecDeque<u32>,
}

/// The use of a slot.
#[derive(Clone, Copy, Debug)]
struct Use {
    number: u32,
    range: FreeRange,
    len: u64,
}

impl Owner {
    /// Makes an arena for one of `ranks` ranks, and publishes it. `None`: limits or the system
    /// forbid it.
    ///
    /// # Errors
    /// As [`Mapping::sparse`] and [`Exchange::publish`].
    pub(crate) fn create(exchange: Arc<dyn Exchange>, ranks: u32) -> Result<Option<Arc<Self>>, Error> {
        let Some(len) = length(ranks) else { return Ok(None) };
        let failed = |source: io::Error| Error::Join { what: "make an arena".to_owned(), source: Some(source) };
        let memory = Arc::new(Mapping::sparse(len as usize).map_err(failed)?);
        exchange.publish(RegionId(BLOCK), &memory)?;
        let kept = KEPT_BYTES.min(KEPT_BYTES_TOGETHER / u64::from(ranks));
        Ok(Some(Arc::new(Self::over(memory, exchange, kept))))
    }

    pub(super) fn over(memory: Arc<Mapping>, exchange: Arc<dyn Exchange>, kept: u64) -> Self {
        let len = memory.len() as u64;
        let blocks = u64::from(slots_in(len)) * SLOT;
        let free = Free::new(blocks, len, kept);
        let (uses, spare, ended) = (Vec::new(), Vec::new(), VecDeque::new());
        let state = Mutex::new(State { free, uses, spare, ended });
        Self { arena: Arc::new(Arena::new(memory)), exchange, state }
    }

    pub(crate) const fn arena(&self) -> &Arc<Arena> {
        &self.arena
    }

    /// Acts as if all slots used so far had been used `number` times.
    #[cfg(test)]
    pub(super) fn age(&self, number: u32) {
        lock(&self.state).uses.iter_mut().for_each(|used| used.number = number);
    }

    fn refs(&self, slot: u32) -> GenRefCount<'_> {
        self.arena.refs(slot).expect("a slot that was used is in the table")
    }

    /// Allocates `len` zeroed bytes: their region, and their start. `None` if they do not fit, or
    /// are too many.
    pub(crate) fn allocate(self: &Arc<Self>, len: u64) -> Option<(RegionId, Block, u64)> {
        if len == 0 || len > self.arena.memory.len() as u64 / PIECES {
            return None;
        }
        self.look_again();
        let (slot, Use { number, range, .. }) = lock(&self.state).take(len, self.arena.slots)?;
        if range.dirty {
            self.give_up(range);
        }
        if range.kept == 0 && len <= PRESENT {
            self.arena.memory.zero(range.start, len); // allocates its pages
        }
        for (at, value) in [(START_AT, range.start), (LEN_AT, len)] {
            self.arena.field(slot, at)?.store(value, Ordering::Relaxed);
        }
        self.refs(slot).begin(number);
        let arena = Arc::clone(&self.arena);
        let block = Block { arena, slot, part: None, owner: Some(Arc::clone(self)) };
        Some((region(slot, number), block, range.start))
    }

    /// Ends a block's use.
    pub(super) fn end(&self, slot: u32) {
        if self.refs(slot).end() {
            self.clean(slot);
        } else {
            lock(&self.state).ended.push_back(slot);
        }
    }

    /// Checks some of the ended blocks whose references peers may have dropped since.
    fn look_again(&self) {
        for _ in 0..PROBES {
            let Some(slot) = lock(&self.state).ended.pop_front() else { return };
            if self.refs(slot).is_left() {
                self.clean(slot);
            } else {
                lock(&self.state).ended.push_back(slot);
            }
        }
    }

    /// Frees a range that no rank references.
    fn clean(&self, slot: u32) {
        let Use { number, range, len } = lock(&self.state).uses[slot as usize];
        let range = self.wipe(range, len);
        let mut state = lock(&self.state);
        state.free.give(range);
        if number < LAST_USE {
            state.spare.push(slot);
        }
    }

    /// Zeroes a range of which `len` bytes were used; returns it with its remaining pages. Zeroing
    /// a page costs a fraction of a new one.
    fn wipe(&self, range: FreeRange, len: u64) -> FreeRange {
        let (memory, all) = (&self.arena.memory, 1_u64 << range.class);
        let free = |kept, dirty| FreeRange { kept, dirty, ..range };
        if all < PAGE {
            memory.zero(range.start, len);
            return free(0, false);
        }
        // A small range has its pages. A large one has those touched in this use or an earlier,
        // perhaps longer one; bytes beyond this use are then zero.
        let ranges = if len <= PRESENT { Ok(vec![(range.start, all)]) } else { memory.present(range.start, all) };
        if let Ok(ranges) = &ranges {
            let bytes = ranges.iter().map(|(_, len)| len).sum();
            if bytes == 0 {
                return free(0, false);
            }
            if self.keeps(bytes) {
                let end = range.start + len.next_multiple_of(PAGE);
                let used = || ranges.iter().map(|(at, len)| (*at, (*len).min(end.saturating_sub(*at))));
                // What was not written this time may not be written the next time: zeroing it would
                // be wasted.
                if len > PRESENT && self.looks_untouched(used()) {
                    return free(bytes, true);
                }
                used().for_each(|(at, len)| memory.zero(at, len));
                return free(bytes, false);
            }
        }
        self.give_up(range);
        free(0, false)
    }

    /// Whether sampled pages of the ranges are zero. Checking every page takes longer than zeroing
    /// it.
    fn looks_untouched(&self, ranges: impl Iterator<Item = (u64, u64)> + Clone) -> bool {
        let pages: u64 = ranges.clone().map(|(_, len)| len / PAGE).sum();
        let step = pages.div_ceil(SAMPLES).max(1);
        let all = ranges.flat_map(|(at, len)| (at..at + len).step_by(PAGE as usize));
        all.step_by(step as usize).all(|page| self.arena.memory.is_zero(page, PAGE))
    }

    /// Whether a range may keep pages of this many bytes; counts them if so. Ranges with unknown
    /// contents make room.
    fn keeps(&self, bytes: u64) -> bool {
        loop {
            let mut state = lock(&self.state);
            if state.free.keeps(bytes) {
                return true;
            }
            let dirty = if state.free.may_keep(bytes) { state.free.oldest_dirty() } else { None };
            drop(state);
            let Some(range) = dirty else { return false };
            self.give_up(range);
            lock(&self.state).free.give(FreeRange { kept: 0, dirty: false, ..range });
        }
    }

    /// Returns all pages that a range may have to the system, which zeroes it.
    fn give_up(&self, range: FreeRange) {
        let (memory, all) = (&self.arena.memory, 1_u64 << range.class);
        if memory.discard(range.start, all).is_err() {
            memory.zero(range.start, all);
        }
    }
}

impl State {
    fn take(&mut self, len: u64, slots: u32) -> Option<(u32, Use)> {
        if self.spare.is_empty() && self.uses.len() >= slots as usize {
            return None;
        }
        let range = self.free.take(len)?;
        let slot = self.spare.pop().unwrap_or(self.uses.len() as u32);
        let number = self.uses.get(slot as usize).map_or(0, |last| last.number) + 1;
        let new = Use { number, range, len };
        match self.uses.get_mut(slot as usize) {
            Some(last) => *last = new,
            None => self.uses.push(new),
        }
        Some((slot, new))
    }
}

impl Drop for Owner {
    fn drop(&mut self) {
        if !is_child() {
            self.exchange.retract(RegionId(BLOCK));
        }
    }
}

/// The maximum length of an arena in a world of this size, each of whose ranks maps all arenas.
fn length(ranks: u32) -> Option<u64> {
    if !Mapping::reserves() {
        return None;
    }
    let ranks = u64::from(ranks.max(1));
    let addresses = getrlimit(Resource::As).current.map_or(u64::MAX, |limit| limit / (16 * ranks));
    let file = getrlimit(Resource::Fsize).current.unwrap_or(u64::MAX);
    let most = LONGEST.min(LONGEST_TOGETHER / ranks).min(addresses).min(file);
    (most >= SHORTEST).then(|| 1 << most.ilog2())
}
