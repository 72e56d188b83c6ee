//! Install, ten lines, processes, the first lock, the first failure.
//!
//! # Install
//!
//! On Linux with Rust 1.88 or later, in a folder with a clone of the repository:
//!
//! ```sh
//! cargo install --path onesided/cli     # the program `onesided`, which starts jobs
//! cargo new scores && cd scores
//! cargo add onesided --path ../onesided
//! ```
//!
//! Shared memory needs nothing else. RDMA cards need both with `--features verbs`, and some
//! packages: see [fabrics](super::fabrics). `onesided info` reports what this host has.
//!
//! # Ten lines
//!
//! `src/main.rs`:
//!
//! ```
//! use onesided::{Window, World};
//!
//! fn main() -> onesided::Result<()> {
//!     let world = World::init()?;
//!     let scores = Window::<u64>::allocate(&world, 1024).wait()?;
//!
//!     let next = (world.rank() + 1) % world.size();
//!     let epoch = scores.lock_exclusive(next).wait()?;
//!     let old = epoch.fetch_add(0, 1).wait()?;
//!     epoch.put(8, &[old, 42])?;
//!     epoch.unlock().wait()?;
//!
//!     world.barrier().wait()?;
//!     println!("rank {}: {:?}", world.rank(), scores.local().read(0..10));
//!     scores.close().wait()?;
//!     Ok(())
//! }
//! ```
//!
//! - [`World::init`](crate::World::init) finds the job that started this process. A *rank* is one
//!   process of the job, counted from 0.
//! - [`allocate`](crate::Window::allocate) makes a *window*: 1024 zeros on every rank. It is
//!   *collective*: every rank has to call it.
//! - [`lock_exclusive`](crate::Window::lock_exclusive) locks the window memory of the next rank.
//!   That rank does nothing for it. The guard has the operations. It is called `epoch`, MPI's word
//!   for the time in which a rank may access a target.
//! - [`fetch_add`](crate::Access::fetch_add) adds 1 to element 0 there, and returns what it was
//!   before. [`put`](crate::Access::put) writes elements 8 and 9. An atomic read is
//!   [`fetch_one`](crate::Access::fetch_one).
//! - After [`unlock`](crate::Epoch::unlock) the next owner of the lock sees what was written. After
//!   the [`barrier`](crate::World::barrier) all ranks see it.
//! - [`local`](crate::Window::local) reads this rank's own memory.
//! - Elements are plain data. A structure of your own derives `Pod`: see
//!   [`Element`](crate::Element).
//! - A call that may have to wait returns a request: `.wait()` blocks, `.await` does not.
//!
//! # Run it as processes
//!
//! `cargo run` runs it alone, as a world of one rank. `onesided run` starts processes:
//!
//! ```text
//! $ cargo build && onesided run -n 4 -- target/debug/scores
//! [2] rank 2: [1, 0, 0, 0, 0, 0, 0, 0, 0, 42]
//! [3] rank 3: [1, 0, 0, 0, 0, 0, 0, 0, 0, 42]
//! [0] rank 0: [1, 0, 0, 0, 0, 0, 0, 0, 0, 42]
//! [1] rank 1: [1, 0, 0, 0, 0, 0, 0, 0, 0, 42]
//! ```
//!
//! For several hosts, Slurm or MPICH's `mpiexec` see [processes](super::processes). In tests,
//! [`threads`](crate::threads) runs ranks as threads.
//!
//! # The first lock
//!
//! A [`Mutex`](crate::Mutex) is one value with its lock, as in `std::sync`, between processes:
//!
//! ```
//! use onesided::{Mutex, World};
//!
//! fn main() -> onesided::Result<()> {
//!     let world = World::init()?;
//!     let total = Mutex::new(&world, 0, 0_u64).wait()?; // collective: one value, at rank 0
//!     for _ in 0..1000 {
//!         *total.lock().wait()? += 1; // written back and released at the end of the statement
//!     }
//!     world.barrier().wait()?;
//!     if world.rank() == 0 {
//!         println!("{}", *total.lock().wait()?);
//!     }
//!     total.close().wait()?;
//!     Ok(())
//! }
//! ```
//!
//! Four ranks print 4000. For many values use the elements of a window, as above.
//!
//! # The first failure
//!
//! Let rank 1 crash while it has the lock:
//!
//! ```no_run
//! use onesided::{Mutex, Window, World};
//!
//! fn main() -> onesided::Result<()> {
//!     let world = World::init()?;
//!     let named = Window::builder().name("total");
//!     let total = Mutex::with(named, &world, 0, 0_u64).wait()?;
//!     if world.rank() == 1 {
//!         let _guard = total.lock().wait()?;
//!         world.barrier().wait()?;
//!         std::process::exit(1);
//!     }
//!     world.barrier().wait()?; // rank 1 has the lock
//!     *total.lock().wait()? += 1;
//!     Ok(())
//! }
//! ```
//!
//! Rank 0 does not hang. It gets an error that names the operation, the window and the reason:
//!
//! ```text
//! $ onesided run -n 2 -- target/debug/scores
//! onesided: rank 1 (pid 14707) exited with status 1
//! [0] Error: lock on rank 0 of window "total": rank 1 died while it held the lock (`recover` takes it over)
//! onesided: rank 0 (pid 14706) exited with status 1
//! ```
//!
//! - A program that can repair the value takes the lock over:
//!   [recipes](super::recipes#a-recovered-mutex).
//! - When a rank fails, `onesided run` ends the others two seconds later. With
//!   `--on-failure continue` they go on.
//! - A program that hangs tells who waits for whom, and for what, under
//!   `onesided run --stuck-after 10`: [hangs](super::hangs).
//!
//! Calls of a world return [`fabric::Error`](crate::fabric::Error), those of windows and locks
//! [`WindowError`](crate::WindowError), those of messages [`MessageError`](crate::MessageError). `?`
//! converts each into [`onesided::Error`](crate::Error). So a function with calls of several kinds
//! returns [`onesided::Result`](crate::Result), and ends with `?` and `Ok(())`; a closure or an `async`
//! block with `Ok::<_, onesided::Error>(())`.
//!
//! Other errors that a first program meets:
//!
//! | error | reason |
//! |---|---|
//! | `put of 2 elements at 1023 on rank 0 of window "scores": it has 1024 elements there` | offsets and lengths are in elements |
//! | `create window "scores": rank 1 differs from rank 0 in the length: 11 elements against 10` | a window has the same length on every rank, unless it is [`uneven`](crate::Builder::uneven) |
//! | `create window "scores": rank 1 is in a barrier, and this rank in the creation of a window` | all ranks make the collective calls in the same order |
//! | `barrier: the deadline passed, waiting for rank 1 and 2 more` | rank 1 and two others have not entered it (over a network: rank 1 has not, or itself waits for one that has not) |
//! | `barrier: rank 1 has left` | rank 1 returned from `main` without this collective call, or had given up waiting for this rank in it, at a deadline |
//! | `barrier: rank 1 never joined the job` | rank 1 runs a program that ended, with status 0, without the library |
//! | `barrier: rank 1 died` | rank 1 ended by a signal, a panic or `exit` |
//! | `lock_shared on rank 0 of window "scores": the deadline passed; rank 2 held the lock or waited for it` | a `.deadline()` ended the wait; the lock's words tell of rank 2 (not of every design, nor of readers) |
//! | `... the deadline passed; rank 1 itself held the lock or waited for it, perhaps in another thread` | this rank has a guard of the lock; a lock is not reentrant |
//! | `lock_shared on rank 1 of window "scores": rank 1 has no such memory: it closed or dropped the window, or detached the memory` | a barrier before the close keeps the memory until all are done |
//! | `lock_shared on rank 3 of window "scores": the world has 3 ranks` | ranks count from 0 |
//! | `recv with tag 1 from rank 0: the deadline passed; 1 message waits here, from rank 0 with tag 2` | the tags differ |
//! | `recv 40 bytes with tag 1 from rank 0: 5 elements of 8 bytes, and there is room for 3` | a slice has the length of the longest message, or [`recv`](crate::Messages::recv) makes a vector |
//!
//! If every process says that it is rank 0, it was not started by `onesided run` or another way
//! that [processes](super::processes) names.
