//! Tables in the job segment with a row a rank, which has a field of some bits for each rank.

use std::sync::atomic::{AtomicU32, Ordering};

use onesided_remote_memory::Rank;

use crate::segment::JobSegment;

/// One of the tables. Its fields grow only.
#[derive(Clone, Copy)]
pub(super) struct Rows<'s> {
    pub(super) segment: &'s JobSegment,
    /// Its offset in the segment.
    pub(super) start: u64,
    /// The length of a field, a power of two.
    pub(super) bits: u32,
}

impl<'s> Rows<'s> {
    /// The number of half words in a row.
    const fn halves(size: u32, bits: u32) -> u32 {
        size.div_ceil(u32::BITS / bits)
    }

    /// The length of a table in bytes.
    pub(super) const fn bytes(size: u32, bits: u32) -> u64 {
        size as u64 * Self::halves(size, bits) as u64 * 4
    }

    fn half(&self, row: Rank, at: u32) -> &'s AtomicU32 {
        let size = self.segment.size();
        assert!(self.segment.has(row), "{row} is not among the {size}");
        let half = u64::from(row.0) * u64::from(Self::halves(size, self.bits)) + u64::from(at);
        self.segment.half(self.start + half * 4)
    }

    /// The half word with a rank's field, and how far the field is shifted there.
    fn place(&self, row: Rank, rank: Rank) -> (&'s AtomicU32, u32) {
        let in_half = u32::BITS / self.bits;
        (self.half(row, rank.0 / in_half), rank.0 % in_half * self.bits)
    }

    const fn field(&self, half: u32, shift: u32) -> u32 {
        half >> shift & ((1 << self.bits) - 1)
    }

    pub(super) fn get(&self, row: Rank, rank: Rank) -> u32 {
        let (half, shift) = self.place(row, rank);
        self.field(half.load(Ordering::Acquire), shift)
    }

    /// Sets a field, unless it has more.
    pub(super) fn raise(&self, row: Rank, rank: Rank, to: u32) {
        let (half, shift) = self.place(row, rank);
        let raised = |now| {
            let field = self.field(now, shift);
            (field < to).then_some(now ^ (field ^ to) << shift)
        };
        let _ = half.fetch_update(Ordering::AcqRel, Ordering::Acquire, raised);
    }

    /// The ranks with a field that is not 0, in their order, with their fields.
    pub(super) fn filled(self, row: Rank) -> impl Iterator<Item = (Rank, u32)> + 's {
        let (size, in_half) = (self.segment.size(), u32::BITS / self.bits);
        (0..Self::halves(size, self.bits)).flat_map(move |at| {
            let half = self.half(row, at).load(Ordering::Acquire);
            let places = if half == 0 { 0 } else { in_half };
            let field = move |place| (Rank(at * in_half + place), self.field(half, place * self.bits));
            (0..places).map(field).filter(|(_, field)| *field > 0)
        })
    }
}
