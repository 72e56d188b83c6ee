//! Cuts failed ranks, and those whose connection to this rank is lost.
//!
//! A rank that the job reports dead may only be silent, and its card may go on. So this rank
//! *cuts* it before it reports the failure: it [revokes](super::revoke) the failed rank's access
//! and records that in its cut table, which peers read one-sided. What ends operations in flight to
//! the failed rank is the same step, because it closes the queue pair.
//!
//! A lost connection ends the access of both of its ranks to the memory of the other in the same
//! way, but neither counts as dead. A rank records the loss in the job segment before it reports it
//! (`keepalive`), so the other one cuts, too, whatever state its side of the connection is in. A
//! rank that has lost the connection to itself cuts itself.
//!
//! The thread that does this sleeps until the job's status changes, so a rank that computes cuts,
//! too, and operations pay nothing.

use std::collections::HashSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::thread::sleep;
use std::time::Duration;

use onesided_remote_memory::{Liveness, Rank};

use crate::Error;
use crate::verbs::{Inner, start_thread};

/// The poll interval while a queue pair is being closed.
const POLL_INTERVAL: Duration = Duration::from_millis(1);

/// The failed ranks that this rank has cut, in that order. One thread appends.
#[derive(Debug)]
pub(super) struct Failures {
    count: AtomicU32,
    ranks: Box<[AtomicU32]>,
}

impl Failures {
    pub(super) fn new(size: u32) -> Self {
        Self { count: AtomicU32::new(0), ranks: (0..size).map(|_| AtomicU32::new(0)).collect() }
    }

    fn push(&self, rank: Rank) {
        let count = self.count();
        self.ranks[count as usize].store(rank.0, Ordering::Relaxed);
        self.count.store(count + 1, Ordering::Release);
    }

    pub(super) fn count(&self) -> u32 {
        self.count.load(Ordering::Acquire)
    }

    pub(super) fn get(&self, index: u32) -> Option<Rank> {
        (index < self.count()).then(|| Rank(self.ranks[index as usize].load(Ordering::Relaxed)))
    }

    fn contains(&self, rank: Rank) -> bool {
        self.ranks[..self.count() as usize].iter().any(|failed| failed.load(Ordering::Relaxed) == rank.0)
    }
}

impl Inner {
    /// The liveness of a rank as this rank reports it: dead only once it has been cut.
    pub(super) fn liveness(&self, rank: Rank) -> Liveness {
        match self.job_segment.liveness(rank) {
            Liveness::Dead if !self.failures.contains(rank) => Liveness::Alive,
            known => known,
        }
    }

    /// Whether a rank has failed and is being cut.
    pub(super) fn is_cutting(&self, rank: Rank) -> bool {
        rank.index() < self.connector.addresses.len()
            && self.job_segment.liveness(rank) == Liveness::Dead
            && !self.failures.contains(rank)
    }

    /// Whether the connection of two ranks is lost; if `home` is this rank, once it has cut the
    /// other.
    pub(super) fn knows_lost(&self, home: Rank, rank: Rank) -> bool {
        self.job_segment.is_lost(home, rank) && (home != self.rank || self.region_table.has_cut(rank))
    }

    /// Starts the thread that cuts. It ends with the endpoint.
    pub(super) fn start_cutting(self: &Arc<Self>) -> Result<(), Error> {
        let (me, job_segment, inner) = (self.rank, Arc::clone(&self.job_segment), Arc::downgrade(self));
        let run = move || {
            let (mut known, mut known_lost, mut uncut) = (0, HashSet::new(), Vec::new());
            loop {
                let changes = job_segment.changes();
                if inner.strong_count() == 0 {
                    return;
                }
                while let Some(rank) = job_segment.failure(known) {
                    uncut.push((rank, true));
                    known += 1;
                }
                let lost = job_segment.lost_connections(me).filter(|rank| known_lost.insert(*rank));
                uncut.extend(lost.map(|rank| (rank, false)));
                uncut.retain(|(rank, dead)| inner.upgrade().is_some_and(|inner| !inner.cut(*rank, *dead)));
                match uncut.is_empty() {
                    true => job_segment.wait_for_change(changes),
                    false => sleep(POLL_INTERVAL),
                }
            }
        };
        start_thread("onesided-cut", "start the thread that cuts failed ranks", run)
    }

    /// Cuts a failed rank, then reports its failure to this rank's threads if it is `dead`.
    /// `false`: still in progress. If the card fails, the failure is reported all the same, or
    /// waits would not end; the cut table does not show it, so the failed rank's locks here stay as
    /// they are.
    fn cut(&self, rank: Rank, dead: bool) -> bool {
        // A rank that counts as dead itself is cut by the others.
        if (rank != self.rank || !dead) && matches!(self.end_access(rank, dead), Ok(false)) {
            return false;
        }
        if dead {
            self.failures.push(rank);
        }
        self.ring();
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn failures_keep_their_order() {
        let failures = Failures::new(3);
        assert_eq!((failures.count(), failures.get(0), failures.contains(Rank(0))), (0, None, false));
        failures.push(Rank(2));
        failures.push(Rank(0));
        assert_eq!([0, 1, 2].map(|index| failures.get(index)), [Some(Rank(2)), Some(Rank(0)), None]);
        assert_eq!([0, 1, 2].map(|rank| failures.contains(Rank(rank))), [true, false, true]);
    }
}
