//! Contests of `onesided_lock_kit::bench`. They are here because that crate is compiled with
//! optimisation, as its explorations need: that would take ten times as long as these tests.

use std::time::Duration;

use onesided_fabric::ServerThread;
use onesided_lock_algos::{DedicatedThread, Mcs, Simple, SimpleLock, SimpleUse, TestAndSet, Ticket};
use onesided_lock_kit::bench::{Operations, Outcome, ThroughputRun};
use onesided_remote_memory::{Fault, FaultKind, Rank, RemoteMemory};

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

#[test]
fn what_lies_outside_is_brought_inside() {
    let lock = TestAndSet::default();
    let contest = ThroughputRun::of(&lock).origins(0).readers(250).lasting(Duration::from_millis(1)).simulated();
    assert!(contest.counts.len() == 1 && contest.acquisitions() > 0, "{contest:?}");
    let none = ThroughputRun::of(&lock).lasting(Duration::ZERO).simulated();
    assert_eq!((none.acquisitions(), none.rate(), none.worst_p99), (0, 0.0, 0), "{none:?}");
}

#[test]
fn sections_and_rests_take_their_time() {
    let lock = TestAndSet::default();
    let contest = ThroughputRun::of(&lock).origins(1).lasting(Duration::from_millis(10));
    let busy = contest.clone().section(Duration::from_micros(300)).idle(Duration::from_micros(200)).simulated();
    assert!((18..=20).contains(&busy.acquisitions()), "every 500 us and some round trips: {}", busy.acquisitions());
    assert!(contest.simulated().acquisitions() > 1000);
}

#[test]
fn served_locks_have_a_server() {
    let lock = DedicatedThread::default();
    let run = ThroughputRun::of(&lock).origins(20).lasting(Duration::from_millis(2));
    let served = run.served(ServerThread::Polls).simulated();
    assert!(served.acquisitions() > 100 && served.jain() > 0.9, "{served:?}");
}

#[test]
fn an_owner_stops_or_dies() {
    let (ms, lock) = (Duration::from_millis(1), TestAndSet::default());
    let run = ThroughputRun::of(&lock).origins(8).lasting(40 * ms);
    let [plain, stopped, dead] =
        [run.clone(), run.clone().stops(10 * ms, 7 * ms), run.dies(10 * ms)].map(|run| run.simulated());
    assert!(plain.longest_gap < ms, "{:?}", plain.longest_gap);
    assert!((7 * ms..8 * ms).contains(&stopped.longest_gap), "{:?}", stopped.longest_gap);
    assert!((ms..7 * ms).contains(&dead.longest_gap), "learned of after a millisecond: {:?}", dead.longest_gap);
    assert!(dead.acquisitions() > 1_000 && dead.lasted < plain.lasted, "{dead:?}");
}

#[test]
fn a_run_ends_after_its_events() {
    let lock = <Ticket>::default();
    let run = ThroughputRun::of(&lock).origins(50).lasting(Duration::from_secs(10)).events(20_000).simulated();
    assert!((20_000..21_000).contains(&run.events) && run.lasted < Duration::from_secs(1), "{run:?}");
}

#[test]
fn threads_contend_and_everything_is_counted() {
    let long = Duration::from_millis(20);
    let alone = ThroughputRun::of(&TestAndSet::default()).origins(1).lasting(long).threads().unwrap();
    assert!(alone.acquisitions() > 0 && alone.waits.count() > 0, "{alone:?}");
    let Operations { compare_swaps, .. } = alone.operations;
    assert_eq!(compare_swaps, alone.waits.count(), "one each");
    assert_eq!((alone.operations_each(), alone.bypasses.largest()), (2.0, 0), "a compare-swap and a write");
    let three = ThroughputRun::of(&Mcs::default()).origins(3).readers(30).lasting(50 * long).threads().unwrap();
    assert_eq!(three.counts.len(), 3);
    assert!(three.counts.iter().all(|count| *count > 0) && three.operations_each() > 1.0, "{three:?}");
}

/// A lock whose first release fails or panics at one rank.
#[derive(Clone, Copy, Debug, Default)]
struct Fails {
    panics: bool,
}

impl SimpleLock for Fails {
    const NAME: &'static str = "fails";
    const WORDS: usize = 1;

    async fn acquire<M: RemoteMemory>(&self, lock: SimpleUse<'_, '_, M>) -> Result<(), Fault> {
        let mut lock = lock;
        while lock.memory.compare_swap(lock.word(0), 0, 1).await? != 0 {
            lock.pause(0).await?;
        }
        Ok(())
    }

    async fn release<M: RemoteMemory>(&self, lock: SimpleUse<'_, '_, M>) -> Result<(), Fault> {
        if lock.owner.rank == Rank(1) {
            assert!(!self.panics, "it panics");
            return Err(Fault::new(FaultKind::Protocol));
        }
        lock.memory.compare_swap(lock.word(0), 1, 0).await.map(drop)
    }
}

/// A lock that grants to everybody, or is not released.
#[derive(Clone, Copy, Debug)]
struct Wrong {
    is_released: bool,
}

impl SimpleLock for Wrong {
    const NAME: &'static str = "wrong";
    const WORDS: usize = 1;

    async fn acquire<M: RemoteMemory>(&self, mut lock: SimpleUse<'_, '_, M>) -> Result<(), Fault> {
        while !self.is_released && lock.memory.compare_swap(lock.word(0), 0, 1).await? != 0 {
            lock.pause(0).await?;
        }
        Ok(())
    }

    async fn release<M: RemoteMemory>(&self, lock: SimpleUse<'_, '_, M>) -> Result<(), Fault> {
        lock.memory.read(lock.word(0)).await.map(drop)
    }
}

#[test]
fn a_contest_of_a_wrong_lock_ends_and_says_what_is_wrong() {
    let (stuck, free) = (Simple::new(Wrong { is_released: false }), Simple::new(Wrong { is_released: true }));
    let error = ThroughputRun::of(&stuck).lasting(Duration::from_millis(1)).threads().unwrap_err();
    assert!(error.is_timed_out(), "{error}");
    for (lock, expected) in [(stuck, "no acquire succeeds"), (free, "exclusion: rank")] {
        let contest = ThroughputRun::of(&lock).at_home().origins(3).section(Duration::from_micros(1));
        let error = contest.lasting(Duration::from_millis(1)).verdict().unwrap_err();
        assert!(error.contains(expected), "{error}");
    }
    let right = TestAndSet::default();
    let contest = ThroughputRun::of(&right).at_home().section(Duration::from_micros(1)).readers(50).origins(9);
    assert!(contest.lasting(Duration::from_millis(1)).verdict().unwrap().counts.len() == 9);
}

#[test]
fn a_rank_that_fails_ends_the_contest_with_its_own_error() {
    let fails = Fails::default();
    let error =
        ThroughputRun::of(&Simple::new(fails)).origins(3).lasting(Duration::from_millis(20)).threads().unwrap_err();
    assert_eq!(error.fault().kind(), FaultKind::Protocol, "{error}");
}

#[test]
#[should_panic(expected = "it panics")]
fn a_rank_that_panics_ends_the_contest() {
    let fails = Fails { panics: true };
    let _ = ThroughputRun::of(&Simple::new(fails)).origins(3).lasting(Duration::from_millis(20)).threads();
}
