//! Shared memory, verbs, the simulator: what each needs and can do.
//!
//! | fabric | reaches | needs | an operation is | atomics by |
//! |---|---|---|---|---|
//! | `shm` | processes and threads of one Linux host | nothing | an instruction, done when the call returns | the CPU |
//! | `verbs` | RDMA cards and Soft-RoCE | feature `verbs`, `libibverbs`, a device | a work request, completed by the card | the target's card |
//! | `sim` | a modelled network, in one thread | the crate `onesided-sim` | an event in virtual time | the model |
//!
//! `onesided info` tells which of them this host has, what is missing and why.
//!
//! # Shared memory
//!
//! Sealed memory files handed over a Unix socket, mapped when a peer is first needed, with their pages allocated at once.
//! Who waits spins for about as long as a wake-up would take, then yields, then sleeps on a futex; who writes wakes only a
//! sleeper. Where ranks outnumber cores, who waits gives the core away almost at once.
//!
//! # Verbs
//!
//! Reliable connections between all ranks, one of them to oneself; a shared receive queue; one completion queue with a
//! completion channel. Memory is registered without relaxed ordering, so that a flag written after data arrives after it.
//!
//! No card? Soft-RoCE gives one on any Ethernet: `modprobe rdma_rxe; rdma link add rxe0 type rxe netdev eth0`. The project's
//! own tests run in a virtual machine that does so: `scripts/soft-roce COMMAND`.
//!
//! # The simulator
//!
//! The locks and whatever is generic over a fabric run unchanged in virtual time, deterministically by seed, with loss,
//! jitter and deaths; a deadlock is reported as such, with every rank that waits and on what. It is a crate of its own,
//! `onesided-sim`.
