//! The sleep of the one thread of a rank that waits for a card's events, while the others wait for
//! the doorbell alone.
//!
//! With [completion events](crate::Fabric::completion_events) a second thread sleeps for
//! completions, and the listener for packets only. At each event the second thread drains the
//! queue, and rings in any case: another thread may be draining, whose waiters have already looked.
//! When the second thread ends, it rings as well, and the listener sleeps for completions again.
//!
//! Explored by loom in `shm::explored::two_threads`.

use onesided_job::segment::doorbell::Doorbell;

use crate::Ticket;
use crate::util::sync::atomic::{AtomicBool, Ordering, fence};

#[derive(Debug)]
pub(crate) struct Listener {
    /// Whether that thread is about to sleep, so that a wake-up has to reach it.
    is_asleep: AtomicBool,
    /// Whether a thread of their own sleeps for completions, and no other does.
    are_apart: AtomicBool,
}

impl Listener {
    pub(crate) fn new() -> Self {
        Self { is_asleep: AtomicBool::new(false), are_apart: AtomicBool::new(false) }
    }

    /// Sleeps unless the doorbell rang since the ticket. `sleep` gets whether completions end it.
    pub(crate) fn sleep(&self, doorbell: Doorbell<'_>, ticket: Ticket, sleep: impl FnOnce(bool)) {
        // A change made after this store wakes the thread.
        self.is_asleep.store(true, Ordering::SeqCst);
        fence(Ordering::SeqCst);
        if doorbell.rings.load(Ordering::Acquire) == ticket.0 {
            sleep(!self.are_apart.load(Ordering::SeqCst));
        }
        self.is_asleep.store(false, Ordering::Relaxed);
    }

    /// Wakes the sleeping thread. The caller has made its change before.
    pub(crate) fn wake(&self, wake: impl FnOnce()) {
        fence(Ordering::SeqCst);
        if self.is_asleep.load(Ordering::SeqCst) {
            wake();
        }
    }

    /// A thread sleeps for completions from now on, or does so no more; then the caller rings.
    pub(crate) fn set_apart(&self, are_apart: bool) {
        self.are_apart.store(are_apart, Ordering::SeqCst);
    }
}
