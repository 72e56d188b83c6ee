//! Which lock for which load.
//!
//! The default, test-and-set, is right while most locks are free when they are asked for, which is
//! the common case. Read the table from the top, and take the first row that describes the program.
//!
//! | the load | lock | why | the price |
//! |---|---|---|---|
//! | an owner may be stopped or slow, and its lock must be taken after a lease | `test-and-set` | the only one with [leases](super::death_and_leases#leases) | |
//! | an owner may die, and the others must go on within milliseconds | `test-and-set`; `mcs` if it must be fair | `test-and-set` learns of it immediately, `mcs` within about 10 ms; most others take tens of milliseconds on one host, and a second over cards | |
//! | mostly readers | `distributed-counters` | readers of different ranks touch no common word | an exclusive lock costs two operations at every rank |
//! | many ranks on few hosts, connected by cards | `two-level` | the ranks of a host hand the lock over by the CPU, and one of them at a time uses the card | between hosts not fair |
//! | many ranks contend over a network, for a short time each | `ticket` | an acquire is one operation however many wait | waiters poll |
//! | many ranks contend over a network, for a long time each | `fetch-add-queue` | the same, and waiters do not poll | 34 words at every target |
//! | ranks of one host contend, or up to about ten over a network, and each must get its turn | `mcs` | one write hands over, and waiters poll only memory of their own | over a network, an acquire needs more attempts with more ranks |
//! | all else | `test-and-set` | one word; the cheapest while free; the fastest between processes of one host | not fair: some ranks may starve; over cards a waiter sleeps out its backoff after a long hold |
//!
//! - **More ranks than cores**: not one of the fair locks (`mcs`, `ticket`, `fetch-add-queue`).
//!   Each hand-over then costs a context switch, because the next owner has to be scheduled first. If the lock
//!   has to be fair, `ticket`: the next owner keeps its core for a moment.
//! - **Fair locks need an order.** A program that holds one lock while it waits for another takes
//!   them in the order of the ranks: see [deadlocks](super::lock_semantics#deadlocks).
//! - **Whole windows are locked, by many ranks**: any lock, with
//!   [`LockAllDesign::Global`](crate::LockAllDesign::Global). It makes
//!   [`lock_all`](crate::Window::lock_all) one operation, and exclusive locks two operations more
//!   expensive.
//! - **Up to millions of locks**: a [`LockTable`](crate::LockTable), of `test-and-set` (8 bytes a
//!   lock), `mcs` or `ticket` (16), or `fetch-add-queue` (272).
//! - `dedicated-thread` and `event-thread` have a thread at the target serve the lock. They cost
//!   many times what the others do, and are here for comparison.
//! - A [`ServedLock`](crate::ServedLock) is served by such a thread over messages, as in jiang-2004,
//!   section 4. It needs no window: use it for files and devices, and where the origins should know
//!   nothing of the home's memory. Requests and grants go through the engine of messages, whose lock
//!   the threads of a rank share. On the paper's modelled cards a lock and unlock takes 11.1 us with
//!   a polling thread and 21.9 us with one that sleeps (over words: 10.7 and 20.2 us). With seven
//!   origins, each with its own lock, one polling thread takes 11.9 us and a sleeping one 29.0. A
//!   thread for each lock takes 64 us, polling or not, where threads sleep for the engine's lock
//!   (`onesided reproduce jiang-2004-1 jiang-2004-3`). `onesided bench locks --lock
//!   dedicated-thread,event-thread --metric overhead,concurrency` has both ways beside each other.
//!
//! What the [figures of all designs](super::reproduce#the-same-figures-for-all-designs) add:
//!
//! - **After a long hold over a network** `mcs` hands over in one message (0.9 us on ConnectX-7) and
//!   `fetch-add-queue` in 4.8 us. A waiter for the others sleeps out a pause first: 18 us for
//!   `test-and-set` and `two-level`, 82 us for `ticket`.
//! - **Messages**: a lock and unlock of `fetch-add-queue` takes 6 however many wait. That of `mcs`
//!   takes 2 more with each waiter.
//! - **A rank that locks again at once** often keeps a `two-level` lock on its host: then it takes
//!   less than one message.
//! - **A polling thread for each window** (`dedicated-thread-per-window`) needs a core for each: with
//!   seven windows on two processors a lock and unlock takes 872 us on InfiniHost instead of 19.
//!
//! ```
//! use onesided::{LockDesign, Window};
//! # onesided::threads(2, |world| {
//! let scores = Window::<u64>::builder().lock(LockDesign::Mcs).allocate(&world, 8).wait()?;
//! # scores.close().wait()?;
//! # Ok(())
//! # })?;
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! `ONESIDED_LOCK=mcs` chooses the lock of all windows whose [builder](crate::Builder::lock) names
//! none. If the ranks do not agree, all of them get an error.
//!
//! How far each lock scales, to a million origins, with lost messages and after deaths:
//! [benchmarks](super::benchmarks#how-far-each-lock-scales).
//!
//! The length of a critical section, the share of readers and the number of locks matter more than
//! the design. So measure with the program's own figures:
//! [metrics](super::benchmarks#the-metrics-of-locks).
