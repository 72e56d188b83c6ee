//! The owner's side of an arena: blocks are allocated, and their ranges reused.

use std::collections::VecDeque;
use std::io;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use onesided_remote_memory::RegionId;
use rustix::process::{Resource, getrlimit};

use crate::Error;
use crate::bootstrap::{Exchange, Maker};
use crate::shm::Mapping;
use crate::shm::arena::free::{Free, PAGE, Place};
use crate::shm::arena::{Arena, LAST_USE, LEN_AT, PIECE, Piece, SLOT, START_AT, region, slots_in};
use crate::shm::hold::Hold;

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
const KEPT: u64 = 32 << 20;
const KEPT_TOGETHER: u64 = 256 << 20;

/// How many pages of a large block its owner checks for contents.
const SAMPLES: u64 = 64;

/// How many blocks that peers still referenced are checked again at an allocation.
const LOOKS: usize = 8;

/// This rank's arena, from which it allocates.
#[derive(Debug)]
pub(crate) struct Owner {
    arena: Arc<Arena>,
    exchange: Arc<dyn Exchange>,
    maker: Maker,
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
    place: Place,
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
        exchange.publish(RegionId(PIECE), &memory)?;
        let kept = KEPT.min(KEPT_TOGETHER / u64::from(ranks));
        Ok(Some(Arc::new(Self::over(memory, exchange, kept))))
    }

    pub(super) fn over(memory: Arc<Mapping>, exchange: Arc<dyn Exchange>, kept: u64) -> Self {
        let len = memory.len() as u64;
        let pieces = u64::from(slots_in(len)) * SLOT;
        let free = Free::new(pieces, len, kept);
        let (uses, spare, ended) = (Vec::new(), Vec::new(), VecDeque::new());
        let state = Mutex::new(State { free, uses, spare, ended });
        Self { arena: Arc::new(Arena::new(memory)), exchange, maker: Maker::this(), state }
    }

    pub(crate) const fn arena(&self) -> &Arc<Arena> {
        &self.arena
    }

    /// Acts as if all slots used so far had been used `number` times.
    #[cfg(test)]
    pub(super) fn age(&self, number: u32) {
        self.state().uses.iter_mut().for_each(|used| used.number = number);
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn hold(&self, slot: u32) -> Hold<'_> {
        self.arena.hold(slot).expect("a slot that was used is in the table")
    }

    /// Allocates `len` zeroed bytes: their region, and their start. `None` if they do not fit, or
    /// are too many.
    pub(crate) fn allocate(self: &Arc<Self>, len: u64) -> Option<(RegionId, Piece, u64)> {
        if len == 0 || len > self.arena.memory.len() as u64 / PIECES {
            return None;
        }
        self.look_again();
        let (slot, Use { number, place, .. }) = self.state().take(len, self.arena.slots)?;
        if place.doubtful {
            self.give_up(place);
        }
        if place.kept == 0 && len <= PRESENT {
            self.arena.memory.zero(place.start, len); // allocates its pages
        }
        for (at, value) in [(START_AT, place.start), (LEN_AT, len)] {
            self.arena.field(slot, at)?.store(value, Ordering::Relaxed);
        }
        self.hold(slot).begin(number);
        let arena = Arc::clone(&self.arena);
        let piece = Piece { arena, slot, part: None, owner: Some(Arc::clone(self)), maker: self.maker };
        Some((region(slot, number), piece, place.start))
    }

    /// Ends a block's use.
    pub(super) fn end(&self, slot: u32) {
        if self.hold(slot).end() {
            self.clean(slot);
        } else {
            self.state().ended.push_back(slot);
        }
    }

    /// Checks some of the ended blocks whose references peers may have dropped since.
    fn look_again(&self) {
        for _ in 0..LOOKS {
            let Some(slot) = self.state().ended.pop_front() else { return };
            if self.hold(slot).is_left() {
                self.clean(slot);
            } else {
                self.state().ended.push_back(slot);
            }
        }
    }

    /// Frees a range that no rank references.
    fn clean(&self, slot: u32) {
        let Use { number, place, len } = self.state().uses[slot as usize];
        let place = self.wipe(place, len);
        let mut state = self.state();
        state.free.give(place);
        if number < LAST_USE {
            state.spare.push(slot);
        }
    }

    /// Zeroes a range of which `len` bytes were used; returns it with its remaining pages. Zeroing
    /// a page costs a fraction of a new one.
    fn wipe(&self, place: Place, len: u64) -> Place {
        let (memory, all) = (&self.arena.memory, 1_u64 << place.class);
        let free = |kept, doubtful| Place { kept, doubtful, ..place };
        if all < PAGE {
            memory.zero(place.start, len);
            return free(0, false);
        }
        // A small range has its pages. A large one has those touched in this use or an earlier,
        // perhaps longer one; bytes beyond this use are then zero.
        let ranges = if len <= PRESENT { Ok(vec![(place.start, all)]) } else { memory.present(place.start, all) };
        if let Ok(ranges) = &ranges {
            let bytes = ranges.iter().map(|(_, len)| len).sum();
            if bytes == 0 {
                return free(0, false);
            }
            if self.keeps(bytes) {
                let end = place.start + len.next_multiple_of(PAGE);
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
        self.give_up(place);
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
            let mut state = self.state();
            if state.free.keeps(bytes) {
                return true;
            }
            let doubtful = if state.free.may_keep(bytes) { state.free.oldest_doubtful() } else { None };
            drop(state);
            let Some(place) = doubtful else { return false };
            self.give_up(place);
            self.state().free.give(Place { kept: 0, doubtful: false, ..place });
        }
    }

    /// Returns all pages that a range may have to the system, which zeroes it.
    fn give_up(&self, place: Place) {
        let (memory, all) = (&self.arena.memory, 1_u64 << place.class);
        if memory.discard(place.start, all).is_err() {
            memory.zero(place.start, all);
        }
    }
}

impl State {
    fn take(&mut self, len: u64, slots: u32) -> Option<(u32, Use)> {
        if self.spare.is_empty() && self.uses.len() >= slots as usize {
            return None;
        }
        let place = self.free.take(len)?;
        let slot = self.spare.pop().unwrap_or(self.uses.len() as u32);
        let number = self.uses.get(slot as usize).map_or(0, |last| last.number) + 1;
        let new = Use { number, place, len };
        match self.uses.get_mut(slot as usize) {
            Some(last) => *last = new,
            None => self.uses.push(new),
        }
        Some((slot, new))
    }
}

impl Drop for Owner {
    fn drop(&mut self) {
        if self.maker.is_here() {
            self.exchange.retract(RegionId(PIECE));
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
