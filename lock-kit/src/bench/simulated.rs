//! A throughput run of simulated ranks, in virtual time.

use std::cell::{Cell, OnceCell, RefCell};
use std::cmp::Reverse;
use std::collections::HashMap;
use std::future::Future;
use std::sync::atomic::AtomicU64;
use std::time::Duration;

use onesided_fabric::{Fabric, Task};
use onesided_lock_algos::{LockAlgorithm, Mode, served};
use onesided_remote_memory::{Fault, Rank, RemoteMemory};
use onesided_sim::{End, SimFabric, SimSegment, Simulation};

use super::context::{LockMemory, Site, Spot};
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
        let (outcome, .., failed) = self.simulate();
        failed.map_or(outcome, |failed| panic!("{failed}"))
    }

    /// The same of a lock that may be wrong. It is an error as well if owners exclude each other
    /// while both are inside, which takes a [section](Self::section), and if no acquire succeeds in
    /// half of the time that the run took.
    ///
    /// # Errors
    /// What the lock did wrong. The same run does it again.
    pub fn verdict(&self) -> Result<Outcome, String> {
        let (outcome, whole, end, failed) = self.simulate();
        if let Some(failed) = failed {
            return Err(failed);
        }
        if outcome.longest_gap > whole / 2 {
            let (name, gap, acquired) = (A::NAME, outcome.longest_gap, outcome.acquisitions());
            return Err(format!(
                "{name}: no acquire succeeds for {gap:?}, after {acquired}: ranks wait without end: {end}"
            ));
        }
        Ok(outcome)
    }

    /// Also how long the run took, including the time in which nothing happens, its end, and what failed.
    fn simulate(&self) -> (Outcome, Duration, End, Option<String>) {
        let acquired = AtomicU64::new(0);
        let hosts = if A::HOST_WORDS > 0 { self.origins / self.per_host.max(1) } else { 0 };
        let contest = &Contest {
            common: Common { run: self, acquired: &acquired, failed: None },
            notes: RefCell::new(Notes::of(self.origins)),
            hosts: (0..=hosts).map(|_| OnceCell::new()).collect(),
            stopped: Cell::new(false),
            stops: Cell::new(None),
            rest: Cell::new(AFTER_STOP),
            failed: RefCell::default(),
            inside: Cell::default(),
        };
        let simulation = Simulation::new(self.network.clone())
            .ranks(self.origins.saturating_add(contest.first_origin()))
            .per_host(self.per_host)
            .seed(self.seed)
            .events(self.events)
            .until(self.lasting);
        // Without a result, which would take room of every rank.
        let report = simulation.run_direct(|fabric| contest.take_part(fabric));
        let onesided_sim::Counts { reads, writes, compare_swaps, fetch_adds, .. } = report.counts;
        let notes = contest.notes.take();
        let (counts, worst_p99) = notes.each.of_each();
        let whole = match report.end {
            // Nothing happens in the rest of the time.
            End::Deadlock(_) if self.lasting < Duration::MAX => self.lasting,
            _ => report.virtual_time,
        };
        let whole = whole.as_nanos() as u64;
        let outcome = Outcome {
            worst_p99: worst_p99.unwrap_or(whole),
            longest_gap: Duration::from_nanos(notes.longest_gap.max(whole - notes.last_at)),
            counts,
            lasted: report.virtual_time,
            waits: notes.waits,
            bypasses: notes.bypasses,
            operations: Operations { reads, writes, compare_swaps, fetch_adds },
            events: report.events,
            trace: report.trace,
        };
        (outcome, Duration::from_nanos(whole), report.end, contest.failed.take())
    }
}

/// How many acquisitions follow an owner that stops or dies.
const AFTER_STOP: u32 = 1_000;

/// Serves a lock at its home.
pub(super) fn server<A: LockAlgorithm>(home: SimFabric) -> Task {
    let slots = home.allocate(8 * u64::from(home.size()));
    Box::pin(async move {
        let _slots = slots;
        let place = LockMemory { segments: None, leader: None };
        let site = Site::<_, A>::new(home, &place);
        // It fails only when the simulation is over.
        let _ = served::serve(&site.fabric, Spot(&site), || true).await;
    })
}

/// What all ranks share.
struct Contest<'a, A> {
    common: Common<'a, A>,
    notes: RefCell<Notes>,
    /// One for each host, if the lock has host words, otherwise one for all.
    hosts: Vec<OnceCell<LockMemory<SimSegment>>>,
    /// Whether an owner has stopped.
    stopped: Cell<bool>,
    /// The owner that is about to stop in its section.
    stops: Cell<Option<Rank>>,
    /// How many acquisitions are to follow.
    rest: Cell<u32>,
    /// What the lock did wrong first.
    failed: RefCell<Option<String>>,
    /// The exclusive owners that are inside, and the shared ones.
    inside: Cell<[u32; 2]>,
}

impl<A: LockAlgorithm> Contest<'_, A> {
    const fn first_origin(&self) -> u32 {
        if self.common.run.at_home { 0 } else { 1 }
    }

    /// The program of a rank: the home's, or an origin's.
    fn take_part(&self, fabric: SimFabric) -> impl Future<Output = ()> {
        let place = self.place(&fabric);
        let mut origin = Origin::new(Site::new(fabric, place), self);
        async move {
            let (fabric, contest) = (&origin.site.fabric, origin.beside);
            if fabric.rank().0 < contest.first_origin() {
                if let (true, Some(by)) = (A::SERVED, contest.common.run.server)
                    && let Err(fault) = fabric.endpoint().serve(server::<A>(fabric.clone()), Some(by))
                {
                    contest.fails(fabric, fault);
                }
                return;
            }
            let fault = loop {
                if let Err(fault) = origin.once().await {
                    break fault;
                }
            };
            origin.beside.fails(&origin.site.fabric, fault);
        }
    }

    fn place(&self, fabric: &SimFabric) -> &LockMemory<SimSegment> {
        let (Rank(rank), per_host) = (fabric.rank(), self.common.run.per_host.max(1));
        let leader = || fabric.world_segment(Rank(rank - rank % per_host)).ok();
        let host = self.hosts.get((rank / per_host) as usize).unwrap_or(&self.hosts[0]);
        host.get_or_init(|| LockMemory { segments: None, leader: if A::HOST_WORDS > 0 { leader() } else { None } })
    }

    fn fails(&self, fabric: &SimFabric, fault: Fault) {
        self.failed.borrow_mut().get_or_insert_with(|| format!("{}, {}: {fault}", A::NAME, fabric.rank()));
    }
}

/// What an origin does beside its operations, in virtual time.
impl<A: LockAlgorithm> Beside<SimFabric, A> for Contest<'_, A> {
    const TIMES: bool = true;

    fn common(&self) -> &Common<'_, A> {
        &self.common
    }

    fn acquired(&self, site: &Site<'_, SimFabric, A>, waited: u64, others: u64) {
        let (now, rank) = (site.fabric.now(), site.fabric.rank());
        self.notes.borrow_mut().add((rank.0 - self.first_origin()) as usize, now, waited, others);
        let stops_now = |stop: Stop| now >= stop.after.as_nanos() as u64 && !self.stopped.replace(true);
        if self.common.run.stop.is_some_and(stops_now) {
            self.stops.set(Some(rank));
        }
        if self.stopped.get() {
            self.rest.set(self.rest.get() - 1);
            if self.rest.get() == 0 {
                site.fabric.end();
            }
        }
    }

    fn passes(&self, site: &Site<'_, SimFabric, A>, mode: Mode, enters: bool) {
        let mut inside = self.inside.get();
        let [alone, shared] = inside;
        if enters && (alone > 0 || shared > 0 && mode == Mode::Exclusive) {
            let (rank, at) = (site.fabric.rank(), site.fabric.now());
            let what = || {
                format!(
                    "{}: exclusion: {rank} entered {mode:?} at {at} ns while {alone} exclusive and {shared} shared owners are inside",
                    A::NAME
                )
            };
            self.failed.borrow_mut().get_or_insert_with(what);
        }
        let count = &mut inside[usize::from(mode == Mode::Shared)];
        *count = count.saturating_add_signed(if enters { 1 } else { -1 });
        self.inside.set(inside);
    }

    async fn spend(&self, site: &Site<'_, SimFabric, A>, long: Duration) -> Result<(), Fault> {
        let stops = self.stops.get() == Some(site.fabric.rank());
        let long = match self.common.run.stop.filter(|_| stops) {
            None => long,
            Some(Stop { long: Some(stopped), .. }) => {
                self.stops.set(None);
                long + stopped
            }
            Some(Stop { long: None, .. }) => {
                self.inside.take();
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
    each: Waits,
    last_at: u64,
    longest_gap: u64,
}

impl Notes {
    fn of(origins: u32) -> Self {
        Self { each: Waits::of(origins), ..Self::default() }
    }

    fn add(&mut self, origin: usize, now: u64, waited: u64, between: u64) {
        self.waits.add(waited);
        self.bypasses.add(between);
        self.each.add(origin, waited);
        self.longest_gap = self.longest_gap.max(now - self.last_at);
        self.last_at = now;
    }
}

/// The waits of each origin. There may be very many origins with one wait or none each; a
/// [`Histogram`] has 35 kB.
#[derive(Default)]
struct Waits {
    /// By origin; [`NONE`](Self::NONE) without a wait.
    first: Vec<u16>,
    /// By origin and wait: how often.
    further: HashMap<(u32, u16), u32>,
}

impl Waits {
    const NONE: u16 = u16::MAX;
    /// Bits of a value that are kept, below the highest: 1 %.
    const BITS: u32 = 6;

    fn of(origins: u32) -> Self {
        Self { first: vec![Self::NONE; origins as usize], further: HashMap::new() }
    }

    /// A value rounded to 1 %, as its highest bits and the number of those left out: in the order
    /// of the values.
    fn rounded(value: u64) -> u16 {
        let left_out = value.checked_ilog2().map_or(0, |power| power.saturating_sub(Self::BITS));
        ((left_out << Self::BITS) + (value >> left_out) as u32) as u16
    }

    const fn value(rounded: u16) -> u64 {
        let left_out = (rounded >> Self::BITS).saturating_sub(1);
        ((rounded - (left_out << Self::BITS)) as u64) << left_out
    }

    fn add(&mut self, origin: usize, value: u64) {
        let rounded = Self::rounded(value);
        match &mut self.first[origin] {
            first if *first == Self::NONE => *first = rounded,
            _ => *self.further.entry((origin as u32, rounded)).or_default() += 1,
        }
    }

    /// How often each origin has waited, and the largest of their 99th percentiles: `None` if one
    /// has not waited.
    fn of_each(&self) -> (Vec<u64>, Option<u64>) {
        let first = self.first.iter().zip(0..).filter(|(value, _)| **value != Self::NONE);
        let first = first.map(|(value, origin)| (origin, *value, 1));
        let further = self.further.iter().map(|((origin, value), count)| (*origin, *value, *count));
        let mut all: Vec<(u32, u16, u32)> = first.chain(further).collect();
        all.sort_unstable_by_key(|(origin, value, _)| (*origin, Reverse(*value)));
        let (mut counts, mut worst) = (vec![0; self.first.len()], 0);
        for waits in all.chunk_by(|one, next| one.0 == next.0) {
            let count = waits.iter().map(|(.., count)| u64::from(*count)).sum::<u64>();
            let above = count - (count as f64 * 0.99).ceil() as u64;
            let mut seen = 0;
            let p99 = waits.iter().find(|(.., count)| {
                seen += u64::from(*count);
                seen > above
            });
            worst = worst.max(p99.map_or(0, |(_, value, _)| Self::value(*value)));
            counts[waits[0].0 as usize] = count;
        }
        let all_waited = !counts.contains(&0);
        (counts, all_waited.then_some(worst))
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
            let place = LockMemory { segments: None, leader: None };
            let site = Site::<_, A>::new(fabric, &place);
            let words = lock.words(Spot(&site), Intent::LOCK).unwrap();
            let lock_use = LockUse::new(&site.fabric, Spot(&site), words, Mode::Exclusive);
            size_of_val(&lock.contend(lock_use, Ok(0), &|| Intent::LOCK))
        });
        report.results[0].unwrap()
    }

    /// A simulation has one for each rank.
    #[test]
    fn waiters_are_small() {
        let all = [
            (TestAndSet::NAME, waiter(&TestAndSet::default()), 232),
            (Mcs::NAME, waiter(&Mcs::default()), 256),
            (Ticket::<15>::NAME, waiter(&<Ticket>::default()), 216),
            (FetchAddQueue::<15>::NAME, waiter(&<FetchAddQueue>::default()), 288),
            (DistributedCounters::<15>::NAME, waiter(&<DistributedCounters>::default()), 224),
            (TwoLevel::NAME, waiter(&TwoLevel::default()), 384),
            (DedicatedThread::NAME, waiter(&DedicatedThread::default()), 280),
            (EventThread::NAME, waiter(&EventThread::default()), 280),
        ];
        assert!(all.iter().all(|(_, bytes, most)| bytes <= most), "bytes, and at most: {all:?}");
    }

    #[test]
    fn few_waits_have_their_percentile() {
        let mut waits = Waits::of(2);
        (1..=100).for_each(|value| waits.add(1, value * 1000));
        assert_eq!(waits.of_each(), (vec![0, 100], None));
        waits.add(0, 7);
        let (counts, p99) = waits.of_each();
        assert!(counts == [1, 100] && p99.is_some_and(|p99| (98_000..=99_000).contains(&p99)), "{p99:?}");
        for (value, rounded) in [(0, 0), (127, 127), (128, 128), (129, 128), (9_999, 9_984), (u64::MAX, 127 << 57)] {
            assert_eq!(Waits::value(Waits::rounded(value)), rounded, "{value}");
        }
    }
}
