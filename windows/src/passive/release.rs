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
use onesided_lock_algos::{LockContext, Mode, Owner, Rest, TestAndSet, held_by_word};

use crate::locks::layout::LockId;
use crate::locks::slots::BIASED_SLOT;
use crate::passive::previous_owner::Holding;
use crate::window::inner::Inner;
use crate::window::retry::poll_once;
use crate::window::target::Target;
use crate::{Access, Element, Epoch};

impl<'w, T: Element, F: Fabric> Epoch<'w, T, F> {
    /// Flushes and releases without a caller that waits; as poisoned for the fault `why`.
    #[inline(always)] // see `post_release`
    fn release_alone(&self, why: Option<Fault>) {
        self.note_release();
        let Self { access: Access { inner, target, .. }, owner, holding, id } = self;
        match why {
            Some(_) => inner.run_or_spawn(release(Arc::clone(inner), (target.rank, *id), *owner, holding.mode(), why)),
            None => flush_and_release(inner, (target, *id), *owner, *holding),
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
        let Self { access: Access { inner, target, .. }, owner, holding, id } = self;
        // The biased slot is not used with leases.
        if !holding.is_biased() && inner.locks.leases.is_some() && !held_by_word(*owner, holding.mode()) {
            self.note_release();
            return Some(release_checked(inner, (target, *id), *owner, *holding));
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
            flush_and_release(inner, (held.access.target, held.id), held.owner, held.holding);
        }
    }

    /// Posts the release; the endpoint finishes what is left of it. Not in a forked child: its memory is not
    /// the job's, but what a lock's words refer to may be missing there.
    // No called function takes the guard's address, which would force the guard into memory.
    #[inline(always)]
    pub(crate) fn post_release(&self) {
        self.note_release();
        let Self { access: Access { inner, target, .. }, owner, holding, id } = self;
        post_release(inner, (target, *id), *owner, *holding);
    }
}

impl<T: Element, F: Fabric> Drop for Epoch<'_, T, F> {
    #[inline(always)] // see `post_release`
    fn drop(&mut self) {
        let own = self.access.inner.fabric().rank();
        self.release_alone(self.holding.poison(own));
    }
}

#[cold]
#[inline(never)]
fn release_checked<'w, F: Fabric>(
    inner: &'w Arc<Inner<F>>,
    (target, id): (&'w Target<F>, LockId),
    owner: u64,
    holding: Holding,
) -> Releasing<F> {
    let mode = holding.mode();
    let used = fork::check().and_then(|()| inner.lock_use((target, id), owner, mode));
    let started = used.and_then(|used| inner.locks.algorithm.start_release(used));
    let (theirs, rank) = (Arc::clone(inner), target.rank);
    let rest = Box::pin(async move { theirs.finish_release((rank, id), owner, mode, started?).await });
    Releasing { inner: Arc::clone(inner), rank, rest: Some(rest) }
}

#[inline(always)]
fn post_release<'w, F: Fabric>(
    inner: &'w Arc<Inner<F>>,
    (target, id): (&'w Target<F>, LockId),
    owner: u64,
    holding: Holding,
) {
    if holding.is_biased() {
        let Some((_, steps)) = &inner.locks.biased else { return }; // it has one
        match holding.mode() {
            Mode::Exclusive => steps.release_exclusive(inner, target, owner),
            Mode::Shared => steps.release_shared(inner, target, owner),
        }
    } else if held_by_word(owner, holding.mode()) {
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
        release_with_slot(inner, (target, id), owner, holding.mode());
    }
}

/// The release of an owner that [holds the lock by its word](held_by_word).
#[inline(always)] // as `post_release`
fn release_link<'w, M: RemoteMemory>(
    memory: &'w M,
    context: impl LockContext<'w, M>,
    owner: u64,
) -> Result<Link<M::Word<'w>>, Fault> {
    Ok(TestAndSet::release_link(memory, (context.home(0)?, owner)))
}

/// The release of any other owner that may have a queue node.
#[cold]
#[inline(never)]
pub(super) fn release_with_slot<'w, F: Fabric>(
    inner: &'w Arc<Inner<F>>,
    (target, id): (&'w Target<F>, LockId),
    owner: u64,
    mode: Mode,
) {
    let lock = &inner.locks.algorithm;
    let used = inner.lock_use((target, id), owner, mode);
    let started = used.and_then(|used| Ok((lock.start_release(used)?, lock.released(used, None))));
    let mut started = match started {
        Ok((_, Ok(Rest::Nothing))) => return inner.give_back(owner),
        Ok((started, _)) => started,
        Err(fault) => return defer_error(inner, target.rank, fault),
    };
    match poll_once(&mut started) {
        Poll::Ready(found) => finish_now(inner, (target, id), owner, mode, found),
        Poll::Pending => spawn_release(inner, (target.rank, id), owner, mode, started),
    }
}

/// The rest of a release whose first operation has ended so. If it waits for another owner's next
/// step where operations complete at post, it polls briefly, which costs less than leaving it to the
/// endpoint.
#[inline(never)]
pub(super) fn finish_now<F: Fabric>(
    inner: &Arc<Inner<F>>,
    (target, id): (&Target<F>, LockId),
    owner: u64,
    mode: Mode,
    found: Result<u64, Fault>,
) {
    /// The number of polls: less than a microsecond.
    const POLLS: usize = 64;
    let found_first = std::future::ready(found);
    for _ in 0..POLLS {
        let Ok(found) = found else { break };
        let used = inner.lock_use((target, id), owner, mode);
        match used.and_then(|used| inner.locks.algorithm.released(used, Some(found))) {
            Ok(Rest::Nothing) => return inner.give_back(owner),
            Err(fault) => {
                inner.end_failed(owner);
                return defer_error(inner, target.rank, fault);
            }
            Ok(Rest::Unknown) => break,
            Ok(_) if !inner.completes_at_post => break,
            Ok(Rest::Waits) => spin_loop(),
            Ok(Rest::Steps) => {
                return match poll_once(inner.finish_release((target.rank, id), owner, mode, found_first)) {
                    Poll::Ready(Ok(())) => {}
                    Poll::Ready(Err(fault)) => defer_error(inner, target.rank, fault),
                    // A fabric that claims to complete at post and does not.
                    Poll::Pending => defer_error(inner, target.rank, Fault::new(FaultKind::Protocol)),
                };
            }
        }
    }
    spawn_release(inner, (target.rank, id), owner, mode, found_first);
}

/// Finishes a release whose first operation is posted, here or, where it has to wait, on the
/// endpoint.
#[inline(never)]
fn spawn_release<F: Fabric>(
    inner: &Arc<Inner<F>>,
    target_lock: (u32, LockId),
    owner: u64,
    mode: Mode,
    started: impl Future<Output = Result<u64, Fault>> + Send + 'static,
) {
    let theirs = Arc::clone(inner);
    inner.run_or_spawn(async move {
        if let Err(fault) = theirs.finish_release(target_lock, owner, mode, started).await {
            defer_error(&theirs, target_lock.0, fault);
        }
    });
}

#[cold]
#[inline(never)]
pub(super) fn defer_error<F: Fabric>(inner: &Inner<F>, rank: u32, fault: Fault) {
    inner.lifecycle.defer(inner.failed_or_expired("unlock", rank, fault));
}

/// Flushes and releases, here or, where that has to wait, on the endpoint.
#[inline(never)]
fn flush_and_release<'w, F: Fabric>(
    inner: &'w Arc<Inner<F>>,
    (target, id): (&'w Target<F>, LockId),
    owner: u64,
    holding: Holding,
) {
    if is_child() {
        return; // a copy of its parent's guard
    }
    match poll_once(inner.fabric().flush_before_release(target.fabric_rank())) {
        Poll::Ready(flushed) => {
            post_release(inner, (target, id), owner, holding);
            if let Err(fault) = flushed {
                defer_error(inner, target.rank, fault);
            }
        }
        Poll::Pending => {
            inner.spawn(Box::pin(release(Arc::clone(inner), (target.rank, id), owner, holding.mode(), None)));
        }
    }
}

/// Flushes and releases for a caller that is gone, as poisoned for the fault `why`; errors are
/// deferred.
pub(crate) async fn release<F: Fabric>(
    inner: Arc<Inner<F>>,
    (rank, id): (u32, LockId),
    owner: u64,
    mode: Mode,
    why: Option<Fault>,
) {
    let outcome = async {
        let target = inner.target(rank)?;
        let flushed = inner.fabric().flush_before_release(target.fabric_rank()).await;
        let (lock, used) = (&inner.locks.algorithm, inner.lock_use((target, id), owner, mode)?);
        let released = match why {
            Some(why) => inner.end_release(owner, lock.release_poisoned(used, why).await),
            None => inner.finish_release((rank, id), owner, mode, lock.start_release(used)?).await,
        };
        flushed.and(released) // released even if the flush failed
    };
    if let Err(fault) = outcome.await {
        defer_error(&inner, rank, fault);
    }
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
    /// Whether an owner of a lock has the biased slot: [`Holding::is_biased`], where it is not known.
    #[inline(always)] // see `post_release`
    pub(super) fn has_biased_slot(&self, id: LockId, owner: u64) -> bool {
        id.is_window_lock() && self.locks.biased.is_some() && Owner::from_bits(owner).slot == BIASED_SLOT
    }

    /// Finishes a release and frees its owner's slot.
    pub(crate) async fn finish_release(
        &self,
        (rank, id): (u32, LockId),
        owner: u64,
        mode: Mode,
        started: impl Future<Output = Result<u64, Fault>> + Send,
    ) -> Result<(), Fault> {
        let used = self.lock_use((self.target(rank)?, id), owner, mode)?;
        self.end_release(owner, self.locks.algorithm.finish_release(used, started.await).await)
    }

    /// Frees the slot of an owner, given the result of its release.
    pub(crate) fn end_release(&self, owner: u64, released: Result<(), Fault>) -> Result<(), Fault> {
        match released {
            Ok(()) => self.give_back(owner),
            Err(_) => self.end_failed(owner), // peers may still write to its node
        }
        released
    }

    /// Frees the slot of an owner whose release failed, if no peer can write to its node any more.
    #[cold]
    pub(crate) fn end_failed(&self, owner: u64) {
        if self.locks.algorithm.lock_words().nodes_are_own {
            self.give_back(owner);
        }
    }
}
