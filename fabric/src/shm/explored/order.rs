//! What the memory model of windows promises on shared memory, under the orderings that [`Shm`](crate::shm::Shm) uses: a
//! put is relaxed stores, a get relaxed loads, a word is written with release and read with acquire, a compare-swap is
//! both, a flush is a full fence, as is what stands before the read of a chain. x86-64 shows few of these flaws.

use std::sync::Arc;

use crate::shm::explored::{caught, holds, together};
use crate::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed, Release, SeqCst};
use crate::sync::atomic::{AtomicU64, fence};

/// What is left out.
#[derive(Clone, Copy, PartialEq)]
enum Flaw {
    None,
    /// The word that tells is written without release.
    WriterTells,
    /// The word that tells is read without acquire.
    ReaderListens,
    /// The fence of the writer: between its odd version and its data.
    WriterFence,
    /// The fence of the reader: between its data and its second look.
    ReaderFence,
    /// The second look.
    SecondLook,
}

/// Two words of data, and one beside them: a flag, a lock, a version.
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

/// Puts, then a signal (or a release, or the word of a collective): who sees it sees the data.
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

/// Two holders of a lock one after the other, in whatever order: the second sees what the first did.
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

/// A versioned write, and a versioned read that tries once.
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
            let after = if flaw == Flaw::SecondLook { before } else { part.word.load(Acquire) };
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
    for flaw in [Flaw::WriterTells, Flaw::ReaderListens, Flaw::WriterFence, Flaw::ReaderFence, Flaw::SecondLook] {
        caught("late data", versioned(flaw));
    }
}
