//! A lock that is held.

use std::fmt;
use std::ops::Deref;
use std::sync::Arc;

use onesided_fabric::Fabric;
use onesided_lock_algos::{Mode, Owner};

use crate::locks::context::Words;
use crate::locks::layout::LockId;
use crate::passive::previous_owner::Holding;
use crate::window::inner::Inner;
use crate::window::target::Target;
use crate::{Access, Element, Error, PreviousOwner};

/// A target's lock that is held, and the operations that may be done under it (through [`Access`], to which it derefs).
///
/// [`unlock`](Self::unlock) releases and reports; a drop does the same but cannot report: what goes wrong is then
/// reported by [`Window::close`](crate::Window::close). A guard that is leaked leaves the target locked, and nothing else.
#[must_use = "if unused the lock is released at once"]
pub struct Epoch<'w, T: Element, F: Fabric> {
    pub(super) access: Access<'w, T, F>,
    pub(super) words: Words<'w, F>,
    pub(super) holding: Holding,
    pub(super) id: LockId,
}

impl<'w, T: Element, F: Fabric> Epoch<'w, T, F> {
    #[inline]
    pub(crate) fn new(
        inner: &'w Arc<Inner<F>>,
        (target, id): (&'w Target<F>, LockId),
        words: Words<'w, F>,
        holding: Holding,
    ) -> Self {
        Self { access: Access::new(inner, target), words, holding, id }
    }

    /// How the lock is held: as it was asked for, but exclusively if it was [inherited](Self::previous_owner).
    pub const fn mode(&self) -> Mode {
        self.holding.mode()
    }

    /// Who died inside, if the lock was [inherited](crate::LockRequest::recover): what it protects may be half done.
    pub fn previous_owner(&self) -> Option<PreviousOwner> {
        self.holding.previous_owner(&self.access.inner.world)
    }

    pub(crate) const fn holding(&self) -> Holding {
        self.holding
    }

    /// Tells of an inheritance that was given back before this shared lock.
    pub(crate) const fn set_previous(&mut self, before: Holding) {
        self.holding = before.shared();
    }

    /// Which lock it is, and where.
    pub(crate) fn lock_parts(&self) -> (&'w Inner<F>, &'w Target<F>, LockId) {
        let Access { inner, target, .. } = self.access;
        (inner, target, self.id)
    }

    /// Who holds it.
    pub(crate) const fn owner(&self) -> Owner {
        Owner::from_bits(self.words.1)
    }

    /// What the lock's word is while a test-and-set owner has it alone.
    pub(crate) const fn held_word(&self) -> u64 {
        self.words.1
    }

    pub(crate) fn fabric(&self) -> &'w F {
        self.access.inner.fabric()
    }

    /// Keeps an error for the window's end.
    pub(crate) fn defer_error(&self, error: Error) {
        self.access.inner.lifecycle.defer(error);
    }
}

impl<'w, T: Element, F: Fabric> Deref for Epoch<'w, T, F> {
    type Target = Access<'w, T, F>;

    #[inline]
    fn deref(&self) -> &Access<'w, T, F> {
        &self.access
    }
}

impl<T: Element, F: Fabric> fmt::Debug for Epoch<'_, T, F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?} lock on {:?}", self.mode(), self.access)
    }
}
