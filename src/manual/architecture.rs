//! How the library is built, for contributors.
//!
//! The crates, from the top to the bottom. Dependencies point down only:
//!
//! ```text
//! cli         -> windows, two-sided, sim, lock-kit   the program `onesided`
//! onesided    -> windows, two-sided, lock-algos      the facade and the manual
//! lock-kit    -> lock-algos; benchmarks: sim, fabric verification and benchmarks of locks
//! two-sided   -> lock-algos, fabric, layouts         messages
//! windows     -> lock-algos, fabric, layouts         RMA windows
//! sim         -> fabric                              the simulated fabric
//! fabric      -> job                                 shm, verbs, mixed; endpoints
//! job         -> remote-memory                       ranks, host daemons, shared segment
//! lock-algos  -> remote-memory                       locks as algorithms
//! layouts                                            shapes of elements in memory; pack, unpack; operations
//! remote-memory                                      the boundary: one-sided operations on words
//! ```
//!
//! | crate | contains | may use | free to change | changes with |
//! |---|---|---|---|---|
//! | [`onesided_remote_memory`] | the boundary: the trait [`RemoteMemory`](onesided_remote_memory::RemoteMemory) | nothing, not even `std` (with the feature `serde`: that) | nothing | every fabric, the kit's memories, every lock |
//! | [`onesided_lock_algos`] | locks as algorithms | the boundary | the words and steps of a lock | `LockAlgorithm`, `LockContext`: windows and the kit |
//! | `onesided-layouts` | shapes and operations, which windows and messages share ([`Shape`](crate::Shape), [`Op`](crate::Op)); pack and unpack | nothing | how it copies | a new kind of shape: windows and messages |
//! | `onesided-lock-kit` | the verification and benchmark kit for locks | the boundary, locks, loom, proptest; for benchmarks fabric, sim | how it explores | its public checks: users' own locks |
//! | [`onesided_job`](onesided_fabric::bootstrap) | who is in a job: launcher, PMI, rendezvous, host daemon; the memory that a host's ranks share | the boundary, the system | everything behind `Job` and `Exchange` | wire formats: their version; `ONESIDED_*` variables: never |
//! | [`onesided_fabric`] | primitives, endpoints, shared memory, verbs | the boundary, job, the system | `shm` and `verbs` (with `fabric/src/verbs/mixed.rs`), each on its own | [`Fabric`](onesided_fabric::Fabric), [`Transport`](onesided_fabric::Transport) and [`Drive`](onesided_fabric::Drive): three fabrics and the table in `dispatch` |
//! | [`onesided_windows`] | windows, epochs, operations | locks, fabric, layouts | what the root does not export | the message of window creation (`windows/src/window/exchange.rs`): its version |
//! | [`onesided_two_sided`](crate::two_sided) | messages: matching, eager and rendezvous protocol; locks over messages, which take their queue from the served locks of windows | fabric, layouts, locks | everything but the packets (`wire.rs`), which all ranks of a job share | |
//! | `onesided-sim` | the simulated fabric, and testbeds with hosts, processors and cards as profiles (`sim/profiles`) | the boundary, fabric | everything behind `Simulation` | a profile: before its figures are run, never after |
//! | `onesided-cli` | the program `onesided`; ssh and Slurm, by which it starts host daemons | fabric, windows, sim, lock-kit | everything but options and JSON keys | |
//! | `onesided-instances` | instances of generic code that test programs share, compiled once; not published | all of them but cli | everything | |
//! | `onesided-instructions` | short operations, whose instructions `scripts/instructions` counts; not published | the facade | everything | |
//! | `onesided` | the facade and the manual | windows, fabric, locks | the manual | the names that users import |
//!
//! # Where things are
//!
//! | question | answer |
//! |---|---|
//! | Where does a put become a store? | `Access::put` (`windows/src/operation/access.rs`), `Shm::put` (`fabric/src/shm/bulk.rs`), `ShmSegment::write` (`fabric/src/shm/segment.rs`), `into_shared` (`job/src/segment/copy.rs`): one atomic store for 8 aligned bytes, else a copy. With the feature `verbs`, `fabric/src/dispatch/bulk.rs` chooses the fabric between `Access::put` and `Shm::put` |
//! | Where is a lock taken? | 1. `LockRequest::start_of` (`windows/src/passive/lock.rs`), by the call: `Started::new` (`windows/src/passive/acquire.rs`) finds an owner and posts the first operation, for the owner in the biased slot by a `Biased` (`windows/src/passive/biased.rs`), `start` of the design (default: a compare-and-swap, `lock-algos/src/test_and_set/mod.rs`). 2. `hold` (`windows/src/passive/lock.rs`), or a poll: if the design `holds` by its result, that was all. 3. Else the design's `contend` (`Waiter`, `lock-algos/src/test_and_set/waiter.rs`; `Waiter`, `lock-algos/src/mcs/mod.rs`), by `Claim::contended` (`windows/src/passive/acquire.rs`; what is passed on is a `Claim`, `windows/src/passive/claim.rs`), with leases `Inner::contend_leased` (`windows/src/locks/takeover.rs`); a request that is polled is a `Cancellable` from its first operation on (`windows/src/passive/cancelled.rs`), which the endpoint finishes if it is dropped |
//! | Where is a lock released? | 1. `Epoch::unlock` (`windows/src/passive/unlock.rs`), or a drop, flushes. 2. `post_release` (`windows/src/passive/release.rs`): an exclusive lock of the default design without a lease is one link, `TestAndSet::release_link` (`lock-algos/src/test_and_set/mod.rs`), which `post_link` of the fabric posts: on shared memory a store or an atomic (`fabric/src/shm/words.rs`). 3. Any other posts `start_release` of the design and asks `released` what is left, in the biased slot by a `Biased` (`windows/src/passive/biased.rs`), else by `release_with_slot` (`windows/src/passive/release.rs`): nothing, this owner's operations, another owner's step (MCS: a successor's link), or what `finish_release` finds, here or on the endpoint. MCS: the owner writes its successor's `GRANT` (`hand_over_at_once` and `hand_over`, `lock-algos/src/mcs/mod.rs`), for which that one waits in its own memory (`wait_for_grant`, `lock-algos/src/mcs/mod.rs`). 4. Without a caller that waits, or as poisoned: `KeptClaim::release` (`windows/src/passive/release.rs`) |
//! | Where does a lock recover from a death? | `contend` of the waiter: the word names a dead owner (`ended_owner`, `lock-algos/src/test_and_set/word.rs`; of a cohort: `cohort_ended`, `lock-algos/src/cohort/mod.rs`), or counts owners, which `Suspicion` (`lock-algos/src/recovery/suspicion.rs`) compares with the announced ones; then the word is put under recovery, and `await_reopening` (`lock-algos/src/recovery/mod.rs`) takes it once no live owner is announced |
//! | How does a rank learn who it is and who the others are? | `join` (`job/src/start.rs`) chooses `job/src/client.rs` (under `onesided run`), `job/src/pmi/` or `job/src/rendezvous/`, and returns a `Job` (`job/src/exchange.rs`): rank, job segment, exchange of values and memory; or `None` for a process that is alone. `job/src/environment.rs` names the variables that tell a process its rank, `job/src/launcher/mod.rs` sets them |
//! | How does a rank find a peer's memory? | the world segments of all ranks of a host lie in the job segment (`Shm::new`, `fabric/src/shm/endpoint.rs`); cards exchange an `EndpointAddress` by the job's exchange (`exchange_addresses`, `fabric/src/verbs/mod.rs`), and connect two ranks at the first operation (`fabric/src/verbs/connector.rs`). Windows: all ranks gather their keys (`CreateMessage`, `windows/src/window/create.rs`; `fabric/src/worlds/collective/gathering.rs`), and the first access opens one (`Inner::resolve`, `windows/src/window/inner.rs`; `Fabric::open`) |
//! | Which ranks meet in a collective? | those of a `Group` (`fabric/src/worlds/collective.rs`), whose collectives have an order (`Sequence`) and slots for the signals of its barriers: a world, or a window (`windows/src/window/group.rs`), whose slots are a lane of the world's segment, agreed on at its creation (`windows/src/window/create.rs`), or lie in its hidden regions. Communicators number theirs themselves (`two-sided/src/collectives/state.rs`); short ones of a host's ranks go through buffers that `Making::run` (`two-sided/src/api/create.rs`) makes with the communicator (`CollectiveBuffers`, `fabric/src/shm/collective_buffers.rs`; `two-sided/src/collectives/published.rs`); long ones publish where their slices are, which the others read (`two-sided/src/collectives/direct.rs`) |
//! | What happens when a peer dies? | *Noticed* by its host daemon (`Session::look_after`, `job/src/daemon/session.rs`), the launcher (`Ranks::ended`, `job/src/launcher/ranks.rs`), or survivors of the daemon (`job/src/daemon/failover.rs`), each by the end of the process that joined (`Watch`, `job/src/process.rs`): they call (the launcher in `record_end`, `job/src/launcher/supervisor.rs`) `JobSegment::declare_dead` (`job/src/segment/job_segment.rs`), which wakes all ranks of the host. *Other hosts* learn it from `job/src/daemon/relay/mod.rs`. *Waits on words* end by `fabric/src/waiting/peer_status.rs`, *collectives* by `fabric/src/worlds/members.rs`, and after a rank left in order by `departure` in `fabric/src/worlds/collective.rs`; cards end waits on broken connections themselves (`fabric/src/verbs/keepalive.rs`); before a rank reports a death it ends the dead rank's access to its memory (`fabric/src/verbs/cut.rs`). *Waiters for a lock* poll: where the word names the owner, `ended_owner` (`lock-algos/src/test_and_set/word.rs`) asks `has_ended` and `is_cut` (`lock-algos/src/recovery/scan.rs`), and the acquire takes the lock (`Step::Take`, if it recovers) or fails unless the lock was released (`Step::Report`, `lock-algos/src/test_and_set/waiter.rs`); the other designs suspect and scan (`lock-algos/src/recovery/`), ranks that left alike. A cancelled request of a rank that leaves gives up its place (`WaitPolicy::Leaving`, `World::is_leaving`). `failed` (`windows/src/passive/lock.rs`) makes an error of the fault: [is poisoned](crate::Error::is_poisoned) |
//! | What happens when a connection is lost? | It is in a phase (`Connection`, `fabric/src/verbs/connection.rs`, with a diagram), in which the two ranks agree by hellos (`take` there). *Noticed* by the keepalive (`Inner::detection_until`, `fabric/src/verbs/keepalive.rs`), *recorded* in the job segment (`JobSegment::lose_connection`, `job/src/segment/lost_connections.rs`), told to other hosts by the relay; both ranks *cut* (`fabric/src/verbs/cut.rs`). That of messages is *made anew* (`renewal.rs`); packets that were kept become datagrams (`DatagramChannel::lose_apart`, `fabric/src/datagrams/channel.rs`). `World::reconnect` joins the job again (`Drive::again`, `Job::again`): another endpoint, whose round nothing is lost in |
//! | What does a child made by `fork` do to the job? | nothing: `job/src/fork.rs` makes its memory private; calls ask `is_child` where they begin (`Inner::begin`, `Access::range`, `Unlock::wait`, `fork::check` elsewhere), and of libibverbs none is called (`fabric/src/verbs/raw`) |
//! | How does a job start on another host? | `onesided run` gives the launcher a [`StartAgent`](onesided_fabric::bootstrap::launcher::StartAgent) (`cli/src/run/remote_shell.rs`: ssh, `srun`, or what the user names; `slurm.rs`: the hosts of an allocation). `job/src/launcher/remote_agent.rs` runs its command and hears the agent out, `remote.rs` keeps the agents, `agent.rs` is the other end |
//! | Where is the lock design chosen? | `windows/src/locks/design.rs`; `WindowLock` (`windows/src/locks/window_lock.rs`) dispatches to it: six designs by an enum, all others and the program's own by `OtherLock` |
//! | Where is the fabric chosen? | `fabric/src/any.rs`; dispatch at run time from the table in `fabric/src/dispatch/table.rs` |
//! | Where does a message find its receive? | `Engine::arrived` (`two-sided/src/engine/arrivals.rs`) and `place` (`two-sided/src/engine/receives.rs`) by `two-sided/src/engine/matching/mod.rs`; `Progress::until` (`two-sided/src/driver/progress.rs`) takes packets in and sends them, in whatever task of the rank waits; `Taken::read` (`two-sided/src/api/taken.rs`) reads an announced message, out of its sender's slice if it is long and on this host (`offered.rs` by `fabric/src/interface/offer.rs`). A message is one entry (`Arrived`), at its place until a receive has ended with it: a receive that is dropped gives it back (`Engine::give_back`), and what moves goes on for whatever receive gets it then. Packets travel by the fabric's [`Transport`](onesided_fabric::Transport): on shared memory the lanes of `fabric/src/shm/transport.rs` and `lane.rs`, over datagrams `fabric/src/datagrams/`. A connection of messages that breaks is made anew by `fabric/src/verbs/renewal.rs`; `two-sided/src/engine/renewal.rs` tells what went over it |
//! | How is a message's protocol chosen? | 1. Eager without a question, if it is as short as all of the rules allow (`Applied::eager`, `two-sided/src/driver/rules.rs`) and a packet has room (`Content::post`, `two-sided/src/api/send.rs`). 2. Else `Features::choose` (`two-sided/src/api/rules.rs`) finds the first rule of the chain (`Rules`, `two-sided/src/driver/rules.rs`) whose conditions hold and whose protocol is there: `Messages::explain` (`two-sided/src/api/explanation.rs`) asks it too, and `Features::passes_over` for each rule. 3. Copy where there is no memory for it (`Content::announce` and `register`, `two-sided/src/api/send.rs`), or no connection; from 64 KiB on UD-ZCopy without one (`two-sided/src/engine/zcopy.rs`, `fabric/src/verbs/landing.rs`). A channel: `State::send_eager` (`two-sided/src/driver/progress/state.rs`) is given one by a rule, else the first of `Transport::count` (`fabric/src/interface/transport.rs`), which counts for a connection that is not there; `DatagramTransport` (`fabric/src/datagrams/transport.rs`) then asks for it, and `queue_pair_of` (`fabric/src/verbs/connector.rs`) holds the limit; `ring_for` there makes a fast path (`fabric/src/verbs/fast_path.rs`), whose slots `DatagramChannel::has_slot` (`fabric/src/datagrams/channel.rs`) knows. A new condition: an entry of `Condition`, its word in `parse` and `Display`, a line in `Features::has` |
//! | Who copies a long message between two processes of a host? | `Offer::take` (`fabric/src/interface/offer.rs`): the receiver by `process_vm_readv` (`Shm::read`, `fabric/src/shm/processes.rs`) from the first byte on, and a sender that waits by `process_vm_writev` from the last one on (`Offer::help`, `fabric/src/interface/offer.rs`) |
//! | What happens when a datagram is lost? | 1. *Noticed* by later ones that have arrived (`acknowledge` and `pass`, `fabric/src/datagrams/sender.rs`), or when nothing arrives by a timer (`end_timer`, `fabric/src/datagrams/sender.rs`), which asks the receiver first. 2. `mark_lost` (`fabric/src/datagrams/sender.rs`). 3. *Sent again* by the next `transmit` (`fabric/src/datagrams/channel.rs`), which `fabric/src/datagrams/transport.rs` calls whenever packets are sent or waited for |
//! | Where does a new operation of reductions and accumulates go? | `Op` (`layouts/src/op.rs`): the enum, `ALL`, the table, `apply_row` and the types' `apply`, there and in `layouts/src/located.rs`; a forgotten one does not compile, but for the table. At the end: its number travels. Messages have room for 14 (`FUNCTION`, `two-sided/src/collectives/kind.rs`), so that the next one needs another tag |
//! | What names windows in a simulated deadlock? | windows tell the fabric (`Fabric::note`, `windows/src/locks/notes.rs`), which compiles to nothing elsewhere; `sim/src/state/notes.rs` keeps it |
//! | Where is a paper's figure? | `cli/src/reproduce/`: in a file named after the paper, by the experiments of `cli/src/experiment.rs` (`bench scale` runs them too) on a profile of `sim/profiles` |
//! | Who grants a lock that a thread serves? | `LockQueue` (`lock-algos/src/served/queue.rs`), by requests in words of the home's (`lock-algos/src/served/server.rs`, on a thread of `windows/src/locks/server.rs`) or in messages (`two-sided/src/served_lock/server.rs`) |
//! | Where does a new lock metric go? | one file in `cli/src/bench/metrics/`; in its `mod.rs` the `mod` line and a line of `LOCK_METRICS`; a line of `POINTS` in `cli/tests/processes/bench.rs`; a quantity that no metric has yet: a line in `cli/src/bench/results/quantity.rs` |
//! | Where does a new measure of messages go? | a file with a `Loop` in `cli/src/bench/messages/`; in its `mod.rs` a line of `LOOPS`; for MPI the same loop in `benches/peers/messages.c`, and a line of `messages` in `cli/src/bench/peers/plan.rs` |
//!
//! # The idea
//!
//! **An algorithm is written once and knows no fabric.** A lock is an `async fn` over
//! [`RemoteMemory`](onesided_remote_memory::RemoteMemory). Over shared memory its futures are ready
//! immediately and compile away; over verbs they complete from the completion queue; the simulator
//! completes them in virtual time; loom runs the same source through every interleaving. What was
//! verified is what ships.
//!
//! # One value, from `put` to each fabric
//!
//! 1. [`Access::put`](crate::Access::put) checks the elements against the target's window memory
//!    and calls [`Fabric::put`](onesided_fabric::Fabric::put) with bytes and an offset.
//! 2. *shm*: [`ShmSegment`](onesided_fabric::shm::ShmSegment) checks the range against the mapping
//!    and copies: one atomic store for 8 aligned bytes, otherwise the copy of
//!    `job/src/segment/copy.rs`. Done.
//! 3. *verbs*: the bytes are copied into a registered staging buffer, a write is posted on the
//!    connection to the target, the call returns; the completion frees the buffer.
//! 4. *sim*: the bytes go into an event that arrives when the model says so.
//! 5. [`Access::flush`](crate::Access::flush) is a full fence on shm, a read behind the writes on
//!    verbs, and an event in the simulator.
//!
//! # Decisions that shape everything
//!
//! - **Words are resolved once** and keep what they resolved to, so an operation is one pointer
//!   away (a table look-up per operation cost a tenth to a third; a virtual call three times the
//!   instruction).
//! - **A fault is one word.** The detailed error is built where the operation and the target are
//!   known, on a cold path (a 32-byte error made the fast path three times slower). Job and fabric
//!   have an error type each. The fabric converts the job's errors, so that a failure has one
//!   variant in both.
//! - **An acquire is `start`, `holds`, `contend`.** The first two are plain functions, so that an
//!   uncontended acquire has no future at all; only the contended path is `async`.
//! - **Waiting is an operation** ([`wait_until`](onesided_remote_memory::RemoteMemory::wait_until),
//!   [`pause`](onesided_remote_memory::RemoteMemory::pause)), never a loop in an algorithm: a
//!   driver can sleep, a simulator can skip the time, a model checker can block.
//! - **An operation that needs its origin to make progress returns a handle** that is waited for: a
//!   get, and an accumulate that the fabric does not support natively, because its
//!   compare-and-swaps depend on their results. A queue of unfinished loops in the background would
//!   need memory, a thread, and an order with everything posted meanwhile. What the fabric supports
//!   natively (puts, sums of 8-byte integers) is posted, and a flush completes it.
//! - **A write is not a signal** ([`Notify`](onesided_remote_memory::Notify)): an RDMA write raises
//!   no event at its target, a store wakes no futex.
//! - **User memory is owned** ([`UserMemory`](onesided_fabric::UserMemory)) and has no words
//!   ([`WORDLESS`](onesided_fabric::WORDLESS)): a word is a reference that would outlive the loan.
//!   An operation that needs a word fails on its error path and continues from there at the
//!   region's agent, so that ordinary windows pay nothing for it. Requests to the agent lie in the
//!   hidden regions, one request slot for each pair of ranks. A slot is never full, needs no
//!   matching, and ends with its window. A message queue of the endpoint can be full, needs
//!   matching, and outlives the window.
//! - **A shape reaches the fabric whole**, as an iterator of pieces
//!   ([`Fabric::put_pieces`](onesided_fabric::Fabric::put_pieces)), so that one system call, or one
//!   message to a helper thread, takes many of them, and no layer packs them first. Over a card the
//!   helper thread carries them only in windows that ask for it; elsewhere the target's threads
//!   take no part in operations on its memory. What the helper thread carries is complete when it
//!   was waited for, so a put of a shape returns a handle; posted in the background it would have
//!   no order with what the card does meanwhile.
//! - **Allocation needs no other rank.** On shared memory a region is a piece of a file that peers
//!   have mapped already, so a collective allocation costs one barrier. Region numbers are never
//!   reused. A reference count in shared memory keeps a piece from being reused while a peer holds
//!   it: a handle that is kept too long does no harm, and operations check nothing. Data and lock
//!   words stay two regions: on `mixed`, a word operation in flight makes the bytes of its region
//!   go through the card.
//! - **Counting costs nothing unless it is enabled.** Counted window memory claims to have no
//!   elements, so that the range check fails and its cold path counts. A separate test took a lock
//!   with a put from 7.0 to 10.4 ns. The memory of a closed window claims the same, so that the
//!   cold path reports an operation in an epoch that was left open.
//! - **Everything is `Send`**, the simulator too, so that a generic acquire can be boxed and handed
//!   to the endpoint that finishes it.
//! - **Unsafe** code is in the files that say `allow(unsafe_code)`: mappings, copies, user memory
//!   taken apart, copies from process to process, the access from a segment to its bytes,
//!   libibverbs, what happens between fork and exec and in a forked child, and the descriptor that a process manager left
//!   open. The files of the benchmarks hold baselines: bare copies and atomics, a futex, a pthread
//!   mutex.
//!
//! # How it is verified
//!
//! | what | by |
//! |---|---|
//! | the locks, as shipped | loom over a memory of its own (2 and 3 origins, bounds in [`onesided_lock_algos`]); proptest against a sequential model; planted wrong variants that both must catch |
//! | the shared-memory doorbell, rings, the access guard of user memory and the reference counts of reused memory | loom over their real orderings |
//! | every fabric | one conformance suite (`onesided_fabric::conformance`), on shm, verbs and mixed in a Soft-RoCE machine, and the simulator; planted wrong fabrics |
//! | packets over datagrams | the protocol machine (`fabric/src/datagrams/`, without I/O, clock and threads) on a network that loses, doubles and reorders, and with hostile datagrams; the conformance suite, messages and collectives over it in the simulator, and on Soft-RoCE |
//! | messages | the engine without I/O, whose interleavings are explored with deaths, broken connections and dropped requests; an exchange by every protocol with no room at any one post, and with a death between any two steps, simulated and by processes |
//! | windows | scenarios after MPICH's test/mpi/rma, one body each (`tests/scenarios`), by threads, simulated, and on verbs; random operations against a sequential model, and on two fabrics compared with each other |
//! | the memory model | litmus tests, one for each sentence ([`memory_model`](crate::manual::memory_model)), on shm, verbs and simulated, and on fabrics that break the promise |
//! | processes, faults | real processes under `onesided run`, under MPICH's launcher, and without one: kills, wrong secrets, garbage, exhausted limits |
//! | several hosts | network namespaces: kills, pulled cables, lost packets, garbage; two Soft-RoCE machines: the same under verbs |
