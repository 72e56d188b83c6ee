//! Many locks, without memory of their own.

use std::fmt;
use std::future::Future;
use std::ops::Range;
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use onesided_fabric::remote_memory::{Fault, FaultKind};
use onesided_fabric::{Any, Drive, Fabric, World, handle};
use onesided_lock_algos::{Intent, Mode};

use crate::locks::layout::{LockId, Table};
use crate::passive::lock::operation;
use crate::{
    Builder, Epoch, Error, FencingToken, LockDesign, LockRequest, PreviousOwner, Request, TryLock, Unlock, Window,
};

/// Locks by number, a million of them say, each at some rank: the locks of windows, one by one, without the memory that they
/// protect.
///
/// ```
/// # use onesided_windows::LockTable;
/// # onesided_fabric::threads(2, |world| {
/// let records = LockTable::new(&world, 500_000).wait()?; // collective: as many at this rank
/// assert_eq!(records.len(), 1_000_000);
/// let guard = records.lock_exclusive(700_000).wait()?;
/// // ... what the lock is for: parts of windows, files
/// guard.unlock().wait()?;
/// # records.close().wait()
/// # }).unwrap().into_iter().collect::<Result<(), onesided_windows::Error>>().unwrap();
/// ```
///
/// A lock takes [`bytes_per_lock`](Self::bytes_per_lock) at its rank: 8 for every design whose lock is one word, and 8 more in a
/// table with [tokens](Self::with_tokens). All else is the table's: the queue nodes of each rank, as in a window. So an
/// owner that finds none, because the rank holds many locks at once, goes on without. In a table with a
/// [policy for late owners](crate::LeasePolicy) it gets `Full`.
///
/// Locks are as those of windows in everything, death included: a lock that its owner left by dying is poisoned, that one and no
/// other, until it is [inherited](TableRequest::recover).
///
/// **What is done under a lock of a table elsewhere is not flushed by its unlock**: before that, the epoch or access that posted it
/// is flushed.
pub struct LockTable<F: Fabric = Any> {
    window: Window<u64, F>,
    /// The first lock of each rank, and the end.
    starts: Box<[u64]>,
    /// How many each rank has, if all have as many.
    even: Option<u64>,
    table: Table,
}

impl<F: Fabric> LockTable<F> {
    /// Makes a table with `here` locks at this rank, and as many as the others ask for at theirs: which locks are near to whom is
    /// the program's choice. They are numbered rank by rank. Their design is the one that `ONESIDED_LOCK` names, test-and-set if
    /// it is not set. Collective.
    ///
    /// # Errors
    /// Those of [`Builder::allocate`]; [`Error::LeasePolicy`] for a [policy](crate::LeasePolicy) that a table cannot have, such as
    /// `VersionedCommit`; [`Error::Create`] with `OutOfRange` for 2<sup>32</sup> - 2 locks or more at a rank;
    /// [`Error::Operation`] with `Unsupported` for a design that has words at every rank or for each host, or a thread that serves one lock.
    ///
    /// # Cancel safety
    /// Not cancel safe: collective.
    pub fn new(world: &World<F>, here: usize) -> Request<'_, Self, F> {
        Self::with(Builder::default(), world, here)
    }

    /// The same, with a name and a lock that the window's builder chooses.
    ///
    /// # Errors
    /// As [`new`](Self::new).
    ///
    /// # Cancel safety
    /// As [`new`](Self::new).
    pub fn with(builder: Builder<u64>, world: &World<F>, here: usize) -> Request<'_, Self, F> {
        Request::new(world.fabric().clone(), "make a lock table", Self::make(builder, world, here, false))
    }

    /// The same, with a [fencing token](TableGuard::fencing_token) for each lock: 8 bytes more.
    ///
    /// # Errors
    /// As [`new`](Self::new).
    ///
    /// # Cancel safety
    /// As [`new`](Self::new).
    pub fn with_tokens(builder: Builder<u64>, world: &World<F>, here: usize) -> Request<'_, Self, F> {
        Request::new(world.fabric().clone(), "make a lock table", Self::make(builder, world, here, true))
    }

    async fn make(builder: Builder<u64>, world: &World<F>, here: usize, fenced: bool) -> Result<Self, Error> {
        // Where the environment names no lock, all are told when the window is made.
        let design = builder.design().unwrap_or_default();
        let lock = design.algorithm(&world.fabric().capabilities());
        let table = Table::new(&lock, fenced);
        let stride = usize::try_from(table.stride).unwrap_or(usize::MAX);
        // Too many are too much memory: an error that the others hear of.
        let words = if here as u64 >= LockId::MAX_IN_TABLE { usize::MAX } else { here.saturating_mul(stride) };
        let window = builder.table(table).plain().uneven().allocate(world, words).await?;
        let inner = window.inner();
        if !design.fits_tables() {
            // By now it is known that all ranks meet this.
            let fault = Fault::of(FaultKind::Unsupported, world.fabric().rank());
            return Err(inner.failed("make a lock table", world.rank(), fault));
        }
        let mut starts = Vec::with_capacity(world.size() as usize + 1);
        starts.push(0);
        for rank in 0..world.size() {
            let before = starts[rank as usize];
            starts.push(before + inner.memory.len(rank) as u64 / table.stride);
        }
        let first = starts[1];
        let even = starts.windows(2).all(|two| two[1] - two[0] == first && first > 0).then_some(first);
        Ok(Self { window, starts: starts.into(), even, table })
    }

    /// How many locks there are at all ranks.
    pub fn len(&self) -> u64 {
        self.starts[self.starts.len() - 1]
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The numbers of the locks that lie at a rank; none for a rank that there is not.
    pub fn at(&self, rank: u32) -> Range<u64> {
        let rank = rank as usize;
        if rank + 1 < self.starts.len() { self.starts[rank]..self.starts[rank + 1] } else { 0..0 }
    }

    /// The rank that a lock lies at, and which of that rank's it is; `None` for a lock that there is not.
    #[inline]
    pub fn place(&self, lock: u64) -> Option<(u32, u64)> {
        if lock >= self.len() {
            return None;
        }
        Some(match self.even {
            Some(each) => ((lock / each) as u32, lock % each),
            None => {
                let rank = self.starts.partition_point(|start| *start <= lock) - 1;
                (rank as u32, lock - self.starts[rank])
            }
        })
    }

    /// What a lock takes of its rank's memory.
    pub const fn bytes_per_lock(&self) -> u64 {
        8 * self.table.stride
    }

    /// Which design the locks have.
    pub fn design(&self) -> LockDesign {
        self.window.inner().locks.design
    }

    /// The name that it was given.
    pub fn name(&self) -> &str {
        self.window.name()
    }

    #[inline]
    fn target_lock(&self, lock: u64) -> (u32, LockId) {
        match self.place(lock) {
            Some((rank, index)) => (rank, LockId::of_table(index as u32)),
            None => (u32::MAX, LockId::WINDOW), // no rank: it is told when it is waited for
        }
    }

    /// Asks for a lock alone. The first operation has left when the call returns.
    #[inline]
    pub fn lock_exclusive(&self, lock: u64) -> TableRequest<'_, F> {
        self.request(lock, Mode::Exclusive)
    }

    /// Asks for a lock together with others who share it. The first operation has left when the call returns.
    #[inline]
    pub fn lock_shared(&self, lock: u64) -> TableRequest<'_, F> {
        self.request(lock, Mode::Shared)
    }

    #[inline]
    fn request(&self, lock: u64, mode: Mode) -> TableRequest<'_, F> {
        let request = LockRequest::start_of(&self.window, self.target_lock(lock), mode, Intent::LOCK);
        TableRequest { requested: Requested { table: self, lock, mode }, request }
    }

    /// Asks for a lock alone, if nobody has to be waited for.
    #[inline]
    pub fn try_lock_exclusive(&self, lock: u64) -> TableTry<'_, F> {
        self.try_lock(lock, Mode::Exclusive)
    }

    /// Asks for a lock together with others, if nobody has to be waited for.
    #[inline]
    pub fn try_lock_shared(&self, lock: u64) -> TableTry<'_, F> {
        self.try_lock(lock, Mode::Shared)
    }

    #[inline]
    fn try_lock(&self, lock: u64, mode: Mode) -> TableTry<'_, F> {
        TableTry {
            requested: Requested { table: self, lock, mode },
            request: TryLock::start_of(&self.window, self.target_lock(lock), mode),
        }
    }

    /// Locks several, each once, when it is waited for: one after the other in the order of their numbers, so that those who lock
    /// several so do not wait for one another in a circle. They are given in that order.
    ///
    /// # Errors
    /// Those of [`TableRequest::wait`] of the first that fails; those that were locked are released.
    ///
    /// # Cancel safety
    /// Dropped before it is done it leaves nothing locked.
    pub fn lock_many(&self, locks: &[u64], mode: Mode) -> Request<'_, Vec<TableGuard<'_, F>>, F> {
        let mut locks = locks.to_vec();
        locks.sort_unstable();
        locks.dedup();
        Request::new(self.window.inner().fabric().clone(), "lock many", async move {
            let mut guards = Vec::with_capacity(locks.len());
            for lock in locks {
                guards.push(self.request(lock, mode).await?);
            }
            Ok(guards)
        })
    }

    /// Ends the table on all ranks, and reports what went wrong when nobody waited. Collective.
    ///
    /// # Errors
    /// Those of [`Window::close`].
    pub fn close(self) -> Request<'static, (), F> {
        self.window.close()
    }
}

impl<F: Fabric> fmt::Debug for LockTable<F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "lock table \"{}\": {} locks, {}", self.name(), self.len(), self.design())
    }
}

/// What was asked for.
struct Requested<'t, F: Fabric> {
    table: &'t LockTable<F>,
    lock: u64,
    mode: Mode,
}

impl<F: Fabric> Requested<'_, F> {
    #[cold]
    fn failed(&self, error: Error) -> Error {
        let (operation, name) = (operation(self.mode), self.table.window.inner().name.clone());
        match error {
            Error::Rank { .. } => {
                Error::NoSuchLock { operation, lock: self.lock, count: self.table.len(), table: name }
            }
            Error::Lock { target, fault, .. } => {
                Error::TableLock { operation, lock: self.lock, target, table: name, fault }
            }
            other => other,
        }
    }
}

// By hand: derived ones would ask that of the fabric.
impl<F: Fabric> Clone for Requested<'_, F> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<F: Fabric> Copy for Requested<'_, F> {}

/// A lock of a table that was asked for: the first operation has left. `.wait()` blocks until it is held, `.await` does not
/// block, `.test()` looks.
///
/// # Cancel safety
/// As [`LockRequest`].
#[must_use = "a lock that nobody waits for is released at once"]
pub struct TableRequest<'t, F: Fabric> {
    requested: Requested<'t, F>,
    request: LockRequest<'t, u64, F>,
}

impl<F: Fabric> TableRequest<'_, F> {
    /// Gives up after this time: see [`LockRequest::deadline`].
    pub fn deadline(mut self, after: Duration) -> Self {
        self.request = self.request.deadline(after);
        self
    }

    /// Takes the lock from a rank that died while it held it: see [`LockRequest::recover`].
    #[inline]
    pub fn recover(mut self) -> Self {
        self.request = self.request.recover();
        self
    }
}

impl<'t, F: Drive> TableRequest<'t, F> {
    /// Blocks until the lock is held.
    ///
    /// # Errors
    /// [`Error::TableLock`]: its owner died ([`Error::is_poisoned`]), the deadline passed ([`Error::is_timed_out`]), its rank
    /// died; `Deadlock`, as of [`LockRequest::wait`]; in a table with a [policy for late owners](crate::LeasePolicy), `Full`: this
    /// rank has as many of its locks as it has slots, one for each rank and 31 more, at most 1024; [`Error::NoSuchLock`].
    #[inline]
    pub fn wait(self) -> Result<TableGuard<'t, F>, Error> {
        let Self { requested, request } = self;
        match request.wait() {
            Ok(epoch) => Ok(TableGuard { epoch, lock: requested.lock }),
            Err(error) => Err(requested.failed(error)),
        }
    }
}

handle!(['t, F], TableRequest<'t, F>, TableGuard<'t, F>, Error, |lock| lock.requested.table.window.inner().fabric());

impl<'t, F: Fabric> Future for TableRequest<'t, F> {
    type Output = Result<TableGuard<'t, F>, Error>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let requested = self.requested;
        let outcome = ready!(Pin::new(&mut self.request).poll(cx));
        Poll::Ready(match outcome {
            Ok(epoch) => Ok(TableGuard { epoch, lock: requested.lock }),
            Err(error) => Err(requested.failed(error)),
        })
    }
}

/// A lock of a table that is wanted if nobody has to be waited for: see [`LockTable::try_lock_exclusive`]. `.wait()` blocks for
/// as long as a few operations take; then there is the lock, or `None`.
///
/// # Cancel safety
/// As [`LockRequest`].
#[must_use = "a lock that nobody waits for is released at once"]
pub struct TableTry<'t, F: Fabric> {
    requested: Requested<'t, F>,
    request: TryLock<'t, u64, F>,
}

impl<F: Fabric> TableTry<'_, F> {
    /// Takes the lock also from a rank that died while it held it: see [`LockRequest::recover`].
    #[inline]
    pub fn recover(mut self) -> Self {
        self.request = self.request.recover();
        self
    }
}

impl<'t, F: Drive> TableTry<'t, F> {
    /// Blocks until the lock is held, or it is known that it cannot be had at once.
    ///
    /// # Errors
    /// As [`TableRequest::wait`].
    #[inline]
    pub fn wait(self) -> Result<Option<TableGuard<'t, F>>, Error> {
        let Self { requested, request } = self;
        match request.wait() {
            Ok(epoch) => Ok(epoch.map(|epoch| TableGuard { epoch, lock: requested.lock })),
            Err(error) => Err(requested.failed(error)),
        }
    }
}

handle!(['t, F], TableTry<'t, F>, Option<TableGuard<'t, F>>, Error, |lock| lock.requested.table.window.inner().fabric());

impl<'t, F: Fabric> Future for TableTry<'t, F> {
    type Output = Result<Option<TableGuard<'t, F>>, Error>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let requested = self.requested;
        let outcome = ready!(Pin::new(&mut self.request).poll(cx));
        Poll::Ready(match outcome {
            Ok(epoch) => Ok(epoch.map(|epoch| TableGuard { epoch, lock: requested.lock })),
            Err(error) => Err(requested.failed(error)),
        })
    }
}

/// A lock of a table that is held. Dropped, it is released; what goes wrong then [`LockTable::close`] reports. A guard that is
/// leaked leaves that lock locked, and nothing else.
#[must_use = "if unused the lock is released at once"]
pub struct TableGuard<'t, F: Fabric> {
    epoch: Epoch<'t, u64, F>,
    lock: u64,
}

impl<'t, F: Fabric> TableGuard<'t, F> {
    /// The lock's number.
    pub const fn lock(&self) -> u64 {
        self.lock
    }

    /// How it is held: as it was asked for, but exclusively if it was [inherited](Self::previous_owner).
    pub const fn mode(&self) -> Mode {
        self.epoch.mode()
    }

    /// Who died inside, if the lock was [inherited](TableRequest::recover).
    pub fn previous_owner(&self) -> Option<PreviousOwner> {
        self.epoch.previous_owner()
    }

    /// How much is left of the lease, in a table with a [policy for late owners](crate::LeasePolicy): see [`Epoch::lease_left`].
    pub fn lease_left(&self) -> Option<Duration> {
        self.epoch.lease_left()
    }

    /// Draws a fencing token of this lock: see [`Epoch::fencing_token`].
    ///
    /// # Errors
    /// When waited for: [`Error::Operation`], `Unsupported` in a table [without tokens](LockTable::with_tokens).
    pub fn fencing_token(&self) -> FencingToken<'t, F> {
        self.epoch.fencing_token()
    }

    /// Unlocks, when it is waited for: the release is posted then. Nobody waits for a release.
    ///
    /// # Errors
    /// As [`Epoch::unlock`], of what this rank has posted to the lock's rank by the same connection.
    pub fn unlock(self) -> Unlock<'t, u64, F> {
        self.epoch.unlock()
    }
}

macro_rules! debug {
    ($($name:ident, $what:literal, |$this:ident| $lock:expr;)+) => {
        $(impl<F: Fabric> fmt::Debug for $name<'_, F> {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                let $this = self;
                write!(f, $what, $lock)
            }
        })+
    };
}

debug! {
    TableRequest, "lock {} of a table, asked for", |this| this.requested.lock;
    TableTry, "try lock {} of a table", |this| this.requested.lock;
    TableGuard, "lock {} of a table, held", |this| this.lock;
}
