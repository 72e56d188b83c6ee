//! The memory model of windows on shared memory, with the orderings of [`Shm`](crate::shm::Shm): a
//! put is relaxed stores, a get relaxed loads, a word is written with release and read with
//! acquire, a compare-swap is both, and a flush is a full fence, like the one before the read of a
//! chain. x86-64 exhibits few of these flaws.

use std::sync::Arc;

use crate::shm::explored::{caught, holds, together};
use crate::util::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed, Release, SeqCst};
use crate::util::sync::atomic::{AtomicU64, fence};

/// The omitted ordering.
#[derive(Clone, Copy, PartialEq)]
enum Flaw {
    None,
    /// The flag is written without release.
    WriterTells,
    /// The flag is read without acquire.
    ReaderListens,
    /// The writer's fence between its odd version and its data.
    WriterFence,
    /// The reader's fence between its data and its second load of the version.
    ReaderFence,
    /// The second load of the version.
    SecondLoad,
}

/// Two words of data, and one beside them: a flag, a lock, or a version.
#[derive(Default)]
struct Part {
    word: AtomicU64,
    data: [AtomicU64; 2],
}

impl Part {
    fn put(&self, value: u64) {
        self.data.iter().for_each(|word| word.store(value, Relaxed));
    }

    fn get(&self) -> [u64; 2] {
        [self.data[0].load(Relaxed), self.data[1].load(Relaxed)]
    }
}

/// Puts, then a signal (or a release, or a collective's word): a rank that sees it sees the data.
fn message(flaw: Flaw) -> impl Fn() + Send + Sync + 'static {
    move || {
        let part = Arc::new(Part::default());
        let theirs = Arc::clone(&part);
        let writer = move || {
            theirs.put(1);
            theirs.word.store(1, if flaw == Flaw::WriterTells { Relaxed } else { Release });
        };
        let reader = move || {
            if part.word.load(if flaw == Flaw::ReaderListens { Relaxed } else { Acquire }) == 1 {
                assert_eq!(part.get(), [1, 1], "late data");
            }
        };
        together([Box::new(writer), Box::new(reader)]);
    }
}

/// Two lock holders, one after the other in any order: the second sees the first one's writes.
fn lock(flaw: Flaw) -> impl Fn() + Send + Sync + 'static {
    move || {
        let part = Arc::new(Part::default());
        let holder = |part: Arc<Part>| {
            move || {
                let success = if flaw == Flaw::ReaderListens { Relaxed } else { AcqRel };
                if part.word.compare_exchange(0, 1, success, Relaxed).is_ok() {
                    let [left, right] = part.get();
                    assert_eq!(left, right, "late data");
                    part.put(left + 1);
                    part.word.store(0, if flaw == Flaw::WriterTells { Relaxed } else { Release });
                }
            }
        };
        together([Box::new(holder(Arc::clone(&part))), Box::new(holder(part))]);
    }
}

/// A sequence-locked write, and a sequence-locked read that tries once.
fn versioned(flaw: Flaw) -> impl Fn() + Send + Sync + 'static {
    move || {
        let part = Arc::new(Part::default());
        let theirs = Arc::clone(&part);
        let writer = move || {
            theirs.word.store(1, Release);
            if flaw != Flaw::WriterFence {
                fence(SeqCst);
            }
            theirs.put(1);
            theirs.word.store(2, if flaw == Flaw::WriterTells { Relaxed } else { Release });
        };
        let reader = move || {
            let before = part.word.load(if flaw == Flaw::ReaderListens { Relaxed } else { Acquire });
            let data = part.get();
            if flaw != Flaw::ReaderFence {
                fence(SeqCst);
            }
            let after = if flaw == Flaw::SecondLoad { before } else { part.word.load(Acquire) };
            if before == after && before % 2 == 0 {
                assert_eq!(data, [before / 2; 2], "late data");
            }
        };
        together([Box::new(writer), Box::new(reader)]);
    }
}

#[test]
fn who_is_told_sees_the_data() {
    holds(None, 6, message(Flaw::None));
    for flaw in [Flaw::WriterTells, Flaw::ReaderListens] {
        caught("late data", message(flaw));
    }
}

#[test]
fn the_next_holder_sees_the_data() {
    holds(None, 10, lock(Flaw::None));
    for flaw in [Flaw::WriterTells, Flaw::ReaderListens] {
        caught("late data", lock(flaw));
    }
}

#[test]
fn a_versioned_read_is_whole() {
    holds(None, 735, versioned(Flaw::None));
    for flaw in [Flaw::WriterTells, Flaw::ReaderListens, Flaw::WriterFence, Flaw::ReaderFence, Flaw::SecondLoad] {
        caught("late data", versioned(flaw));
    }
}
