//! The protocol of ringers and sleepers, and the flush.

use std::sync::Arc;

use onesided_job::segment::doorbell::Doorbell;

use crate::Ticket;
use crate::shm::explored::{LOST, caught, holds, together};
use crate::util::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed, Release, SeqCst};
use crate::util::sync::atomic::{AtomicU32, AtomicU64, fence};
use crate::util::sync::{Condvar, Mutex, thread};

/// A futex: the check of the word and the sleep are atomic with respect to wakers.
#[derive(Default)]
pub(super) struct Futex {
    queue: Mutex<()>,
    woken: Condvar,
}

impl Futex {
    pub(super) fn wait(&self, word: &AtomicU32, expected: u32) {
        let queue = self.queue.lock().unwrap();
        if word.load(Relaxed) == expected {
            drop(self.woken.wait(queue).unwrap());
        }
    }

    pub(super) fn wake(&self) {
        let _queue = self.queue.lock().unwrap();
        self.woken.notify_all();
    }
}

/// A flaw of the protocol.
#[derive(Clone, Copy, PartialEq)]
pub(super) enum Flaw {
    None,
    /// The ringer's check may come before its write.
    RingWithoutFence,
    /// The sleeper's poll may come before its announcement.
    ArmWithoutFence,
    /// A ring between the poll and the ticket is taken for an old one.
    PollBeforeArm,
    /// A ring changes nothing that the sleeper compares.
    RingWithoutCount,
    /// The announcement comes after the last poll.
    AnnounceAfterPoll,
}

/// A sleeping rank: its doorbell, and two words that others write.
pub(super) struct Sleeper {
    flaw: Flaw,
    rings: AtomicU32,
    sleepers: AtomicU32,
    futex: Futex,
    pub(super) words: [AtomicU64; 2],
}

impl Sleeper {
    pub(super) fn new(flaw: Flaw) -> Arc<Self> {
        let (rings, sleepers) = (AtomicU32::new(0), AtomicU32::new(0));
        Arc::new(Self { flaw, rings, sleepers, futex: Futex::default(), words: [AtomicU64::new(0), AtomicU64::new(0)] })
    }

    pub(super) fn doorbell(&self) -> Doorbell<'_> {
        Doorbell { rings: &self.rings, sleepers: &self.sleepers }
    }

    pub(super) fn ring(&self) {
        match self.flaw {
            Flaw::RingWithoutFence if self.sleepers.load(Relaxed) == 0 => {}
            Flaw::RingWithoutFence => {
                self.rings.fetch_add(1, Relaxed);
                self.futex.wake();
            }
            Flaw::RingWithoutCount => {
                fence(SeqCst);
                if self.sleepers.load(Relaxed) != 0 {
                    self.futex.wake();
                }
            }
            _ => self.doorbell().ring(|_| self.futex.wake()),
        }
    }

    pub(super) fn ring_others(&self, armed: Ticket) -> Ticket {
        self.doorbell().ring_others(armed, |_| self.futex.wake())
    }

    pub(super) fn arm(&self) -> Ticket {
        match self.flaw {
            Flaw::ArmWithoutFence => {
                self.sleepers.fetch_add(1, Relaxed);
                Ticket(self.rings.load(Relaxed))
            }
            Flaw::AnnounceAfterPoll => Ticket(self.rings.load(Relaxed)),
            _ => self.doorbell().arm(),
        }
    }

    pub(super) fn sleep(&self, ticket: Ticket) {
        if self.flaw == Flaw::AnnounceAfterPoll {
            self.doorbell().arm();
        }
        self.futex.wait(&self.rings, ticket.0);
        self.doorbell().disarm();
    }

    /// What a blocking thread does, without spinning.
    pub(super) fn wait(&self, look: impl Fn() -> bool) {
        loop {
            let early = self.flaw == Flaw::PollBeforeArm && look();
            let ticket = self.arm();
            if early || self.flaw != Flaw::PollBeforeArm && look() {
                return self.doorbell().disarm();
            }
            self.sleep(ticket);
        }
    }

    /// A write with `Notify::Yes`.
    pub(super) fn write(&self, word: usize, value: u64) {
        self.words[word].store(value, Release);
        self.ring();
    }

    fn wait_for(&self, word: usize, value: u64) {
        self.wait(|| self.words[word].load(Acquire) == value);
    }
}

/// One thread writes, one sleeps.
fn one_write(flaw: Flaw) -> impl Fn() + Send + Sync + 'static {
    move || {
        let sleeper = Sleeper::new(flaw);
        let theirs = Arc::clone(&sleeper);
        together([Box::new(move || theirs.write(0, 1)), Box::new(move || sleeper.wait_for(0, 1))]);
    }
}

#[test]
fn one_writer_wakes_one_sleeper() {
    holds(None, 286, one_write(Flaw::None));
}

#[test]
fn every_flaw_of_the_hand_shake_is_caught() {
    use Flaw::{AnnounceAfterPoll, ArmWithoutFence, PollBeforeArm, RingWithoutCount, RingWithoutFence};
    for flaw in [RingWithoutFence, ArmWithoutFence, PollBeforeArm, RingWithoutCount, AnnounceAfterPoll] {
        caught(LOST, one_write(flaw));
    }
}

#[test]
fn one_writer_wakes_the_same_sleeper_twice() {
    holds(Some(5), 25_226, || {
        let sleeper = Sleeper::new(Flaw::None);
        let theirs = Arc::clone(&sleeper);
        let writer = move || {
            theirs.write(0, 1);
            theirs.write(1, 1);
        };
        let sleeper = move || {
            sleeper.wait_for(0, 1);
            sleeper.wait_for(1, 1);
        };
        together([Box::new(writer), Box::new(sleeper)]);
    });
}

#[test]
fn two_writers_wake_one_sleeper() {
    holds(Some(3), 12_857, || {
        let sleeper = Sleeper::new(Flaw::None);
        let (one, two) = (Arc::clone(&sleeper), Arc::clone(&sleeper));
        let both = move || sleeper.wait(|| sleeper.words.iter().all(|word| word.load(Acquire) == 1));
        together([Box::new(move || one.write(0, 1)), Box::new(move || two.write(1, 1)), Box::new(both)]);
    });
}

#[test]
fn one_writer_wakes_two_sleepers_of_one_rank() {
    holds(Some(4), 54_623, || {
        let rank = Sleeper::new(Flaw::None);
        let (one, two) = (Arc::clone(&rank), Arc::clone(&rank));
        let writer = move || rank.write(0, 1);
        together([Box::new(writer), Box::new(move || one.wait_for(0, 1)), Box::new(move || two.wait_for(0, 1))]);
    });
}

#[test]
fn a_death_is_heard_and_what_came_before_it_is_seen() {
    holds(None, 286, || {
        let rank = Sleeper::new(Flaw::None);
        let launcher = Arc::clone(&rank);
        let declare = move || {
            launcher.words[1].store(7, Relaxed);
            launcher.words[0].compare_exchange(0, 1, AcqRel, Relaxed).unwrap();
            launcher.ring();
        };
        let waiter = move || {
            rank.wait_for(0, 1);
            assert_eq!(rank.words[1].load(Relaxed), 7);
        };
        together([Box::new(declare), Box::new(waiter)]);
    });
}

/// Two ranks that each put, flush, and get the other's put: at least one must see it.
fn both_flush(flush: fn()) -> impl Fn() + Send + Sync + 'static {
    move || {
        let words = Arc::new([AtomicU64::new(0), AtomicU64::new(0)]);
        let peer = Arc::clone(&words);
        let put_and_get = move |words: &[AtomicU64; 2], mine: usize| {
            words[mine].store(1, Relaxed);
            flush();
            words[1 - mine].load(Relaxed)
        };
        let there = thread::spawn(move || put_and_get(&peer, 1));
        let here = put_and_get(&words, 0);
        assert!(here + there.join().unwrap() > 0, "neither saw the other's");
    }
}

#[test]
fn a_flush_is_a_full_fence_and_a_swap_of_a_private_word_is_none() {
    holds(None, 15, both_flush(|| fence(SeqCst)));
    caught("neither saw", both_flush(|| assert_eq!(AtomicU64::new(0).swap(1, SeqCst), 0)));
}
