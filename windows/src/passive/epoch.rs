//! A lock that is held.

use std::ops::Deref;
use std::sync::Arc;

use onesided_fabric::{Any, Fabric, LockState, debug};
use onesided_lock_algos::{Mode, Owner};

use crate::locks::layout::LockId;
use crate::operation::request::Awaited;
use crate::passive::claim::Claim;
use crate::passive::previous_owner::Holding;
use crate::window::inner::Inner;
use crate::window::target::Target;
use crate::{Access, Element, Error, PreviousOwner};

/// The held lock of a target. Derefs to [`Access`], the operations under the lock.
///
/// [`unlock`](Self::unlock) releases the lock and reports errors. A drop releases it too, but its
/// errors are deferred to [`Window::close`](crate::Window::close). Leaking a guard leaves the
/// target locked and has no other effect.
///
/// An exclusive guard that is dropped because its thread panics leaves the lock poisoned, as the
/// death of its rank would: what it protects may be half written. Other acquires fail, those of
/// this rank too, until one [recovers](crate::handles::LockRequest::recover). A shared guard, one
/// whose `unlock` has begun, and one that a destructor made while the stack was unwinding already
/// release as usual.
#[must_use = "if unused the lock is released immediately"]
pub struct Epoch<'w, T: Element, F: Fabric = Any> {
    pub(super) access: Access<'w, T, F>,
    /// The owner's bits.
    pub(super) owner: u64,
    pub(super) holding: Holding,
    pub(super) id: LockId,
}

impl<'w, T: Element, F: Fabric> Epoch<'w, T, F> {
    #[inline]
    pub(crate) fn new(
        inner: &'w Arc<Inner<F>>,
        (target, id): (&'w Target<F>, LockId),
        owner: u64,
        holding: Holding,
    ) -> Self {
        inner.note_lock((target.rank, id), holding.mode(), None, Some(LockState::Holds));
        Self { access: Access::new(inner, target), owner, holding: holding.of_guard(), id }
    }

    /// The mode in which the lock is held: as requested, but exclusive if it was
    /// [recovered](Self::previous_owner).
    pub const fn mode(&self) -> Mode {
        self.holding.mode()
    }

    /// The failed previous owner, if the lock was
    /// [recovered](crate::handles::LockRequest::recover): what the lock protects may be
    /// inconsistent.
    pub fn previous_owner(&self) -> Option<PreviousOwner> {
        self.holding.previous_owner(&self.access.inner.world)
    }

    /// Whether the guard is dropped because its thread began to panic.
    /// The same guard, before it reaches the caller. A drop before that leaves the lock as if it had never been
    /// recovered.
    pub(crate) const fn unclaimed(mut self) -> Self {
        self.holding = self.holding.unclaimed(true);
        self
    }

    /// The same guard, for the caller.
    pub(crate) const fn claim(mut self) -> Self {
        self.holding = self.holding.unclaimed(false);
        self
    }

    pub(crate) fn is_half_done(&self) -> bool {
        self.holding.is_half_done()
    }

    pub(crate) const fn holding(&self) -> Holding {
        self.holding
    }

    /// Records a previous owner whose lock was released before this shared lock.
    pub(crate) const fn set_previous(&mut self, before: Holding) {
        self.holding = before.shared().biased(self.holding.is_biased());
    }

    /// The lock's window, target and id.
    pub(crate) fn lock_parts(&self) -> (&'w Inner<F>, &'w Target<F>, LockId) {
        let Access { inner, target, .. } = self.access;
        (inner, target, self.id)
    }

    /// The lock's owner.
    #[inline(always)] // see `Claim::post_release`
    pub(super) const fn held_claim(&self) -> Claim<'w, F> {
        let Self { access: Access { inner, target, .. }, owner, holding, id } = self;
        Claim { inner, target, id: *id, owner: *owner, mode: holding.mode() }
    }

    pub(crate) const fn owner(&self) -> Owner {
        Owner::from_bits(self.owner)
    }

    /// The value of the lock's word while a test-and-set owner holds it exclusively.
    pub(crate) const fn held_word(&self) -> u64 {
        self.owner
    }

    /// Notes that it is released.
    #[inline(always)] // nothing is left of it
    pub(super) fn note_release(&self) {
        self.access.inner.note_lock((self.access.target.rank, self.id), self.mode(), Some(LockState::Holds), None);
    }

    /// For a request that waits for the target.
    pub(crate) fn awaited(&self) -> Awaited<'w, F> {
        Awaited::Target(self.access.inner, self.access.target.rank)
    }

    /// Defers an error to the close of the window.
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

debug!([T: Element, F: Fabric] Epoch<'_, T, F>, |this| "{:?} lock on {:?}", this.mode(), this.access);
