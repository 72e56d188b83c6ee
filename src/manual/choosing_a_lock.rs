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
//!   Each hand-over then costs a context switch, because the next owner has to be scheduled first.
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
//! # scores.close().wait()
//! # })?.into_iter().collect::<Result<(), _>>()?;
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! `ONESIDED_LOCK=mcs` chooses the lock of all windows whose [builder](crate::Builder::lock) names
//! none. If the ranks do not agree, all of them get an error.
//!
//! # How far each lock scales
//!
//! Acquisitions a second, in thousands, where all origins want one lock that is held for 1 us, a
//! modelled microsecond away (16 ranks a host; the card of the lock's rank serves 10 million
//! operations a second):
//!
//! ```sh
//! onesided bench scale --origins 10,100,1000,10000,100000,1000000 --conditions
//! ```
//!
//! | origins | 10 | 100 | 1,000 | 10,000 | 100,000 | 1,000,000 | operations each, 10 to 10,000 origins |
//! |---|---|---|---|---|---|---|---|
//! | `two-level` | 371 | 444 | 466 | 497 | 476 | 1.3 | 0.2 to 3 |
//! | `test-and-set` | 218 | 243 | 254 | 32 | 0.1 | | 5 to 313 |
//! | `ticket` | 135 | 136 | 136 | 137 | 0.1 | | 5 to 14 |
//! | `dedicated-thread`, `event-thread` | 280 | 118 | 117 | 117 | | | 5 |
//! | `fetch-add-queue` | 83 | 83 | 82 | 82 | 0.1 | | 7 to 24 |
//! | `distributed-counters` | 71 | 71 | 72 | 71 | 0.03 | | 11 to 32 |
//! | `mcs` | 381 | 101 | 10 | 1 | | | 10 to 10,022 |
//!
//! - **Up to ten origins** `mcs` is best. Then each attempt of an acquire loses against the others'
//!   arrivals, so it takes as many operations as there are origins.
//! - **Up to 10,000 waiters** `ticket` keeps its rate, and all ranks wait alike: at 1,000 origins 99
//!   of 100 waits take at most 7.6 ms, of `test-and-set` 30 ms. Waiters pause for up to a
//!   millisecond: 100,000 of them ask more often than the home's card can answer.
//! - **Beyond that** only `two-level` goes on, because one rank of each host asks.
//!
//! With 100 origins; a gap is the longest time without an acquisition:
//!
//! | | acquired | with 1 % loss | ConnectX-7 | InfiniHost | gap: owner stops for 10 ms | gap: owner dies |
//! |---|---|---|---|---|---|---|
//! | `two-level` | 419 | 381 | 385 | 130 | 10 ms | 1 s |
//! | `test-and-set` | 239 | 156 | 224 | 39 | 10 ms | 1 ms |
//! | `ticket` | 136 | 46 | 146 | 54 | 10 ms | 1 s |
//! | `dedicated-thread` | 117 | 87 | 315 | 84 | 10 ms | 1 ms |
//! | `event-thread` | 117 | 86 | 180 | 53 | 10 ms | 1 ms |
//! | `mcs` | 101 | 127 | 20 | 2 | 10 ms | 12 ms |
//! | `fetch-add-queue` | 82 | 52 | 157 | 37 | 10 ms | 1.3 s |
//! | `distributed-counters` | 72 | 30 | 79 | 23 | 11 ms | 1 s |
//!
//! A lost message costs a timeout, which all waiters of a fair lock then wait for. The other ranks
//! learn of a death after 1 ms.
//!
//! The length of a critical section, the share of readers and the number of locks matter more than
//! any of this. So measure with the program's own figures: [benchmarks](super::benchmarks).
