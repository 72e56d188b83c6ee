//! Where the threads of a contest wait for one another, unless one of them fails.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};

use onesided_fabric::Error;

/// A barrier that nobody waits at for somebody who does not come any more.
#[derive(Debug)]
pub(super) struct Barrier {
    size: u32,
    state: Mutex<State>,
    changed: Condvar,
    failed: AtomicBool,
}

#[derive(Debug, Default)]
struct State {
    /// Who came, in all rounds.
    came: u64,
    /// What the first one failed with that failed.
    error: Option<Error>,
}

impl Barrier {
    pub(super) fn of(size: u32) -> Self {
        Self { size, state: Mutex::default(), changed: Condvar::new(), failed: AtomicBool::new(false) }
    }

    /// Waits for the others. Whether all came: if one has failed, not all will.
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

    /// Says that this one does not come any more. What others fail with later is what came of it.
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

    /// Says so too if its thread panics.
    pub(super) const fn guard(&self) -> Leaves<'_> {
        Leaves(self)
    }

    /// What the first one failed with.
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

/// Of a thread that comes to a [`Barrier`].
#[derive(Debug)]
pub(super) struct Leaves<'a>(&'a Barrier);

impl Drop for Leaves<'_> {
    fn drop(&mut self) {
        if std::thread::panicking() {
            let _state = self.0.state(); // nobody is between its look and its sleep
            self.0.leave();
        }
    }
}
