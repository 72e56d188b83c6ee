//! What moves while a thread waits for something else.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock, Weak};

use onesided_remote_memory::debug;

use crate::Fabric;

/// What of a rank moves while any thread of it waits, for whatever: messages, while a lock is waited
/// for (MPI-4.1, section 2.9: progress).
pub trait Background: Send + Sync {
    /// Moves what can be moved now, without blocking. It may be called inside of a wait of its own:
    /// it then has no effect.
    fn advance(&self);

    /// A thread that blocks polls from now on, until [`ends_polling`](Self::ends_polling). `false`:
    /// that is of no interest.
    fn begins_polling(&self) -> bool;

    /// A thread that blocked polls no more.
    fn ends_polling(&self);

    /// What is under way, a line each, to be read after `rank N has`.
    fn describe(&self) -> Vec<String>;
}

/// A fabric's place for it.
#[derive(Default)]
pub struct BackgroundSlot {
    background: OnceLock<Weak<dyn Background>>,
    sleeps_at_once: AtomicBool,
}

debug!([] BackgroundSlot, |this| "BackgroundSlot {{ is_filled: {}, .. }}", this.background.get().is_some());

impl BackgroundSlot {
    /// Fills the place, once.
    pub fn set(&self, background: Weak<dyn Background>) {
        let _ = self.background.set(background); // a rank has one
    }

    /// What is there.
    pub fn get(&self) -> Option<Arc<dyn Background>> {
        self.background.get().and_then(Weak::upgrade)
    }

    /// Whether threads of the rank that block sleep until an event, and do not poll before.
    pub fn sleep_at_once(&self, at_once: bool) {
        self.sleeps_at_once.store(at_once, Ordering::Relaxed);
    }

    pub(crate) fn sleeps_at_once(&self) -> bool {
        self.sleeps_at_once.load(Ordering::Relaxed)
    }

    pub(crate) fn advance(&self) {
        if let Some(background) = self.get() {
            background.advance();
        }
    }
}

pub(crate) fn advance(fabric: &impl Fabric) {
    if let Some(slot) = fabric.endpoint().background() {
        slot.advance();
    }
}

/// Tells a rank's background that a thread polls, until this is dropped.
pub(crate) struct Polling(Arc<dyn Background>);

impl Polling {
    /// `None`: that is of no interest.
    pub(crate) fn begin(fabric: &impl Fabric) -> Option<Self> {
        let background = fabric.endpoint().background()?.get()?;
        background.begins_polling().then(|| Self(background))
    }
}

impl Drop for Polling {
    fn drop(&mut self) {
        self.0.ends_polling();
    }
}
