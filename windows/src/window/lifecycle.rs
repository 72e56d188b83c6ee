//! How far a window has come towards its end, and what its end has to report.

use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use onesided_fabric::lock;

use crate::Error;

/// The state of a window on this rank, from its creation to its end.
#[derive(Debug, Default)]
pub(crate) struct Lifecycle {
    /// Whether this rank has closed the window: no operation begins any more.
    closed: AtomicBool,
    /// Whether a handle of this rank is closing the window, or has closed it.
    closing: AtomicBool,
    /// Whether all ranks have closed the window: no peer accesses this rank's window memory any
    /// more.
    ended: AtomicBool,
    /// How many spawned tasks of the window are unfinished: they still access peers' memory.
    background: AtomicUsize,
    /// The first deferred error: of an operation without a caller, such as a dropped guard's
    /// release.
    deferred_error: Mutex<Option<Error>>,
}

impl Lifecycle {
    /// Whether the window was ended here, read without order: for the path of an operation.
    #[inline]
    pub(crate) fn is_closed_relaxed(&self) -> bool {
        self.closed.load(Ordering::Relaxed)
    }

    /// Whether the window was closed here.
    pub(crate) fn is_closed(&self) -> bool {
        self.closed.load(Ordering::Acquire)
    }

    pub(crate) fn set_closed(&self) {
        self.closed.store(true, Ordering::Release);
    }

    /// Begins the window's end; `false` if another handle has.
    pub(crate) fn begin_close(&self) -> bool {
        !self.closing.swap(true, Ordering::Relaxed)
    }

    /// Whether all ranks have ended the window.
    pub(crate) fn has_ended(&mut self) -> bool {
        *self.ended.get_mut()
    }

    pub(crate) fn set_ended(&self, ended: bool) {
        self.ended.store(ended, Ordering::Relaxed);
    }

    /// Counts a task that the endpoint finishes.
    pub(crate) fn begin_background(&self) {
        self.background.fetch_add(1, Ordering::Relaxed);
    }

    pub(crate) fn end_background(&self) {
        self.background.fetch_sub(1, Ordering::Release);
    }

    /// Whether the endpoint has finished all tasks.
    pub(crate) fn is_drained(&self) -> bool {
        self.background.load(Ordering::Acquire) == 0
    }

    /// Keeps a deferred error; the first one counts.
    pub(crate) fn defer(&self, error: Error) {
        lock(&self.deferred_error).get_or_insert(error);
    }

    /// The deferred error, once.
    pub(crate) fn take_deferred(&self) -> Result<(), Error> {
        match lock(&self.deferred_error).take() {
            Some(error) => Err(error),
            None => Ok(()),
        }
    }
}
