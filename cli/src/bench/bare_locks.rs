//! Locks of the designs that windows have, as bare as they can be, for all ranks at once: the limits of contended locks.
//! `benches/limits.c` has the same in C.
#![allow(unsafe_code)] // a pthread mutex in shared memory, a futex

use std::hint::spin_loop;
use std::ops::RangeInclusive;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::thread::yield_now;
use std::time::Instant;

use rustix::thread::futex;

use crate::bench::bare;
use crate::bench::rank::RankOfBench;

/// A bare lock that all ranks contend for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum BareLock {
    /// Compare-swap, a hundred attempts between two yields.
    Spin,
    /// First come, first served.
    Ticket,
    /// Mellor-Crummey and Scott's, whose waiters yield and never sleep.
    Mcs,
    /// The same, whose waiters sleep after a while.
    McsFutex,
    /// The C library's, shared by the processes.
    Mutex,
}

// Bare words that lie further back than those of the contests.
const LOCK: u64 = 16;
const NEXT: u64 = 17;
const SERVING: u64 = 18;
const TAIL: u64 = 19;
/// Where a rank's node lies among the words that are noted, the mutex, and how far apart these are.
const NODES: usize = 1 << 20;
const MUTEX: usize = NODES - APART;
const APART: usize = 16;

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

    /// What the lock of that name is to be compared with: the same algorithm, without the queue beside tickets; nothing where
    /// there is no bare lock of its kind.
    pub(crate) fn of(design: &str) -> Option<Self> {
        match design {
            "test-and-set" => Some(Self::Spin),
            "mcs" => Some(Self::Mcs),
            "ticket" | "fetch-add-queue" => Some(Self::Ticket),
            _ => None,
        }
    }

    /// What is measured beside the lock of that name.
    pub(crate) const fn beside(design: &str) -> &'static [Self] {
        match design.as_bytes() {
            b"test-and-set" => &[Self::Spin, Self::Mutex],
            b"mcs" => &[Self::Mcs, Self::McsFutex],
            b"ticket" | b"fetch-add-queue" => &[Self::Ticket],
            _ => &[],
        }
    }

    /// Before a contest, by one rank.
    pub(crate) fn prepare(self, rank: &RankOfBench) {
        for word in [LOCK, NEXT, SERVING, TAIL] {
            rank.word(word).store(0, Ordering::Release);
        }
        if self == Self::Mutex {
            make_mutex(rank.noted(MUTEX));
        }
    }

    /// How often this rank acquired it until `over` is `number`.
    pub(crate) fn contend(self, rank: &RankOfBench, over: &AtomicU64, number: u64) -> u64 {
        match self {
            Self::Spin => bare::contend(rank.word(LOCK), over, number),
            Self::Ticket => ticket(rank.word(NEXT), rank.word(SERVING), over, number),
            Self::Mcs => mcs(rank, over, number, false),
            Self::McsFutex => mcs(rank, over, number, true),
            Self::Mutex => mutex(rank.noted(MUTEX), over, number),
        }
    }
}

/// Looks between two yields, or before sleeping: few where others need the core.
fn looks(rank: &RankOfBench, sleeps: bool) -> u32 {
    match (sleeps, rank.world.size() as usize > rank.cores) {
        (true, _) => 2000,
        (false, false) => 100,
        (false, true) => 10,
    }
}

#[inline(never)]
fn ticket(next: &AtomicU64, serving: &AtomicU64, over: &AtomicU64, number: u64) -> u64 {
    let mut acquired = 0;
    while over.load(Ordering::Relaxed) != number {
        let mine = next.fetch_add(1, Ordering::Relaxed);
        let mut seen = 0;
        while serving.load(Ordering::Acquire) != mine {
            seen += 1;
            if seen % 100 == 0 { yield_now() } else { spin_loop() }
        }
        serving.store(mine + 1, Ordering::Release);
        acquired += 1;
    }
    acquired
}

const GRANTED: u32 = 0;
const WAITING: u32 = 1;
const ASLEEP: u32 = 2;

/// Ranks are counted from 1 in the tail and in the nodes.
#[inline(never)]
fn mcs(rank: &RankOfBench, over: &AtomicU64, number: u64, sleeps: bool) -> u64 {
    let looks = looks(rank, sleeps);
    let node = |one: u64| {
        let at = NODES + one as usize * APART;
        (rank.noted(at), state(rank.noted(at + 1)))
    };
    let me = u64::from(rank.world.rank()) + 1;
    let (tail, (next, granted)) = (rank.word(TAIL), node(me));
    let mut acquired = 0;
    while over.load(Ordering::Relaxed) != number {
        next.store(0, Ordering::Relaxed);
        granted.store(WAITING, Ordering::Relaxed);
        let before = tail.swap(me, Ordering::AcqRel);
        if before != 0 {
            node(before).0.store(me, Ordering::Release);
            until_granted(granted, looks, sleeps);
        }
        acquired += 1;
        let mut after = next.load(Ordering::Acquire);
        if after == 0 {
            if tail.compare_exchange(me, 0, Ordering::Release, Ordering::Relaxed).is_ok() {
                continue;
            }
            let mut seen = 0;
            while after == 0 {
                seen += 1;
                if seen % 100 == 0 {
                    yield_now()
                } else {
                    spin_loop()
                }
                after = next.load(Ordering::Acquire);
            }
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

fn until_granted(granted: &AtomicU32, looks: u32, sleeps: bool) {
    loop {
        for _ in 0..looks {
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

/// The low half of a word that is used by this alone.
fn state(word: &AtomicU64) -> &AtomicU32 {
    // SAFETY: 4 aligned bytes of a live word, which nobody uses as 8: each word has one use.
    unsafe { AtomicU32::from_ptr(word.as_ptr().cast()) }
}

fn sleep(word: &AtomicU32, value: u32) {
    // Woken, not asleep because it changed, or interrupted: the caller looks again.
    let _ = futex::wait(word, futex::Flags::empty(), value, None);
}

fn wake(word: &AtomicU32) {
    let _ = futex::wake(word, futex::Flags::empty(), 1);
}

/// Wakes a sleeper on another core, and waits for its answer: what a lock costs at the least whose server sleeps. Gives the
/// nanoseconds that it took. Rings are counted.
pub(crate) fn ring(rank: &RankOfBench, (bell, answer): (u64, u64), count: u64) -> f64 {
    let (bell, answer) = (state(rank.word(bell)), rank.word(answer));
    let begin = Instant::now();
    bell.store(count as u32, Ordering::SeqCst);
    wake(bell);
    while answer.load(Ordering::Acquire) < count {
        spin_loop();
    }
    begin.elapsed().as_nanos() as f64
}

/// The sleeper: answers these rings.
pub(crate) fn answer_rings(rank: &RankOfBench, (bell, answer): (u64, u64), counts: RangeInclusive<u64>) {
    let (bell, answer) = (state(rank.word(bell)), rank.word(answer));
    for count in counts {
        loop {
            let seen = bell.load(Ordering::SeqCst);
            if u64::from(seen) >= count {
                break;
            }
            sleep(bell, seen);
        }
        answer.store(count, Ordering::Release);
    }
}

/// As large as glibc's and musl's mutex and attributes on all machines, and as aligned.
#[repr(C, align(8))]
struct Room([u8; 64]);

unsafe extern "C" {
    fn pthread_mutexattr_init(attributes: *mut Room) -> i32;
    fn pthread_mutexattr_setpshared(attributes: *mut Room, shared: i32) -> i32;
    fn pthread_mutex_init(mutex: *mut Room, attributes: *const Room) -> i32;
    fn pthread_mutex_lock(mutex: *mut Room) -> i32;
    fn pthread_mutex_unlock(mutex: *mut Room) -> i32;
}

/// `PTHREAD_PROCESS_SHARED`
const SHARED: i32 = 1;

/// In the bytes from this word on, [`APART`] words that nothing else uses.
fn make_mutex(at: &AtomicU64) {
    let mut attributes = Room([0; 64]);
    // SAFETY: there is room for the attributes of every C library that Rust has for Linux.
    let made = unsafe { pthread_mutexattr_init(&mut attributes) };
    assert_eq!(made, 0, "attributes need no resources");
    // SAFETY: they were made above.
    let set = unsafe { pthread_mutexattr_setpshared(&mut attributes, SHARED) };
    assert_eq!(set, 0, "Linux has shared mutexes");
    // SAFETY: 128 bytes of shared memory, aligned to 8, that nobody uses at this time: the contest begins later.
    let made = unsafe { pthread_mutex_init(at.as_ptr().cast(), &attributes) };
    assert_eq!(made, 0, "a mutex needs no resources");
}

#[inline(never)]
fn mutex(at: &AtomicU64, over: &AtomicU64, number: u64) -> u64 {
    let mut acquired = 0;
    let mutex = at.as_ptr().cast();
    while over.load(Ordering::Relaxed) != number {
        // SAFETY: `make_mutex` made it before the contest began; its bytes are used by these calls alone.
        let locked = unsafe { pthread_mutex_lock(mutex) };
        // SAFETY: as above; this thread holds it.
        let unlocked = unsafe { pthread_mutex_unlock(mutex) };
        assert_eq!((locked, unlocked), (0, 0), "a mutex that is made and held");
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
        assert_eq!(BareLock::of("dedicated-thread"), None, "no bare lock has a thread");
    }
}
