//! A lock that is selected at run time, and the shortest way of a release.

use crate::right::{mcs, right};
use crate::users::slotted;
use onesided_lock_algos::{
    AnyLock, DedicatedThread, DistributedCounters, EventThread, FetchAddQueue, Intent, LockAlgorithm, Mcs, Mode, Owner,
    TestAndSet, Ticket, TwoLevel, WithLock, held_by_word,
};
use onesided_lock_kit::program::region_words;
use onesided_lock_kit::{Layout, ModelMemory};

use crate::stopped::SLOTS;

struct Name;

impl WithLock for Name {
    type Output = &'static str;

    fn with<A: LockAlgorithm + Copy>(self, _: A) -> &'static str {
        A::NAME
    }
}

#[test]
fn each_is_what_was_chosen() {
    macro_rules! each {
        ($($lock:ident)*) => {$(assert_eq!(AnyLock::$lock(<$lock>::default()).with(Name), <$lock>::NAME);)*};
    }
    each! { TestAndSet Mcs Ticket FetchAddQueue DistributedCounters TwoLevel DedicatedThread EventThread }
    assert_eq!(AnyLock::default().with(Name), TestAndSet::NAME);
}

/// Only a test-and-set lock that is held exclusively, by an owner without a slot, is released by
/// its word.
#[test]
fn the_shortest_way_is_for_one_lock() {
    const MODES: [Mode; 2] = [Mode::Exclusive, Mode::Shared];
    let memory = ModelMemory::new(2, region_words::<Mcs>(SLOTS));
    let without = Owner { slot: Owner::NO_SLOT, ..slotted(0) };
    for (owner, by_word) in [(without, true), (slotted(0), false)] {
        let words = right().words(Layout::new::<TestAndSet>(&memory, owner, SLOTS), Intent::LOCK).unwrap();
        assert_eq!(MODES.map(|mode| held_by_word(words.1, mode)), [by_word, false]);
        let words = mcs().words(Layout::new::<Mcs>(&memory, owner, SLOTS), Intent::LOCK).unwrap();
        assert_eq!(MODES.map(|mode| held_by_word(words.1, mode)), [false; 2]);
    }
}
