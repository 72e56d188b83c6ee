//! The blocks of ranks in a slice.

use std::ops::Range;

/// A rank's own block of a collective: a slice, or none because it is in its place among the others
/// already ([`InPlace`]). Slices, arrays and vectors convert to it.
#[derive(Debug)]
pub enum Block<S> {
    /// The block.
    Slice(S),
    /// In its place among the blocks of all ranks.
    InPlace,
}

impl<S> Block<S> {
    pub(super) fn slice(self) -> Option<S> {
        match self {
            Self::Slice(slice) => Some(slice),
            Self::InPlace => None,
        }
    }
}

/// In place of a rank's own block: it is in its place among the blocks of all ranks, or is to stay
/// there (`MPI_IN_PLACE`).
#[derive(Clone, Copy, Debug)]
pub struct InPlace;

impl<S> From<InPlace> for Block<S> {
    fn from(InPlace: InPlace) -> Self {
        Self::InPlace
    }
}

macro_rules! slices {
    ($([$($parameters:tt)*] $from:ty, $slice:ty;)*) => {$(
        impl<$($parameters)*> From<$from> for Block<$slice> {
            fn from(slice: $from) -> Self {
                Self::Slice(slice)
            }
        }
    )*};
}

slices! {
    ['m, T] &'m [T], &'m [T];
    ['m, T] &'m Vec<T>, &'m [T];
    ['m, T, const N: usize] &'m [T; N], &'m [T];
    ['m, T] &'m mut [T], &'m mut [T];
    ['m, T] &'m mut Vec<T>, &'m mut [T];
    ['m, T, const N: usize] &'m mut [T; N], &'m mut [T];
}

/// Where the blocks of ranks are, in bytes.
#[derive(Debug)]
pub(super) enum Blocks {
    /// All have this length.
    Equal(usize),
    /// The end of each.
    Ends(Vec<usize>),
}

impl Blocks {
    /// Blocks of these numbers of elements. None, if the sum is no number.
    pub(super) fn of(counts: &[usize], element: usize) -> Option<Self> {
        let ends = counts.iter().scan(Some(0_usize), |end, count| {
            *end = end.and_then(|end| end.checked_add(count.checked_mul(element)?));
            Some(*end)
        });
        ends.collect::<Option<_>>().map(Self::Ends)
    }

    /// Those that are given; or equal ones: as long as this rank's own, or as there is room for.
    pub(super) fn of_all(given: Option<Self>, own: Option<&[u8]>, all: &[u8], size: u32) -> Self {
        given.unwrap_or_else(|| Self::Equal(own.map_or(all.len() / size as usize, <[u8]>::len)))
    }

    /// The bytes of a rank.
    pub(super) fn range(&self, rank: u32) -> Range<usize> {
        self.ranges(rank..rank + 1)
    }

    /// The bytes of ranks one after the other.
    pub(super) fn ranges(&self, ranks: Range<u32>) -> Range<usize> {
        self.start(ranks.start)..self.start(ranks.end)
    }

    /// The length of the longest one of so many.
    pub(super) fn longest(&self, size: u32) -> usize {
        match self {
            Self::Equal(len) => *len,
            Self::Ends(_) => (0..size).map(|rank| self.range(rank).len()).max().unwrap_or(0),
        }
    }

    fn start(&self, rank: u32) -> usize {
        match self {
            Self::Equal(len) => rank as usize * len,
            Self::Ends(ends) => rank.checked_sub(1).map_or(0, |before| ends[before as usize]),
        }
    }
}

/// Two ranges of a slice that do not overlap, the second one to be written.
pub(super) fn disjoint(all: &mut [u8], read: Range<usize>, write: Range<usize>) -> (&[u8], &mut [u8]) {
    if read.is_empty() {
        (&[], &mut all[write])
    } else if write.is_empty() {
        (&all[read], &mut [])
    } else if read.start < write.start {
        let (low, high) = all.split_at_mut(write.start);
        (&low[read], &mut high[..write.end - write.start])
    } else {
        let (low, high) = all.split_at_mut(read.start);
        (&high[..read.end - read.start], &mut low[write])
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn blocks_follow_one_another() {
        let blocks = Blocks::of(&[2, 0, 3], 4).unwrap();
        assert_eq!([0, 1, 2].map(|rank| blocks.range(rank)), [0..8, 8..8, 8..20]);
        assert_eq!(blocks.ranges(1..3), 8..20);
        assert_eq!(Blocks::Equal(5).ranges(1..4), 5..20);
        assert!(Blocks::of(&[usize::MAX, 1], 1).is_none() && Blocks::of(&[usize::MAX / 2], 4).is_none());
    }

    #[test]
    fn what_is_read_is_apart_from_what_is_written() {
        let mut all = [0, 1, 2, 3, 4, 5];
        assert_eq!(disjoint(&mut all, 0..2, 3..6), (&[0, 1][..], &mut [3, 4, 5][..]));
        assert_eq!(disjoint(&mut all, 4..6, 1..3), (&[4, 5][..], &mut [1, 2][..]));
        assert_eq!(disjoint(&mut all, 6..6, 0..6), (&[][..], &mut [0, 1, 2, 3, 4, 5][..]));
        assert_eq!(disjoint(&mut all, 2..2, 0..6), (&[][..], &mut [0, 1, 2, 3, 4, 5][..]));
        assert_eq!(disjoint(&mut all, 0..6, 2..2), (&[0, 1, 2, 3, 4, 5][..], &mut [][..]));
    }
}
