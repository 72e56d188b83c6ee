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
//! # As two functions
//!
//! The short way is [`SimpleLock`](crate::lock_algos::SimpleLock): an acquire and a release over
//! [`RemoteMemory`](crate::lock_algos::remote_memory::RemoteMemory).
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
//!     async fn acquire<M: RemoteMemory>(&self, lock: SimpleUse<'_, '_, M>) -> Result<(), Fault> {
//!         let mut lock = lock;
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
//! onesided::threads(2, |world| {
//!     let builder = Window::<u64>::builder();
//!     let window = builder.allocate_with_lock(Simple::new(OneWord), &world, 8).wait()?;
//!     let epoch = window.lock_exclusive(0).wait()?;
//!     epoch.fetch_add(0, 1).wait()?;
//!     epoch.unlock().wait()?;
//!     window.close().wait()
//! })?
//! .into_iter()
//! .collect::<onesided::Result<(), _>>()?;
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! What a lock has to work with:
//!
//! | operation | effect |
//! |---|---|
//! | `lock.word(i)` | word `i` of the lock at its rank, 0 at first; an atomic of 8 bytes |
//! | `lock.memory.read(word)`, `write(word, value, Notify::No)` | read it, write it |
//! | `lock.memory.compare_swap(word, expected, new)` | returns what it found |
//! | `lock.memory.fetch_add(word, add)` | returns the previous value; wraps |
//! | `lock.pause(i)` | waits until word `i` may have changed, longer each time |
//! | `lock.owner` | this owner; `lock.owner.to_bits()`, 62 bits, differ for all owners that use the lock at a time. They may be 0 (rank 0, slot 0): a word in which 0 is free stores `to_bits() + 1` |
//!
//! Each is awaited; an operation starts when it is called. A loop that waits does so by `pause`:
//! without it the checks below do not end. When `pause` fails, undo what others wait for by
//! operations that do not wait, then return its error. A lock that cannot be left without waiting
//! needs the five functions.
//!
//! `Simple::new(OneWord)` is a [`LockAlgorithm`](crate::lock_algos::LockAlgorithm): the checks and
//! benchmarks below and [`Builder::allocate_with_lock`](crate::Builder::allocate_with_lock) take
//! it.
//!
//! # As five functions
//!
//! A [`LockAlgorithm`](crate::lock_algos::LockAlgorithm) posts the first operation of an acquire
//! and of a release synchronously, and judges what they found, so that an uncontended lock costs
//! its operations alone and its nonblocking acquire has left when the call returns. It may have a
//! shared mode, queue nodes, and recovery from dead owners. `lock-kit/examples/own_lock.rs` is a
//! ticket lock of two words in this form, verified and measured:
//!
//! ```sh
//! cargo run -p onesided-lock-kit --example own_lock
//! ```
//!
//! # Verify it
//!
//! The crate `onesided-lock-kit` runs the same source through the checks that the locks of this
//! library pass. In a test, with the bounds low:
//!
//! ```
//! # use onesided::lock_algos::remote_memory::{Fault, RemoteMemory};
//! # use onesided::lock_algos::{Simple, SimpleLock, SimpleUse};
//! # #[derive(Clone, Copy, Debug)]
//! # struct OneWord;
//! # impl SimpleLock for OneWord {
//! #     const NAME: &'static str = "one-word";
//! #     const WORDS: usize = 1;
//! #     async fn acquire<M: RemoteMemory>(&self, lock: SimpleUse<'_, '_, M>) -> Result<(), Fault> {
//! #         let mut lock = lock;
//! #         while lock.memory.compare_swap(lock.word(0), 0, 1).await? != 0 { lock.pause(0).await?; }
//! #         Ok(())
//! #     }
//! #     async fn release<M: RemoteMemory>(&self, lock: SimpleUse<'_, '_, M>) -> Result<(), Fault> {
//! #         lock.memory.compare_swap(lock.word(0), 1, 0).await.map(drop)
//! #     }
//! # }
//! use onesided_lock_kit::Conformance;
//!
//! let suite = Conformance::of(&Simple::new(OneWord)).preemptions(2).states(20_000).cases(100);
//! // This lock does not recover from dead owners.
//! println!("{}", suite.without_recovery().run());
//! ```
//!
//! Release by an atomic: a card may lose a write that races with a compare-and-swap of another rank
//! ([limits of atomics](super::memory_model)). The bounds above find that; `.preemptions(1)` is
//! faster, and does not. With them the suite takes about two minutes unoptimised; it prints its report
//! at the end, and a panic says which promise is violated.
//!
//! For a lock that recovers, one call runs everything with the usual bounds:
//!
//! ```no_run
//! use onesided::lock_algos::{Backoff, TestAndSet};
//!
//! println!("{}", onesided_lock_kit::conformance(&TestAndSet::new(Backoff::default())));
//! ```
//!
//! It panics with the same report if the lock violates a promise. [`Conformance`]`::of(&lock)` sets
//! bounds (`.preemptions(n)`, `.states(n)`, `.cases(n)`) and what the lock promises: `.bypass(0)`
//! if it is first come, first served, in the order of the first operations (of a `SimpleLock` that
//! is a read, so its queue has another order), `.without_recovery()` if it does not support recovery
//! from a dead owner. The parts of the suite, for programs and bounds of your own:
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
//!   too often; with `.token(f)` tokens that do not rise.
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
//! The message has the programs and the trace, one operation a line. The lock is at rank 0: word 0
//! there is the data, word 1 + `i` is `lock.word(i)`. To reproduce it:
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
//! lock is one closure.
//! `onesided_lock_kit::wrong` has more, and the front page of `lock_kit` lists all planted faults
//! and the checks that catch them.
//!
//! [`Conformance`]: ../../../onesided_lock_kit/struct.Conformance.html
//! [`Exploration`]: ../../../onesided_lock_kit/loom/struct.Exploration.html
//! [`Checker`]: ../../../onesided_lock_kit/model_check/struct.Checker.html
//! [`Search`]: ../../../onesided_lock_kit/random/struct.Search.html
//! [`Linearizability`]: ../../../onesided_lock_kit/linear/struct.Linearizability.html
//! [`ThroughputRun`]: ../../../onesided_lock_kit/bench/struct.ThroughputRun.html
