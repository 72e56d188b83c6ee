use crate::right::distributed;
use crate::users::slotted;
use onesided_lock_algos::{DistributedCounters, Held, Intent, LockAlgorithm, LockUse, Mode, Rest};
use onesided_lock_kit::program::region_words;
use onesided_lock_kit::random::drive;
use onesided_lock_kit::{Checker, Layout, ModelMemory, Section, Slots};

#[test]
fn searched() {
    super::search(&distributed::<15>());
    super::search(&distributed::<2>());
}

#[test]
fn checked() {
    super::check(&distributed::<15>(), 2);
}

/// A writer that cannot set the flag of a rank gives up, while readers keep arriving.
#[test]
fn flags_that_are_lost() {
    const A: Section = Section::EXCLUSIVE;
    const B: Section = Section::SHARED;
    let checker = Checker::of(&distributed::<15>()).losses(1).delay_bound(2);
    let programs: [&[&[Section]]; 3] =
        [&[&[A], &[B, B, B]], &[&[A, A], &[B, B, B, B, B, B, B, B, B]], &[&[B, B, B], &[A], &[B]]];
    for programs in programs {
        assert!(checker.run(programs).lost > 0);
    }
}

/// After a writer readers use their counters again.
#[test]
fn marks_go_with_the_writer() {
    let lock = distributed::<15>();
    let slots = Slots::new(1);
    let memory = ModelMemory::new(2, region_words::<DistributedCounters>(slots));
    let context = Layout::new::<DistributedCounters>(&memory, slotted(0), slots);
    let words = lock.words(context, Intent::LOCK).unwrap();
    for _ in 0..2 {
        let held = drive(&memory, async {
            let started = lock.start(LockUse::new(&memory, context, words, Mode::Exclusive))?;
            lock.finish(LockUse::new(&memory, context, words, Mode::Exclusive), started, || Intent::LOCK).await
        });
        assert_eq!(held, Ok(Held::cleanly(Mode::Exclusive)));
        let released = drive(&memory, async {
            let started = lock.start_release(LockUse::new(&memory, context, words, Mode::Exclusive))?;
            lock.finish_release(LockUse::new(&memory, context, words, Mode::Exclusive), started.await).await
        });
        assert_eq!(released, Ok(()));
        let first = drive(&memory, lock.start(LockUse::new(&memory, context, words, Mode::Shared)).unwrap());
        assert!(lock.holds(words.1, Mode::Shared, first.unwrap()), "a reader after a writer waits");
        let released = drive(&memory, lock.start_release(LockUse::new(&memory, context, words, Mode::Shared)).unwrap());
        assert_eq!(
            lock.released(LockUse::new(&memory, context, words, Mode::Shared), released.ok()),
            Ok(Rest::Nothing)
        );
    }
}
