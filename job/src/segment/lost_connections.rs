//! The connections that are lost, in the job segment.
//!
//! A row of bits a rank has a bit for each rank. Any number of connections can be lost, as when a
//! host falls silent, and the lanes of two ranks take thousands of times as much as their bits.

use std::sync::atomic::{AtomicU32, Ordering};

use onesided_remote_memory::{Liveness, Rank};

use crate::segment::JobSegment;
use crate::segment::job_segment::LOST_AT;

impl JobSegment {
    /// The number of half words in a rank's row.
    const fn row_halves(size: u32) -> u32 {
        size.div_ceil(u32::BITS)
    }

    /// The length in bytes of a row of each rank.
    pub(super) const fn rows_bytes(size: u32) -> u64 {
        size as u64 * Self::row_halves(size) as u64 * 4
    }

    /// The half word of a rank's row that has the bits of the ranks from `32 * at`, in the rows that
    /// begin at `start`.
    fn row_at(&self, start: u64, rank: Rank, at: u32) -> &AtomicU32 {
        assert!(self.has(rank), "{rank} is not among the {}", self.size());
        let half = u64::from(rank.0) * u64::from(Self::row_halves(self.size())) + u64::from(at);
        self.half(start + half * 4)
    }

    fn row(&self, rank: Rank, at: u32) -> &AtomicU32 {
        self.row_at(Self::rows_start(self.size()), rank, at)
    }

    /// Sets another rank's bit in the second row of a rank.
    pub(super) fn set_second(&self, rank: Rank, other: Rank) {
        let start = Self::rows_start(self.size()) + Self::rows_bytes(self.size());
        self.row_at(start, rank, other.0 / u32::BITS).fetch_or(1 << (other.0 % u32::BITS), Ordering::AcqRel);
    }

    /// The ranks whose bits are set in the second row of a rank, in their order.
    pub(super) fn second(&self, rank: Rank) -> impl Iterator<Item = Rank> + '_ {
        let start = Self::rows_start(self.size()) + Self::rows_bytes(self.size());
        self.set_bits(Self::row_halves(self.size()), move |at| self.row_at(start, rank, at))
    }

    fn set_bits<'s>(&'s self, halves: u32, row: impl Fn(u32) -> &'s AtomicU32 + 's) -> impl Iterator<Item = Rank> + 's {
        let ranks = (0..halves).flat_map(move |at| {
            let bits = row(at).load(Ordering::Acquire);
            (0..u32::BITS).filter(move |bit| bits >> bit & 1 == 1).map(move |bit| Rank(at * u32::BITS + bit))
        });
        ranks.filter(|rank| self.has(*rank))
    }

    /// Records that the connection between two ranks is lost, for good, and wakes all sleepers.
    /// Each may live, and go on with all others. Called by a rank that learned it from its own
    /// operation, and for what other hosts report. A rank may lose the connection to itself. No
    /// effect if either has died, which says more; a departure says less, and may be known here
    /// first.
    ///
    /// # Panics
    /// If there is no such rank.
    #[cold]
    pub fn lose_connection(&self, one: Rank, other: Rank) {
        let has_died = |rank| self.liveness(rank) == Liveness::Dead;
        // Both are asked: a reporter may have been stopped between the two.
        let is_known = self.is_lost(one, other) && self.is_lost(other, one);
        if !self.maker.is_here() || is_known || has_died(one) || has_died(other) {
            return;
        }
        for (rank, bit) in [(one, other), (other, one)] {
            self.half(self.fields_of(rank) + LOST_AT).store(1, Ordering::Release);
            self.row(rank, bit.0 / u32::BITS).fetch_or(1 << (bit.0 % u32::BITS), Ordering::AcqRel);
        }
        self.ring_all();
    }

    /// Whether the connection between two ranks is lost; `false` for ranks that do not exist.
    /// Symmetric. One load while the first of them has lost none.
    #[must_use]
    #[inline]
    pub fn is_lost(&self, one: Rank, other: Rank) -> bool {
        if !self.has(one) || !self.has(other) || !self.has_lost(one) {
            return false;
        }
        self.row(one, other.0 / u32::BITS).load(Ordering::Acquire) >> (other.0 % u32::BITS) & 1 == 1
    }

    #[inline]
    fn has_lost(&self, rank: Rank) -> bool {
        self.half(self.fields_of(rank) + LOST_AT).load(Ordering::Acquire) != 0
    }

    /// The ranks whose connection to this one is lost, in their order; none of a rank that does not
    /// exist. One load while there is none.
    #[inline]
    pub fn lost_connections(&self, of: Rank) -> impl Iterator<Item = Rank> + '_ {
        let halves = if self.has(of) && self.has_lost(of) { Self::row_halves(self.size()) } else { 0 };
        self.set_bits(halves, move |at| self.row(of, at))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_lost_connection_is_that_of_two_ranks_and_of_no_others() {
        let job_segment = JobSegment::create(70).unwrap();
        let lost = |rank: u32| job_segment.lost_connections(Rank(rank)).map(|rank| rank.0).collect::<Vec<_>>();
        assert_eq!((0..71).flat_map(lost).count(), 0);
        let before = job_segment.changes();
        job_segment.lose_connection(Rank(69), Rank(2));
        assert_eq!(job_segment.changes(), before + 1);
        job_segment.lose_connection(Rank(2), Rank(69)); // the other side reports it too
        assert_eq!(job_segment.changes(), before + 1);
        job_segment.lose_connection(Rank(2), Rank(31));
        job_segment.lose_connection(Rank(32), Rank(32));
        assert_eq!([2, 31, 32, 69, 3, 70].map(lost), [vec![31, 69], vec![2], vec![32], vec![2], vec![], vec![]]);
        let pairs = (0..72).flat_map(|one| (0..72).map(move |other| (one, other)));
        let lost: Vec<_> = pairs.filter(|(one, other)| job_segment.is_lost(Rank(*one), Rank(*other))).collect();
        assert_eq!(lost, [(2, 31), (2, 69), (31, 2), (32, 32), (69, 2)]);
        assert_eq!((job_segment.failures(), job_segment.liveness(Rank(2))), (0, Liveness::Alive));
    }

    /// It stays lost when one of them dies later. That to a rank that left may be lost.
    #[test]
    fn no_connection_is_lost_to_a_rank_that_died() {
        let job_segment = JobSegment::create(4).unwrap();
        job_segment.join(Rank(1)).unwrap();
        job_segment.lose_connection(Rank(2), Rank(3));
        job_segment.declare_dead(Rank(0));
        job_segment.leave(Rank(1));
        let before = job_segment.changes();
        for (one, other) in [(0, 2), (2, 0), (0, 1), (1, 0), (0, 0)] {
            job_segment.lose_connection(Rank(one), Rank(other));
            assert!(!job_segment.is_lost(Rank(one), Rank(other)));
        }
        assert_eq!(job_segment.changes(), before);
        job_segment.lose_connection(Rank(2), Rank(1));
        assert!(job_segment.is_lost(Rank(1), Rank(2)));
        job_segment.declare_dead(Rank(3));
        assert!(job_segment.is_lost(Rank(2), Rank(3)) && job_segment.is_lost(Rank(3), Rank(2)));
    }

    #[test]
    fn connections_that_many_lose_at_once_are_all_recorded() {
        let job_segment = JobSegment::create(6).unwrap();
        std::thread::scope(|scope| {
            for me in 0..6 {
                let job_segment = &job_segment;
                scope.spawn(move || (0..6).for_each(|other| job_segment.lose_connection(Rank(me), Rank(other))));
            }
        });
        for rank in 0..6 {
            assert!(job_segment.lost_connections(Rank(rank)).map(|rank| rank.0).eq(0..6));
        }
    }
}
