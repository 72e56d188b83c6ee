//! The release of a lock: posted, waited for, or left to the endpoint.

use std::future::Future;
use std::hint::spin_loop;
use std::mem::ManuallyDrop;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use onesided_fabric::Fabric;
use onesided_fabric::remote_memory::{Fault, FaultKind};
use onesided_lock_algos::{LockAlgorithm, Mode, Owner, TestAndSet, held_by_word};

use crate::locks::by_design;
use crate::locks::context::Words;
use crate::locks::layout::Which;
use crate::locks::slots::LEAD;
use crate::passive::acquire::at_once;
use crate::passive::lock::Spot;
use crate::passive::previous_owner::Holding;
use crate::window::background::poll_once;
use crate::window::inner::Inner;
use crate::window::target::Target;
use crate::{Access, Element, Epoch};

impl<'w, T: Element, F: Fabric> Epoch<'w, T, F> {
    /// Gives it back when nobody has seen yet whether it was recovered: see [`leave`].
    pub(super) fn leave(self) {
        if !self.holding.is_recovered() {
            return; // its drop releases
        }
        let held = ManuallyDrop::new(self);
        let Access { inner, target, .. } = held.access;
        let (theirs, spot, owner, holding) = (Arc::clone(inner), (target.rank, held.which), held.words.1, held.holding);
        inner.run_or_spawn(async move { leave(&theirs, spot, owner, holding).await });
    }

    /// Whether its release may tell that the lock is not held any more: where leases are nobody leads.
    #[inline(always)]
    pub(crate) fn may_be_late(&self) -> bool {
        let inner = self.access.inner;
        let leads = inner.locks.has_biased_slot && Owner::from_bits(self.words.1).slot == LEAD;
        !held_by_word(self.words.1, self.holding.mode()) && !leads && inner.locks.leases.is_some()
    }

    /// Releases, and tells whether the lock was held.
    #[inline(always)] // see `post_release`
    pub(crate) fn release_late(&self) -> Releasing<F> {
        let Self { access: Access { inner, target, .. }, words, holding, which } = self;
        release_late(inner, (target, *which), words.0, words.1, *holding)
    }

    /// Unlocks where nothing but what was waited for was done under the lock.
    pub(crate) fn unlock_unchanged(self) {
        ManuallyDrop::new(self).post_release();
    }

    /// Unlocks without waiting for what was done under the lock: the release is posted behind it. What failed is
    /// reported by the next flush, or the window's end.
    pub(crate) fn unlock_behind(self) {
        let inner = self.access.inner;
        if inner.completes_at_post {
            return ManuallyDrop::new(self).post_release();
        }
        let (home, mode) = (inner.home(self.access.target, self.which, self.words.1), self.mode());
        let in_one_step = inner.locks.algorithm.releases_in_one_step(home, mode);
        let release = in_one_step.then(|| inner.locks.algorithm.release_link(inner.fabric(), self.words, mode));
        if let Some(release) = release.flatten() {
            inner.fabric().post_release(release);
            inner.give_back(self.words.1);
            let _released = ManuallyDrop::new(self);
        } // else its drop flushes and releases
    }

    /// Posts the release; what is left of it, if anything, goes to the endpoint.
    // No function that is called gets the address of the guard: then it would pass through memory.
    #[inline(always)]
    pub(crate) fn post_release(&self) {
        let Self { access: Access { inner, target, .. }, words, holding, which } = self;
        post_release(inner, (target, *which), *words, *holding);
    }
}

impl<T: Element, F: Fabric> Drop for Epoch<'_, T, F> {
    #[inline(always)] // see `post_release`
    fn drop(&mut self) {
        let Self { access: Access { inner, target, .. }, words, holding, which } = self;
        let_go(inner, (target, *which), words.0, words.1, *holding);
    }
}

#[cold]
#[inline(never)]
fn release_late<'w, F: Fabric>(
    inner: &'w Arc<Inner<F>>,
    (target, which): (&'w Target<F>, Which),
    word: F::Word<'w>,
    owner: u64,
    holding: Holding,
) -> Releasing<F> {
    let (home, mode) = (inner.home(target, which, owner), holding.mode());
    let started = inner.locks.algorithm.start_release(inner.fabric(), home, (word, owner), mode);
    let (theirs, rank) = (Arc::clone(inner), target.rank);
    Releasing::new(inner, rank, async move { theirs.finish_release((rank, which), owner, mode, started?).await })
}

#[inline(always)]
fn post_release<'w, F: Fabric>(
    inner: &'w Arc<Inner<F>>,
    (target, which): (&'w Target<F>, Which),
    words: Words<'w, F>,
    holding: Holding,
) {
    if held_by_word(words.1, holding.mode()) {
        drop(TestAndSet::release_word(inner.fabric(), words));
    } else if which.is_part() && inner.locks.has_biased_slot && Owner::from_bits(words.1).slot == LEAD {
        release_as_lead(inner, target, words.0, words.1, holding);
    } else {
        // In registers, each by itself.
        release_node(inner, (target, which), words.0, words.1, holding);
    }
}

/// The release of an owner who has slot 0, where an operation is done when it is posted.
#[inline(always)]
fn release_as_lead<'w, F: Fabric>(
    inner: &'w Arc<Inner<F>>,
    target: &'w Target<F>,
    word: F::Word<'w>,
    owner: u64,
    holding: Holding,
) {
    by_design!(
        &inner.locks.algorithm,
        lock => release_at_once(lock, inner, target, word, owner, holding),
        other => release_at_once(other, inner, target, word, owner, holding)
    );
}

#[inline(never)]
fn release_at_once<'w, F: Fabric, A: LockAlgorithm<Words<'w, F> = Words<'w, F>>>(
    lock: &'w A,
    inner: &'w Arc<Inner<F>>,
    target: &'w Target<F>,
    word: F::Word<'w>,
    owner: u64,
    holding: Holding,
) {
    let (words, mode) = ((word, owner), holding.mode());
    let home = match inner.home(target, Which::PART, owner).of_lead() {
        Ok(home) => home,
        Err(fault) => return keep(inner, target.rank, fault),
    };
    let started = match lock.start_release(inner.fabric(), home, words, mode) {
        Ok(started) => started,
        Err(fault) => return keep(inner, target.rank, fault),
    };
    match at_once(started) {
        Ok(found) => match lock.released(inner.fabric(), home, words, mode, found) {
            Ok(true) => inner.locks.slots.give_back_lead(),
            Ok(false) => finish_at_once(inner, (target, Which::PART), owner, mode, found),
            Err(fault) => keep(inner, target.rank, fault),
        },
        Err(fault) => adopt_found(inner, (target.rank, Which::PART), words.1, mode, Err(fault)),
    }
}

/// The rest of a release where an operation is done when it is posted. If that waits for another owner's next step, so does
/// this for a moment, which costs less than to leave it to the endpoint.
#[inline(never)]
fn finish_at_once<F: Fabric>(
    inner: &Arc<Inner<F>>,
    (target, which): (&Target<F>, Which),
    owner: u64,
    mode: Mode,
    found: u64,
) {
    /// How often it is looked: for less than a microsecond.
    const LOOKS: usize = 64;
    let (home, spot) = (inner.home(target, which, owner), (target.rank, which));
    for _ in 0..LOOKS {
        match inner.locks.algorithm.release_waits(inner.fabric(), home, mode) {
            Some(true) => spin_loop(),
            Some(false) => {
                match poll_once(inner.finish_release(spot, owner, mode, std::future::ready(Ok(found)))) {
                    Poll::Ready(Ok(())) => {}
                    Poll::Ready(Err(fault)) => keep(inner, target.rank, fault),
                    // A fabric that calls itself immediate and is not.
                    Poll::Pending => keep(inner, target.rank, Fault::new(FaultKind::Protocol)),
                }
                return;
            }
            None => break,
        }
    }
    adopt_found(inner, spot, owner, mode, Ok(found));
}

#[cold]
#[inline(never)]
fn adopt_found<F: Fabric>(inner: &Arc<Inner<F>>, spot: Spot, owner: u64, mode: Mode, found: Result<u64, Fault>) {
    adopt_release(inner, spot, owner, mode, std::future::ready(found));
}

/// The release where an owner may have a node.
#[cold]
#[inline(never)]
fn release_node<'w, F: Fabric>(
    inner: &'w Arc<Inner<F>>,
    (target, which): (&'w Target<F>, Which),
    word: F::Word<'w>,
    owner: u64,
    holding: Holding,
) {
    let words = (word, owner);
    let (home, mode) = (inner.home(target, which, words.1), holding.mode());
    let mut started = match inner.locks.algorithm.start_release(inner.fabric(), home, words, mode) {
        Ok(started) => started,
        Err(fault) => return keep(inner, target.rank, fault),
    };
    if inner.locks.algorithm.releases_in_one_step(home, mode) {
        return inner.give_back(words.1);
    }
    let spot = (target.rank, which);
    let found = match poll_once(&mut started) {
        Poll::Ready(Ok(found)) => found,
        Poll::Ready(Err(fault)) => return adopt_found(inner, spot, owner, mode, Err(fault)),
        Poll::Pending => return adopt_release(inner, spot, owner, mode, started),
    };
    match inner.locks.algorithm.released(inner.fabric(), home, words, mode, found) {
        Ok(true) => inner.give_back(owner),
        Ok(false) if inner.completes_at_post => finish_at_once(inner, (target, which), owner, mode, found),
        Ok(false) => adopt_found(inner, spot, owner, mode, Ok(found)),
        Err(fault) => {
            inner.end_failed(owner);
            keep(inner, target.rank, fault);
        }
    }
}

/// Ends a release whose first operation is posted, here or, where it has to wait, by the endpoint.
#[inline(never)]
fn adopt_release<F: Fabric>(
    inner: &Arc<Inner<F>>,
    spot: Spot,
    owner: u64,
    mode: Mode,
    started: impl Future<Output = Result<u64, Fault>> + Send + 'static,
) {
    let theirs = Arc::clone(inner);
    inner.run_or_spawn(async move {
        if let Err(fault) = theirs.finish_release(spot, owner, mode, started).await {
            theirs.lifecycle.defer(theirs.failed_late("unlock", spot.0, fault));
        }
    });
}

#[cold]
#[inline(never)]
fn keep<F: Fabric>(inner: &Inner<F>, rank: u32, fault: Fault) {
    inner.lifecycle.defer(inner.failed_late("unlock", rank, fault));
}

/// Flushes and releases, here or, where that has to wait, by the endpoint.
#[inline(never)]
fn let_go<'w, F: Fabric>(
    inner: &'w Arc<Inner<F>>,
    (target, which): (&'w Target<F>, Which),
    word: F::Word<'w>,
    owner: u64,
    holding: Holding,
) {
    let words = (word, owner);
    match poll_once(inner.fabric().flush_before_release(target.fabric_rank())) {
        Poll::Ready(flushed) => {
            post_release(inner, (target, which), words, holding);
            if let Err(fault) = flushed {
                keep(inner, target.rank, fault);
            }
        }
        Poll::Pending => {
            let (theirs, spot, mode) = (Arc::clone(inner), (target.rank, which), holding.mode());
            inner.spawn(Box::pin(async move { release(&theirs, spot, owner, mode).await }));
        }
    }
}

/// Gives a lock back that nobody has seen. Of what is half done there nobody knows: so one that was inherited is left as the dead
/// left it, and the next one is told.
pub(crate) async fn leave<F: Fabric>(inner: &Inner<F>, spot: Spot, owner: u64, holding: Holding) {
    if !holding.is_recovered() {
        return release(inner, spot, owner, holding.mode()).await;
    }
    let outcome = async {
        let home = inner.home(inner.target(spot.0)?, spot.1, owner);
        let left = inner.locks.algorithm.release_poisoned(inner.fabric(), home, home.words()?, holding.held()).await;
        inner.end_release(owner, left)
    };
    if let Err(fault) = outcome.await {
        inner.lifecycle.defer(inner.failed_late("unlock", spot.0, fault));
    }
}

/// Flushes and releases for somebody who is gone; the window keeps what goes wrong.
pub(crate) async fn release<F: Fabric>(inner: &Inner<F>, spot: Spot, owner: u64, mode: Mode) {
    let outcome = async {
        let target = inner.target(spot.0)?;
        let flushed = inner.fabric().flush_before_release(target.fabric_rank()).await;
        let home = inner.home(target, spot.1, owner);
        let words = home.words()?;
        let started = inner.locks.algorithm.start_release(inner.fabric(), home, words, mode)?;
        let released = inner.finish_release(spot, owner, mode, started).await;
        flushed.and(released) // it is released whatever became of what was done under it
    };
    if let Err(fault) = outcome.await {
        inner.lifecycle.defer(inner.failed_late("unlock", spot.0, fault));
    }
}

/// A release that is waited for. Dropped before it is done, it goes to the endpoint.
pub(crate) struct Releasing<F: Fabric>(Box<Late<F>>);

struct Late<F: Fabric> {
    inner: Arc<Inner<F>>,
    rank: u32,
    /// `None` once it is done.
    rest: Option<Rest>,
}

type Rest = Pin<Box<dyn Future<Output = Result<(), Fault>> + Send>>;

impl<F: Fabric> Releasing<F> {
    pub(crate) fn new(
        inner: &Arc<Inner<F>>,
        rank: u32,
        rest: impl Future<Output = Result<(), Fault>> + Send + 'static,
    ) -> Self {
        Self(Box::new(Late { inner: Arc::clone(inner), rank, rest: Some(Box::pin(rest)) }))
    }
}

impl<F: Fabric> Future for Releasing<F> {
    type Output = Result<(), Fault>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let rest = &mut self.0.rest;
        let released = match rest {
            Some(release) => ready!(release.as_mut().poll(cx)),
            None => Ok(()),
        };
        *rest = None;
        Poll::Ready(released)
    }
}

impl<F: Fabric> Drop for Late<F> {
    fn drop(&mut self) {
        let Some(rest) = self.rest.take() else { return };
        let (inner, rank) = (Arc::clone(&self.inner), self.rank);
        self.inner.spawn(Box::pin(async move {
            if let Err(fault) = rest.await {
                inner.lifecycle.defer(inner.failed_late("unlock", rank, fault));
            }
        }));
    }
}

impl<F: Fabric> Inner<F> {
    /// The rest of a release, and the end of its owner.
    pub(crate) async fn finish_release(
        &self,
        (rank, which): Spot,
        owner: u64,
        mode: Mode,
        started: impl Future<Output = Result<u64, Fault>> + Send,
    ) -> Result<(), Fault> {
        let home = self.home(self.target(rank)?, which, owner);
        let words = home.words()?;
        let released = self.locks.algorithm.finish_release(self.fabric(), home, words, mode, started).await;
        self.end_release(owner, released)
    }

    /// Ends an owner whose release ended so.
    pub(crate) fn end_release(&self, owner: u64, released: Result<(), Fault>) -> Result<(), Fault> {
        match released {
            Ok(()) => self.give_back(owner),
            Err(_) => self.end_failed(owner), // otherwise what hangs on the node may be written to yet
        }
        released
    }

    /// Ends an owner whose release failed, if nobody can write to its node any more.
    #[cold]
    pub(crate) fn end_failed(&self, owner: u64) {
        if self.locks.algorithm.nodes_are_own() {
            self.give_back(owner);
        }
    }
}
