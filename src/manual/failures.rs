//! What happens when a rank dies, a peer is lost, something runs out.
//!
//! Every wait ends: in success, in an error, or at a deadline that you choose.
//!
//! - *What needs nobody's help* (operations, flushes, the release of a lock) ends by itself: at once on shared memory, by the
//!   card's answer, by the network's silence, or after the time that a thread of the owner's has to answer.
//! - *What needs room at a rank that makes no progress* (messages; on verbs also what is posted behind a great many messages and
//!   signals) ends after `ONESIDED_FULL_AFTER`. A message can be given up before, by dropping its future or by
//!   [`wait_timeout`](crate::fabric::wait_timeout); a call that posts blocks so long.
//! - *What another rank has to do* (release a lock, come to a barrier, a fence or the making or end of a window, expose a part,
//!   complete an access, signal, send, carry out an atomic on memory that it has lent) is waited for until it is done, until that
//!   rank dies or leaves, or until your deadline. A living rank that never does it, because it is stopped or computes, is told
//!   from a slow one by nobody else: give such a wait a `deadline`, which may be said at any time, or look with `test` and
//!   `wait_timeout`, which every handle has.
//!
//! Nothing in this library ends the process, and no input makes it
//! panic but what would make a slice panic (a range of
//! [`Local::read`](crate::Local::read)).
//!
//! | what happened | who learns it | how |
//! |---|---|---|
//! | a rank died while it held an exclusive lock | whoever asks for the lock, until somebody recovers it | [`Error::is_poisoned`](crate::Error::is_poisoned), naming it |
//! | a rank died that may hold a shared lock, or waits in a queue | whoever asks for it, after up to a second | the same, with [`FaultKind::ParticipantDied`](crate::FaultKind): a count names nobody |
//! | a rank died or left that an origin or a target waits for (start, wait, test) | whoever waits for it | [`PeerDied`](crate::FaultKind), [`PeerLeft`](crate::FaultKind) |
//! | a rank died or left during a barrier, a fence or a window's creation | every rank in it | [`PeerDied`](crate::FaultKind), [`PeerLeft`](crate::FaultKind) |
//! | a rank died that only owns the memory | whoever operates on memory that it had lent (created windows, attached vectors), and on verbs on any; on shared memory nobody, otherwise: the memory stays | [`PeerDied`](crate::FaultKind) |
//! | the connection of two living ranks broke (verbs) | whoever operates on the other or waits for it, on both sides | [`Unknown`](crate::FaultKind), then [`Refused`](crate::FaultKind) |
//! | a living rank takes no message, and there is no room for more (stopped, or it never looks) | whoever sends to it, after `ONESIDED_FULL_AFTER` seconds, 60 if it is not set | [`Full`](crate::FaultKind): not sent |
//! | a living rank takes no signal either, and the queue of requests to it is full (verbs: more than a thousand signals) | whoever posts to it, after that time | [`Full`](crate::FaultKind): not posted |
//! | the same for twice that time, at least 30 s (verbs) | whoever waits for what was posted to it | the connection is given up: [`Unknown`](crate::FaultKind), then [`Refused`](crate::FaultKind) |
//! | an operation failed on its way | whoever waits for it, or the next flush of that target | [`Unknown`](crate::FaultKind): it may have taken effect |
//! | no memory or descriptors for a window | every rank | [`Create`](onesided_windows::Error::Create) there, [`CreateElsewhere`](onesided_windows::Error::CreateElsewhere) on the others |
//! | a limit is reached while a rank joins | that rank; the others see it as dead | an error that names the limit |
//! | ranks disagree on a window | every rank | [`Mismatch`](onesided_windows::Error::Mismatch) |
//! | an owner kept the lock for longer than its lease, in a window with `VersionedCommit` | it, by its commit, unlock or fencing token | [`Late`](onesided_windows::Error::Late) |
//! | the same in a window with `Revoke` | it, by whatever it does with the target, and the target, by whatever it does with it | [`Revoked`](crate::FaultKind), naming the other; with all others both go on |
//! | a guard was dropped and its release failed | [`Window::close`](crate::Window::close) | the error that the unlock would have given |
//!
//! Running out is an error wherever this library asks for memory, descriptors or threads of its own. Pages of a large allocated
//! window, though, come when they are touched, as those of a vector do ([`Builder::allocate`](crate::Builder::allocate)): where there
//! are none left then, the kernel ends a process. Where not even the few
//! bytes of an error's text can be had, Rust's allocator ends the process, and that is a death like any other.
//!
//! On one host death is known within milliseconds: who keeps the job, the launcher or rank 0, waits for the ranks' processes
//! and rings everybody who sleeps. When rank 0 kept it and has died, the next rank does.
//!
//! On several hosts a rank's death is known on all of them as soon as a message gets there. **A host that disappears** (its
//! stream to the launcher or to rank 0 ends, or nothing comes for `ONESIDED_SUSPECT_AFTER` seconds, 5 if it is not set) takes
//! all its ranks with it: they are dead to all others, and stay so even if the host comes back. Keepers say something at
//! least every half second. What a cut network means:
//!
//! - Under `onesided run --hosts` an agent without its launcher kills its ranks.
//! - At a rendezvous, a host that lost the way to rank 0's host takes the ranks there for dead and goes on. It then hears no
//!   more of ranks on third hosts: they count as alive, whatever becomes of them, and only an operation on them can tell. New
//!   values, and so new worlds, are errors.
//! - On verbs an operation on a host that cards do not reach ends as `Unknown` by the card's own retries, in about two seconds,
//!   mostly before that; later ones are `Refused`. A wait for what comes from one rank (a barrier, a message) ends as `Refused`
//!   too: the rank is asked for a sign of life every two seconds, by a read that needs no help of it. So a network of cards may
//!   go alone, and the launcher's stay. A lock waits for as long as its owner lives, or until its deadline: an owner that its
//!   cards cut off from the lock cannot release it before it ends.
//!
//! **A lock whose owner died is poisoned** until somebody [recovers](crate::LockRequest::recover) it: see [locks](super::locks). For
//! an owner that is only late there are fencing tokens and [policies](crate::LeasePolicy).
//!
//! # Walking away
//!
//! A [`LockRequest`](crate::LockRequest) that is dropped, at any point, and one whose deadline passed, is not tried any more;
//! what is under way of it is finished, and released if it took the lock, by the endpoint's helper thread, even while the
//! application computes. The same holds for the release of a
//! guard that is dropped where a release has to wait for data, and for the completion of an
//! [`AccessEpoch`](crate::AccessEpoch) that is dropped. A guard that is leaked leaves the target locked and harms
//! nothing else.
