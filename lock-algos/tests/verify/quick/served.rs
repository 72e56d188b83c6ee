//! The served locks: scenarios with a manually driven server.

use std::future::Future;
use std::pin::pin;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::task::{Context, Poll, Waker};

use onesided_lock_algos::served::wake;
use onesided_lock_algos::{DedicatedThread, EventThread, Held, Intent, LockAlgorithm, LockContext, LockUse, Mode};
use onesided_lock_kit::program::{idle, lock_and_data, region_words};
use onesided_lock_kit::random::{self, Server};
use onesided_lock_kit::{Layout, ModelMemory, Posted, Scenario, Search, Section, Setting, Slots};
use onesided_remote_memory::{Fault, FaultKind, Rank};

use crate::users::{User, slotted};

#[test]
fn searched() {
    Search::of(&EventThread::default()).seed(1).cases(300).run();
    Search::of(&EventThread::default()).deaths().seed(1).cases(300).run();
    Search::of(&EventThread::default()).leaves().seed(1).cases(300).run();
    Search::of(&DedicatedThread::default()).seed(1).cases(300).run();
}

#[test]
fn an_acquire_is_two_writes_and_an_answer_and_a_release_two_writes() {
    let writes = |programs: &[&[Section]]| {
        let programs = programs.iter().map(|rounds| rounds.to_vec()).collect();
        let scenario = Scenario { programs, schedule: vec![], death: None };
        let Posted { writes, compare_swaps, fetch_adds, .. } =
            random::run(Setting::USUAL, &EventThread::default(), &scenario).unwrap().posted;
        assert_eq!((compare_swaps, fetch_adds), (0, 0));
        writes
    };
    let quiet = Section::EXCLUSIVE.touching(0);
    let stopped = 1; // the wake event, at the end
    assert_eq!(writes(&[&[quiet], &[]]), 5 + stopped);
    assert_eq!(writes(&[&[quiet; 3], &[]]), 3 * 5 + stopped);
    assert_eq!(writes(&[&[quiet], &[quiet], &[quiet], &[quiet]]), 4 * 5 + stopped, "however many ask");
}

const SLOTS: Slots = Slots::new(1);

/// A lock and its server, driven manually.
struct Fixture {
    all: Vec<ModelMemory>,
    lock: EventThread,
    server: std::cell::RefCell<Server>,
}

impl Fixture {
    fn new() -> Self {
        let memory = ModelMemory::new(4, region_words::<EventThread>(SLOTS));
        let all: Vec<_> = (0..4).map(|rank| memory.of(rank)).collect();
        let lock = EventThread::default();
        let server = Server::start::<EventThread>(&memory, SLOTS).into();
        Self { all, lock, server }
    }

    fn drive<T>(&self, future: impl Future<Output = T>) -> T {
        let (mut future, mut cx) = (pin!(future), Context::from_waker(Waker::noop()));
        for _ in 0..2_000 {
            if let Poll::Ready(value) = future.as_mut().poll(&mut cx) {
                return value;
            }
            assert!(self.look(), "waits without end");
        }
        panic!("waits without end")
    }

    fn context(&self, rank: u32) -> Layout<'_, ModelMemory> {
        Layout::new::<EventThread>(&self.all[rank as usize], slotted(rank), SLOTS)
    }

    fn user(&self, rank: u32) -> User<'_, EventThread> {
        User { lock: &self.lock, memory: &self.all[rank as usize], owner: slotted(rank), slots: SLOTS }
    }

    fn ask(&self, rank: u32, mode: Mode, intent: Intent) -> Result<Held, Fault> {
        self.drive(self.user(rank).asks(mode, intent))
    }

    fn release(&self, rank: u32, mode: Mode) -> Result<(), Fault> {
        self.drive(self.user(rank).releases(mode))
    }

    /// Polls the server, then runs one event.
    fn look(&self) -> bool {
        let mut cx = Context::from_waker(Waker::noop());
        assert!(self.server.borrow_mut().task.as_mut().poll(&mut cx).is_pending(), "the server ended");
        self.all[0].world().step()
    }

    /// No owner is left.
    fn fire(&self) {
        self.server.borrow_mut().task = Box::pin(std::future::pending());
    }

    /// Ends the server, and checks that the lock is free.
    fn close(self) -> bool {
        let Server { mut task, open } = self.server.into_inner();
        open.store(false, Relaxed);
        let memory = &self.all[0];
        random::drive(memory, wake(memory, Layout::of_server::<EventThread>(memory, SLOTS))).unwrap();
        random::drive(memory, &mut task).unwrap();
        let home = memory.region();
        EventThread::is_free(lock_and_data::<EventThread>(&home).0)
    }
}

/// Acquires that do not recover fail, again and again, until one recovers.
fn poison(kind: FaultKind, recovering: Intent) {
    let fixture = Fixture::new();
    let case = format!("{kind:?} {recovering:?}");
    let died = Fault::of(kind, Rank(1));
    assert_eq!(fixture.ask(1, Mode::Exclusive, Intent::LOCK), Ok(Held::cleanly(Mode::Exclusive)), "{case}");
    let busy = Err(Fault::new(FaultKind::TimedOut));
    assert_eq!(fixture.ask(2, Mode::Exclusive, Intent::TRY), busy, "{case}");
    match kind {
        FaultKind::OwnerPanicked => {
            assert_eq!(fixture.drive(fixture.user(1).releases_poisoned(died)), Ok(()), "{case}")
        }
        _ => fixture.all[0].world().kill(Rank(1)),
    }
    for _ in 0..2 {
        for (rank, mode) in [(0, Mode::Exclusive), (2, Mode::Exclusive), (3, Mode::Shared)] {
            assert_eq!(fixture.ask(rank, mode, Intent::LOCK), Err(died), "{case}: rank {rank} {mode:?}");
            assert_eq!(fixture.ask(rank, mode, Intent::TRY), Err(died), "{case}: rank {rank} {mode:?} tries");
            let over = fixture.ask(rank, mode, Intent::CANCELLED);
            assert_eq!(over, Err(Fault::new(FaultKind::Closed)), "{case}: rank {rank} {mode:?} does not want it");
        }
        // Nor does a recovering owner.
        let held = Held::after(died, Mode::Exclusive);
        assert_eq!(fixture.ask(3, Mode::Shared, recovering), Ok(held), "{case}");
        assert_eq!(fixture.drive(fixture.user(3).releases_poisoned(died)), Ok(()), "{case}");
    }
    assert_eq!(fixture.ask(3, Mode::Shared, recovering), Ok(Held::after(died, Mode::Exclusive)), "{case}");
    assert_eq!(fixture.ask(0, Mode::Shared, Intent::TRY.recovering()), busy, "{case}: beside the recovering owner");
    assert_eq!(fixture.release(3, Mode::Exclusive), Ok(()), "{case}");
    for mode in [Mode::Exclusive, Mode::Shared] {
        for intent in [Intent::LOCK, Intent::TRY, Intent::LOCK.recovering()] {
            assert_eq!(fixture.ask(2, mode, intent), Ok(Held::cleanly(mode)), "{case}: healed");
            assert_eq!(fixture.release(2, mode), Ok(()), "{case}: healed");
        }
    }
    for rank in [0, 2, 3] {
        assert!(idle::<EventThread>(SLOTS, &fixture.all[rank].region()), "{case}: rank {rank} counts");
    }
    assert!(fixture.close(), "{case}");
}

#[test]
fn a_served_lock_is_poisoned_until_one_recovers() {
    for kind in [FaultKind::OwnerDied, FaultKind::OwnerPanicked] {
        for recovering in [Intent::LOCK.recovering(), Intent::TRY.recovering()] {
            poison(kind, recovering);
        }
    }
}

#[test]
fn a_dead_reader_poisons_nothing() {
    let fixture = Fixture::new();
    assert_eq!(fixture.ask(1, Mode::Shared, Intent::LOCK), Ok(Held::cleanly(Mode::Shared)));
    fixture.all[0].world().kill(Rank(1));
    assert_eq!(fixture.ask(2, Mode::Exclusive, Intent::LOCK), Ok(Held::cleanly(Mode::Exclusive)));
    assert_eq!(fixture.release(2, Mode::Exclusive), Ok(()));
    assert!(fixture.close());
}

/// A recovering owner that is cancelled after `asked` reads of its intent: if it fails, it has not
/// recovered.
#[test]
fn a_cancelled_acquire_has_not_recovered() {
    for then in [Intent::CANCELLED.recovering(), Intent::TRY.recovering()] {
        for limit in 1..100 {
            let fixture = Fixture::new();
            fixture.ask(1, Mode::Exclusive, Intent::LOCK).unwrap();
            fixture.all[0].world().kill(Rank(1));
            let (asked, patient) = (AtomicUsize::new(0), Intent::LOCK.recovering());
            let intent = || if asked.fetch_add(1, Relaxed) < limit { patient } else { then };
            let told = fixture.drive(fixture.user(3).asks_as(Mode::Exclusive, Intent::LOCK, intent));
            if told.is_ok_and(|held| held.recovered.is_some()) {
                if asked.load(Relaxed) < limit {
                    break;
                }
                continue;
            }
            let next = fixture.ask(2, Mode::Exclusive, Intent::LOCK);
            assert!(next.is_err(), "{then:?} after {limit}: {told:?}, then {next:?}");
        }
    }
}

#[test]
fn waiters_for_a_dead_home_fail() {
    let fixture = Fixture::new();
    assert_eq!(fixture.ask(1, Mode::Exclusive, Intent::LOCK), Ok(Held::cleanly(Mode::Exclusive)));
    fixture.all[0].world().kill(Rank(0));
    fixture.fire();
    let ended = fixture.ask(2, Mode::Shared, Intent::LOCK);
    assert_eq!(ended, Err(Fault::of(FaultKind::PeerDied, Rank(0))));
}

#[test]
fn acquires_without_a_server_fail() {
    let fixture = Fixture::new();
    fixture.server.borrow().open.store(false, Relaxed);
    let memory = &fixture.all[0];
    random::drive(memory, wake(memory, Layout::of_server::<EventThread>(memory, SLOTS))).unwrap();
    random::drive(memory, &mut fixture.server.borrow_mut().task).unwrap();
    fixture.fire();
    let refused = fixture.ask(2, Mode::Shared, Intent::LOCK);
    assert_eq!(refused, Err(Fault::of(FaultKind::Closed, Rank(0))));
}

#[test]
fn a_release_without_a_lock_fails_and_changes_nothing() {
    let not_held = Err(Fault::new(FaultKind::NotHeld));
    for mode in [Mode::Exclusive, Mode::Shared] {
        let fixture = Fixture::new();
        assert_eq!(fixture.release(2, mode), not_held, "nobody holds it");
        assert_eq!(fixture.ask(1, mode, Intent::LOCK), Ok(Held::cleanly(mode)));
        let before = fixture.all[0].region();
        assert_eq!(fixture.release(2, mode), not_held, "a stranger");
        assert_eq!(fixture.all[0].region(), before);
        assert_eq!(fixture.release(1, mode), Ok(()));
        assert_eq!(fixture.release(1, mode), not_held, "twice");
        assert!(fixture.close());
    }
}

#[test]
fn checked() {
    super::check(&EventThread::default(), 2);
    super::check(&DedicatedThread::default(), 2);
}

/// Requests that the server has not handled when it handles the try.
#[test]
fn a_try_after_a_release_succeeds() {
    let deliver = |fixture: &Fixture| while fixture.all[0].world().step() {};
    let owners: [(Mode, &[u32]); 2] = [(Mode::Exclusive, &[1]), (Mode::Shared, &[1, 2])];
    for (mode, owners) in owners {
        let fixture = Fixture::new();
        for owner in owners {
            assert_eq!(fixture.ask(*owner, mode, Intent::LOCK), Ok(Held::cleanly(mode)));
        }
        deliver(&fixture);
        for rank in owners {
            random::drive(&fixture.all[0], fixture.user(*rank).releases(mode)).unwrap();
            deliver(&fixture);
        }
        let (memory, context, lock) = (&fixture.all[3], fixture.context(3), &fixture.lock);
        let words = lock.words(context, Intent::TRY).unwrap();
        let first = lock.start(LockUse::new(memory, context, words, Mode::Exclusive)).unwrap();
        deliver(&fixture);
        let held =
            fixture.drive(lock.finish(LockUse::new(memory, context, words, Mode::Exclusive), first, || Intent::TRY));
        assert_eq!(held, Ok(Held::cleanly(Mode::Exclusive)), "{mode:?}");
    }
}

/// A late reply to another owner of the same node does not change who holds the lock.
#[test]
fn a_late_reply_changes_nothing() {
    let fixture = Fixture::new();
    assert_eq!(fixture.ask(1, Mode::Exclusive, Intent::LOCK), Ok(Held::cleanly(Mode::Exclusive)));
    let node = fixture.context(1).node(1).unwrap();
    fixture.all[1].world().words[node] = 7 << 24; // with another request id
    assert_eq!(fixture.release(1, Mode::Exclusive), Ok(()));
    assert!(fixture.close());
}

/// A server that ends reports the owners inside.
#[test]
fn a_lock_that_is_held_when_its_server_ends_is_not_free() {
    for mode in [Mode::Exclusive, Mode::Shared] {
        let fixture = Fixture::new();
        assert_eq!(fixture.ask(1, mode, Intent::LOCK), Ok(Held::cleanly(mode)));
        assert!(!fixture.close(), "{mode:?}");
    }
    assert!(Fixture::new().close());
}
