//! A lock that is held.

use std::fmt;
use std::future::Future;
use std::hint::spin_loop;
use std::mem::ManuallyDrop;
use std::ops::Deref;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::task::{Context, Poll, Waker};

use onesided_fabric::Fabric;
use onesided_fabric::remote_memory::{Fault, FaultKind};
use onesided_lock_algos::{AnyLock, LockAlgorithm, Mode, Owner, TestAndSet, held_by_word};

use crate::abandoned::{leave, release};
use crate::home::Words;
use crate::homes::Which;
use crate::lock::{Spot, at_once};
use crate::nodes::LEAD;
use crate::previous_owner::Holding;
use crate::unlock::Releasing;
use crate::window::{Inner, Target};
use crate::{Access, Element, Error, PreviousOwner, Unlock};

/// The held lock of a target. Derefs to [`Access`], the operations under the lock.
///
/// [`unlock`](Self::unlock) releases the lock and reports errors. A drop releases it too, but its
/// errors are deferred to [`Window::close`](crate::Window::close). Leaking a guard leaves the
/// target locked and has no other effect.
#[must_use = "if unused the lock is released immediately"]
pub struct Epoch<'w, T: Element, F: Fabric> {
    access: Access<'w, T, F>,
    words: Words<'w, F>,
    holding: Holding,
    which: Which,
}

impl<'w, T: Element, F: Fabric> Epoch<'w, T, F> {
    #[inline]
    pub(crate) fn new(
        inner: &'w Arc<Inner<F>>,
        (target, which): (&'w Target<F>, Which),
        words: Words<'w, F>,
        holding: Holding,
    ) -> Self {
        Self { access: Access::new(inner, target), words, holding, which }
    }

    /// The mode in which the lock is held: as requested, but exclusive if it was
    /// [recovered](Self::previous_owner).
    pub const fn mode(&self) -> Mode {
        self.holding.mode()
    }

    /// The failed previous owner, if the lock was [recovered](crate::LockRequest::recover): what
    /// the lock protects may be inconsistent.
    pub fn previous_owner(&self) -> Option<PreviousOwner> {
        self.holding.previous_owner(&self.access.inner.world)
    }

    pub(crate) const fn holding(&self) -> Holding {
        self.holding
    }

    /// Records a previous owner whose lock was released before this shared lock.
    pub(crate) const fn tell(&mut self, before: Holding) {
        self.holding = before.shared();
    }

    /// Unlocks (`MPI_Win_unlock`). Completes when everything done under the lock is complete at the
    /// target and the release is posted; the release itself is not waited for. Does nothing unless
    /// waited on or polled; a drop then releases.
    ///
    /// # Errors
    /// [`Error::Operation`] with the first failure of what was done under the lock. The lock is
    /// released all the same.
    #[inline(always)] // a guard that passes through memory costs more than the release
    pub fn unlock(self) -> Unlock<'w, T, F> {
        let Access { inner, target, .. } = self.access;
        Unlock::new(inner, target, Some(self))
    }

    /// Releases a lock whose guard never reached the caller: it stays poisoned if it was recovered.
    /// See [`leave`].
    fn leave(self) {
        if !self.holding.is_recovered() {
            return; // the drop releases
        }
        let held = ManuallyDrop::new(self);
        let Access { inner, target, .. } = held.access;
        let (theirs, spot, owner, holding) = (Arc::clone(inner), (target.rank, held.which), held.words.1, held.holding);
        let mut task = Box::pin(async move { leave(&theirs, spot, owner, holding).await });
        if pin!(&mut task).poll(&mut Context::from_waker(Waker::noop())).is_pending() {
            inner.spawn(task);
        }
    }

    /// The lock's window, target and id.
    pub(crate) fn lock_parts(&self) -> (&'w Inner<F>, &'w Target<F>, Which) {
        let Access { inner, target, .. } = self.access;
        (inner, target, self.which)
    }

    /// The lock's owner.
    pub(crate) const fn owner(&self) -> Owner {
        Owner::from_bits(self.words.1)
    }

    /// The value of the lock's word while a test-and-set owner holds it exclusively.
    pub(crate) const fn held_word(&self) -> u64 {
        self.words.1
    }

    /// Whether its release may find the lease expired. The biased slot is not used with leases.
    #[inline(always)]
    pub(crate) fn may_be_late(&self) -> bool {
        let inner = self.access.inner;
        let leads = inner.leads && Owner::from_bits(self.words.1).slot == LEAD;
        !held_by_word(self.words.1, self.holding.mode()) && !leads && inner.late.is_some()
    }

    /// Releases; `Err` if the lock is no longer held.
    #[inline(always)] // see `post_release`
    pub(crate) fn release_late(&self) -> Releasing<F> {
        let Self { access: Access { inner, target, .. }, words, holding, which } = self;
        release_late(inner, (target, *which), words.0, words.1, *holding)
    }

    pub(crate) fn fabric(&self) -> &'w F {
        self.access.inner.fabric()
    }

    /// Defers an error to the close of the window.
    pub(crate) fn keep(&self, error: Error) {
        self.access.inner.keep(error);
    }

    /// Unlocks where no posted operation is outstanding under the lock.
    pub(crate) fn unlock_unchanged(self) {
        ManuallyDrop::new(self).post_release();
    }

    /// Unlocks without waiting for the operations under the lock: the release is posted behind
    /// them. The next flush, or the close of the window, reports their failures.
    pub(crate) fn unlock_behind(self) {
        let inner = self.access.inner;
        if inner.completes_at_post {
            return ManuallyDrop::new(self).post_release();
        }
        let (home, mode) = (inner.home(self.access.target, self.which, self.words.1), self.mode());
        let in_one_step = inner.algorithm.releases_in_one_step(home, mode);
        let release = in_one_step.then(|| inner.algorithm.release_link(inner.fabric(), self.words, mode));
        if let Some(release) = release.flatten() {
            inner.fabric().post_release(release);
            inner.give_back(self.words.1);
            let _released = ManuallyDrop::new(self);
        } // otherwise the drop flushes and releases
    }

    /// Posts the release; the endpoint finishes what is left of it.
    // No called function takes the guard's address, which would force the guard into memory.
    #[inline(always)]
    pub(crate) fn post_release(&self) {
        let Self { access: Access { inner, target, .. }, words, holding, which } = self;
        post_release(inner, (target, *which), *words, *holding);
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
    let started = inner.algorithm.start_release(inner.fabric(), home, (word, owner), mode);
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
    } else if which.is_part() && inner.leads && Owner::from_bits(words.1).slot == LEAD {
        release_as_lead(inner, target, words.0, words.1, holding);
    } else {
        // Passed one by one, to stay in registers.
        release_node(inner, (target, which), words.0, words.1, holding);
    }
}

/// The release of the owner in the biased slot, where operations complete at post.
#[inline(always)]
fn release_as_lead<'w, F: Fabric>(
    inner: &'w Arc<Inner<F>>,
    target: &'w Target<F>,
    word: F::Word<'w>,
    owner: u64,
    holding: Holding,
) {
    match &inner.algorithm {
        AnyLock::TestAndSet(lock) => release_at_once(lock, inner, target, word, owner, holding),
        AnyLock::Mcs(lock) => release_at_once(lock, inner, target, word, owner, holding),
        AnyLock::Ticket(lock) => release_at_once(lock, inner, target, word, owner, holding),
        AnyLock::FetchAddQueue(lock) => release_at_once(lock, inner, target, word, owner, holding),
        AnyLock::TwoLevel(lock) => release_at_once(lock, inner, target, word, owner, holding),
        other => release_at_once(other, inner, target, word, owner, holding),
    }
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
            Ok(true) => inner.nodes.give_back_lead(),
            Ok(false) => finish_at_once(inner, (target, Which::PART), owner, mode, found),
            Err(fault) => keep(inner, target.rank, fault),
        },
        Err(fault) => adopt_found(inner, (target.rank, Which::PART), words.1, mode, Err(fault)),
    }
}

/// The rest of a release where operations complete at post. If it waits for another owner's next
/// step, it polls briefly, which costs less than leaving it to the endpoint.
#[inline(never)]
fn finish_at_once<F: Fabric>(
    inner: &Arc<Inner<F>>,
    (target, which): (&Target<F>, Which),
    owner: u64,
    mode: Mode,
    found: u64,
) {
    /// The number of polls: less than a microsecond.
    const LOOKS: usize = 64;
    let (home, spot) = (inner.home(target, which, owner), (target.rank, which));
    for _ in 0..LOOKS {
        match inner.algorithm.release_waits(inner.fabric(), home, mode) {
            Some(true) => spin_loop(),
            Some(false) => {
                let rest = pin!(inner.finish_release(spot, owner, mode, std::future::ready(Ok(found))));
                match rest.poll(&mut Context::from_waker(Waker::noop())) {
                    Poll::Ready(Ok(())) => {}
                    Poll::Ready(Err(fault)) => keep(inner, target.rank, fault),
                    // A fabric that claims to complete at post and does not.
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

/// The release where an owner may have a queue node.
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
    let mut started = match inner.algorithm.start_release(inner.fabric(), home, words, mode) {
        Ok(started) => started,
        Err(fault) => return keep(inner, target.rank, fault),
    };
    if inner.algorithm.releases_in_one_step(home, mode) {
        return inner.give_back(words.1);
    }
    let spot = (target.rank, which);
    let found = match Pin::new(&mut started).poll(&mut Context::from_waker(Waker::noop())) {
        Poll::Ready(Ok(found)) => found,
        Poll::Ready(Err(fault)) => return adopt_found(inner, spot, owner, mode, Err(fault)),
        Poll::Pending => return adopt_release(inner, spot, owner, mode, started),
    };
    match inner.algorithm.released(inner.fabric(), home, words, mode, found) {
        Ok(true) => inner.give_back(owner),
        Ok(false) if inner.completes_at_post => finish_at_once(inner, (target, which), owner, mode, found),
        Ok(false) => adopt_found(inner, spot, owner, mode, Ok(found)),
        Err(fault) => {
            inner.end_failed(owner);
            keep(inner, target.rank, fault);
        }
    }
}

/// Finishes a release whose first operation is posted, here or, where it has to wait, on the
/// endpoint.
#[inline(never)]
fn adopt_release<F: Fabric>(
    inner: &Arc<Inner<F>>,
    spot: Spot,
    owner: u64,
    mode: Mode,
    started: impl Future<Output = Result<u64, Fault>> + Send + 'static,
) {
    let theirs = Arc::clone(inner);
    let mut task = Box::pin(async move {
        if let Err(fault) = theirs.finish_release(spot, owner, mode, started).await {
            theirs.keep(theirs.failed_late("unlock", spot.0, fault));
        }
    });
    if pin!(&mut task).poll(&mut Context::from_waker(Waker::noop())).is_pending() {
        inner.spawn(task);
    }
}

#[cold]
#[inline(never)]
fn keep<F: Fabric>(inner: &Inner<F>, rank: u32, fault: Fault) {
    inner.keep(inner.failed_late("unlock", rank, fault));
}

/// A held lock whose guard has not reached the caller yet. Dropped before that, it counts as never
/// recovered.
pub(crate) struct Unseen<'w, T: Element, F: Fabric>(Option<Epoch<'w, T, F>>);

impl<'w, T: Element, F: Fabric> Unseen<'w, T, F> {
    pub(crate) const fn new(epoch: Epoch<'w, T, F>) -> Self {
        Self(Some(epoch))
    }

    /// Hands the guard to the caller.
    pub(crate) fn seen(mut self) -> Epoch<'w, T, F> {
        match self.0.take() {
            Some(epoch) => epoch,
            None => unreachable!("the guard is taken only here"),
        }
    }
}

impl<'w, T: Element, F: Fabric> Deref for Unseen<'w, T, F> {
    type Target = Epoch<'w, T, F>;

    fn deref(&self) -> &Epoch<'w, T, F> {
        match &self.0 {
            Some(epoch) => epoch,
            None => unreachable!("the guard is taken only at the end"),
        }
    }
}

impl<T: Element, F: Fabric> Drop for Unseen<'_, T, F> {
    fn drop(&mut self) {
        if let Some(epoch) = self.0.take() {
            epoch.leave();
        }
    }
}

impl<T: Element, F: Fabric> Drop for Epoch<'_, T, F> {
    #[inline(always)] // see `post_release`
    fn drop(&mut self) {
        let Self { access: Access { inner, target, .. }, words, holding, which } = self;
        let_go(inner, (target, *which), words.0, words.1, *holding);
    }
}

/// Flushes and releases, here or, where that has to wait, on the endpoint.
#[inline(never)]
fn let_go<'w, F: Fabric>(
    inner: &'w Arc<Inner<F>>,
    (target, which): (&'w Target<F>, Which),
    word: F::Word<'w>,
    owner: u64,
    holding: Holding,
) {
    let words = (word, owner);
    let flushed =
        pin!(inner.fabric().flush_before_release(target.fabric_rank())).poll(&mut Context::from_waker(Waker::noop()));
    match flushed {
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
