//! How a program becomes ranks, how it finds its job, and how it ends.
//!
//! The same program, with the same [`World::init`](crate::World::init), runs
//!
//! | as | started by | daemons |
//! |---|---|---|
//! | one rank | `PROGRAM` | the process itself |
//! | threads, for tests and small programs | [`threads`](crate::threads), which runs a closure once per rank | the process itself |
//! | processes of one host | `onesided run -n 4 -- PROGRAM ARGS` | the launcher |
//! | processes of several hosts | `onesided run --hosts a:2,b:2 --fabric verbs -- PROGRAM ARGS` | the launcher, and an agent on each other host |
//! | processes of a Slurm allocation | `onesided run --hosts slurm --fabric verbs -- PROGRAM ARGS` | the same |
//! | processes under Slurm's or MPICH's launcher, or another that speaks PMI-1 | `srun --mpi=pmi2 -n 4 PROGRAM ARGS`; `mpiexec -n 4 PROGRAM ARGS` | rank 0, and the lowest rank of each other host |
//! | processes that something else starts | by hand, by a script, with the variables of a rendezvous | the same |
//!
//! The *daemons* of a job hold its descriptors and watch its ranks. The one in the launcher or in
//! rank 0 is the *head daemon*; each other host has a *host daemon*.
//!
//! `World::init` looks in the environment for a rendezvous, for `onesided run`, and for PMI-1, in
//! this order, and takes the first that it finds. Without any, the process is a world of one.
//! `onesided info`, started like the program, reports which it is. A process that `srun` or Open
//! MPI's `mpirun` started with others, and that finds none of the three, is refused, because each
//! would be a world of one. `ONESIDED_ALONE=1` says that this is intended.
//!
//! # `onesided run`
//!
//! The launcher prefixes each line of output with the rank, passes standard input to rank 0, and
//! exits with the status of the first rank that failed.
//!
//! PROGRAM may be a script, or a command like `timeout`, that starts the program proper. The rank is the
//! process that joins (`World::init`), and ends with it:
//!
//! - A script that ends with status 0 may leave that process running. The launcher waits for its end.
//! - A script that fails, or is killed, takes that process along: the launcher kills it, and only then
//!   tells the others that the rank died. So nothing of a dead rank writes any more.
//! - A script that ends before the process has joined ends the rank: the process is refused.
//! - Signals reach the process group of what the launcher started, and the process that joined wherever it
//!   is, also in a session of its own. Other processes that left the group are not known to the launcher.
//! - If the launcher is killed, the ranks that have not left the job are, too.
//! - The end of a connection is no death: a program may close descriptors that it does not know, as daemons
//!   do. It then gets no new windows, and goes on with those that it has.
//!
//! A process gets its identity in `ONESIDED_RANK`, `ONESIDED_SIZE`, `ONESIDED_ADDRESS` (an abstract
//! Unix socket, which leaves nothing in a file system) and `ONESIDED_SECRET`. Before the launcher
//! hands out anything, it and the process prove to each other that they know the secret, by keyed
//! BLAKE3 over two nonces. Then the process gets the *job segment*: which ranks are alive,
//! doorbells, messages. From then on it gets the memory of any rank from the launcher, without that
//! rank's help.
//!
//! # Several hosts: `onesided run --hosts`
//!
//! ```sh
//! onesided run --hosts alpha:2,beta:4 -n 6 --fabric verbs -- ./program
//! ```
//!
//! Each host is filled before the next; without `-n` all are filled. The list may be a file with
//! one host per line (`--hosts ./hosts`). `localhost` and this host's own name both mean the
//! launcher's host, so the list may have only one of them. On each other host ssh starts an
//! *agent*: `onesided` itself, in the same version, at the same path as here (`--agent PATH` names
//! another; a folder that all hosts share works). The program must be there, too, at the same path.
//!
//! ssh has no terminal to prompt on, so it must connect without a question. From the host where the
//! job is started, `ssh -x -T -o BatchMode=yes HOST true` must succeed for each. If it does not:
//!
//! | ssh says | then |
//! |---|---|
//! | `Host key verification failed` | the host is not in `~/.ssh/known_hosts`, or its key has changed: log in once by hand, and compare its key |
//! | `Permission denied (publickey...)` | the host does not accept your key: `ssh-copy-id HOST`; a key with a passphrase must be in `ssh-agent` |
//! | `No route to host`, `Connection refused`, nothing until `ONESIDED_JOIN_TIMEOUT` | no ssh daemon answers there; configure names, ports, users and jump hosts in `~/.ssh/config` |
//!
//! `--rsh COMMAND` or `ONESIDED_RSH` names another remote shell, called as `COMMAND HOST LINE`.
//! `COMMAND` is split at white space, without regard to quotes: write a script where that is not
//! enough. Its input and output are the agent's stream to the launcher. No port is opened.
//!
//! - The ranks get the same working directory, the variables `ONESIDED_*`, and those that `-x NAME`
//!   names.
//! - Output, exit statuses, signals and `--on-failure` are as on one host. Rank 0 reads standard
//!   input if it runs on the launcher's host; on another host it reads end of file.
//! - The job's secret goes to the agents by that stream, never by a command line or an environment
//!   of the remote shell. Every message bears a keyed tag (BLAKE3) with a sequence number. The
//!   messages are not encrypted: ssh encrypts them. With a remote shell that does not, the secret
//!   crosses the network in the clear.
//! - An agent that loses its launcher kills its ranks and ends. If the launcher loses an agent (its
//!   stream ends, or is silent for `ONESIDED_SUSPECT_AFTER` seconds), it reports that, and counts
//!   it as a failure of the ranks there.
//!
//! How ranks reach memory on other hosts depends on the fabric: shared memory joins the ranks of
//! one host only and otherwise fails with an error that says so; verbs joins all.
//! [`Job::host_of`](onesided_fabric::bootstrap::Job::host_of) returns a rank's host.
//!
//! # Slurm
//!
//! There are two ways. The stage `slurm` of `scripts/test` tests both with Slurm 22.05 on three
//! nodes.
//!
//! ```sh
//! #SBATCH --nodes=2 --ntasks=8
//! onesided run --hosts slurm --fabric verbs -- ./program      # onesided's launcher
//! srun --mpi=pmi2 ./program                                   # or Slurm's; ONESIDED_FABRIC=verbs
//! ```
//!
//! - **`--hosts slurm`** reads the allocation's nodes and the number of tasks on each
//!   (`SLURM_JOB_NODELIST`, `SLURM_TASKS_PER_NODE`) and starts an agent on each by `srun`, as a
//!   step that takes no resources from others. Everything else is as by ssh; Slurm asks for no
//!   password. It works inside `sbatch` and `salloc`, with or without PMI in Slurm.
//! - **`srun --mpi=pmi2`** has Slurm start and end the ranks. Its socket answers PMI-1, see below.
//!   When one rank fails, Slurm does not end the others unless asked to (`--kill-on-bad-exit`).
//! - Plain `srun` (its default is `--mpi=none` on many clusters) and `srun --mpi=pmix` give tasks
//!   no way to find one another that onesided supports, and are refused. They work with a
//!   [rendezvous](#a-rendezvous), where `SLURM_PROCID` and `SLURM_STEP_NUM_TASKS` stand for
//!   `ONESIDED_RANK` and `ONESIDED_SIZE`:
//!   `ONESIDED_ADDRESS=$(hostname -I | cut -d' ' -f1):7000 ONESIDED_SECRET_FILE=$HOME/secret srun ./program`,
//!   called on the first node. (An address, not the node's name: on Debian the name resolves to
//!   127.0.1.1, which other nodes cannot reach.)
//!
//! # `mpiexec`, and other process managers that speak PMI-1
//!
//! `mpiexec` of MPICH (Hydra) and `srun --mpi=pmi2` set `PMI_FD`, `PMI_RANK` and `PMI_SIZE`; Hydra
//! with `-pmi-port` sets `PMI_PORT` and `PMI_ID`. Rank 0 runs the head daemon. It puts its socket,
//! a fresh secret, and the addresses and a port of its host into the manager's key-value space,
//! which only the job's processes can query. The other ranks read it after a barrier, and join rank
//! 0 with the same proofs as above.
//!
//! - Ranks of other hosts connect to that port. The kernel chooses it, and it is closed once all
//!   have joined. Where a firewall between hosts does not let it pass, use a rendezvous at a fixed
//!   port.
//! - After that the manager only forwards output and signals, and by its own rules ends the other
//!   ranks when a signal killed one.
//! - A program that also initialises MPI should use a rendezvous, because the manager accepts one
//!   client per process.
//!
//! # A rendezvous
//!
//! A user who can start processes on a host can start ranks there. Each gets, in its environment,
//!
//! | variable | says |
//! |---|---|
//! | `ONESIDED_ADDRESS` | `HOST:PORT`, where rank 0 listens while the ranks join |
//! | `ONESIDED_RANK`, `ONESIDED_SIZE` | the rank, and the number of ranks |
//! | `ONESIDED_SECRET_FILE` | a file with 64 hexadecimal digits that only its owner may read |
//!
//! ```sh
//! (umask 077; od -An -tx1 -N32 -v /dev/urandom | tr -d ' \n' > secret)
//! export ONESIDED_ADDRESS=localhost:7000 ONESIDED_SIZE=4 ONESIDED_SECRET_FILE=secret
//! for rank in 0 1 2 3; do ONESIDED_RANK=$rank ./program & done; wait
//! ```
//!
//! The ranks may start in any order: the others retry until rank 0 listens. Before anything else is
//! exchanged, both sides prove that they know the secret, which is never sent; a connection that
//! does not is closed. Then rank 0 announces its socket, and runs the head daemon.
//!
//! **On several hosts** the same works with an address that all of them reach and a copy of the
//! secret's file on each (or a file system that they share). The lowest rank of each other host
//! runs its host daemon, over the stream by which it joined.
//!
//! # Jobs whose head daemon is rank 0
//!
//! - `init` is **collective**: it returns when all ranks have joined, and is an error everywhere if
//!   one does not join within `ONESIDED_JOIN_TIMEOUT` seconds (60 if not set). The error names that rank.
//! - **Rank 0 leaves last**: dropping its last handle to the world waits until all others have left
//!   or died, because they may still need to map one another's memory.
//! - When a rank fails, the library does not end the others: they go on as with
//!   `--on-failure continue`, unless the program that started them ends them.
//! - When **rank 0 dies**, ranks that wait for it get an error, and later deaths are still
//!   detected. Memory that was mapped stays reachable; a new window, or a first access to memory
//!   that was not mapped yet, is an error.
//! - On several hosts, **the rank of the host daemon** (the lowest of its host) leaves after the
//!   others of its host. When it dies, or does not run for `ONESIDED_SUSPECT_AFTER` seconds, its
//!   host has lost the connection to all others: each side treats the other as dead, see
//!   [`failures`](super::failures).
//!
//! # Children made by `fork`
//!
//! A child that a rank forks is no rank. It has copies of the rank's guards, requests and windows, and
//! nothing that it does with them has an effect on the job: not their drops, not writes to
//! [`Window::local`](crate::Window::local). What the ranks share becomes memory of the child's own before
//! `fork` returns there: copies of what is this rank's, zeroes elsewhere. Calls of a child fail with
//! [`Forked`](crate::FaultKind::Forked), and it can make no world. The lock that its parent holds stays
//! its parent's.
//!
//! A program that needs ranks of its own in a child executes another program there, as
//! [`Command`](std::process::Command) does. A bare system call `clone` is not noticed. As everywhere, a
//! child of a process with several threads should do little before that: a lock of the C library, or one that
//! this library takes for a moment, stays held in the child if another thread held it. That of messages does
//! not: a thread that forks holds it meanwhile.
//!
//! Over cards the same holds: a child shares the card's queues with its parent, and takes nothing from
//! them. Memory that is registered with a card is copied for the child when it forks (Linux 5.12 or later).
//!
//! # Worlds of some ranks
//!
//! [`World::split`](crate::World::split) divides a world, as MPI's communicators do: the ranks of
//! one color form a world of their own, in which they are numbered from 0, with its own windows,
//! barriers and fences. The death of a rank ends only collectives of worlds that it belongs to.
//!
//! A split needs all ranks. [`Messages::create_group`](crate::Messages::create_group) makes a
//! communicator of some ranks, and a [world](crate::Messages::world) for it, with windows and barriers.
//! Only they take part; the others may compute, or have left.
//!
//! # What the environment chooses
//!
//! | variable | says | if it is not set |
//! |---|---|---|
//! | `ONESIDED_FABRIC` | the fabric: `shm`, `verbs`, `mixed` (`onesided run --fabric` sets it) | `shm` |
//! | `ONESIDED_DEVICE` | the RDMA device, as `onesided info` names it; `NAME:PORT` for a port. Several with commas between them: [long messages](super::messages#over-several-rails) go over all of them, all else over the first | the first with an active port |
//! | `ONESIDED_LOCK_ALL` | how `lock_all` locks windows whose [builder](crate::Window::builder) does not say: `on-demand`, `each-target`, `global` ([lock semantics](super::lock_semantics#locking-all-targets)) | `on-demand`, and `each-target` with locks that let readers wait behind writers |
//! | `ONESIDED_LOCK` | the lock of windows whose [builder](crate::Window::builder) names none, by the name in [choosing a lock](super::choosing_a_lock) | `test-and-set` |
//! | `ONESIDED_JOIN_TIMEOUT` | how many seconds the ranks may take to join if rank 0 is the head daemon, and the agents of `run --hosts` to answer | 60 |
//! | `ONESIDED_SUSPECT_AFTER` | how many seconds another host may be silent before it counts as dead, 0.1 or more; the value of the launcher or rank 0 applies to all | 5 |
//! | `ONESIDED_FULL_AFTER` | on verbs, how many seconds a post waits for room at a rank that makes no progress, 0.1 or more (see [failures](super::failures)) | 60 |
//! | `ONESIDED_MESSAGES_CONNECTIONS` | on verbs, how many connections of messages, each rail counted, a rank has before it [gives idle ones back](super::fabrics#verbs); with the channel `both`, how many it has at most | no limit; with `both` 16 |
//! | `ONESIDED_MESSAGES_CONNECT_AFTER` | on verbs with the channel `both`, how many messages to a rank count before its connection is made | 16 |
//! | `ONESIDED_MESSAGES_FAST_PATHS` | on verbs with the channel `both`, how many ranks have a [fast path](super::messages#over-datagrams) to this one at most, of which the least used gives way; 0: none | 8; 0 where there are more ranks than cores |
//! | `ONESIDED_MESSAGES_CHANNEL` | on verbs, over what the packets of messages travel, the same at all ranks: connections (`rc`), [datagrams](super::messages#over-datagrams) (`ud`), or datagrams first and then connections (`both`) | `rc` |
//! | `ONESIDED_MESSAGES_RELIABLE` | on verbs with the channel `both`, the same at all ranks: whether messages [survive a connection that breaks](super::messages#over-datagrams) (`on`, `off`) | `off` |
//! | `ONESIDED_MESSAGES_QUEUES` | on verbs, in how many completion queues this rank's requests complete: `two`, of which one has the packets of messages, or `one` ([progress](super::progress)); with datagrams always one | `two` |
//! | `ONESIDED_MESSAGES_RULES` | which way this rank's messages go: [rules](super::messages#protocols), such as `eager, rput`, or `@` and the name of a file with them | `eager, size>=measured: offered, rget` |
//! | `ONESIDED_RAILS` | on verbs, 1 to 3: over how many connections two ranks move a [long message](super::messages#over-several-rails) | the number of devices named |
//! | `ONESIDED_STUCK_AFTER` | after how many seconds of one wait a process writes what its ranks wait for (`onesided run --stuck-after` sets it); 0: only on SIGUSR1 ([hangs](super::hangs)) | never |
//! | `ONESIDED_STATISTICS` | `1`: a rank writes what messages it has sent to standard error, in lines, when it has dropped its communicators (`onesided run --statistics` sets it, and adds them up) | not |
//! | `ONESIDED_COUNT` | `1`: windows [count](crate::Window::paths) every operation by the way it took, also those by the CPU | only the others |
//! | `ONESIDED_PROCESS_VM` | `off`: user memory in another process is reached by that process's helper thread, even where process_vm works; messages are copied through registered memory | process_vm where the system allows it |
//! | `ONESIDED_PRETEND_HOSTS` | on `mixed`, a number: the ranks are distributed over that many pretended hosts | the real hosts |
//! | `ONESIDED_ALONE` | `1`: a process that `srun` or `mpirun` started with others may be a world of one | it is refused |
//! | `ONESIDED_RSH` | the remote shell of `onesided run --hosts` | `ssh -x -T -o BatchMode=yes`, or `srun` |
//!
//! A variable is read where it applies: those of verbs are not looked at on shared memory.
//! `ONESIDED_COUNT` and `ONESIDED_PROCESS_VM` know the word in the table alone. Other words of theirs,
//! and names that are not in the table, are ignored.
//!
//! # How a job ends
//!
//! A rank **leaves** when the last handle to its world is dropped. A rank that ends without leaving
//! (a signal, `exit`, a panic) is **dead**: every rank that waits for it gets an error within a
//! second, see [`failures`](super::failures). By default `onesided run` then ends the job: the
//! survivors have two seconds to report, then get `SIGTERM`, then `SIGKILL`. With
//! `--on-failure continue` they go on.
//!
//! [`World::abort`](crate::World::abort) ends the whole job at once, with a status, under every
//! launcher. The launcher, or where there is none of ours the daemon of each host, kills the other
//! ranks.
//!
//! Ctrl-C and `SIGTERM` end the whole job. If the launcher itself is killed, the kernel kills its
//! ranks. Memory files have no names, so nothing is left behind.
