//! The manual, in the order in which most readers need it.
//!
//! To begin:
//!
//! 1. [`getting_started`]: install, ten lines, processes, the first lock, the first failure.
//! 2. [`recipes`]: a hash map, a work queue, halo exchanges, reductions, a recovered mutex, async
//!    with a cancel.
//! 3. [`mpi`]: where a reader who knows MPI finds each call.
//!
//! To write programs:
//!
//! 4. [`processes`]: how a program becomes ranks, how it finds its job, and how it ends.
//! 5. [`memory_model`]: what a put, a flush, an unlock and a barrier promise, and to whom.
//! 6. [`messages`]: sends and receives with tags; collectives.
//! 7. [`progress`]: who moves messages while a program computes.
//! 8. [`choosing_a_lock`]: which lock for which load.
//! 9. [`lock_semantics`]: what every lock promises, and how the designs differ.
//! 10. [`death_and_leases`]: locks whose owner died, panicked, or is too slow.
//! 11. [`failures`]: what happens when a rank dies, a peer is lost or a resource is exhausted.
//! 12. [`hangs`]: who waits for whom in a program that hangs.
//! 13. [`fabrics`]: shared memory, verbs, both in one world: what each needs and can do.
//!
//! To go further:
//!
//! 14. [`simulation`]: the same program in virtual time, with faults.
//! 15. [`own_lock`]: a lock of your own, verified and measured.
//! 16. [`architecture`]: how the library is built, for contributors.
//! 17. [`benchmarks`]: what `onesided bench` measures.
//! 18. [`reproduce`]: the figures of the papers, out of this code.

pub mod architecture;
pub mod benchmarks;
pub mod choosing_a_lock;
pub mod death_and_leases;
pub mod fabrics;
pub mod failures;
pub mod getting_started;
pub mod hangs;
pub mod lock_semantics;
pub mod memory_model;
pub mod messages;
pub mod mpi;
pub mod own_lock;
pub mod processes;
pub mod progress;
pub mod recipes;
pub mod reproduce;
pub mod simulation;
