//! Shapes: runs of contiguous elements with gaps between them.

use std::ops::Range;

/// Elements of some memory, relative to an offset (MPI-4.1, 5.1.2: datatypes). An operation on a
/// window accesses those of the target's window memory; on the origin's side they are contiguous, in
/// the order of the shape. A message is sent from those of a slice, or received into them.
///
/// There are no negative strides: they would only reverse the order of the elements on the other
/// side, which [`Blocks`](Self::Blocks) in descending order does too. Nor is there a shape for the
/// origin's side of an operation on a window: there an iterator gathers
/// (`column.iter().step_by(10).copied().collect()`), at the cost of the copy that every fabric but
/// shared memory makes anyway.
///
/// A shape allocates nothing. For records (`MPI_Type_create_struct`) it selects the records;
/// `Access::fields` of a window selects their fields.
///
/// ```
/// # use onesided_layouts::Shape;
/// // A column of a matrix whose rows have 10 elements.
/// let column = Shape::Vector { count: 3, block: 1, stride: 10 };
/// assert_eq!(column.runs().collect::<Vec<_>>(), [0..1, 10..11, 20..21]);
/// // Adjacent blocks form one run.
/// assert_eq!(Shape::Indexed(&[4..6, 6..9, 0..1]).runs().collect::<Vec<_>>(), [4..9, 0..1]);
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Shape<'s> {
    /// So many contiguous elements.
    Row(usize),
    /// `count` blocks of `block` elements, whose starts are `stride` elements apart
    /// (`MPI_Type_vector`).
    Vector {
        /// The number of blocks.
        count: usize,
        /// The number of elements of each block.
        block: usize,
        /// The distance from the start of one block to the start of the next.
        stride: usize,
    },
    /// Blocks of `block` elements at these displacements (`MPI_Type_create_indexed_block`).
    Blocks {
        /// The number of elements of each block.
        block: usize,
        /// Where the blocks start.
        starts: &'s [usize],
    },
    /// Ranges (`MPI_Type_indexed`). A range that ends before it starts is empty.
    Indexed(&'s [Range<usize>]),
}

impl<'s> Shape<'s> {
    /// The number of elements, at most `usize::MAX`.
    #[must_use]
    #[inline]
    pub fn count(&self) -> usize {
        match self {
            Self::Row(count) => *count,
            Self::Vector { count, block, .. } => count.saturating_mul(*block),
            Self::Blocks { block, starts } => starts.len().saturating_mul(*block),
            Self::Indexed(ranges) => ranges.iter().map(ExactSizeIterator::len).fold(0, usize::saturating_add),
        }
    }

    /// The end of the last element, at most `usize::MAX`.
    #[must_use]
    #[inline]
    pub fn end(&self) -> usize {
        match self {
            Self::Row(count) => *count,
            Self::Vector { count: 0, .. } | Self::Vector { block: 0, .. } | Self::Blocks { block: 0, .. } => 0,
            Self::Vector { count, block, stride } => (count - 1).saturating_mul(*stride).saturating_add(*block),
            Self::Blocks { block, starts } => starts.iter().max().map_or(0, |start| start.saturating_add(*block)),
            Self::Indexed(ranges) => {
                ranges.iter().filter(|range| !range.is_empty()).map(|range| range.end).max().unwrap_or(0)
            }
        }
    }

    /// Where the elements are, if they are one run, or none.
    #[must_use]
    pub fn contiguous(self) -> Option<Range<usize>> {
        let mut runs = self.runs();
        let first = runs.next().unwrap_or(0..0);
        runs.next().is_none().then_some(first)
    }

    /// The runs of contiguous elements, none of them empty, in the order of the shape; adjacent
    /// blocks form one run.
    #[inline]
    pub const fn runs(self) -> Runs<'s> {
        Runs { shape: self, next: 0, ahead: None }
    }
}

/// The runs of a [`Shape`], cut off at `usize::MAX`.
#[derive(Clone, Debug)]
pub struct Runs<'s> {
    shape: Shape<'s>,
    /// The index of the next block.
    next: usize,
    /// A run that was looked ahead to see whether it is adjacent.
    ahead: Option<Range<usize>>,
}

impl Runs<'_> {
    /// The blocks of a vector with gaps between them that come next: where the first starts, their
    /// number, length and stride.
    pub(crate) fn vector(&self) -> Option<(usize, usize, usize, usize)> {
        match self.shape {
            Shape::Vector { count, block, stride } if self.next < count && 0 < block && block < stride => {
                Some((self.next * stride, count - self.next, block, stride))
            }
            _ => None,
        }
    }

    pub(crate) const fn skip_blocks(&mut self, count: usize) {
        self.next += count;
    }

    /// The next block, which may be empty.
    fn block(&mut self) -> Option<Range<usize>> {
        let at = self.next;
        let from = |start: usize, len: usize| start..start.saturating_add(len);
        let block = match self.shape {
            Shape::Row(count) => (at == 0).then_some(0..count),
            Shape::Vector { count, block, stride } => (at < count).then(|| from(at.saturating_mul(stride), block)),
            Shape::Blocks { block, starts } => starts.get(at).map(|start| from(*start, block)),
            Shape::Indexed(ranges) => ranges.get(at).cloned(),
        }?;
        self.next += 1;
        Some(block)
    }

    fn filled_block(&mut self) -> Option<Range<usize>> {
        loop {
            let block = self.block()?;
            if !block.is_empty() {
                return Some(block);
            }
        }
    }
}

impl Iterator for Runs<'_> {
    type Item = Range<usize>;

    #[inline]
    fn next(&mut self) -> Option<Range<usize>> {
        if let Shape::Vector { count, block, stride } = self.shape {
            // Either all blocks are adjacent, or none; and a shape of empty blocks may have any
            // number of them.
            if self.next >= count || block == 0 {
                return None;
            }
            if block == stride {
                self.next = count;
                return Some(0..count.saturating_mul(block));
            }
            let start = self.next.saturating_mul(stride);
            self.next += 1;
            return Some(start..start.saturating_add(block));
        }
        self.next_joined()
    }
}

impl Runs<'_> {
    /// The next run, joining adjacent blocks.
    fn next_joined(&mut self) -> Option<Range<usize>> {
        let mut run = self.ahead.take().or_else(|| self.filled_block())?;
        while let Some(block) = self.filled_block() {
            if block.start != run.end {
                self.ahead = Some(block);
                break;
            }
            run.end = block.end;
        }
        Some(run)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn runs(shape: Shape<'_>) -> Vec<(usize, usize)> {
        shape.runs().map(|run| (run.start, run.end)).collect()
    }

    #[test]
    fn runs_are_what_the_shape_says() {
        let reversed = Range { start: 9, end: 4 };
        assert_eq!(runs(Shape::Row(5)), [(0, 5)]);
        assert_eq!(runs(Shape::Row(0)), []);
        assert_eq!(runs(Shape::Vector { count: 3, block: 2, stride: 5 }), [(0, 2), (5, 7), (10, 12)]);
        assert_eq!(runs(Shape::Vector { count: 3, block: 2, stride: 2 }), [(0, 6)]);
        assert_eq!(runs(Shape::Vector { count: 2, block: 3, stride: 0 }), [(0, 3), (0, 3)]);
        assert_eq!(runs(Shape::Vector { count: usize::MAX, block: 0, stride: 2 }), []);
        assert_eq!(runs(Shape::Vector { count: 0, block: 4, stride: 4 }), []);
        assert_eq!(runs(Shape::Blocks { block: 2, starts: &[8, 0, 2] }), [(8, 10), (0, 4)]);
        assert_eq!(runs(Shape::Indexed(&[3..3, 1..2, reversed, 2..3])), [(1, 3)]);
    }

    #[test]
    fn one_run_is_contiguous() {
        let runs = |shape: Shape<'_>| shape.contiguous();
        assert_eq!(runs(Shape::Row(5)), Some(0..5));
        assert_eq!(runs(Shape::Row(0)), Some(0..0));
        assert_eq!(runs(Shape::Vector { count: 3, block: 2, stride: 2 }), Some(0..6));
        assert_eq!(runs(Shape::Vector { count: 1, block: 2, stride: 9 }), Some(0..2));
        assert_eq!(runs(Shape::Vector { count: 2, block: 2, stride: 9 }), None);
        assert_eq!(runs(Shape::Blocks { block: 2, starts: &[4, 6] }), Some(4..8));
        assert_eq!(runs(Shape::Indexed(&[4..6, 2..3])), None);
    }

    #[test]
    fn counts_and_ends_do_not_overflow() {
        let vast = Shape::Vector { count: usize::MAX, block: 2, stride: usize::MAX };
        assert_eq!((vast.count(), vast.end()), (usize::MAX, usize::MAX));
        assert_eq!(Shape::Blocks { block: 2, starts: &[usize::MAX, 1] }.end(), usize::MAX);
        for shape in [
            Shape::Row(7),
            Shape::Vector { count: 3, block: 2, stride: 5 },
            Shape::Vector { count: 2, block: 9, stride: 4 },
            Shape::Blocks { block: 3, starts: &[4, 0, 9] },
            Shape::Indexed(&[5..8, 0..1, 7..7]),
        ] {
            let runs = runs(shape);
            assert_eq!(shape.count(), runs.iter().map(|(start, end)| end - start).sum::<usize>());
            assert_eq!(shape.end(), runs.iter().map(|(_, end)| *end).max().unwrap());
        }
    }
}
