use std::cell::Cell;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

use crate::right::two_level;
use onesided_lock_algos::{Held, Intent, Mode, Owner, TwoLevel};
use onesided_lock_kit::program::{LOCK, region_words};
use onesided_lock_kit::{Checker, ModelMemory, Search, Section, Setting, Slots};
use onesided_remote_memory::{Fault, FaultKind, Rank};

use crate::stopped::{ENDLESS, run};
use crate::users::{Acquire, User, slotted};

#[test]
fn searched() {
    for per_host in 1..4 {
        let setting = Setting { per_host, ..Setting::USUAL };
        for passes in [0, 1] {
            let search = Search::of(&two_level(2).bypasses(passes)).setting(setting).seed(1).cases(100);
            search.clone().run();
            search.clone().deaths().run();
            search.leaves().run();
        }
    }
}

#[test]
fn checked() {
    for per_host in [2, 1] {
        super::check(&two_level(1), per_host);
        super::check(&two_level(1).bypasses(1), per_host);
    }
}

/// The queue of a host outlives the rank that has it in its memory, and that has died or left: inside,
/// or after it handed the lock over.
#[test]
fn a_queue_outlives_its_rank() {
    const A: Section = Section::EXCLUSIVE.touching(0);
    const B: Section = Section::SHARED.touching(0);
    // On the other host.
    let programs: [&[&[Section]]; 3] =
        [&[&[], &[], &[A, A], &[A, A]], &[&[A], &[], &[A], &[A]], &[&[], &[], &[A, B], &[A], &[B]]];
    for passes in [0, 1] {
        let checker = Checker::of(&two_level(1).bypasses(passes)).crashes(1).memory_goes().delay_bound(2);
        for programs in programs {
            assert!(checker.clone().run(programs).recoveries > 0);
            checker.clone().leaves().run(programs);
        }
    }
}

/// At the home, on another host.
#[test]
fn lost_connections() {
    const A: Section = Section::EXCLUSIVE.touching(0);
    let programs: [&[&[Section]]; 3] = [&[&[], &[A, A]], &[&[A], &[A, A]], &[&[A], &[A], &[A]]];
    for passes in [0, 1] {
        let checker = Checker::of(&two_level(1).bypasses(passes))
            .setting(Setting { per_host: 1, ..Setting::USUAL })
            .same_host_is_safe()
            .losses(1);
        for programs in programs {
            assert!(checker.clone().delay_bound(2).run(programs).lost > 0);
        }
    }
}

/// Four ranks and a lock, driven manually.
struct Fixture {
    lock: TwoLevel,
    slots: Slots,
    all: Vec<ModelMemory>,
    /// How often each rank has acquired.
    asked: [Cell<u32>; 4],
}

impl Fixture {
    fn new(lock: TwoLevel, per_host: u32) -> Self {
        let slots = Slots { per_host, ..Slots::new(1) };
        let memory = ModelMemory::new(4, region_words::<TwoLevel>(slots));
        let all = (0..4).map(|rank| memory.of(rank)).collect();
        Self { lock, slots, all, asked: Default::default() }
    }

    fn memory(&self) -> &ModelMemory {
        &self.all[0]
    }

    fn user(&self, rank: u32) -> User<'_, TwoLevel> {
        let owner = Owner { generation: self.asked[rank as usize].get(), ..slotted(rank) };
        User { lock: &self.lock, memory: &self.all[rank as usize], owner, slots: self.slots }
    }

    fn acquire(&self, rank: u32, mode: Mode, intent: impl Fn() -> Intent + Send + Sync + 'static) -> Acquire<'_> {
        let asked = &self.asked[rank as usize];
        asked.set(asked.get() + 1);
        self.user(rank).asks_as(mode, intent(), intent)
    }

    fn release(&self, rank: u32) -> Option<Result<(), Fault>> {
        run(self.memory(), &mut self.user(rank).releases(Mode::Exclusive), ENDLESS)
    }

    fn run(&self, what: &mut Acquire<'_>, events: usize) -> Option<Result<Held, Fault>> {
        run(self.memory(), what, events)
    }
}

const ALONE: Held = Held::cleanly(Mode::Exclusive);

/// A rank died that did not use the lock. While an owner on another host scans for live holders on
/// the host that the owner word names, after `events` events, the owner hands the lock over to a
/// new arrival.
fn hands_over_while_it_is_asked(is_near: bool, mode: Mode, intent: Intent, (events, is_stopped): (usize, bool)) {
    let case =
        format!("{mode:?} {intent:?}, dead on its host: {is_near}, after {events} events, stopped: {is_stopped}");
    let (per_host, dead, elsewhere) = if is_near { (3, Rank(2), 3) } else { (2, Rank(3), 2) };
    let fixture = Fixture::new(two_level(8).bypasses(0), per_host);
    let memory = fixture.memory();
    memory.world().kill(dead);
    assert_eq!(
        fixture.run(&mut fixture.acquire(1, Mode::Exclusive, || Intent::LOCK), ENDLESS),
        Some(Ok(ALONE)),
        "{case}"
    );
    let mut asks = fixture.acquire(elsewhere, mode, move || intent);
    let mut told = fixture.run(&mut asks, events);
    memory.world().stopped = is_stopped.then_some(Rank(elsewhere));
    let mut next = fixture.acquire(0, Mode::Exclusive, || Intent::LOCK);
    assert_eq!(fixture.run(&mut next, 6), None, "{case}: does not wait");
    let mark = memory.region()[LOCK];
    assert_eq!(fixture.release(1), Some(Ok(())), "{case}: is not released");
    if is_stopped {
        // The next owner has not changed the owner word yet.
        memory.world().stopped = None;
        told = told.or_else(|| fixture.run(&mut asks, 60));
    }
    assert_eq!(fixture.run(&mut next, ENDLESS), Some(Ok(ALONE)), "{case}: is not handed over");
    assert_eq!(memory.region()[LOCK] != mark, is_near, "{case}: under the same mark");
    told = told.or_else(|| fixture.run(&mut asks, ENDLESS));
    let busy = Err(Fault::new(FaultKind::TimedOut));
    assert_eq!(told, (!intent.is_patient()).then_some(busy), "{case}: while another one holds it");
    assert_eq!(fixture.release(0), Some(Ok(())), "{case}: is not released");
    if intent.is_patient() {
        assert_eq!(fixture.run(&mut asks, ENDLESS), Some(Ok(Held::cleanly(mode))), "{case}: does not have it later");
    }
}

#[test]
fn a_lock_that_is_handed_over_during_a_scan_is_not_recovered() {
    for mode in [Mode::Exclusive, Mode::Shared] {
        for intent in [Intent::TRY, Intent::TRY.recovering(), Intent::LOCK, Intent::LOCK.recovering()] {
            for (events, is_stopped) in (0..120).flat_map(|events| [(events, false), (events, true)]) {
                hands_over_while_it_is_asked(false, mode, intent, (events, is_stopped));
                hands_over_while_it_is_asked(true, mode, intent, (events, is_stopped));
            }
        }
    }
}

/// With the same slot, without the queue, after it has left the queue without a turn.
#[test]
fn a_cancelled_waiter_may_acquire_again() {
    static WANTED: AtomicBool = AtomicBool::new(true);
    let fixture = Fixture::new(two_level(8).bypasses(1), 4);
    assert_eq!(
        fixture.run(&mut fixture.acquire(2, Mode::Exclusive, || Intent::LOCK), ENDLESS),
        Some(Ok(ALONE)),
        "by itself"
    );
    let mut leads = fixture.acquire(1, Mode::Exclusive, || Intent::LOCK);
    assert_eq!(fixture.run(&mut leads, 20), None);
    let mut leaves =
        fixture.acquire(0, Mode::Exclusive, || if WANTED.load(Relaxed) { Intent::LOCK } else { Intent::CANCELLED });
    assert_eq!(fixture.run(&mut leaves, 20), None);
    WANTED.store(false, Relaxed);
    assert_eq!(fixture.run(&mut leaves, ENDLESS), Some(Err(Fault::new(FaultKind::Closed))));
    assert_eq!(fixture.release(2), Some(Ok(())));
    assert_eq!(fixture.run(&mut leads, ENDLESS), Some(Ok(ALONE)));
    assert_eq!(fixture.release(1), Some(Ok(())));
    assert_eq!(
        fixture.run(&mut fixture.acquire(0, Mode::Exclusive, || Intent::LOCK), ENDLESS),
        Some(Ok(ALONE)),
        "by itself"
    );
    assert_eq!(fixture.release(0), Some(Ok(())));
    assert_eq!(fixture.memory().region()[LOCK], 0);
}
