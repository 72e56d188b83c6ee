//! What a put, a flush, an unlock and a barrier promise, and to whom.
//!
//! Most programs need three rules:
//!
//! - What was done under an exclusive lock is visible to the next owner of that lock.
//! - What was flushed or unlocked before a barrier is visible to all ranks after it.
//! - A rank that sees a signal sees what the origin had put to it before.
//!
//! # Window memory
//!
//! Several ranks write the bytes of a window's memory. No Rust reference ever points to them:
//! elements are copied in and out, by atomic accesses or by copies that behave as a loop of relaxed
//! byte atomics. So what another rank writes cannot cause undefined behaviour in a program in safe
//! Rust; at worst the program reads bytes that are a mixture of several writes.
//!
//! **Single accesses.** A put, a get, a local read or a local write of one element of 8 bytes at a
//! multiple of 8 bytes (every `u64`, `i64`, `f64` of a window) is one access: no rank sees half of
//! it. The same holds for every atomic operation, of any size. A put or get of more than one
//! element copies bytes in no particular order.
//!
//! # Order
//!
//! These calls order what ranks see. In the table *this rank* is the origin that made the call.
//!
//! | call | after it has returned |
//! |---|---|
//! | [`Access::put`](crate::Access::put) | the slice can be reused. The target has the data later. |
//! | [`Access::get`](crate::Access::get), waited for | the slice has what the target had at some time between the call and the return, including all earlier puts of this rank to that target. |
//! | [`Access::accumulate`](crate::Access::accumulate), waited for | the slice can be reused. The target has the result later, as with a put; a later atomic operation of this rank on these elements takes effect after it. |
//! | [`Access::get_accumulate`](crate::Access::get_accumulate) and the other atomic operations that return a value, waited for | the operation is complete **at the target**. |
//! | [`Access::flush`](crate::Access::flush), waited for | everything this rank has posted to the target is complete **at the target**: any observer that then synchronises with this rank, by any means, sees it: the target's CPU, the target's card, a third rank that gets it. And what this rank reads next is not older than the flush. |
//! | [`Access::flush_local`](crate::Access::flush_local) | only this rank's own buffers can be reused. |
//! | [`Epoch::unlock`](crate::Epoch::unlock) | everything done under the lock is complete at the target before another rank can hold the lock exclusively. The release itself is posted, not waited for. |
//! | [`Locked::put`](crate::Locked::put), [`Locked::update`](crate::Locked::update), waited for | the data and the release behind it are posted: the next owner of the lock sees the data. Other ranks see it after [`Locked::flush`](crate::Locked::flush). |
//! | [`Versioned::read_into`](crate::Versioned::read_into), waited for | the slice has what the target had at one time between two writes ([`Versioned::write`](crate::Versioned::write)), and everything that was unlocked before the call by ranks that synchronised with this one. |
//! | [`Local::wait_until`](crate::Local::wait_until), woken by [`Access::signal`](crate::Access::signal) | this rank sees what the signalling rank had put to it before, through any window, flushed or not. |
//! | [`Access::put_signal`](crate::Access::put_signal) | the slice can be reused. A rank that sees the signal sees the data, and what this rank had put to that target before. |
//! | [`Window::sync`](crate::Window::sync) | this thread's own accesses of mapped memory before it take effect before those after it, and before the operations posted after it. |
//! | [`FenceEpoch::fence`](crate::FenceEpoch::fence) | every rank has reached it; what each did between the fences is complete and visible to all, by [`Window::local`](crate::Window::local) too. |
//! | [`AccessEpoch::complete`](crate::AccessEpoch::complete) | what was done since the start is complete at the targets. |
//! | [`Window::post`](crate::Window::post), waited for | this rank sees what its origins had completed. |
//! | [`Window::start`](crate::Window::start), waited for | this rank sees what its targets had written before they posted, locally or by operations they had completed. |
//! | [`World::barrier`](crate::World::barrier) | every rank has reached it. What a rank had **flushed or unlocked** before its barrier, every rank sees after its own. |
//!
//! The consequences, as sentences to rely on:
//!
//! 1. *A lock hands over.* What was done under an exclusive lock of a target is visible to the next
//!    owner of that target's lock, shared or exclusive; what was read under a shared lock was read
//!    before the next exclusive owner writes.
//! 2. *A put alone orders nothing.* Two puts to one rank's memory in one window arrive in order on
//!    every fabric of this library (to two windows on all but `mixed`). But a third rank that polls
//!    the second may rely on the first only if the first was flushed in between.
//! 3. *A lock of one target orders nothing at another.* If the lock of rank 2 protects data at rank
//!    1, flush that data before unlocking rank 2.
//! 4. *A flush is a full fence at this rank.* `put x; flush; get y` here and `put y; flush; get x`
//!    there cannot both miss the other's put.
//! 5. *Local accesses synchronise nothing.* [`Window::local`](crate::Window::local) reads and
//!    writes local window memory immediately. Under a lock of the rank's own memory, or after a
//!    barrier, it sees what peers completed; without either it may see any bytes that they write.
//! 6. *One rank's puts to one element are seen in order.* A rank that reads an 8-byte element
//!    twice, and waits for the first read before the second, never sees the puts go backwards. For
//!    two elements see sentence 2.
//! 7. *A sync is a full fence of local accesses.* `write x; sync; read y` here and
//!    `write y; sync; read x` there, each writing its own memory by
//!    [`Window::local`](crate::Window::local) or [`Window::direct`](crate::Window::direct), cannot
//!    both miss the other's write. A rank that reads a flag in its own memory and then syncs sees
//!    there what had been flushed before the flag was put. A sync does not complete posted
//!    operations: a flush does.
//!
//! # Atomics
//!
//! [`accumulate`](crate::Access::accumulate), [`get_accumulate`](crate::Access::get_accumulate),
//! [`fetch_and_op`](crate::Access::fetch_and_op),
//! [`compare_and_swap`](crate::Access::compare_and_swap) and the locks are atomic with respect to
//! each other, element by element, whichever rank issues them, the target itself included. All of
//! them go through the one atomic agent of the window's memory
//! ([`Capabilities::agent`](onesided_fabric::Capabilities)). On shared memory that is the CPU. On
//! verbs it is the target's card, and a rank reaches even its own memory through the card: with
//! `ATOMIC_HCA` the CPU's atomics and the card's are not atomic with respect to one another
//! (InfiniBand Architecture Specification, volume 1, 9.4.5).
//!
//! An accumulate of many elements is as many atomic operations, in no particular order: another
//! rank may see some of them done and others not. All operations may be mixed on one element; MPI
//! promises less (the same operation, or no-op, unless the window says otherwise).
//!
//! *Order.* Atomic operations of one rank on one element take effect in the order in which that
//! rank waited for them: MPI's default `accumulate_ordering`. Two whose handles are open at the
//! same time have no order, even on one element. There is no order across elements, or between an
//! atomic operation and a put. The reason: an operation that is a loop of compare-and-swaps, or
//! that an agent carries out, is complete when it was waited for; one that the fabric supports
//! natively is posted when its call returns, on a connection that keeps the order of its atomics
//! and reads.
//!
//! *Limits.*
//!
//! - Atomics are **not** atomic with respect to puts and local writes.
//! - Windows overlap only if they were created over one [`WindowMemory`](crate::WindowMemory). They
//!   are then one memory with one agent, so atomics through all of them are atomic with respect to
//!   one another. Attached memory may be reached by any number of remote pointers, all of one
//!   agent.
//! - Elements of less than 8 bytes are changed by compare-and-swaps on the 8 bytes around them.
//!   Beside other atomics on the neighbouring elements that is correct everywhere. Beside puts and
//!   local writes of them it is correct on shared memory only, because a card's atomics are not
//!   atomic with respect to writes.
//!
//! # User memory
//!
//! A window that was [created](crate::Window::create) over a vector, and memory that was
//! [attached](crate::Window::attach), keep all promises of the table above: a put is complete at
//! the target when it returns, or at the flush. Three things differ:
//!
//! - *Single accesses.* On shm a put or a get of 8 bytes between processes is a copy by the kernel,
//!   which promises no more than bytes, so sentence 6 does not hold either. Change what several
//!   ranks change at the same time by atomic operations, which are single accesses for every rank;
//!   [`fetch_one`](crate::Access::fetch_one) and [`Replace`](crate::Op::Replace) are among them.
//! - *The agent* is the CPU of the target's process. Its own threads change elements immediately;
//!   other processes ask its helper thread. All of these are atomic with respect to one another.
//!   The thread is asked only when an operation is waited for: a sum whose handle is dropped, which
//!   elsewhere would have been posted, does not happen. A [`signal`](crate::Access::signal) is a
//!   put. A rank that [waits](crate::Local::wait_until) for it looks only between signals, so it
//!   never sees half of one.
//! - *End of access.* [`close_into`](crate::Window::close_into), [`detach`](crate::Window::detach)
//!   and [`WindowMemory::take_back`](crate::WindowMemory::take_back) close an access guard in
//!   shared memory. From then on no peer begins an operation on the memory, and the vector returns
//!   only when no peer is inside the guard (model-checked by loom). A peer that was killed inside
//!   is not waited for. If a peer is stopped inside for 5 s, the call fails and the memory is
//!   leaked. If a window is dropped and its memory is not taken back, the memory is freed only if
//!   no peer is inside, and leaked otherwise.
//!
//! Several windows over one [`WindowMemory`](crate::WindowMemory) have a lock each, which excludes
//! only accesses through its own window. What completes an operation (a flush, an unlock, a fence)
//! also completes it for ranks that then read through another of the windows.
//!
//! A window owns the vector and never borrows it. A loan would end with a guard, and forgetting a
//! guard must not let a peer write to memory that is used for something else.
//!
//! # Direct loads and stores
//!
//! [`Window::direct`](crate::Window::direct) gives mapped window memory as atomics, and copies in
//! and out of it. It is the same memory that the window's operations reach: on shm an atomic
//! operation or a get that reads a release store sees it together with all that came before;
//! atomics of both kinds are atomic with respect to one another. That is MPI's unified memory
//! model. On verbs only the rank's own memory is available, on mixed that of the ranks of its host,
//! and a change by the CPU is not atomic with respect to the card's: do not store to elements that
//! atomic operations change at the same time ([`Direct`](crate::Direct)). A rank's loads see its
//! own puts after a flush.
//!
//! # What each promise rests on
//!
//! | | shared memory | verbs |
//! |---|---|---|
//! | put is complete at the flush | it was a store; the flush is a full fence | a read on the same connection behind the writes: its answer says that they are placed |
//! | a lock hands over | compare-and-swap is acquire, release is a release store | flush, then an atomic operation on the lock word: a write that races with a compare-and-swap may be lost |
//! | the release of `Locked::put` follows the data | the release store | in one chain: a read behind the writes, and the release fenced behind the read's answer (Soft-RoCE keeps that order without a fence) |
//! | what `Locked::get` reads is read under the lock | the compare-and-swap is an acquire | a read behind the compare-and-swap on the same connection; it counts only if the swap took the lock |
//! | a versioned read is whole | full fences between version and data, on both sides | writes on one connection, placed in order; reads waited for one after another |
//! | post and complete hand over | a release store after the accesses, which the other side's acquire load sees | flush, then a write on the same connection |
//! | a signal follows its data | a release store after the data's, which the waiter's acquire load sees; in user memory of a word that counts the signals | two writes on the same connection, placed in order |
//! | a sync is a full fence | the CPU's | the same, because the card works on memory that is coherent with the CPU's caches (x86-64) |
//! | 8-byte accesses are single | aligned moves of the CPU | an aligned 8-byte read or write is one access of the card and of the CPU |
//! | waking a sleeper | store, full fence, look for a sleeper (Dekker) | write with immediate and a solicited event |
//!
//! On `mixed` everything rests on the same grounds as on verbs, except puts and gets to ranks of
//! the same host, which are stores and loads:
//!
//! | | mixed, a rank of the same host |
//! |---|---|
//! | put is complete at the flush | it was a store; the flush is a full fence, and that of verbs |
//! | a lock hands over; a release or a signal follows its data | the request to the card is posted after the stores, and the card works on the same coherent memory |
//! | what `Locked::get` reads is read under the lock | the compare-and-swap is waited for, then the CPU reads: loads would overtake it |
//! | a versioned read is whole | the odd version is flushed, then the CPU stores; the even one is posted behind the stores |
//! | a get sees this rank's own puts, atomics and signals | within one rank's memory of a window: while changes of its words may be in flight, the get goes through the card |
//!
//! Bytes may overtake words of another region, a lock's or another window's.
//! [`keeps_order`](onesided_fabric::keeps_order) says whether they can, and the windows
//! check it. The module documentation of `onesided_fabric::verbs::mixed` has the argument.
//!
//! # How each promise is tested
//!
//! A litmus test is a small program that runs many times with random skew and counts forbidden
//! outcomes. The tests run by threads and by processes on shared memory, on allocated memory and on
//! user memory (copied by the kernel and by helper threads); by threads, and with `--long` by
//! processes, on verbs in the Soft-RoCE machine (stage `soft-roce-litmus` of `scripts/test`); and in
//! simulation, where messages overtake each other. The same program also runs on a fabric that breaks
//! the promise on purpose, and the test must detect that. The tests are in `tests/it/litmus`.
//!
//! | promise | litmus test | the planted fabric that it catches |
//! |---|---|---|
//! | sentence 4; a flush orders what is read next | `store_buffering` | a flush that waits for nothing |
//! | flush, then a flag (a put, an atomic, a signal) at any rank; sentence 2 | `message_passing` | the same |
//! | flush: seen by the target's CPU, its card, a third rank, synchronised by any means | `third_rank` | the same |
//! | put: the slice can be reused; `flush_local` | scenarios `rput_local_comp`, `get_flushlocal` | |
//! | a get sees this rank's own puts | `read_own_writes` | puts that leave late |
//! | sentence 6 | `coherence` | the same |
//! | sentence 1, unlock | `lock_hands_over` | locks that are always free; puts that leave late |
//! | `Locked`: the same | `locked_update`; scenario `locked_operations` | locks that are always free; bytes that overtake words on a fabric that claims to keep order (by hand: a read that counts although the lock was not taken) |
//! | a versioned read is of one time between two writes | `versioned_read`; loom on its fences | puts that leave late; a version that does not change |
//! | sentence 3 | `lock_elsewhere`, with the flush; `a_lock_orders_nothing_elsewhere`, without it: late data is seen | a flush that waits for nothing |
//! | sentence 5, under a lock | `local_under_lock` | locks that are always free |
//! | sentence 5, after a barrier; the barrier's row | `barrier` | a flush that waits for nothing |
//! | fence | `fence` | the same |
//! | post, start, complete, wait | `post_start_complete_wait` | puts that leave late |
//! | signal, put_signal and wait_until | `signal` | the same |
//! | sentence 7 | `sync_store_buffering`, `sync_message_passing` | local writes that take effect late; puts that leave late |
//! | single accesses | `single_access` | 8 bytes as two halves |
//! | an atomic operation that gave its value is complete there | `complete_when_waited` | atomics that take effect late |
//! | the order of atomics on one element | `accumulate_order` | the same |
//! | atomic element by element, every size, the owner included | `atomicity` | atomics that are a read and a write |
//! | puts beside small atomics, on shared memory | `neighbours` | the same |
//!
//! x86-64 shows a missing flush (`store_buffering` without it fails by threads), but no missing
//! acquire or release. Loom explores these orderings of the shared-memory fabric
//! (`fabric/src/shm/explored`).
//!
//! The terms are those of MPI-4.1, chapter 12. Where MPI leaves a choice to the implementation
//! (what concurrent conflicting accesses do, whether a put may be seen before its flush), this page
//! states the choice of this library.
