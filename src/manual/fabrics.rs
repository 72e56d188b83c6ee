//! Shared memory, verbs, both in one world, the simulator: what each needs and can do.
//!
//! | fabric | reaches | needs | an operation is | atomics by |
//! |---|---|---|---|---|
//! | `shm` | processes and threads of one Linux host | nothing | an instruction, done when the call returns | the CPU |
//! | `verbs` | RDMA cards and Soft-RoCE | feature `verbs`, `libibverbs`, a device | a work request, completed by the card | the target's card |
//! | `mixed` | both of them in one world | as `verbs` | bytes to a rank of the same host: an instruction; all else: a work request | the target's card |
//! | `sim` | a modelled network, in one thread | the crate `onesided-sim` | an event in virtual time | the model |
//!
//! `onesided info` tells which of them this host has, what is missing and why.
//!
//! A program that is built with `verbs` chooses when it runs, and each operation asks what was chosen: on shared memory an uncontended lock
//! and its release took 9 ns there (test-and-set; `mcs` 24), and 8 (18) in one that is built without.
//!
//! # Shared memory
//!
//! Sealed memory files handed over a Unix socket, mapped when a peer is first needed. Who waits spins for about as long as a wake-up would take, then yields, then sleeps on a futex; who writes wakes only a
//! sleeper. Where ranks outnumber cores, who waits gives the core away almost at once.
//!
//! **Allocated memory** is cut from one file that each rank has, its arena: up to 128 MiB of address space, less where many ranks
//! share the host or a limit forbids it. So a window takes no system call, and no word with the launcher, once its ranks have
//! met; one of more than a quarter of the arena, or for which there is no room, has a file of its own. A window's memory is
//! used for another one only when no rank has a handle to it any more, and is zeroed before. A rank keeps up to 32 MiB of it,
//! because zeroing pages costs a fraction of having new ones, and they are near the CPU that they were near before.
//! What was written is found out by a look at some of the pages: a part of more than 64 KiB that seems untouched costs no
//! zeroing, and its pages stay only for as long as nobody else needs their room.
//!
//! Pages of a part of more than 64 KiB come when they are first touched, near the CPU that does, unless the window is
//! [populated](crate::Builder::populate). What that means where memory runs out is said in
//! [`Builder::allocate`](crate::Builder::allocate).
//!
//! **Memory of the user's** ([`Window::create`](crate::Window::create), [`Window::attach`](crate::Window::attach)) cannot be
//! mapped by others. How they reach it is found out when they first need it:
//!
//! | the owner is | puts and gets | atomics |
//! |---|---|---|
//! | a thread of the same process | copies at once | the CPU, at once |
//! | another process | process_vm_readv and process_vm_writev: one copy by the kernel, whatever the owner does | the owner's helper thread, which is woken for each request |
//! | another process, and the system forbids that (Yama from 2 on, seccomp), or `ONESIDED_PROCESS_VM=off` | the owner's helper thread, by way of a buffer | the same |
//!
//! A rank that lends memory lets the other processes of its user in (`PR_SET_PTRACER`), and its doorbell always has a
//! sleeper from then on, so that who signals to it makes a system call. `onesided info` tells whether the system allows the
//! copies, [`Window::explain`](crate::Window::explain) which way was found and why, [`Window::paths`](crate::Window::paths)
//! how often it was taken. Such memory does not survive its owner's death, as what was allocated does.
//!
//! Each piece of it takes a memory file for its control page: a line for each rank, and 1 MiB of buffers, divided among the
//! ranks (at least 4 KiB and at most 64 KiB each).
//!
//! # Shapes
//!
//! What is put to a [`Shape`](crate::Shape), or to [`fields`](crate::Access::fields) of records, falls into pieces: a run of
//! neighbours, or a field of a record. They are carried
//!
//! | where | by |
//! |---|---|
//! | memory is mapped | a copy each, of this thread |
//! | process_vm works | the kernel, up to 256 pieces in a call |
//! | lent memory is reached by its owner's helper thread | that thread: one message for as many pieces as the buffer has room for, 16 bytes each beside their own |
//! | a card reaches it | a request each |
//! | a card reaches it, the window was made with [`pack_shapes`](crate::Builder::pack_shapes), and there are at least 64 pieces of at most 256 bytes on average | the helper thread of the target's owner: a message for up to 16 KiB of pieces, which is answered when they are done |
//!
//! Wherever a helper thread carries them, the operation takes as long as that thread takes to be woken, and none of it happens
//! while its process is stopped; it ends with an error if its process ends. Atomics on shapes are carried as all atomics.
//!
//! # Verbs
//!
//! Memory of the user's is registered with the card, page by page, and is then reached as all other; taking it back costs the
//! connection of any peer that still uses its key, as any stale key does.
//!
//! Reliable connections between all ranks, one of them to oneself; a shared receive queue; one completion queue with a
//! completion channel. Memory is registered without relaxed ordering, so that a flag written after data arrives after it.
//!
//! No card? Soft-RoCE gives one on any Ethernet: `modprobe rdma_rxe; rdma link add rxe0 type rxe netdev eth0`. The project's
//! own tests run in a virtual machine that does so: `scripts/soft-roce COMMAND`.
//!
//! # Mixed
//!
//! For jobs of several ranks on each of several hosts. A put, a get, a transfer between registered segments takes the CPU
//! where the target is on this host, through a mapping of its memory, and costs the card nothing; everything else is the
//! card's: locks, the accumulate family, signals, barriers, because a word has one agent that makes it atomic.
//! [`Window::explain`](crate::Window::explain) tells which way a rank's part is reached.
//!
//! - Each step of a rank in one part of a window takes effect in order, whichever way it went. Where one has just changed an
//!   element by an atomic operation that nobody waited for, or signalled, puts and gets of that part take the card until
//!   that is known to be in memory: after an operation that was waited for, or a flush.
//! - Locks and versions are words beside the part, and the CPU would overtake the card there: so
//!   [`Window::locked`](crate::Window::locked) and [`Versioned::write`](crate::Versioned::write) on a rank of the same host
//!   wait for the card before the CPU begins.
//! - A put to a rank that has ended is refused, as by the card, although its memory is still mapped.
//! - It is no fabric for one host: there `shm` does everything by the CPU, locks a hundred times sooner. And `verbs` stays
//!   what it says, the card for everything, so that what the card costs can be measured and its faults met.
//! - `ONESIDED_PRETEND_HOSTS=2` deals the ranks out to two hosts that are not there: both ways can be tried on one machine.
//!
//! # The simulator
//!
//! The locks and whatever is generic over a fabric run unchanged in virtual time, deterministically by seed, with loss,
//! jitter and deaths; a deadlock is reported as such, with every rank that waits and on what. It is a crate of its own,
//! `onesided-sim`.
