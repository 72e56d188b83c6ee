//! How a program becomes ranks, how it finds its job, and how it ends.
//!
//! The same program, with the same [`World::init`](crate::World::init), runs
//!
//! | as | started by | who keeps the job |
//! |---|---|---|
//! | one | nothing special: a world of one | itself |
//! | threads | [`threads`](crate::threads), a closure once a rank: for tests, examples, small programs | itself |
//! | processes | `onesided run -n 4 -- PROGRAM ARGS` | the launcher |
//! | processes on several hosts | `onesided run --hosts a:2,b:2 -n 4 --fabric verbs -- PROGRAM ARGS` | the launcher, and an agent on each other host |
//! | processes, on several hosts too | in a Slurm allocation, `onesided run --hosts slurm --fabric verbs -- PROGRAM ARGS` | the launcher, and an agent on each other host |
//! | processes, on several hosts too | `srun --mpi=pmi2 -n 4 PROGRAM ARGS`; MPICH's `mpiexec -n 4 PROGRAM ARGS`, or what else speaks PMI-1 | rank 0, and the lowest rank of each other host |
//! | processes, on several hosts too | by hand, by ssh, by a script, with the variables of a rendezvous | rank 0, and the lowest rank of each other host |
//!
//! The first of these that the environment speaks of holds: a rendezvous, `onesided run`, PMI-1, alone. `onesided info`,
//! started like the program, tells which that is. A process that `srun` or Open MPI's `mpirun` started with others, and
//! without any of these, is refused, for it would be as many worlds of one; `ONESIDED_ALONE=1` says that it is meant.
//!
//! # `onesided run`
//!
//! Output lines are told apart by rank; standard input goes to rank 0; the exit status is that of the first rank that
//! failed.
//!
//! It tells a process who it is by `ONESIDED_RANK`, `ONESIDED_SIZE`, `ONESIDED_ADDRESS` (an abstract Unix socket: nothing
//! lies in a file system) and `ONESIDED_SECRET`. The process and the launcher prove to each other that they know the
//! secret, by keyed BLAKE3 over two nonces, before a descriptor or a key is handed out. Then it gets the job's *board* (who
//! lives, doorbells, mail), and from then on reaches the memory of any rank through the launcher, without that rank's help.
//!
//! # Several hosts: `onesided run --hosts`
//!
//! ```sh
//! onesided run --hosts alpha:2,beta:4 -n 6 --fabric verbs -- ./program
//! ```
//!
//! Each host is filled before the next; without `-n` all are filled. The list may be a file with a host a line
//! (`--hosts ./hosts`). `localhost` and this host's own name are the launcher's own, so only one of them may be there; on each
//! other host ssh starts an *agent*: `onesided` itself, in the same version, from the same place as here (`--agent PATH` says
//! another; a folder that all hosts share will do). The program has to be there, too, under the same name.
//!
//! ssh has no terminal to ask on, so it has to get there without a question. From the host where the job is started,
//! `ssh -x -T -o BatchMode=yes HOST true` has to succeed for each. If it does not:
//!
//! | ssh says | then |
//! |---|---|
//! | `Host key verification failed` | the host is not in `~/.ssh/known_hosts` (or is another): log in once by hand, and compare its key |
//! | `Permission denied (publickey...)` | it does not take your key: `ssh-copy-id HOST`; a key with a passphrase has to be in `ssh-agent` |
//! | `No route to host`, `Connection refused`, nothing until `ONESIDED_JOIN_TIMEOUT` | no daemon of ssh is reached there; names, ports, users and jump hosts are told to ssh in `~/.ssh/config` |
//!
//! `--rsh COMMAND` or `ONESIDED_RSH` names another remote shell, called as `COMMAND HOST LINE` (`COMMAND` is split at white
//! space, quotes are not regarded: write a script where that is not enough).
//! Its input and output are the agent's stream to the launcher. No port is opened.
//!
//! - The ranks get the same working directory, the variables `ONESIDED_*`, and those that `-x NAME` names.
//! - Output, exit statuses, signals and `--on-failure` are as on one host. Standard input is for rank 0 if it runs where the
//!   launcher does; elsewhere it reads nothing.
//! - The job's secret goes to the agents by that stream, never by a command line or an environment of the remote shell, and
//!   every message bears a keyed tag (BLAKE3) with a running number. The messages are not encrypted: ssh does that. With a
//!   remote shell that does not, the secret crosses the network as it is.
//! - An agent that loses its launcher kills its ranks and ends. A launcher that loses an agent (its stream ends, or is
//!   silent for `ONESIDED_SUSPECT_AFTER` seconds) says so, and that is a failure of the ranks there.
//!
//! Memory between hosts is the fabric's business: shared memory joins the ranks of one host only and says so, verbs joins
//! all. [`Job::host_of`](onesided_fabric::bootstrap::Job::host_of) tells where a rank is.
//!
//! # Slurm
//!
//! Two ways, tried with Slurm 22.05 on three nodes by the stage `slurm` of `scripts/test`.
//!
//! ```sh
//! #SBATCH --nodes=2 --ntasks=8
//! onesided run --hosts slurm --fabric verbs -- ./program      # our launcher
//! srun --mpi=pmi2 ./program                                   # or Slurm's; ONESIDED_FABRIC=verbs
//! ```
//!
//! - **`--hosts slurm`** reads the allocation's nodes and how many tasks each takes (`SLURM_JOB_NODELIST`,
//!   `SLURM_TASKS_PER_NODE`) and starts an agent on each by `srun`, as a step that takes nothing from others. Everything else is
//!   as by ssh; Slurm asks for no password. It works inside `sbatch` and `salloc`, whatever PMI Slurm was built with.
//! - **`srun --mpi=pmi2`** has Slurm start and end the ranks. Its socket answers PMI-1, see below. Slurm does not end the others
//!   when one fails, unless asked (`--kill-on-bad-exit`).
//! - Plain `srun` (its default is `--mpi=none` on many clusters) and `srun --mpi=pmix` tell tasks no way to one another that
//!   onesided knows, and are refused. They will do with a [rendezvous](#a-rendezvous), where `SLURM_PROCID` and
//!   `SLURM_STEP_NUM_TASKS` stand for `ONESIDED_RANK` and `ONESIDED_SIZE`:
//!   `ONESIDED_ADDRESS=$(hostname -I | cut -d' ' -f1):7000 ONESIDED_SECRET_FILE=$HOME/secret srun ./program`, called on the
//!   first node. (Not its name: Debian has that stand for 127.0.1.1, where no other node comes to.)
//!
//! # `mpiexec`, and other process managers that speak PMI-1
//!
//! `mpiexec` of MPICH (Hydra) and `srun --mpi=pmi2` set `PMI_FD`, `PMI_RANK` and `PMI_SIZE`, Hydra with `-pmi-port` `PMI_PORT`
//! and `PMI_ID`. Rank 0 puts its socket, a fresh secret and this host's addresses with a port into the manager's key-value
//! space, which only the job's processes can ask, and keeps the job; after a barrier the others read it, and join rank 0 with
//! the same proofs as above. Ranks of other hosts come to that port, which the kernel chooses and which is closed once all have
//! come: a firewall between hosts has to let it pass, or it has to be a rendezvous at a port of yours.
//! Then the manager is left alone: it forwards output and signals, and by its own rules ends the others when a signal killed
//! a rank. A program that also initialises MPI should come by a rendezvous, for the manager takes one client a process.
//!
//! # A rendezvous
//!
//! Whoever can start processes on a host can start ranks: each gets, in its environment,
//!
//! | variable | says |
//! |---|---|
//! | `ONESIDED_ADDRESS` | `HOST:PORT`, where rank 0 listens while the ranks come |
//! | `ONESIDED_RANK`, `ONESIDED_SIZE` | who it is, and of how many |
//! | `ONESIDED_SECRET_FILE` | a file with 64 hexadecimal digits that only its owner may read |
//!
//! ```sh
//! (umask 077; od -An -tx1 -N32 -v /dev/urandom | tr -d ' \n' > secret)
//! export ONESIDED_ADDRESS=localhost:7000 ONESIDED_SIZE=4 ONESIDED_SECRET_FILE=secret
//! for rank in 0 1 2 3; do ONESIDED_RANK=$rank ./program & done; wait
//! ```
//!
//! In whatever order they start: the others try until rank 0 listens. Both sides prove that they know the secret, which is
//! never sent, before anything else is said; who does not is dropped. Then rank 0 tells its socket, and keeps the job.
//!
//! **On several hosts** it is the same, with an address that all of them reach and a copy of the secret's file on each (or a
//! file system that they share). The lowest rank of each other host keeps its host, with the stream over which it came.
//!
//! # Where rank 0 keeps the job
//!
//! - `init` is **collective**: it returns when all ranks have come, and is an error everywhere if one does not come within
//!   `ONESIDED_JOIN_TIMEOUT` seconds (60 if it is not set).
//! - **Rank 0 goes last**: dropping its last handle to the world waits until all others have left or died, because they may
//!   still need to map one another's memory.
//! - Nobody ends the others when a rank fails, unless whoever started them does: they go on as with `--on-failure continue`.
//! - When **rank 0 dies**, that is an error at whoever waits for it, and later deaths are noticed all the same. Memory that
//!   was mapped stays reachable; a new window, or a first access to memory that was not mapped yet, is an error.
//! - On several hosts, **the keeper of a host** (its lowest rank) goes after the others of its host. When it dies, or does not
//!   run for `ONESIDED_SUSPECT_AFTER` seconds, its host has lost the way to all others: each side takes the other for dead,
//!   see [`failures`](super::failures).
//!
//! # Worlds of some ranks
//!
//! [`World::split`](crate::World::split) divides a world: the ranks of one color make a world of their own, in which they
//! count from 0. It is what MPI's communicators and groups are for: windows, barriers and fences of a row, of a host's ranks, of
//! the readers. A part lives and fails by itself: the death of a rank that is not in it ends none of its collectives.
//!
//! # What the environment chooses
//!
//! | variable | says | if it is not set |
//! |---|---|---|
//! | `ONESIDED_FABRIC` | the fabric: `shm`, `verbs`, `mixed` (`onesided run --fabric` sets it) | `shm` |
//! | `ONESIDED_DEVICE` | the RDMA device, as `onesided info` names it | the first with an active port |
//! | `ONESIDED_LOCK_ALL` | how `lock_all` of windows locks whose [builder](crate::Window::builder) does not say: `on-demand`, `each-target`, `global` (see [locks](super::locks)) | `on-demand`, and `each-target` with locks that let readers wait behind writers |
//! | `ONESIDED_LOCK` | the lock of windows whose [builder](crate::Window::builder) names none: `test-and-set`, `mcs` (see [locks](super::locks)) | `test-and-set` |
//! | `ONESIDED_JOIN_TIMEOUT` | how many seconds the ranks may take to come together where rank 0 keeps the job; the agents of `run --hosts`, to answer | 60 |
//! | `ONESIDED_SUSPECT_AFTER` | how many seconds another host may be silent before it counts as dead, 0.1 or more; that of the launcher or rank 0 holds for all | 5 |
//! | `ONESIDED_FULL_AFTER` | how many seconds who sends or posts waits for room at a rank that takes nothing, 0.1 or more (see [failures](super::failures)) | 60 |
//! | `ONESIDED_COUNT` | `1`: windows [count](crate::Window::paths) which way every operation takes, those of the CPU too | only the others |
//! | `ONESIDED_PROCESS_VM` | `off`: memory of the user's in another process is reached by its owner's helper thread, even where process_vm works | by process_vm where the system allows it |
//! | `ONESIDED_PRETEND_HOSTS` | on `mixed`, a number: the ranks are dealt out to so many hosts that are not there | the hosts that there are |
//! | `ONESIDED_ALONE` | `1`: a process that `srun` or `mpirun` started with others is meant to be a world of one | it is refused |
//! | `ONESIDED_RSH` | the remote shell of `onesided run --hosts` | `ssh -x -T -o BatchMode=yes`, or `srun` |
//!
//! # How a job ends
//!
//! A rank **leaves** when the last handle to its world is dropped. A rank that ends without leaving (a signal, `exit`, a
//! panic) is **dead**: everybody who waits for it gets an error within a second, see [`failures`](super::failures). By
//! default `onesided run` then ends the job: the survivors have two seconds to report, then `SIGTERM`, then `SIGKILL`. With
//! `--on-failure continue` they go on.
//!
//! Ctrl-C and `SIGTERM` end the whole job. If the launcher itself is killed, the kernel kills its ranks. Memory files have
//! no names: nothing is ever left behind.
