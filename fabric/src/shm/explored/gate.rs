//! The access guard of user memory that is reclaimed.

use std::sync::Arc;

use crate::shm::explored::{caught, explore, holds, together};
use crate::shm::gate::{Announced, Gate, is_inside, shut};
use crate::sync::atomic::Ordering::{Acquire, Relaxed, Release, SeqCst};
use crate::sync::atomic::{AtomicU64, fence};
use crate::sync::thread;
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
    LookBeforeAnnouncement,
    /// The copy may come after the owner found no access.
    LeaveRelaxed,
    /// The owner waits for no peer.
    NoWait,
    /// The owner checks only the slot of a rank's first thread.
    OthersUnseen,
}

/// Memory with a guard for this many ranks; loom detects two concurrent accesses, one of them a
/// write.
struct Lent {
    shut: AtomicU64,
    inside: Vec<[AtomicU64; 2]>,
    memory: UnsafeCell<u64>,
}

// SAFETY: loom watches the accesses to the cell, which is what is tested.
#[allow(unsafe_code)]
unsafe impl Sync for Lent {}
// SAFETY: as above.
#[allow(unsafe_code)]
unsafe impl Send for Lent {}

impl Lent {
    /// A peer: acquires access and copies.
    fn copy(&self, rank: usize, flaw: Flaw) {
        let [place, count] = &self.inside[rank];
        let inside = place;
        let touch = || self.memory.with(|_| {}); // peers' copies may race with one another
        match flaw {
            Flaw::None | Flaw::ShutWithoutFence | Flaw::NoWait | Flaw::OthersUnseen => {
                if let Some(_inside) = (Gate { shut: &self.shut, announced: Announced { place, count } }).pass() {
                    touch();
                }
            }
            Flaw::LookBeforeAnnouncement => {
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
        for [place, count] in &self.inside {
            let count = if flaw == Flaw::OthersUnseen { &nobody } else { count };
            while flaw != Flaw::NoWait && is_inside(Announced { place, count }) {
                thread::yield_now();
            }
        }
        self.memory.with_mut(|_| {});
    }
}

fn lent(ranks: usize, flaw: Flaw) -> impl Fn() + Send + Sync + 'static {
    move || {
        let inside = (0..ranks).map(|_| [0, 0].map(AtomicU64::new)).collect();
        let lent = Arc::new(Lent { shut: AtomicU64::new(0), inside, memory: UnsafeCell::new(0) });
        let peer = |rank| {
            let lent = Arc::clone(&lent);
            Box::new(move || lent.copy(rank, flaw)) as Box<dyn FnOnce() + Send>
        };
        let owner = {
            let lent = Arc::clone(&lent);
            Box::new(move || lent.take_back(flaw)) as Box<dyn FnOnce() + Send>
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
    let lent = Arc::new(Lent { shut: AtomicU64::new(0), inside, memory: UnsafeCell::new(0) });
    let peer = || {
        let lent = Arc::clone(&lent);
        Box::new(move || lent.copy(0, flaw)) as Box<dyn FnOnce() + Send>
    };
    let (one, two, owner) = (peer(), peer(), Arc::clone(&lent));
    together([one, two, Box::new(move || owner.take_back(flaw))]);
}

#[test]
fn who_took_memory_back_has_it_alone() {
    holds(None, 55, lent(1, Flaw::None));
    holds(Some(3), 887, lent(2, Flaw::None));
    holds(Some(3), 1_000, || two_threads_of_a_rank(Flaw::None));
}

#[test]
fn every_flaw_of_the_gate_is_caught() {
    use Flaw::{LeaveRelaxed, LookBeforeAnnouncement, NoWait, PassWithoutFence, ShutWithoutFence};
    explore(None, lent(1, Flaw::None));
    caught("Causality violation", || two_threads_of_a_rank(Flaw::OthersUnseen));
    for flaw in [PassWithoutFence, ShutWithoutFence, LookBeforeAnnouncement, LeaveRelaxed, NoWait] {
        caught("Causality violation", lent(1, flaw));
    }
}
