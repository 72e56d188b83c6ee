//! The memory of a simulated rank, one that locks too, and the allocations of locks, counted.

mod counting;

use std::time::Duration;

use onesided_fabric::ServerThread;
use onesided_fabric::remote_memory::{At, Notify, Patience, Rank, RegionId, RemoteMemory};
use onesided_lock_algos::{
    DedicatedThread, DistributedCounters, EventThread, FetchAddQueue, LockAlgorithm, Mcs, TestAndSet, Ticket, TwoLevel,
};
use onesided_lock_kit::bench::ThroughputRun;
use onesided_sim::{End, Network, SimFabric, Simulation};

const ORIGINS: u32 = 5_000;

/// The bytes of a rank at a contended lock.
fn bytes<A: LockAlgorithm + Clone + 'static>(lock: &A) -> usize {
    let run = || {
        let run = ThroughputRun::of(lock)
            .origins(ORIGINS)
            .per_host(16)
            .section(Duration::from_micros(1))
            .idle(Duration::from_micros(1))
            .lasting(Duration::from_millis(3))
            .served(ServerThread::Polls)
            .simulated();
        assert!(run.events > u64::from(ORIGINS), "{}: {} events", A::NAME, run.events);
    };
    counting::peak_of(run) / ORIGINS as usize
}

/// Acquisitions, and allocations, of a run of so many milliseconds.
fn allocations<A: LockAlgorithm + Clone + 'static>(lock: &A, origins: u32, millis: u64) -> (u64, usize) {
    let before = counting::allocations();
    let run = ThroughputRun::of(lock).origins(origins).per_host(4).lasting(Duration::from_millis(millis)).simulated();
    (run.acquisitions(), counting::allocations() - before)
}

/// Without a death, neither an uncontended acquire nor a contended one allocates: a longer run does
/// not allocate more, but for a few counts of other waits.
fn allocates_nothing<A: LockAlgorithm + Clone + 'static>(lock: &A) {
    for origins in [1, 12] {
        let (few, many) = (allocations(lock, origins, 5), allocations(lock, origins, 50));
        let (acquired, allocated) = (many.0 - few.0, many.1.saturating_sub(few.1));
        assert!(acquired > 2_000, "{}, {origins} origins: {acquired}", A::NAME);
        let most = if origins == 1 { 0 } else { acquired / 20 };
        assert!(allocated as u64 <= most, "{}, {origins} origins: {allocated} of {acquired}", A::NAME);
    }
}

/// With the state of the lock, in which nearly all origins wait.
#[test]
fn a_rank_that_locks_is_small_and_allocates_nothing() {
    allocates_nothing(&TestAndSet::default());
    allocates_nothing(&Mcs::default());
    allocates_nothing(&<Ticket>::default());
    allocates_nothing(&<FetchAddQueue>::default());
    allocates_nothing(&TwoLevel::default());
    let all = [
        (bytes(&TestAndSet::default()), 660),
        (bytes(&Mcs::default()), 700),
        (bytes(&<Ticket>::default()), 660),
        (bytes(&<FetchAddQueue>::default()), 740),
        (bytes(&<DistributedCounters>::default()), 940),
        (bytes(&TwoLevel::default()), 850),
        (bytes(&<DedicatedThread>::default()), 1050),
        (bytes(&<EventThread>::default()), 1050),
    ];
    assert!(all.iter().all(|(bytes, most)| bytes <= most), "bytes a rank, and at most: {all:?}");
}

/// Adds at rank 0, notes that at its own node, and waits there for the next rank's word.
async fn queue_up(fabric: SimFabric) {
    let word = |rank, offset| fabric.word(At { rank, region: RegionId(0), offset }).unwrap();
    let (me, own) = (fabric.rank(), word(fabric.rank(), 8));
    let place = fabric.fetch_add(word(Rank(0), 0), 1).await.unwrap();
    fabric.store(word(me, 16), place).unwrap();
    let next = word(Rank((me.0 + 1) % fabric.size()), 8);
    if me != Rank(0) {
        fabric.wait_until(own, |value| value != 0, Patience::until(u64::MAX)).await.unwrap();
    }
    fabric.write(next, 1, Notify::Yes).await.unwrap();
}

/// The simulator's own state of a rank and the program above, without the state of a lock.
#[test]
fn a_rank_is_small() {
    const RANKS: u32 = 20_000;
    let bytes = counting::peak_of(|| {
        let report = Simulation::new(Network::default()).ranks(RANKS).run_direct(queue_up);
        assert_eq!(report.end, End::Finished);
    }) / RANKS as usize;
    assert!(bytes < 480, "{bytes} bytes a rank");
}
