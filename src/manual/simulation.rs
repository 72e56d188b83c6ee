//! The same program in virtual time, with faults.
//!
//! The crate `onesided-sim` is a fabric: windows, locks and messages run on it unchanged, with any
//! number of ranks, in one thread. It serves tests (a failure repeats by its seed), and estimates
//! of what a lock does with more ranks than a machine has.
//!
//! ```toml
//! [dev-dependencies]
//! onesided-sim = { path = "../onesided/sim" }
//! ```
//!
//! # A first run
//!
//! The program of a rank is an `async` function. It waits by `.await`, because in one thread no
//! rank may block. A function that is generic over the [`Fabric`](crate::fabric::Fabric) runs on
//! real fabrics, too. `Window::<u64>` names the default fabric: such a function writes
//! `Window::<u64, _>`, or uses the builder.
//!
//! ```
//! use std::time::Duration;
//! use onesided::fabric::Fabric;
//! use onesided::{Window, World};
//! use onesided_sim::{End, Network, Simulation};
//!
//! /// Every rank adds to an element of rank 0.
//! async fn count<F: Fabric>(world: World<F>) -> onesided::Result<u64> {
//!     let counters = Window::<u64>::builder().name("counters").allocate(&world, 1).await?;
//!     for _ in 0..10 {
//!         let epoch = counters.lock_exclusive(0).await?;
//!         let mut counter = [0];
//!         epoch.get(0, &mut counter).await?;
//!         epoch.put(0, &[counter[0] + 1])?;
//!         epoch.unlock().await?;
//!     }
//!     world.barrier().await?; // all ranks have counted
//!     Ok(counters.local().read(0..1)[0])
//! }
//!
//! let run = |seed| {
//!     let jitter = Duration::from_micros(3);
//!     let network = Network { loss: 0.01, jitter, ..Network::default() };
//!     Simulation::new(network).ranks(100).seed(seed).run(count)
//! };
//! for seed in 0..5 {
//!     let report = run(seed);
//!     assert_eq!(report.end, End::Finished);
//!     let counted = report.results[0].as_ref().unwrap().as_ref().unwrap();
//!     assert_eq!(*counted, 1000, "seed {seed}");
//!     assert_eq!(report.trace, run(seed).trace); // the same seed, the same run
//! }
//! ```
//!
//! [`Simulation`] runs the program of each rank over a [`SimFabric`]; [`Network`] has the costs and
//! the losses, and names the default of each. The report has what each rank's program returned, the
//! virtual time, the operations by kind, and a hash of all events, its `trace`.
//!
//! The seed decides on losses and jitter alone. A network that has neither, as that by default and those of
//! testbeds, gives the same run by every seed: give it some `jitter` to see other schedules.
//!
//! # Faults
//!
//! | method | fault |
//! |---|---|
//! | `Network`'s `loss`, `jitter` | messages are lost and sent again, and overtake each other |
//! | `Network`'s `datagrams`, `duplication` | packets of messages are lost, doubled and overtaken, and the ranks make them [reliable](super::messages#over-datagrams) |
//! | `kill` | a rank dies at a time |
//! | `world.fabric().die()`, in a rank's program | this rank dies at this step |
//! | `suspect` | the others believe that a rank is dead, but it runs on |
//! | `disconnect` | two living ranks lose their connection |
//! | `start_at`, `partition` | a rank starts late; ranks are cut off from the others for a time |
//! | `restart` | another process takes the rank of one that died, with new memory and connections |
//! | `until`, `events` | the run ends at a time, or after a number of events |
//!
//! Here rank 1 dies while it holds the lock of rank 0. Rank 0 learns of it, and recovers the lock:
//!
//! ```
//! use std::time::Duration;
//! use onesided::{Error, PreviousOwner, Window};
//! use onesided_sim::{Network, SimFabric, Simulation};
//!
//! let simulation = Simulation::new(Network::default()).kill(1, Duration::from_millis(50));
//! let report = simulation.run(|world| async move {
//!     let scores = Window::<u64, SimFabric>::allocate(&world, 1).await?;
//!     if world.rank() == 1 {
//!         let _held = scores.lock_exclusive(0).await?;
//!         world.barrier().await?;
//!         std::future::pending::<()>().await; // until it is killed
//!     }
//!     world.barrier().await?; // rank 1 has the lock
//!     let error = scores.lock_exclusive(0).await.unwrap_err();
//!     assert!(error.is_poisoned());
//!     let epoch = scores.lock_exclusive(0).recover().await?;
//!     let previous = epoch.previous_owner();
//!     epoch.unlock().await?;
//!     Ok::<_, Error>(previous)
//! });
//! let recovered = report.results[0].as_ref().unwrap().as_ref().unwrap();
//! assert_eq!(*recovered, Some(PreviousOwner::Owner(1)));
//! assert!(report.results[1].is_none()); // it did not finish
//! ```
//!
//! # Deadlocks
//!
//! A run in which no event is left, while ranks still wait, ends as a deadlock. The report names
//! each waiting rank, and what it waits for, with the names of windows:
//!
//! ```
//! # use onesided::{Window, WindowError};
//! # use onesided_sim::{End, Network, SimFabric, Simulation};
//! let report = Simulation::new(Network::default()).ranks(2).run(|world| async move {
//!     let flags: Window<u64, SimFabric> = Window::builder().name("flags").allocate(&world, 1).await?;
//!     flags.local().wait_until(0, |flag| flag == 1).await?; // each waits for the other
//!     flags.no_check().at(1 - world.rank())?.signal(0, 1)?;
//!     Ok::<_, WindowError>(())
//! });
//! assert!(matches!(report.end, End::Deadlock(_)));
//! let word = "for the word at 0 of window \"flags\"";
//! assert_eq!(report.end.to_string(), format!("deadlock: 2 ranks wait for ever; rank 0 {word}; rank 1 {word}"));
//! ```
//!
//! The waiters of most locks pause and try again, without end. Such a run ends as stalled if no
//! memory has changed for 10 s of virtual time (`Simulation::stalled_after` sets another time),
//! unless a rank is about to go on by itself: it pauses longer than that, or has a deadline. Of the
//! lock of a window the report names the window, the lock's rank, and the holders with the virtual
//! times since which they have held it. Of other words it has what each rank found, and the rank
//! that it waits for, as far as the last changes of memory tell.
//!
//! ```
//! # use onesided::{Window, WindowError};
//! # use onesided_sim::{End, Network, SimFabric, Simulation};
//! let report = Simulation::new(Network::default()).ranks(2).run(|world| async move {
//!     let scores: Window<u64, SimFabric> = Window::builder().name("scores").allocate(&world, 1).await?;
//!     let own = scores.lock_exclusive(world.rank()).await?;
//!     world.barrier().await.expect("both ranks are there");
//!     let other = scores.lock_exclusive(1 - world.rank()).await?; // crosswise
//!     other.unlock().await?;
//!     own.unlock().await?;
//!     Ok::<_, WindowError>(())
//! });
//! let End::Stalled(stuck) = &report.end else { panic!("{}", report.end) };
//! let wait = stuck[0].to_string(); // rank 0 for the exclusive lock of ... since 7.1µs
//! let lock = "rank 0 for the exclusive lock of window \"scores\" (test-and-set) at rank 1";
//! assert!(wait.starts_with(&format!("{lock}, held by rank 1 since")), "{wait}");
//! assert_eq!(stuck[1].locks[0].holders[0].0.0, 0); // rank 1 waits for rank 0
//! ```
//!
//! # What it does not simulate
//!
//! A rank's own computation takes no virtual time. A program in which it should writes
//! `world.fabric().sleep(nanos).await` ([`SimFabric::sleep`]). The costs of cards and wires are those
//! of `Network`, by default those of present-day hardware. The caches of processors are not modelled, and those of
//! cards (`contexts` of connections) and processors only where a [testbed](super::reproduce#testbeds) says so.
//!
//! Messages move in waits for messages, and by the thread or handler of their
//! [mode](super::progress). On hosts without cores, and over datagrams, `ProgressMode::Hybrid` is
//! `Thread`.
//!
//! `onesided bench scale` runs locks with up to a million simulated origins: see
//! [benchmarks](super::benchmarks). What that takes on one core (`--simulator`; a virtual machine
//! with two cores of an AMD EPYC, November 2026):
//!
//! | | bytes a rank, 100,000 ranks | events a second, 10,000 ranks | 100,000 ranks |
//! |---|---|---|---|
//! | `ticket` | 525 | 4.1 M | 1.5 M |
//! | `test-and-set` | 541 | 3.8 M | 1.9 M |
//! | `mcs` | 565 | 5.0 M | 1.5 M |
//! | `fetch-add-queue` | 596 | 3.2 M | 1.5 M |
//! | `distributed-counters` | 694 | 4.2 M | 1.4 M |
//! | `two-level` | 799 | 3.9 M | 2.5 M |
//! | `dedicated-thread`, `event-thread` | 906 | 1.9 M, 1.7 M | 1.3 M |
//!
//! More than half of a rank is the future of its acquire. An event is an operation that takes
//! effect, or a timer; 100,000 ranks are in no cache. A million ranks were measured at 530 to 890
//! MB.
//!
//! [`Simulation`]: ../../../onesided_sim/struct.Simulation.html
//! [`SimFabric`]: ../../../onesided_sim/struct.SimFabric.html
//! [`SimFabric::sleep`]: ../../../onesided_sim/struct.SimFabric.html#method.sleep
//! [`Network`]: ../../../onesided_sim/struct.Network.html
