//! Doorbells: wake only the threads that sleep.
//!
//! The protocol is Dekker's: the sleeper announces itself, then polls again; the ringer writes,
//! then checks for sleepers. A full fence on each side between the write and the read prevents that
//! both miss each other. Checked by loom in `explored`.

use crate::Ticket;
use crate::sync::atomic::{AtomicU32, Ordering, fence};

/// A rank's doorbell: a futex word that counts rings, and the number of announced sleepers.
///
/// All orderings are relaxed: the same two fences stand between a ringer and a sleeper whose ticket
/// has the new count, so the sleeper sees the ringer's writes.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Doorbell<'a> {
    pub(crate) rings: &'a AtomicU32,
    pub(crate) sleepers: &'a AtomicU32,
}

impl Doorbell<'_> {
    /// Wakes the sleepers. Earlier writes are visible to any thread that polls after it has
    /// [armed](Self::arm).
    pub(crate) fn ring(self, wake: impl FnOnce(&AtomicU32)) {
        fence(Ordering::SeqCst);
        if self.sleepers.load(Ordering::Relaxed) != 0 {
            self.rings.fetch_add(1, Ordering::Relaxed);
            wake(self.rings);
        }
    }

    /// Wakes the other sleepers, for a thread that has armed. Returns a ticket that its own ring
    /// does not end.
    pub(crate) fn ring_others(self, armed: Ticket, wake: impl FnOnce(&AtomicU32)) -> Ticket {
        fence(Ordering::SeqCst);
        if self.sleepers.load(Ordering::Relaxed) <= 1 {
            return armed;
        }
        self.rings.fetch_add(1, Ordering::Relaxed);
        wake(self.rings);
        // A ring of any other thread since the arming makes the counts differ.
        Ticket(armed.0.wrapping_add(1))
    }

    /// Announces a sleeper. Poll again afterwards, then sleep on the ticket or
    /// [`disarm`](Self::disarm).
    pub(crate) fn arm(self) -> Ticket {
        self.sleepers.fetch_add(1, Ordering::Relaxed);
        let ticket = Ticket(self.rings.load(Ordering::Relaxed));
        fence(Ordering::SeqCst);
        ticket
    }

    /// Withdraws the announcement.
    pub(crate) fn disarm(self) {
        self.sleepers.fetch_sub(1, Ordering::Relaxed);
    }
}
