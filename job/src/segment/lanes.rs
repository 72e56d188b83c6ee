//! The lanes of the job segment: the memory of packets between its ranks.
//!
//! A lane from one rank to another is a line for the receiver's count, then cells of a line each.
//! The pages of a lane come with its first packet, where the system allows it.

use std::sync::atomic::{AtomicU64, Ordering};

use onesided_remote_memory::Rank;

use crate::segment::job_segment::OPENED_AT;
use crate::segment::rows::Rows;
use crate::segment::{JobSegment, Mapping};

/// The bytes of a cell, and of the receiver's count.
const LINE: u64 = 64;
const LINES_A_PAGE: u32 = 64;

/// The cells of a lane. With the count they are 64 KiB at most, and whole pages if these come later.
pub(super) const CELLS: std::ops::RangeInclusive<u32> = 7..=1023;
/// The lines of all lanes of one sender together, where their pages come when they are used (8 MiB),
/// and the fewest of a lane: two pages.
const LINES_A_RANK: u32 = 1 << 17;
const FEWEST: u32 = 128;
/// The same where their pages come at once.
const LINES_AT_ONCE: u32 = 4096;

impl JobSegment {
    pub(super) fn cells_for(size: u32) -> u32 {
        let lines = match Mapping::reserves() {
            true => (LINES_A_RANK / size).clamp(FEWEST, CELLS.end() + 1) / LINES_A_PAGE * LINES_A_PAGE,
            false => (LINES_AT_ONCE / size).clamp(CELLS.start() + 1, CELLS.end() + 1),
        };
        lines - 1
    }

    pub(super) const fn lane_bytes(cells: u32) -> u64 {
        LINE + LINE * cells as u64
    }

    /// The number of cells of each lane.
    #[inline]
    pub const fn lane_cells(&self) -> usize {
        self.cells as usize
    }

    /// Where the lane from one rank to another is, for [`lane`](Self::lane). It is not 0.
    ///
    /// # Panics
    /// If there is no such rank.
    pub fn lane_offset(&self, from: Rank, to: Rank) -> u64 {
        assert!(self.has(from) && self.has(to), "no lane from {from} to {to} among {}", self.size());
        let lane = u64::from(to.0) * u64::from(self.size()) + u64::from(from.0);
        Self::lanes_start(self.size()) + lane * Self::lane_bytes(self.cells)
    }

    /// The words of the lane at an offset: a line for the count, then the cells.
    ///
    /// # Panics
    /// If it is not [of this segment](Self::lane_offset).
    #[inline]
    pub fn lane(&self, offset: u64) -> &[AtomicU64] {
        let words = self.memory.words(offset, (Self::lane_bytes(self.cells) / 8) as usize);
        words.unwrap_or_else(|| unreachable!("the layout fits the job segment"))
    }

    /// The length in bytes of the table of open lanes.
    pub(super) const fn open_bytes(size: u32) -> u64 {
        Rows::bytes(size, 1)
    }

    const fn open_table(&self) -> Rows<'_> {
        let size = self.size();
        Rows { segment: self, start: Self::rows_start(size) + Self::lost_bytes(size), bits: 1 }
    }

    /// Tells a rank that the lane from another one has packets from now on.
    pub fn open_lane(&self, from: Rank, to: Rank) {
        self.open_table().raise(to, from, 1);
        self.half(self.fields_of(to) + OPENED_AT).fetch_add(1, Ordering::Release);
    }

    /// How many times a lane to a rank was opened.
    #[inline]
    pub fn opened_lanes(&self, to: Rank) -> u32 {
        self.half(self.fields_of(to) + OPENED_AT).load(Ordering::Acquire)
    }

    /// The ranks that have opened a lane to a rank.
    pub fn lanes_to(&self, to: Rank) -> impl Iterator<Item = Rank> + '_ {
        self.open_table().filled(to).map(|(from, _)| from)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What a rank takes at the start, and once all others have filled their lanes to it.
    #[test]
    fn a_thousand_ranks_take_little_memory() {
        const RANKS: u64 = 1_000;
        let start = JobSegment::lanes_start(RANKS as u32).div_ceil(RANKS);
        assert!(start < 8 << 10, "{start} bytes");
        let lanes = RANKS * JobSegment::lane_bytes(JobSegment::cells_for(RANKS as u32));
        assert!(!Mapping::reserves() || lanes <= 8 << 20, "{lanes} bytes");
    }

    #[test]
    fn lanes_are_apart_and_take_memory_when_they_are_used() {
        let job_segment = JobSegment::create(300).unwrap();
        let blocks = || rustix::fs::fstat(job_segment.file()).unwrap().st_blocks as u64 * 512;
        let before = blocks();
        assert_eq!(before, JobSegment::bytes(300).next_multiple_of(4096));
        assert_eq!(job_segment.lanes_to(Rank(7)).count(), 0);
        for (from, to) in [(299, 7), (0, 7), (299, 299)] {
            let lane = job_segment.lane(job_segment.lane_offset(Rank(from), Rank(to)));
            assert!(lane.iter().all(|word| word.load(Ordering::Relaxed) == 0));
            lane[0].store(1, Ordering::Relaxed);
            lane[lane.len() - 1].store(1, Ordering::Relaxed);
            job_segment.open_lane(Rank(from), Rank(to));
        }
        assert_eq!(job_segment.lanes_to(Rank(7)).collect::<Vec<_>>(), [Rank(0), Rank(299)]);
        assert_eq!((job_segment.opened_lanes(Rank(7)), job_segment.opened_lanes(Rank(8))), (2, 0));
        if Mapping::reserves() {
            let lanes = 3 * JobSegment::lane_bytes(job_segment.cells);
            assert!(blocks() - before <= lanes, "{} bytes", blocks() - before);
        }
    }
}
