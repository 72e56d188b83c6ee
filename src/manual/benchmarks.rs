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
//! | `bench messages` | messages of 8 B to 4 MiB: half a round trip, also of columns, streams one way, both ways and between several pairs, streams that are all unexpected | stores, `memcpy` into shared memory and out of it |
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
//! | stream, all unexpected | the receives are posted after the 64 messages have arrived; up to 2 KiB | |
//! | stream, N pairs | a stream in each pair of ranks, counted together | `osu_mbw_mr` |
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
//! `bench transport` sends packets of 8 to 8,208 B by the fabric's
//! [`Transport`](onesided_fabric::Transport). What a message takes beyond a packet is spent on
//! matching and on the protocols.
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
//! | `messages` | operations that are posted for an acquire and a release, with 1 to 7 origins at one lock |
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
//!   --metric contended,wait,messages,readers,section,cpu
//! ```
//!
#![doc = include_str!("../../docs/locks.svg")]
//!
//! In simulation, where each rank has a card and is a microsecond away from the others. Where a
//! curve turns down, the lock stops scaling: see [which lock](super::choosing_a_lock#how-far-each-lock-scales).
//!
//! ```sh
//! onesided bench scale --origins 10,100,1000,10000,100000,1000000 --conditions --picture FILE.svg
//! ```
//!
#![doc = include_str!("../../docs/scale.svg")]
//!
//! The comparison with MPICH, Open MPI and bare instructions is in the README
//! (`onesided bench peers --json docs/peers.json --picture docs/peers.svg`). Windows are allocated
//! there after closed ones of the same size, whose pages onesided reuses.
