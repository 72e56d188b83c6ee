//! The sleep of the one thread of a rank that waits for a card's events, while the others wait for
//! the doorbell alone.
//!
//! With [completion events](crate::Fabric::completion_events) of their own, *completions* are
//! awaited by a thread of its own, and the listener sleeps for packets only. That thread takes the
//! events, which those that wait for a completion have requested, drains the queue, and rings,
//! whether it found something or not: another thread may drain at that moment, and have looked
//! before. When it ends it rings as well, and the listener sleeps for completions again.
//!
//! Explored by loom in `shm::explored::two_threads`.

use onesided_job::segment::doorbell::Doorbell;

use crate::Ticket;
use crate::sync::atomic::{AtomicBool, Ordering, fence};

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
        // What is made after this wakes the thread.
        self.is_asleep.store(true, Ordering::SeqCst);
        fence(Ordering::SeqCst);
        if doorbell.rings.load(Ordering::Acquire) == ticket.0 {
            sleep(!self.are_apart.load(Ordering::SeqCst));
        }
        self.is_asleep.store(false, Ordering::Relaxed);
    }

    /// Wakes it, after what it is to see.
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
