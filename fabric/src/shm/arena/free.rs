//! The free ranges of an arena.

use std::collections::VecDeque;

/// A range of an arena: its size is a power of two, of which one use needs `len` bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct FreeRange {
    pub(super) start: u64,
    pub(super) class: u32,
    /// How many bytes with pages the free range keeps; 0: it has no pages.
    pub(super) kept: u64,
    /// Whether it may still have contents: its pages are given up before it is used.
    pub(super) dirty: bool,
}

/// The smallest range: a cache line. From a page up, ranges are page-aligned.
const LINE: u32 = 6;
pub(super) const PAGE: u64 = 4096;

/// The free ranges of an arena: by size, ranges that were used and are zero; ranges that may not be
/// zero; and the unused rest.
#[derive(Debug)]
pub(super) struct Free {
    /// Ranges with pages are taken first, the last freed before the others, so unused ranges cost
    /// active users nothing.
    by_class: [VecDeque<FreeRange>; 64],
    /// The oldest first. They are few, because each of them keeps pages.
    dirty: Vec<FreeRange>,
    next: u64,
    end: u64,
    kept: u64,
    most_kept: u64,
}

impl Free {
    /// Everything from `start` to `end`; free ranges together keep pages of at most `most_kept`
    /// bytes.
    pub(super) fn new(start: u64, end: u64, most_kept: u64) -> Self {
        let by_class = [const { VecDeque::new() }; 64];
        Self { by_class, dirty: Vec::new(), next: start, end, kept: 0, most_kept }
    }

    /// A range for `len` bytes; `None` if there is none, or the length has no size class. Ranges
    /// with unknown contents are the last choice.
    pub(super) fn take(&mut self, len: u64) -> Option<FreeRange> {
        let class = len.checked_next_power_of_two()?.ilog2().max(LINE);
        if let Some(range) = self.by_class.get_mut(class as usize)?.pop_back() {
            self.kept -= range.kept;
            return Some(range);
        }
        self.unused(class).or_else(|| {
            let at = self.dirty.iter().position(|range| range.class == class)?;
            Some(self.take_dirty(at))
        })
    }

    fn unused(&mut self, class: u32) -> Option<FreeRange> {
        let bytes = 1_u64 << class;
        let start = self.next.checked_next_multiple_of(bytes.min(PAGE))?;
        self.next = start.checked_add(bytes).filter(|next| *next <= self.end)?;
        Some(FreeRange { start, class, kept: 0, dirty: false })
    }

    /// Takes the oldest range with unknown contents, whose pages are needed elsewhere.
    pub(super) fn oldest_dirty(&mut self) -> Option<FreeRange> {
        (!self.dirty.is_empty()).then(|| self.take_dirty(0))
    }

    fn take_dirty(&mut self, at: usize) -> FreeRange {
        let range = self.dirty.remove(at);
        self.kept -= range.kept;
        range
    }

    /// Whether a range could keep pages of this many bytes if no other did.
    pub(super) const fn may_keep(&self, bytes: u64) -> bool {
        bytes <= self.most_kept
    }

    /// Whether a range may keep pages of this many bytes; counts them if so.
    pub(super) fn keeps(&mut self, bytes: u64) -> bool {
        let may = self.kept + bytes <= self.most_kept;
        self.kept += if may { bytes } else { 0 };
        may
    }

    /// Frees a range whose `kept` bytes were [counted](Self::keeps).
    pub(super) fn give(&mut self, range: FreeRange) {
        let ranges = &mut self.by_class[range.class as usize];
        if range.dirty {
            self.dirty.push(range);
        } else if range.kept > 0 || 1 << range.class < PAGE {
            ranges.push_back(range);
        } else {
            ranges.push_front(range);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;

    #[test]
    fn places_do_not_overlap_and_come_back() {
        let mut free = Free::new(128, 1 << 20, 1 << 16);
        let mut taken: BTreeMap<u64, (u64, FreeRange)> = BTreeMap::new();
        let mut state = 7_u64;
        let mut refused = 0;
        for _ in 0..20_000 {
            state = state.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
            let len = (state >> 33) % (1 << ((state >> 20) % 18)) + 1;
            if state >> 60 < 9 {
                let Some(range) = free.take(len) else {
                    refused += 1;
                    continue;
                };
                let end = range.start + (1 << range.class);
                assert!(len <= 1 << range.class && range.start >= 128 && end <= 1 << 20);
                assert_eq!(range.start % (1_u64 << range.class).min(PAGE), 0);
                let before = taken.range(..end).next_back();
                assert!(before.is_none_or(|(_, (theirs, _))| *theirs <= range.start), "{range:?} overlaps {before:?}");
                taken.insert(range.start, (end, range));
            } else if let Some((start, _)) = taken.range((state >> 30) % (1 << 20)..).next() {
                let (_, mut range) = taken.remove(&start.clone()).unwrap();
                let bytes = 1 << range.class;
                range.kept = if free.keeps(bytes) { bytes } else { 0 };
                range.dirty = range.kept > 0 && state >> 40 & 1 == 0;
                assert!(free.kept <= 1 << 16);
                free.give(range);
            }
        }
        assert!(refused > 0, "the arena was never full");
        assert_eq!(free.take(0).map(|range| range.class), Some(LINE));
        assert_eq!((free.take(u64::MAX), free.take(1 << 63), free.take(2 << 20)), (None, None, None));
    }
}
