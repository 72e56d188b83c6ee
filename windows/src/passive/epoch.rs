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

use crate::locks::context::Words;
use crate::locks::layout::Which;
use crate::locks::slots::LEAD;
use crate::passive::cancelled::{leave, release};
use crate::passive::lock::{Spot, at_once};
use crate::passive::previous_owner::Holding;
use crate::passive::unlock::Releasing;
use crate::window::{Inner, Target};
use crate::{Access, Element, Error, PreviousOwner, Unlock};

/// A target's lock that is held, and the operations that may be done under it (through [`Access`], to which it derefs).
///
/// [`unlock`](Self::unlock) releases and reports; a drop does the same but cannot report: what goes wrong is then
/// reported by [`Window::close`](crate::Window::close). A guard that is leaked leaves the target locked, and nothing else.
#[must_use = "if unused the lock is released at once"]
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
    pub(crate) const fn tell(&mut self, before: Holding) {
        self.holding = before.shared();
    }

    /// Unlocks (`MPI_Win_unlock`), when it is waited for: it is done when everything done under the lock is complete at the
    /// target and the release is posted. Nobody waits for a release.
    ///
    /// # Errors
    /// [`Error::Operation`] with the first failure of what was done under the lock. The lock is
    /// released all the same.
    #[inline(always)] // a guard that passes through memory costs more than the release
    pub fn unlock(self) -> Unlock<'w, T, F> {
        let Access { inner, target, .. } = self.access;
        Unlock::new(inner, target, Some(self))
    }

    /// Gives it back when nobody has seen yet whether it was recovered: see [`leave`].
    fn leave(self) {
        if !self.holding.is_recovered() {
            return; // its drop releases
        }
        let held = ManuallyDrop::new(self);
        let Access { inner, target, .. } = held.access;
        let (theirs, spot, owner, holding) = (Arc::clone(inner), (target.rank, held.which), held.words.1, held.holding);
        let mut task = Box::pin(async move { leave(&theirs, spot, owner, holding).await });
        if pin!(&mut task).poll(&mut Context::from_waker(Waker::noop())).is_pending() {
            inner.spawn(task);
        }
    }

    /// Which lock it is, and where.
    pub(crate) fn lock_parts(&self) -> (&'w Inner<F>, &'w Target<F>, Which) {
        let Access { inner, target, .. } = self.access;
        (inner, target, self.which)
    }

    /// Who holds it.
    pub(crate) const fn owner(&self) -> Owner {
        Owner::from_bits(self.words.1)
    }

    /// What the lock's word is while a test-and-set owner has it alone.
    pub(crate) const fn held_word(&self) -> u64 {
        self.words.1
    }

    /// Whether its release may tell that the lock is not held any more: where leases are nobody leads.
    #[inline(always)]
    pub(crate) fn may_be_late(&self) -> bool {
        let inner = self.access.inner;
        let leads = inner.leads && Owner::from_bits(self.words.1).slot == LEAD;
        !held_by_word(self.words.1, self.holding.mode()) && !leads && inner.late.is_some()
    }

    /// Releases, and tells whether the lock was held.
    #[inline(always)] // see `post_release`
    pub(crate) fn release_late(&self) -> Releasing<F> {
        let Self { access: Access { inner, target, .. }, words, holding, which } = self;
        release_late(inner, (target, *which), words.0, words.1, *holding)
    }

    pub(crate) fn fabric(&self) -> &'w F {
        self.access.inner.fabric()
    }

    /// Keeps an error for the window's end.
    pub(crate) fn keep(&self, error: Error) {
        self.access.inner.keep(error);
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
        let in_one_step = inner.algorithm.releases_in_one_step(home, mode);
        let release = in_one_step.then(|| inner.algorithm.release_link(inner.fabric(), self.words, mode));
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
        match inner.algorithm.release_waits(inner.fabric(), home, mode) {
            Some(true) => spin_loop(),
            Some(false) => {
                let rest = pin!(inner.finish_release(spot, owner, mode, std::future::ready(Ok(found))));
                match rest.poll(&mut Context::from_waker(Waker::noop())) {
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

/// A lock on its way to whoever asked for it, with something else that takes time. Dropped before, it was inherited by nobody.
pub(crate) struct Unseen<'w, T: Element, F: Fabric>(Option<Epoch<'w, T, F>>);

impl<'w, T: Element, F: Fabric> Unseen<'w, T, F> {
    pub(crate) const fn new(epoch: Epoch<'w, T, F>) -> Self {
        Self(Some(epoch))
    }

    /// Who asked for it has it.
    pub(crate) fn seen(mut self) -> Epoch<'w, T, F> {
        match self.0.take() {
            Some(epoch) => epoch,
            None => unreachable!("it is taken once, here"),
        }
    }
}

impl<'w, T: Element, F: Fabric> Deref for Unseen<'w, T, F> {
    type Target = Epoch<'w, T, F>;

    fn deref(&self) -> &Epoch<'w, T, F> {
        match &self.0 {
            Some(epoch) => epoch,
            None => unreachable!("it is taken at the end alone"),
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
