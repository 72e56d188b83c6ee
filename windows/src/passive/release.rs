//! How a lock is released: posted, waited for, or spawned on the endpoint. The handle that users
//! wait on is in `unlock`.

use std::future::Future;
use std::hint::spin_loop;
use std::mem::ManuallyDrop;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use onesided_fabric::Fabric;
use onesided_fabric::bootstrap::fork::{self, is_child};
use onesided_fabric::remote_memory::{Fault, FaultKind, Link, RemoteMemory};
use onesided_lock_algos::{LockContext, Mode, Rest, TestAndSet, Word, held_by_word};

use crate::locks::layout::LockId;
use crate::passive::claim::{Claim, KeptClaim};
use crate::window::inner::Inner;
use crate::window::retry::poll_once;
use crate::window::target::Target;
use crate::{Element, Epoch};

impl<'w, T: Element, F: Fabric> Epoch<'w, T, F> {
    /// Flushes and releases without a caller that waits; as poisoned for the fault `why`.
    #[inline(always)] // see `post_release`
    fn release_alone(&self, why: Option<Fault>) {
        self.note_release();
        match why {
            Some(_) => self.access.inner.run_or_spawn(self.held_claim().kept().release(why)),
            None => self.held_claim().flush_and_release(self.holding.is_biased()),
        }
    }

    /// The same guard, of which a drop by a panic poisons nothing: nothing is half written, because
    /// its unlock has begun, or because nothing is put before that.
    #[inline(always)] // see `post_release`
    pub(crate) const fn poisoning_nothing(mut self) -> Self {
        self.holding = self.holding.poisoning_nothing();
        self
    }

    /// Posts the release, or begins one that may find that the lease has expired.
    #[inline(always)] // see `post_release`
    pub(crate) fn begin_release(&self) -> Option<Releasing<F>> {
        // The biased slot is not used with leases.
        let may_expire = || self.access.inner.locks.leases.is_some();
        if !self.holding.is_biased() && may_expire() && !held_by_word(self.owner, self.holding.mode()) {
            self.note_release();
            return Some(self.held_claim().release_checked());
        }
        self.post_release();
        None
    }

    /// Unlocks where no posted operation is outstanding under the lock.
    pub(crate) fn unlock_unchanged(self) {
        let held = ManuallyDrop::new(self);
        if !is_child() {
            held.post_release();
        }
    }

    /// Unlocks without waiting for the operations under the lock: the release is posted behind
    /// them. The next flush, or the close of the window, reports their failures.
    pub(crate) fn unlock_posted(self) {
        let inner = self.access.inner;
        if inner.completes_at_post || is_child() {
            return self.unlock_unchanged();
        }
        self.note_release();
        let held = ManuallyDrop::new(self);
        if held_by_word(held.owner, held.mode()) {
            let context = inner.lock_context(held.access.target, held.id, held.owner);
            match release_link(inner.fabric(), context, held.owner) {
                // The read is answered from memory, after the writes before it; a link takes effect after the
                // previous one.
                Ok(release) => {
                    drop(inner.fabric().post([Link::Read { word: release.word(), waited: false }, release]));
                }
                Err(fault) => defer_error(inner, held.access.target.rank, fault),
            }
        } else {
            held.held_claim().flush_and_release(held.holding.is_biased());
        }
    }

    /// Posts the release; the endpoint finishes what is left of it. Not in a forked child: its memory is not
    /// the job's, but what a lock's words refer to may be missing there.
    // No called function takes the guard's address, which would force the guard into memory.
    #[inline(always)]
    pub(crate) fn post_release(&self) {
        self.note_release();
        self.held_claim().post_release(self.holding.is_biased());
    }
}

impl<T: Element, F: Fabric> Drop for Epoch<'_, T, F> {
    #[inline(always)] // see `post_release`
    fn drop(&mut self) {
        let own = self.access.inner.fabric().rank();
        self.release_alone(self.holding.poison(own));
    }
}

/// The release of an owner that [holds the lock by its word](held_by_word).
#[inline(always)] // see `Claim::post_release`
fn release_link<'w, P: LockContext<'w>>(
    memory: &'w P::Memory,
    context: P,
    owner: u64,
) -> Result<Link<Word<'w, P>>, Fault> {
    Ok(TestAndSet::release_link(memory, (context.home(0)?, owner)))
}

impl<F: Fabric> Claim<'_, F> {
    #[cold]
    #[inline(never)]
    fn release_checked(self) -> Releasing<F> {
        let used = fork::check().and_then(|()| self.used());
        let started = used.and_then(|used| self.inner.locks.algorithm.start_release(used));
        let (inner, rank, kept) = (Arc::clone(self.inner), self.target.rank, self.kept());
        Releasing { inner, rank, rest: Some(Box::pin(async move { kept.claim()?.finish_release(started?).await })) }
    }

    #[inline(always)]
    fn post_release(self, is_biased: bool) {
        let Self { inner, target, id, owner, mode } = self;
        if is_biased {
            let Some((_, steps)) = &inner.locks.biased else { return }; // it has one
            steps[mode as usize].release(inner, target, owner);
        } else if held_by_word(owner, mode) {
            let posted = match inner.shm_context(target, id, owner) {
                Some((memory, context)) => {
                    release_link(memory, context, owner).map(|release| drop(memory.post_link(release)))
                }
                None => release_link(inner.fabric(), inner.lock_context(target, id, owner), owner)
                    .map(|release| drop(inner.fabric().post_link(release))),
            };
            if let Err(fault) = posted {
                defer_error(inner, target.rank, fault);
            }
        } else {
            release_with_slot(inner, target, id, owner, mode);
        }
    }

    /// The rest of a release whose first operation has ended so. If it waits for another owner's next
    /// step where operations complete at post, it polls briefly, which costs less than leaving it to the
    /// endpoint.
    #[inline(never)]
    pub(super) fn finish_now(self, found: Result<u64, Fault>) {
        /// The number of polls: less than a microsecond.
        const POLLS: usize = 64;
        let (inner, rank) = (self.inner, self.target.rank);
        let found_first = std::future::ready(found);
        for _ in 0..POLLS {
            let Ok(found) = found else { break };
            match self.used().and_then(|used| inner.locks.algorithm.released(used, Some(found))) {
                Ok(Rest::Nothing) => return inner.give_back(self.owner),
                Err(fault) => {
                    inner.end_failed(self.owner);
                    return defer_error(inner, rank, fault);
                }
                Ok(Rest::Unknown) => break,
                Ok(_) if !inner.completes_at_post => break,
                Ok(Rest::Waits) => spin_loop(),
                Ok(Rest::Steps) => {
                    return match poll_once(self.finish_release(found_first)) {
                        Poll::Ready(Ok(())) => {}
                        Poll::Ready(Err(fault)) => defer_error(inner, rank, fault),
                        // A fabric that claims to complete at post and does not.
                        Poll::Pending => defer_error(inner, rank, Fault::new(FaultKind::Protocol)),
                    };
                }
            }
        }
        self.spawn_release(found_first);
    }

    /// Finishes a release whose first operation is posted, here or, where it has to wait, on the
    /// endpoint.
    #[inline(never)]
    fn spawn_release(self, started: impl Future<Output = Result<u64, Fault>> + Send + 'static) {
        let kept = self.kept();
        self.inner.run_or_spawn(async move {
            let released = match kept.claim() {
                Ok(claim) => claim.finish_release(started).await,
                Err(fault) => Err(fault),
            };
            if let Err(fault) = released {
                defer_error(&kept.inner, kept.target_lock.0, fault);
            }
        });
    }

    /// Flushes and releases, here or, where that has to wait, on the endpoint.
    #[inline(never)]
    fn flush_and_release(self, is_biased: bool) {
        let Self { inner, target, .. } = self;
        if is_child() {
            return; // a copy of its parent's guard
        }
        match poll_once(inner.fabric().flush_before_release(target.fabric_rank())) {
            Poll::Ready(flushed) => {
                self.post_release(is_biased);
                if let Err(fault) = flushed {
                    defer_error(inner, target.rank, fault);
                }
            }
            Poll::Pending => inner.spawn(Box::pin(self.kept().release(None))),
        }
    }

    /// Finishes a release and frees its owner's slot.
    async fn finish_release(self, started: impl Future<Output = Result<u64, Fault>> + Send) -> Result<(), Fault> {
        let used = self.used()?;
        let found = started.await;
        self.inner.end_release(self.owner, self.inner.locks.algorithm.finish_release(used, found).await)
    }
}

impl<F: Fabric> KeptClaim<F> {
    /// Flushes and releases for a caller that is gone, as poisoned for the fault `why`; errors are
    /// deferred.
    pub(crate) async fn release(self, why: Option<Fault>) {
        let outcome = async {
            let claim = self.claim()?;
            let flushed = self.inner.fabric().flush_before_release(claim.target.fabric_rank()).await;
            let (lock, used) = (&self.inner.locks.algorithm, claim.used()?);
            let released = match why {
                Some(why) => self.inner.end_release(self.owner, lock.release_poisoned(used, why).await),
                None => claim.finish_release(lock.start_release(used)?).await,
            };
            flushed.and(released) // released even if the flush failed
        };
        if let Err(fault) = outcome.await {
            defer_error(&self.inner, self.target_lock.0, fault);
        }
    }
}

/// The release of any other owner that may have a queue node. Not of a [`Claim`], which would lie in memory on the
/// other paths, too.
#[cold]
#[inline(never)]
fn release_with_slot<F: Fabric>(inner: &Arc<Inner<F>>, target: &Target<F>, id: LockId, owner: u64, mode: Mode) {
    let (claim, lock) = (Claim { inner, target, id, owner, mode }, &inner.locks.algorithm);
    let started = claim.used().and_then(|used| Ok((lock.start_release(used)?, lock.released(used, None))));
    let mut started = match started {
        Ok((_, Ok(Rest::Nothing))) => return inner.give_back(owner),
        Ok((started, _)) => started,
        Err(fault) => return defer_error(inner, target.rank, fault),
    };
    match poll_once(&mut started) {
        Poll::Ready(found) => claim.finish_now(found),
        Poll::Pending => claim.spawn_release(started),
    }
}

#[cold]
#[inline(never)]
pub(super) fn defer_error<F: Fabric>(inner: &Inner<F>, rank: u32, fault: Fault) {
    inner.lifecycle.defer(inner.failed_or_expired("unlock", rank, fault));
}

/// A release that is waited for. If it is dropped before it completes, the endpoint finishes it.
pub(crate) struct Releasing<F: Fabric> {
    inner: Arc<Inner<F>>,
    rank: u32,
    /// `None` once it is done.
    rest: Option<Task>,
}

type Task = Pin<Box<dyn Future<Output = Result<(), Fault>> + Send>>;

impl<F: Fabric> Future for Releasing<F> {
    type Output = Result<(), Fault>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let Some(rest) = &mut self.rest else { return Poll::Ready(Ok(())) };
        let released = ready!(rest.as_mut().poll(cx));
        self.rest = None;
        Poll::Ready(released)
    }
}

impl<F: Fabric> Drop for Releasing<F> {
    fn drop(&mut self) {
        let Some(rest) = self.rest.take() else { return };
        let (inner, rank) = (Arc::clone(&self.inner), self.rank);
        self.inner.spawn(Box::pin(async move {
            if let Err(fault) = rest.await {
                defer_error(&inner, rank, fault);
            }
        }));
    }
}

impl<F: Fabric> Inner<F> {
    /// Frees the slot of an owner, given the result of its release.
    fn end_release(&self, owner: u64, released: Result<(), Fault>) -> Result<(), Fault> {
        match released {
            Ok(()) => self.give_back(owner),
            Err(_) => self.end_failed(owner), // peers may still write to its node
        }
        released
    }

    /// Frees the slot of an owner whose release failed, if no peer can write to its node any more.
    #[cold]
    fn end_failed(&self, owner: u64) {
        if self.locks.algorithm.lock_words().nodes_are_own {
            self.give_back(owner);
        }
    }
}
