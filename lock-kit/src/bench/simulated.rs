//! A throughput run of simulated ranks, in virtual time.

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::future::Future;
use std::num::NonZeroU64;
use std::sync::atomic::AtomicU64;
use std::time::Duration;

use onesided_fabric::{Fabric, Task};
use onesided_lock_algos::LockAlgorithm;
use onesided_remote_memory::{Fault, Rank, RemoteMemory};
use onesided_sim::{SimFabric, SimSegment, Simulation};

use super::context::{Site, Spot};
use super::throughput::{Beside, Common, Origin, Outcome, Stop, ThroughputRun};
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
        let acquired = AtomicU64::new(0);
        let contest = &Contest {
            run: self,
            common: Common { acquired: &acquired, failed: None },
            notes: RefCell::new(Notes::of(self.origins)),
            stopped: Cell::new(false),
            stops: Cell::new(None),
            rest: Cell::new(AFTER_STOP),
            failed: Cell::new(None),
        };
        let simulation = Simulation::new(self.network.clone())
            .ranks(self.origins.saturating_add(1))
            .per_host(self.per_host)
            .seed(self.seed)
            .events(self.events)
            .until(self.long);
        // Without a result, which would take room of every rank.
        let report = simulation.run_direct(|fabric| contest.take_part(fabric));
        if let Some((rank, fault)) = contest.failed.get() {
            panic!("{}, {rank}: {fault}", A::NAME);
        }
        let onesided_sim::Counts { reads, writes, compare_swaps, fetch_adds, .. } = report.counts;
        let notes = contest.notes.take();
        let whole = report.virtual_time.as_nanos() as u64;
        Outcome {
            worst_p99: notes.each.iter().map(|waits| waits.p99().unwrap_or(whole)).max().unwrap_or_default(),
            longest_gap: Duration::from_nanos(notes.longest_gap.max(whole - notes.last_at)),
            counts: notes.each.iter().map(|waits| waits.count()).collect(),
            lasted: report.virtual_time,
            waits: notes.waits,
            bypasses: notes.bypasses,
            operations: Operations { reads, writes, compare_swaps, fetch_adds },
            events: report.events,
            trace: report.trace,
        }
    }
}

/// How many acquisitions follow an owner that stops or dies.
const AFTER_STOP: u32 = 1_000;

/// Serves a lock at its home.
pub(super) fn server<A: LockAlgorithm + Clone + 'static>(lock: &A, home: SimFabric) -> Task {
    let lock = lock.clone();
    let slots = home.allocate(8 * u64::from(home.size()));
    Box::pin(async move {
        let _slots = slots;
        let site = Site::<_, A>::new(&home, None, None);
        // It fails only when the simulation is over.
        let _ = lock.serve(&home, Spot(&site), || true).await;
    })
}

/// What all ranks share.
struct Contest<'a, A> {
    run: &'a ThroughputRun<'a, A>,
    common: Common<'a>,
    notes: RefCell<Notes>,
    /// Whether an owner has stopped.
    stopped: Cell<bool>,
    /// The owner that is about to stop in its section.
    stops: Cell<Option<Rank>>,
    /// How many acquisitions are to follow.
    rest: Cell<u32>,
    /// The first fault of a rank.
    failed: Cell<Option<(Rank, Fault)>>,
}

impl<A: LockAlgorithm> Contest<'_, A> {
    /// The program of a rank: the home's, or an origin's.
    #[expect(clippy::manual_async_fn, reason = "an `async fn` keeps its arguments twice, of every rank")]
    fn take_part(&self, fabric: SimFabric) -> impl Future<Output = ()> {
        async move {
            if fabric.rank() == Rank(0) {
                if let (true, Some((by, server))) = (A::SERVED, self.run.server)
                    && let Err(fault) = fabric.serve_apart(server(self.run.lock, fabric.clone()), by)
                {
                    self.fails(&fabric, fault);
                }
                return;
            }
            let leader = self.leader_of(&fabric);
            let mut origin = Origin::new(self.run, Site::new(&fabric, None, leader.as_deref()), &self.common);
            let fault = loop {
                if let Err(fault) = origin.once(self).await {
                    break fault;
                }
            };
            self.fails(&fabric, fault);
        }
    }

    /// The lowest rank of a host, if the lock has host words. Boxed: few locks have.
    fn leader_of(&self, fabric: &SimFabric) -> Option<Box<SimSegment>> {
        let Rank(rank) = fabric.rank();
        let leader = || fabric.world_segment(Rank(rank - rank % self.run.per_host.max(1))).ok();
        (A::HOST_WORDS > 0).then(leader).flatten().map(Box::new)
    }

    fn fails(&self, fabric: &SimFabric, fault: Fault) {
        self.failed.set(self.failed.get().or(Some((fabric.rank(), fault))));
    }
}

/// What an origin does beside its operations, in virtual time.
impl<R: LockAlgorithm> Beside<SimFabric> for Contest<'_, R> {
    const TIMES: bool = true;

    fn acquired<A>(&self, site: &Site<'_, SimFabric, A>, waited: u64, others: u64) {
        let (now, rank) = (site.fabric.now(), site.fabric.rank());
        self.notes.borrow_mut().add(rank.index() - 1, now, waited, others);
        let stops_now = |stop: Stop| now >= stop.after.as_nanos() as u64 && !self.stopped.replace(true);
        if self.run.stop.is_some_and(stops_now) {
            self.stops.set(Some(rank));
        }
        if self.stopped.get() {
            self.rest.set(self.rest.get() - 1);
            if self.rest.get() == 0 {
                site.fabric.end();
            }
        }
    }

    async fn spend<A: LockAlgorithm>(&self, site: &Site<'_, SimFabric, A>, long: Duration) -> Result<(), Fault> {
        let stops = self.stops.get() == Some(site.fabric.rank());
        let long = match self.run.stop.filter(|_| stops) {
            None => long,
            Some(Stop { long: Some(stopped), .. }) => {
                self.stops.set(None);
                long + stopped
            }
            Some(Stop { long: None, .. }) => {
                site.fabric.die();
                return std::future::pending().await;
            }
        };
        let until = site.fabric.now().saturating_add(long.as_nanos() as u64);
        let quiet = site.quiet()?;
        while site.fabric.now() < until {
            site.fabric.pause(quiet, until - site.fabric.now()).await;
        }
        Ok(())
    }
}

#[derive(Default)]
struct Notes {
    waits: Histogram,
    bypasses: Histogram,
    /// By origin.
    each: Vec<Waits>,
    last_at: u64,
    longest_gap: u64,
}

impl Notes {
    fn of(origins: u32) -> Self {
        Self { each: (0..origins).map(|_| Waits::default()).collect(), ..Self::default() }
    }

    fn add(&mut self, origin: usize, now: u64, waited: u64, between: u64) {
        self.waits.add(waited);
        self.bypasses.add(between);
        self.each[origin].add(waited);
        self.longest_gap = self.longest_gap.max(now - self.last_at);
        self.last_at = now;
    }
}

/// An origin's waits. There may be very many origins with one wait or none each; a [`Histogram`]
/// has 35 kB.
#[derive(Default)]
struct Waits {
    /// Plus one, to be as small as a number.
    first: Option<NonZeroU64>,
    #[expect(clippy::box_collection, reason = "a third of the size, of very many")]
    further: Option<Box<BTreeMap<u64, u64>>>,
}

impl Waits {
    /// Rounded to 1 %, to bound the number of values.
    fn add(&mut self, value: u64) {
        let low = value.checked_ilog2().map_or(0, |power| power.saturating_sub(6));
        let value = value >> low << low;
        match self.first {
            None => self.first = NonZeroU64::MIN.checked_add(value),
            Some(_) => *self.further.get_or_insert_default().entry(value).or_default() += 1,
        }
    }

    fn count(&self) -> u64 {
        let further = self.further.as_ref().map_or(0, |further| further.values().sum());
        u64::from(self.first.is_some()) + further
    }

    fn p99(&self) -> Option<u64> {
        let first = self.first?.get() - 1;
        let none = BTreeMap::new();
        let further = self.further.as_deref().unwrap_or(&none);
        let above = self.count() - (self.count() as f64 * 0.99).ceil() as u64;
        let mut all: Vec<_> = further.iter().map(|(value, count)| (*value, *count)).chain([(first, 1)]).collect();
        all.sort_unstable_by_key(|(value, _)| std::cmp::Reverse(*value));
        let mut seen = 0;
        all.into_iter().find_map(|(value, count)| {
            seen += count;
            (seen > above).then_some(value)
        })
    }
}

#[cfg(test)]
mod tests {
    use onesided_lock_algos::{
        DedicatedThread, DistributedCounters, EventThread, FetchAddQueue, Intent, LockUse, Mcs, Mode, TestAndSet,
        Ticket, TwoLevel,
    };
    use onesided_sim::Network;

    use super::*;

    /// The bytes of the future of an acquire that waits.
    fn waiter<A: LockAlgorithm>(lock: &A) -> usize {
        let report = Simulation::new(Network::default()).ranks(1).run_direct(|fabric| async move {
            let site = Site::<_, A>::new(&fabric, None, None);
            let words = lock.words(Spot(&site)).unwrap();
            let lock_use = LockUse::new(&fabric, Spot(&site), words, Mode::Exclusive);
            size_of_val(&lock.contend(lock_use, Ok(0), &|| Intent::LOCK))
        });
        report.results[0].unwrap()
    }

    /// A simulation has one for each rank.
    #[test]
    fn waiters_are_small() {
        let all = [
            (TestAndSet::NAME, waiter(&TestAndSet::default()), 248),
            (Mcs::NAME, waiter(&Mcs::default()), 312),
            (Ticket::<15>::NAME, waiter(&<Ticket>::default()), 280),
            (FetchAddQueue::<15>::NAME, waiter(&<FetchAddQueue>::default()), 376),
            (DistributedCounters::<15>::NAME, waiter(&<DistributedCounters>::default()), 288),
            (TwoLevel::NAME, waiter(&TwoLevel::default()), 456),
            (DedicatedThread::NAME, waiter(&DedicatedThread::default()), 288),
            (EventThread::NAME, waiter(&EventThread::default()), 288),
        ];
        assert!(all.iter().all(|(_, bytes, most)| bytes <= most), "bytes, and at most: {all:?}");
    }

    #[test]
    fn few_waits_have_their_percentile() {
        let mut waits = Waits::default();
        assert_eq!(waits.p99(), None);
        (1..=100).for_each(|value| waits.add(value * 1000));
        let p99 = waits.p99().unwrap();
        assert!((98_000..=99_000).contains(&p99), "{p99}");
    }
}
