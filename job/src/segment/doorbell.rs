//! Doorbells: wake only the threads that sleep.
//!
//! The protocol is Dekker's: the sleeper announces itself, then polls again; the ringer writes,
//! then checks for sleepers. A full fence on each side between the write and the read prevents that
//! both miss each other. Checked by loom in `explored`.

#[cfg(onesided_loom)]
use loom::sync::atomic::{AtomicU32, Ordering, fence};
#[cfg(not(onesided_loom))]
use std::sync::atomic::{AtomicU32, Ordering, fence};

/// The state that [`Doorbell::arm`] saw: the thread sleeps until the doorbell rings after it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ticket(pub u32);

/// A rank's doorbell: a futex word that counts rings, and the number of announced sleepers.
///
/// All orderings are relaxed: the same two fences stand between a ringer and a sleeper whose ticket
/// has the new count, so the sleeper sees the ringer's writes.
#[derive(Clone, Copy, Debug)]
pub struct Doorbell<'a> {
    /// The futex word.
    pub rings: &'a AtomicU32,
    /// How many threads have announced that they sleep.
    pub sleepers: &'a AtomicU32,
}

impl Doorbell<'_> {
    /// Wakes the sleepers. Earlier writes are visible to any thread that polls after it has
    /// [armed](Self::arm).
    #[inline]
    pub fn ring(self, wake: impl FnOnce(&AtomicU32)) {
        fence(Ordering::SeqCst);
        if self.sleepers.load(Ordering::Relaxed) != 0 {
            self.rings.fetch_add(1, Ordering::Relaxed);
            wake(self.rings);
        }
    }

    /// Wakes the other sleepers, for a thread that has armed. Returns a ticket that its own ring
    /// does not end.
    #[inline]
    pub fn ring_others(self, armed: Ticket, wake: impl FnOnce(&AtomicU32)) -> Ticket {
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
    #[inline]
    pub fn arm(self) -> Ticket {
        self.sleepers.fetch_add(1, Ordering::Relaxed);
        let ticket = Ticket(self.rings.load(Ordering::Relaxed));
        fence(Ordering::SeqCst);
        ticket
    }

    /// Withdraws the announcement.
    #[inline]
    pub fn disarm(self) {
        self.sleepers.fetch_sub(1, Ordering::Relaxed);
    }
}

/// The doorbell of a rank's handler: a thread that moves messages while the others compute. It
/// rings for solicited packets alone, while it is armed (sur-2006, section 4).
///
/// Nobody arms at each sleep: it is armed while the rank expects something, but for while a thread of
/// the rank polls, which sees the packets itself. Whoever arms it looks afterwards, and the handler
/// looks after it took a ticket.
/// Checked by loom in `explored`.
#[derive(Clone, Copy, Debug)]
pub struct SolicitedBell<'a> {
    /// The futex word.
    pub rings: &'a AtomicU32,
    /// Whether it rings.
    pub armed: &'a AtomicU32,
}

impl SolicitedBell<'_> {
    /// Wakes the handler if it is armed, after a packet. Returns whether it is.
    #[inline]
    pub fn ring(self, wake: impl FnOnce(&AtomicU32)) -> bool {
        fence(Ordering::SeqCst);
        let is_armed = self.armed.load(Ordering::Relaxed) != 0;
        if is_armed {
            self.rings.fetch_add(1, Ordering::Relaxed);
            wake(self.rings);
        }
        is_armed
    }

    /// From now on it rings. What came before is looked for afterwards.
    pub fn arm(self) {
        self.armed.store(1, Ordering::Relaxed);
        fence(Ordering::SeqCst);
    }

    /// From now on it need not ring.
    pub fn disarm(self) {
        self.armed.store(0, Ordering::Relaxed);
    }

    /// The handler looks afterwards, then sleeps on the ticket.
    pub fn ticket(self) -> Ticket {
        let ticket = Ticket(self.rings.load(Ordering::Relaxed));
        fence(Ordering::SeqCst);
        ticket
    }
}
