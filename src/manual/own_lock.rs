//! Verify your own lock.
//!
//! A lock is a `LockAlgorithm` of `onesided-lock-algos`: a few `async fn`s over
//! [`RemoteMemory`](crate::lock_algos::remote_memory::RemoteMemory). The crate `onesided-lock-kit` runs that source, as it is, through what the
//! locks of this library go through. `lock-kit/examples/own_lock.rs` has all of it for a ticket lock of two words:
//!
//! ```sh
//! cargo run -p onesided-lock-kit --example own_lock
//! ```
//!
//! One call does it all:
//!
//! ```text
//! let report = onesided_lock_kit::conformance(&lock);
//! println!("{report}");
//! ```
//!
//! It panics if something is violated, with the same report. `Conformance::of(&lock)` has its bounds, `.preemptions(n)`, `.states(n)`,
//! `.cases(n)`, and what a lock promises: `.bypass(0)` if it serves who came first, `.without_recovery()` if nobody takes it from
//! the dead. What the suite is made of, for programs and bounds of one's own:
//!
//! | a line | what it tries | what it finds |
//! |---|---|---|
//! | `Exploration::of(&lock).preemptions(3).run(&programs)` | by loom, every interleaving up to so many preemptions; each load and store apart | exclusion, lost updates, lost wake-ups |
//! | `Checker::of(&lock).crashes(1).losses(1).stops(1).run(&programs)` | every schedule of few sections: in which order operations take effect and answers come, a crash at every step (with `.memory_goes()` the memory of the dead ends as well, before anybody hears of that), a lost operation or answer, a rank that is stopped | the same; recovery that does not end or tells the wrong ones; with `.bypass(n)` who is overtaken too often; with `.token(f)` tokens that do not rise |
//! | `Search::of(&lock).deaths().run()` | random programs, schedules, deaths | the same, in longer runs, shrunk |
//! | `Linearizability::of(&lock).deaths().run()` | random sections that read, write, add and flush data of several ranks | histories that no order of the sections explains |
//! | `ThroughputRun::of(&lock).origins(100).simulated()` | a contest, by threads or simulated ranks | rate, waits, fairness, operations |
//!
//! A program is a list of sections for each origin: `Section::EXCLUSIVE`, `Section::SHARED`, and what may be said of them: `.trying()`,
//! `.cancelled(asked)`, `.without_node()`, `.detached()`, `.early(reads)`, `.fenced(Fencing::Fused)`: with a fencing token, which must
//! be higher than those of all who held the lock before.
//!
//! # When something is wrong
//!
//! The message has the programs and what happened, an operation a line. To see it again:
//!
//! - an `Exploration` finds it again by itself: it depends on the lock and loom alone;
//! - a `Checker` says the schedule, for `Checker::replay`;
//! - a `Search` and a `Linearizability` say the seed: `LOCK_KIT_SEED=... cargo test NAME`.
//!
//! # How much was tried
//!
//! Each says how much it explored, and `.at_least(n)` fails where that shrinks. A `Checker` is `complete` or stopped after so many
//! states. Nobody has tried more than the programs that were given: two or three origins, one to three sections each. The memory of
//! the `Exploration` is sequentially consistent; the fences of a fabric are the fabric's matter, and are tested there.
//!
//! # Whether the tests bite
//!
//! A test that finds nothing shows nothing, unless it finds what is wrong on purpose. `Checker::mutate` and `Setting::mutate` turn an
//! operation of a right lock into another one (a release into a plain write, a grant into one of an old generation), so that a wrong lock
//! is one closure. `onesided_lock_kit::wrong` has more, and `lock_kit`'s first page the list of all that are planted here, with who catches
//! them.
