//! Distributed locks as algorithms over remote memory.
//!
//! May use: [`RemoteMemory`](onesided_remote_memory::RemoteMemory). May not use: I/O, a clock of its own, threads, atomics,
//! `unsafe`. That is why the code that ships over shared memory and verbs is the very code that the simulator runs and
//! that loom explores.
//!
//! Begin to read at [`LockAlgorithm`], then [`TestAndSet`], the shortest one; then how a lock is set right after a death,
//! in `recovery`, and [`Mcs`].
//!
//! | lock | source | words | uncontended acquire + release | contended | when an owner dies |
//! |---|---|---|---|---|---|
//! | [`TestAndSet`] | jiang-2004, section 5.1 | 1 at the home, 1 a node (readers) | compare-swap + write (on cards: + compare-swap; shared: + fetch-add) | a compare-swap an attempt, exponential backoff; whoever comes first | the heir takes its word, alone, and is told its name; others are told until then |
//! | [`Mcs`] | jiang-2004, section 5.2; Mellor-Crummey and Scott 1991 | 1 at the home, 3 a node | compare-swap + compare-swap (shared: + fetch-add) | one write links, one hands over; in the order of coming | who waits behind it freezes the lock; all who wait come anew, and are told a name until one recovers |
//! | [`Ticket`] | Yoon, Chowdhury, Mozafari, SIGMOD 2018, section 4 | 1 at the home, 1 a node | fetch-add + fetch-add | reads, paced by the tickets ahead; first come, first served | who waits behind it freezes the lock; all who wait give their tickets back, and are told a name until one recovers |
//! | [`FetchAddQueue`] | DecLock, arXiv 2505.17641 | 33 at the home, 2 a node | fetch-add + fetch-add | one write to enqueue, one to hand over; first come, first served | as [`Ticket`] |
//! | [`DistributedCounters`] | RMA-RW, Schmid, Besta, Hoefler, HPDC 2016 | 2 at the home, 1 at each rank, 1 a node | shared: fetch-add + fetch-add at one's own rank; exclusive: fetch-adds at all ranks | tickets | a dead reader's counter names its rank; else as [`Ticket`] |
//! | [`TwoLevel`] | HOCL, Wang, Lu, Shu, SIGMOD 2022; ALock, Baran et al., SPAA 2024 | 1 at the home, 2 at a rank of each host, 3 a node | compare-swap + compare-swap (shared: fetch-add); who finds it taken, and the CPU's on the host | tickets on the host, in the order of coming, which a slot passes at most 32 times in a row; compare-swaps between hosts | a mark names a host, whose ranks are asked; else as [`Ticket`] on the host, as [`TestAndSet`] between hosts |
//! | [`DedicatedThread`] | jiang-2004, section 4.1 | 5 at the home, and some lines for each rank; 3 a node | 2 writes and one that answers + 2 writes | the same; in the order in which the thread at the home hears them | it is named; all who wait are told until one recovers |
//! | [`EventThread`] | jiang-2004, section 4.2 | the same | the same; each wakes the thread if it sleeps | the same | the same |
//!
//! | [`Global`] | foMPI, Gerstenberger, Besta, Hoefler, SC 2013; the protocol is ours | those of another lock, 1 for all targets, 1 a node | all targets, shared: fetch-add + fetch-add; one, exclusive: these and the other lock's | two groups by turns, reads with backoff; within one, the other lock | as the other lock, and its own word as [`Ticket`] |
//!
//! Dead readers are a count, and so are tickets: a waiter doubts them when some rank has died and nobody has released for a
//! second since.
//!
//! # Operations of which nobody knows
//!
//! A fabric fails an operation with [`Unknown`](onesided_remote_memory::FaultKind::Unknown) where it may have taken effect. No lock repeats such
//! an operation blindly, and none is stuck by it: what a word names is settled by a look at it, what only counts is set right by
//! a freeze, as after a death. Each lock says which of its operations are which. Not settled is what nobody waits for: a
//! release that is [let go](LockAlgorithm::releases_in_one_step). The next flush tells of it, and the lock may stay its owner's.
//!
//! # How it is verified
//!
//! `tests/verify` and, briefly, `tests/quick` run the shipped code with the crate `onesided-lock-kit`, over memories of its own,
//! on programs that are data. A lock of yours can be run through the same.
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
//!   [`TwoLevel`]: 2 and 3 origins on one host and on two, at up to 3 and 2 preemptions (abandoned and adopted: 1).
//!   The [served](LockAlgorithm::SERVED) locks run with their server as one more task: 2 origins with 1 round each at up to 2
//!   preemptions and with 2 rounds at 1; 3 origins at 1 only by hand (`--ignored`), for that takes minutes.
//!   [`Global`]: 2 and 3 origins at up to 2 preemptions (abandoned and adopted: 1), where to read is to lock all; the checker as far as
//!   40,000 and 60,000 states. It needs nodes: owners without are refused.
//! - **the checker** of the kit replays the same futures in every schedule of 2 origins with 1 or 2 rounds each, whole, and of 3
//!   origins with one round up to 20,000 and 40,000 states: which operation takes effect, which answer comes, with one rank that
//!   crashes at any step, one operation or answer that is lost, one rank that is stopped until the others are done or stuck.
//!   10,000 to 250,000 states a lock and kind of trouble (`conformance`). The ticket lock bypasses nobody there, the queue lock
//!   whoever loses a compare-swap at its tail. With what is lost the locks settle: nobody is told `Unknown`, and whoever asks has
//!   the lock in the end (`checked`); whole for 2 origins with 1 round each, up to 20,000 states for more. [`FetchAddQueue`] and
//!   [`DistributedCounters`], which take minutes, run with up to 10,000 states a program, and whole with 2 origins and 1 round
//!   each that leaves the data alone, where nothing goes wrong. The served locks run with their server, which neither crashes nor is
//!   told of losses, up to 10,000 states a program; owners at the side door likewise (`tests/quick`).
//! - **linearizability**: random sections that read, write, add and flush words of several ranks, with cancelled acquires and
//!   deaths, are held to a sequential model by Wing and Gong's search (`conformance`; over simulated windows `sim/tests/linear.rs`, without
//!   deaths). A missing flush is caught.
//! - **a stopped waiter**: while a lock is taken from a dead reader, a waiter is stopped after each of its steps in turn, with
//!   what it has under way; others take the lock, release, read and freeze it again; then it goes on.
//! - **fencing tokens** ([`TokenDraw`]) are drawn in some rounds of the programs, as windows draw them, and must rise.
//! - **mutants**: `scripts/mutants` changes the code in every way that cargo-mutants knows; `MUTANTS.md` says what came of it.
//! - **a lock of the dead**: who does not inherit is told, each time, until somebody recovers; then it works again.
//!   An heir that went away before it knew [forsakes](LockAlgorithm::release_poisoned) it, and the next one is told.
//!
//! Both check exclusion, lost updates, that every wait ends, that exactly the first owner after a death inside is told of
//! it, and that the lock is free at the end and can be had; both must catch locks that are wrong on purpose.

#![forbid(unsafe_code)]

mod algorithm;
mod any_lock;
mod backoff;
mod context;
mod distributed;
mod fencing;
mod fetch_add_queue;
mod global;
mod intent;
mod mcs;
mod owner;
mod recovery;
mod served;
mod settle;
mod test_and_set;
mod ticket;
mod two_level;

pub use crate::algorithm::LockAlgorithm;
pub use crate::any_lock::{AnyLock, held_by_word};
pub use crate::backoff::{Backoff, BackoffCap};
pub use crate::context::{LockContext, WithoutSlot};
pub use crate::distributed::DistributedCounters;
pub use crate::fencing::TokenDraw;
pub use crate::fetch_add_queue::FetchAddQueue;
pub use crate::global::Global;
pub use crate::intent::{Intent, IntentFn, WaitPolicy};
pub use crate::mcs::Mcs;
pub use crate::owner::{Held, Mode, Owner};
pub use crate::served::{DedicatedThread, EventThread, Served};
pub use crate::test_and_set::TestAndSet;
pub use crate::ticket::Ticket;
pub use crate::two_level::TwoLevel;
pub use onesided_remote_memory as remote_memory;
