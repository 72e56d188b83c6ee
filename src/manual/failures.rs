//! What happens when a rank dies, a peer is lost or a resource is exhausted.
//!
//! Every wait ends: in success, in an error, or at a deadline that the program chooses.
//!
//! - *What needs no other rank's help* (operations, flushes, the release of a lock) ends by itself:
//!   immediately on shared memory, by the card's answer, by its retry limit, or after the time that
//!   a thread of the target has to answer.
//! - *What needs room at a rank that makes no progress* (messages; on verbs also what is posted
//!   behind very many messages and signals) ends after `ONESIDED_FULL_AFTER`. A message can be
//!   cancelled before, by dropping its future or by [`wait_timeout`](crate::fabric::wait_timeout);
//!   a call that posts blocks for that long.
//! - *What another rank has to do* (release a lock, reach a barrier or a fence, create or close a
//!   window, expose memory, complete an access, signal, send, carry out an atomic on its user
//!   memory) is waited for until it happens, until that rank dies or leaves, or until the program's
//!   deadline. The library cannot tell a living rank that never does it, because it is stopped or
//!   computes, from a slow one. Give such a wait a `deadline`, or poll
//!   with `test` and `wait_timeout`, which every handle has.
//!
//! Nothing in this library ends the process. No input makes it panic except what would make a slice
//! panic (a range of [`Local::read`](crate::Local::read)).
//!
//! | what happened | which ranks learn it | how |
//! |---|---|---|
//! | a rank died while it held an exclusive lock | ranks that ask for the lock, until one of them recovers it | [`Error::is_poisoned`](crate::Error::is_poisoned), naming the failed rank |
//! | a rank died that held the lock exclusively or waited to, with tickets or a queue | ranks that ask for the lock, after up to a second | the same, with [`FaultKind::ParticipantDied`](crate::FaultKind): a count names no rank |
//! | a rank died while it held a shared lock | none: ranks that ask for the lock get it, after up to a second | |
//! | a thread panicked while it held an exclusive lock | ranks that ask for the lock, that one too, until one of them recovers it | the same, with [`FaultKind::OwnerPanicked`](crate::FaultKind) |
//! | a rank died or left that an origin or a target waits for (start, wait, test) | ranks that wait for it | [`PeerDied`](crate::FaultKind), [`PeerLeft`](crate::FaultKind) |
//! | a rank died or left during a barrier, a fence or a window's creation | every rank in it | [`PeerDied`](crate::FaultKind), [`PeerLeft`](crate::FaultKind) |
//! | a silent rank counts as dead, but runs on (verbs) | that rank, by any operation on a rank that counts it as dead | [`Revoked`](crate::FaultKind), naming the other; nothing of it takes effect there any more |
//! | a rank died that owns the memory only | ranks that operate on its user memory (created windows, attached vectors), and on verbs on any memory of it; on shared memory allocated memory stays usable | [`PeerDied`](crate::FaultKind) |
//! | the connection of two living ranks is lost (verbs) | each of the two that operates on the other or waits for it | [`Unknown`](crate::FaultKind) for what was in flight, then [`ConnectionLost`](crate::FaultKind) |
//! | a rank lost its connection to the rank of a lock that it holds or waits for (verbs) | that rank, by its next operation, its unlock or its wait; ranks that ask for the lock, as after its death | [`Unknown`](crate::FaultKind) or [`ConnectionLost`](crate::FaultKind); for the others [`Error::is_poisoned`](crate::Error::is_poisoned), unless it only read |
//! | a living rank receives no messages, and there is no room for more (it is stopped, or never receives) | ranks that send to it, after `ONESIDED_FULL_AFTER` seconds, 60 if not set | [`Full`](crate::FaultKind): not sent |
//! | a living rank does not process signals either, and the queue of requests to it is full (verbs: more than a thousand signals) | ranks that post to it, after that time | [`Full`](crate::FaultKind): not posted |
//! | the same for twice that time, at least 30 s (verbs) | ranks that wait for what was posted to it | the connection is given up: [`Unknown`](crate::FaultKind), then [`ConnectionLost`](crate::FaultKind) |
//! | an operation failed in flight | the rank that waits for it, or the next flush of that target | [`Unknown`](crate::FaultKind): it may have taken effect, and the connection is lost |
//! | no memory or descriptors for a window | every rank | [`Create`](onesided_windows::Error::Create) there, [`CreateElsewhere`](onesided_windows::Error::CreateElsewhere) on the others |
//! | a limit is reached while a rank joins | that rank; the others see it as dead | an error that names the limit |
//! | ranks disagree on a window | every rank | [`Mismatch`](onesided_windows::Error::Mismatch) |
//! | an owner kept the lock for longer than its lease, in a window with `VersionedCommit` | the owner, by its commit, unlock or fencing token | [`Late`](onesided_windows::Error::Late) |
//! | the same in a window with `Revoke` | the owner and the target, by any operation on each other | [`Revoked`](crate::FaultKind), naming the other; with all other ranks both go on |
//! | a guard was dropped and its release failed | [`Window::close`](crate::Window::close) | the error that the unlock would have returned |
//!
//! Exhaustion is an error wherever this library allocates memory, descriptors or threads of its
//! own. There are two exceptions. The pages of a large allocated window are allocated when they are
//! touched, as those of a vector are ([`Builder::allocate`](crate::Builder::allocate)): where none
//! are left then, the kernel ends a process. And where not even the few bytes of an error's text
//! can be allocated, Rust's allocator ends the process, which is a death like any other.
//!
//! # Failure detection
//!
//! On one host a death is known within milliseconds. The head daemon, which is the launcher or runs
//! in rank 0, waits for the ranks' processes and wakes every sleeping rank. If it ran in rank 0 and
//! that rank has died, the next rank takes over.
//!
//! On several hosts all of them know a rank's death as soon as a message arrives. **A host that
//! disappears** (its stream to the launcher or to rank 0 ends, or is silent for
//! `ONESIDED_SUSPECT_AFTER` seconds, 5 if not set) fails with all its ranks: they are dead to all
//! others, and stay so even if the host comes back. Host daemons send a keepalive at least every
//! half second.
//!
//! A silent host may live on, and its cards with it. So each rank **cuts** a failed rank before it
//! reports the failure: on verbs it closes its queue pair to that rank, from a thread of its own,
//! so that a rank that computes does so, too. What the failed rank has posted to the cutting rank's
//! memory has taken effect by then, or never will. That takes up to a tenth of a second, in which
//! a notice goes to the failed rank. On shared memory the cut is the end of the process.
//!
//! When a network is cut:
//!
//! - Under `onesided run --hosts` an agent without its launcher kills its ranks.
//! - At a rendezvous, a host that lost the connection to rank 0's host treats the ranks there as
//!   dead and goes on. It then learns nothing more of ranks on third hosts: they count as alive,
//!   and only an operation on them shows that one has failed. New values, and so new worlds, are
//!   errors.
//! - On verbs an operation on a host that cards do not reach fails by the card's own retries, mostly
//!   within two seconds. Then it waits for news of a death: for `ONESIDED_SUSPECT_AFTER` and another
//!   second, or within a host for that second and until the end of a process is taken note of. It
//!   ends as `PeerDied` if there are any, and else as `Unknown`; later ones fail as
//!   `ConnectionLost` at once. A wait for one rank (a barrier, a message) ends as `PeerDied` or
//!   `ConnectionLost` too: every two seconds the waiter probes the rank by a read, which needs no
//!   help of it. So the network of the cards may fail alone while the launcher's stays.
//!
//! # Lost connections
//!
//! A rank fails for one memory at a time. When an operation between two living ranks ends as
//! `Unknown`, their connection is lost, and each of the two has failed as a user of the other's
//! memory. Both live, and both go on with all other ranks.
//!
//! - Operations in flight between the two end as `Unknown`: each took effect or never will, once
//!   its target has cut the connection. Later ones fail as `ConnectionLost` and have no effect.
//! - Both ranks cut the connection, and every other rank learns of it, as of a death.
//! - A guard that one of the two holds at the other ends: its operations and its unlock fail as
//!   `Unknown` or `ConnectionLost`. Drop it; there is nothing to release.
//! - The lock is then as after the death of that rank: if it was held exclusively, it is poisoned
//!   for the others, until one of them [recovers](crate::handles::LockRequest::recover) it. It is taken from
//!   the rank only when the lock's rank has cut the connection.
//! - A request that waits for a lock there ends in the same errors.
//! - On `mixed`, two ranks of a host lose their connection like any others, for bytes too. Only a
//!   put by the CPU that is under way at that moment may take effect after the cut.
//! - A rank may lose the connection to itself, by which cards change its own words. Its own memory
//!   is lost to it then, and stays usable for the others.
//! - A connection is not made anew, so do not repeat the operation. The program goes on with other
//!   targets, or ends.
//!
//! **A lock whose exclusive owner died or panicked is poisoned** until a rank
//! [recovers](crate::handles::LockRequest::recover) it: see [locks](super::locks). For an owner that is
//! alive but too slow there are fencing tokens and [lease policies](crate::LeasePolicy).
//!
//! # What is not survived
//!
//! - The rank whose memory a lock is in: its locks are gone with it, except on shared memory, where
//!   the allocated memory of a dead rank stays usable. A served lock needs its rank everywhere.
//! - A rank that is stopped (`SIGSTOP`) cuts nobody. A lock in its memory stays with the rank that
//!   failed until it goes on; other ranks wait until their deadline.
//! - A lock under recovery asks every rank that may hold it. A rank that has lost the connection to
//!   one of them cannot ask it, and fails with `ConnectionLost`; the others recover the lock. So
//!   does a writer with distributed counters, which sets a flag at every rank.
//! - What the memory of a dead rank held, on verbs. A count that is taken from the dead names the
//!   rank that held the lock if that rank's memory is there, and else the rank that failed first.
//!
//! # Cancellation
//!
//! A [`LockRequest`](crate::handles::LockRequest) that is dropped, at any point, or whose deadline passed,
//! is cancelled. The endpoint's helper thread finishes what is in flight, and releases the lock if
//! it was acquired, even while the application computes. The helper thread also finishes the
//! release of a dropped guard that has to wait for data, and the completion of a dropped
//! [`AccessEpoch`](crate::AccessEpoch). A guard that is leaked leaves the target locked and harms
//! nothing else.
