//! Distributed locks as algorithms over remote memory.
//!
//! May use: [`RemoteMemory`](remote_memory::RemoteMemory). May not use: I/O, a clock of its own, threads, atomics,
//! `unsafe`. That is why the code that ships over shared memory and verbs is the very code that the simulator runs and
//! that loom explores.
//!
//! Begin to read at [`LockAlgorithm`], then [`TestAndSet`], the shortest one; then how a lock is set right after a death,
//! in `recovery`, and [`Mcs`].
//!
//! | lock | source | words | uncontended acquire + release | contended | when an owner dies |
//! |---|---|---|---|---|---|
//! | [`TestAndSet`] | jiang-2004, section 5.1 | 1 at the home, 1 a node (readers) | compare-swap + write (on cards: + compare-swap; shared: + fetch-add) | a compare-swap an attempt, exponential backoff; whoever comes first | the heir takes its word, alone, and is told its name; others are told until then |
//! | [`Mcs`] | jiang-2004, section 5.2; Mellor-Crummey and Scott 1991 | 1 at the home, 3 a node | compare-swap + compare-swap (shared: + fetch-add) | one write links, one hands over; in the order of coming | who waits behind it freezes the lock; all who wait come anew, and are told a name until one inherits |
//! | [`Ticket`] | Yoon, Chowdhury, Mozafari, SIGMOD 2018, section 4 | 1 at the home, 1 a node | fetch-add + fetch-add | reads, paced by the tickets ahead; first come, first served | who waits behind it freezes the lock; all who wait give their tickets back, and are told a name until one inherits |
//! | [`FetchAddQueue`] | DecLock, arXiv 2505.17641 | 33 at the home, 2 a node | fetch-add + fetch-add | one write to enqueue, one to hand over; first come, first served | as [`Ticket`] |
//! | [`DistributedCounters`] | RMA-RW, Schmid, Besta, Hoefler, HPDC 2016 | 2 at the home, 1 at each rank, 1 a node | shared: fetch-add + fetch-add at one's own rank; exclusive: fetch-adds at all ranks | tickets | a dead reader's counter names its rank; else as [`Ticket`] |
//! | [`DedicatedThread`] | jiang-2004, section 4.1 | 5 at the home, and some lines for each rank; 3 a node | 2 writes and one that answers + 2 writes | the same; in the order in which the thread at the home hears them | it is named; all who wait are told until one inherits |
//! | [`EventThread`] | jiang-2004, section 4.2 | the same | the same; each wakes the thread if it sleeps | the same | the same |
//!
//! Dead readers are a count, and so are tickets: a waiter doubts them when some rank has died and nobody has released for a
//! second since.
//!
//! # How it is verified
//!
//! `tests/verify` runs the shipped code with the crate `onesided-lock-kit`, over memories of its own, on programs that are
//! data. A lock of yours can be run through the same.
//!
//! - **loom** explores every interleaving of 2 origins with 2 rounds each at up to 4 preemptions, and of 3 origins with
//!   1 round each at up to 3 (the other locks: 3 and 2): exclusive, shared, mixed, with owners without a node, with tries, and
//!   with other work between the start of an acquire and the wait for it; 4,000 to 25,000 executions each (the other locks:
//!   300 to 9,000). Also 2 origins of which one dies holding the lock, and 2 and 3 of which one gives up an acquire, at up to
//!   2 preemptions (the queue lock: 1): adopted, it goes on beside its origin's next one. The ticket lock runs with counters
//!   of 1 and 2 bits, which wrap within a run, and its owners are held to the order of their tickets. Waits block until the
//!   word changes, so a lost wake-up is a deadlock. The memory is sequentially consistent: fences are the fabric's matter and
//!   are tested there.
//! - **proptest** makes up programs of 2 to 4 origins with 1 to 3 rounds each (released, released without waiting,
//!   abandoned), the order in which up to 200 operations take effect and complete, and the death of a rank at any point,
//!   with up to two of its operations lost. Owners without a node, tries, and acquires that are given up half way are among
//!   them.
//!   [`FetchAddQueue`] is explored with counters of 1 to 4 bits and rings of 1 and 2 entries, at up to 3 preemptions with 2 origins
//!   and 2 with 3 (abandoned and adopted: 1), and searched in a memory without time as well, where who is not told waits for
//!   ever.
//!   [`DistributedCounters`]: 2 and 3 origins at up to 2 preemptions (abandoned and adopted: 1).
//!   The [served](LockAlgorithm::SERVED) locks run with their server as one more task: 2 origins with 1 round each at up to 2
//!   preemptions and with 2 rounds at 1; 3 origins at 1 only by hand (`--ignored`), for that takes minutes.
//! - **the checker** of the kit replays the same futures in every schedule of 2 origins with 1 or 2 rounds each, whole, and of 3
//!   origins with one round up to 20,000 and 40,000 states: which operation takes effect, which answer comes, with one rank that
//!   crashes at any step, one operation or answer that is lost, one rank that is stopped until the others are done or stuck.
//!   10,000 to 250,000 states a lock and kind of trouble (`checked`). The ticket lock bypasses nobody there, the queue lock
//!   whoever loses a compare-swap at its tail. [`FetchAddQueue`], [`DistributedCounters`] and the served locks are left out
//!   there: the first two take minutes.
//! - **linearizability**: random sections that read, write, add and flush words of several ranks, with cancelled acquires and
//!   deaths, are held to a sequential model by Wing and Gong's search (`linear`; over simulated windows `sim/tests/linear.rs`, without
//!   deaths). A missing flush is caught.
//! - **a stopped waiter**: while a lock is taken from a dead reader, a waiter is stopped after each of its steps in turn, with
//!   what it has under way; others take the lock, release, read and freeze it again; then it goes on.
//! - **a lock of the dead**: who does not inherit is told, each time, until somebody inherits; then it works again.
//!
//! Both check exclusion, lost updates, that every wait ends, that exactly the first owner after a death inside is told of
//! it, and that the lock is free at the end and can be had; both must catch locks that are wrong on purpose.

#![forbid(unsafe_code)]

mod algorithm;
mod backoff;
mod chosen;
mod distributed;
mod fetch_add_queue;
mod mcs;
mod owner;
mod place;
mod recovery;
mod served;
mod test_and_set;
mod ticket;
mod wish;

pub use crate::algorithm::LockAlgorithm;
pub use crate::backoff::{Backoff, Reach};
pub use crate::chosen::{Chosen, held_by_word};
pub use crate::distributed::DistributedCounters;
pub use crate::fetch_add_queue::FetchAddQueue;
pub use crate::mcs::Mcs;
pub use crate::owner::{Held, Mode, Owner};
pub use crate::place::Place;
pub use crate::served::{DedicatedThread, EventThread, Served};
pub use crate::test_and_set::TestAndSet;
pub use crate::ticket::Ticket;
pub use crate::wish::{Wanted, Wish};
pub use remote_memory;
