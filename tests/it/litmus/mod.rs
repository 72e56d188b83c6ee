//! Litmus tests of the memory model: small programs, run many times with random skew, that count
//! how often they saw what `src/manual/memory_model.rs` forbids.
//!
//! Each program has a test by threads and one by processes, on shared memory or, with
//! `ONESIDED_FABRIC` and `ONESIDED_IT_FABRIC`, on another fabric; one in simulation, on a network
//! whose messages overtake each other; and one on fabrics that break the promise on purpose
//! (`planted`), which it must catch, because not every processor shows a missing fence, but the
//! simulator does. One more runs by processes whose windows lie over user memory, by copies of the
//! kernel and by the targets' helper threads.

mod active;
mod atomics;
mod locks;
mod order;
mod planted;

use std::future::Future;
use std::ops::AddAssign;
use std::time::Duration;

use onesided_fabric::remote_memory::{FaultKind, Patience, Rank};
use onesided_fabric::{Any, AtomicAgent, Fabric, Transport, World, block_on};
use onesided_sim::{End, Network, SimFabric, Simulation};
use onesided_windows::{Element, Error, Window};

use crate::designs;
use crate::jobs::{self, Role};
use crate::support;
use planted::{Flaw, Planted};

/// How often ranks saw a forbidden outcome, and one that is merely not promised.
#[derive(Clone, Copy, Debug, Default)]
struct Seen {
    forbidden: u64,
    weak: u64,
}

impl AddAssign for Seen {
    fn add_assign(&mut self, other: Self) {
        self.forbidden += other.forbidden;
        self.weak += other.weak;
    }
}

type Outcome = Result<Seen, Error>;

/// Longer than any message takes, in nanoseconds.
const LONG: u64 = 30_000_000_000;

/// Makes a process's windows lie over user memory.
const USER_MEMORY: &str = "ONESIDED_IT_USER_MEMORY";

/// A way to user memory, as `ONESIDED_PROCESS_VM` names it: by copies of the kernel, where the
/// system allows them.
const BY_KERNEL: &str = "on";
/// By the target's helper thread.
const BY_HELPER: &str = "off";
const BOTH: &[&str] = &[BY_KERNEL, BY_HELPER];
/// For promises that rest on single accesses, which copies of the kernel are not.
const HELPER: &[&str] = &[BY_HELPER];

/// The tests of each: `name: body, ranks, the ways to user memory, flaws that it must catch`.
macro_rules! litmus {
    ($($name:ident: $body:path, $ranks:expr, $ways:expr, [$($flaw:ident),+];)+) => {
        pub(crate) const ROLES: &[Role] = &[$((concat!("litmus ", stringify!($name)), |world| rank(world, $body)),)+];

        $(mod $name {
            use super::*;

            #[test]
            fn threads() {
                by_threads($ranks, $body);
            }

            #[test]
            fn processes() {
                by_processes($ranks, concat!("litmus ", stringify!($name)));
            }

            #[test]
            fn user_memory() {
                by_processes_on_user_memory($ranks, concat!("litmus ", stringify!($name)), $ways);
            }

            #[test]
            fn simulated() {
                super::simulated($ranks, $body);
            }

            #[test]
            fn planted() {
                for flaw in [$(Flaw::$flaw),+] {
                    catches($ranks, flaw, $body);
                }
            }
        })+
    };
}

litmus! {
    store_buffering: order::store_buffering, 2, BOTH, [IdleFlush];
    message_passing: order::message_passing, 3, BOTH, [IdleFlush];
    third_rank: order::third_rank, 3, BOTH, [IdleFlush];
    coherence: order::coherence, 3, HELPER, [LatePuts];
    read_own_writes: order::read_own_writes, 2, BOTH, [LatePuts];
    signal: order::signal, 2, BOTH, [LatePuts];
    sync_store_buffering: order::sync_store_buffering, 2, BOTH, [LateOwn];
    sync_message_passing: order::sync_message_passing, 2, BOTH, [LatePuts];
    single_access: order::single_access, 3, HELPER, [TornBytes];
    lock_hands_over: locks::lock_hands_over, 3, BOTH, [OpenLocks, LatePuts];
    locked_update: locks::locked_update, 3, BOTH, [OpenLocks, EarlyBytes];
    local_under_lock: locks::local_under_lock, 2, BOTH, [OpenLocks];
    lock_elsewhere: locks::lock_elsewhere, 3, BOTH, [IdleFlush];
    fence: active::fence, 3, BOTH, [IdleFlush];
    post_start_complete_wait: active::post_start_complete_wait, 2, BOTH, [LatePuts];
    barrier: active::barrier, 3, BOTH, [IdleFlush];
    complete_when_waited: atomics::complete_when_waited, 3, BOTH, [LateAtomics];
    accumulate_order: atomics::accumulate_order, 2, BOTH, [LateAtomics];
    atomicity: atomics::atomicity, 3, BOTH, [TornAtomics];
    versioned_read: locks::versioned_read, 3, BOTH, [LatePuts, StaleVersion];
    neighbours: atomics::neighbours, 2, BOTH, [TornAtomics];
}

/// A fabric that keeps no order between regions, and reports so.
#[test]
fn bytes_may_overtake_words_of_another_region() {
    for seed in 0..10 {
        let reported = |fabric| World::new(Planted::new(fabric, Flaw::ReportedEarlyBytes));
        let simulation = || Simulation::new(network()).ranks(3).seed(seed);
        let reports = [
            simulation().run_direct(move |fabric| locks::lock_hands_over(reported(fabric))),
            simulation().run_direct(move |fabric| locks::locked_update(reported(fabric))),
            simulation().run_direct(move |fabric| locks::versioned_read(reported(fabric))),
        ];
        for (number, report) in reports.into_iter().enumerate() {
            assert_eq!(report.end, End::Finished, "{number}, seed {seed}");
            assert_eq!(sum(report.results.into_iter().flatten()).forbidden, 0, "{number}, seed {seed}");
        }
    }
}

/// An order that is not promised is indeed not kept, where the network shows it.
#[test]
fn a_lock_orders_nothing_elsewhere() {
    let weak: u64 = (0..10).map(|seed| simulate(3, seed, locks::lock_elsewhere).weak).sum();
    assert!(weak > 0, "a put to one target was never late behind the lock of another");
}

/// A rank of a job of processes.
fn rank<R: Future<Output = Outcome>>(world: World<Any>, body: fn(World<Any>) -> R) {
    let fabric = world.fabric().clone();
    let seen = block_on(&fabric, body(world)).unwrap();
    assert_eq!(seen.forbidden, 0);
    jobs::ok();
}

fn by_threads<R: Future<Output = Outcome> + 'static>(ranks: u32, body: fn(World<Any>) -> R) {
    let outcomes = support::ranks(ranks, move |world| {
        let fabric = world.fabric().clone();
        block_on(&fabric, body(world))
    });
    assert_eq!(sum(outcomes).forbidden, 0);
}

fn by_processes(ranks: u32, role: &str) {
    let ended = jobs::start(ranks, role).wait();
    assert_eq!((ended.code, ended.ok()), (0, (0..ranks).collect()), "{ended:#?}");
}

fn by_processes_on_user_memory(ranks: u32, role: &str, ways: &[&str]) {
    // Cards reach user memory in one way.
    let ways = if jobs::is_on_cards() { &ways[..1] } else { ways };
    for way in ways {
        let variables =
            [(jobs::ROLE, role.as_ref()), (USER_MEMORY, "1".as_ref()), ("ONESIDED_PROCESS_VM", way.as_ref())];
        let ended = jobs::start_with(ranks, &variables).wait();
        assert_eq!((ended.code, ended.ok()), (0, (0..ranks).collect()), "process_vm {way}: {ended:#?}");
    }
}

fn simulated<R: Future<Output = Outcome>>(ranks: u32, body: fn(World<SimFabric>) -> R) {
    for seed in 0..10 {
        assert_eq!(simulate(ranks, seed, body).forbidden, 0, "seed {seed}");
    }
}

/// Messages of different connections overtake each other by far.
fn network() -> Network {
    Network { loss: 0.01, jitter: Duration::from_micros(20), ..Network::default() }
}

fn simulate<R: Future<Output = Outcome>>(ranks: u32, seed: u64, body: fn(World<SimFabric>) -> R) -> Seen {
    let report = Simulation::new(network()).ranks(ranks).seed(seed).run(body);
    assert_eq!(report.end, End::Finished, "seed {seed}");
    sum(report.results.into_iter().flatten())
}

/// On a fabric with a planted flaw the forbidden outcome occurs.
fn catches<R: Future<Output = Outcome>>(ranks: u32, flaw: Flaw, body: fn(World<Planted>) -> R) {
    let caught = (0..50).any(|seed| {
        let report = Simulation::new(network())
            .ranks(ranks)
            .seed(seed)
            .run_direct(|fabric| body(World::new(Planted::new(fabric, flaw))));
        assert_eq!(report.end, End::Finished, "{flaw:?}, seed {seed}");
        report.results.into_iter().flatten().any(|outcome| match outcome {
            // A lock that does not exclude is also detected by its own release.
            Err(error) => error.fault().is_some_and(|fault| fault.kind() == FaultKind::NotHeld) || panic!("{error}"),
            Ok(seen) => seen.forbidden > 0,
        })
    });
    assert!(caught, "{flaw:?} was not caught");
}

fn sum(outcomes: impl IntoIterator<Item = Outcome>) -> Seen {
    let mut seen = Seen::default();
    outcomes.into_iter().for_each(|outcome| seen += outcome.unwrap());
    seen
}

/// What a body needs in addition to its window.
struct Rig<F: Fabric> {
    world: World<F>,
    rng: u64,
    user_memory: bool,
}

impl<F: Fabric> Rig<F> {
    fn new(world: World<F>) -> Self {
        let rng = u64::from(world.rank()) + 1;
        Self { world, rng, user_memory: std::env::var_os(USER_MEMORY).is_some() }
    }

    /// A window over allocated memory, or over user memory.
    async fn window<T: Element>(&self, len: usize) -> Result<Window<T, F>, Error> {
        let builder = Window::<T>::builder();
        if self.user_memory {
            builder.create(&self.world, vec![T::zeroed(); len]).await
        } else {
            builder.allocate(&self.world, len).await
        }
    }

    fn rank(&self) -> u32 {
        self.world.rank()
    }

    fn agent(&self) -> AtomicAgent {
        self.world.fabric().capabilities().agent
    }

    /// The number of rounds for which there is time.
    fn rounds(&self) -> u64 {
        match self.agent() {
            // A helper thread has to be woken, and a number that fits a byte has no halves.
            AtomicAgent::Cpu if self.user_memory => 120,
            AtomicAgent::Cpu if designs::is_one_of_many() => 300,
            AtomicAgent::Cpu => 1500,
            AtomicAgent::Card => 12,
            _ => 24,
        }
    }

    /// A random number from 0 to `below` - 1.
    fn roll(&mut self, below: u64) -> u64 {
        self.rng = self.rng.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.rng >> 33) % below
    }

    /// Pauses for a random time, often none, so that the ranks interleave differently each time.
    async fn skew(&mut self) {
        match self.agent() {
            AtomicAgent::Simulated => self.pause_up_to(8_000).await,
            _ if self.roll(64) == 0 => std::thread::yield_now(),
            _ => (0..self.roll(100)).for_each(|_| std::hint::spin_loop()),
        }
    }

    async fn pause_up_to(&mut self, nanos: u64) {
        let nanos = self.roll(nanos);
        self.pause(nanos).await;
    }

    async fn pause(&self, nanos: u64) {
        let fabric = self.world.fabric();
        let own = fabric.world_segment(fabric.rank()).unwrap();
        fabric.pause(fabric.word_in(&own, 0).unwrap(), nanos).await;
    }

    async fn barrier(&self) {
        self.world.barrier().await.unwrap();
    }

    /// Sends a rank a number by a packet, which does not depend on windows.
    async fn send(&self, to: u32, value: u64) {
        self.world.fabric().transport().unwrap().send(Rank(to), &value.to_le_bytes()).await.unwrap();
    }

    async fn recv(&self) -> u64 {
        let fabric = self.world.fabric();
        let (_, bytes) = fabric.transport().unwrap().recv(Patience::until(fabric.now() + LONG)).await.unwrap();
        u64::from_le_bytes(bytes.try_into().unwrap())
    }

    /// How many cells, a bit each, both of two ranks missed. Rank 1 sends rank 0 what it missed.
    async fn both_missed(&self, missed: u64) -> u64 {
        if self.rank() == 1 {
            self.send(0, missed).await;
            return 0;
        }
        u64::from((missed & self.recv().await).count_ones())
    }
}
