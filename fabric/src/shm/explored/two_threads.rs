//! The completions of a card while a thread of their own sleeps for them: that thread, the
//! listener, and one that drains meanwhile.

use std::sync::Arc;

use onesided_job::segment::doorbell::Doorbell;

use crate::shm::explored::{LOST, caught_within, holds, holds_in_time, together};
use crate::util::sync::atomic::AtomicU32;
use crate::util::sync::{Condvar, Mutex, MutexGuard};
use crate::waiting::listener::Listener;

/// A flaw of the hand-over.
#[derive(Clone, Copy, PartialEq)]
enum Flaw {
    None,
    /// The thread takes the event and rings nobody.
    TakeWithoutRing,
    /// It rings only if it has drained something itself.
    RingIfDrained,
    /// It ends, and rings before the listener is to sleep for completions again.
    RingBeforeEnd,
}

/// The card, the kernel, and what was drained.
#[derive(Default)]
struct Machine {
    is_requested: bool,
    has_event: bool,
    completed: u32,
    reported: u32,
    /// Of the thread that sleeps for completions, and of the listener.
    bells: [bool; 2],
    is_over: bool,
}

#[derive(Clone, Copy)]
enum Sleeper {
    Apart,
    Listener,
}

struct Rank {
    flaw: Flaw,
    /// How many operations complete.
    count: u32,
    rings: AtomicU32,
    sleepers: AtomicU32,
    listener: Listener,
    reaping: Mutex<()>,
    machine: Mutex<Machine>,
    changed: Condvar,
}

impl Rank {
    fn new(flaw: Flaw, count: u32) -> Arc<Self> {
        let (rings, sleepers) = (AtomicU32::new(0), AtomicU32::new(0));
        let (reaping, machine, changed) = (Mutex::new(()), Mutex::default(), Condvar::new());
        Arc::new(Self { flaw, count, rings, sleepers, listener: Listener::new(), reaping, machine, changed })
    }

    fn doorbell(&self) -> Doorbell<'_> {
        Doorbell { rings: &self.rings, sleepers: &self.sleepers }
    }

    fn change<R>(&self, change: impl FnOnce(&mut Machine) -> R) -> R {
        let result = change(&mut self.machine.lock().unwrap());
        self.changed.notify_all();
        result
    }

    fn ring_bell(&self, who: Sleeper) {
        self.change(|machine| machine.bells[who as usize] = true);
    }

    /// Wakes those that wait: one, the listener.
    fn ring(&self) {
        self.doorbell().ring(|_| self.listener.wake(|| self.ring_bell(Sleeper::Listener)));
    }

    fn complete(&self) {
        for _ in 0..self.count {
            self.change(|machine| {
                machine.completed += 1;
                machine.has_event |= std::mem::take(&mut machine.is_requested);
            });
        }
    }

    fn reap(&self, reaping: MutexGuard<'_, ()>) -> bool {
        let count = self.change(|machine| std::mem::take(&mut machine.completed));
        if count > 0 {
            self.change(|machine| machine.reported += count);
        }
        drop(reaping);
        if count > 0 {
            self.ring();
        }
        count > 0
    }

    fn progress(&self) -> bool {
        self.reaping.try_lock().is_ok_and(|reaping| self.reap(reaping))
    }

    /// Sleeps in the kernel. Whether there was an event, which is taken.
    fn poll(&self, who: Sleeper, for_completions: bool) -> bool {
        let mut machine = self.machine.lock().unwrap();
        while !machine.bells[who as usize] && !(for_completions && machine.has_event) {
            machine = self.changed.wait(machine).unwrap();
        }
        machine.bells[who as usize] = false;
        std::mem::take(&mut machine.has_event)
    }

    /// A wait for all completions.
    fn wait(&self) {
        loop {
            let ticket = self.doorbell().arm();
            self.change(|machine| machine.is_requested = true);
            self.progress();
            if self.change(|machine| machine.reported == self.count) {
                return self.doorbell().disarm();
            }
            if self.reap(self.reaping.lock().unwrap()) {
                self.doorbell().disarm();
                continue;
            }
            self.listener.sleep(self.doorbell(), ticket, |for_completions| {
                self.poll(Sleeper::Listener, for_completions);
            });
            self.doorbell().disarm();
            self.ring();
        }
    }

    /// The thread that sleeps for completions, until its mode ends.
    fn serve(&self) {
        while !self.change(|machine| machine.is_over) {
            self.progress();
            if self.poll(Sleeper::Apart, true) {
                let drained = self.progress();
                let rings = match self.flaw {
                    Flaw::TakeWithoutRing => false,
                    Flaw::RingIfDrained => drained,
                    _ => true,
                };
                if rings {
                    self.ring();
                }
            }
        }
    }

    fn end(&self) {
        self.change(|machine| machine.is_over = true);
        if self.flaw == Flaw::RingBeforeEnd {
            self.ring();
        }
        self.listener.set_apart(false);
        if self.flaw != Flaw::RingBeforeEnd {
            self.ring();
        }
        self.ring_bell(Sleeper::Apart);
    }
}

/// An operation completes while its thread waits, and another one drains.
fn one_completion(flaw: Flaw) -> impl Fn() + Send + Sync + 'static {
    move || {
        let rank = Rank::new(flaw, 1);
        rank.listener.set_apart(true);
        let (card, waiter, other) = (Arc::clone(&rank), Arc::clone(&rank), Arc::clone(&rank));
        let wait = move || {
            waiter.wait();
            waiter.end(); // only for the model's end
        };
        let drain = move || _ = other.progress();
        together([Box::new(move || card.complete()), Box::new(drain), Box::new(wait), Box::new(move || rank.serve())]);
    }
}

/// Two complete, and nobody else drains.
fn two_completions(flaw: Flaw) -> impl Fn() + Send + Sync + 'static {
    move || {
        let rank = Rank::new(flaw, 2);
        rank.listener.set_apart(true);
        let (card, waiter) = (Arc::clone(&rank), Arc::clone(&rank));
        let wait = move || {
            waiter.wait();
            waiter.end(); // only for the model's end
        };
        together([Box::new(move || card.complete()), Box::new(wait), Box::new(move || rank.serve())]);
    }
}

/// One completes while the mode begins or ends.
fn mode_changes(flaw: Flaw, begins: bool) -> impl Fn() + Send + Sync + 'static {
    move || {
        let rank = Rank::new(flaw, 1);
        rank.listener.set_apart(!begins);
        let (card, waiter, program) = (Arc::clone(&rank), Arc::clone(&rank), Arc::clone(&rank));
        let wait = move || {
            waiter.wait();
            if begins {
                waiter.end(); // only for the model's end
            }
        };
        let change = move || match begins {
            true => program.listener.set_apart(true),
            false => program.end(),
        };
        together([Box::new(move || card.complete()), Box::new(change), Box::new(wait), Box::new(move || rank.serve())]);
    }
}

#[test]
fn a_completion_reaches_who_waits_for_it() {
    holds_in_time(2, [2_033, 177_372], one_completion(Flaw::None));
}

#[test]
fn two_completions_reach_who_waits_for_them() {
    holds(Some(2), 11_782, two_completions(Flaw::None));
}

#[test]
fn a_completion_is_seen_while_the_mode_begins_or_ends() {
    holds_in_time(2, [780, 45_481], mode_changes(Flaw::None, true));
    holds_in_time(2, [1_610, 161_062], mode_changes(Flaw::None, false));
}

#[test]
fn every_flaw_of_two_threads_is_caught() {
    caught_within(Some(2), LOST, one_completion(Flaw::TakeWithoutRing));
    caught_within(Some(2), LOST, one_completion(Flaw::RingIfDrained));
    caught_within(Some(2), LOST, two_completions(Flaw::TakeWithoutRing));
    caught_within(Some(2), LOST, mode_changes(Flaw::RingBeforeEnd, false));
}
