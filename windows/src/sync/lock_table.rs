//! Lock tables: many locks without window memory.

use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;

use onesided_fabric::remote_memory::Fault;
use onesided_fabric::{Any, Fabric, World, debug};
use onesided_lock_algos::{Intent, Mode};

use crate::error::Lack;
use crate::handles::{Begin, LockRequest, Recover, Unlock};
use crate::locks::layout::{LockId, Table};
use crate::locks::window_lock::WindowLock;
use crate::operation::request::Awaited;
use crate::passive::lock::Kind;
use crate::passive::many::lock_in_order;
use crate::passive::try_lock::Try;
use crate::window::inner::Inner;
use crate::{Builder, Epoch, Error, LockDesign, PreviousOwner, Request, Window};

/// Numbered locks, up to millions, each at some rank: the locks of windows without the memory that
/// they protect.
///
/// ```
/// # use onesided_windows::LockTable;
/// # onesided_fabric::threads(2, |world| {
/// let records = LockTable::new(&world, 500_000).wait()?; // collective: as many at this rank
/// assert_eq!(records.len(), 1_000_000);
/// let guard = records.lock_exclusive(700_000).wait()?;
/// // ... what the lock protects: window memory, files
/// guard.unlock().wait()?;
/// # records.close().wait()
/// # }).unwrap().into_iter().collect::<Result<(), onesided_windows::Error>>().unwrap();
/// ```
///
/// A lock takes [`bytes_per_lock`](Self::bytes_per_lock) at its rank: 8 with test-and-set, 16 with
/// tickets or the queue, 272 with the queue by fetch-add, and 8 more in a table with
/// [tokens](Self::with_tokens). The queue nodes of each rank are shared by the table, as in a
/// window: [`lock_slots`](crate::Builder::lock_slots) bounds the locks of the table that a rank has
/// at a time.
///
/// The locks behave as those of windows, also after failures: a lock whose exclusive owner died or
/// panicked is poisoned, and only that one, until it is [recovered](LockRequest::recover).
///
/// **An unlock does not flush operations on windows.** Flush the epoch or access that posted them
/// before unlocking.
///
/// Cheap to clone; all clones are the same table.
#[derive(Clone)]
pub struct LockTable<F: Fabric = Any> {
    window: Window<u64, F>,
    /// The first lock of each rank, and the end.
    starts: Arc<[u64]>,
    /// The number of locks of each rank, if it is the same on all.
    even: Option<u64>,
    table: Table,
}

impl<F: Fabric> LockTable<F> {
    /// Makes a table with `here` locks at this rank, and as many as the others ask for at theirs;
    /// the program decides which locks are local to which rank. They are numbered rank by rank.
    /// Their design is the one that `ONESIDED_LOCK` names, or test-and-set if that is not set.
    /// Collective.
    ///
    /// # Errors
    /// Those of [`Builder::allocate`]; [`Error::LeasePolicy`] for a [policy](crate::LeasePolicy)
    /// that a table does not support, such as `VersionedCommit`; [`Error::Create`] with
    /// `OutOfRange` for 2<sup>32</sup> - 2 locks or more at a rank; [`Error::Operation`] with
    /// `Unsupported` for a design that has words at every rank or for each host, or a thread that
    /// serves one lock.
    ///
    /// # Cancel safety
    /// Not cancel safe: collective, as a [barrier](World::barrier).
    pub fn new(world: &World<F>, here: usize) -> Request<'_, Self, F> {
        Self::with(Builder::default(), world, here)
    }

    /// The same, with a name and a lock set by a window builder.
    ///
    /// # Errors
    /// As [`new`](Self::new).
    ///
    /// # Cancel safety
    /// As [`new`](Self::new).
    pub fn with(builder: Builder<u64>, world: &World<F>, here: usize) -> Request<'_, Self, F> {
        let builder = builder.named(|| "unnamed, of locks".to_owned());
        Request::new(builder.awaited(world), "create", Self::make(builder, world, here, false))
    }

    /// The same, with a [fencing token](TableGuard::fencing_token) for each lock: 8 bytes more.
    ///
    /// # Errors
    /// As [`new`](Self::new).
    ///
    /// # Cancel safety
    /// As [`new`](Self::new).
    pub fn with_tokens(builder: Builder<u64>, world: &World<F>, here: usize) -> Request<'_, Self, F> {
        let builder = builder.named(|| "unnamed, of locks".to_owned());
        Request::new(builder.awaited(world), "create", Self::make(builder, world, here, true))
    }

    async fn make(builder: Builder<u64>, world: &World<F>, here: usize, fenced: bool) -> Result<Self, Error> {
        // An unknown lock in the environment is an error on all ranks when the window is made.
        let design = builder.design().unwrap_or_default();
        let lock = design.algorithm(&world.fabric().capabilities());
        let words = |lock| WindowLock::<F>::from(lock).lock_words();
        let table = lock.map(|lock| Table::new(words(lock), fenced)).unwrap_or_default();
        let stride = usize::try_from(table.stride).unwrap_or(usize::MAX);
        // Too many locks are too much memory: an error on all ranks.
        let words = if here as u64 >= LockId::MAX_IN_TABLE { usize::MAX } else { here.saturating_mul(stride) };
        let window = builder.table(table).plain().uneven().allocate(world, words).await?;
        let inner = window.inner();
        if !design.fits_tables() {
            // All ranks have compared by now, so all get this error.
            let fault = Lack::LockOfTables.of(world.fabric().rank());
            return Err(inner.failed("make a lock table", world.rank(), fault));
        }
        let mut starts = Vec::with_capacity(world.size() as usize + 1);
        starts.push(0);
        for rank in 0..world.size() {
            let before = starts[rank as usize];
            starts.push(before + window.len(rank) as u64 / table.stride);
        }
        let first = starts[1];
        let even = starts.windows(2).all(|two| two[1] - two[0] == first && first > 0).then_some(first);
        Ok(Self { window, starts: starts.into(), even, table })
    }

    /// The number of locks of all ranks.
    pub fn len(&self) -> u64 {
        self.starts[self.starts.len() - 1]
    }

    /// Whether the table has no locks.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The numbers of the locks at a rank; empty for a rank out of range.
    pub fn locks_at(&self, rank: u32) -> Range<u64> {
        let rank = rank as usize;
        if rank + 1 < self.starts.len() { self.starts[rank]..self.starts[rank + 1] } else { 0..0 }
    }

    /// The rank of a lock, and its index there; `None` for a lock out of range.
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

    /// The memory of a lock at its rank.
    pub const fn bytes_per_lock(&self) -> u64 {
        8 * self.table.stride
    }

    /// The design of the locks.
    pub fn design(&self) -> LockDesign {
        self.window.inner().locks.design
    }

    /// The table's name.
    pub fn name(&self) -> &str {
        self.window.name()
    }

    #[inline]
    fn target_lock(&self, lock: u64) -> (u32, LockId) {
        match self.place(lock) {
            Some((rank, index)) => (rank, LockId::of_table(index as u32)),
            None => (u32::MAX, LockId::WINDOW), // an invalid rank: the wait reports it
        }
    }

    /// Requests a lock exclusively. The first operation is posted when the call returns.
    #[inline]
    pub fn lock_exclusive(&self, lock: u64) -> TableRequest<'_, F> {
        self.request(lock, Mode::Exclusive, Intent::LOCK)
    }

    /// Requests a lock shared. The first operation is posted when the call returns.
    #[inline]
    pub fn lock_shared(&self, lock: u64) -> TableRequest<'_, F> {
        self.request(lock, Mode::Shared, Intent::LOCK)
    }

    #[inline]
    fn request<'t, K>(&'t self, lock: u64, mode: Mode, intent: Intent) -> TableRequest<'t, F, K>
    where
        K: Kind<u64, Lock<'t, F> = (&'t Self, u64)>,
    {
        LockRequest::start_of(&self.window, self.target_lock(lock), (self, lock), mode, intent)
    }

    /// Requests a lock exclusively if it is free. The first operation is posted when the call
    /// returns; a few operations later the result is the guard, or `None`. A deadline that passes
    /// before that gives `None` too.
    ///
    /// # Errors
    /// As [`LockRequest::wait`].
    ///
    /// # Cancel safety
    /// As [`LockRequest`].
    #[inline]
    pub fn try_lock_exclusive(&self, lock: u64) -> TableRequest<'_, F, Try<LockTable>> {
        self.request(lock, Mode::Exclusive, Intent::TRY)
    }

    /// Requests a lock shared if no exclusive holder or waiter is in the way. As
    /// [`try_lock_exclusive`](Self::try_lock_exclusive).
    #[inline]
    pub fn try_lock_shared(&self, lock: u64) -> TableRequest<'_, F, Try<LockTable>> {
        self.request(lock, Mode::Shared, Intent::TRY)
    }

    pub(crate) fn inner(&self) -> &Inner<F> {
        self.window.inner()
    }

    /// The number of a lock at a rank.
    pub(crate) fn number_of(&self, (rank, id): (u32, LockId)) -> u64 {
        self.locks_at(rank).start + id.index()
    }

    /// The error of a lock of the table.
    pub(crate) fn failed_lock(&self, operation: &'static str, lock: u64, fault: Fault) -> Error {
        let (target, fault) = (self.target_lock(lock).0, self.inner().world.translate(fault));
        Error::TableLock { operation, lock, target, table: self.inner().name.clone(), fault }
    }

    /// Locks several locks, each once, in ascending order, each when the one before is held, so that
    /// callers of this function cannot deadlock each other; returns the guards in that order. Does
    /// nothing unless waited on or polled. `.recover()` takes poisoned locks over, as
    /// [`LockRequest::recover`] does.
    ///
    /// # Errors
    /// Those of [`LockRequest::wait`] of the first lock that fails; the locks taken before are
    /// released.
    ///
    /// # Cancel safety
    /// If dropped before it completes, it leaves nothing locked.
    pub fn lock_many<'t>(
        &'t self,
        locks: &[u64],
        mode: Mode,
    ) -> Request<'t, Vec<TableGuard<'t, F>>, F, Error, impl Begin<Vec<TableGuard<'t, F>>> + Recover + use<'t, F>> {
        let mut locks = locks.to_vec();
        locks.sort_unstable();
        locks.dedup();
        let awaited = Awaited::TableLock(self, locks.first().copied().unwrap_or_default());
        let locks = locks.into_iter().map(|lock| (self.target_lock(lock), (self, lock))).collect();
        lock_in_order::<u64, F, LockTable>(&self.window, locks, mode, awaited)
    }

    /// Closes the table on all ranks and reports the first deferred error. Collective. Clones
    /// become useless, as those of a [window](Window::close).
    ///
    /// # Errors
    /// Those of [`Window::close`].
    pub fn close(self) -> Request<'static, (), F> {
        self.window.close()
    }
}

debug!([F: Fabric] LockTable<F>, |this| "lock table \"{}\": {} locks, {}", this.name(), this.len(), this.design());

// Not derived: a derive would require the trait of the fabric.
type TableRequest<'t, F, K = LockTable> = LockRequest<'t, u64, F, K>;

impl Kind<u64> for LockTable {
    type Guard<'t, F: Fabric> = TableGuard<'t, F>;
    type Lock<'t, F: Fabric> = (&'t LockTable<F>, u64);

    #[inline(always)] // see `LockRequest::wait`
    fn guard<'t, F: Fabric>(epoch: Epoch<'t, u64, F>, (_, lock): (&'t LockTable<F>, u64)) -> TableGuard<'t, F> {
        TableGuard { epoch, lock }
    }

    #[cold]
    fn failed<F: Fabric>((table, lock): (&LockTable<F>, u64), error: Error) -> Error {
        let name = table.window.inner().name.clone();
        match error {
            Error::Rank { operation, .. } => Error::NoSuchLock { operation, lock, count: table.len(), table: name },
            Error::Lock { operation, target, fault, .. } => {
                Error::TableLock { operation, lock, target, table: name, fault }
            }
            other => other,
        }
    }
}

/// A held lock of a table. A drop releases it, and [`LockTable::close`] reports the errors of that.
/// Leaking a guard leaves that lock locked and has no other effect. An exclusive guard that is
/// dropped because its thread panics leaves the lock poisoned, as an [`Epoch`] does.
#[must_use = "if unused the lock is released immediately"]
pub struct TableGuard<'t, F: Fabric = Any> {
    epoch: Epoch<'t, u64, F>,
    lock: u64,
}

impl<'t, F: Fabric> TableGuard<'t, F> {
    /// The lock's number.
    pub const fn lock(&self) -> u64 {
        self.lock
    }

    /// The mode in which the lock is held: as requested, but exclusive if it was
    /// [recovered](Self::previous_owner).
    pub const fn mode(&self) -> Mode {
        self.epoch.mode()
    }

    /// The failed previous owner, if the lock was [recovered](LockRequest::recover).
    pub fn previous_owner(&self) -> Option<PreviousOwner> {
        self.epoch.previous_owner()
    }

    /// How much is left of the lease, in a table with a [lease policy](crate::LeasePolicy): see
    /// [`Epoch::lease_left`].
    pub fn lease_left(&self) -> Option<Duration> {
        self.epoch.lease_left()
    }

    /// Draws a fencing token of this lock: see [`Epoch::fencing_token`].
    ///
    /// # Errors
    /// When waited on: [`Error::Operation`], `Unsupported` in a table [without
    /// tokens](LockTable::with_tokens).
    pub fn fencing_token(&self) -> Request<'t, u64, F, Error, impl Begin<u64> + use<'t, F>> {
        self.epoch.fencing_token()
    }

    /// Unlocks. Completes when the release is posted; the release itself is not waited for. Does
    /// nothing unless waited on or polled; a drop then releases.
    ///
    /// # Errors
    /// As [`Epoch::unlock`], of what this rank has posted to the lock's rank by the same
    /// connection.
    pub fn unlock(self) -> Unlock<'t, u64, F> {
        self.epoch.unlock()
    }
}

debug!([F: Fabric] TableGuard<'_, F>, |this| "held lock {} of a table", this.lock);
