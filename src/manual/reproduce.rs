//! Figures of papers, reproduced: windows and locks as shipped, on a modelled testbed.
//!
//! ```text
//! onesided reproduce                          all figures
//! onesided reproduce jiang-2004-4             one of them
//! onesided reproduce jiang-2004 --report page.html --json results.json
//! onesided reproduce jiang-2004 --profile connectx7
//! onesided reproduce jiang-2004-4 --set jitter=5000
//! onesided reproduce jiang-2004-2 --designs all    beside the paper's designs, all other ones
//! ```
//!
//! Time is virtual, so that the same seed gives the same figures on any machine. The locks are those
//! of the crate `lock-algos`, which count their acquires in debug builds: a test finds every acquire
//! of the experiments there, for each design.
//!
//! # Testbeds
//!
//! A testbed is a profile: a TOML file that gives each cost of cards, wires and hosts with unit and
//! source, and the measurements that it was set from. `reproduce` repeats these on the simulated
//! testbed and shows both (`set from ...`); a test finds them within 1 %. A cost that the file does
//! not name has the simulator's default: `reproduce` lists these, with the source `default` on the
//! page and in JSON. `--profile FILE` takes a profile of your own; `sim/profiles` has those that
//! come with the program:
//!
//! | profile | models | set from |
//! |---|---|---|
//! | `infinihost` | InfiniHost MT23108 over PCI-X, two processors a node (jiang-2004) | published microbenchmarks; 12.83 us of jiang-2004; some shares are assumed |
//! | `connectx7` | ConnectX-7 NDR | the card's manual; latencies of another card of its driver |
//! | `shm` | two cores that share memory | `bench locks`, 27 November 2026: a store seen by the other core, 48.9 ns; a compare-and-swap; `memcpy`; a futex wake |
//! | `soft-roce` | Soft-RoCE | a compare-and-swap, 14.4 us, and the bandwidth, 104 MB/s, on an emulated machine with one processor, 27 November 2026; the shares are assumed |
//!
//! What is measured beyond that says how far a profile holds:
//!
//! | | measured | simulated | because |
//! |---|---|---|---|
//! | `shm`: a free lock, acquired and released (`docs/locks.json`) | 7.1 ns (`test-and-set`), 9.6 (`mcs`), 24 (`two-level`) | 100, 105, 560 ns | its words stay in one core's cache; on the profile each operation crosses to the other core |
//! | `shm`: `mcs` from owner to owner | 166 ns | 49 ns | several words move from cache to cache, one after the other |
//! | `soft-roce`: `test-and-set`, lock and unlock | 27.4 us | 16.4 us | one processor does what the card does on the profile: what is posted takes its time |
//! | `soft-roce`: a get of 8 B and a flush | 20 us | 14.4 us (a read) | the same |
//!
//! The simulator models: processors, time slices and wake-ups; the time to post, to poll and to
//! copy, and to register memory; doorbells, send and receive engines, one card a host; atomics that
//! follow one another on a word; a limit on reads in flight; bandwidth; acknowledgements by the
//! card. It does not model (yet): what datagrams cost a card, a context cache, the MTU, switches with
//! queues of their own.
//!
//! # Verdicts
//!
//! A number of a paper is a *calibration* if the profile was set from it, otherwise a *prediction*.
//! A prediction is *reproduced* if it is within 10 %, and *explained* if changing one cost brings
//! it there; otherwise it is *missed*. A claim of the text holds, or holds with one cost changed,
//! or does not. A profile is never changed after a figure ran on it: `shm` and `soft-roce`, on
//! which no figure below was drawn, were set anew on 27 November 2026. A cost that the model learns
//! of later is added: so `register`, which only the allocation of memory takes, and `hand-over`,
//! which only several threads behind one progress engine take.
//!
//! # jiang-2004: passive one-sided communication on InfiniBand
//!
//! `infinihost`, 200 repetitions, seed 1.
//!
//! | figure | number or claim | paper | ours | verdict |
//! |---|---|---|---|---|
//! | 1 | test-and-set, lock and unlock | 12.83 us | 12.80 us | calibration |
//! | 1 | the event-driven thread is worst | yes | 20.2 us; MCS 20.6 | explained: `interrupt` 7 to 9 us |
//! | 1 | test-and-set is best; the dedicated thread is faster than MCS; test-and-set's release is far below its acquire | yes | 12.8, 18.8, 20.6 us; 0.3 and 12.5 us | reproduced |
//! | 2 | atomics beat threads, test-and-set without backoff | yes | test-and-set 14.8 us, dedicated thread 10.7 | explained: `progress` 0.4 to 6 us |
//! | 2 | atomics beat threads, test-and-set as shipped, with backoff | yes | test-and-set 33.0 us, event-driven thread 21.5 | missed: no cost shortens a pause |
//! | 2 | MCS is best, by one message; all others take a round trip | yes | 5.0 us, a write 5.0; others from 10.7 | reproduced |
//! | 3 | the dedicated thread's time increases with 1 to 7 origins | yes | 18.8 to 19.4 us | explained: `progress` 0.4 to 2 us |
//! | 3 | several threads gain nothing behind one locked progress engine | yes | dedicated 19.4 us with one thread, 64.0 with seven; event-driven 28.6, 64.8; but 23.9, 20.4 with three | explained: `jitter` 0 to 2 us |
//! | 3 | test-and-set and MCS do not change; the event-driven thread's time increases | yes | 12.8, 20.6; 20.2 to 28.6 us | reproduced |
//! | 4 | test-and-set without backoff, 7 origins | 9 messages | 7.98 | explained: `jitter` 0 to 5 us gives 8.2 |
//! | 4 | test-and-set, 7 origins | 3 messages | 2.27 | explained: `post` 0.3 to 4 us gives 2.98 |
//! | 4 | MCS, 7 origins | 7 messages | 13.97 | explained: `jitter` 0 to 5 us gives 6.5 |
//! | 4 | the threads' number does not change; backoff reduces test-and-set's; MCS's increases | yes | 5.0; 7.98 to 2.27; 2 to 13.97 | reproduced |
//! | 5 | the dedicated thread's time increases with 0 to 8 computing threads; the others' remains | yes | 18.8 to 82.7 us; the others are the same | reproduced |
//! | 6 | test-and-set and MCS are the same with two processes on a node; the dedicated thread is not | yes | 12.8, 20.6; 18.8 us to 120 ms | reproduced |
//!
//! A message is an operation that an origin posts on the target's memory, or the target on an
//! origin's. Answers of cards are none, nor are the writes of a queue from origin to origin.
//!
//! What the differences say about the shipped locks:
//!
//! - No shipped unlock waits for its release. So MCS takes 12.8 us here instead of 20.6, the
//!   dedicated thread 10.7 instead of 18.8. Figure 1 has both.
//! - A shipped server reads requests from words, which costs it 0.9 us for a lock and unlock. The
//!   paper's thread takes messages through MPI's progress engine. So the dedicated thread hands
//!   over faster than test-and-set, and seven origins do not keep it busy.
//! - A waiter of the shipped test-and-set pauses before it asks again: after a wait of 150 us for
//!   18 us on average. Without backoff it hands over faster than an event-driven thread, but asks
//!   all the time (figure 4). A short delay and few messages at once need a queue. The claim would
//!   hold only if a message cost a thread 23 us (`--set progress=23000`), more than a whole lock
//!   and unlock by a thread takes: that explains nothing, so it counts as missed.
//! - Several threads behind one progress engine lose by its mutex: a hand-over takes 7.06 us
//!   (`hand-over` and `switch`). Where it takes only the switch, seven threads take 28.7 us,
//!   dedicated and event-driven ones alike, and still gain nothing. The requests of two or three
//!   origins in lockstep never meet at the mutex; some chance in the messages ends that. Without the
//!   engine, one event-driven thread for each window takes 20.7 us with seven origins instead of
//!   28.6.
//! - An origin that releases a test-and-set lock and acquires it again is often the next owner:
//!   both operations leave its card together. The number of messages falls with the repetitions,
//!   from 3.2 (30) to 2.1 (1000), because the others back off for longer.
//! - The swap of MCS is emulated by compare-swaps. If the lock is held no longer than a round trip
//!   and messages take equally long, every swap finds the word changed, and nobody joins the queue.
//!   Some chance in the messages ends that.
//!
//! # The same figures for all designs
//!
//! `--designs all` draws the designs that the paper does not have beside the others: dashed on the
//! page, below "beyond the paper" in the table. Numbers and claims are of the paper's designs alone.
//! The pages of two testbeds, and their values, are `docs/jiang-2004-infinihost.html` and
//! `docs/jiang-2004-connectx7.html`. In microseconds on `connectx7`, and messages of seven origins:
//!
//! | | lock and unlock | unlock to the next owner | messages |
//! |---|---|---|---|
//! | `two-level` | 1.96 | 18.70 | 0.75 |
//! | `dedicated-thread` | 2.05 | 1.96 | 5.00 |
//! | `test-and-set` | 2.42 | 18.42 | 2.17 |
//! | `mcs` | 2.42 | 0.93 | 13.97 |
//! | `ticket` | 2.42 | 81.55 | 4.07 |
//! | `fetch-add-queue` | 2.42 | 4.81 | 6.00 |
//! | `event-thread` | 5.65 | 5.96 | 5.00 |
//! | `distributed-counters` | 21.00 | 86.30 | 8.36 |
//!
//! The unlock to the next owner follows a hold of 250 us: a waiter that polls sleeps out its pause.
//! [Which lock](super::choosing_a_lock) says what follows from these curves.
