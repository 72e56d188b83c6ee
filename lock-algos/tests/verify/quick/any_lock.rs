//! A lock that is selected at run time behaves as the selected lock, in all its properties and
//! methods.

use crate::right::{mcs, right, two_level};
use onesided_lock_algos::{
    AnyLock, Backoff, DedicatedThread, DistributedCounters, EventThread, FetchAddQueue, Global, Held, Intent,
    LockAlgorithm, LockUse, Mode, Ticket, held_by_word,
};
use onesided_lock_kit::program::region_words;
use onesided_lock_kit::random::drive;
use onesided_lock_kit::{Layout, ModelMemory};

use super::promises::waits_as_it_says;
use super::slotted;
use crate::stopped::SLOTS;

const MODES: [Mode; 2] = [Mode::Exclusive, Mode::Shared];

/// Both report the same properties of the lock and of an owner whose first operation found this,
/// and act alike, if the lock needs no server.
fn is<A: LockAlgorithm>(chosen: AnyLock, lock: &A) {
    assert_eq!(chosen.home_words(), A::HOME_WORDS, "{}", A::NAME);
    assert_eq!(chosen.host_words(), A::HOST_WORDS, "{}", A::NAME);
    assert_eq!((chosen.is_served(), chosen.has_per_rank_word()), (A::SERVED, A::PER_RANK_WORD), "{}", A::NAME);
    let has_room = AnyLock::HOME_WORDS >= A::HOME_WORDS && AnyLock::NODE_WORDS >= A::NODE_WORDS;
    assert!(has_room && AnyLock::HOST_WORDS >= A::HOST_WORDS, "{}", A::NAME);
    let memory = ModelMemory::new(2, region_words::<AnyLock>(SLOTS));
    let context = Layout::new::<AnyLock>(&memory, slotted(0), SLOTS);
    let words = [chosen.words(context), lock.words(context)].map(Result::unwrap);
    assert_eq!(words[0], words[1], "{}", A::NAME);
    for mode in MODES {
        assert_eq!(chosen.uses_node(mode), lock.uses_node(mode), "{} {mode:?}", A::NAME);
        for first in (0..64).map(|bit| 1 << bit).chain([0, words[0].1, u64::MAX]) {
            let holds = lock.holds(words[1].1, mode, first);
            assert_eq!(chosen.holds(words[0].1, mode, first), holds, "{} {mode:?} {first:x}", A::NAME);
        }
        if !A::SERVED {
            let did = (used(&chosen, mode), used(lock, mode));
            assert!(did.0 == did.1, "{} {mode:?}: {did:?}", A::NAME);
        }
    }
}

/// Acquires and releases the lock. Returns the reported properties, and the memory while it was
/// held and after that.
fn used<A: LockAlgorithm>(lock: &A, mode: Mode) -> (bool, bool, Option<bool>, bool, [Vec<u64>; 2]) {
    let memory = ModelMemory::new(2, region_words::<AnyLock>(SLOTS));
    let context = Layout::new::<AnyLock>(&memory, slotted(0), SLOTS);
    let words = lock.words(context).unwrap();
    let held = drive(&memory, async {
        let started = lock.start(LockUse::new(&memory, context, words, mode))?;
        lock.finish(LockUse::new(&memory, context, words, mode), started, || Intent::LOCK).await
    });
    assert_eq!(held, Ok(Held::cleanly(mode)));
    let while_held = memory.region();
    let in_one_step = lock.releases_in_one_step(mode);
    let is_link = in_one_step && lock.release_link(&memory, words, mode).is_some();
    let waits = lock.release_waits(LockUse::new(&memory, context, words, mode));
    let found = drive(&memory, lock.start_release(LockUse::new(&memory, context, words, mode)).unwrap());
    let released = in_one_step || lock.released(LockUse::new(&memory, context, words, mode), found.unwrap()).unwrap();
    if !released {
        let rest = lock.finish_release(LockUse::new(&memory, context, words, mode), found);
        assert_eq!(drive(&memory, rest), Ok(()));
    }
    (in_one_step, is_link, waits, released, [while_held, memory.region()])
}

#[test]
fn each_is_what_was_chosen() {
    let backoff = Backoff::default();
    macro_rules! both {
        ($($chosen:ident, $global:ident: $lock:expr;)*) => {$(
            is(AnyLock::$chosen($lock), &$lock);
            is(AnyLock::$global(Global::new($lock, backoff)), &Global::<_>::new($lock, backoff));
            let global = AnyLock::$chosen($lock).with_global(backoff);
            assert!(matches!(global, Some(AnyLock::$global(_))), "{global:?}");
        )*};
    }
    both! {
        TestAndSet, GlobalTestAndSet: right();
        Mcs, GlobalMcs: mcs();
        Ticket, GlobalTicket: Ticket::default();
        FetchAddQueue, GlobalFetchAddQueue: FetchAddQueue::default();
        DistributedCounters, GlobalDistributedCounters: DistributedCounters::default();
        TwoLevel, GlobalTwoLevel: two_level(1);
        DedicatedThread, GlobalDedicatedThread: DedicatedThread::default();
        EventThread, GlobalEventThread: EventThread::default();
    }
    let checked = AnyLock::CheckedTestAndSet(right().checked());
    is(checked, &right().checked());
    assert!(checked.with_global(backoff).is_none());
    assert_eq!(waits_as_it_says(&AnyLock::Mcs(mcs())), waits_as_it_says(&mcs()));
}

/// Only a test-and-set lock that is held exclusively, by an owner without a slot, is released by
/// its word.
#[test]
fn the_shortest_way_is_for_one_lock() {
    let only = |chosen: AnyLock| MODES.map(|mode| chosen.only_word(mode).is_some());
    assert_eq!(only(AnyLock::TestAndSet(right())), [true, false]);
    for other in [AnyLock::CheckedTestAndSet(right()), AnyLock::Mcs(mcs()), AnyLock::TwoLevel(two_level(1))] {
        assert_eq!(only(other), [false; 2], "{other:?}");
    }
    let memory = ModelMemory::new(2, region_words::<AnyLock>(SLOTS));
    let without = onesided_lock_algos::Owner { slot: onesided_lock_algos::Owner::NO_SLOT, ..slotted(0) };
    for (owner, by_word) in [(without, true), (slotted(0), false)] {
        let words = right().words(Layout::new::<AnyLock>(&memory, owner, SLOTS)).unwrap();
        assert_eq!(MODES.map(|mode| held_by_word(words.1, mode)), [by_word, false]);
        let words = mcs().words(Layout::new::<AnyLock>(&memory, owner, SLOTS)).unwrap();
        assert_eq!(MODES.map(|mode| held_by_word(words.1, mode)), [false; 2]);
    }
}
