//! Waking who sleeps, and only who sleeps.
//!
//! The hand-shake is Dekker's: the sleeper announces itself, then looks again; the ringer writes, then looks for
//! sleepers. A full fence on both sides between the write and the look makes it impossible that both miss the other.
//! Explored by loom in `fabric/src/shm/explored`.

#[cfg(onesided_loom)]
use loom::sync::atomic::{AtomicU32, Ordering, fence};
#[cfg(not(onesided_loom))]
use std::sync::atomic::{AtomicU32, Ordering, fence};

/// What a thread saw that [armed](Doorbell::arm) its doorbell: it sleeps until the doorbell has rung since.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ticket(pub u32);

/// A rank's doorbell: a futex word that counts rings, and how many threads have announced that they sleep.
///
/// All its orderings are relaxed: between a ringer and a sleeper that sees the new count in its ticket stand the same
/// two fences, so that it sees what the ringer wrote.
#[derive(Clone, Copy, Debug)]
pub struct Doorbell<'a> {
    /// The futex word.
    pub rings: &'a AtomicU32,
    /// How many threads have announced that they sleep.
    pub sleepers: &'a AtomicU32,
}

impl Doorbell<'_> {
    /// Wakes whoever sleeps. What was written before is seen by whoever looks after it has [armed](Self::arm).
    #[inline]
    pub fn ring(self, wake: impl FnOnce(&AtomicU32)) {
        fence(Ordering::SeqCst);
        if self.sleepers.load(Ordering::Relaxed) != 0 {
            self.rings.fetch_add(1, Ordering::Relaxed);
            wake(self.rings);
        }
    }

    /// Wakes whoever else sleeps, for one who has armed. Gives the ticket on which that one sleeps through its own ring.
    #[inline]
    pub fn ring_others(self, armed: Ticket, wake: impl FnOnce(&AtomicU32)) -> Ticket {
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
    #[inline]
    pub fn arm(self) -> Ticket {
        self.sleepers.fetch_add(1, Ordering::Relaxed);
        let ticket = Ticket(self.rings.load(Ordering::Relaxed));
        fence(Ordering::SeqCst);
        ticket
    }

    /// Takes the announcement back.
    #[inline]
    pub fn disarm(self) {
        self.sleepers.fetch_sub(1, Ordering::Relaxed);
    }
}
