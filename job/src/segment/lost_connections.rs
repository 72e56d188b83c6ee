//! The connections that are lost, in the job segment.
//!
//! Any number of connections can be lost, as when a host falls silent, and the lanes of two ranks take
//! thousands of times as much as their fields here.
//!
//! A rank that [joins again](JobSegment::again) is in the next *round*, where it has other connections.
//! One that is lost in a round is lost in those before it, too, and in none after it.

use std::io;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use onesided_remote_memory::{Liveness, Rank};

use crate::fork::is_child;
use crate::segment::JobSegment;
use crate::segment::job_segment::{AGAIN_AT, LOST_AT};
use crate::segment::rows::Rows;

/// The table has, for two ranks, the number of the last round in which their connection is lost, from
/// 1, or 0.
const BITS: u32 = 4;
/// How often a rank can join.
const ROUNDS: u32 = (1 << BITS) - 1;

impl JobSegment {
    /// The length of the table in bytes.
    pub(super) const fn lost_bytes(size: u32) -> u64 {
        Rows::bytes(size, BITS)
    }

    const fn lost(&self) -> Rows<'_> {
        Rows { segment: self, start: Self::rows_start(self.size()), bits: BITS }
    }

    /// The same segment as a rank has it that joins once more, for an endpoint beside its others. The
    /// rank has left once all of them [have](Self::leave).
    ///
    /// # Errors
    /// `QuotaExceeded` after the 15th time; `Unsupported` in a child made by `fork`.
    pub fn again(&self, rank: Rank) -> io::Result<Self> {
        if is_child() {
            return Err(io::ErrorKind::Unsupported.into());
        }
        let before = self.half(self.fields_of(rank) + AGAIN_AT);
        let before =
            before.fetch_update(Ordering::AcqRel, Ordering::Relaxed, |times| (times + 1 < ROUNDS).then_some(times + 1));
        let full = |_| io::Error::new(io::ErrorKind::QuotaExceeded, format!("a rank can join {ROUNDS} times"));
        let round = before.map_err(full)? + 2;
        self.endpoints(rank).fetch_or(1 << round, Ordering::AcqRel);
        Ok(Self { memory: Arc::clone(&self.memory), round, ..*self })
    }

    /// Whether this handle is of a rank that has joined [again](Self::again).
    pub const fn is_again(&self) -> bool {
        self.round > 1
    }

    /// The round in which the rank with this handle has joined, from 1.
    pub const fn round(&self) -> u32 {
        self.round
    }

    /// Records that the connection between two ranks is lost in this round, for good, and wakes all
    /// sleepers. Each may live, and go on with all others. Called by a rank that learned it from its
    /// own operation. A rank may lose the connection to itself. No effect if either has died, which
    /// says more; a departure says less, and may be known here first.
    ///
    /// # Panics
    /// If there is no such rank.
    #[cold]
    pub fn lose_connection(&self, one: Rank, other: Rank) {
        self.lose_connection_in(self.round, one, other);
    }

    /// The same in a round that another host reports; the first one is 1.
    pub fn lose_connection_in(&self, round: u32, one: Rank, other: Rank) {
        let round = round.min(ROUNDS);
        let has_died = |rank| self.liveness(rank) == Liveness::Dead;
        // Both are asked: a reporter may have been stopped between the two.
        let is_known = self.lost().get(one, other).min(self.lost().get(other, one)) >= round;
        if is_known || has_died(one) || has_died(other) {
            return;
        }
        for (rank, other) in [(one, other), (other, one)] {
            self.half(self.fields_of(rank) + LOST_AT).store(1, Ordering::Release);
            self.lost().raise(rank, other, round);
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
        self.lost().get(one, other) >= self.round
    }

    #[inline]
    fn has_lost(&self, rank: Rank) -> bool {
        self.half(self.fields_of(rank) + LOST_AT).load(Ordering::Acquire) != 0
    }

    /// The ranks whose connection to this one is lost, in their order; none of a rank that does not
    /// exist. One load while there is none.
    #[inline]
    pub fn lost_connections(&self, of: Rank) -> impl Iterator<Item = Rank> + '_ {
        self.lost_in_rounds(of).filter(|(_, round)| *round >= self.round).map(|(rank, _)| rank)
    }

    /// The same in any round, with the last one.
    pub(crate) fn lost_in_rounds(&self, of: Rank) -> impl Iterator<Item = (Rank, u32)> + '_ {
        let has_lost = self.has(of) && self.has_lost(of);
        has_lost.then(|| self.lost().filled(of)).into_iter().flatten()
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

    #[test]
    fn a_connection_is_lost_in_its_round_and_those_before() {
        let first = JobSegment::create(9).unwrap();
        first.join(Rank(8)).unwrap();
        let second = first.again(Rank(8)).unwrap();
        let third = second.again(Rank(8)).unwrap();
        let lost = |one, other| [&first, &second, &third].map(|round| round.is_lost(Rank(one), Rank(other)));
        first.lose_connection(Rank(8), Rank(7));
        second.lose_connection(Rank(8), Rank(1));
        third.lose_connection(Rank(8), Rank(0));
        assert_eq!(
            [7, 1, 0, 2].map(|other| lost(8, other)),
            [[true, false, false], [true, true, false], [true; 3], [false; 3]]
        );
        assert_eq!([7, 1, 0].map(|other| lost(other, 8)), [[true, false, false], [true, true, false], [true; 3]]);
        let of = |segment: &JobSegment| segment.lost_connections(Rank(8)).map(|rank| rank.0).collect::<Vec<_>>();
        assert_eq!([of(&first), of(&second), of(&third)], [vec![0, 1, 7], vec![0, 1], vec![0]]);
        // What is lost in a later round stays so.
        first.lose_connection(Rank(8), Rank(0));
        third.lose_connection(Rank(7), Rank(8));
        assert_eq!((lost(8, 0), lost(8, 7)), ([true; 3], [true; 3]));
    }

    #[test]
    fn a_rank_leaves_with_its_last_endpoint() {
        let first = JobSegment::create(1).unwrap();
        first.join(Rank(0)).unwrap();
        let rounds: Vec<_> = std::iter::from_fn(|| first.again(Rank(0)).ok()).collect();
        assert_eq!((rounds.len() as u32, rounds[0].is_again(), first.is_again()), (ROUNDS - 1, true, false));
        for round in rounds.iter().chain([&first]) {
            assert_eq!(first.liveness(Rank(0)), Liveness::Alive);
            rounds[2].leave(Rank(0)); // has no effect the second time
            round.leave(Rank(0));
        }
        assert_eq!(first.liveness(Rank(0)), Liveness::Left);
    }
}
