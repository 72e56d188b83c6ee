//! The locks that windows have, and what each promises.
//!
//! The window memory of every rank has a lock. [`Builder::lock`](crate::Builder::lock) chooses the
//! lock's design for a window. `ONESIDED_LOCK` names the design of windows whose builder names
//! none. [`info`](crate::Window::info) and [`explain`](crate::Window::explain) report it. If the
//! ranks do not agree on it, all of them get [`Mismatch`](onesided_windows::Error::Mismatch).
//! `onesided bench locks --lock all` shows the designs side by side.
//!
//! | | [`TestAndSet`](crate::LockDesign::TestAndSet) | [`Mcs`](crate::LockDesign::Mcs) | [`Ticket`](crate::LockDesign::Ticket) | [`FetchAddQueue`](crate::LockDesign::FetchAddQueue) | [`DistributedCounters`](crate::LockDesign::DistributedCounters) | [`TwoLevel`](crate::LockDesign::TwoLevel) | [`DedicatedThread`](crate::LockDesign::DedicatedThread), [`EventThread`](crate::LockDesign::EventThread) |
//! |---|---|---|---|---|---|---|---|
//! | name | `test-and-set` (or `tas`) | `mcs` | `ticket` | `fetch-add-queue` | `distributed-counters` | `two-level` | `dedicated-thread`, `event-thread`; each with `-per-window` for one thread per window |
//! | source | jiang-2004, section 5.1; the shared mode is this library's | jiang-2004, section 5.2; Mellor-Crummey and Scott 1991; the shared mode is this library's | DSLR (Yoon, Chowdhury, Mozafari, SIGMOD 2018), section 4 | DecLock (arXiv 2505.17641), on the tickets of DSLR | RMA-RW (Schmid, Besta, Hoefler, HPDC 2016), on the tickets of DSLR | HOCL (Wang, Lu, Shu, SIGMOD 2022) and ALock (Baran et al., SPAA 2024), on the tickets of DSLR, with the fast path of Fissile locks (Dice, Kogan, NETYS 2020) | jiang-2004, sections 4.1 and 4.2 |
//! | words at the target | 1 | 2 | 2 | 34 | 3, and one at every rank | 1, and three at a rank of each host | 5, and 8 to 64 lines for each rank |
//! | words at the origin for each lock that it waits for or holds | 1, for shared locks | 3 | 1 | 2 | 1 | 3 | 3 |
//! | uncontended lock and unlock | a compare-and-swap, and a write that is not waited for (on RDMA cards a compare-and-swap; shared: a fetch-add) | two compare-and-swaps (shared: fetch-adds) | two fetch-adds | two fetch-adds | shared: two fetch-adds in the origin's own memory; exclusive: one fetch-add at the target and two at every rank | two compare-and-swaps at the target (shared: fetch-adds); if the lock is taken, also a ticket and its return in the host-local words, by the CPU | two writes for the request, one for the answer; two writes for the release, not waited for |
//! | a waiter | retries with exponential backoff | sleeps on a word of its own; one write hands over | reads the lock word, paced by the number of ranks ahead | makes an entry with one write and sleeps on a word of its own; one write hands over, to an owner or to each of a run of readers | as with tickets; a writer that waits for readers reads their counters | on its host: reads a host-local word by the CPU, paced by the number of ranks ahead; between hosts: as test-and-set | sleeps on a word of its own; the thread at the target answers |
//! | fairness | none: the first attempt after a release wins | first come, first served; consecutive readers share the lock | the same | the same | first come, first served among waiters | on a host first come, first served, but a rank can reuse its biased slot at most 32 times in a row, and a host keeps the lock for at most 8 hand-overs in a row; between hosts none | the order in which the thread receives the requests; consecutive readers share the lock |
//! | readers | join readers, even while a writer waits | wait behind a writer that came before | the same | the same | join readers until a writer has set the flag at their rank, then wait behind it | join readers, even while a writer waits | wait behind a writer that came before |
//! | when an exclusive owner dies | the lock word names it | any waiter behind it detects it, but cannot tell whether it held the lock | a count, which names no rank | as with tickets | as with tickets | the next waiter, of its host or another, detects it; the cohort owner word names a host, the lock word an owner that did not queue | the thread names it |
//!
//! Test-and-set is the default. It is the cheapest while a lock is free, which most locks are most
//! of the time. The queue is for locks that many ranks want at once and for long: every waiter gets
//! its turn, and no waiter polls over the network. With more ranks than cores (oversubscribed) a
//! queue is slow, because the next owner has to be scheduled before it can go on.
//!
//! Tickets are a queue in one word. They are as fair, and an acquire is one operation however many
//! ranks wait. But waiters poll, and a cancelled acquire keeps its place behind the ranks that came
//! before it.
//!
//! The queue by fetch-add has both advantages: an acquire is one operation, and waiters do not
//! poll, as long as at most 16 writers and 16 readers wait. Further waiters poll, in the same
//! order.
//!
//! Distributed counters are for locks that are mostly read. Readers of different ranks touch no
//! common word, and a reader's lock costs the same wherever the target is. A writer pays for that,
//! with two operations at every rank.
//!
//! The two-level lock is for many ranks on few hosts that RDMA cards connect. The ranks of a host
//! hand the lock over among themselves by the CPU, and the target's card serves one of them at a
//! time. It gains nothing on a single host, and nothing on a fabric where the CPU does not reach
//! the ranks of its own host (`verbs`).
//!
//! The threads of jiang-2004, section 4, are included for comparison. A thread at the target
//! answers every request. It polls (`dedicated-thread`, which occupies a core of each rank's host)
//! or sleeps (`event-thread`, which costs nothing while idle, and which a request wakes). So these
//! locks cost many times what the others do, and wait for the thread where the target's cores are
//! busy. In return the lock is as simple as a queue in one program: a cancelled acquire leaves the
//! queue immediately, and a dead owner is named. When a target's window is dropped or its rank
//! ends, its waiters get an error. A rank holds or waits for at most 8 (in large worlds) to 64
//! locks of one target at a time; further requests wait for one of these.
//!
//! **With a queue or tickets, take locks in a fixed order.** A rank that holds one target's lock
//! and asks for another's, shared or exclusive, may wait behind a writer that waits for the first.
//! So take locks in the order of the ranks, as [`lock_all`](crate::Window::lock_all) does by
//! default with these designs.
//!
//! # Locking all targets
//!
//! [`lock_all`](crate::Window::lock_all) takes a shared lock on the window memory of every rank, in
//! one of three ways. [`Builder::lock_all`](crate::Builder::lock_all) or `ONESIDED_LOCK_ALL`
//! chooses. Each way works with every design above.
//!
//! - [`OnDemand`](crate::LockAllDesign::OnDemand): a target is locked once, when the program first
//!   [accesses](crate::LockAll::at) it, and `lock_all` itself costs nothing. Most MPI libraries do
//!   this. It is the default where the lock lets readers join readers.
//! - [`EachTarget`](crate::LockAllDesign::EachTarget): `lock_all` takes the lock of each target, in
//!   the order of the ranks.
//! - [`Global`](crate::LockAllDesign::Global): one fetch-add at rank 0, and one to unlock, whatever
//!   the number of ranks, after the two levels of foMPI (Gerstenberger, Besta, Hoefler, SC 2013).
//!   In return every exclusive lock of a target first announces itself at rank 0 with one more
//!   operation, and retracts with another. Shared locks of a target cost the same as before.
//!
//! | | `on-demand` | `each-target` | `global` |
//! |---|---|---|---|
//! | `lock_all` and `unlock_all` with `P` targets, `R` of them accessed | as `R` shared locks | as `P` shared locks | two fetch-adds |
//! | an exclusive lock costs | what the design costs | what the design costs | in addition two fetch-adds at rank 0 |
//! | a shared lock costs | what the design costs | what the design costs | what the design costs |
//! | excludes | writers of targets that were accessed | all writers | all writers |
//! | waits for | the writer of a target, when the program accesses it | the writers, one after the other | the writers, once |
//! | a writer that holds several locks, taken in the order of the ranks | may deadlock with a `lock_all` | goes on | goes on |
//! | fairness between `lock_all` and exclusive locks | that of the design | that of the design | alternating: while one kind waits, no new lock of the other kind passes it, with the exception below |
//! | when a rank dies | affects the lock of that target | affects the lock of that target: if it was held exclusively, every `lock_all` fails | if it is rank 0: affects all locks except shared ones of other targets, where its memory is gone with it |
//!
//! **On demand, targets are locked in the order in which the program accesses them.** So there is
//! no guarantee of progress for a rank that holds a lock and waits for another: writers that hold
//! several locks, or one beside a `lock_all`; and, with a lock that makes readers wait behind
//! writers, any two ranks that access targets in different orders while others write. Such programs
//! choose `each-target` or `global`, or access targets in the order of the ranks. With those
//! designs `each-target` is the default.
//!
//! With `global`, bounded admission prevents deadlocks. A rank may hold a lock and ask for another
//! one, while a waiting `lock_all` needs the first to be released. Such a request passes the
//! waiters if its thread already holds a lock of the same window; otherwise it passes them when no
//! rank has released for 100 ms. So locks that are taken in an order cannot form a cycle, not even
//! across windows. The price: exclusive locks that are held for longer than 100 ms, overlapping
//! without a gap, keep `lock_all` waiting.
//!
//! A rank that dies inside `lock_all` poisons nothing. Two words may record the death of a rank
//! that held an exclusive lock: the lock of the target, as its design does, and the lock-all word
//! at rank 0. The lock-all word is a participant count, and its suspicion timeout is a second. Only
//! a `lock_all` finds the death there. From then on every exclusive lock and every `lock_all` of
//! the window fails, until an exclusive lock is acquired with
//! [`recover`](crate::handles::LockRequest::recover). A panic under an exclusive lock poisons both at once.
//!
//! # Which lock for which load
//!
//! - **Few ranks contend, or fairness does not matter**: test-and-set. On one host it is also the
//!   fastest under contention, because the rank that has just released it acquires it again before
//!   another has looked. So some ranks starve, and a waiter sleeps out its backoff after a long
//!   hold.
//! - **Many ranks of one host contend and all must get their turn**: the queue or tickets, if there
//!   is a core for each rank. With more ranks than cores any fair lock costs a context switch for
//!   each acquisition.
//! - **Many origins contend over a network**: a lock whose acquire is one fetch-add (tickets, the
//!   queue by fetch-add). The queue of Mellor-Crummey and Scott hands over with one message and is
//!   the fastest while about ten ranks contend. But its exchange is emulated by compare-and-swap,
//!   because RDMA cards have no exchange, and the attempts of arriving ranks grow with their number
//!   (section 6.4 of jiang-2004 saw it with 7).
//! - **Many ranks of one host contend with those of other hosts**: the two-level lock.
//! - **Programs with many ranks lock whole windows**:
//!   [`LockAllDesign::Global`](crate::LockAllDesign::Global), above.
//! - **Owners may die and recovery must be fast**: test-and-set or the queue, which detect it in
//!   milliseconds. Counts of readers and of tickets (the two-level lock has some) name no rank, and
//!   take a second.
//!
//! Between processes of one host (`onesided bench locks --lock all --metric
//! contended,wait,messages,readers,section,cpu --picture FILE.svg`):
//!
#![doc = include_str!("../../docs/locks.svg")]
//!
//! In simulation, where each rank has a card and is a microsecond away
//! (`onesided bench scale --picture FILE.svg`). Where a curve turns down, the lock stops scaling.
//! With 100,000 origins (`--origins 100000`, not drawn) the rank that has the lock is the
//! bottleneck, whatever the design: all origins begin at once, and for the simulated 0.2 s each
//! release waits behind the others' requests. The exception is the two-level lock, whose waiters
//! read host-local words: an hour does not suffice to simulate it.
//!
#![doc = include_str!("../../docs/scale.svg")]
//!
//! The length of the critical section, the share of readers and the number of locks matter more
//! than any of this. Measure with the program's own figures (`onesided bench locks --help`), or
//! measure a lock of your own with `onesided_lock_kit::bench`.
//!
//! # Acquiring a lock
//!
//! - [`lock_exclusive`](crate::Window::lock_exclusive) and
//!   [`lock_shared`](crate::Window::lock_shared) have sent their first operation when they return.
//!   `.wait()` blocks, `.await` does not, `.test()` polls.
//! - [`try_lock_exclusive`](crate::Window::try_lock_exclusive) and
//!   [`try_lock_shared`](crate::Window::try_lock_shared) return after a few operations, with the
//!   lock or without.
//! - [`deadline`](crate::handles::LockRequest::deadline) cancels the acquire after a time. A request may
//!   also be dropped at any point. In a queue a cancelled acquire keeps its place until its turn
//!   comes; the endpoint then hands the lock on.
//! - Several threads of a rank may lock at once, and one thread may hold many locks. A rank
//!   may have at least 1024 locks of a window at a time, held or waited for, and more if
//!   [`lock_slots`](crate::Builder::lock_slots) says so. A request beyond that fails with
//!   [`NoSlot`](crate::FaultKind::NoSlot): to wait for a free slot could deadlock.
//!
//! # Death of an owner
//!
//! **A lock whose exclusive owner died is poisoned.** Every acquire of it fails immediately, with
//! an error that names the failed rank ([`is_poisoned`](crate::Error::is_poisoned)), until a rank
//! acquires it with [`recover`](crate::handles::LockRequest::recover). The recovering owner holds the lock
//! exclusively, and [`previous_owner`](crate::Epoch::previous_owner) names the failed rank. After
//! its unlock the lock is an ordinary lock again.
//!
//! ```
//! # use onesided::{Error, Window};
//! # fn repair(_: &onesided::Epoch<'_, u64, onesided::Any>) -> Result<(), Error> { Ok(()) }
//! # fn main() -> Result<(), Error> {
//! # for outcome in onesided::threads(2, |world| -> Result<(), Error> {
//! # let scores = Window::<u64>::allocate(&world, 8).wait()?;
//! let epoch = scores.lock_exclusive(1).recover().wait()?;
//! if let Some(previous) = epoch.previous_owner() {
//!     eprintln!("{previous}"); // rank 3 died while it held the lock
//!     repair(&epoch)?;
//! }
//! epoch.unlock().wait()?;
//! # scores.close().wait()?;
//! # Ok(()) })? { outcome?; }
//! # Ok(())
//! # }
//! ```
//!
//! **A dead reader poisons nothing**, because it has changed nothing. The next owner gets the lock
//! as after any other reader, once the death is detected.
//!
//! A robust mutex of POSIX reports the death to the next owner only. Here the lock stays poisoned,
//! because data that the failed rank left half written affects every rank. If one survivor got the
//! error and the lock were then free again, the others would go on with data that no rank has
//! checked, and the survivor that knew may have ended on that error. So the default cannot be
//! overlooked. A program that can repair the data, or that needs no repair, says so with `recover`.
//!
//! Detection: a rank's death is known on its host within milliseconds; for other hosts see
//! [failures](super::failures). Test-and-set then reports a dead exclusive owner immediately, the
//! queue within about ten milliseconds. Readers and tickets are counts, which name no rank. When
//! some rank has died and no rank has released for a second since, a waiter compares the count with
//! the living owners. If these are fewer, arrivals are turned away until no living rank holds the
//! lock or waits for it. Then the lock is free if readers alone are missing, and poisoned
//! otherwise. The death of a rank that holds nothing therefore changes nothing: holders may take as
//! long as they like, and the order of waiters is kept. A rank that died *waiting* has no effect
//! with test-and-set, nor if it waited as a reader (except with the queue); with the other designs one
//! that waited for the exclusive lock counts as if it may have held it.
//!
//! # Panics
//!
//! **An exclusive guard that is dropped because its thread panics leaves the lock poisoned**, as a
//! [`std::sync::MutexGuard`] does: what it protects may be half written. That holds for an
//! [`Epoch`](crate::Epoch), also inside a [`TableGuard`](crate::TableGuard) or a
//! [`VersionedEpoch`](crate::VersionedEpoch), which then publishes nothing. Acquires fail with
//! [`OwnerPanicked`](crate::FaultKind::OwnerPanicked), which names the rank, until one recovers the
//! lock and learns of it ([`PreviousOwner::Panicked`](crate::PreviousOwner::Panicked)). The rank
//! may live on, and its own acquires fail as well.
//!
//! A panic poisons nothing under
//!
//! - a shared guard, a request, or a guard whose `unlock` has begun;
//! - a guard that a destructor made while the stack was unwinding already;
//! - the guards of [`Mutex`](crate::Mutex) and [`RwLock`](crate::RwLock), which then do not write
//!   the value back, and [`Locked::update`](crate::Locked::update), which then puts nothing.
//!
//! A rank that lives but has lost its connection to the lock's rank counts as dead for that lock,
//! and for no other: see [lost connections](super::failures#lost-connections).
//!
//! # Releases by a rank that does not hold the lock
//!
//! The guards make them impossible. An [`Epoch`](crate::Epoch) is a lock that is held, its unlock
//! consumes it, and a leaked guard leaves the target locked. Below the guards, in
//! [`onesided_lock_algos`], an owner is a number. An owner that does not hold the lock gets
//! `NotHeld` and changes nothing. The queue and the tickets detect it by the owner's node, whatever
//! the word says. Test-and-set with [`TestAndSet::checked`](crate::lock_algos::TestAndSet::checked)
//! also tells one acquire of an owner from the next, by the generation in its word. Plain
//! test-and-set releases by a write, which detects nothing; windows use it, behind their guards.
//! Only checked test-and-set verifies the mode of a release; the other designs trust the caller.
//!
//! # Many locks
//!
//! A [`LockTable`](crate::LockTable) has locks without memory of their own: a million of them, each
//! at some rank, where it takes the words that its design needs at the target: 8 bytes with
//! test-and-set, 16 with a queue or tickets, 272 with the queue by fetch-add. Tables do not support
//! designs with words at every rank or each host, nor those that a thread serves. A lock of a table
//! has everything that a window's lock has. The locks of a table share one set of queue nodes. The
//! program flushes what it puts under such a lock before it unlocks.
//!
//! # Fencing tokens
//!
//! [`fencing_token`](crate::Epoch::fencing_token) draws a number that is larger than all numbers
//! drawn before under the same lock. [`fenced`](crate::handles::LockRequest::fenced) draws it in the same
//! round trip as the acquire. Fencing tokens are for systems that can refuse late requests: a file,
//! a database, another process. Draw the token while the lock is certainly held. An owner that was
//! taken for dead and draws late would get a larger number than the recovering owner (with
//! `VersionedCommit`, below, that is an error).
//!
//! # Expired leases
//!
//! An owner that is stopped or swapped out is alive: by default its lock is not taken, however long
//! it is stopped. A window for which that is not acceptable is built with a
//! [`lease_policy`](crate::Builder::lease_policy): a policy and a lease. A lease alone is not
//! enough, because a stopped owner that continues does not know that it was stopped.
//!
//! | [`LeasePolicy`](crate::LeasePolicy) | what happens after the lease | what protects against the previous owner | works with |
//! |---|---|---|---|
//! | `None` | nothing: the lock recovers from death, not from delay | | every design |
//! | `VersionedCommit` | a waiter takes the lock over and is informed ([`PreviousOwner::LeaseExpired`](crate::PreviousOwner::LeaseExpired)) | [`commit`](crate::Epoch::commit) is a compare-and-swap on a versioned word: the previous owner's fails ([`WindowError::Late`](crate::WindowError::Late)), and so does its unlock. Its puts are not stopped: write data to a place that is read only after the commit | test-and-set windows |
//! | `Kill` | a waiter kills the owner's process; the lock is then poisoned, as after any death | it is dead | test-and-set, processes of one host (shm) |
//! | `Revoke` | a waiter has the target's helper thread close the owner's connection, and then gets the lock, poisoned as after a death ([`PreviousOwner::LeaseExpired`](crate::PreviousOwner::LeaseExpired)) | no operation passes between it and the target any more, in any window ([`is_revoked`](crate::WindowError::is_revoked)), until one of them leaves | test-and-set, ranks that reach one another by RDMA cards (verbs), simulation |
//!
//! Only the word of test-and-set names its owner, and shared locks have no lease. A waiter measures
//! the lease from when it first saw the owner. The owner should check
//! [`lease_left`](crate::Epoch::lease_left) after every wait. In such a window every exclusive lock
//! takes a slot, and its release is a compare-and-swap.
