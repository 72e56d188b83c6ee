//! The lock of all ranks at once.

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
    /// Locks every rank's part shared (`MPI_Win_lock_all`), as the window's [`LockAllDesign`](crate::LockAllDesign) says.
    ///
    /// Usually that is [on demand](crate::LockAllDesign::OnDemand): this call posts nothing, and a part is locked when
    /// [`LockAll::at`](crate::LockAll::at) first asks for it. Until then others may lock it exclusively; and who holds several
    /// exclusive locks at a time may wait for ever for somebody who locks all and waits for him. In windows made with
    /// [`LockAllDesign::EachTarget`](crate::LockAllDesign::EachTarget) or [`LockAllDesign::Global`](crate::LockAllDesign::Global) neither can be, and the first operation has left when the call
    /// returns: to every rank, or the only one there is.
    pub fn lock_all(&self) -> LockAllRequest<'_, T, F> {
        LockAllRequest::start(self)
    }
}

/// A lock of every rank's part that was asked for: the first operation to every rank, or the one there is, has left; where
/// parts are locked [on demand](crate::LockAllDesign::OnDemand) there is none, and nothing to wait for.
/// `.wait()` blocks, `.await` does not, `.test()` looks.
///
/// # Cancel safety
/// Dropped before it is done, it leaves nothing locked: the endpoint finishes and releases what was begun.
#[must_use = "locks that nobody waits for are released at once"]
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
        Self { window, call: Call::Asked(requests) }
    }

    /// From one rank on.
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

    /// By the only request.
    async fn locked_globally(
        window: &'w Window<T, F>,
        mut requests: Requests<'w, T, F>,
    ) -> Result<LockedRanks<'w, T, F>, Error> {
        let request = requests.pop().unwrap_or_else(|| unreachable!("there is one"));
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
                    // Who waits holds locks of lower ranks only. Else it and a writer who locks in the order of the ranks could
                    // wait for one another.
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

/// The name of it in errors.
const OPERATION: &str = "lock_all";

/// The error of one of its locks.
pub(crate) fn of_all(error: Error) -> Error {
    match error {
        Error::Lock { target, window, fault, .. } => Error::Lock { operation: OPERATION, target, window, fault },
        other => other,
    }
}

impl<'w, T: Element, F: Drive> LockAllRequest<'w, T, F> {
    /// Blocks until every rank's part is locked, shared; where that is done on demand, not at all.
    ///
    /// # Errors
    /// [`Error::Lock`] of the first that fails; what was locked is released. On demand: [`Error::Lock`] if the window was
    /// ended here, and what fails to be locked is told by [`LockAll::at`]. With
    /// [`LockAllDesign::Global`](crate::LockAllDesign::Global) that of rank 0, which has the lock, whoever died: who asks
    /// for any exclusive lock with [`inherit`](LockRequest::recover) sets it right; and `Full`: this rank has as many locks of the
    /// window as it has slots.
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

/// Every rank's part of a window, locked shared: at once, or each when it is [reached](Self::at). Dropped, it unlocks them.
#[must_use = "if unused the locks are released at once"]
pub struct LockAll<'w, T: Element, F: Fabric> {
    pub(crate) window: &'w Window<T, F>,
    pub(crate) locked_ranks: LockedRanks<'w, T, F>,
}

impl<'w, T: Element, F: Fabric> LockAll<'w, T, F> {
    /// The operations on one rank's part, when it was waited for.
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
    /// Where parts are locked [on demand](crate::LockAllDesign::OnDemand), a rank's part is locked when it is first asked for,
    /// as by [`lock_shared`](Window::lock_shared): the first operation has left when the call returns. From then on, and
    /// in windows whose parts are all locked from the beginning always, it is done at once, and costs a look.
    ///
    /// Two threads, or tasks, may ask for the same part at the same time: both lock it, what the first one has is kept, and
    /// the other one's lock is released. See [`At`].
    #[inline]
    pub fn at(&self, target: u32) -> At<'_, 'w, T, F> {
        match self.locked_ranks.at(target) {
            Some(access) => At::here(self, access),
            None => At::start(self, target),
        }
    }

    /// Who was found late with the lock of a rank's part that was reached, in a window with
    /// [`LeasePolicy::VersionedCommit`](crate::LeasePolicy::VersionedCommit): the lock was taken from it, given back at once, and is
    /// shared now, as all of them. What the late rank puts may still come, half done.
    pub fn previous_owner(&self, target: u32) -> Option<PreviousOwner> {
        match self.locked_ranks.ranks.get(target as usize)?.get()? {
            RankLock::Own(epoch) => epoch.previous_owner(),
            RankLock::All(_) => None,
        }
    }

    fn flush(&self, operation: &'static str, begin: for<'a> fn(&'a F, Rank) -> F::Flush<'a>) -> FlushAll<'_, 'w, T, F> {
        FlushAll::new(operation, self.window.inner(), &self.locked_ranks.ranks, begin)
    }

    /// Completes everything that this rank has posted to all targets before the call, there (`MPI_Win_flush_all`): on all of
    /// them at the same time.
    ///
    /// # Errors
    /// [`Error::Operation`] with the first failure of what was posted and not waited for.
    ///
    /// # Cancel safety
    /// Dropped before it is done it has promised nothing.
    pub fn flush_all(&self) -> FlushAll<'_, 'w, T, F> {
        self.flush("flush_all", F::flush)
    }

    /// Completes everything that this rank has posted to all targets before the call, here (`MPI_Win_flush_local_all`).
    ///
    /// A slice that was put may be used again without it, as soon as the put returned; what it tells is that nothing of this
    /// rank is under way on the network any more.
    ///
    /// # Errors
    /// As [`flush_all`](Self::flush_all).
    ///
    /// # Cancel safety
    /// As [`flush_all`](Self::flush_all).
    pub fn flush_local_all(&self) -> FlushAll<'_, 'w, T, F> {
        self.flush("flush_local_all", F::flush_local)
    }

    /// Unlocks every part that is locked (`MPI_Win_unlock_all`), when it is waited for.
    ///
    /// # Errors
    /// The first failure of what was done under the locks. They are all released all the same.
    ///
    /// # Cancel safety
    /// Dropped before it is done, the releases are finished by the endpoint.
    pub fn unlock_all(self) -> UnlockAll<'w, T, F> {
        UnlockAll::new(self.locked_ranks)
    }
}

impl<T: Element, F: Fabric> fmt::Debug for LockAll<'_, T, F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "shared locks on {} ranks", self.window.world().size())
    }
}
