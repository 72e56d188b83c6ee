//! What moves while a thread waits for something else.

use std::sync::{OnceLock, Weak};

use crate::Fabric;

/// What of a rank moves while any thread of it waits, for whatever: messages, while a lock is waited
/// for (MPI-4.1, section 2.9: progress).
pub trait Background: Send + Sync {
    /// Moves what can be moved now, without blocking. It may be called inside of a wait of its own:
    /// it then has no effect.
    fn advance(&self);

    /// What is under way, a line each, to be read after `rank N has`.
    fn describe(&self) -> Vec<String>;
}

/// A fabric's place for it.
pub type BackgroundSlot = OnceLock<Weak<dyn Background>>;

pub(crate) fn advance(fabric: &impl Fabric) {
    if let Some(slot) = fabric.background() {
        advance_slot(slot);
    }
}

pub(crate) fn advance_slot(slot: &BackgroundSlot) {
    if let Some(background) = slot.get().and_then(Weak::upgrade) {
        background.advance();
    }
}
