//! The generation and reference count of a range that is reused.

use std::sync::Arc;

use crate::shm::explored::{caught, explore, holds, together};
use crate::shm::gen_ref_count::GenRefCount;
use crate::util::sync::atomic::AtomicU64;
use crate::util::sync::atomic::Ordering::{Acquire, Relaxed};
use loom::cell::UnsafeCell;

/// A flaw of the protocol.
#[derive(Clone, Copy, PartialEq)]
enum Flaw {
    None,
    /// A peer takes a reference to any generation.
    AnyUse,
    /// A peer's accesses may come after the next generation began.
    ReleaseRelaxed,
    /// The owner's writes may come after a peer takes a reference.
    BeginRelaxed,
    /// The owner reads the count before it ends the generation.
    CheckThenEnd,
    /// The owner waits for no peer.
    NoWait,
}

/// A range with the current generation; loom detects the owner writing while a peer reads.
struct Range {
    word: AtomicU64,
    memory: UnsafeCell<u32>,
}

// SAFETY: loom watches the accesses to the cell, which is what is tested.
#[allow(unsafe_code)]
unsafe impl Sync for Range {}
// SAFETY: as above.
#[allow(unsafe_code)]
unsafe impl Send for Range {}

impl Range {
    fn refs(&self) -> GenRefCount<'_> {
        GenRefCount(&self.word)
    }

    /// A peer that knows the first generation.
    fn reach(&self, flaw: Flaw) {
        let held = if flaw == Flaw::AnyUse {
            self.word.fetch_add(1, Acquire);
            true
        } else {
            self.refs().take(1)
        };
        if held {
            // SAFETY: as above.
            #[allow(unsafe_code)]
            let seen = self.memory.with(|memory| unsafe { *memory });
            assert_eq!(seen, 1, "a peer of the first use reached another one");
            if flaw == Flaw::ReleaseRelaxed {
                self.word.fetch_sub(1, Relaxed);
            } else {
                self.refs().release();
            }
        }
    }

    /// The owner: the first generation.
    fn begin(&self, flaw: Flaw) {
        self.write(1);
        if flaw == Flaw::BeginRelaxed {
            self.word.store(1 << 32, Relaxed);
        } else {
            self.refs().begin(1);
        }
    }

    /// The owner: the next generation, if no peer has a reference.
    fn use_again(&self, flaw: Flaw) {
        let left = match flaw {
            Flaw::CheckThenEnd => self.refs().is_left() && (self.refs().end() || true),
            Flaw::NoWait => self.refs().end() || true,
            _ => self.refs().end() || self.refs().is_left(),
        };
        if left {
            self.write(2);
            self.refs().begin(2);
        }
    }

    fn write(&self, number: u32) {
        // SAFETY: as above.
        #[allow(unsafe_code)]
        self.memory.with_mut(|memory| unsafe { *memory = number });
    }
}

/// An owner that begins the first generation before or while its peers arrive, then ends it and
/// begins the next.
fn used_twice(peers: usize, begun: bool, flaw: Flaw) -> impl Fn() + Send + Sync + 'static {
    move || {
        let range = Arc::new(Range { word: AtomicU64::new(0), memory: UnsafeCell::new(0) });
        if begun {
            range.begin(flaw);
        }
        let peer = || {
            let range = Arc::clone(&range);
            Box::new(move || range.reach(flaw)) as Box<dyn FnOnce() + Send>
        };
        let owner = {
            let range = Arc::clone(&range);
            Box::new(move || {
                if !begun {
                    range.begin(flaw);
                }
                range.use_again(flaw);
            }) as Box<dyn FnOnce() + Send>
        };
        match peers {
            1 => together([peer(), owner]),
            _ => together([peer(), peer(), owner]),
        }
    }
}

#[test]
fn a_place_is_used_again_when_nobody_holds_it() {
    holds(None, 29, used_twice(1, true, Flaw::None));
    holds(None, 63, used_twice(1, false, Flaw::None));
    holds(Some(3), 1_048, used_twice(2, true, Flaw::None));
}

#[test]
fn every_flaw_of_holds_is_caught() {
    explore(None, used_twice(1, true, Flaw::None));
    const RACE: &str = "Causality violation";
    for (flaw, begun, found) in [
        (Flaw::AnyUse, true, "reached another one"),
        (Flaw::ReleaseRelaxed, true, RACE),
        (Flaw::BeginRelaxed, false, RACE),
        (Flaw::CheckThenEnd, true, RACE),
        (Flaw::NoWait, true, RACE),
    ] {
        caught(found, used_twice(1, begun, flaw));
    }
}
