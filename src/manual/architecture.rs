//! How the library is built, for whoever reads or changes it.
//!
//! | crate | is | may use |
//! |---|---|---|
//! | `onesided` | this facade | everything below |
//! | [`onesided_remote_memory`] | the boundary: the traits [`RemoteMemory`](onesided_remote_memory::RemoteMemory) and [`Mailbox`](onesided_remote_memory::Mailbox) | nothing, not even `std` |
//! | [`onesided_lock_algos`] | locks as algorithms | the boundary |
//! | `onesided-lock-kit` | what locks are verified with | the boundary, locks, loom, proptest |
//! | [`onesided_job`](onesided_fabric::bootstrap) | who is in a job: launcher, PMI, rendezvous, host daemon; the memory that a host's ranks share | the boundary, the system |
//! | [`onesided_fabric`] | primitives, endpoints, shared memory, verbs | the boundary, job, the system |
//! | [`onesided_windows`] | windows, epochs, operations | locks, fabric |
//! | `onesided-two-sided` | messages (a first page) | fabric |
//! | `onesided-sim` | the simulated fabric | fabric |
//! | `onesided-cli` | the program `onesided` | all |
//!
//! # The idea
//!
//! **An algorithm is written once and knows no fabric.** A lock is an `async fn` over
//! [`RemoteMemory`](onesided_remote_memory::RemoteMemory). Over shared memory its futures are ready at once and compile away; over
//! verbs they complete from the completion queue; the simulator completes them in virtual time; loom runs the same source
//! through every interleaving. What was verified is what ships.
//!
//! # One value, from `put` to each fabric
//!
//! 1. [`Access::put`](crate::Access::put) checks the elements against the target's part and calls
//!    [`Fabric::put`](onesided_fabric::Fabric::put) with bytes and an offset.
//! 2. *shm*: [`ShmSegment`](onesided_fabric::shm::ShmSegment) checks the range against the mapping and copies: one atomic store for
//!    8 aligned bytes, otherwise the copy of `job/src/segment/copy.rs`. Done.
//! 3. *verbs*: the bytes are copied into a registered staging buffer, a write is posted on the connection to the target, the
//!    call returns; the completion frees the buffer.
//! 4. *sim*: the bytes go into an event that arrives when the model says so.
//! 5. [`Access::flush`](crate::Access::flush): a full fence; a read behind the writes; an event.
//!
//! # Decisions that shape everything
//!
//! - **Words are resolved once** and remember their path, so an operation is a pointer away (a table look-up per operation
//!   cost a tenth to a third; a virtual call three times the instruction).
//! - **Faults are one word**; the rich error is made where operation and place are known, on a cold path (a 32-byte error
//!   made the fast path three times slower).
//! - **An acquire is `start`, `holds`, `contend`**: the first two are plain functions, so that the uncontended lock has no
//!   future at all; only the contended rest is `async`.
//! - **Waiting is an operation** ([`wait_until`](onesided_remote_memory::RemoteMemory::wait_until),
//!   [`pause`](onesided_remote_memory::RemoteMemory::pause)), never a loop in an algorithm: a driver can sleep, a simulator can skip
//!   the time, a model checker can block.
//! - **Whatever needs its origin gives a handle** that is waited for: a get, and an accumulate that the fabric cannot do by
//!   itself, because its compare-swaps have to know what they found. A queue of unfinished loops behind the user's back
//!   would need memory, a thread, and an order with everything that is posted meanwhile. What the fabric does by itself
//!   (puts, sums of 8-byte integers) is posted, and a flush completes it.
//! - **A write is not a signal** ([`Notify`](onesided_remote_memory::Notify)): an RDMA write raises no event at its target, a store
//!   wakes no futex.
//! - **The user's memory is owned** ([`UserMemory`](onesided_fabric::UserMemory)) and has no words
//!   ([`WORDLESS`](onesided_fabric::WORDLESS)): a word is a reference that would outlive the loan. What would need one fails on its
//!   error path, and goes on to the region's agent from there, so that ordinary windows pay nothing for it. The agent's
//!   requests lie in the hidden regions, a place for each pair of ranks: a place is never full, needs nobody to sort what is
//!   whose, and ends with its window, where messages to a port of the endpoint would need all three.
//! - **A shape reaches the fabric whole**, as an iterator of pieces ([`Fabric::put_pieces`](onesided_fabric::Fabric::put_pieces)): so
//!   one call of the kernel, or one message to a helper thread, takes many of them, and nobody packs them before. Over a card
//!   the helper thread carries them only in windows that ask for it: everywhere else the target has nothing to do with an
//!   operation on its part. What it carries is done when it was waited for, so that a put of a shape gives a handle; posted
//!   behind the user's back it would have no order with what the card does meanwhile.
//! - **Allocation needs nobody**: on shared memory a region is a piece of a file that peers have mapped already, so what is left of
//!   a collective allocation is one barrier. No region's number comes twice, and a count in shared memory keeps a piece from
//!   being used again while a peer holds it: a handle kept too long harms nobody, and operations check nothing. Data and lock
//!   words stay two regions: on `mixed` a word under way sends the bytes of its region by the card.
//! - **Counting costs nothing where nobody asked**: a part that is counted pretends to have no elements, so that the range
//!   check fails and its cold path counts. A test of its own took a lock with a put from 7.0 to 10.4 ns.
//! - **Everything is `Send`**, the simulator too: so a generic acquire can be boxed and handed to the endpoint that finishes
//!   it.
//! - **Unsafe** lies in the files that say `allow(unsafe_code)`: mappings, copies, the user's memory taken apart, copies from
//!   process to process, the way from a segment to its bytes,
//!   libibverbs, what happens between fork and exec, and the descriptor that a process manager left open. The benchmarks
//!   have four more, for bare `memcpy`.
//!
//! # How it is verified
//!
//! | what | by |
//! |---|---|
//! | the locks, as shipped | loom over a memory of its own (2 and 3 origins, bounds in [`onesided_lock_algos`]); proptest against a sequential model; planted wrong variants that both must catch |
//! | the shared memory's doorbell, rings, the gate of lent memory and holds of memory that is used again | loom over their real orderings |
//! | every fabric | one conformance suite (`onesided_fabric::conformance`), on shm, verbs and mixed in a Soft-RoCE machine, and the simulator; planted wrong fabrics |
//! | windows | scenarios after MPICH's test/mpi/rma, one body each (`sim/tests/scenarios`), by threads, simulated, and on verbs; random operations against a plain model, and on two fabrics against one another |
//! | the memory model | litmus tests, one for each sentence ([`memory_model`](crate::manual::memory_model)), on shm, verbs and simulated, and on fabrics that break the promise |
//! | processes, faults | real processes under our launcher, MPICH's, and none: kills, wrong secrets, garbage, exhausted limits |
//! | several hosts | network namespaces: kills, pulled cables, lost packets, garbage; two Soft-RoCE machines: the same under verbs |
