//! Cancelled acquires: their pending operations are finished, and the lock that these take is
//! released, or left poisoned for the next recovering owner.

use std::cell::Cell;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll};

use onesided_fabric::remote_memory::{Fault, FaultKind, Rank};
use onesided_fabric::{Fabric, LockState, Told};
use onesided_lock_algos::{Intent, IntentFn, Mode, Owner, WaitPolicy};

use crate::locks::layout::LockId;
use crate::passive::previous_owner::Holding;
use crate::passive::release::release;
use crate::window::inner::Inner;

/// The rest of an acquire, which owns what it needs. Dropped before it completes, it moves to the
/// endpoint, which finishes it and [leaves](leave) the lock if that took it; closing the window
/// waits for this.
pub(crate) struct Cancellable<F: Fabric> {
    inner: Arc<Inner<F>>,
    target_lock: (u32, LockId),
    owner: u64,
    mode: Mode,
    cancelled: Arc<AtomicBool>,
    /// See [`WindowLock::rank_found`](crate::locks::window_lock::WindowLock::rank_found).
    pub(super) found: Option<Rank>,
    rest: Option<Rest>,
    told: Told,
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

type Rest = Pin<Box<dyn Future<Output = Result<Holding, Fault>> + Send>>;

impl<F: Fabric> Cancellable<F> {
    /// `first` yields the value of the first operation.
    pub(crate) fn new(
        inner: Arc<Inner<F>>,
        (target_lock, mode, intent): ((u32, LockId), Mode, Intent),
        owner: u64,
        first: impl Future<Output = Result<u64, Fault>> + Send + 'static,
    ) -> Self {
        inner.note_lock(target_lock, mode, None, Some(LockState::Waits));
        let cancelled = Arc::new(AtomicBool::new(false));
        let (theirs, is_cancelled) = (Arc::clone(&inner), Arc::clone(&cancelled));
        let rest = Box::pin(async move {
            let first = first.await;
            if first.is_ok_and(|first| theirs.locks.algorithm.holds(owner, mode, first)) {
                return Ok(Holding::cleanly(mode));
            }
            let intent: IntentFn<'_> = &|| {
                let wanted = match is_cancelled.load(Ordering::Relaxed) {
                    false => intent.wanted,
                    true if theirs.world.is_leaving() => WaitPolicy::Leaving,
                    true => WaitPolicy::Cancelled,
                };
                Intent { wanted, ..intent }
            };
            theirs.contend((theirs.target(target_lock.0)?, target_lock.1), owner, mode, first, intent).await
        });
        Self { inner, target_lock, owner, mode, cancelled, found: None, rest: Some(rest), told: Told::NOTHING }
    }

    /// Notes that nothing waits for the lock any more.
    fn note_end(&self) {
        self.inner.note_lock(self.target_lock, self.mode, Some(LockState::Waits), None);
    }

    pub(crate) fn poll(&mut self, cx: &mut Context<'_>) -> Poll<Result<Holding, Fault>> {
        let Some(rest) = &mut self.rest else { return Poll::Ready(Err(Fault::new(FaultKind::Closed))) };
        let Poll::Ready(outcome) = rest.as_mut().poll(cx) else {
            let (inner, lock, mode) = (&self.inner, self.target_lock, self.mode);
            self.told.tell(|| inner.lock_wait(lock, mode, (self.owner, self.found)));
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
        self.cancelled.store(true, Ordering::Relaxed);
        let (inner, target_lock, owner) = (Arc::clone(&self.inner), self.target_lock, self.owner);
        LAST.set(Some(Cancelled { target_lock, fault: inner.late(target_lock, owner, self.found) }));
        let slot = Owner::from_bits(owner).slot;
        inner.locks.slots.cancelled().push(slot);
        self.inner.run_or_spawn(async move {
            // An acquire that fails holds nothing.
            if let Ok(holding) = rest.await {
                release(Arc::clone(&inner), target_lock, owner, holding.mode(), holding.recovered()).await;
            }
            let mut cancelled = inner.locks.slots.cancelled();
            if let Some(index) = cancelled.iter().position(|other| *other == slot) {
                cancelled.swap_remove(index);
            }
        });
    }
}
