//! Shared memory, verbs, both in one world: what each needs and can do.
//!
//! | fabric | reaches | needs | an operation is | atomics by |
//! |---|---|---|---|---|
//! | `shm` | processes and threads of one Linux host | nothing | an instruction, complete when the call returns | the CPU |
//! | `verbs` | RDMA cards and Soft-RoCE | feature `verbs`, `libibverbs`, a device | a work request, completed by the card | the target's card |
//! | `mixed` | both of them in one world | as `verbs` | bytes to a rank of the same host: an instruction; all else: a work request | the target's card |
//! | `sim`, see [simulation](super::simulation) | a modelled network, in one thread | the crate `onesided-sim` | an event in virtual time | the model |
//!
//! `onesided info` reports which of them this host has, what is missing and why.
//!
//! A program that is built with `verbs` chooses the fabric at run time, and each operation
//! dispatches on that choice: what that costs a lock is among the [results](super::benchmarks#results).
//!
//! # Shared memory
//!
//! The ranks share sealed memory files. They pass the files over a Unix socket, and map a peer's
//! file when they first access it. A waiter spins for about as long as a wake-up would take, then
//! yields, then sleeps on a futex. A writer wakes only a sleeper. Where ranks outnumber cores
//! (oversubscribed), a waiter yields its core almost immediately; one that is next in a ticket lock keeps
//! it for a few microseconds.
//!
//! **Allocated memory** is cut from one file per rank, its arena: up to 128 MiB of address space,
//! less where many ranks share the host or a limit forbids it. Once the ranks have mapped each
//! other's arenas, allocating a window takes no system call and no message to the launcher. A
//! window of more than a quarter of the arena, or for which there is no room, has a file of its
//! own.
//!
//! A window's memory is reused when no rank has a handle to it any more, and is zeroed before. A
//! rank keeps up to 32 MiB of such memory, because zeroing pages costs a fraction of allocating new
//! ones, and they stay on the NUMA node where they were. Memory of more than 64 KiB of which
//! sampled pages are still zero is zeroed only when it is used again; its pages are the first to go
//! where room is needed.
//!
//! If a rank's window memory is larger than 64 KiB, its pages are allocated when they are first
//! touched, near the CPU that touches them, unless the window is
//! [populated](crate::Builder::populate). [`Builder::allocate`](crate::Builder::allocate) says what
//! that means where memory runs out.
//!
//! **User memory** ([`Window::create`](crate::Window::create),
//! [`Window::attach`](crate::Window::attach)) cannot be mapped by other processes. The first access
//! finds out how to reach it:
//!
//! | the target is | puts and gets | atomics |
//! |---|---|---|
//! | a thread of the same process | synchronous copies | the CPU, synchronously |
//! | another process | process_vm_readv and process_vm_writev: one copy by the kernel, whatever the target does | the target's helper thread, which is woken for each request |
//! | another process, and the system forbids that (Yama from 2 on, seccomp), or `ONESIDED_PROCESS_VM=off` | the target's helper thread, through a buffer | the same |
//!
//! A rank that exposes user memory allows the other processes of its user to copy it
//! (`PR_SET_PTRACER`). From then on its doorbell always has a sleeper, so a signal to it costs the
//! origin a system call. `onesided info` reports whether the system allows the copies,
//! [`Window::explain`](crate::Window::explain) which way was found and why, and
//! [`Window::paths`](crate::Window::paths) how often each way was taken. Unlike allocated memory,
//! user memory does not survive its rank's death.
//!
//! Each piece of user memory takes a memory file for its control page: a line for each rank, and 1
//! MiB of buffers, divided among the ranks (at least 4 KiB and at most 64 KiB each).
//!
//! # Shapes
//!
//! A put to a [`Shape`](crate::Shape), or to [`fields`](crate::Access::fields) of records, is split
//! into pieces: a run of adjacent elements, or a field of a record. How the pieces are carried:
//!
//! | where | by |
//! |---|---|
//! | memory is mapped | a copy each, by the calling thread |
//! | process_vm works | the kernel, up to 256 pieces in a call |
//! | the target's helper thread reaches the user memory | that thread: one message for as many pieces as the buffer has room for, 16 bytes each in addition to their data |
//! | a card reaches it | a work request each |
//! | a card reaches it, the window was built with [`pack_shapes`](crate::Builder::pack_shapes), and there are at least 64 pieces of at most 256 bytes on average | the target's helper thread: a message for up to 16 KiB of pieces, answered when they are done |
//!
//! Wherever a helper thread carries the pieces, the operation includes the time to wake that
//! thread, and makes no progress while its process is stopped; it ends with an error if its process
//! ends. Atomics on shapes go the same way as all atomics.
//!
//! # Verbs
//!
//! On Debian, after `apt install cmake make pkg-config libclang-dev libibverbs-dev`:
//!
//! ```sh
//! cargo install --path onesided/cli --features verbs
//! cargo add onesided --path ../onesided --features verbs
//! onesided info                                           # the devices, or what is missing
//! onesided run -n 2 --fabric verbs -- target/debug/scores
//! ```
//!
//! Without a card, Soft-RoCE provides a device on any Ethernet:
//! `modprobe rdma_rxe; rdma link add rxe0 type rxe netdev eth0`. The project's own tests run in a
//! virtual machine that does this: `scripts/soft-roce COMMAND`.
//!
//! User memory is registered with the card, page by page, and is then reached as all other memory.
//! If a peer still uses its key after the memory is taken back, that peer's connection breaks, as
//! with any stale key.
//!
//! The fabric uses reliable connections, completion queues with completion channels (one for the
//! packets of messages and one for all else; a single one with `ONESIDED_MESSAGES_QUEUES=one` and
//! over datagrams), and shared receive queues. Two ranks are connected at the first operation of
//! either on the other's memory, by datagrams, and once more at the first message between them: so
//! a rank takes a queue pair for itself, one or two for each rank that it speaks to (with
//! [rails](super::messages#over-several-rails), which may be on further devices, up to four), and none
//! for the others. A further device has a completion queue and a channel of its own. Neither a rank
//! that takes in no messages nor a message that breaks its connection (a stale key) holds up a put
//! or a lock. A rank with more connections of messages than `ONESIDED_MESSAGES_CONNECTIONS` gives
//! back those that were idle for a tenth of a second, if their peers agree: their queue pairs are
//! destroyed, and the next message makes another one. Busy ones stay, so there may be more. The
//! receive queue of messages, 2 MiB of locked memory, is made with a rank's first communicator. The
//! creation of a window or a communicator, like a barrier, speaks to the ranks 1, 2, 4, 8 and so on
//! before and after this one: with 1,000 ranks to 20. The completion queue of all else grows with
//! the connections, if the card can resize one. A thread of the target answers, also while the
//! target computes. A target that is stopped answers when it goes on; if it has not answered within
//! 30 seconds, the connection is [lost](super::failures#lost-connections). Once they are connected,
//! operations need no thread of the target. Memory is registered without relaxed ordering, so that
//! a flag written after data arrives after it. The packets of messages may travel as
//! [datagrams](super::messages#over-datagrams) instead, by one queue pair for all ranks. Long ones may be received into
//! registered memory by up to four further ones, of 0.5 MiB each, and are sent by another one (`ud-zcopy`); all are made at
//! their first use.
//!
//! # Mixed
//!
//! For jobs of several ranks on each of several hosts. A put, a get or a transfer between
//! registered segments goes through the CPU where the target is on the same host, through a mapping
//! of its memory, and costs the card nothing. Everything else goes through the card: locks, the
//! accumulate family, signals, barriers, because a word has one agent that makes it atomic.
//! [`Window::explain`](crate::Window::explain) reports which way a rank's memory is reached.
//!
//! - Each operation of a rank on one target's memory in a window takes effect in order, whichever
//!   way it went. After an atomic operation that was not waited for, or a signal, puts and gets of
//!   that memory go through the card until the change is known to be in memory: after an operation
//!   that was waited for, or a flush.
//! - Locks and versions are words in another region, where the CPU would overtake the card. So
//!   [`Window::locked`](crate::Window::locked) and [`Versioned::write`](crate::Versioned::write) on
//!   a rank of the same host wait for the card before the CPU begins.
//! - A put to a rank that has ended is refused, as by the card, although its memory is still
//!   mapped.
//! - `mixed` is not meant for one host: there `shm` does everything by the CPU, with locks a
//!   hundred times faster. `verbs` uses the card for everything, so that the card's costs can be
//!   measured and its faults tested.
//! - `ONESIDED_PRETEND_HOSTS=2` distributes the ranks over two pretended hosts, to try both ways on
//!   one machine.
