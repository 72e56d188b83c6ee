//! Waking who sleeps, and only who sleeps.
//!
//! The hand-shake is Dekker's: the sleeper announces itself, then looks again; the ringer writes, then looks for
//! sleepers. A full fence on both sides between the write and the look makes it impossible that both miss the other.
//! Explored by loom in `explored`.

use crate::Ticket;
use crate::sync::atomic::{AtomicU32, Ordering, fence};

/// A rank's doorbell: a futex word that counts rings, and how many threads have announced that they sleep.
///
/// All its orderings are relaxed: between a ringer and a sleeper that sees the new count in its ticket stand the same
/// two fences, so that it sees what the ringer wrote.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Doorbell<'a> {
    pub(crate) rings: &'a AtomicU32,
    pub(crate) sleepers: &'a AtomicU32,
}

impl Doorbell<'_> {
    /// Wakes whoever sleeps. What was written before is seen by whoever looks after it has [armed](Self::arm).
    pub(crate) fn ring(self, wake: impl FnOnce(&AtomicU32)) {
        fence(Ordering::SeqCst);
        if self.sleepers.load(Ordering::Relaxed) != 0 {
            self.rings.fetch_add(1, Ordering::Relaxed);
            wake(self.rings);
        }
    }

    /// Wakes whoever else sleeps, for one who has armed. Gives the ticket on which that one sleeps through its own ring.
    pub(crate) fn ring_others(self, armed: Ticket, wake: impl FnOnce(&AtomicU32)) -> Ticket {
        fence(Ordering::SeqCst);
        if self.sleepers.load(Ordering::Relaxed) <= 1 {
            return armed;
        }
        self.rings.fetch_add(1, Ordering::Relaxed);
        wake(self.rings);
        // Had anybody else rung since the arming, the count would be another.
        Ticket(armed.0.wrapping_add(1))
    }

    /// Announces a sleeper. After it, look again, then sleep on the ticket or [`disarm`](Self::disarm).
    pub(crate) fn arm(self) -> Ticket {
        self.sleepers.fetch_add(1, Ordering::Relaxed);
        let ticket = Ticket(self.rings.load(Ordering::Relaxed));
        fence(Ordering::SeqCst);
        ticket
    }

    /// Takes the announcement back.
    pub(crate) fn disarm(self) {
        self.sleepers.fetch_sub(1, Ordering::Relaxed);
    }
}
