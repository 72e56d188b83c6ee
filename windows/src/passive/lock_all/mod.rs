//! `lock_all`: the lock of all ranks.

pub(crate) mod at;
pub(crate) mod locked;
pub(crate) mod reader;

use std::future::poll_fn;

use onesided_fabric::remote_memory::Rank;
use onesided_fabric::{Any, Fabric, debug};
use onesided_lock_algos::{Intent, Mode};

use crate::handles::LockRequest;
use crate::operation::request::{Awaited, Begin};
use crate::passive::lock_all::locked::{LockedRanks, RankLock};
use crate::passive::lock_all::reader::read_lock;
use crate::{Access, Element, Error, LockAllDesign, PreviousOwner, Request, Window};

impl<T: Element, F: Fabric> Window<T, F> {
    /// Locks every rank's window memory shared (`MPI_Win_lock_all`), as the window's
    /// [`LockAllDesign`] says.
    ///
    /// By default that is [on demand](LockAllDesign::OnDemand): this call posts nothing, and a
    /// target is locked at the first [`LockAll::at`](crate::LockAll::at) for it. Until then others
    /// may lock it exclusively, and an origin that holds several exclusive locks may deadlock with
    /// a holder of `lock_all`. With [`LockAllDesign::EachTarget`] or [`LockAllDesign::Global`]
    /// neither can happen, and the first operation is posted when the call returns: to every rank,
    /// or to the rank with the lock-all word.
    ///
    /// # Errors
    /// When waited on: [`Error::Lock`] of the first lock that fails; the others are released. On
    /// demand it never waits, and fails with [`Error::Lock`] if the window was closed here;
    /// [`LockAll::at`] reports failures to lock a target. With
    /// [`LockAllDesign::Global`](crate::LockAllDesign::Global) the error names rank 0, which has
    /// the lock-all word, whichever exclusive owner died or panicked; a request for any exclusive
    /// lock with [`recover`](LockRequest::recover) repairs it. `NoSlot`: as of
    /// [`LockRequest::wait`].
    ///
    /// # Cancel safety
    /// If dropped before it completes, it leaves nothing locked: the endpoint finishes and releases
    /// what was started.
    pub fn lock_all(&self) -> Request<'_, LockAll<'_, T, F>, F, Error, impl Begin<LockAll<'_, T, F>>> {
        let inner = self.inner();
        let mut requests = match inner.locks.lock_all {
            LockAllDesign::OnDemand => Vec::new(),
            LockAllDesign::EachTarget => self.requests_from(0),
            LockAllDesign::Global => {
                vec![LockRequest::start_of(self, locked::LOCK_ALL, (), Mode::Shared, Intent::LOCK)]
            }
        };
        Request::unboxed(Awaited::Lock(inner, inner.world.rank()), OPERATION, move || async move {
            let locked_ranks = match inner.locks.lock_all {
                LockAllDesign::OnDemand => {
                    inner.check_open().map(|()| LockedRanks::new(inner, None)).map_err(|fault| {
                        let (target, fault) = (inner.world.rank(), inner.world.translate(fault));
                        Error::Lock { operation: OPERATION, target, window: inner.name.clone(), fault }
                    })
                }
                LockAllDesign::EachTarget => self.lock_each(requests).await,
                LockAllDesign::Global => {
                    let request = requests.pop().unwrap_or_else(|| unreachable!("there is one request"));
                    request.await.map(|all| LockedRanks::new(inner, Some(all)))
                }
            };
            locked_ranks
                .map(|locked_ranks| LockAll { window: self, locked_ranks })
                .map_err(|error| error.of_call(OPERATION))
        })
    }

    /// Requests the lock of each rank from `from` on.
    fn requests_from(&self, from: u32) -> Vec<LockRequest<'_, T, F>> {
        (from..self.world().size()).map(|rank| self.lock_shared(rank)).collect()
    }

    async fn lock_each<'w>(&'w self, requests: Vec<LockRequest<'w, T, F>>) -> Result<LockedRanks<'w, T, F>, Error> {
        let locked_ranks = LockedRanks::new(self.inner(), None);
        let mut requests = requests.into_iter();
        while let Some(mut request) = requests.next() {
            let first = poll_fn(|cx| request.poll_first(cx)).await;
            if first.is_none() {
                // A waiter may hold locks of lower ranks only; otherwise it could deadlock with
                // a writer that locks in the order of the ranks.
                requests = Vec::new().into_iter();
            }
            let last = locked_ranks.insert(read_lock(request, first).await?).target();
            if requests.len() == 0 {
                requests = self.requests_from(last + 1).into_iter();
            }
        }
        Ok(locked_ranks)
    }
}

/// The operation's name in errors.
pub(crate) const OPERATION: &str = "lock_all";

/// Shared locks of every rank's window memory, taken together, or each when it is first
/// [accessed](Self::at). A drop unlocks them.
///
/// It borrows the window, and the accesses borrow it: drop or unlock it before the window is
/// closed. [`unlock_all`](Self::unlock_all) of a field moves it out of its structure, whose methods
/// cannot be called any more.
///
/// A type that borrows one has a lifetime for the borrow and another for the window, because the
/// guard keeps what it locks later:
///
/// ```
/// # use onesided_windows::{Error, LockAll, Window};
/// struct Counters<'a, 'w> {
///     all: &'a LockAll<'w, u64>,
/// }
///
/// impl Counters<'_, '_> {
///     fn add(&self, rank: u32) -> Result<u64, Error> {
///         self.all.at(rank).wait()?.fetch_add(0, 1).wait()
///     }
/// }
/// # onesided_fabric::threads(2, |world| {
/// # let window = Window::<u64>::allocate(&world, 1).wait()?;
/// # let all = window.lock_all().wait()?;
/// # let counters = Counters { all: &all };
/// # assert!(counters.add(1)? < 2);
/// # all.unlock_all().wait()?;
/// # window.close().wait()
/// # }).unwrap().into_iter().collect::<Result<(), onesided_windows::Error>>().unwrap();
/// ```
#[must_use = "if unused the locks are released immediately"]
pub struct LockAll<'w, T: Element, F: Fabric = Any> {
    pub(crate) window: &'w Window<T, F>,
    pub(crate) locked_ranks: LockedRanks<'w, T, F>,
}

impl<'w, T: Element, F: Fabric> LockAll<'w, T, F> {
    /// The operations on one target. Does nothing unless waited on or polled, except that it posts
    /// the first operation of a lock that is needed.
    ///
    /// ```
    /// # use onesided_windows::Window;
    /// # onesided_fabric::threads(3, |world| {
    /// # let window = Window::<u64>::allocate(&world, 4).wait()?;
    /// let all = window.lock_all().wait()?;
    /// let (one, other) = (all.at(1), all.at(2)); // both are under way
    /// let (one, other) = (one.wait()?, other.wait()?);
    /// one.fetch_add(0, 1).wait()?;
    /// other.put(1 + world.rank() as usize, &[7])?;
    /// all.unlock_all().wait()?;
    /// # window.close().wait()
    /// # }).unwrap().into_iter().collect::<Result<(), onesided_windows::Error>>().unwrap();
    /// ```
    ///
    /// [On demand](crate::LockAllDesign::OnDemand), the first call for a target locks it, as
    /// [`lock_shared`](Window::lock_shared) does: the first operation is posted when the call
    /// returns. Later calls, and all calls in windows with other designs, complete immediately at
    /// the cost of a lookup.
    ///
    /// Two threads or tasks may request the same target concurrently: both lock it, the first lock
    /// is kept, and the other is released. A waiter also completes when another thread or task
    /// locks the same target.
    ///
    /// # Errors
    /// [`Error::Lock`], for the reasons of [`lock_shared`](Window::lock_shared): other targets may
    /// still be requested, and this one again. [`Error::Rank`]; with the lock-all word,
    /// [`Error::Operation`] if the target cannot be reached.
    ///
    /// # Cancel safety
    /// If dropped before it completes, it leaves nothing locked that was not: the endpoint finishes
    /// and releases what was started. The target may be requested again.
    #[inline]
    pub fn at(&self, target: u32) -> Request<'_, &Access<'w, T, F>, F> {
        match self.locked_ranks.at(target) {
            Some(access) => Request::ready(Awaited::Lock(self.window.inner(), target), OPERATION, access),
            None => self.lock_target(target),
        }
    }

    /// The owner whose lease had expired when a target was locked, in a window with
    /// [`LeasePolicy::VersionedCommit`](crate::LeasePolicy::VersionedCommit): the lock was taken
    /// from it, released immediately, and is now shared like all others. Puts of the expired owner
    /// may still arrive.
    pub fn previous_owner(&self, target: u32) -> Option<PreviousOwner> {
        match self.locked_ranks.ranks.get(target as usize)?.get()? {
            RankLock::Own(epoch) => epoch.previous_owner(),
            RankLock::All(_) => None,
        }
    }

    fn flush(
        &self,
        operation: &'static str,
        flush: for<'a> fn(&'a F, Rank) -> F::Flush<'a>,
    ) -> Request<'_, (), F, Error, impl Begin<()>> {
        let inner = self.window.inner();
        Request::unboxed(Awaited::Target(inner, inner.world.rank()), operation, move || {
            inner.flush_each(operation, self.locked_ranks.targets(), flush)
        })
    }

    /// Completes at all targets the operations that this rank has posted to them before the call
    /// (`MPI_Win_flush_all`), concurrently.
    ///
    /// # Errors
    /// [`Error::Operation`] with the first deferred error.
    ///
    /// # Cancel safety
    /// If dropped before it completes, nothing is guaranteed.
    pub fn flush_all(&self) -> Request<'_, (), F, Error, impl Begin<()>> {
        self.flush("flush_all", F::flush)
    }

    /// Completes locally the operations that this rank has posted to all targets before the call
    /// (`MPI_Win_flush_local_all`).
    ///
    /// A put's slice may be reused without it, as soon as the put returns; its completion says that
    /// no operation of this rank is in flight any more.
    ///
    /// # Errors
    /// As [`flush_all`](Self::flush_all).
    ///
    /// # Cancel safety
    /// As [`flush_all`](Self::flush_all).
    pub fn flush_local_all(&self) -> Request<'_, (), F, Error, impl Begin<()>> {
        self.flush("flush_local_all", F::flush_local)
    }

    /// Unlocks every locked target (`MPI_Win_unlock_all`). Does nothing unless waited on or polled;
    /// a drop then does the same.
    ///
    /// # Errors
    /// The first failure of what was done under the locks. All are released all the same.
    ///
    /// # Cancel safety
    /// If dropped before it completes, the endpoint finishes the releases.
    pub fn unlock_all(self) -> Request<'w, (), F, Error, impl Begin<()> + use<'w, T, F>> {
        let inner = self.window.inner();
        Request::unboxed(Awaited::Target(inner, inner.world.rank()), "unlock_all", || self.locked_ranks.unlock())
    }
}

debug!([T: Element, F: Fabric] LockAll<'_, T, F>, |this| "shared locks on {} ranks", this.window.world().size());
