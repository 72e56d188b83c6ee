//! How a program becomes ranks, how it finds its job, and how it ends.
//!
//! The same program runs three ways:
//!
//! - **Alone**: nobody launched it, so [`World::init`](crate::World::init) makes a world of one.
//! - **As threads**: [`threads`](crate::threads) runs a closure once a rank: for tests, examples, small programs.
//! - **As processes**: `onesided run -n 4 -- PROGRAM ARGS`. Output lines are told apart by rank; standard input goes to
//!   rank 0; the exit status is that of the first rank that failed.
//!
//! # How a process finds its job
//!
//! The launcher tells it by environment variables: `ONESIDED_RANK`, `ONESIDED_SIZE`, `ONESIDED_ADDRESS` (an abstract Unix
//! socket: nothing lies in a file system) and `ONESIDED_SECRET`. The process and the launcher prove to each other that they
//! know the secret, by keyed BLAKE3 over two nonces, before a descriptor or a key is handed out. Then it gets the job's
//! *board* (who lives, doorbells, mail), and from then on reaches the memory of any rank through the launcher, without that
//! rank's help.
//!
//! # What the environment chooses
//!
//! | variable | says | if it is not set |
//! |---|---|---|
//! | `ONESIDED_FABRIC` | the fabric: `shm`, `verbs` (`onesided run --fabric` sets it) | `shm` |
//! | `ONESIDED_DEVICE` | the RDMA device, as `onesided info` names it | the first with an active port |
//! | `ONESIDED_LOCK` | the lock of windows whose [builder](crate::Window::builder) names none: `test-and-set` | `test-and-set` |
//!
//! # How a job ends
//!
//! A rank **leaves** when the last handle to its world is dropped. A rank that ends without leaving (a signal, `exit`, a
//! panic) is **dead**: everybody who waits for it gets an error within a second, see [`failures`](super::failures). By
//! default the launcher then ends the job: the survivors have two seconds to report, then `SIGTERM`, then `SIGKILL`. With
//! `--on-failure continue` they go on.
//!
//! Ctrl-C and `SIGTERM` end the whole job. If the launcher itself is killed, the kernel kills its ranks. Memory files have
//! no names: nothing is ever left behind.
