//! Cancelled acquires: their pending operations are finished, and the lock that these take is
//! released, or left poisoned for the next recovering owner.

use std::future::Future;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll, Waker, ready};

use onesided_fabric::Fabric;
use onesided_fabric::remote_memory::{Fault, FaultKind};
use onesided_lock_algos::{Intent, IntentFn, LockAlgorithm, Mode, WaitPolicy};

use crate::lock::Spot;
use crate::previous_owner::Holding;
use crate::window::Inner;

/// The rest of an acquire, which owns what it needs. Dropped before it completes, it moves to the
/// endpoint, which finishes it and [leaves](leave) the lock if that took it; closing the window
/// waits for this.
pub(crate) struct Abandonable<F: Fabric> {
    inner: Arc<Inner<F>>,
    spot: Spot,
    owner: u64,
    wanted: Arc<AtomicBool>,
    /// May change between polls.
    recovers: Arc<AtomicBool>,
    rest: Option<Rest>,
}

type Rest = Pin<Box<dyn Future<Output = Result<Holding, Fault>> + Send>>;

impl<F: Fabric> Abandonable<F> {
    /// `first` yields the value of the first operation.
    pub(crate) fn new(
        inner: Arc<Inner<F>>,
        (spot, mode, wish): (Spot, Mode, Intent),
        owner: u64,
        first: impl Future<Output = Result<u64, Fault>> + Send + 'static,
    ) -> Self {
        let (wanted, recovers) = (Arc::new(AtomicBool::new(true)), Arc::new(AtomicBool::new(wish.recovers)));
        let (theirs, still, said) = (Arc::clone(&inner), Arc::clone(&wanted), Arc::clone(&recovers));
        let rest = Box::pin(async move {
            let home = theirs.home(theirs.target(spot.0)?, spot.1, owner);
            let words = home.words()?;
            let first = first.await;
            if first.is_ok_and(|first| theirs.algorithm.holds::<F>(words, mode, first)) {
                return Ok(Holding::cleanly(mode));
            }
            let wish: IntentFn<'_> = &|| {
                let wanted = if still.load(Ordering::Relaxed) { wish.wanted } else { WaitPolicy::Cancelled };
                Intent { wanted, recovers: said.load(Ordering::Relaxed) }
            };
            let held = theirs.contend(home, words, mode, first, wish).await;
            held.map(Holding::of).inspect_err(|fault| theirs.give_up(owner, first, *fault))
        });
        Self { inner, spot, owner, wanted, recovers, rest: Some(rest) }
    }

    pub(crate) fn poll(&mut self, cx: &mut Context<'_>, recovers: bool) -> Poll<Result<Holding, Fault>> {
        self.recovers.store(recovers, Ordering::Relaxed);
        let Some(rest) = &mut self.rest else { return Poll::Ready(Err(Fault::new(FaultKind::Closed))) };
        let outcome = ready!(rest.as_mut().poll(cx));
        self.rest = None;
        Poll::Ready(outcome)
    }
}

impl<F: Fabric> Drop for Abandonable<F> {
    fn drop(&mut self) {
        let Some(rest) = self.rest.take() else { return };
        self.wanted.store(false, Ordering::Relaxed);
        let (inner, spot, owner) = (Arc::clone(&self.inner), self.spot, self.owner);
        let mut task = Box::pin(async move {
            // An acquire that fails holds nothing.
            if let Ok(holding) = rest.await {
                leave(&inner, spot, owner, holding).await;
            }
        });
        // Where operations complete at post, most of them end here.
        if pin!(&mut task).poll(&mut Context::from_waker(Waker::noop())).is_pending() {
            self.inner.spawn(task);
        }
    }
}

/// Releases a lock whose guard never reached the caller. If it was recovered, the protected data
/// were not repaired: it stays poisoned, and the next request gets the error.
pub(crate) async fn leave<F: Fabric>(inner: &Inner<F>, spot: Spot, owner: u64, holding: Holding) {
    if !holding.is_recovered() {
        return release(inner, spot, owner, holding.mode()).await;
    }
    let outcome = async {
        let home = inner.home(inner.target(spot.0)?, spot.1, owner);
        let left = inner.algorithm.release_poisoned(inner.fabric(), home, home.words()?, holding.held()).await;
        inner.end_release(owner, left)
    };
    if let Err(fault) = outcome.await {
        inner.keep(inner.failed_late("unlock", spot.0, fault));
    }
}

/// Flushes and releases for a caller that is gone; errors are deferred.
pub(crate) async fn release<F: Fabric>(inner: &Inner<F>, spot: Spot, owner: u64, mode: Mode) {
    let outcome = async {
        let target = inner.target(spot.0)?;
        let flushed = inner.fabric().flush_before_release(target.fabric_rank()).await;
        let home = inner.home(target, spot.1, owner);
        let words = home.words()?;
        let started = inner.algorithm.start_release(inner.fabric(), home, words, mode)?;
        let released = inner.finish_release(spot, owner, mode, started).await;
        flushed.and(released) // released even if the flush failed
    };
    if let Err(fault) = outcome.await {
        inner.keep(inner.failed_late("unlock", spot.0, fault));
    }
}
