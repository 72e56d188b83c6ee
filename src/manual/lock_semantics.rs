//! What every lock promises, and how the designs differ.
//!
//! The window memory of every rank has a lock. Its design is the window's ([choosing a
//! lock](super::choosing_a_lock)). What this page says of a window's lock holds for the locks of a
//! [`LockTable`](crate::LockTable), a [`Mutex`](crate::Mutex) and an [`RwLock`](crate::RwLock),
//! too, unless it says otherwise.
//!
//! # Acquire and release
//!
//! - [`lock_exclusive`](crate::Window::lock_exclusive) excludes all other owners.
//!   [`lock_shared`](crate::Window::lock_shared) admits others that lock shared. Both have posted
//!   their first operation when they return. `.wait()` blocks, `.await` does not, `.test()` polls.
//! - [`try_lock_exclusive`](crate::Window::try_lock_exclusive) and
//!   [`try_lock_shared`](crate::Window::try_lock_shared) return after a few operations, with the
//!   lock or without.
//! - `.deadline()` cancels a request after a time, and dropping a request cancels it at any point.
//!   The library finishes the operations in flight, and releases the lock if they took it. With
//!   `mcs`, tickets and counters a cancelled request may keep its place in the order until its
//!   turn, and is then passed over.
//! - What was done under the lock is visible to its next owner: see [memory
//!   model](super::memory_model#order).
//! - [`Epoch::unlock`](crate::Epoch::unlock) consumes the guard, and a dropped guard is unlocked.
//!   So a program cannot release a lock that it does not hold. A leaked guard leaves the target
//!   locked.
//! - Several threads of a rank may lock at once, and one thread may hold many locks. A rank may
//!   hold or wait for at least 1024 locks of a window at a time, and more if
//!   [`lock_slots`](crate::Builder::lock_slots) says so. A request beyond that fails with
//!   [`NoSlot`](crate::FaultKind::NoSlot), because waiting for a free slot could deadlock.
//!
//! # Deadlocks
//!
//! **With a fair lock, take locks in a fixed order.** A rank that holds the lock of one target and
//! asks for that of another, shared or exclusive, may wait behind a writer that waits for the
//! first. So take locks in the order of the ranks, and ask for each when the one before is held:
//! **a request that is under way counts as taken**, because it may get its lock before it is waited
//! for.
//!
//! ```
//! # use onesided::{Error, Mode, Window};
//! # onesided::threads(2, |world| {
//! # let window = Window::<u64>::allocate(&world, 8).wait()?;
//! // Two ranks that do this may each have one of the two locks, and wait for the other:
//! // let (a, b) = (window.lock_exclusive(0), window.lock_exclusive(1)); (a.wait()?, b.wait()?)
//! let guards = window.lock_many(&[0, 1], Mode::Exclusive).wait()?;
//! # drop(guards);
//! # window.close().wait()?;
//! # Ok(()) })?;
//! # Ok::<(), Error>(())
//! ```
//!
//! [`Window::lock_many`](crate::Window::lock_many) and
//! [`LockTable::lock_many`](crate::LockTable::lock_many) order and wait, with every design.
//! [`lock_all`](crate::Window::lock_all) does so by default with the fair designs. Requests that
//! wait for each other show as a circle in the [report of a hang](super::hangs).
//!
//! Fair in this sense is every design but `test-and-set` and `two-level`: their readers never wait
//! behind waiting writers, so with them only exclusive locks need an order.
//!
//! A rank that asks for an exclusive lock that it holds waits for itself, up to its deadline.
//! Another thread of the rank may hold it, so the library cannot tell.
//!
//! # The designs
//!
//! | [`LockDesign`](crate::LockDesign) | order of owners | readers | a waiter |
//! |---|---|---|---|
//! | `test-and-set` | none: the first attempt after a release wins | join readers, even while a writer waits | retries with exponential backoff |
//! | `mcs` | first come, first served | consecutive readers share; they wait behind a writer that came before | sleeps on a word of its own; one write wakes it |
//! | `ticket` | first come, first served | as `mcs` | reads the lock word, paced by the number of ranks ahead |
//! | `fetch-add-queue` | first come, first served | as `mcs` | sleeps on a word of its own, if at most 16 writers and 16 readers wait; others read the lock word |
//! | `distributed-counters` | first come, first served among waiters | join readers until a writer has set the flag at their rank | as `ticket`; a writer also reads the readers' counters |
//! | `two-level` | on a host first come, first served, and at most 8 owners in a row; between hosts none | join readers, even while a writer waits | on its host: reads a word there by the CPU; between hosts: retries |
//! | `dedicated-thread`, `event-thread` | the order in which the thread receives requests | as `mcs` | sleeps on a word of its own; the thread at the target answers |
//!
//! With `two-level` a rank may also reuse its host's turn without queueing, at most 128 times in a
//! row.
//!
//! | design | acquire and release of a free lock | words at the target | words at the origin for each lock that it holds or waits for | source |
//! |---|---|---|---|---|
//! | `test-and-set` | a compare-and-swap, and a write that is not waited for (cards: a second compare-and-swap); shared: a compare-and-swap and a fetch-add | 1 | 1, for shared locks | jiang-2004, 5.1 |
//! | `mcs` | two compare-and-swaps; shared: a compare-and-swap and a fetch-add | 2 | 3 | jiang-2004, 5.2, after Mellor-Crummey and Scott 1991 |
//! | `ticket` | two fetch-adds | 2 | 1 | DSLR (SIGMOD 2018), section 4 |
//! | `fetch-add-queue` | two fetch-adds | 34 | 2 | DecLock (arXiv 2505.17641) |
//! | `distributed-counters` | shared: two fetch-adds in the origin's own memory; exclusive: one at the target, two at every rank | 3, and 1 at every rank | 1 | RMA-RW (HPDC 2016) |
//! | `two-level` | two compare-and-swaps; shared: a compare-and-swap and a fetch-add | 1, and 3 at a rank of each host | 3 | HOCL (SIGMOD 2022), ALock (SPAA 2024), Fissile locks (NETYS 2020) |
//! | `dedicated-thread`, `event-thread` | two writes and an answer; two writes that are not waited for | 5, and 8 to 64 cache lines for each rank | 3 | jiang-2004, 4.1 and 4.2 |
//!
//! jiang-2004 is Jiang et al., *Efficient Implementation of MPI-2 Passive One-Sided Communication
//! on InfiniBand Clusters* (EuroPVM/MPI 2004). The shared modes of its locks are this library's.
//!
//! - `two-level` gains nothing on a single host, nor where the CPU does not reach the ranks of its
//!   own host (`verbs`).
//! - `dedicated-thread` occupies a core of each rank's host. `event-thread` costs nothing while
//!   idle, and a request wakes it. Both have variants with a thread for each window
//!   (`-per-window`). Their locks wait for the thread where the target's cores are busy, and end
//!   with their rank: waiters get an error. A rank holds or waits for at most 8 (in large worlds)
//!   to 64 locks of one target at a time; further requests wait. They cancel best: a cancelled
//!   request leaves the queue immediately.
//! - [`LockDesign`](crate::LockDesign) says more of each. [`Window::info`](crate::Window::info) and
//!   [`Window::explain`](crate::Window::explain) report what a window has.
//!
//! # Locking all targets
//!
//! [`lock_all`](crate::Window::lock_all) takes a shared lock on the window memory of every rank, in
//! one of three ways that work with every design. [`Builder::lock_all`](crate::Builder::lock_all)
//! or `ONESIDED_LOCK_ALL` chooses.
//!
//! | [`LockAllDesign`](crate::LockAllDesign) | `on-demand` | `each-target` | `global` |
//! |---|---|---|---|
//! | default with | `test-and-set`, `two-level` | the other designs | |
//! | locks a target | when the program first [accesses](crate::LockAll::at) it | in `lock_all`, in the order of the ranks | in `lock_all`, by one word at rank 0 |
//! | `lock_all` and `unlock_all` with `P` targets, `R` of them accessed, cost | `R` shared locks | `P` shared locks | two fetch-adds |
//! | an exclusive lock costs in addition | nothing | nothing | two fetch-adds at rank 0 |
//! | excludes writers of | the accessed targets | all targets | all targets |
//! | a writer that holds several locks, taken in the order of the ranks | may deadlock with a `lock_all` | goes on | goes on |
//! | fairness between `lock_all` and exclusive locks | the design's | the design's | alternating, see below |
//! | the death of a rank affects | the lock of that target | the lock of that target: if it was held exclusively, every `lock_all` fails | if it is rank 0: all locks except shared ones of other targets, where its memory is gone with it |
//!
//! **On demand, targets are locked in the order in which the program accesses them.** So it may
//! deadlock if a writer holds several locks, or one beside a `lock_all`; and, with a fair lock, if
//! two ranks access targets in different orders while others write. Such programs choose
//! `each-target` or `global`, or access targets in the order of the ranks.
//!
//! **Global** follows the two levels of foMPI (SC 2013): an exclusive lock announces itself at rank
//! 0, and retracts with its release. `lock_all` and exclusive locks alternate: while a request of
//! one kind waits, no new request of the other kind passes it. There is an exception, which
//! prevents deadlocks. A request passes the waiters if its thread already holds a lock of the
//! window, or if no rank has released for 100 ms. So locks that are taken in an order cannot form a
//! cycle, not even across windows. The price: exclusive locks that are held for longer than 100 ms,
//! overlapping without a gap, keep `lock_all` waiting.
//!
//! A rank that dies inside `lock_all` poisons nothing. A rank that dies with an exclusive lock is
//! recorded by the lock of the target, and with `global` also by the word at rank 0, where a
//! `lock_all` finds it after the [suspicion timeout](super::death_and_leases). From then on every
//! exclusive lock and every `lock_all` of the window fails, until one
//! [recovers](super::death_and_leases) an exclusive lock.
//!
//! # Lock tables
//!
//! A [`LockTable`](crate::LockTable) has locks without memory of their own, each at some rank, up
//! to millions. They take only the words at the target, and share one set of slots. Designs with
//! words at every rank or host, or with a thread, are not for tables. The program flushes what it
//! puts under such a lock before it unlocks.
//!
//! # Below the guards
//!
//! In [`onesided_lock_algos`] an owner is a number. There the queue, the tickets and
//! [`TestAndSet::checked`](crate::lock_algos::TestAndSet::checked) detect a release by an owner
//! that does not hold the lock (`NotHeld`). Plain test-and-set, which windows use behind their
//! guards, releases by a write, which detects nothing. Only checked test-and-set verifies the mode
//! of a release.
