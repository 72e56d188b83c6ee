//! A contest of simulated ranks, in virtual time.

use std::cell::{Cell, RefCell};
use std::sync::atomic::AtomicU64;
use std::time::Duration;

use fabric::Fabric;
use lock_algos::LockAlgorithm;
use remote_memory::{Fault, RemoteMemory};
use sim::{SimFabric, Simulation};

use super::contest::{Contest, Origin, Outcome};
use super::place::{Ground, Spot};
use super::{Histogram, Operations};

impl<A: LockAlgorithm> Contest<'_, A> {
    /// Runs it on a modelled network, in one thread: a rank for each origin, and the home, which does nothing, for an origin
    /// at home would be nearer to the lock than the others. The same contest gives the same outcome, trace and all. What is
    /// under way at its end does not count.
    ///
    /// # Panics
    /// When the lock fails where nobody dies and nothing is lost.
    #[must_use]
    pub fn simulated(&self) -> Outcome {
        let counts: Vec<Cell<u64>> = vec![Cell::new(0); self.origins as usize];
        let (waits, bypasses) = (RefCell::new(Histogram::default()), RefCell::new(Histogram::default()));
        let acquired = AtomicU64::new(0);
        let (counts_of, waits_of, bypasses_of, acquired_of) = (&counts, &waits, &bypasses, &acquired);
        let run = |fabric: SimFabric| async move {
            let Some(mine) = fabric.rank().index().checked_sub(1).and_then(|origin| counts_of.get(origin)) else {
                return None; // the home
            };
            let mut origin = Origin::new(self, &fabric, Ground::World, acquired_of);
            loop {
                let mut note = |waited, between| {
                    mine.set(mine.get() + 1);
                    waits_of.borrow_mut().add(waited);
                    bypasses_of.borrow_mut().add(between);
                };
                if let Err(fault) = origin.once(Some(&mut note), pass).await {
                    return Some(fault);
                }
            }
        };
        let simulation = Simulation::new(self.network.clone())
            .ranks(self.origins.saturating_add(1))
            .seed(self.seed)
            .until(self.long);
        let report = simulation.run_direct(run);
        if let Some((rank, fault)) =
            report.results.iter().enumerate().find_map(|(rank, fault)| Some((rank, (*fault)??)))
        {
            panic!("{}, rank {rank}: {fault}", A::NAME);
        }
        let sim::Counts { reads, writes, compare_swaps, fetch_adds, messages, .. } = report.counts;
        Outcome {
            counts: counts.into_iter().map(Cell::into_inner).collect(),
            lasted: report.virtual_time,
            waits: waits.into_inner(),
            bypasses: bypasses.into_inner(),
            operations: Operations { reads, writes, compare_swaps, fetch_adds, messages },
            trace: report.trace,
        }
    }
}

/// Has virtual time pass.
async fn pass<F: Fabric>(spot: &Spot<'_, F>, long: Duration) -> Result<(), Fault> {
    let until = spot.fabric.now().saturating_add(long.as_nanos() as u64);
    let quiet = spot.quiet()?;
    while spot.fabric.now() < until {
        spot.fabric.pause(quiet, until - spot.fabric.now()).await;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use lock_algos::{Mcs, TestAndSet};

    use super::*;

    #[test]
    fn the_same_contest_gives_the_same_outcome() {
        let run = || Contest::of(&Mcs::default()).origins(20).readers(50).lasting(Duration::from_millis(2)).simulated();
        let (one, other) = (run(), run());
        assert_eq!((one.trace, &one.counts, &one.waits), (other.trace, &other.counts, &other.waits));
        assert!(one.acquisitions() > 100, "{one:?}");
    }

    #[test]
    fn a_queue_is_fair_and_a_word_is_not() {
        let contest = Duration::from_millis(5);
        let queue = Contest::of(&Mcs::default()).origins(16).lasting(contest).simulated();
        // It joins the queue some round trips after it asked.
        assert!(queue.jain() > 0.95 && queue.bypasses.largest() < 64, "{}, {}", queue.jain(), queue.bypasses.largest());
        let word = Contest::of(&TestAndSet::default()).origins(16).lasting(contest).simulated();
        assert!(word.bypasses.largest() > queue.bypasses.largest(), "{}", word.bypasses.largest());
    }

    #[test]
    fn sections_and_rests_take_their_time() {
        let lock = TestAndSet::default();
        let contest = Contest::of(&lock).origins(1).lasting(Duration::from_millis(10));
        let busy = contest.clone().section(Duration::from_micros(300)).rest(Duration::from_micros(200)).simulated();
        assert!((18..=20).contains(&busy.acquisitions()), "every 500 us and some round trips: {}", busy.acquisitions());
        assert!(contest.simulated().acquisitions() > 1000);
    }
}
