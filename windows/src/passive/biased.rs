//! The steps of the owner in the biased slot, for one design: where operations complete at post, a lock
//! without contention calls one of them to acquire and one to release.
//!
//! Each is small and keeps what it has in registers: what may follow is another function, called last.

use std::sync::Arc;

use onesided_fabric::Fabric;
use onesided_fabric::remote_memory::{Fault, FaultKind};
use onesided_lock_algos::{Intent, LockAlgorithm, LockUse, Mode, Rest};

use crate::locks::layout::LockId;
use crate::locks::window_lock::Erased;
use crate::passive::acquire::done;
use crate::passive::release::{defer_error, finish_now, release_with_slot};
use crate::window::inner::Inner;
use crate::window::target::Target;

/// The outcome of an acquire's first operation that did not take the lock.
pub(super) type Outcome = Option<Result<u64, Fault>>;

/// The steps, by the mode.
pub(crate) trait Biased<F: Fabric>: Send + Sync {
    /// Posts the first operation of an acquire. Returns the owner's bits, and whether it holds the lock;
    /// otherwise there is an outcome. An acquire that cannot start goes on as one whose first operation
    /// failed.
    fn start_exclusive(&self, inner: &Inner<F>, target: &Target<F>, owner: u64, outcome: &mut Outcome) -> (u64, bool);
    fn start_shared(&self, inner: &Inner<F>, target: &Target<F>, owner: u64, outcome: &mut Outcome) -> (u64, bool);
    /// Releases; the endpoint finishes what is left of it.
    fn release_exclusive(&self, inner: &Arc<Inner<F>>, target: &Target<F>, owner: u64);
    fn release_shared(&self, inner: &Arc<Inner<F>>, target: &Target<F>, owner: u64);
}

impl<F: Fabric, A: LockAlgorithm> Biased<F> for Erased<A> {
    fn start_exclusive(&self, inner: &Inner<F>, target: &Target<F>, owner: u64, outcome: &mut Outcome) -> (u64, bool) {
        start(&self.0, (inner, target), owner, Mode::Exclusive, outcome)
    }

    fn start_shared(&self, inner: &Inner<F>, target: &Target<F>, owner: u64, outcome: &mut Outcome) -> (u64, bool) {
        start(&self.0, (inner, target), owner, Mode::Shared, outcome)
    }

    fn release_exclusive(&self, inner: &Arc<Inner<F>>, target: &Target<F>, owner: u64) {
        release::<F, A, true, true>(&self.0, inner, target, owner);
    }

    fn release_shared(&self, inner: &Arc<Inner<F>>, target: &Target<F>, owner: u64) {
        release::<F, A, false, true>(&self.0, inner, target, owner);
    }
}

#[inline(always)] // for each mode
fn start<F: Fabric>(
    lock: &impl LockAlgorithm,
    (inner, target): (&Inner<F>, &Target<F>),
    owner: u64,
    mode: Mode,
    outcome: &mut Outcome,
) -> (u64, bool) {
    let Some((_, context)) = inner.lock_context(target, LockId::WINDOW, owner).biased() else {
        *outcome = Some(Err(Fault::of(FaultKind::OutOfRange, target.fabric_rank())));
        return (owner, false);
    };
    let words = match lock.words(context, Intent::LOCK) {
        Ok(words) => words,
        Err(fault) => {
            *outcome = Some(Err(fault));
            return (owner, false);
        }
    };
    match lock.start(LockUse::new(inner.fabric(), context, words, mode)).and_then(done) {
        Ok(found) if lock.holds(words.1, mode, found) => (words.1, true),
        first => {
            *outcome = Some(first);
            (words.1, false)
        }
    }
}

/// `ALONE`: if no other owner is known to wait.
#[inline(always)] // for each mode
fn release<F: Fabric, A: LockAlgorithm, const EXCLUSIVE: bool, const ALONE: bool>(
    lock: &A,
    inner: &Arc<Inner<F>>,
    target: &Target<F>,
    owner: u64,
) {
    let mode = if EXCLUSIVE { Mode::Exclusive } else { Mode::Shared };
    let Some((home, context)) = inner.lock_context(target, LockId::WINDOW, owner).biased() else {
        return release_with_slot(inner, (target, LockId::WINDOW), owner, mode); // which tells why
    };
    let used = LockUse::new(inner.fabric(), context, (home, owner), mode);
    let started = if ALONE { lock.start_release_alone(used) } else { lock.start_release(used).map(Some) };
    let found = match started {
        Ok(Some(op)) => done(op),
        Ok(None) => return release_before_others::<F, A, EXCLUSIVE>(lock, inner, target, owner),
        Err(fault) => return defer_error(inner, target.rank, fault),
    };
    match found {
        Ok(found) if lock.released(used, Some(found)) == Ok(Rest::Nothing) => inner.locks.slots.free_biased(),
        found => finish::<F, EXCLUSIVE>(inner, target, owner, found),
    }
}

#[inline(never)]
fn release_before_others<F: Fabric, A: LockAlgorithm, const EXCLUSIVE: bool>(
    lock: &A,
    inner: &Arc<Inner<F>>,
    target: &Target<F>,
    owner: u64,
) {
    release::<F, A, EXCLUSIVE, false>(lock, inner, target, owner);
}

/// With few arguments, so that they need no memory.
#[inline(never)]
fn finish<F: Fabric, const EXCLUSIVE: bool>(
    inner: &Arc<Inner<F>>,
    target: &Target<F>,
    owner: u64,
    found: Result<u64, Fault>,
) {
    let mode = if EXCLUSIVE { Mode::Exclusive } else { Mode::Shared };
    finish_now(inner, (target, LockId::WINDOW), owner, mode, found);
}
