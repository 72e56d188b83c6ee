//! The barrier of the threads of a throughput run, which ends if one of them fails.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};

use onesided_fabric::Error;

/// A barrier whose waiters return if a thread fails.
#[derive(Debug)]
pub(super) struct Barrier {
    size: u32,
    state: Mutex<State>,
    changed: Condvar,
    failed: AtomicBool,
}

#[derive(Debug, Default)]
struct State {
    /// The arrivals, in all rounds.
    came: u64,
    /// The error of the first thread that failed.
    error: Option<Error>,
}

impl Barrier {
    pub(super) fn of(size: u32) -> Self {
        Self { size, state: Mutex::default(), changed: Condvar::new(), failed: AtomicBool::new(false) }
    }

    /// Waits for the others. Returns whether all arrived: `false` if one has failed.
    #[must_use]
    pub(super) fn all_here(&self) -> bool {
        let mut state = self.state();
        state.came += 1;
        let all = state.came.next_multiple_of(u64::from(self.size));
        self.changed.notify_all();
        while state.came < all && !self.failed.load(Ordering::Relaxed) {
            state = self.changed.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
        !self.failed.load(Ordering::Relaxed)
    }

    /// Records a failure of this thread. Later failures of others are its consequences.
    pub(super) fn fail(&self, error: Error) {
        let mut state = self.state();
        if !self.failed.load(Ordering::Relaxed) {
            state.error = Some(error);
        }
        self.leave();
    }

    /// Whether one has failed.
    pub(super) const fn failed(&self) -> &AtomicBool {
        &self.failed
    }

    /// Records a failure if its thread panics.
    pub(super) const fn guard(&self) -> Leaves<'_> {
        Leaves(self)
    }

    /// The error of the first thread that failed.
    pub(super) fn error(self) -> Option<Error> {
        self.state.into_inner().unwrap_or_else(PoisonError::into_inner).error
    }

    fn leave(&self) {
        self.failed.store(true, Ordering::Relaxed);
        self.changed.notify_all();
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The guard of a thread at a [`Barrier`].
#[derive(Debug)]
pub(super) struct Leaves<'a>(&'a Barrier);

impl Drop for Leaves<'_> {
    fn drop(&mut self) {
        if std::thread::panicking() {
            let _state = self.0.state(); // no thread is between its check and its sleep
            self.0.leave();
        }
    }
}
