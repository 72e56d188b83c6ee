//! The free ranges of an arena.

use std::collections::VecDeque;

/// A range of an arena: its size is a power of two, of which one use needs `len` bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Place {
    pub(super) start: u64,
    pub(super) class: u32,
    /// How many bytes with pages the free range keeps; 0: it has no pages.
    pub(super) kept: u64,
    /// Whether it may still have contents: its pages are given up before it is used.
    pub(super) doubtful: bool,
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
    by_class: [VecDeque<Place>; 64],
    /// The oldest first. They are few, because each of them keeps pages.
    doubtful: Vec<Place>,
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
        Self { by_class, doubtful: Vec::new(), next: start, end, kept: 0, most_kept }
    }

    /// A range for `len` bytes; `None` if there is none, or the length has no size class. Ranges
    /// with unknown contents are the last choice.
    pub(super) fn take(&mut self, len: u64) -> Option<Place> {
        let class = len.checked_next_power_of_two()?.ilog2().max(LINE);
        if let Some(place) = self.by_class.get_mut(class as usize)?.pop_back() {
            self.kept -= place.kept;
            return Some(place);
        }
        self.unused(class).or_else(|| {
            let at = self.doubtful.iter().position(|place| place.class == class)?;
            Some(self.doubt(at))
        })
    }

    fn unused(&mut self, class: u32) -> Option<Place> {
        let bytes = 1_u64 << class;
        let start = self.next.checked_next_multiple_of(bytes.min(PAGE))?;
        self.next = start.checked_add(bytes).filter(|next| *next <= self.end)?;
        Some(Place { start, class, kept: 0, doubtful: false })
    }

    /// Takes the oldest range with unknown contents, whose pages are needed elsewhere.
    pub(super) fn oldest_doubtful(&mut self) -> Option<Place> {
        (!self.doubtful.is_empty()).then(|| self.doubt(0))
    }

    fn doubt(&mut self, at: usize) -> Place {
        let place = self.doubtful.remove(at);
        self.kept -= place.kept;
        place
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
    pub(super) fn give(&mut self, place: Place) {
        let places = &mut self.by_class[place.class as usize];
        if place.doubtful {
            self.doubtful.push(place);
        } else if place.kept > 0 || 1 << place.class < PAGE {
            places.push_back(place);
        } else {
            places.push_front(place);
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
        let mut taken: BTreeMap<u64, (u64, Place)> = BTreeMap::new();
        let mut state = 7_u64;
        let mut refused = 0;
        for _ in 0..20_000 {
            state = state.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
            let len = (state >> 33) % (1 << ((state >> 20) % 18)) + 1;
            if state >> 60 < 9 {
                let Some(place) = free.take(len) else {
                    refused += 1;
                    continue;
                };
                let end = place.start + (1 << place.class);
                assert!(len <= 1 << place.class && place.start >= 128 && end <= 1 << 20);
                assert_eq!(place.start % (1_u64 << place.class).min(PAGE), 0);
                let before = taken.range(..end).next_back();
                assert!(before.is_none_or(|(_, (theirs, _))| *theirs <= place.start), "{place:?} overlaps {before:?}");
                taken.insert(place.start, (end, place));
            } else if let Some((start, _)) = taken.range((state >> 30) % (1 << 20)..).next() {
                let (_, mut place) = taken.remove(&start.clone()).unwrap();
                let bytes = 1 << place.class;
                place.kept = if free.keeps(bytes) { bytes } else { 0 };
                place.doubtful = place.kept > 0 && state >> 40 & 1 == 0;
                assert!(free.kept <= 1 << 16);
                free.give(place);
            }
        }
        assert!(refused > 0, "the arena was never full");
        assert_eq!(free.take(0).map(|place| place.class), Some(LINE));
        assert_eq!((free.take(u64::MAX), free.take(1 << 63), free.take(2 << 20)), (None, None, None));
    }
}
