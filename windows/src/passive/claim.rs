//! An owner's claim to a lock: what an acquire and a release pass on.

use std::sync::Arc;

use onesided_fabric::remote_memory::Fault;
use onesided_fabric::{Fabric, copied};
use onesided_lock_algos::{LockContext, LockUse, Mode, Owner};

use crate::locks::layout::LockId;
use crate::locks::slots::BIASED_SLOT;
use crate::locks::window_lock::Used;
use crate::window::inner::Inner;
use crate::window::target::Target;

/// An owner that requests, holds or releases a lock.
pub(crate) struct Claim<'w, F: Fabric> {
    pub(crate) inner: &'w Arc<Inner<F>>,
    pub(crate) target: &'w Target<F>,
    pub(crate) id: LockId,
    pub(crate) owner: u64,
    pub(crate) mode: Mode,
}

copied!([F: Fabric] Claim<'_, F>);

impl<'w, F: Fabric> Claim<'w, F> {
    #[inline(always)] // a call is a tenth of an uncontended lock
    pub(crate) fn used(self) -> Result<Used<'w, F>, Fault> {
        let context = self.inner.lock_context(self.target, self.id, self.owner);
        Ok(LockUse::new(self.inner.fabric(), context, (context.home(0)?, self.owner), self.mode))
    }

    /// Whether the owner has the biased slot.
    #[inline(always)] // see `Claim::post_release`
    pub(super) fn is_biased(self) -> bool {
        let locks = &self.inner.locks;
        self.id.is_window_lock() && locks.biased.is_some() && Owner::from_bits(self.owner).slot == BIASED_SLOT
    }

    /// The same without borrows, for a task.
    pub(crate) fn kept(self) -> KeptClaim<F> {
        let Self { inner, target, id, owner, mode } = self;
        KeptClaim { inner: Arc::clone(inner), target_lock: (target.rank, id), owner, mode }
    }
}

/// A [`Claim`] that owns what it needs.
pub(crate) struct KeptClaim<F: Fabric> {
    pub(crate) inner: Arc<Inner<F>>,
    pub(crate) target_lock: (u32, LockId),
    pub(crate) owner: u64,
    pub(crate) mode: Mode,
}

impl<F: Fabric> KeptClaim<F> {
    pub(crate) fn claim(&self) -> Result<Claim<'_, F>, Fault> {
        let Self { inner, target_lock: (rank, id), owner, mode } = self;
        Ok(Claim { inner, target: inner.target(*rank)?, id: *id, owner: *owner, mode: *mode })
    }
}
