//! What `onesided bench` measures.
//!
//! Figures of one machine do not hold on another. So each command measures the limits of the
//! machine (bare compare-and-swaps, `memcpy`, a pthread mutex) interleaved with the library, by the
//! same processes, and reports ratios. A figure is the median of several runs. The machine should
//! be idle otherwise.
//!
//! ```sh
//! cargo run --release -- bench locks
//! ```
//!
//! | command | measures | beside |
//! |---|---|---|
//! | `bench locks` | locks between processes of this host: first uncontended, then all ranks at one lock | bare locks by the same instructions, a pthread mutex that processes share |
//! | `bench locks --lock all --metric all` | every lock by every metric, see below | the same |
//! | `bench messages` | messages of 8 B to 4 MiB: half a round trip, also of columns, streams one way, both ways and between several pairs, streams that are all unexpected | stores, `memcpy` into shared memory and out of it; over cards the same calls of libibverbs |
//! | `bench overlap` | whether messages of 8 B to 4 MiB move while a rank computes, by [progress mode](super::progress) | the computation alone |
//! | `bench collectives` | a barrier, all_reduce, broadcast, all_gather and all_to_all of 8 B and of 64 KiB or 1 MiB, among 2 and 4 processes | |
//! | `bench transport` | the packets that messages travel in: half a round trip, streams | the same |
//! | `bench rma` | put, get, strided put, accumulate, get_accumulate, fetch_and_op and compare_and_swap of 8 B to 4 MiB: latency, bandwidth and message rate, with a flush and by requests | `memcpy`, bare atomic instructions, a fence |
//! | `bench peers` | locks, small operations, bandwidth, allocation of windows, a target that computes, contended locks | MPICH 5 and Open MPI 5, which it installs from PyPI and for which it compiles C programs of the same loops |
//! | `bench peers --suite messages` | messages of 8 B to 4 MiB: half a round trip, streams, messages a second, all unexpected | the same two by the loops of OSU's benchmarks; `ucx_perftest`, if it is installed (Debian: ucx-utils) |
//! | `bench peers --suite collectives` | the measures of `bench collectives` | MPICH 5 and Open MPI 5 by the same loops |
//! | `bench peers --suite overlap` | messages of 1 MiB between ranks that compute, in each [progress mode](super::progress): W/T, and how long a sender is held | MPICH 5 and Open MPI 5 by the same exchange |
//! | `bench peers --fabric verbs` | get, compare_and_swap, fetch_and_op, signals, messages and puts on an RDMA device | perftest's programs on the same device |
//! | `bench scale` | locks with 10 to 1,000,000 simulated origins, in virtual time; `--conditions`: with lost messages, an owner that stops or dies, and on two testbeds; `--simulator`: the memory and the speed of the simulation | one another |
//!
//! `--quick` takes some seconds and is noisier. `--json FILE` writes the results for programs,
//! `--report FILE.html` one page of plots and tables that needs no network and can be printed,
//! `--picture FILE.svg` the curves. Each command's `--help` says what exactly is measured.
//!
//! # The measures of messages
//!
//! | `bench messages` | measures | OSU's benchmark |
//! |---|---|---|
//! | half a round trip | a message there and one back, over two | `osu_latency` |
//! | half a round trip of buffers | the same between registered buffers: on cards without a copy | |
//! | half a round trip of written buffers | the same by RPUT instead of RGET; from 16 KiB on | |
//! | half a round trip of columns | the same from and to elements of 8 bytes, each in a cache line of its own | |
//! | stream | 64 messages, 16 from 1 MiB on, whose receives are posted before; then an empty message back | `osu_bw` |
//! | streams both ways | two streams at the same time, counted together | `osu_bibw` |
//! | stream, written | a stream by RPUT; from 16 KiB on | |
//! | stream, pipeline | a stream in pieces; from 256 KiB on | |
//! | stream, copy | a stream of long messages in packets; from 16 KiB on | |
//! | stream, all unexpected | the receives are posted after the 64 messages have arrived; up to 2 KiB | |
//! | stream, N pairs | a stream in each pair of ranks, counted together | `osu_mbw_mr` |
//! | buffers, N % reused | 16 buffers of 1 MiB one way, of which so many were registered before | |
//!
//! Messages go from a slice into slices. Each message of a stream has a place of its own at the
//! receiver, because two receives into the same memory are an error in MPI and do not compile here.
//! OSU's programs receive all of them into one place, which stays in the cache: their figures for
//! large messages are higher.
//!
//! The limit of a ping-pong of 8 B is one of stores. All other limits copy a message into shared
//! memory and out of it, in pieces of at most 32 KiB that both ends copy at the same time. A library
//! that reads the other process's memory copies once and may be faster.
//!
//! Over cards (`--fabric verbs`) the limits are loops of the same calls of libibverbs, which check
//! nothing: sends, of which one in 32 is signalled; datagrams, if
//! [`ONESIDED_MESSAGES_CHANNEL`](super::messages#over-datagrams) says so; reads and writes, with the
//! sends before and after; and of a stream, sends that are posted in lists of 16.
//!
//! `bench transport` sends packets of 8 to 8,208 B by the fabric's
//! [`Transport`](onesided_fabric::Transport). What a message takes beyond a packet is spent on
//! matching and on the protocols.
//!
//! `bench messages --layers` measures half a round trip of 8 and 512 B at each layer in one run, as
//! yu-2004 does (section 6.3): by packets, and by `send` and `recv_into` over them, each interleaved with
//! the bare loop. The rows "add" are the differences: what packets take beyond the bare loop, and what
//! matching, credit, the eager protocol, the handles and the waits, which move all messages of the rank,
//! take beyond packets. A rank's packets belong to one layer at a time, so the layers are measured one
//! after the other. With `--json` the differences are in the results.
//!
//! `bench messages --channels --fabric verbs` measures each [channel](super::messages#over-datagrams) between the
//! same two ranks (koop-2008, sections 2 and 6): eager messages over the connection (`rc-sr`), by the fast path
//! (`rc-fp`) and in datagrams (`ud-sr`); long ones that are read (`rc-rdma`), in datagrams that
//! are received into memory (`ud-zcopy`), and in packets (`copy`). And the paper's configurations: `RC` (`rc-fp, rc-sr,
//! rget`), `UD` (`ud-sr, ud-zcopy`), `UD-copy` (`ud-sr, copy`) and `Aptus`, the default rules. The batches of
//! the channels alternate, each with the rules of its channel at both ranks. With `-n 8` four pairs do so at the same time
//! (figure 2). The last rows are what each channel takes of rank 0's memory (figure 3(a)): in Soft-RoCE the connections
//! 2 MiB for the receives of all of them and 8 KiB each, a fast path 64 KiB, and datagrams 5 MiB, however many ranks there
//! are.
//!
//! # The metrics of locks
//!
//! | `--metric` | measures |
//! |---|---|
//! | `overhead` | the time of an acquire and a release, together and apart, and of small operations, also while the target computes |
//! | `contended` | acquisitions a second when all ranks are at one lock, and how fair that is |
//! | `delay` | the time from one origin's release to another's acquisition |
//! | `wake` | the first acquire of an idle lock, beside a bare futex wake |
//! | `concurrency` | 1 to 8 origins, each with a window of its own, at one target |
//! | `operations` | operations that are posted for an acquire and a release, with 1 to 7 origins at one lock |
//! | `cpu` | a target that computes in 0 to 4 threads, and what its process uses |
//! | `wait` | how long ranks wait (p50, p99, p99.9), and how many overtake them |
//! | `readers` | a contended lock of which 0 to 100 % of the acquisitions are shared |
//! | `section` | a contended lock that is held for 0 ns to 100 us |
//! | `zipf` | many locks, uniformly wanted to heavily skewed |
//! | `recovery` | the time from an owner's death to the recovery of its lock |
//!
//! For a lock of your own, `onesided_lock_kit::bench` has throughput runs by threads and by
//! simulated origins: see [own lock](super::own_lock).
//!
//! # Results
//!
//! Between processes of one host with two cores:
//!
//! ```sh
//! onesided bench locks --lock all --picture FILE.svg \
//!   --metric contended,wait,operations,readers,section,cpu
//! ```
//!
#![doc = include_str!("../../docs/locks.svg")]
//!
//! The comparison with MPICH, Open MPI and bare instructions is in the README
//! (`onesided bench peers --json docs/peers.json --picture docs/peers.svg`). Windows are allocated
//! there after closed ones of the same size, whose pages onesided reuses.
//!
//! With a core for each rank (a virtual machine with 16 cores of a Xeon, November 2026;
//! `onesided bench peers --lock test-and-set,mcs,...`), millions of acquisitions a second of one lock
//! by all ranks, and in brackets how many times as many as Open MPI, whose lock is fair:
//!
//! | ranks | 2 | 4 | 8 |
//! |---|---|---|---|
//! | `test-and-set`, not fair | 39.5 (6.4) | 18.1 (6.1) | 8.7 (3.8) |
//! | `mcs` | 2.3 (0.36) | 3.8 (1.3) | 3.2 (1.4) |
//! | `ticket` | 4.4 (0.73) | 3.1 (0.99) | 2.4 (1.04) |
//! | `fetch-add-queue` | 6.6 (1.04) | 1.5 (0.50) | 1.4 (0.61) |
//! | Open MPI | 6.1 | 3.1 | 2.3 |
//! | MPICH | 0.8 | 0.9 | 0.8 |
//!
//! On the two cores of above `fetch-add-queue` makes 19.6, 0.31 and 0.23 million acquisitions a second with
//! 2, 4 and 8 ranks: 2.0, 0.72 and 0.78 times as many as Open MPI. With 2 ranks `mcs` has 0.36 and
//! `two-level` 0.15 of Open MPI's. `ticket` has 1.3 with 2, 1.29 with 4 and 1.11 with 8 (the median of five runs of
//! December 2026; from run to run 0.71 to 2.7, 1.24 to 1.52 and 0.93 to 1.18). With 4 and 8 `mcs` and
//! `fetch-add-queue` have 0.7 to 0.8: most hand-overs are a switch of processes then. Ranks that the system lets wait
//! while they have no ticket get less: of 8 the one with the fewest acquisitions has 0.6 of those of the one with the most,
//! with Open MPI's lock 0.86.
//!
//! The host places its two processors near or far from one another: a line passes in 50 or in 230 ns. Two
//! ranks then make, in millions a second, and beside them the same atomics in a loop:
//!
//! | | near | far |
//! |---|---|---|
//! | `ticket` | 21 | 5.0 |
//! | its loop | 25 | 4.8 |
//! | `fetch-add-queue` | 38 | 22 |
//! | `mcs` | 5 to 10 | 1.9 |
//! | its loop | 12 | 4.5 |
//!
//! A rank that hands a `fetch-add-queue` over is away from the lock's line for a moment, in which the other one
//! acquires it again and again.
//!
//! All of this is built without the feature `verbs`. What an uncontended exclusive lock and unlock cost on
//! shared memory, in instructions (November 2026, rustc 1.95; `scripts/instructions` counts them, and the tests
//! hold those without `verbs` within a tenth):
//!
//! | | `test-and-set` | `mcs` | `ticket` | `fetch-add-queue` | `two-level` | `distributed-counters` |
//! |---|---|---|---|---|---|---|
//! | without `verbs` | 66 | 122 | 137 | 153 | 178 | 3,330 |
//! | with it | 105 | 151 | 168 | 184 | 211 | 4,043 |
//!
//! On the two cores of above `test-and-set` took 5.8 ns without `verbs`, a bare compare-and-swap and store 4.8.
//!
//! # Messages between two processes
//!
//! `onesided bench peers --suite messages` on the two cores of above (November 2026). The host places
//! its two processors on one core or on two, which no program sees but by the time of a store: 47 and
//! 194 ns for half a round trip. In brackets how many times as fast as Open MPI:
//!
//! | | 8 B | 64 B | 512 B | 2 KiB | 32 KiB | 256 KiB | 1 MiB | 4 MiB |
//! |---|---|---|---|---|---|---|---|---|
//! | half a round trip, one core | 86 ns (1.20) | 95 ns (1.18) | 115 ns (1.7) | 178 ns (1.2) | 2.0 us (1.7) | 11 us (1.5) | 38 us (1.8) | 170 us (2.4) |
//! | the same, two cores | 297 ns (1.17) | 332 ns (1.2) | 400 ns (1.5) | 700 ns (1.07) | 3.9 us (1.05) | 13 us (1.3) | 46 us (1.7) | 270 us (1.8) |
//! | stream, GB/s, one core | 0.19 (0.95) | 1.4 (1.2) | 9.0 (1.2) | 23 (1.2) | 21 (2.0) | 19 (1.6) | 23 (1.8) | 18 (1.6) |
//! | the same, two cores | 0.16 (2.1) | 1.05 (2.3) | 2.1 (1.1) | 6.0 (1.4) | 13 (1.4) | 14 (1.3) | 18 (1.6) | 16 (1.6) |
//!
//! If all 64 messages of 8 B are unexpected, the stream is 0.9 (one core) and 1.8 times as fast (two).
//! By layer (`bench messages --layers`) 8 B took 72 ns by packets on one core, and up to 34
//! more by messages, before the receives were made 15 ns shorter.
//!
//! Between two cores the kernel's look-ups of pages bound messages of 256 KiB. A ring of shared memory,
//! into which the sender copies and out of which the receiver does, was tried in place of the sender's
//! share of the kernel's copies: on one core half a round trip of 256 KiB to 4 MiB takes a quarter less
//! with it, streams of 4 MiB a third more, and between two cores streams of 256 KiB gain 5 %.
//!
//! # Messages over cards
//!
//! On an emulated machine with Soft-RoCE and one processor, whose clock counts instructions, a
//! nanosecond each (November 2026). The figures are those of both ranks, the kernel and the device
//! together, and repeat to a hundredth:
//!
//! ```sh
//! scripts/soft-roce -i onesided bench messages --fabric verbs --quick -n 2
//! ```
//!
//! | half a round trip, thousands of instructions | onesided | bare calls | ratio |
//! |---|---|---|---|
//! | 8 B, eager | 17.0 | 15.0 | 1.13 |
//! | 64 B, eager | 18.3 | 15.4 | 1.18 |
//! | 512 B, eager | 21.8 | 19.1 | 1.14 |
//! | 8 B of a buffer | 19.1 | 15.0 | 1.27 |
//! | 8 B over datagrams | 24.8 | 19.3 | 1.28 |
//! | 1 MiB of buffers, read (RGET) | 9,540 | 9,430 | 1.01 |
//! | 1 MiB of buffers, written (RPUT) | 9,530 | 9,460 | 1.01 |
//! | 1 MiB from and to slices | 10,600 | 9,430 | 1.12 |
//! | a message of a stream of 8 B | 2.1 | 13.0, in lists of 16 | 0.16 |
//! | of 64 B | 5.0 | 13.8 | 0.37 |
//! | of 512 B | 22.4 | 17.5 | 1.28 |
//!
//! The two ranks share the processor, so that what they spend on waiting counts, too. Of the
//! instructions of 8 B the library executes an eighth, a quarter of them in looks that find
//! nothing. A packet of at most 64 bytes, head included, is copied into its request. One packet in
//! 32 is signalled. A receive looks, yields the core once and looks again before it waits as all
//! else does. A stream is a [list](crate::Messages::send_all): its packets are posted 16 at a time,
//! and short messages share packets.
//!
//! By layer (`bench messages --layers --fabric verbs`), in thousands of instructions:
//!
//! | half a round trip | bare | packets add | messages add | together |
//! |---|---|---|---|---|
//! | cards, 8 B | 15.1 | 2.2 | -0.3 | 17.0 |
//! | cards, 512 B | 19.2 | 2.8 | -0.2 | 21.8 |
//!
//! Messages take less than packets alone, whose receive waits at once.
//!
//! By channel (`bench messages --channels --fabric verbs --quick`), half a round trip and a message of a stream, in
//! thousands of instructions:
//!
//! | | 8 B | 64 B | 512 B | stream of 8 B | 64 KiB | 1 MiB |
//! |---|---|---|---|---|---|---|
//! | `rc-sr` | 21.3 | 22.9 | 26.8 | 28.6 | | |
//! | `rc-fp` | 22.5 | 24.1 | 28.8 | 35.2 | | |
//! | `ud-sr` | 27.8 | 28.2 | 32.3 | 37.3 | | |
//! | `rc-rdma` | | | | | 769 | 10,800 |
//! | `ud-zcopy` | | | | | 863 | 11,300 |
//! | `copy` | | | | | 1,300 | 32,000 |
//! | `RC` | 22.8 | 24.2 | 28.6 | 35.5 | 746 | 10,800 |
//! | `UD` | 27.7 | 28.3 | 32.3 | 37.3 | 928 | 11,300 |
//! | `UD-copy` | 28.0 | 28.5 | 32.4 | 37.5 | 1,300 | 32,400 |
//! | `Aptus` | 22.3 | 23.7 | 28.1 | 2.5 | 746 | 10,800 |
//! | bare sends, reads | 15.0 | 15.5 | 19.2 | 13.5 | 615 | 9,390 |
//!
//! Short messages of a stream share packets by the default rules, but not where a rule names their channel.
//!
//! Each packet bears its number in the sequence of all channels, which the figures above do not have. The fast path is
//! for receivers that poll on a core of their own: here the two ranks share one, where no ring is made without a
//! setting, and a rank that sleeps looks at its rings a while later. One thread that sends and receives, so that
//! nobody waits, takes 23.2 by the fast path and 24.7 over the connection for 8 B.
//!
//! Of streams, `ud-zcopy` has 1.9 times the bandwidth of `copy` with 64 KiB and 2.8 times with 1 MiB, and 0.92 and 0.98 of
//! that of `rc-rdma`. None of 8,963 datagrams of 4 KiB in each direction between two machines was lost or moved.
//!
//! | buffers of 1 MiB that were registered before | 0 % | 25 % | 50 % | 75 % | 100 % |
//! |---|---|---|---|---|---|
//! | bytes for each thousand instructions | 77.1 | 84.1 | 91.7 | 101 | 112 |
//!
//! With two processors (without `-i`) on a busy host, the time of the same loop differed between runs
//! by up to a hundred times, because an emulated processor may wait for its host while the other
//! spins: those times say nothing.
//!
//! # How far each lock scales
//!
//! Acquisitions a second, in thousands, where all origins want one lock that is held for 1 us, a
//! modelled microsecond away (16 ranks a host; the card of the lock's rank serves 10 million
//! operations a second):
//!
//! ```sh
//! onesided bench scale --origins 10,100,1000,10000,100000,1000000 --conditions --picture FILE.svg
//! ```
//!
//! | origins | 10 | 100 | 1,000 | 10,000 | 100,000 | 1,000,000 | operations each, 10 to 10,000 origins |
//! |---|---|---|---|---|---|---|---|
//! | `two-level` | 371 | 446 | 466 | 497 | 475 | 1.3 | 0.2 to 3 |
//! | `test-and-set` | 220 | 243 | 253 | 32 | 0.1 | | 5 to 313 |
//! | `ticket` | 139 | 141 | 136 | 136 | 0.1 | | 5 to 14 |
//! | `dedicated-thread`, `event-thread` | 278 | 118 | 117 | 117 | 109 | 3.0 | 5 |
//! | `fetch-add-queue` | 83 | 83 | 82 | 82 | 0.1 | | 7 to 24 |
//! | `distributed-counters` | 71 | 73 | 72 | 72 | 0.03 | | 11 to 32 |
//! | `mcs` | 381 | 101 | 10 | 1 | | | 10 to 10,022 |
//!
//! - **Up to ten origins** `mcs` is best. Then each attempt of an acquire loses against the others'
//!   arrivals, so it takes as many operations as there are origins.
//! - **Up to 10,000 waiters** `ticket` keeps its rate, and all ranks wait alike: at 1,000 origins 99
//!   of 100 waits take at most 7.6 ms, of `test-and-set` 30 ms. Waiters pause for up to a
//!   millisecond: 100,000 of them ask more often than the home's card can answer.
//! - **100,000 waiters**: `two-level` goes on, because one rank of each host asks, and so do the
//!   locks that a thread serves, whose waiters ask only every 10 ms.
//! - **A million waiters** stop those, too: the 62,500 hosts, or the waiters of a served lock, ask
//!   more often than the card can answer. In half a second `two-level` was acquired 631 times, a
//!   served lock 1,511 times. No other lock was run with more origins once it had less than 1 % of
//!   its best rate.
//!
//! With 100 origins; a gap is the longest time without an acquisition:
//!
//! | | acquired | with 1 % loss | ConnectX-7 | InfiniHost | gap: owner stops for 10 ms | gap: owner dies |
//! |---|---|---|---|---|---|---|
//! | `two-level` | 431 | 370 | 386 | 129 | 10 ms | 1 s |
//! | `test-and-set` | 239 | 156 | 224 | 39 | 10 ms | 1 ms |
//! | `ticket` | 137 | 49 | 146 | 53 | 10 ms | 1 s |
//! | `dedicated-thread` | 117 | 85 | 315 | 84 | 10 ms | 1 ms |
//! | `event-thread` | 117 | 85 | 181 | 53 | 10 ms | 1 ms |
//! | `mcs` | 101 | 127 | 20 | 2 | 10 ms | 12 ms |
//! | `fetch-add-queue` | 82 | 54 | 157 | 37 | 10 ms | 1.3 s |
//! | `distributed-counters` | 73 | 30 | 79 | 23 | 10 ms | 1 s |
//!
//! A lost message costs a timeout, which all waiters of a fair lock then wait for. The other ranks
//! learn of a death after 1 ms.
//!
//! The same as curves. Where one turns down, the lock stops scaling.
//!
#![doc = include_str!("../../docs/scale.svg")]
