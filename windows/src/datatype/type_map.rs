//! The elements of an accumulate: a shape, or one field of each of its records.

use std::ops::Range;

use onesided_fabric::remote_memory::{Fault, FaultKind};
use onesided_layouts::Runs;

use crate::{AtomicElement, Field, Shape};

/// A shape at an offset, in records of `per_record` elements, each with one element at `lane`.
#[derive(Clone, Copy, Debug)]
pub(crate) struct TypeMap<'s> {
    shape: Shape<'s>,
    offset: usize,
    per_record: usize,
    lane: usize,
}

impl<'s> TypeMap<'s> {
    /// All elements of the shape.
    #[inline(always)] // as what it is made for
    pub(crate) const fn of_shape(offset: usize, shape: Shape<'s>) -> Self {
        Self { shape, offset, per_record: 1, lane: 0 }
    }

    /// A field of each record of the shape.
    ///
    /// # Errors
    /// `Misaligned` if the window memory is not an array of such elements, of which the field is
    /// one.
    pub(crate) fn of_field<T, V: AtomicElement>(
        offset: usize,
        shape: Shape<'s>,
        field: Field<T, V>,
    ) -> Result<Self, Fault> {
        if !size_of::<T>().is_multiple_of(size_of::<V>()) || !field.offset().is_multiple_of(size_of::<V>()) {
            return Err(Fault::new(FaultKind::Misaligned));
        }
        let (per_record, lane) = (size_of::<T>() / size_of::<V>(), field.offset() / size_of::<V>());
        Ok(Self { shape, offset, per_record, lane })
    }

    /// The elements, if they are contiguous.
    #[inline]
    pub(crate) const fn row(self) -> Option<Range<usize>> {
        match self {
            Self { shape: Shape::Row(count), offset, per_record: 1, .. } => Some(offset..offset + count),
            _ => None,
        }
    }

    /// The number of elements.
    #[inline(always)] // as above
    pub(crate) fn count(self) -> usize {
        self.shape.count()
    }

    /// The element of the first record, if the shape starts at its offset.
    pub(crate) const fn start(self) -> usize {
        self.offset * self.per_record + self.lane
    }

    /// The first record, and the end of the last.
    pub(crate) fn records(self) -> (usize, usize) {
        (self.offset, self.shape.end())
    }

    /// The runs of elements, counted from the start of the window memory.
    pub(crate) const fn runs(self) -> TypeMapRuns<'s> {
        TypeMapRuns { type_map: self, runs: self.shape.runs(), run: 0..0 }
    }
}

/// The runs of a [`TypeMap`] whose range was checked.
#[derive(Clone, Debug)]
pub(crate) struct TypeMapRuns<'s> {
    type_map: TypeMap<'s>,
    runs: Runs<'s>,
    /// The rest of the current run, in records.
    run: Range<usize>,
}

impl Iterator for TypeMapRuns<'_> {
    type Item = Range<usize>;

    #[inline]
    fn next(&mut self) -> Option<Range<usize>> {
        let TypeMap { offset, per_record, lane, .. } = self.type_map;
        if per_record == 1 {
            let run = self.runs.next()?;
            return Some(offset + run.start..offset + run.end);
        }
        if self.run.is_empty() {
            self.run = self.runs.next()?;
        }
        let at = (offset + self.run.start) * per_record + lane;
        self.run.start += 1;
        Some(at..at + 1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Clone, Copy, bytemuck::Pod, bytemuck::Zeroable)]
    #[repr(C, packed)]
    struct Odd {
        first: u8,
        second: u32,
        third: [u16; 3],
        last: u8,
    }

    #[test]
    fn fields_are_elements_of_the_part_or_refused() {
        let shape = Shape::Indexed(&[0..2, 5..6]);
        let third = crate::field!(Odd, third).element(2);
        assert!(TypeMap::of_field(1, shape, crate::field!(Odd, second)).is_err());
        assert!(TypeMap::of_field(1, shape, third).is_err());
        let last = TypeMap::of_field(1, shape, crate::field!(Odd, last)).unwrap();
        assert_eq!(last.runs().collect::<Vec<_>>(), [23..24, 35..36, 83..84]);
        assert_eq!((last.records(), last.count()), ((1, 6), 3));
        let whole = TypeMap::of_shape(7, shape);
        assert_eq!(whole.runs().collect::<Vec<_>>(), [7..9, 12..13]);
    }
}
