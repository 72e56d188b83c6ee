//! A throughput run of simulated ranks, in virtual time.

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU8, AtomicU64};
use std::time::Duration;

use onesided_fabric::Fabric;
use onesided_lock_algos::LockAlgorithm;
use onesided_remote_memory::{Fault, Rank, RemoteMemory};
use onesided_sim::{SimFabric, Simulation};

use super::context::{Layout, Spot};
use super::throughput::{Origin, Outcome, ThroughputRun};
use super::{Histogram, Operations};

impl<A: LockAlgorithm> ThroughputRun<'_, A> {
    /// Runs on a modelled network, in one thread: a rank for each origin, and a home without an
    /// origin, because an origin at the home would have shorter round trips than the others. The
    /// same run has the same outcome, including the trace. Operations in flight at its end do not
    /// count.
    ///
    /// # Panics
    /// If the lock fails, without deaths and losses.
    #[must_use]
    pub fn simulated(&self) -> Outcome {
        let counts: Vec<Cell<u64>> = vec![Cell::new(0); self.origins as usize];
        let (waits, bypasses) = (RefCell::new(Histogram::default()), RefCell::new(Histogram::default()));
        let each: Vec<RefCell<Sparse>> = (0..self.origins).map(|_| RefCell::default()).collect();
        let acquired = AtomicU64::new(0);
        let (counts_of, waits_of, each_of) = (&counts, &waits, &each);
        let (bypasses_of, acquired_of) = (&bypasses, &acquired);
        let run = |fabric: SimFabric| async move {
            let number = fabric.rank().index().checked_sub(1)?; // the home has none
            let (mine, mine_waited) = (counts_of.get(number)?, each_of.get(number)?);
            let Rank(rank) = fabric.rank();
            let leader = fabric.world_segment(Rank(rank - rank % self.per_host.max(1))).ok()?; // the lowest of its host
            let passes = AtomicU8::new(0);
            let mut origin = Origin::new(self, &fabric, Layout::World, &leader, (acquired_of, &passes));
            loop {
                let mut note = |waited, between| {
                    mine.set(mine.get() + 1);
                    waits_of.borrow_mut().add(waited);
                    mine_waited.borrow_mut().add(waited);
                    bypasses_of.borrow_mut().add(between);
                };
                if let Err(fault) = origin.once(Some(&mut note), pass).await {
                    return Some(fault);
                }
            }
        };
        let simulation = Simulation::new(self.network.clone())
            .ranks(self.origins.saturating_add(1))
            .per_host(self.per_host)
            .seed(self.seed)
            .until(self.long);
        let report = simulation.run_direct(run);
        if let Some((rank, fault)) =
            report.results.iter().enumerate().find_map(|(rank, fault)| Some((rank, (*fault)??)))
        {
            panic!("{}, rank {rank}: {fault}", A::NAME);
        }
        let onesided_sim::Counts { reads, writes, compare_swaps, fetch_adds, .. } = report.counts;
        Outcome {
            counts: counts.into_iter().map(Cell::into_inner).collect(),
            lasted: report.virtual_time,
            waits: waits.into_inner(),
            worst_p99: each
                .iter()
                .map(|waits| waits.borrow().p99().unwrap_or(report.virtual_time.as_nanos() as u64))
                .max()
                .unwrap_or_default(),
            bypasses: bypasses.into_inner(),
            operations: Operations { reads, writes, compare_swaps, fetch_adds },
            trace: report.trace,
        }
    }
}

/// An origin's waits: there may be many origins with few waits each, and a [`Histogram`] has 35 kB.
#[derive(Default)]
struct Sparse(BTreeMap<u64, u64>);

impl Sparse {
    /// Rounded to 1 %, to bound their number.
    fn add(&mut self, value: u64) {
        let low = value.checked_ilog2().map_or(0, |power| power.saturating_sub(6));
        *self.0.entry(value >> low << low).or_default() += 1;
    }

    fn p99(&self) -> Option<u64> {
        let wanted = (self.0.values().sum::<u64>() as f64 * 0.99).ceil() as u64;
        let mut seen = 0;
        self.0.iter().find_map(|(value, count)| {
            seen += count;
            (seen >= wanted).then_some(*value)
        })
    }
}

/// Lets virtual time pass.
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
    use onesided_lock_algos::{AnyLock, Mcs, TestAndSet, TwoLevel};

    use super::*;

    #[test]
    fn the_same_contest_gives_the_same_outcome() {
        let run =
            || ThroughputRun::of(&Mcs::default()).origins(20).readers(50).lasting(Duration::from_millis(2)).simulated();
        let (one, other) = (run(), run());
        assert_eq!((one.trace, &one.counts, &one.waits), (other.trace, &other.counts, &other.waits));
        assert!(one.acquisitions() > 100, "{one:?}");
    }

    #[test]
    fn a_queue_is_fair_and_a_word_is_not() {
        let contest = Duration::from_millis(5);
        let queue = ThroughputRun::of(&Mcs::default()).origins(16).lasting(contest).simulated();
        // It joins the queue some round trips after its request.
        assert!(queue.jain() > 0.95 && queue.bypasses.largest() < 64, "{}, {}", queue.jain(), queue.bypasses.largest());
        let word = ThroughputRun::of(&TestAndSet::default()).origins(16).lasting(contest).simulated();
        assert!(word.bypasses.largest() > queue.bypasses.largest(), "{}", word.bypasses.largest());
        let p99 = |outcome: &Outcome| outcome.waits.quantile(0.99).unwrap();
        assert!(queue.worst_p99 < 2 * p99(&queue), "all wait alike: {} and {}", queue.worst_p99, p99(&queue));
        assert!(word.worst_p99 > p99(&word), "{} and {}", word.worst_p99, p99(&word));
    }

    /// Also if it is selected at run time.
    #[test]
    fn a_host_hands_over_without_a_card() {
        let lock = TwoLevel::default();
        let operations = |outcome: Outcome| outcome.operations_each();
        let long = Duration::from_millis(5);
        let chosen = AnyLock::TwoLevel(lock);
        let chosen = ThroughputRun::of(&chosen).origins(30).per_host(16).lasting(long).simulated();
        let itself = ThroughputRun::of(&lock).origins(30).per_host(16).lasting(long).simulated();
        assert_eq!(chosen.counts, itself.counts);
        assert!(operations(chosen) < 2.0, "eight of nine are handed over");
        assert!(operations(ThroughputRun::of(&lock).origins(30).per_host(1).lasting(long).simulated()) > 2.0);
    }

    #[test]
    fn what_lies_outside_is_brought_inside() {
        let lock = TestAndSet::default();
        let contest = ThroughputRun::of(&lock).origins(0).readers(250).lasting(Duration::from_millis(1)).simulated();
        assert!(contest.counts.len() == 1 && contest.acquisitions() > 0, "{contest:?}");
        let none = ThroughputRun::of(&lock).lasting(Duration::ZERO).simulated();
        assert_eq!((none.acquisitions(), none.rate(), none.worst_p99), (0, 0.0, 0), "{none:?}");
    }

    #[test]
    fn few_waits_have_their_percentile() {
        let mut waits = Sparse::default();
        assert_eq!(waits.p99(), None);
        (1..=100).for_each(|value| waits.add(value * 1000));
        let p99 = waits.p99().unwrap();
        assert!((98_000..=99_000).contains(&p99), "{p99}");
    }

    #[test]
    fn sections_and_rests_take_their_time() {
        let lock = TestAndSet::default();
        let contest = ThroughputRun::of(&lock).origins(1).lasting(Duration::from_millis(10));
        let busy = contest.clone().section(Duration::from_micros(300)).idle(Duration::from_micros(200)).simulated();
        assert!((18..=20).contains(&busy.acquisitions()), "every 500 us and some round trips: {}", busy.acquisitions());
        assert!(contest.simulated().acquisitions() > 1000);
    }
}
