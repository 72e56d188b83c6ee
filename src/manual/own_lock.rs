//! A lock of your own: write it, use it, verify it.
//!
//! ```toml
//! [dependencies]
//! onesided = { path = "../onesided" }
//!
//! [dev-dependencies]
//! onesided-lock-kit = { path = "../onesided/lock-kit" }
//!
//! [profile.dev.package."*"]
//! opt-level = 1 # the explorations are compute-bound
//! ```
//!
//! # The shortest lock, and the one call
//!
//! An acquire and a release over
//! [`RemoteMemory`](crate::lock_algos::remote_memory::RemoteMemory) are a lock
//! ([`SimpleLock`](crate::lock_algos::SimpleLock)); one call verifies it, in half a minute unoptimised:
//!
//! ```
//! use onesided::Window;
//! use onesided::lock_algos::remote_memory::{Fault, RemoteMemory};
//! use onesided::lock_algos::{Simple, SimpleLock, SimpleUse};
//!
//! #[derive(Clone, Copy, Debug)]
//! struct OneWord; // 0 is free
//!
//! impl SimpleLock for OneWord {
//!     const NAME: &'static str = "one-word";
//!     const WORDS: usize = 1;
//!
//!     async fn acquire<M: RemoteMemory>(&self, mut lock: SimpleUse<'_, '_, M>) -> Result<(), Fault> {
//!         while lock.memory.compare_swap(lock.word(0), 0, 1).await? != 0 {
//!             lock.pause(0).await?; // an error if the acquire may not wait any longer: it ends with it
//!         }
//!         Ok(())
//!     }
//!
//!     async fn release<M: RemoteMemory>(&self, lock: SimpleUse<'_, '_, M>) -> Result<(), Fault> {
//!         lock.memory.compare_swap(lock.word(0), 1, 0).await.map(drop)
//!     }
//! }
//!
//! println!("{}", onesided_lock_kit::conformance(&Simple::new(OneWord)));
//!
//! onesided::threads(2, |world| {
//!     let builder = Window::<u64>::builder();
//!     let window = builder.allocate_with_lock(Simple::new(OneWord), &world, 8).wait()?;
//!     let epoch = window.lock_exclusive(0).wait()?;
//!     epoch.fetch_add(0, 1).wait()?;
//!     epoch.unlock().wait()?;
//!     Ok(window.close().wait()?)
//! })?;
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! `conformance` panics with a report if the lock violates a promise: the promise, the rank that broke
//! it, and every step before.
//!
//! What a lock has to work with:
//!
//! | operation | effect |
//! |---|---|
//! | `lock.word(i)` | word `i` of the lock at its rank, 0 at first; an atomic of 8 bytes |
//! | `lock.memory.read(word)`, `write(word, value, Notify::No)` | read it, write it; the output of a write means nothing |
//! | `lock.memory.compare_swap(word, expected, new)` | returns what it found |
//! | `lock.memory.fetch_add(word, add)` | returns the previous value; wraps |
//! | `lock.pause(i)`, `pause_on(word)` | waits until the word may have changed, longer each time. It looks by itself |
//! | `lock.owner` | this owner; `lock.owner.to_bits()`, 62 bits, differ for all owners that use the lock at a time. They may be 0 (rank 0, slot 0): a word in which 0 is free stores `to_bits() + 1` |
//! | `lock.mode()` | the requested mode, if `SHARED` is `true`; otherwise readers hold it exclusively |
//! | `lock.may_wait()?` | fails if the acquire is a try, or cancelled |
//! | `lock.node(i)` | word `i` of this owner's node, in its rank's own memory; `NODE_WORDS` says how many |
//! | `lock.node_of(owner, i)` | the same of another owner |
//! | `lock.memory.load(own)`, `store(own, value)` | load it, store it: `store` only while no other rank may write it |
//! | `lock.wait_until(i, predicate)` | sleeps until word `i` of the own node satisfies the predicate. **Only a write with `Notify::Yes` wakes it**: with `Notify::No` it waits without end |
//!
//! Each is awaited; an operation starts when it is called. A loop that waits does so by `pause` or
//! `wait_until`: a loop without them is reported as one that does not end. When one of them fails, undo
//! what others wait for by operations that do not wait, then return its error. A queue that cannot be
//! left so says `LEAVES = false`: its waiters keep their places, and release once it is their turn if
//! they were cancelled. It asks `may_wait` before it queues. Release by an atomic: a card may lose a
//! write that races with a compare-and-swap of another rank ([limits of
//! atomics](super::memory_model)).
//!
//! `Simple::new(OneWord)` is a [`LockAlgorithm`](crate::lock_algos::LockAlgorithm): the checks and
//! benchmarks below and [`Builder::allocate_with_lock`](crate::Builder::allocate_with_lock) take
//! it.
//!
//! ## Queues whose nodes migrate
//!
//! In the lock of Craig, Landin and Hagersten an owner takes its predecessor's node over. Here a node
//! stays with the slot of its rank, and [`Owner::generation`](crate::lock_algos::Owner::generation)
//! rises with each use of the slot: so a waiter that looks late tells its predecessor's use from a later
//! one. The release stores its generation and 1 in the own node; a waiter waits until the node of its
//! predecessor has at least that:
//!
//! ```
//! # use onesided::lock_algos::remote_memory::{Fault, RemoteMemory};
//! # use onesided::lock_algos::{Owner, Simple, SimpleLock, SimpleUse};
//! #[derive(Clone, Copy, Debug)]
//! struct Clh; // word 0: the last owner, and 1
//!
//! /// Whether the owner that word 0 names has released. Its generation has 26 bits, and wraps.
//! async fn released<M: RemoteMemory>(lock: &SimpleUse<'_, '_, M>, last: u64) -> Result<bool, Fault> {
//!     let Some(before) = last.checked_sub(1).map(Owner::from_bits) else { return Ok(true) };
//!     let released = lock.memory.read(lock.node_of(before, 0)?).await?;
//!     Ok(released.wrapping_sub(u64::from(before.generation) + 1) & 0x3ff_ffff < 1 << 25)
//! }
//!
//! impl SimpleLock for Clh {
//!     const NAME: &'static str = "clh";
//!     const WORDS: usize = 1;
//!     const NODE_WORDS: usize = 1;
//!     const LEAVES: bool = false;
//!
//!     /// The word does not tell.
//!     fn is_free(_home: &[u64]) -> bool {
//!         true
//!     }
//!
//!     async fn acquire<M: RemoteMemory>(&self, mut lock: SimpleUse<'_, '_, M>) -> Result<(), Fault> {
//!         let mut last = lock.memory.read(lock.word(0)).await?;
//!         loop {
//!             if !released(&lock, last).await? {
//!                 lock.may_wait()?; // a try does not queue
//!             }
//!             lock.arrives(); // the swap that succeeds is this owner's arrival
//!             match lock.memory.compare_swap(lock.word(0), last, lock.owner.to_bits() + 1).await? {
//!                 found if found == last => break,
//!                 found => last = found,
//!             }
//!         }
//!         while !released(&lock, last).await? {
//!             lock.pause_on(lock.node_of(Owner::from_bits(last - 1), 0)?).await?;
//!         }
//!         Ok(())
//!     }
//!
//!     async fn release<M: RemoteMemory>(&self, lock: SimpleUse<'_, '_, M>) -> Result<(), Fault> {
//!         lock.memory.store(lock.node(0), u64::from(lock.owner.generation) + 1)
//!     }
//! }
//!
//! # use onesided_lock_kit::Conformance;
//! // In the order of arrival.
//! println!("{}", Conformance::of(&Simple::new(Clh)).bypass(0).preemptions(1).run());
//! ```
//!
//! # As five functions
//!
//! A [`LockAlgorithm`](crate::lock_algos::LockAlgorithm) posts the first operation of an acquire
//! and of a release synchronously, and judges what they found, so that an uncontended lock costs
//! its operations alone and its nonblocking acquire has left when the call returns. It may have a
//! shared mode, queue nodes, and recovery from dead owners. `lock-kit/examples/locks/recovering.rs`
//! is one that recovers, `leased.rs` one with leases. Beside them are nine simple locks, as short as their
//! papers: all are verified, and one is measured:
//!
//! ```sh
//! cargo run -p onesided-lock-kit --example locks
//! ```
//!
//! # Verify it
//!
//! The crate `onesided-lock-kit` runs the same source through the checks that the locks of this
//! library pass. [`conformance`]`(&lock)` does all of it, with nothing to set: cheap checks first, up to
//! the first violation, at most two minutes optimised and ten unoptimised. [`Conformance`]`::of(&lock)`
//! says what the lock promises:
//!
//! - `.bypass(0)`: first come, first served, in the order of the first operations. Of a `SimpleLock`
//!   that is the first operation of `acquire`, or the one after `lock.arrives()`;
//! - `.owners(n)`: it works for n owners at a time, one of each rank (Peterson: 2). Otherwise it meets
//!   100;
//! - `.without_recovery()`, of the five functions: it does not recover from a dead owner;
//! - `.leases(time)`: an owner that has not released after this time loses the lock to an acquire that
//!   recovers. `lock-kit/examples/locks/leased.rs` is such a lock;
//! - `.woken()`: no waiter depends on a pause that ends by itself.
//!
//! And how far it goes: `.all()` after a violation, too; `.preemptions(n)`, `.states(n)`, `.cases(n)`,
//! `.deeper(n)`, `.within(time)`. `run` panics with the report, `verdict` returns it.
//!
//! | mistake | found by |
//! |---|---|
//! | two owners inside; a read and a write instead of an atomic | interleavings |
//! | a release that does nothing, or frees what others hold; an error or a panic of the lock | interleavings |
//! | a loop that waits without `pause`; a deadlock; a wake-up that is lost, as by `Notify::No` | interleavings |
//! | two locks that are taken in two orders | interleavings ([below](#two-locks-at-a-time)) |
//! | a release by a plain write | on cards |
//! | a try that waits | tried |
//! | a cancelled waiter that keeps its place, or drops its turn | cancelled; random programs |
//! | more waiters than slots; a counter of a byte that wraps | contest |
//! | a wider counter that wraps | words at their ends |
//! | an owner that is overtaken too often (`.bypass(n)`) | schedules |
//! | effects in another order than the posts, detached operations | schedules; random programs |
//! | an error of an operation that counts as success | with an error; with a loss |
//! | data that is not flushed before the release | linearizable, with `.without_flush()` |
//! | an increment that is lost, data that a section does not see | all; linearizable |
//! | a fencing token that does not rise | interleavings; schedules |
//! | recovery that does not end, or informs the wrong ranks; the default `release_poisoned` in a lock that recovers | a death inside; with a crash; with a death |
//! | a waiter that waits for a stopped rank's operation | with a stop |
//! | a lease that ends too early (`.leases(time)`) | interleavings; with a stop; random programs |
//! | a lease that does not end; a late release that frees what the next owner holds, or succeeds | with a stop |
//! | what needs more preemptions | deeper |
//!
//! The report has a line for each trial: its seconds, its executions, states or cases, and the violation.
//!
//! With leases, owners only read the data but in interleavings, and there are no histories: what an
//! owner whose lease is over writes is the program's matter. It looks at its clock before, or commits.
//! The next owner is informed by
//! [`FaultKind::LeaseExpired`](crate::FaultKind::LeaseExpired), the late release fails by
//! [`FaultKind::NotHeld`](crate::FaultKind::NotHeld).
//!
//! ## Two locks at a time
//!
//! Owners that take two locks can wait for each other. The two are a lock as well, which has the words
//! of both: write its acquire as your program takes them.
//!
//! ```
//! # use onesided::lock_algos::remote_memory::{Fault, RemoteMemory};
//! # use onesided::lock_algos::{Simple, SimpleLock, SimpleUse};
//! # use onesided_lock_kit::Conformance;
//! #[derive(Clone, Copy, Debug)]
//! struct Transfer; // the locks of two accounts, a word each
//!
//! impl SimpleLock for Transfer {
//!     const NAME: &'static str = "transfer";
//!     const WORDS: usize = 2;
//!
//!     async fn acquire<M: RemoteMemory>(&self, mut lock: SimpleUse<'_, '_, M>) -> Result<(), Fault> {
//!         let first = lock.owner.rank.index() % 2; // in two orders; 0 would be one
//!         for account in [first, 1 - first] {
//!             while lock.memory.compare_swap(lock.word(account), 0, 1).await? != 0 {
//!                 if let Err(given_up) = lock.pause(account).await {
//!                     if account != first {
//!                         lock.memory.compare_swap(lock.word(first), 1, 0).await?;
//!                     }
//!                     return Err(given_up);
//!                 }
//!             }
//!         }
//!         Ok(())
//!     }
//!
//!     async fn release<M: RemoteMemory>(&self, lock: SimpleUse<'_, '_, M>) -> Result<(), Fault> {
//!         lock.memory.compare_swap(lock.word(0), 1, 0).await?;
//!         lock.memory.compare_swap(lock.word(1), 1, 0).await.map(drop)
//!     }
//! }
//!
//! let report = Conformance::of(&Simple::new(Transfer)).verdict();
//! let found = report.violations().next().expect("the order of the two differs");
//! assert!(found.contains("deadlock, ranks wait without end"), "{found}");
//! ```
//!
//! ## Data that is not flushed
//!
//! A window flushes before it unlocks. A program that releases a lock by itself has to:
//! `Conformance::of(&lock).without_flush()` has owners that do not, and fails by what the next owner
//! does not see.
//!
//! ## The parts of the suite
//!
//! For programs and bounds of your own:
//!
//! - [`Exploration`]`::of(&lock).preemptions(3).run(&programs)` tries, by loom, every interleaving up
//!   to that many preemptions. Each load and store is a step. It finds violated exclusion, lost
//!   updates and lost wake-ups.
//! - [`Checker`]`::of(&lock).crashes(1).losses(1).stops(1).run(&programs)` tries every schedule of a
//!   few sections: the order in which operations take effect and answers arrive, a crash at every
//!   step, a lost operation or answer, a stopped rank. With `.leaves()` a rank that would crash leaves
//!   in order instead, with what it holds and waits for. With `.memory_goes()` the memory of a failed
//!   rank ends as well, before other ranks learn of the failure. It finds the same; recovery that
//!   does not end, or that informs the wrong ranks; with `.bypass(n)` a waiter that is overtaken
//!   too often; and fencing tokens that do not rise, in sections that draw them.
//! - [`Search`]`::of(&lock).deaths().run()` tries random programs, schedules and deaths, `.leaves()`
//!   ranks that leave. It finds the same in longer runs, and shrinks what it found.
//! - [`Linearizability`]`::of(&lock).deaths().run()` tries random sections that read, write, add and
//!   flush data of several ranks. It finds histories that no order of the sections explains.
//! - [`ThroughputRun`]`::of(&lock).origins(100).simulated()` measures rate, waits, fairness and
//!   operations, by threads or simulated ranks.
//!
//! A program is a list of sections for each origin: `Section::EXCLUSIVE` or `Section::SHARED`, with
//! modifiers: `.trying()` for a try, `.cancelled(n)` for a request that is cancelled at its `n`-th
//! look at its intent, `.detached()` for a release that is not waited for, `.early(n)` for `n`
//! reads between the start of the acquire and the wait for it. `.fenced(Fencing::Fused)` adds a
//! fencing token, which must be higher than those of all previous owners.
//!
//! # When a check fails
//!
//! The message begins with the promise, the rank and the step. Then comes the trace, one step a line,
//! in which words have their names (`lock.word(1)`, `node(0) of rank 2`, the data), owners enter and
//! leave, a livelock is cut to its circle, and the end of a deadlock to one step of each kind; then the
//! programs. To reproduce it:
//!
//! - an `Exploration` finds it again by itself: it depends on the lock and loom alone;
//! - a `Checker` prints the schedule, for `Checker::replay`;
//! - a `Search` and a `Linearizability` print the seed: `LOCK_KIT_SEED=... cargo test NAME`.
//!
//! # Coverage
//!
//! Each check reports how much it explored, and `.at_least(n)` fails where that shrinks. A
//! `Checker` is either `complete` or stopped at its limit of states. The checks cover the given
//! programs only: two or three origins, one to three sections each. The memory of the `Exploration`
//! is sequentially consistent. The fences of a fabric belong to the fabric and are tested there.
//!
//! # Tests of the tests
//!
//! A check that finds nothing means little unless it also finds planted faults. `Conformance::mutate`,
//! and for the parts of the suite `Setting::mutate`, replace an operation of a correct lock with
//! another one (a release with a plain write, a grant with one of an old generation), so that a broken
//! lock is one line: `.mutate(posted!(CompareSwap(1, 0) => Write(0)))`. The front page of `lock_kit` lists
//! all planted faults and the checks that catch them.
//!
//! [`conformance`]: ../../../onesided_lock_kit/fn.conformance.html
//! [`Conformance`]: ../../../onesided_lock_kit/struct.Conformance.html
//! [`Exploration`]: ../../../onesided_lock_kit/loom/struct.Exploration.html
//! [`Checker`]: ../../../onesided_lock_kit/model_check/struct.Checker.html
//! [`Search`]: ../../../onesided_lock_kit/random/struct.Search.html
//! [`Linearizability`]: ../../../onesided_lock_kit/linear/struct.Linearizability.html
//! [`ThroughputRun`]: ../../../onesided_lock_kit/bench/struct.ThroughputRun.html
