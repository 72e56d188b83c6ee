//! What happens when a rank dies, a peer is lost or a resource is exhausted.
//!
//! **Every wait ends**: in success, in an error, or at a deadline that the program chooses.
//!
//! | a wait for | ends |
//! |---|---|
//! | what needs no help of another rank: operations, flushes, the release of a lock | by itself: immediately on shared memory; over a network by the card's answer or its retry limit |
//! | room at a rank that makes no progress (verbs): what is posted behind very many messages and signals | after `ONESIDED_FULL_AFTER` seconds (60 if not set), for which the call that posts blocks |
//! | what another rank has to do: release a lock, receive a message, reach a barrier, create a window, signal, carry out an atomic on its user memory | when the rank does it, dies or leaves, or at the program's deadline; a receive from [any](crate::Source::Any) rank when a member dies, or when all others have left |
//!
//! The library cannot tell a living rank that never does what it has to from a slow one. Give such
//! a wait a `.deadline()`, or poll it with `.test()` or
//! [`wait_timeout`](crate::fabric::wait_timeout). [Hangs](super::hangs) shows who waits for whom.
//!
//! Nothing in this library ends the process. No input makes it panic except what would make a slice
//! panic (a range of [`Local::read`](crate::Local::read)). Errors have a
//! [`FaultKind`](crate::FaultKind); the tables name it.
//!
//! # Death
//!
//! A rank is *dead* if it ended without leaving its world: by a signal, by `exit`, by a panic.
//!
//! | a rank died | ranks that learn of it | error |
//! |---|---|---|
//! | while it held an exclusive lock | those that request the lock, until one recovers it | [poisoned](super::death_and_leases), naming the dead rank |
//! | while it held a shared lock | none: the others get the lock, on one host within tens of milliseconds, otherwise after up to a second | |
//! | for which another waits ([`start`](crate::Window::start), [`post`](crate::Window::post), a signal) | those that wait | `PeerDied`; if it did not die, `PeerLeft` or `PeerNeverJoined` |
//! | during a barrier, a fence or the creation of a window | all in it, at once | the same, for a rank that did not enter it |
//! | whose memory others access | on verbs, those that do; on shared memory only those that access its user memory. Its allocated memory stays usable, but for a rank that unwound from a panic: to ranks that had not accessed it before, it is gone | `PeerDied` |
//!
//! A dead rank stays a member of its world, so that no later collective of it succeeds; one that
//! was [split](crate::World::split) off before, without the dead rank, goes on. A split needs every
//! rank of its world: none is possible after the death. The survivors can make another communicator, with a
//! world of its own, by [`create_group`](crate::Messages::create_group) of one that they already have.
//!
//! A thread that panics under an exclusive lock poisons it, too; under a guard of a
//! [`Mutex`](crate::Mutex) or an [`RwLock`](crate::RwLock) it does not, and the value stays as it
//! was: [panics](super::death_and_leases#panics).
//!
//! # How a program ends after a death
//!
//! The `close` of a window, a mutex or a table is collective, so it fails after a death. None is
//! needed: a survivor drops what it has, or returns from `main`, and neither waits for another rank.
//! (The rank that serves the job leaves last: [processes](super::processes).)
//!
//! - To wait for the other survivors before that: a barrier of a world that was
//!   [split off](crate::World::split) before the death, messages, or a count under a lock
//!   (`examples/recovered_mutex.rs`).
//! - A rank that returns an error from `main`, or ends with another status than 0, has failed, too.
//!   `onesided run` exits with the status of the first rank that failed, here of the one that died.
//! - To end all ranks, end one with a status (`std::process::exit(1)`): `onesided run` ends the
//!   others two seconds later, unless it was started with `--on-failure continue`.
//!
//! # Other failures
//!
//! | what happened | ranks that learn of it | error |
//! |---|---|---|
//! | an operation failed in flight (verbs) | the rank that waits for it, or the next flush of that target | `Unknown`: it may have taken effect, and the [connection is lost](#lost-connections) |
//! | a silent rank counts as dead, but runs on (verbs) | that rank, by any operation on a rank that counts it as dead | `Revoked`, naming the other; nothing of it takes effect there any more |
//! | a living rank does not process messages and signals (verbs: more than a thousand) | those that post to it | `Full`: not posted |
//! | the same for twice `ONESIDED_FULL_AFTER`, at least 30 s (verbs) | those that wait for what was posted to it | `Unknown`, then `ConnectionLost` |
//! | an owner exceeded its lease | see [leases](super::death_and_leases#leases) | `Late`, or `Revoked` |
//! | no memory or descriptors for a window | all | [`Create`](onesided_windows::Error::Create) there, [`CreateElsewhere`](onesided_windows::Error::CreateElsewhere) on the others |
//! | ranks disagree on a window | all | [`Mismatch`](onesided_windows::Error::Mismatch) |
//! | a limit is reached while a rank joins | that rank; the others see it as dead | an error that names the limit |
//! | a guard was dropped, and its release failed | [`Window::close`](crate::Window::close) | the error that the unlock would have returned |
//!
//! **Exhaustion** is an error wherever this library allocates memory, descriptors or threads of its
//! own, with two exceptions. The pages of a large window are allocated when they are touched, as
//! those of a vector are ([`Builder::allocate`](crate::Builder::allocate)); where none are left,
//! the kernel ends a process. And where not even an error's text can be allocated, Rust's allocator
//! ends the process.
//!
//! # Failure detection
//!
//! **On one host** a death is known within milliseconds. The head daemon, which is the launcher or
//! runs in rank 0, waits for the end of the processes that joined, and wakes every sleeping rank.
//! Nothing else is a death: not the end of a script around the process, nor that of its connection.
//! If the daemon ran in rank 0 and that rank has died, the next rank takes over.
//!
//! **On several hosts** all know a death as soon as a message arrives. A host that disappears (its
//! stream to the launcher or rank 0 ends, or is silent for `ONESIDED_SUSPECT_AFTER` seconds, 5 if
//! not set) fails with all its ranks. They are dead to all others, and stay so even if the host
//! comes back. Host daemons send a keepalive at least every half second.
//!
//! A silent host may live on, and its cards with it. So before a rank reports a failure it **cuts**
//! the failed rank: on verbs, a thread of its own closes the queue pairs to that rank, even while
//! the program computes. What the failed rank has posted to this rank's memory has taken effect by
//! then, or never will. That takes up to a tenth of a second, in which a notice goes to the failed
//! rank. On shared memory the cut is the end of the process.
//!
//! **When a network is cut:**
//!
//! - Under `onesided run --hosts` an agent without its launcher kills its ranks.
//! - At a rendezvous, a host that lost the connection to rank 0's host treats the ranks there as
//!   dead and goes on. It learns nothing more of ranks on third hosts: they count as alive, and
//!   only an operation on them shows that one has failed. New worlds are errors.
//! - The network of the cards may fail alone. An operation then fails by the card's retries, mostly
//!   within two seconds. It ends as `PeerDied` if news of a death arrives, within
//!   `ONESIDED_SUSPECT_AFTER` and another second (on one host: within about a second), and else as
//!   `Unknown`. A wait for one rank ends as `PeerDied` or `ConnectionLost`, too: every two seconds
//!   the waiter probes the rank by a read.
//!
//! # Lost connections
//!
//! On cards, two living ranks may lose their connection: when an operation between them ends as
//! `Unknown`. Each of the two has then failed as a user of the other's memory. Both live, and both
//! go on with all other ranks. Their messages have a connection of their own: if that one alone
//! breaks, the messages under way between the two fail (`ConnectionLost`) and [it is made
//! anew](super::messages#failures), or with `ONESIDED_MESSAGES_RELIABLE=on` they [go on by
//! datagrams](super::messages#over-datagrams); all of this section is about windows and locks, which go on.
//!
//! - Operations in flight between the two end as `Unknown`: each took effect or never will, once
//!   its target has cut the connection. Later ones fail as `ConnectionLost` and have no effect.
//! - Both ranks cut the connection, and every other rank learns of it, as of a death.
//! - A guard that one of the two holds at the other ends: its operations and its unlock fail. Drop
//!   it; there is nothing to release. A request that waits there fails, too.
//! - For the others the lock is as after the death of that rank: poisoned if it was held
//!   exclusively. It is taken from the rank only when the lock's rank has cut the connection.
//! - On `mixed`, two ranks of a host lose their connection like any others, for bytes too. Only a
//!   put by the CPU that is under way at that moment may take effect after the cut.
//! - A rank may lose the connection to itself, by which cards change its own words. Its own memory
//!   is lost to it then, and stays usable for the others.
//! - A collective call in which one of the two needs the other ends at all ranks that wait for them,
//!   as `ConnectionLost`.
//! - What is lost stays lost in this world and its windows, so do not repeat the operation there.
//!
//! The program goes on with other targets, or ends, or once the network works again all ranks make a
//! world with other connections ([`World::reconnect`](crate::World::reconnect)). Windows and
//! communicators are made in it as in the first one:
//!
//! ```no_run
//! # use onesided::{Error, Window, World};
//! # fn main() -> Result<(), Error> {
//! # let world = World::init()?;
//! # let window = Window::<u64>::allocate(&world, 100).wait()?;
//! // Every rank, when it has seen an error or has been told of one.
//! let anew = world.reconnect()?;
//! let table = Window::<u64>::allocate(&anew, 100).wait()?;
//! table.local().write(0, &window.local().read(0..100))?; // what this rank's memory holds
//! anew.barrier().wait()?;
//! # Ok(()) }
//! ```
//!
//! The locks of the new windows are free. What the others recovered from a rank in the windows of
//! before is theirs: the failure of a lock is not undone. Whether an operation that ended as `Unknown`
//! took effect can be read at its target.
//!
//! # What is not survived
//!
//! - The rank whose memory a lock is in: its locks are gone with it, except on shared memory, where
//!   the allocated memory of a dead rank stays usable. A lock that a thread serves needs its rank
//!   everywhere.
//! - A rank that is stopped (`SIGSTOP`) cuts nobody. A lock in its memory stays with the rank that
//!   failed until it goes on; other ranks wait until their deadline.
//! - A lock under recovery asks every rank that may hold it. A rank that has lost the connection to
//!   one of them cannot ask it, and fails with `ConnectionLost`; the others recover the lock. So
//!   does a writer with distributed counters, which sets a flag at every rank.
//! - What the memory of a dead rank held, on verbs. A lock that only counts its owners names the
//!   rank that held it if that rank's memory is there, and else the rank that failed last; the error
//!   says how many others it may have been.
//!
//! # Cancellation
//!
//! A request for a lock that is dropped, at any point, or whose deadline passed, is cancelled. The
//! library's helper thread finishes what is in flight, and releases the lock if it was acquired,
//! even while the program computes. It also finishes the release of a dropped guard that has to
//! wait for data, and the completion of a dropped [`AccessEpoch`](crate::AccessEpoch). A leaked
//! guard leaves the target locked; when its rank has left, the others find that the owner [left, and
//! held the lock](super::death_and_leases#ranks-that-leave).
//!
//! The last drop of a rank's handles, at the end of `main` as a rule, waits up to two seconds for
//! this work. A request that still waits then gives up its place: the others start over without it,
//! and learn of no fault.
//!
//! A collective (creating or closing a window, a barrier, a fence) cannot be cancelled, because the
//! other ranks wait in it. After its deadline has passed, no later collective of its world succeeds at
//! this rank, or of its window, if it is a fence or a close. The same holds for every rank after ranks
//! have met in different collectives: each gets `OutOfStep`, which names a rank and both collectives.
//! Ranks that are in collectives of different windows or worlds wait for one another, as in MPI:
//! [hangs](super::hangs) shows them.
