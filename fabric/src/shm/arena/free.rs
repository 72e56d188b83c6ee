//! Which places of an arena are free.

use std::collections::VecDeque;

/// A place of an arena: a power of two of bytes, of which one use needs `len`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Place {
    pub(super) start: u64,
    pub(super) class: u32,
    /// How many bytes of it are kept with their pages though it is free; its pages are not there if 0.
    pub(super) kept: u64,
    /// Whether it may still have contents: it is to be given up before it is used.
    pub(super) doubtful: bool,
}

/// The smallest place: a cache line. From a page up, places begin at pages.
const LINE: u32 = 6;
pub(super) const PAGE: u64 = 4096;

/// The places of an arena that are free: those that were used before and are zero, by size, those that may not be, and the
/// rest that was not used.
#[derive(Debug)]
pub(super) struct Free {
    /// Those that keep pages are taken first, and of these the one that came last: so it does not matter to those who use
    /// their memory that there are others.
    by_class: [VecDeque<Place>; 64],
    /// The oldest first. They are few, for each of them keeps pages.
    doubtful: Vec<Place>,
    next: u64,
    end: u64,
    kept: u64,
    most_kept: u64,
}

impl Free {
    /// Everything from `start` to `end`; free places may keep pages of so many bytes together.
    pub(super) fn new(start: u64, end: u64, most_kept: u64) -> Self {
        let by_class = [const { VecDeque::new() }; 64];
        Self { by_class, doubtful: Vec::new(), next: start, end, kept: 0, most_kept }
    }

    /// A place for `len` bytes; `None` if there is none, or the length has no class. One that is doubtful only if there is
    /// no other.
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

    /// Takes the doubtful place that came first, of those that keep pages which others need.
    pub(super) fn oldest_doubtful(&mut self) -> Option<Place> {
        (!self.doubtful.is_empty()).then(|| self.doubt(0))
    }

    fn doubt(&mut self, at: usize) -> Place {
        let place = self.doubtful.remove(at);
        self.kept -= place.kept;
        place
    }

    /// Whether a place could keep pages of so many bytes if no other did.
    pub(super) const fn may_keep(&self, bytes: u64) -> bool {
        bytes <= self.most_kept
    }

    /// Whether a place may keep pages of so many bytes; counted from now on.
    pub(super) fn keeps(&mut self, bytes: u64) -> bool {
        let may = self.kept + bytes <= self.most_kept;
        self.kept += if may { bytes } else { 0 };
        may
    }

    /// Gives a place back, whose `kept` bytes were [counted](Self::keeps).
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
