//! Waking who sleeps, and only who sleeps.
//!
//! The hand-shake is Dekker's: the sleeper announces itself, then looks again; the ringer writes, then looks for
//! sleepers. A full fence on both sides between the write and the look makes it impossible that both miss the other.

#[cfg(onesided_loom)]
use loom::sync::atomic::{AtomicU32, Ordering, fence};
#[cfg(not(onesided_loom))]
use std::sync::atomic::{AtomicU32, Ordering, fence};

use crate::Ticket;

/// A rank's doorbell: a futex word that counts rings, and how many threads have announced that they sleep.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Doorbell<'a> {
    pub(crate) rings: &'a AtomicU32,
    pub(crate) sleepers: &'a AtomicU32,
}

impl Doorbell<'_> {
    /// Wakes whoever sleeps. Everything written before is seen by the woken.
    pub(crate) fn ring(self, wake: impl FnOnce(&AtomicU32)) {
        fence(Ordering::SeqCst);
        if self.sleepers.load(Ordering::Relaxed) != 0 {
            self.ring_loudly(wake);
        }
    }

    /// Rings without looking for sleepers: for what must be heard even by who is just about to announce itself.
    #[cold]
    pub(crate) fn ring_loudly(self, wake: impl FnOnce(&AtomicU32)) {
        self.rings.fetch_add(1, Ordering::Release);
        wake(self.rings);
    }

    /// Announces a sleeper. After it, look again, then sleep on the ticket or [`disarm`](Self::disarm).
    pub(crate) fn arm(self) -> Ticket {
        self.sleepers.fetch_add(1, Ordering::Relaxed);
        let ticket = Ticket(self.rings.load(Ordering::Acquire));
        fence(Ordering::SeqCst);
        ticket
    }

    /// Takes the announcement back.
    pub(crate) fn disarm(self) {
        self.sleepers.fetch_sub(1, Ordering::Relaxed);
    }
}
