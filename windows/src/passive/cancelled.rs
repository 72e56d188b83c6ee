//! Cancelled acquires: their pending operations are finished, and the lock that these take is
//! released, or left poisoned for the next recovering owner.

use std::cell::Cell;
use std::future::Future;
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};
use std::task::{Context, Poll};

use onesided_fabric::remote_memory::{Fault, FaultKind, Rank};
use onesided_fabric::{Fabric, LockState, Told};
use onesided_lock_algos::{Intent, IntentFn, Owner, WaitPolicy};

use crate::locks::layout::LockId;
use crate::passive::claim::{Claim, KeptClaim};
use crate::passive::previous_owner::Holding;

/// The rest of an acquire, which owns what it needs. Dropped before it completes, it moves to the
/// endpoint, which finishes it and [releases](KeptClaim::release) the lock if that took it; closing the window
/// waits for this.
pub(crate) struct Cancellable<F: Fabric> {
    claim: KeptClaim<F>,
    shared: Arc<Shared>,
    rest: Option<Rest>,
    told: Told,
}

/// What an acquire and its request tell each other.
#[derive(Default)]
struct Shared {
    cancelled: AtomicBool,
    /// Set once the first operation did not suffice, with the
    /// [rank](crate::locks::window_lock::WindowLock::rank_found) that it found.
    found: OnceLock<Option<Rank>>,
}

/// An acquire that was cancelled before it completed.
#[derive(Clone, Copy)]
pub(crate) struct Cancelled {
    pub(crate) target_lock: (u32, LockId),
    /// The error of a deadline that cancelled it; it names a rank that has the lock, where known.
    pub(crate) fault: Fault,
}

thread_local! {
    /// The acquire that this thread cancelled last: a future that is dropped returns nothing.
    static LAST: Cell<Option<Cancelled>> = const { Cell::new(None) };
}

/// Drops a call, and returns the acquire that it waited for.
pub(crate) fn cancel<C>(call: C) -> Option<Cancelled> {
    LAST.take();
    drop(call);
    LAST.take()
}

/// How the lock is held, and whether the first operation sufficed.
type Held = Result<(Holding, bool), Fault>;
type Rest = Pin<Box<dyn Future<Output = Held> + Send>>;

impl<F: Fabric> Cancellable<F> {
    /// `first` yields the value of the first operation.
    pub(crate) fn new(
        claim: Claim<'_, F>,
        intent: Intent,
        first: impl Future<Output = Result<u64, Fault>> + Send + 'static,
    ) -> Self {
        claim.inner.note_lock((claim.target.rank, claim.id), claim.mode, None, Some(LockState::Waits));
        let shared = Arc::<Shared>::default();
        let (theirs, told) = (claim.kept(), Arc::clone(&shared));
        let rest = Box::pin(async move {
            let first = first.await;
            let claim = theirs.claim()?;
            let Claim { inner, owner, mode, .. } = claim;
            if first.is_ok_and(|first| inner.locks.algorithm.holds(owner, mode, first)) {
                return Ok((Holding::cleanly(mode).biased(claim.is_biased()), true));
            }
            let _ = told.found.set(first.ok().and_then(|first| inner.locks.algorithm.rank_found(first)));
            let intent: IntentFn<'_> = &|| {
                let wanted = match told.cancelled.load(Ordering::Relaxed) {
                    false => intent.wanted,
                    true if inner.world.is_leaving() => WaitPolicy::Leaving,
                    true => WaitPolicy::Cancelled,
                };
                Intent { wanted, ..intent }
            };
            claim.contended(first, intent).await.map(|holding| (holding, false))
        });
        Self { claim: claim.kept(), shared, rest: Some(rest), told: Told::NOTHING }
    }

    /// Whether the first operation did not suffice.
    pub(super) fn contends(&self) -> bool {
        self.shared.found.get().is_some()
    }

    fn found(&self) -> Option<Rank> {
        *self.shared.found.get()?
    }

    /// Notes that nothing waits for the lock any more.
    fn note_end(&self) {
        let KeptClaim { inner, target_lock, mode, .. } = &self.claim;
        inner.note_lock(*target_lock, *mode, Some(LockState::Waits), None);
    }

    pub(crate) fn poll(&mut self, cx: &mut Context<'_>) -> Poll<Held> {
        let Some(rest) = &mut self.rest else { return Poll::Ready(Err(Fault::new(FaultKind::Closed))) };
        let Poll::Ready(outcome) = rest.as_mut().poll(cx) else {
            let (KeptClaim { inner, target_lock, owner, mode }, found) = (&self.claim, self.found());
            self.told.tell(|| inner.lock_wait(*target_lock, *mode, (*owner, found)));
            return Poll::Pending;
        };
        self.rest = None;
        self.note_end();
        Poll::Ready(outcome)
    }
}

impl<F: Fabric> Drop for Cancellable<F> {
    fn drop(&mut self) {
        let Some(rest) = self.rest.take() else { return };
        self.note_end();
        self.shared.cancelled.store(true, Ordering::Relaxed);
        let KeptClaim { ref inner, target_lock, owner, .. } = self.claim;
        LAST.set(Some(Cancelled { target_lock, fault: inner.late(target_lock, owner, self.found()) }));
        let slot = Owner::from_bits(owner).slot;
        inner.locks.slots.cancelled().push(slot);
        let inner = Arc::clone(inner);
        self.claim.inner.run_or_spawn(async move {
            // An acquire that fails holds nothing.
            if let Ok((holding, _)) = rest.await {
                let held = KeptClaim { inner: Arc::clone(&inner), target_lock, owner, mode: holding.mode() };
                held.release(holding.recovered()).await;
            }
            let mut cancelled = inner.locks.slots.cancelled();
            if let Some(index) = cancelled.iter().position(|other| *other == slot) {
                cancelled.swap_remove(index);
            }
        });
    }
}
