//! The locks that a thread at the target serves, with the code of that thread as one more task beside the origins.

use std::future::Future;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::task::{Context, Poll, Waker};

use lock_algos::{DedicatedThread, EventThread, Held, LockAlgorithm, Mode, Owner, Wish};
use lock_kit::modelled::{Server, expect_caught, run};
use lock_kit::program::{idle, lock_and_data, open, region_words};
use lock_kit::{Action, Exploration, Ground, ModelMemory, Posted, Round, Scenario, Search, Setting, Slots};
use remote_memory::{Fault, FaultKind, Rank};

const X: Round = Round::EXCLUSIVE;
const S: Round = Round::SHARED;
/// The word of the bell.
const BELL: usize = 1;

fn explore(programs: &[&[Round]], preemptions: usize, at_least: usize) {
    Exploration::of(&EventThread::default()).preemptions(preemptions).at_least(at_least).run(programs);
}

#[test]
fn two_origins() {
    explore(&[&[X], &[X]], 2, 10_000);
    explore(&[&[X, S], &[S, X]], 1, 1_000);
    explore(&[&[S], &[X.early(1)]], 1, 500);
}

#[test]
#[ignore = "150,000 executions take minutes: run by hand when the lock changes"]
fn three_origins() {
    explore(&[&[X], &[S], &[X]], 1, 10_000);
}

#[test]
fn tries_and_owners_without_nodes() {
    explore(&[&[X.trying(), S.trying()], &[X]], 1, 500);
    explore(&[&[S.trying()], &[S, X]], 1, 500);
    explore(&[&[X.without_node()], &[X]], 1, 500);
    explore(&[&[S.without_node()], &[S.without_node(), X]], 1, 500);
}

/// Given up before the first question, and between the first and the second.
#[test]
fn acquires_that_are_given_up() {
    for asked in 0..2 {
        explore(&[&[S.abandoned(asked)], &[X]], 1, 100);
        explore(&[&[X.abandoned(asked)], &[S]], 1, 100);
    }
}

#[test]
fn the_dead_are_named() {
    let lock = Exploration::of(&EventThread::default()).preemptions(1);
    lock.run_death(Mode::Exclusive, X, FaultKind::OwnerDied);
    lock.run_death(Mode::Exclusive, S, FaultKind::OwnerDied);
    lock.run_death(Mode::Shared, X, FaultKind::MemberDied);
    lock.run_death(Mode::Exclusive, X.without_node(), FaultKind::OwnerDied);
}

#[test]
fn searched() {
    Search::of(&EventThread::default()).run();
    Search::of(&DedicatedThread::default()).run();
    Search::of(&EventThread::default()).deaths().cases(2000).run();
}

/// The server waits for the bell from what it is when the wait begins, not from what it was before the look at the lines.
#[test]
fn an_event_that_is_set_again_without_a_look_is_caught() {
    let verdict = Exploration::of(&EventThread::default()).preemptions(1).forgetting(BELL).verdict(&[&[X], &[X]]);
    assert!(verdict.as_ref().is_err_and(|what| what.contains("deadlock")), "{verdict:?}");
}

const fn is_ring(word: u64) -> bool {
    word & 0xff000 != 0 // its verb; other words have nothing there
}

/// A request's verb; 0 of other words.
const fn verb(word: u64) -> u64 {
    if is_ring(word) || word & 0xff00_0000 != 0 || word >> 32 == 0 { 0 } else { word & 0xf }
}

#[test]
fn wrong_servers_and_owners_are_caught() {
    /// Its name, what it does, whether somebody dies, and what is found.
    type Bend = (&'static str, fn(Action) -> Action, bool, &'static str);
    let bends: [Bend; 6] = [
        (
            "does not ring",
            |action| match action {
                Action::Write(ring) if is_ring(ring) => Action::Read,
                other => other,
            },
            false,
            "wait for ever",
        ),
        (
            "does not ring at a release",
            |action| match action {
                Action::Write(ring) if is_ring(ring) && ring >> 12 & 0xf == 3 => Action::Read,
                other => other,
            },
            false,
            "",
        ),
        (
            "releases nothing",
            |action| match action {
                Action::Write(request) if verb(request) == 3 => Action::Read,
                other => other,
            },
            false,
            "",
        ),
        (
            "asks to share what it wants alone",
            |action| match action {
                Action::Write(request) if verb(request) == 1 => Action::Write(request + 1),
                other => other,
            },
            false,
            "exclusion",
        ),
        (
            "answers an earlier turn",
            |action| match action {
                Action::Write(answer) if answer >> 24 & 0xff == 1 && answer >> 32 == 2 => {
                    Action::Write(answer - (1 << 32))
                }
                other => other,
            },
            false,
            "wait for ever",
        ),
        (
            "grants to who is told that others have it",
            |action| match action {
                Action::Write(answer) if answer >> 24 & 0xff == 4 && !is_ring(answer) => {
                    Action::Write(answer - (3 << 24))
                }
                other => other,
            },
            false,
            "exclusion",
        ),
    ];
    for (flaw, bend, dies, expected) in bends {
        let setting = Setting { bend: Some(bend), ..Setting::USUAL };
        expect_caught(flaw, dies, expected, |scenario| run(setting, &EventThread::default(), scenario));
    }
}

#[test]
fn an_acquire_is_two_writes_and_an_answer_and_a_release_two_writes() {
    let writes = |programs: &[&[Round]]| {
        let programs = programs.iter().map(|rounds| rounds.to_vec()).collect();
        let scenario = Scenario { programs, schedule: vec![], death: None };
        let Posted { writes, compare_swaps, fetch_adds, .. } =
            run(Setting::USUAL, &EventThread::default(), &scenario).unwrap().posted;
        assert_eq!((compare_swaps, fetch_adds), (0, 0));
        writes
    };
    let quiet = Round { touches: 0, ..X };
    let stopped = 1; // the bell, at the end
    assert_eq!(writes(&[&[quiet], &[]]), 5 + stopped);
    assert_eq!(writes(&[&[quiet; 3], &[]]), 3 * 5 + stopped);
    assert_eq!(writes(&[&[quiet], &[quiet], &[quiet], &[quiet]]), 4 * 5 + stopped, "however many ask");
}

const SLOTS: Slots = Slots { tallied: true, ..Slots::new(1) };

/// A lock with its server, driven by hand.
struct Office {
    all: Vec<ModelMemory>,
    lock: Arc<EventThread>,
    server: std::cell::RefCell<Server>,
}

impl Office {
    fn new() -> Self {
        let memory = ModelMemory::new(4, region_words::<EventThread>(SLOTS));
        let all: Vec<_> = (0..4).map(|rank| memory.of(rank)).collect();
        all.iter().try_for_each(|memory| open::<_, EventThread>(memory, SLOTS)).unwrap();
        let lock = Arc::new(EventThread::default());
        let server = Server::start(&memory, &lock, SLOTS).into();
        Self { all, lock, server }
    }

    fn drive<T>(&self, future: impl Future<Output = T>) -> T {
        let (mut future, mut cx) = (pin!(future), Context::from_waker(Waker::noop()));
        for _ in 0..2_000 {
            if let Poll::Ready(value) = future.as_mut().poll(&mut cx) {
                return value;
            }
            assert!(self.server.borrow_mut().task.as_mut().poll(&mut cx).is_pending(), "the server ended");
            assert!(self.all[0].net().step(None), "waits for ever");
        }
        panic!("waits for ever")
    }

    fn place(&self, rank: u32, slot: u16) -> Ground<'_, ModelMemory, EventThread> {
        Ground::new(&self.all[rank as usize], Owner { rank: Rank(rank), slot, generation: 0 }, SLOTS)
    }

    fn ask(&self, (rank, slot): (u32, u16), mode: Mode, wish: Wish) -> Result<Held, Fault> {
        let (memory, place, lock) = (&self.all[rank as usize], self.place(rank, slot), &*self.lock);
        self.drive(async {
            let words = if wish.is_patient() { lock.words(place)? } else { lock.words_to_try(place)? };
            lock.finish(memory, place, words, mode, lock.start(memory, place, words, mode)?, || wish).await
        })
    }

    fn release(&self, (rank, slot): (u32, u16), mode: Mode) -> Result<(), Fault> {
        let (memory, place, lock) = (&self.all[rank as usize], self.place(rank, slot), &*self.lock);
        self.drive(async {
            let words = lock.words(place)?;
            lock.finish_release(memory, place, words, mode, lock.start_release(memory, place, words, mode)?).await
        })
    }

    /// Nobody is there any more.
    fn fire(&self) {
        self.server.borrow_mut().task = Box::pin(std::future::pending());
    }

    /// Ends the server, and looks whether the lock is free.
    fn close(self) -> bool {
        let Server { mut task, open } = self.server.into_inner();
        open.store(false, Relaxed);
        let memory = &self.all[0];
        lock_kit::modelled::drive(
            memory,
            self.lock.wake_server(memory, Ground::<_, EventThread>::of_server(memory, SLOTS)),
        )
        .unwrap();
        lock_kit::modelled::drive(memory, &mut task).unwrap();
        let home = memory.region();
        EventThread::is_free(lock_and_data::<EventThread>(&home).0)
    }
}

/// Who does not inherit is told, again and again, until somebody inherits.
fn poison(slot: u16, dying: Mode, heir: Wish) {
    let office = Office::new();
    let case = format!("slot {slot} {dying:?} {heir:?}");
    let kind = if dying == Mode::Exclusive { FaultKind::OwnerDied } else { FaultKind::MemberDied };
    let died = Fault::of(kind, Rank(1));
    assert_eq!(office.ask((1, slot), dying, Wish::LOCK), Ok(Held::cleanly(dying)), "{case}");
    let busy = Err(Fault::new(FaultKind::TimedOut));
    assert_eq!(office.ask((2, slot), Mode::Exclusive, Wish::TRY), busy, "{case}");
    office.all[0].net().kill(Rank(1), 0);
    for _ in 0..2 {
        for (rank, mode) in [(0, Mode::Exclusive), (2, Mode::Exclusive), (3, Mode::Shared)] {
            assert_eq!(office.ask((rank, slot), mode, Wish::LOCK), Err(died), "{case}: rank {rank} {mode:?}");
            assert_eq!(office.ask((rank, slot), mode, Wish::TRY), Err(died), "{case}: rank {rank} {mode:?} tries");
            let over = office.ask((rank, slot), mode, Wish::NONE);
            assert_eq!(over, Err(Fault::new(FaultKind::Closed)), "{case}: rank {rank} {mode:?} does not want it");
        }
    }
    assert_eq!(office.ask((3, slot), Mode::Shared, heir), Ok(Held::after(died, Mode::Exclusive)), "{case}");
    assert_eq!(office.ask((0, slot), Mode::Shared, Wish::TRY.inheriting()), busy, "{case}: beside the heir");
    assert_eq!(office.release((3, slot), Mode::Exclusive), Ok(()), "{case}");
    for mode in [Mode::Exclusive, Mode::Shared] {
        for wish in [Wish::LOCK, Wish::TRY, Wish::LOCK.inheriting()] {
            assert_eq!(office.ask((2, slot), mode, wish), Ok(Held::cleanly(mode)), "{case}: healed");
            assert_eq!(office.release((2, slot), mode), Ok(()), "{case}: healed");
        }
    }
    for rank in [0, 2, 3] {
        assert!(idle::<EventThread>(SLOTS, &office.all[rank].region()), "{case}: rank {rank} counts");
    }
    assert!(office.close(), "{case}");
}

#[test]
fn a_lock_of_the_dead_is_told_of_until_somebody_inherits() {
    for slot in [0, Owner::NO_SLOT] {
        for dying in [Mode::Exclusive, Mode::Shared] {
            for heir in [Wish::LOCK.inheriting(), Wish::TRY.inheriting()] {
                poison(slot, dying, heir);
            }
        }
    }
}

#[test]
fn who_waits_for_a_dead_home_is_told() {
    for slot in [0, Owner::NO_SLOT] {
        let office = Office::new();
        assert_eq!(office.ask((1, slot), Mode::Exclusive, Wish::LOCK), Ok(Held::cleanly(Mode::Exclusive)));
        office.all[0].net().kill(Rank(0), 0);
        office.fire();
        let ended = office.ask((2, slot), Mode::Shared, Wish::LOCK);
        assert_eq!(ended, Err(Fault::of(FaultKind::PeerDied, Rank(0))), "slot {slot}");
    }
}

#[test]
fn who_asks_where_nobody_serves_is_told() {
    for slot in [0, Owner::NO_SLOT] {
        let office = Office::new();
        office.server.borrow().open.store(false, Relaxed);
        let memory = &office.all[0];
        lock_kit::modelled::drive(
            memory,
            office.lock.wake_server(memory, Ground::<_, EventThread>::of_server(memory, SLOTS)),
        )
        .unwrap();
        lock_kit::modelled::drive(memory, &mut office.server.borrow_mut().task).unwrap();
        office.fire();
        let refused = office.ask((2, slot), Mode::Shared, Wish::LOCK);
        assert_eq!(refused, Err(Fault::of(FaultKind::Closed, Rank(0))), "slot {slot}");
    }
}

#[test]
fn a_release_without_a_lock_is_told_and_harms_nothing() {
    let not_held = Err(Fault::new(FaultKind::NotHeld));
    for mode in [Mode::Exclusive, Mode::Shared] {
        let office = Office::new();
        assert_eq!(office.release((2, 0), mode), not_held, "nobody holds it");
        assert_eq!(office.ask((1, 0), mode, Wish::LOCK), Ok(Held::cleanly(mode)));
        let before = office.all[0].region();
        assert_eq!(office.release((2, 0), mode), not_held, "a stranger");
        assert_eq!(office.all[0].region(), before);
        assert_eq!(office.release((1, 0), mode), Ok(()));
        assert_eq!(office.release((1, 0), mode), not_held, "twice");
        assert_eq!(office.release((1, Owner::NO_SLOT), Mode::Exclusive), not_held, "without a node");
        assert_eq!(office.release((1, Owner::NO_SLOT), Mode::Shared), not_held, "without a node");
        assert!(office.close());
    }
}
