//! Locks whose owner died, left, panicked, lost its connection, or is too slow.
//!
//! # Death
//!
//! **A lock whose exclusive owner died is poisoned.** Once the death is detected, every request for
//! the lock fails with an error that names the failed rank
//! ([`is_poisoned`](crate::Error::is_poisoned)), until a request with `.recover()` takes the lock.
//! The recovering owner holds it exclusively, and [`previous_owner`](crate::Epoch::previous_owner)
//! names the failed rank. After its unlock the lock is an ordinary lock again. A
//! [try](crate::Window::try_lock_exclusive) that meets another rank's request gives `None`, as of a lock that
//! is taken: ask again.
//!
//! ```
//! # use onesided::{Error, Window};
//! # fn repair(_: &onesided::Epoch<'_, u64, onesided::Any>) -> Result<(), Error> { Ok(()) }
//! # onesided::threads(2, |world| {
//! # let scores = Window::<u64>::allocate(&world, 8).wait()?;
//! let epoch = scores.lock_exclusive(1).recover().wait()?;
//! if let Some(previous) = epoch.previous_owner() {
//!     eprintln!("{previous}"); // rank 3 died while it held the lock
//!     repair(&epoch)?;
//! }
//! epoch.unlock().wait()?;
//! # scores.close().wait()?;
//! # Ok(()) })?;
//! # Ok::<(), Error>(())
//! ```
//!
//! A robust mutex of POSIX reports a death once, to the next owner. Here the lock stays poisoned,
//! because half-written data affects every rank. If one survivor got the error and then ended on
//! it, the others would go on with data that no rank has checked. So the default cannot be
//! overlooked. A program that can repair the data, or needs no repair, says so with `.recover()`.
//!
//! **A dead reader poisons nothing**, because it has changed nothing. The next owner gets the lock
//! as after any other reader, once the death is detected.
//!
//! | design | after the death of an exclusive owner the error comes | and says | a rank that died waiting |
//! |---|---|---|---|
//! | `test-and-set` | immediately | `rank 3 died while it held the lock` | has no effect |
//! | `two-level` | immediately if the owner did not queue at its host, else within tens of milliseconds, or after a second | the same, or `may have held` | as a writer: counts as one that may have held the lock |
//! | `mcs` | within about ten milliseconds | `rank 3 died, and may have held the lock` | counts as one that may have held the lock |
//! | `ticket`, `fetch-add-queue`, `distributed-counters` | within tens of milliseconds on shared memory, after a second over cards | the same | as a writer: counts as one that may have held the lock |
//! | `dedicated-thread`, `event-thread` | within tens of milliseconds | `rank 3 died while it held the lock` | has no effect |
//!
//! [`PreviousOwner`](crate::PreviousOwner) says `Owner(3)` for "died while it held the lock", and
//! `Participant(3)` for "may have held".
//!
//! "Immediately" begins when the death is known: on the rank's host within milliseconds; on other
//! hosts see [failures](super::failures#failure-detection). Where the table says "may have held",
//! the lock's words do not tell an owner from a waiter.
//! `onesided bench locks --lock all --metric recovery` measures the times.
//!
//! *Why a second.* Readers and tickets are counts, which name no rank. When a rank has died, and no
//! rank has released for a second since, a waiter compares the count with the living owners. It
//! waits for 10 ms only if the dead rank's memory can still be read and shows that the rank used
//! this lock. If the living owners are fewer, new requests are turned away until no living rank
//! holds the lock or waits for it. Then the lock is free if only readers are missing, and poisoned
//! otherwise. The death of a rank that holds nothing changes nothing: holders may take as long as
//! they like, and waiters keep their order.
//!
//! # Ranks that leave
//!
//! A rank that has left in order, and holds an exclusive lock still because its guard was leaked
//! ([`std::mem::forget`], a reference cycle), poisons the lock as a dead one does, in the same time.
//! The error says so: `rank 3 left while it held the lock`, or `rank 3 left, and may have held the
//! lock` ([`PreviousOwner::OwnerLeft`](crate::PreviousOwner::OwnerLeft),
//! [`ParticipantLeft`](crate::PreviousOwner::ParticipantLeft)). Leaked guards of readers, `lock_all`
//! among them, poison nothing. A rank that leaves and holds nothing changes nothing.
//!
//! # Panics
//!
//! **An exclusive guard that is dropped because its thread panics leaves the lock poisoned**, as a
//! [`std::sync::MutexGuard`] does. That holds for an [`Epoch`](crate::Epoch), also inside a
//! [`TableGuard`](crate::TableGuard) or a [`VersionedEpoch`](crate::VersionedEpoch), which then
//! publishes nothing. Requests fail with [`OwnerPanicked`](crate::FaultKind::OwnerPanicked), which
//! names the rank, until one recovers the lock and learns of it
//! ([`PreviousOwner::Panicked`](crate::PreviousOwner::Panicked)). The rank may live on; its own
//! requests fail as well.
//!
//! A panic poisons nothing under
//!
//! - a shared guard, a request, or a guard whose `unlock` has begun;
//! - a guard that a destructor made while the stack was unwinding already;
//! - the guards of [`Mutex`](crate::Mutex) and [`RwLock`](crate::RwLock), which then do not write
//!   the value back, and [`Locked::update`](crate::Locked::update), which then puts nothing.
//!
//! # Lost connections
//!
//! A rank that lives but has lost its connection to the lock's rank counts as dead for that lock,
//! and for no other: see [failures](super::failures#lost-connections).
//!
//! # Fencing tokens
//!
//! [`fencing_token`](crate::Epoch::fencing_token) of a guard draws a number that is larger than all
//! numbers drawn before under the same lock. A request with `.fenced()` draws it in the same round
//! trip as the acquire. Fencing tokens are for systems that can refuse late requests by that
//! number: a file, a database, another process.
//!
//! Draw the token while the lock is certainly held. An owner that was taken for dead and draws late
//! would get a larger number than the recovering owner. (With `VersionedCommit`, below, that is an
//! error.)
//!
//! # Leases
//!
//! An owner that is stopped or swapped out is alive. By default its lock is not taken, however long
//! it is stopped. Where that is not acceptable, the window is built with a
//! [`lease_policy`](crate::Builder::lease_policy): a lease, and what happens after it. A lease
//! alone is not enough, because a stopped owner that continues does not know that it was stopped.
//!
//! | [`LeasePolicy`](crate::LeasePolicy) | a waiter, after the lease | protection against the previous owner |
//! |---|---|---|
//! | no policy | waits | |
//! | `VersionedCommit` | takes the lock over, and is informed ([`PreviousOwner::LeaseExpired`](crate::PreviousOwner::LeaseExpired)) | its [`commit`](crate::Epoch::commit) and its unlock fail ([`WindowError::Late`](crate::WindowError::Late)). Its puts are not stopped: write data to a place that is read only after the commit |
//! | `Kill` | kills the owner's process; the lock is then poisoned, as after any death | it is dead |
//! | `Revoke` | has the target close the owner's connection; the lock is then poisoned ([`PreviousOwner::LeaseExpired`](crate::PreviousOwner::LeaseExpired)) | nothing passes between it and the target any more, in any window ([`is_revoked`](crate::WindowError::is_revoked)), until one of them leaves |
//!
//! - Policies need test-and-set, whose word names its owner. `Kill` needs processes of one host on
//!   `shm`; `Revoke` needs cards (`verbs`) or the simulator.
//! - Shared locks have no lease.
//! - A waiter measures the lease from when it first saw the owner. The owner should check
//!   [`lease_left`](crate::Epoch::lease_left) after every wait.
//! - In a window with a policy every exclusive lock takes a [slot](crate::Builder::lock_slots), and
//!   its release is a compare-and-swap.
