//! The lock algorithms of windows by bare instructions: the limits of contended locks.
//! `benches/limits.c` has the same in C.
#![allow(unsafe_code)] // a pthread mutex in shared memory

use std::hint::spin_loop;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::thread::yield_now;

use crate::bench::baselines::bare;
use crate::bench::baselines::signals::{futex_word, sleep, wake};
use crate::bench::worker::rank::BenchRank;
use crate::bench::worker::timing::poll_until;

/// A bare lock that all ranks contend for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum BareLock {
    /// Compare-and-swap, with a hundred attempts between two yields.
    Spin,
    /// First come, first served; waiters spin and yield.
    Ticket,
    /// Mellor-Crummey and Scott's queue; waiters spin and yield.
    Mcs,
    /// The same queue; waiters spin, then sleep on a futex.
    McsFutex,
    /// The C library's mutex, shared by the processes.
    Mutex,
}

// Bare words after those of the throughput runs.
const LOCK: u64 = 16;
const NEXT: u64 = 17;
const SERVING: u64 = 18;
const TAIL: u64 = 19;
/// Scratch words: the first rank's queue node, the mutex before it, and the distance between two of
/// these.
const NODES: usize = 1 << 20;
const MUTEX: usize = NODES - DISTANCE;
const DISTANCE: usize = 16;

impl BareLock {
    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::Spin => "lock: CAS, spin and yield",
            Self::Ticket => "lock: ticket, spin and yield",
            Self::Mcs => "lock: MCS, spin and yield",
            Self::McsFutex => "lock: MCS, spin and futex",
            Self::Mutex => "lock: shared pthread mutex",
        }
    }

    /// The limit of the lock of that name: the same algorithm; for `fetch-add-queue`, tickets.
    /// `None` if no bare lock has its algorithm.
    pub(crate) fn of(design: &str) -> Option<Self> {
        match design {
            "test-and-set" => Some(Self::Spin),
            "mcs" => Some(Self::Mcs),
            "ticket" | "fetch-add-queue" => Some(Self::Ticket),
            _ => None,
        }
    }

    /// The bare locks that are measured together with the lock of that name.
    pub(crate) const fn beside(design: &str) -> &'static [Self] {
        match design.as_bytes() {
            b"test-and-set" => &[Self::Spin, Self::Mutex],
            b"mcs" => &[Self::Mcs, Self::McsFutex],
            b"ticket" | b"fetch-add-queue" => &[Self::Ticket],
            _ => &[],
        }
    }

    /// Resets the lock. One rank calls it before a throughput run.
    pub(crate) fn prepare(self, rank: &BenchRank) {
        for word in [LOCK, NEXT, SERVING, TAIL] {
            rank.word(word).store(0, Ordering::Release);
        }
        if self == Self::Mutex {
            init_mutex(rank.scratch_word(MUTEX));
        }
    }

    /// Acquires and releases until `stop` is `stopped`; returns how often.
    pub(crate) fn contend(self, rank: &BenchRank, stop: &AtomicU64, stopped: u64) -> u64 {
        match self {
            Self::Spin => bare::contend(rank.word(LOCK), stop, stopped),
            Self::Ticket => ticket(rank.word(NEXT), rank.word(SERVING), stop, stopped),
            Self::Mcs => mcs(rank, stop, stopped, false),
            Self::McsFutex => mcs(rank, stop, stopped, true),
            Self::Mutex => mutex(rank.scratch_word(MUTEX), stop, stopped),
        }
    }
}

/// Polls between two yields, or before sleeping: few where other ranks need the core.
fn polls(rank: &BenchRank, sleeps: bool) -> u32 {
    match (sleeps, rank.world.size() as usize > rank.cores) {
        (true, _) => 2000,
        (false, false) => 100,
        (false, true) => 10,
    }
}

#[inline(never)]
fn ticket(next: &AtomicU64, serving: &AtomicU64, stop: &AtomicU64, stopped: u64) -> u64 {
    let mut acquired = 0;
    while stop.load(Ordering::Relaxed) != stopped {
        let mine = next.fetch_add(1, Ordering::Relaxed);
        poll_until(100, || serving.load(Ordering::Acquire) == mine);
        serving.store(mine + 1, Ordering::Release);
        acquired += 1;
    }
    acquired
}

const GRANTED: u32 = 0;
const WAITING: u32 = 1;
const ASLEEP: u32 = 2;

/// The tail and the nodes hold ranks plus 1; 0 is no rank.
#[inline(never)]
fn mcs(rank: &BenchRank, stop: &AtomicU64, stopped: u64, sleeps: bool) -> u64 {
    let polls = polls(rank, sleeps);
    let node = |one: u64| {
        let at = NODES + one as usize * DISTANCE;
        (rank.scratch_word(at), futex_word(rank.scratch_word(at + 1)))
    };
    let me = u64::from(rank.world.rank()) + 1;
    let (tail, (next, granted)) = (rank.word(TAIL), node(me));
    let mut acquired = 0;
    while stop.load(Ordering::Relaxed) != stopped {
        next.store(0, Ordering::Relaxed);
        granted.store(WAITING, Ordering::Relaxed);
        let before = tail.swap(me, Ordering::AcqRel);
        if before != 0 {
            node(before).0.store(me, Ordering::Release);
            until_granted(granted, polls, sleeps);
        }
        acquired += 1;
        let mut after = next.load(Ordering::Acquire);
        if after == 0 {
            if tail.compare_exchange(me, 0, Ordering::Release, Ordering::Relaxed).is_ok() {
                continue;
            }
            poll_until(100, || {
                after = next.load(Ordering::Acquire);
                after != 0
            });
        }
        let theirs = node(after).1;
        if !sleeps {
            theirs.store(GRANTED, Ordering::Release);
        } else if theirs.swap(GRANTED, Ordering::AcqRel) == ASLEEP {
            wake(theirs);
        }
    }
    acquired
}

fn until_granted(granted: &AtomicU32, polls: u32, sleeps: bool) {
    loop {
        for _ in 0..polls {
            if granted.load(Ordering::Acquire) == GRANTED {
                return;
            }
            spin_loop();
        }
        if !sleeps {
            yield_now();
        } else if granted.compare_exchange(WAITING, ASLEEP, Ordering::AcqRel, Ordering::Acquire) != Err(GRANTED) {
            sleep(granted, ASLEEP);
        }
    }
}

/// Storage of a mutex or its attributes: no smaller and no less aligned than those of glibc and
/// musl on any machine.
#[repr(C, align(8))]
struct Storage([u8; 64]);

unsafe extern "C" {
    fn pthread_mutexattr_init(attributes: *mut Storage) -> i32;
    fn pthread_mutexattr_setpshared(attributes: *mut Storage, shared: i32) -> i32;
    fn pthread_mutex_init(mutex: *mut Storage, attributes: *const Storage) -> i32;
    fn pthread_mutex_lock(mutex: *mut Storage) -> i32;
    fn pthread_mutex_unlock(mutex: *mut Storage) -> i32;
}

/// `PTHREAD_PROCESS_SHARED`
const SHARED: i32 = 1;

/// Initializes a mutex at this word, in [`DISTANCE`] words without another use.
fn init_mutex(at: &AtomicU64) {
    let mut attributes = Storage([0; 64]);
    // SAFETY: the storage is large enough for the attributes of every C library that Rust has for
    // Linux.
    let result = unsafe { pthread_mutexattr_init(&mut attributes) };
    assert_eq!(result, 0, "attributes need no resources");
    // SAFETY: the attributes were initialized above.
    let result = unsafe { pthread_mutexattr_setpshared(&mut attributes, SHARED) };
    assert_eq!(result, 0, "Linux has shared mutexes");
    // SAFETY: 128 bytes of shared memory, aligned to 8, that no rank uses before the throughput run
    // begins.
    let result = unsafe { pthread_mutex_init(at.as_ptr().cast(), &attributes) };
    assert_eq!(result, 0, "a mutex needs no resources");
}

#[inline(never)]
fn mutex(at: &AtomicU64, stop: &AtomicU64, stopped: u64) -> u64 {
    let mut acquired = 0;
    let mutex = at.as_ptr().cast();
    while stop.load(Ordering::Relaxed) != stopped {
        // SAFETY: `init_mutex` initialized it before the run began; its bytes are used by these
        // calls alone.
        let locked = unsafe { pthread_mutex_lock(mutex) };
        // SAFETY: as above; this thread holds the mutex.
        let unlocked = unsafe { pthread_mutex_unlock(mutex) };
        assert_eq!((locked, unlocked), (0, 0), "an initialized mutex that this thread holds");
        acquired += 1;
    }
    acquired
}

#[cfg(test)]
mod tests {
    use onesided_windows::LockDesign;

    use super::*;

    #[test]
    fn a_lock_is_compared_with_what_is_measured_beside_it() {
        for design in LockDesign::ALL {
            let beside = BareLock::beside(design.name());
            assert_eq!(BareLock::of(design.name()), beside.first().copied(), "{design}");
        }
        assert_eq!(BareLock::of("fetch-add-queue"), Some(BareLock::Ticket));
        assert_eq!(BareLock::of("dedicated-thread"), None, "no bare lock is served by a thread");
    }
}
