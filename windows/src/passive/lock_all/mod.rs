//! `lock_all`: the lock of all ranks.

pub(crate) mod at;
pub(crate) mod flush;
pub(crate) mod locked;
pub(crate) mod reader;
pub(crate) mod unlock;

use std::fmt;
use std::future::poll_fn;

use onesided_fabric::remote_memory::Rank;
use onesided_fabric::{Call, Drive, Fabric, call};
use onesided_lock_algos::{Intent, Mode};

use crate::passive::lock_all::locked::{LockedRanks, RankLock};
use crate::passive::lock_all::reader::Reader;
use crate::{At, Element, Error, FlushAll, LockAllDesign, LockRequest, PreviousOwner, UnlockAll, Window};

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
    pub fn lock_all(&self) -> LockAllRequest<'_, T, F> {
        LockAllRequest::start(self)
    }
}

/// A request for `lock_all`. Its first operations are posted: one to every rank, or the one for the
/// lock-all word; [on demand](crate::LockAllDesign::OnDemand) nothing is posted or waited for.
/// `.wait()` blocks, `.await` does not, `.test()` polls.
///
/// # Cancel safety
/// If dropped before it completes, it leaves nothing locked: the endpoint finishes and releases
/// what was started.
#[must_use = "dropping the request cancels it"]
pub struct LockAllRequest<'w, T: Element, F: Fabric> {
    window: &'w Window<T, F>,
    call: Call<'w, Requests<'w, T, F>, Result<LockAll<'w, T, F>, Error>>,
}

type Requests<'w, T, F> = Vec<LockRequest<'w, T, F>>;

impl<'w, T: Element, F: Fabric> LockAllRequest<'w, T, F> {
    pub(crate) fn start(window: &'w Window<T, F>) -> Self {
        let requests = match window.inner().locks.lock_all {
            LockAllDesign::OnDemand => Vec::new(),
            LockAllDesign::EachTarget => Self::requests(window, 0),
            LockAllDesign::Global => {
                vec![LockRequest::start_of(window, locked::LOCK_ALL, Mode::Shared, Intent::LOCK)]
            }
        };
        Self { window, call: Call::NotStarted(requests) }
    }

    /// Requests the lock of each rank from `from` on.
    fn requests(window: &'w Window<T, F>, from: u32) -> Requests<'w, T, F> {
        (from..window.world().size()).map(|rank| window.lock_shared(rank)).collect()
    }

    async fn locked(window: &'w Window<T, F>, requests: Requests<'w, T, F>) -> Result<LockAll<'w, T, F>, Error> {
        let inner = window.inner();
        let locked_ranks = match inner.locks.lock_all {
            LockAllDesign::OnDemand => inner.check_open().map(|()| LockedRanks::new(inner, None)).map_err(|fault| {
                let (target, fault) = (inner.world.rank(), inner.world.translate(fault));
                Error::Lock { operation: OPERATION, target, window: inner.name.clone(), fault }
            }),
            LockAllDesign::EachTarget => Self::each_locked(window, requests).await,
            LockAllDesign::Global => Self::locked_globally(window, requests).await,
        };
        locked_ranks.map(|locked_ranks| LockAll { window, locked_ranks }).map_err(of_all)
    }

    /// With the lock-all word: by the only request.
    async fn locked_globally(
        window: &'w Window<T, F>,
        mut requests: Requests<'w, T, F>,
    ) -> Result<LockedRanks<'w, T, F>, Error> {
        let request = requests.pop().unwrap_or_else(|| unreachable!("there is one request"));
        Ok(LockedRanks::new(window.inner(), Some(request.await?)))
    }

    async fn each_locked(
        window: &'w Window<T, F>,
        requests: Requests<'w, T, F>,
    ) -> Result<LockedRanks<'w, T, F>, Error> {
        let locked_ranks = LockedRanks::new(window.inner(), None);
        let mut requests = requests.into_iter();
        while let Some(mut request) = requests.next() {
            match poll_fn(|cx| request.poll_first(cx)).await? {
                Some(epoch) => {
                    locked_ranks.insert(epoch);
                }
                None => {
                    // A waiter may hold locks of lower ranks only; otherwise it could deadlock with
                    // a writer that locks in the order of the ranks.
                    drop(requests);
                    let mut reader = Reader::new(request);
                    let last = locked_ranks.insert(poll_fn(|cx| reader.poll_held(cx)).await?).target();
                    requests = Self::requests(window, last + 1).into_iter();
                }
            }
        }
        Ok(locked_ranks)
    }
}

/// The operation's name in errors.
const OPERATION: &str = "lock_all";

/// The error of one of its locks.
pub(crate) fn of_all(error: Error) -> Error {
    match error {
        Error::Lock { target, window, fault, .. } => Error::Lock { operation: OPERATION, target, window, fault },
        other => other,
    }
}

impl<'w, T: Element, F: Drive> LockAllRequest<'w, T, F> {
    /// Blocks until every target is locked, shared. On demand it never blocks.
    ///
    /// # Errors
    /// [`Error::Lock`] of the first lock that fails; the others are released. On demand,
    /// [`Error::Lock`] if the window was closed here; [`LockAll::at`] reports failures to lock a
    /// target. With [`LockAllDesign::Global`](crate::LockAllDesign::Global) the error names rank 0,
    /// which has the lock-all word, whichever exclusive owner died or panicked; a request for any
    /// exclusive lock with [`recover`](LockRequest::recover) repairs it. `NoSlot`: as of
    /// [`LockRequest::wait`](crate::LockRequest::wait).
    pub fn wait(self) -> Result<LockAll<'w, T, F>, Error> {
        self.block()
    }
}

call! {
    ['w, T: Element, F], LockAllRequest<'w, T, F>, LockAll<'w, T, F>, Error, |all| all.window.inner().fabric(),
    |requests| Self::locked(all.window, requests)
}

impl<T: Element, F: Fabric> fmt::Debug for LockAllRequest<'_, T, F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "lock_all of {:?}", self.window)
    }
}

/// Shared locks of every rank's window memory, taken together, or each when it is first
/// [accessed](Self::at). A drop unlocks them.
#[must_use = "if unused the locks are released immediately"]
pub struct LockAll<'w, T: Element, F: Fabric> {
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
    /// is kept, and the other is released. See [`At`].
    #[inline]
    pub fn at(&self, target: u32) -> At<'_, 'w, T, F> {
        match self.locked_ranks.at(target) {
            Some(access) => At::here(self, access),
            None => At::start(self, target),
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

    fn flush(&self, operation: &'static str, begin: for<'a> fn(&'a F, Rank) -> F::Flush<'a>) -> FlushAll<'_, 'w, T, F> {
        FlushAll::new(operation, self.window.inner(), &self.locked_ranks.ranks, begin)
    }

    /// Completes at all targets the operations that this rank has posted to them before the call
    /// (`MPI_Win_flush_all`), concurrently.
    ///
    /// # Errors
    /// [`Error::Operation`] with the first deferred error.
    ///
    /// # Cancel safety
    /// If dropped before it completes, nothing is guaranteed.
    pub fn flush_all(&self) -> FlushAll<'_, 'w, T, F> {
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
    pub fn flush_local_all(&self) -> FlushAll<'_, 'w, T, F> {
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
    pub fn unlock_all(self) -> UnlockAll<'w, T, F> {
        UnlockAll::new(self.locked_ranks)
    }
}

impl<T: Element, F: Fabric> fmt::Debug for LockAll<'_, T, F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "shared locks on {} ranks", self.window.world().size())
    }
}
