//! Reads without a lock that see whole records: a sequence lock (optimistic, versioned reads).
//!
//! The seqlock, over one-sided operations. Each rank's window memory has a version in its lock's
//! cache line, which only the holder of the exclusive lock changes: odd while it writes, otherwise
//! even, always rising. A reader accepts what it read if the version was the same even number
//! before and after.
//!
//! **Correctness.** Let a reader read the version `v`, even, then read the data, then read `v`
//! again.
//!
//! 1. *The version rises.* Writers exclude each other by the lock, and each reads the version under
//!    the lock, behind the release of the previous one. So the version was `v` from the first read
//!    to the second: no writer made it odd in between.
//! 2. *A writer's data follow its odd version.* On a network the two are writes on one connection,
//!    which are placed in order; where data take another path than words (`mixed`, on one host),
//!    the odd version is flushed before any data are put. On shared memory a full fence stands
//!    between them (that of the read in the chain, see `begin`); a full fence also stands before
//!    the reader's second version read (`Versioned::version`), behind its loads of the data. So if
//!    one of these loads had seen a byte of a writer, the second version read would have seen that
//!    writer's odd version, or a later one.
//! 3. *A writer's even version follows its data*, by the same order of writes, and because the
//!    store is a release; on `mixed` because the card's write is posted behind the CPU's stores. So
//!    the first version read, which completes before the data are read (an acquire on shared
//!    memory), makes the data of all writers up to `v` visible.
//!
//! From 2 and 3: the bytes are those of the writers up to `v`, and of no other. On a network a
//! reader waits for each step before it posts the next, because a card may serve two reads in
//! flight from memory in any order (Ziegler et al., SIGMOD 2023); only the completion orders them.
//!
//! The reader remembers the version that it saw last, so an undisturbed read is two round trips,
//! without an atomic. Another thread may have read it: it is stored with release and loaded with
//! acquire order.

use std::sync::atomic::{AtomicU64, Ordering};

use onesided_fabric::remote_memory::{Fault, FaultKind, Link, Notify};
use onesided_fabric::{Any, Fabric, debug, keeps_order};

use crate::active::signals::VERSION;
use crate::handles::{Get, Unlock};
use crate::operation::request::Awaited;
use crate::window::inner::Inner;
use crate::window::target::Target;
use crate::{Access, Element, Epoch, Error, Request, Window};

/// The names of the operations in errors.
const READ: &str = "versioned read";
const WRITE: &str = "versioned write";

/// How often a reader tries before it takes the shared lock.
const ATTEMPTS: u32 = 8;

/// The first pause after meeting a writer, in nanoseconds; doubles each time.
const PAUSE: u64 = 500;

/// A window whose memory is read without locks and written under them ([`Window::versioned`]): a
/// read sees a rank's window memory as it was between two writes, never a mixture.
///
/// For read-mostly data: a read uses no atomic and changes nothing at the target, and readers do
/// not disturb each other or the writer. A reader that met writers eight times in a row takes the
/// shared lock.
///
/// ```
/// # use onesided_windows::Window;
/// onesided_fabric::threads(3, |world| {
///     let table = Window::<u64>::allocate(&world, 64).wait()?.versioned();
///     if world.rank() == 0 {
///         let epoch = table.write(1).wait()?; // the exclusive lock of rank 1
///         epoch.put(0, &[7; 32])?;
///         epoch.put(32, &[7; 32])?;
///         epoch.unlock().wait()?;
///     }
///     let mut record = [0; 64];
///     table.read_into(1, 0, &mut record).wait()?;
///     assert!(record == [0; 64] || record == [7; 64]);
///     table.close().wait()
/// })
/// .unwrap()
/// .into_iter()
/// .collect::<Result<(), onesided_windows::Error>>()
/// .unwrap();
/// ```
///
/// Writes that bypass this type, through a clone of the window, are not detected.
pub struct Versioned<T, F: Fabric = Any> {
    window: Window<T, F>,
    /// The even version of each target that this rank saw last.
    known: Box<[AtomicU64]>,
}

impl<T: Element, F: Fabric> Window<T, F> {
    /// Makes the window one whose memory is read without locks, as it was between two writes. Every
    /// rank does so; nothing is posted. A window with
    /// [`LeasePolicy::VersionedCommit`](crate::LeasePolicy::VersionedCommit) cannot be written this
    /// way, because the puts of an owner whose lease has expired still reach the memory.
    pub fn versioned(self) -> Versioned<T, F> {
        Versioned::new(self)
    }
}

impl<T: Element, F: Fabric> Versioned<T, F> {
    pub(crate) fn new(window: Window<T, F>) -> Self {
        // Every version starts at 0, before the barrier of the window's creation.
        let known = (0..window.world().size()).map(|_| AtomicU64::new(0)).collect();
        Self { window, known }
    }

    /// The number of elements of a rank's window memory; 0 for a rank out of range.
    pub fn len(&self, rank: u32) -> usize {
        self.window.len(rank)
    }

    /// Reads elements as they were at one time between two writes. Does nothing unless waited on or
    /// polled.
    ///
    /// # Errors
    /// When waited on: [`Error::Rank`], [`Error::Range`], [`Error::Operation`], and those of
    /// [`LockRequest::wait`](crate::handles::LockRequest::wait) if it took the lock. The slice may
    /// then hold anything.
    ///
    /// # Cancel safety
    /// A dropped read has changed nothing but, perhaps, the slice.
    pub fn read_into<'b>(&'b self, target: u32, offset: usize, into: &'b mut [T]) -> Request<'b, (), F> {
        let inner = self.window.inner();
        Request::new(Awaited::Target(inner, target), READ, self.run_read((target, offset), into))
    }

    /// Locks a rank's window memory exclusively, to write to it. Does nothing unless waited on or
    /// polled. The same lock as [`Window::lock_exclusive`].
    ///
    /// # Errors
    /// When waited on: those of [`LockRequest::wait`](crate::handles::LockRequest::wait);
    /// [`Error::Operation`], `Unsupported` in a window with
    /// [`LeasePolicy::VersionedCommit`](crate::LeasePolicy::VersionedCommit).
    ///
    /// # Cancel safety
    /// A dropped request leaves nothing locked: the endpoint finishes and releases what was
    /// started.
    pub fn write(&self, target: u32) -> Request<'_, VersionedEpoch<'_, T, F>, F> {
        Request::new(Awaited::Target(self.window.inner(), target), WRITE, self.begin_write(target))
    }

    /// The window, for its other operations. Writes through it are not detected here.
    pub const fn window(&self) -> &Window<T, F> {
        &self.window
    }

    /// Returns the window, for example to close it into the memory that it was created over.
    /// Nothing is posted.
    pub fn into_window(self) -> Window<T, F> {
        self.window
    }

    /// Closes the window on all ranks. Does nothing unless waited on or polled. Collective. See
    /// [`Window::close`].
    ///
    /// # Errors
    /// As [`Window::close`].
    ///
    /// # Cancel safety
    /// Not cancel safe: collective, as a [barrier](onesided_fabric::World::barrier) of the window.
    pub fn close(self) -> Request<'static, (), F> {
        self.window.close()
    }

    async fn run_read(&self, (rank, offset): (u32, usize), into: &mut [T]) -> Result<(), Error> {
        let inner = self.window.inner();
        let fabric = inner.fabric();
        let failed = |fault| inner.failed(READ, rank, fault);
        let target = inner.begin(rank).map_err(failed)?;
        let access: Access<'_, T, F> = Access::new(inner, target);
        let known = &self.known[rank as usize];
        let mut before = known.load(Ordering::Acquire);
        for attempt in 0..ATTEMPTS {
            access.get(offset, into).await?;
            let after = self.version(target).await.map_err(failed)?;
            if after == before {
                return Ok(());
            }
            before = after;
            if is_odd(before) {
                let word = fabric.word_in(&target.locks, VERSION).map_err(failed)?;
                fabric.pause(word, PAUSE << attempt).await;
                before = self.version(target).await.map_err(failed)?;
            }
            if is_odd(before) {
                before = NO_VERSION;
            } else {
                known.store(before, Ordering::Release);
            }
        }
        let epoch = self.window.lock_shared(rank).await?;
        epoch.get(offset, into).await?;
        epoch.unlock_unchanged();
        Ok(())
    }

    async fn begin_write(&self, rank: u32) -> Result<VersionedEpoch<'_, T, F>, Error> {
        let inner = self.window.inner();
        let fabric = inner.fabric();
        let failed = |fault| inner.failed(WRITE, rank, fault);
        let target = inner.begin(rank).map_err(failed)?;
        if inner.locks.commits() {
            // An expired owner and its successor would both write, and both count the version.
            return Err(failed(Fault::of(FaultKind::Unsupported, fabric.rank())));
        }
        let word = fabric.word_in(&target.locks, VERSION).map_err(failed)?;
        let request = self.window.lock_exclusive(rank);
        // Behind the compare-and-swap: the read counts only if that took the lock.
        let early = fabric.read(word);
        let (epoch, at_once) = request.held().await?;
        let version = if at_once { early } else { fabric.read(word) };
        let writing = version.await.map_err(failed)? | 1;
        // The read is not waited for on a network. On shared memory it brings a full fence, which
        // thus stands between the odd version and the data.
        let write = Link::Write { word, value: writing, notify: Notify::No, waited: false };
        drop(fabric.post([write, Link::Read { word, waited: false }]));
        // From here on, a drop makes the version even again.
        let epoch = VersionedEpoch { epoch: Some(epoch.claim()), writing, inner, target };
        if !keeps_order(fabric, target.fabric_rank()) {
            fabric.flush(target.fabric_rank()).await.map_err(failed)?;
        }
        Ok(epoch)
    }

    /// The version of a target, read behind everything that this thread has read before.
    async fn version(&self, target: &Target<F>) -> Result<u64, Fault> {
        let fabric = self.window.inner().fabric();
        let word = fabric.word_in(&target.locks, VERSION)?;
        // As a chain: its reads follow a full fence on shared memory. Elsewhere the earlier reads
        // have been waited for.
        let [version] = fabric.post([Link::Read { word, waited: true }]).await?;
        Ok(version)
    }
}

/// A version that no reader sees: it is odd, and counting does not reach it.
const NO_VERSION: u64 = u64::MAX;

const fn is_odd(version: u64) -> bool {
    version % 2 == 1
}

/// The exclusive lock of a target of a [`Versioned`] window, held to write under. Readers accept
/// nothing of the target before the unlock. A drop unlocks too, but cannot report errors.
///
/// A guard that is dropped because its thread panics publishes nothing and leaves the lock
/// poisoned, as an [`Epoch`] does. Readers get the error too, until the lock is
/// [recovered](crate::handles::LockRequest::recover) through the [window](Versioned::window).
#[must_use = "if unused the lock is released immediately"]
pub struct VersionedEpoch<'w, T: Element, F: Fabric = Any> {
    /// `None` once it is unlocked.
    epoch: Option<Epoch<'w, T, F>>,
    /// The odd version.
    writing: u64,
    inner: &'w Inner<F>,
    target: &'w Target<F>,
}

impl<'w, T: Element, F: Fabric> VersionedEpoch<'w, T, F> {
    fn held(&self) -> &Epoch<'w, T, F> {
        match &self.epoch {
            Some(epoch) => epoch,
            None => unreachable!("only consuming methods take the lock"),
        }
    }

    /// Puts elements. See [`Access::put`].
    ///
    /// # Errors
    /// As [`Access::put`].
    pub fn put(&self, offset: usize, elements: &[T]) -> Result<(), Error> {
        self.held().put(offset, elements)
    }

    /// Gets elements, this rank's own puts included. See [`Access::get`].
    ///
    /// # Errors
    /// As [`Access::get`].
    pub fn get<'s>(&'s self, offset: usize, into: &'s mut [T]) -> Get<'s, T, F> {
        self.held().get(offset, into)
    }

    /// Publishes the data: the even version is posted behind them, as a release.
    fn publish(&mut self) -> Option<Epoch<'w, T, F>> {
        let epoch = self.epoch.take()?;
        match self.inner.fabric().word_in(&self.target.locks, VERSION) {
            Ok(word) => drop(self.inner.fabric().write(word, self.writing.wrapping_add(1), Notify::No)),
            Err(fault) => self.inner.lifecycle.defer(self.inner.failed("unlock", self.target.rank, fault)),
        }
        Some(epoch)
    }

    /// Publishes what was put and unlocks. Completes when everything is complete at the target and
    /// the release is posted. Does nothing unless waited on or polled; a drop then unlocks.
    ///
    /// # Errors
    /// As [`Epoch::unlock`].
    ///
    /// # Cancel safety
    /// As [`Unlock`].
    pub fn unlock(mut self) -> Unlock<'w, T, F> {
        let (inner, target) = (self.inner, self.target);
        Unlock::new(inner, target, self.publish().map(Epoch::poisoning_nothing))
    }
}

impl<T: Element, F: Fabric> Drop for VersionedEpoch<'_, T, F> {
    fn drop(&mut self) {
        // The version of a half-written record stays odd: readers take the lock.
        if self.epoch.as_ref().is_some_and(|epoch| !epoch.holding().is_half_done()) {
            drop(self.publish());
        }
    }
}

debug!([T, F: Fabric] Versioned<T, F>, |this| "versioned {:?}", this.window);

debug!([T: Element, F: Fabric] VersionedEpoch<'_, T, F>, |this| "write lock of {:?}", this.target);
