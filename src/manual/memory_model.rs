//! What a put, a flush, an unlock and a barrier promise, and to whom.
//!
//! # What a window's memory is
//!
//! Bytes that several ranks write. No Rust reference ever points to them: elements are copied in and out, by atomic
//! accesses or by copies whose meaning is that of a loop of relaxed byte atomics. So no program in safe Rust has undefined
//! behaviour by what another rank writes; at worst it reads bytes that are a mixture of several writes.
//!
//! **Single accesses.** A put, a get, a local read or write of one element of 8 bytes that lies at a multiple of 8 bytes
//! (every `u64`, `i64`, `f64` of a window does) is one access: never half of two values. So is every atomic operation, of
//! whatever size. A put or get of more than one element is bytes in no particular order.
//!
//! # Order
//!
//! These calls order what ranks see. In the table *this rank* is the origin that made the call.
//!
//! | call | after it has returned |
//! |---|---|
//! | [`Access::put`](crate::Access::put) | the slice may be used again. The target has the data later. |
//! | [`Access::get`](crate::Access::get), waited for | the slice has what the target had at some time between the call and the return; of this rank's own earlier puts to that target, all. |
//! | [`Access::accumulate`](crate::Access::accumulate), waited for | the slice may be used again. The target has the outcome later, as with a put; a later atomic operation of this rank on these elements comes after it. |
//! | [`Access::get_accumulate`](crate::Access::get_accumulate) and the other atomic operations that give a value, waited for | the operation is complete **there**. |
//! | [`Access::flush`](crate::Access::flush), waited for | everything this rank has posted to the target is complete **there**: whoever then synchronises with this rank, by whatever means, sees it: the target's CPU, the target's card, a third rank that gets it. And what this rank reads next is not older than the flush. |
//! | [`Access::flush_local`](crate::Access::flush_local) | only this rank's own buffers are done with. |
//! | [`Epoch::unlock`](crate::Epoch::unlock) | everything done under the lock is complete at the target before anybody else can hold the lock exclusively. The release itself is posted: nobody waits for it. |
//! | [`Locked::put`](crate::Locked::put), [`Locked::update`](crate::Locked::update), waited for | the data and the release behind it are posted: whoever holds the lock next sees the data. Anybody else does after [`Locked::flush`](crate::Locked::flush). |
//! | [`Versioned::read`](crate::Versioned::read), waited for | the slice has what the target had at one time between two writes ([`Versioned::write`](crate::Versioned::write)), and all that was unlocked before the call by those who synchronised with this rank. |
//! | [`Local::wait_until`](crate::Local::wait_until), told by [`Access::signal`](crate::Access::signal) | this rank sees what the one that signalled had put to it before, through any window, flushed or not. |
//! | [`Access::put_signal`](crate::Access::put_signal) | the slice may be used again. Whoever sees the signal sees the data, and what this rank had put to that target before. |
//! | [`Window::sync`](crate::Window::sync) | this thread's own accesses of mapped memory before it come before those behind it, and before the operations posted behind it. |
//! | [`FenceEpoch::fence`](crate::FenceEpoch::fence) | every rank has come to it, and what each did between the fences is complete and seen by all, by [`Window::local`](crate::Window::local) too. |
//! | [`AccessEpoch::complete`](crate::AccessEpoch::complete) | what was done since the start is complete at the targets. |
//! | [`ExposureEpoch::wait`](crate::ExposureEpoch::wait) | this rank sees what its origins had completed. |
//! | [`StartRequest::wait`](crate::StartRequest::wait) | this rank sees what its targets had written, locally or by what they had completed, before they posted. |
//! | [`World::barrier`](crate::World::barrier) | every rank has come to it. What a rank had **flushed or unlocked** before its barrier, every rank sees after its own. |
//!
//! What follows, as sentences to rely on:
//!
//! 1. *Lock hands over.* What was done under an exclusive lock of a target is seen by whoever holds that target's lock
//!    next, shared or exclusive; what was read under a shared lock was read before the next exclusive holder writes.
//! 2. *A put alone orders nothing.* Two puts to one rank's part of one window arrive in order on every fabric of this
//!    library (to parts of two windows on all but `mixed`), but a third rank that polls the second may only rely on the first
//!    if the first was flushed in between.
//! 3. *A lock of one target orders nothing at another.* Data at rank 1 that is protected by the lock of rank 2 is to be
//!    flushed before rank 2 is unlocked.
//! 4. *Flush is a full fence at this rank.* `put x; flush; get y` here and `put y; flush; get x` there cannot both miss the
//!    other's put.
//! 5. *Local accesses are not magic.* [`Window::local`](crate::Window::local) reads and writes the part at once. Under a
//!    lock of one's own part, or after a barrier, it sees what peers completed; without either it sees any bytes they
//!    write.
//! 6. *One rank's puts to one element are seen in their order.* Whoever reads an 8-byte element twice, one read waited for
//!    before the next, never sees them go back. Of two elements sentence 2 speaks.
//! 7. *A sync is a full fence of local accesses.* `write x; sync; read y` here and `write y; sync; read x` there, each writing its
//!    own part by [`Window::local`](crate::Window::local) or [`Window::direct`](crate::Window::direct), cannot both miss the other's
//!    write. And who reads a flag in its own part, then syncs, sees there what had been flushed before the flag was put. It
//!    completes nothing that was posted: that is a flush.
//!
//! # Atomics
//!
//! [`accumulate`](crate::Access::accumulate), [`get_accumulate`](crate::Access::get_accumulate),
//! [`fetch_and_op`](crate::Access::fetch_and_op), [`compare_and_swap`](crate::Access::compare_and_swap) and the locks are
//! atomic against each other, element by element, whoever issues them, the owner of the part included: all of them go through the one agent
//! that the window's memory belongs to ([`Capabilities::agent`](onesided_fabric::Capabilities)). On shared memory that is the CPU. On
//! verbs it is the target's card, and a rank reaches even its own part through the card: with `ATOMIC_HCA` the CPU's atomics
//! and the card's are not atomic with one another (InfiniBand Architecture Specification, volume 1, 9.4.5).
//!
//! An accumulate of many elements is as many atomic operations, in no particular order: another rank may see some of them
//! done and others not. All operations may meet on one element; MPI promises less (the same operation, or
//! no-op, unless the window says otherwise).
//!
//! *Order.* Atomic operations of one rank on one element take effect in the order in which that rank waited for them: MPI's
//! default `accumulate_ordering`. Two whose handles are open at the same time have no order, even on one element. Nothing
//! is promised across elements, or between an atomic operation and a put. The ground: an operation that is a loop of
//! compare-swaps, or is asked of an agent, is over when it was waited for, and one that is the fabric's own is posted when its
//! call returns, on a connection that keeps the order of its atomics and reads.
//!
//! They are **not** atomic against puts and local writes. Windows overlap only where they were made over one
//! [`WindowMemory`](crate::WindowMemory): then they are one memory with one agent, and atomics through all of them are atomic
//! against one another. Memory that is attached may be reached by any number of places, all of one agent.
//! Elements of less than 8 bytes are changed by compare-swaps on the 8 bytes around them: correct next to other atomics;
//! next to puts and local writes of the neighbouring elements on shared memory only, because a card makes its atomics
//! atomic against one another and not against writes.
//!
//! # Memory of the user's
//!
//! A window that was [created](crate::Window::create) over a vector, and memory that was [attached](crate::Window::attach),
//! keep all promises of the table above: a put is there when it returns, or at the flush. Three differ:
//!
//! - *Single accesses.* On shm a put or a get of 8 bytes between processes is a copy by the kernel, which promises no
//!   more than bytes, so that sentence 6 is not promised either. What several ranks change at the same time is changed by
//!   atomic operations, which are single for everybody, [`fetch_one`](crate::Access::fetch_one) and a [`Replace`](crate::Op::Replace) among them.
//! - *The agent* is the CPU of the owner's process: its own threads change elements at once, others ask its helper thread.
//!   All of them are atomic against one another. The thread is asked only when an operation is waited for: a sum that is
//!   dropped, which elsewhere was posted, is not done. A [`signal`](crate::Access::signal) is a put, and who
//!   [waits](crate::Local::wait_until) for it looks only between signals: so it sees no half of one.
//! - *An end.* From [`close_into`](crate::Window::close_into), [`detach`](crate::Window::detach) and
//!   [`WindowMemory::take_back`](crate::WindowMemory::take_back) on no peer begins an operation on the memory, and none is in the middle of one when the vector is back: a gate in shared memory is shut, and
//!   the owner waits until nobody is inside (explored by loom). A peer that was killed inside is not waited for. One that is
//!   stopped inside for 5 s costs the memory: the error says so, and it is never freed. Memory that nobody takes back, because
//!   a window is dropped, is freed only if nobody is inside, and leaked otherwise.
//!
//! Several windows over one [`WindowMemory`](crate::WindowMemory) have a lock each: what excludes whom is told by the window that it
//! was done through. What completes an operation (a flush, an unlock, a fence) completes it for whoever then reads through
//! another of the windows.
//!
//! The vector is owned by the window, never borrowed: a loan would end with a guard, and forgetting a guard must not let a peer
//! write to memory that is used for something else.
//!
//! # Direct loads and stores
//!
//! [`Window::direct`](crate::Window::direct) gives a part that is mapped here as atomics, and copies in and out of it. They
//! are the same memory that the window's operations reach: on shm a store of release order here is seen by an atomic
//! operation or a get there that reads it, with all that came before; atomics of both kinds are atomic against one another. MPI's
//! unified memory model. On verbs there are one's own words only, on mixed those of the ranks of one's host, and a change by the
//! CPU is not atomic against the card's: what atomic operations change is not stored to at the same time
//! ([`Direct`](crate::Direct)). What this rank has put is seen by its loads after a flush.
//!
//! # On which ground each promise stands
//!
//! | | shared memory | verbs |
//! |---|---|---|
//! | put is complete at the flush | it was a store; the flush is a full fence | a read on the same connection behind the writes: its answer says that they are placed |
//! | lock hands over | compare-swap is acquire, release is a release store | flush, then a fetch-add on the lock word: a write that meets a compare-swap may be lost |
//! | the release of `Locked::put` follows the data | the release store | in one list: a read behind the writes, and the release fenced behind the read's answer (Soft-RoCE keeps that order without a fence) |
//! | what `Locked::get` reads is read under the lock | the compare-swap is an acquire | a read behind the compare-swap on the same connection; it counts only if that took the lock |
//! | a versioned read is whole | full fences between version and data, on both sides | writes on one connection, placed in order; reads waited for one after another |
//! | post and complete hand over | a release store after what was done, that the other side's acquire load sees | flush, then a write on the same connection |
//! | a signal follows its data | a release store after the data's, that the waiter's acquire load sees; in lent memory of a word that counts the signals | two writes on the same connection, placed in order |
//! | a sync is a full fence | the CPU's | the same, because the card works on memory that is coherent with the CPU's caches (x86-64) |
//! | 8-byte accesses are single | aligned moves of the CPU | an aligned 8-byte read or write is one access of the card and of the CPU |
//! | waking a sleeper | store, full fence, look for a sleeper (Dekker) | write with immediate and a solicited event |
//!
//! On `mixed` everything stands on the grounds of verbs, but for puts and gets to ranks of the same host, which are stores and
//! loads:
//!
//! | | mixed, a rank of the same host |
//! |---|---|
//! | put is complete at the flush | it was a store; the flush is a full fence, and that of verbs |
//! | lock hands over; a release or a signal follows its data | the card is asked behind the stores, and works on the same coherent memory |
//! | what `Locked::get` reads is read under the lock | the compare-swap is waited for, then the CPU reads: loads would overtake it |
//! | a versioned read is whole | the odd version is flushed, then the CPU stores; the even one is posted behind the stores |
//! | a get sees this rank's own puts, atomics and signals | within one part: behind changes of its words that may be under way the card is taken |
//!
//! Bytes may overtake words of another region, a lock's or another window's:
//! [`keeps_order`](onesided_fabric::Fabric::keeps_order) tells, and the windows ask. The module documentation of `onesided_fabric::mixed` has the
//! argument.
//!
//! # How each promise is tested
//!
//! A litmus test is a small program that runs many times with random skew and counts what is forbidden: by threads and by
//! processes on shared memory, on allocated memory and on lent (by copies of the kernel and by helper threads), by threads and by processes on verbs in the Soft-RoCE machine (stage `soft-roce-litmus` of
//! `scripts/test`), and in simulation, where messages overtake each other. Beside each runs the same program on a fabric
//! that breaks the promise on purpose, and the test must see that. They lie in `tests/it/litmus`.
//!
//! | promise | litmus test | the planted fabric that it catches |
//! |---|---|---|
//! | sentence 4; a flush orders what is read next | `store_buffering` | a flush that waits for nothing |
//! | flush, then a flag (a put, an atomic, a signal) at whatever rank; sentence 2 | `message_passing` | the same |
//! | flush: seen by the target's CPU, its card, a third rank, told by whatever means | `third_rank` | the same |
//! | put: the slice may be used again; `flush_local` | scenarios `rput_local_comp`, `get_flushlocal` | |
//! | a get sees this rank's own puts | `read_own_writes` | puts that leave late |
//! | sentence 6 | `coherence` | the same |
//! | sentence 1, unlock | `lock_hands_over` | locks that are always free; puts that leave late |
//! | `Locked`: the same | `locked_update`; scenario `locked_operations` | locks that are always free; bytes that overtake words, untold (by hand: a read that counts though the lock was lost) |
//! | a versioned read is of one time between two writes | `versioned_read`; loom on its fences | puts that leave late; a version that stays |
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
//! x86-64 shows a missing flush (`store_buffering` without it fails by threads), but no missing acquire or release; these
//! orderings of the shared-memory fabric are explored by loom (`fabric/src/shm/explored`).
//!
//! The terms are those of MPI-4.1, chapter 12; where MPI leaves a choice to the implementation (what concurrent
//! conflicting accesses do, whether a put may be seen before its flush), the above is what this one chose.
