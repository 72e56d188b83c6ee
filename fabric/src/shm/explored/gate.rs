//! The access guard of user memory that is reclaimed.

use std::sync::Arc;

use crate::shm::access_guard::{AccessGuard, Announced, is_inside, shut};
use crate::shm::explored::{caught, explore, holds, together};
use crate::util::sync::atomic::Ordering::{Acquire, Relaxed, Release, SeqCst};
use crate::util::sync::atomic::{AtomicU64, fence};
use crate::util::sync::thread;
use loom::cell::UnsafeCell;

/// A flaw of the guard.
#[derive(Clone, Copy, PartialEq)]
enum Flaw {
    None,
    /// The check for a closed guard may come before the announcement.
    PassWithoutFence,
    /// The check for accesses may come before the guard closes.
    ShutWithoutFence,
    /// The check precedes the announcement.
    CheckBeforeAnnouncement,
    /// The copy may come after the owner found no access.
    LeaveRelaxed,
    /// The owner waits for no peer.
    NoWait,
    /// The owner checks only the slot of a rank's first thread.
    OthersUnseen,
}

/// Memory with a guard for this many ranks; loom detects two concurrent accesses, one of them a
/// write.
struct Guarded {
    shut: AtomicU64,
    inside: Vec<[AtomicU64; 2]>,
    memory: UnsafeCell<u64>,
}

// SAFETY: loom watches the accesses to the cell, which is what is tested.
#[allow(unsafe_code)]
unsafe impl Sync for Guarded {}
// SAFETY: as above.
#[allow(unsafe_code)]
unsafe impl Send for Guarded {}

impl Guarded {
    /// A peer: acquires access and copies.
    fn copy(&self, rank: usize, flaw: Flaw) {
        let [single, count] = &self.inside[rank];
        let inside = single;
        let touch = || self.memory.with(|_| {}); // peers' copies may race with one another
        match flaw {
            Flaw::None | Flaw::ShutWithoutFence | Flaw::NoWait | Flaw::OthersUnseen => {
                if let Some(_inside) =
                    (AccessGuard { shut: &self.shut, announced: Announced { single, count } }).enter()
                {
                    touch();
                }
            }
            Flaw::CheckBeforeAnnouncement => {
                let shut = self.shut.load(Acquire);
                inside.fetch_add(1, SeqCst);
                if shut == 0 {
                    touch();
                }
                inside.fetch_sub(1, Release);
            }
            Flaw::PassWithoutFence | Flaw::LeaveRelaxed => {
                inside.fetch_add(1, Relaxed);
                if flaw == Flaw::LeaveRelaxed {
                    fence(SeqCst);
                }
                if self.shut.load(Relaxed) == 0 {
                    touch();
                }
                inside.store(0, if flaw == Flaw::LeaveRelaxed { Relaxed } else { Release });
            }
        }
    }

    /// The owner: reclaims the memory for exclusive use.
    fn take_back(&self, flaw: Flaw) {
        if flaw == Flaw::ShutWithoutFence {
            self.shut.store(1, Relaxed);
        } else {
            shut(&self.shut);
        }
        let nobody = AtomicU64::new(0);
        for [single, count] in &self.inside {
            let count = if flaw == Flaw::OthersUnseen { &nobody } else { count };
            while flaw != Flaw::NoWait && is_inside(Announced { single, count }) {
                thread::yield_now();
            }
        }
        self.memory.with_mut(|_| {});
    }
}

fn guarded(ranks: usize, flaw: Flaw) -> impl Fn() + Send + Sync + 'static {
    move || {
        let inside = (0..ranks).map(|_| [0, 0].map(AtomicU64::new)).collect();
        let guarded = Arc::new(Guarded { shut: AtomicU64::new(0), inside, memory: UnsafeCell::new(0) });
        let peer = |rank| {
            let guarded = Arc::clone(&guarded);
            Box::new(move || guarded.copy(rank, flaw)) as Box<dyn FnOnce() + Send>
        };
        let owner = {
            let guarded = Arc::clone(&guarded);
            Box::new(move || guarded.take_back(flaw)) as Box<dyn FnOnce() + Send>
        };
        match ranks {
            1 => together([peer(0), owner]),
            _ => together([peer(0), peer(1), owner]),
        }
    }
}

/// Two threads of one rank share its slot and its count.
fn two_threads_of_a_rank(flaw: Flaw) {
    let inside = vec![[0, 0].map(AtomicU64::new)];
    let guarded = Arc::new(Guarded { shut: AtomicU64::new(0), inside, memory: UnsafeCell::new(0) });
    let peer = || {
        let guarded = Arc::clone(&guarded);
        Box::new(move || guarded.copy(0, flaw)) as Box<dyn FnOnce() + Send>
    };
    let (one, two, owner) = (peer(), peer(), Arc::clone(&guarded));
    together([one, two, Box::new(move || owner.take_back(flaw))]);
}

#[test]
fn who_took_memory_back_has_it_alone() {
    holds(None, 55, guarded(1, Flaw::None));
    holds(Some(3), 887, guarded(2, Flaw::None));
    holds(Some(3), 1_000, || two_threads_of_a_rank(Flaw::None));
}

#[test]
fn every_flaw_of_the_gate_is_caught() {
    use Flaw::{CheckBeforeAnnouncement, LeaveRelaxed, NoWait, PassWithoutFence, ShutWithoutFence};
    explore(None, guarded(1, Flaw::None));
    caught("Causality violation", || two_threads_of_a_rank(Flaw::OthersUnseen));
    for flaw in [PassWithoutFence, ShutWithoutFence, CheckBeforeAnnouncement, LeaveRelaxed, NoWait] {
        caught("Causality violation", guarded(1, flaw));
    }
}
