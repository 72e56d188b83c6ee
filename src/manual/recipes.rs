//! A hash map, a work queue, halo exchanges, reductions, a recovered mutex, data that
//! outlives its rank, and async with a cancel.
//!
//! Each recipe shows its essential lines. The whole program is in the folder `examples`, and the
//! tests run it as four processes. To run one, in the folder of the repository:
//!
//! ```sh
//! cargo build --examples && onesided run -n 4 -- target/debug/examples/hash_map
//! ```
//!
//! # A hash map
//!
//! A key's hash gives the rank that has the key, and the entry at which the search begins. An entry
//! is two elements: the key, which is 0 while the entry is free, and the value. Of several ranks
//! that find the same entry free, the compare-and-swap lets one put its key there.
//!
//! ```
//! use onesided::{Access, Any, Result, Window};
//!
//! /// The rank that has a key, and the entry at which the search begins.
//! fn place(key: u64, ranks: u32) -> (u32, usize) {
//!     let hash = key.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 32;
//!     ((hash % u64::from(ranks)) as u32, (hash / u64::from(ranks)) as usize)
//! }
//!
//! fn add(entries: &Access<'_, u64, Any>, first: usize, key: u64, value: u64) -> Result<()> {
//!     let count = entries.len() / 2;
//!     for probe in 0..count {
//!         let at = 2 * ((first + probe) % count);
//!         let found = entries.compare_and_swap(at, 0, key).wait()?;
//!         if found == 0 || found == key {
//!             entries.fetch_add(at + 1, value).wait()?;
//!             return Ok(());
//!         }
//!     }
//!     panic!("no free entry")
//! }
//! # onesided::threads(3, |world| {
//!
//! let window = Window::<u64>::allocate(&world, 2 * 8).wait()?;
//! let all = window.lock_all().wait()?; // shared: no rank excludes another
//! let key = 17;
//! let (rank, first) = place(key, world.size());
//! add(all.at(rank).wait()?, first, key, 1)?;
//! # world.barrier().wait()?;
//! # assert_eq!(all.at(rank).wait()?.fetch_one(2 * (first % 8) + 1).wait()?, 3);
//! # drop(all);
//! # window.close().wait()?;
//! # Ok(()) })?;
//! # Ok::<(), onesided::Error>(())
//! ```
//!
//! - No lock excludes anything here, because each step is one atomic operation. A step of several
//!   (removing an entry, growing the map) needs [`lock_exclusive`](crate::Window::lock_exclusive),
//!   which waits for the shared locks.
//! - [`fetch_one`](crate::Access::fetch_one) reads an element that other ranks change by atomic
//!   operations.
//! - [`Any`](crate::Any), the fabric that is chosen at run time, is the default of each parameter `F`.
//!   Without the feature `verbs` it is an alias of `Shm`, so the pages show `F = Shm`.
//!
//! The program: `examples/hash_map.rs`. For keys and values of any length see
//! `examples/word_count.rs`.
//!
//! # A work queue
//!
//! **Tasks that are known before**: one fetch-add takes the next.
//!
//! ```
//! # use onesided::{Result, Window};
//! # onesided::threads(3, |world| {
//! # let (tasks, mut done) = ([2_u64, 3, 5, 7, 11], 0);
//! # let next_task = Window::<u64>::allocate(&world, 2).wait()?;
//! let next = next_task.lock_shared(0).wait()?; // the counter is at rank 0
//! loop {
//!     let number = next.fetch_add(0, 1).wait()? as usize;
//!     let Some(task) = tasks.get(number) else { break };
//!     done += task; // the work
//! }
//! # next.fetch_add(1, done).wait()?;
//! # world.barrier().wait()?;
//! # assert_eq!(next.fetch_one(1).wait()?, 28);
//! # drop(next);
//! # next_task.close().wait()?;
//! # Ok(()) })?;
//! # Ok::<(), onesided::Error>(())
//! ```
//!
//! **Tasks that append others**: a ring of tasks, and the numbers of tasks that were taken and
//! appended. They change together, so a rank changes them under the exclusive lock.
//!
//! ```
//! use onesided::{Result, Window};
//!
//! const TASKS: usize = 2; // the tasks follow the two numbers
//! const CAPACITY: u64 = 100;
//!
//! fn take(queue: &Window<u64>) -> Result<Option<u64>> {
//!     let queue = queue.lock_exclusive(0).wait()?;
//!     let mut numbers = [0; TASKS];
//!     queue.get(0, &mut numbers).wait()?;
//!     let [taken, appended] = numbers;
//!     if taken == appended {
//!         return Ok(None); // the drop of the guard unlocks
//!     }
//!     let mut task = [0];
//!     queue.get(TASKS + (taken % CAPACITY) as usize, &mut task).wait()?;
//!     queue.put(0, &[taken + 1])?;
//!     queue.unlock().wait()?; // the put is complete before another rank has the lock
//!     Ok(Some(task[0]))
//! }
//!
//! fn append(queue: &Window<u64>, task: u64) -> Result<()> {
//!     let mut all = [0; TASKS + CAPACITY as usize];
//!     queue.locked(0).update(0, &mut all, |all| {
//!         assert!(all[1] - all[0] < CAPACITY, "the queue is full");
//!         all[TASKS + (all[1] % CAPACITY) as usize] = task;
//!         all[1] += 1;
//!     }).wait()?;
//!     Ok(())
//! }
//! # onesided::threads(2, |world| {
//! # let queue = Window::allocate(&world, TASKS + CAPACITY as usize).wait()?;
//! # if world.rank() == 0 { append(&queue, 9)?; }
//! # world.barrier().wait()?;
//! # if world.rank() == 1 { assert_eq!((take(&queue)?, take(&queue)?), (Some(9), None)); }
//! # queue.close().wait()?;
//! # Ok(()) })?;
//! # Ok::<(), onesided::Error>(())
//! ```
//!
//! [`Locked::update`](crate::Locked::update) locks, gets, runs the closure, puts and unlocks, in
//! as few round trips as the fabric allows. It moves all of its elements; the program moves only
//! those that change, under a lock as in `take`.
//!
//! An empty queue is not the end while a rank works on a task that may append others. So the
//! program also counts the finished tasks: `examples/work_queue.rs`.
//!
//! # A halo exchange
//!
//! In every step a rank needs the cells beside its own. Its neighbours put them into its window
//! memory, and signal.
//!
//! ```
//! # use onesided::{Result, Window};
//! # onesided::threads(4, |world| {
//! # let (left, right) = ((world.rank() + 3) % 4, (world.rank() + 1) % 4);
//! # let cells = [f64::from(world.rank()); 10];
//! let halos = Window::<f64>::allocate(&world, 4).wait()?; // two halos of two cells
//! let signals = Window::<u64>::allocate(&world, 2).wait()?;
//! let (access, flags) = (halos.no_check(), signals.no_check());
//! for step in 1..=5 {
//!     let halo = 2 * (step % 2) as usize;
//!     access.at(left)?.put_signal(halo + 1, &cells[..1], flags.at(left)?, 1, step)?;
//!     access.at(right)?.put_signal(halo, &cells[9..], flags.at(right)?, 0, step)?;
//!     for neighbour in [0, 1] {
//!         signals.local().wait_until(neighbour, |signal| signal >= step).wait()?;
//!     }
//!     let beside = halos.local().read(halo..halo + 2);
//!     // ... compute the cells of the next step
//! #   assert_eq!(beside, [f64::from(left), f64::from(right)]);
//! }
//! # access.end().wait()?;
//! # flags.end().wait()?;
//! # world.barrier().wait()?;
//! # signals.close().wait()?;
//! # halos.close().wait()?;
//! # Ok(()) })?;
//! # Ok::<(), onesided::Error>(())
//! ```
//!
//! - The signal arrives behind the data, so no flush and no barrier is needed. A rank waits for its
//!   neighbours alone.
//! - A rank with its halos in the window memory of its cells writes its own cells alone: a neighbour
//!   may have put the halo of the next step there already, also before the first step.
//! - There are two halos, used in turn: a neighbour that is a step ahead does not overwrite a cell
//!   that this rank has not read yet. It cannot be two steps ahead, because each of its steps waits
//!   for a signal of this rank.
//! - Each element is written by one rank, so no lock is needed:
//!   [`no_check`](crate::Window::no_check).
//!
//! The program: `examples/halo_exchange.rs`.
//!
//! **In two dimensions** the edges of a block are rows and columns. A
//! [`Shape`](crate::Shape) is the same for the edge, which is read out of the rank's own block, and
//! for the halo of the neighbour:
//!
//! ```
//! # use onesided::{Result, Window};
//! use onesided::Shape;
//!
//! const ROWS: usize = 12;
//! const WIDTH: usize = 20 + 2; // with a halo column at each side
//! const COLUMN: Shape = Shape::Vector { count: ROWS, block: 1, stride: WIDTH };
//!
//! # onesided::threads(3, |world| {
//! # let left = (world.rank() + 2) % 3;
//! # let block = Window::<f64>::allocate(&world, (ROWS + 2) * WIDTH).wait()?;
//! # let signals = Window::<u64>::allocate(&world, 1).wait()?;
//! # let (access, flags) = (block.no_check(), signals.no_check());
//! # let step = 1;
//! # block.local().write_shaped(WIDTH + 1, COLUMN, &[f64::from(world.rank()); ROWS])?;
//! // The first column of this block goes to the right halo of the left neighbour.
//! let mut edge = [0.0; ROWS];
//! block.local().read_shaped(WIDTH + 1, COLUMN, &mut edge)?;
//! access.at(left)?.put_signal_shaped(2 * WIDTH - 1, COLUMN, &edge, flags.at(left)?, 0, step).wait()?;
//! signals.local().wait_until(0, |signal| signal >= step).wait()?;
//! # assert_eq!(block.local().get(2 * WIDTH - 1)?, f64::from((world.rank() + 1) % 3));
//! # access.end().wait()?;
//! # flags.end().wait()?;
//! # world.barrier().wait()?;
//! # signals.close().wait()?;
//! # block.close().wait()?;
//! # Ok(()) })?;
//! # Ok::<(), onesided::Error>(())
//! ```
//!
//! The program, with all four edges: `examples/halo_2d.rs`. By messages instead of a window:
//! [columns and other shapes](super::messages#columns-and-other-shapes).
//!
//! # Reductions
//!
//! Each rank has a part of the data; all of them get the sum, the largest, or whatever combines two
//! values to one. A reduction takes a vector, place by place: several values cost what one costs.
//!
//! ```
//! use onesided::{Commutative, Located, Messages, Op, Result};
//!
//! # onesided::threads(4, |world| {
//! # let mine = [f64::from(world.rank()) + 0.5; 10];
//! let messages = Messages::new(&world).wait()?;
//! let largest = mine.iter().fold(0.0, |largest: f64, number| largest.max(*number));
//!
//! let mut sums = [mine.len() as f64, mine.iter().sum()];
//! let sum = messages.all_reduce(&mut sums, Op::Sum);
//! let mut located = [Located::new(largest as f32, world.rank())];
//! let max = messages.all_reduce(&mut located, Op::MaxLoc); // under way at the same time
//! for request in [sum, max] {
//!     request.wait()?;
//! }
//! let mean = sums[1] / sums[0];
//! # assert_eq!((mean, located[0]), (2.0, Located::new(3.5, 3)));
//!
//! // A function of the program's own, here the bounds of points.
//! let mut bounds = [[mine[0], mine[9]]];
//! messages.all_reduce(&mut bounds, Commutative(|a: [f64; 2], b: [f64; 2]| [a[0].min(b[0]), a[1].max(b[1])])).wait()?;
//! # assert_eq!(bounds, [[0.5, 3.5]]);
//!
//! // Where each rank's elements begin in a file that all of them write.
//! let mut end = [mine.len()];
//! messages.scan(&mut end, Op::Sum).wait()?;
//! let begin = end[0] - mine.len();
//! # assert_eq!(begin, 10 * world.rank() as usize);
//! # Ok(()) })?;
//! # Ok::<(), onesided::Error>(())
//! ```
//!
//! - All ranks call the same collectives in the same order. A rank that does not is told so: `rank 2
//!   is in broadcast (call 7, root 0), and rank 0 is in barrier (call 7)`. So are ranks that name
//!   different operations or types: `rank 1 is in all_reduce by Max of u64 (call 3)`.
//! - All ranks get the same bits, also of floats, whose sums depend on the order. Another number of
//!   ranks gives others.
//! - A function without [`Commutative`](crate::Commutative) is applied in the order of the ranks,
//!   which costs more in long reductions.
//! - [`reduce`](crate::Messages::reduce) gives the result to one rank,
//!   [`reduce_scatter`](crate::Messages::reduce_scatter) a part of it to each.
//! - A sum that no rank waits for, or to which not all ranks come, is an
//!   [`accumulate`](crate::Access::accumulate) in a window.
//!
//! The program: `examples/reductions.rs`.
//!
//! # A recovered mutex
//!
//! A rank that dies while it holds a lock leaves the lock *poisoned*. Every later request fails,
//! until one asks to recover the lock. (A panic is no such death for a mutex: its guard is dropped
//! while the thread unwinds, which leaves the old value.)
//!
//! ```
//! use onesided::{Any, Mutex, Result, WriteGuard};
//!
//! fn lock(mutex: &Mutex<u64>) -> Result<WriteGuard<'_, u64, Any>> {
//!     let guard = match mutex.lock().wait() {
//!         Err(error) if error.is_poisoned() => mutex.lock().recover().wait()?,
//!         held => held?,
//!     };
//!     if let Some(previous) = guard.previous_owner() {
//!         eprintln!("{previous}"); // rank 1 died while it held the lock
//!         // ... repair what the mutex protects
//!     }
//!     Ok(guard)
//! }
//! # onesided::threads(2, |world| {
//! # let mutex = Mutex::new(&world, 0, 0).wait()?;
//! # *lock(&mutex)? += 1;
//! # world.barrier().wait()?;
//! # assert_eq!(*lock(&mutex)?, 2);
//! # mutex.close().wait()?;
//! # Ok(()) })?;
//! # Ok::<(), onesided::Error>(())
//! ```
//!
//! The value itself is a copy, which is written back with the release. So it is whole after most
//! deaths; a rank that dies in the middle of the release may have written a part of it. Data beside
//! the value, in windows, may be half written after any death.
//!
//! Collectives of a world fail once a member has died, and so does a split. The ranks that are to go
//! on together are [split off](crate::World::split) at the start:
//!
//! ```
//! # use onesided::Result;
//! # onesided::threads(3, |world| {
//! # let may_die = |rank| rank == 1;
//! let rest = world.split(u32::from(may_die(world.rank())), 0).wait()?; // at all ranks
//! // ... rank 1 dies
//! rest.barrier().wait()?; // of the others
//! # Ok(()) })?;
//! # Ok::<(), onesided::Error>(())
//! ```
//!
//! At the end a survivor drops its windows instead of closing them: [how a program
//! ends](super::failures#how-a-program-ends-after-a-death). `onesided run` ends the job when a rank
//! fails, unless it is started with `--on-failure continue`.
//!
//! The program: `examples/recovered_mutex.rs`. All of the rules: [death and
//! leases](super::death_and_leases).
//!
//! # Data that outlives its rank
//!
//! What a window allocated on shared memory can be read after its rank's death. Over cards it is gone
//! with the rank, and user memory is gone everywhere. So a program that is to go on keeps a copy in the
//! memory of a second rank, on cards one of another host:
//!
//! ```
//! # use onesided::{Result, Window};
//! # onesided::threads(3, |world| {
//! # let (before, next) = ((world.rank() + 2) % 3, (world.rank() + 1) % 3);
//! const LEN: usize = 4;
//! let place = |step| LEN * (step % 2) as usize; // two copies in turn: one is whole
//! let copies = Window::<f64>::allocate(&world, 2 * LEN).wait()?;
//! let steps = Window::<u64>::allocate(&world, 1).wait()?;
//! let (access, flags) = (copies.no_check(), steps.no_check());
//! for step in 1..=5 {
//!     let state = [f64::from(world.rank()); LEN]; // ... of this step
//!     access.at(next)?.put_signal(place(step), &state, flags.at(next)?, 0, step)?;
//!     flags.at(next)?.flush().wait()?;
//! }
//! # world.barrier().wait()?;
//! // If the rank before has died:
//! let step = steps.local().get(0)?;
//! let its_state = copies.local().read(place(step)..place(step) + LEN);
//! # assert_eq!((step, its_state), (5, vec![f64::from(before); LEN]));
//! # access.end().wait()?;
//! # flags.end().wait()?;
//! # world.barrier().wait()?;
//! # steps.close().wait()?;
//! # copies.close().wait()?;
//! # Ok(()) })?;
//! # Ok::<(), onesided::Error>(())
//! ```
//!
//! - The signal comes behind its copy, so the step in it names a copy that is whole, whenever the rank
//!   dies. Nothing of a dead rank is written any more once its death is reported.
//! - The copy costs a put a step. The second rank does nothing for it.
//! - A put to a rank that has left is an error, so the survivors wait for one another before they leave: in
//!   a world that is [split off](#a-recovered-mutex) at the start.
//!
//! The program: `examples/checkpoints.rs`.
//!
//! # A function for every fabric
//!
//! A function that is generic over the fabric runs on real ones and in the
//! [simulator](super::simulation). It is `async`, or it blocks by
//! [`block_on`](crate::fabric::block_on), which moves the fabric's operations meanwhile.
//!
//! ```
//! use onesided::fabric::{Fabric, block_on};
//! use onesided::{Result, Window};
//!
//! /// Adds 1 at rank 0; what was there before.
//! async fn next<F: Fabric>(window: &Window<u64, F>) -> Result<u64> {
//!     let epoch = window.lock_shared(0).await?;
//!     let before = epoch.fetch_add(0, 1).await?;
//!     epoch.unlock().await?;
//!     Ok(before)
//! }
//!
//! let all = onesided::threads(3, |world| {
//!     let window = Window::allocate(&world, 1).wait()?;
//!     let mine = block_on(world.fabric(), next(&window))?;
//!     window.close().wait()?;
//!     Ok(mine)
//! })?;
//! # let mut all = all;
//! # all.sort();
//! # assert_eq!(all, [0, 1, 2]);
//! # Ok::<(), onesided::Error>(())
//! ```
//!
//! # Async, with a cancel
//!
//! Every request is a future, and needs nothing of its runtime but a waker. A dropped request is
//! cancelled: the library finishes its operations in flight, and releases the lock if they took it.
//!
//! ```
//! # use onesided::{Result, Window};
//! use std::time::Duration;
//! use tokio::time::timeout;
//!
//! # onesided::threads(2, |world| {
//! # let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_time().build().unwrap();
//! # runtime.block_on(async {
//! let scores = Window::<u64>::allocate(&world, 1).await?;
//! let held = scores.lock_exclusive(world.rank()).await?;
//!
//! // Both give up after 10 ms. tokio drops the request:
//! let request = scores.lock_exclusive(world.rank());
//! assert!(timeout(Duration::from_millis(10), request).await.is_err());
//! // The library's own deadline is an error:
//! let request = scores.lock_exclusive(world.rank()).deadline(Duration::from_millis(10));
//! assert!(request.await.is_err_and(|error| error.is_timed_out()));
//!
//! held.unlock().await?;
//! scores.close().await?;
//! # Ok(()) }) })?;
//! # Ok::<(), onesided::Error>(())
//! ```
//!
//! A guard borrows its window. For a task that is spawned, move a clone of the window into the task,
//! and lock there: a window is cheap to clone. Dropping a *collective*
//! request (allocate, barrier, fence, close) is not safe in this way, because the other ranks wait
//! in it for this one.
//!
//! The program: `examples/async_tokio.rs`.
