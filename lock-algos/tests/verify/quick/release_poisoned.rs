//! Recovering owners that release the lock as poisoned: the next acquire learns of the death.

use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

use crate::right::{distributed, global, mcs, queue, right, ticket, two_level};
use onesided_lock_algos::{Held, Intent, LockAlgorithm, Mode};
use onesided_lock_kit::ModelMemory;
use onesided_lock_kit::program::{idle, lock_and_data, region_words};
use onesided_remote_memory::{Fault, FaultKind, Rank};

use crate::stopped::{ENDLESS, SLOTS, run};
use crate::users::{User, slotted};

/// Longer than the suspicion timeout.
const LONG: usize = 20 * ENDLESS;

struct Fixture<'a, A> {
    lock: &'a A,
    all: Vec<ModelMemory>,
}

impl<'a, A: LockAlgorithm> Fixture<'a, A> {
    fn new(lock: &'a A) -> Self {
        let memory = ModelMemory::new(4, region_words::<A>(SLOTS));
        let all: Vec<_> = (0..4).map(|rank| memory.of(rank)).collect();
        Self { lock, all }
    }

    fn user(&self, rank: u32) -> User<'_, A> {
        User { lock: self.lock, memory: &self.all[rank as usize], owner: slotted(rank), slots: SLOTS }
    }

    fn run<T>(&self, mut future: Pin<Box<dyn Future<Output = T> + '_>>) -> Option<T> {
        run(&self.all[0], &mut future, LONG)
    }

    fn ask(&self, rank: u32, mode: Mode, intent: Intent) -> Option<Result<Held, Fault>> {
        self.run(self.user(rank).asks(mode, intent))
    }

    fn release(&self, rank: u32, mode: Mode) {
        assert_eq!(self.run(self.user(rank).releases(mode)), Some(Ok(())), "{}", A::NAME);
    }

    /// Acquires fail until one recovers; then the lock works.
    fn is_cancelled(&self, case: &str) {
        for intent in [Intent::LOCK, Intent::TRY, Intent::LOCK] {
            let told = self.ask(2, Mode::Exclusive, intent);
            let told = told.unwrap_or_else(|| panic!("{case}: waits without end")).map_err(|fault| fault.rank());
            assert_eq!(told, Err(Some(Rank(1))), "{case}, {intent:?}");
        }
        // The lock-all word reports deaths of its own.
        let is_reader = || self.ask(3, Mode::Shared, Intent::LOCK) == Some(Ok(Held::cleanly(Mode::Shared)));
        let recovers = || {
            let recovering = self.ask(2, Mode::Exclusive, Intent::LOCK.recovering()).unwrap().unwrap();
            assert!(recovering.recovered.is_some(), "{case}");
            self.release(2, recovering.mode);
            is_reader()
        };
        assert!(recovers() || recovers(), "{case}: no owner gets it any more");
        self.release(3, Mode::Shared);
        assert!(A::is_free(lock_and_data::<A>(&self.all[0].region()).0), "{case}");
        assert!([0, 2, 3].iter().all(|rank| idle::<A>(SLOTS, &self.all[*rank].region())), "{case}: somebody counts");
    }
}

/// Rank 1 dies or panics inside. Rank 0 recovers the lock and releases it as poisoned, with rank 3
/// waiting behind it or not.
fn releases_poisoned<A: LockAlgorithm>(lock: &A) {
    for (waits, panics) in [(false, false), (true, false), (false, true), (true, true)] {
        let fixture = Fixture::new(lock);
        let case = format!("{}, one waits: {waits}, the owner panicked: {panics}", A::NAME);
        fixture.ask(1, Mode::Exclusive, Intent::LOCK).unwrap().unwrap();
        match panics {
            true => {
                let why = Fault::of(FaultKind::OwnerPanicked, Rank(1));
                assert_eq!(fixture.run(fixture.user(1).releases_poisoned(why)), Some(Ok(())), "{case}");
            }
            false => fixture.all[0].world().kill(Rank(1)),
        }
        let held = fixture.ask(0, Mode::Exclusive, Intent::LOCK.recovering());
        let Some(Ok(Held { recovered: Some(why), .. })) = held else { panic!("{case}: {held:?}") };
        let mut third = fixture.user(3).asks(Mode::Exclusive, Intent::LOCK);
        if waits {
            assert!(run(&fixture.all[0], &mut third, 60).is_none(), "{case}");
        }
        let mut releasing = fixture.user(0).releases_poisoned(why);
        // A waiter may have to leave first.
        let ended = run(&fixture.all[0], &mut releasing, 60);
        if waits {
            let told = run(&fixture.all[0], &mut third, LONG).unwrap_or_else(|| panic!("{case}: waits without end"));
            assert_eq!(told.map_err(|fault| fault.rank()), Err(Some(Rank(1))), "{case}");
        }
        assert_eq!(ended.or_else(|| run(&fixture.all[0], &mut releasing, LONG)), Some(Ok(())), "{case}");
        drop(releasing);
        drop(third);
        fixture.is_cancelled(&case);
    }
}

/// Rank 0 is about to recover, and is cancelled after `asked` reads of its intent: if it fails, it
/// has not recovered.
fn given_up<A: LockAlgorithm>(lock: &A) {
    for then in [Intent::CANCELLED.recovering(), Intent::TRY.recovering(), Intent::TRY] {
        for limit in 0..60 {
            let fixture = Fixture::new(lock);
            let case = format!("{}, {then:?} after {limit}", A::NAME);
            fixture.ask(1, Mode::Exclusive, Intent::LOCK).unwrap().unwrap();
            fixture.all[0].world().kill(Rank(1));
            let asked = Arc::new(AtomicUsize::new(0));
            let (counts, patient) = (asked.clone(), Intent::LOCK.recovering());
            let intent = move || if counts.fetch_add(1, Relaxed) < limit { patient } else { then };
            let Some(told) = fixture.run(fixture.user(0).asks_as(Mode::Exclusive, Intent::LOCK, intent)) else { break };
            if told.is_err() {
                fixture.is_cancelled(&case);
            }
            if asked.load(Relaxed) < limit {
                break;
            }
        }
    }
}

fn tried<A: LockAlgorithm>(lock: &A) {
    releases_poisoned(lock);
    given_up(lock);
}

#[test]
fn test_and_set() {
    tried(&right());
}

#[test]
fn the_queue_lock() {
    tried(&mcs());
}

#[test]
fn tickets() {
    tried(&ticket::<15>());
    tried(&ticket::<2>());
}

#[test]
fn queues_by_fetch_add() {
    tried(&queue::<15, 16>());
}

#[test]
fn distributed_counters() {
    tried(&distributed::<15>());
}

#[test]
fn two_levels() {
    tried(&two_level(8));
    tried(&two_level(8).bypasses(1));
}

#[test]
fn lock_all() {
    tried(&global::<_, 15>(right()));
}
