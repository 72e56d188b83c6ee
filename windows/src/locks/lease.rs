//! Owners that are only late: stopped, or swapped out, for longer than they may keep a lock.

use std::fmt;
use std::ops::ControlFlow;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use onesided_fabric::remote_memory::{Fault, FaultKind, Link, Liveness};
use onesided_fabric::{Capabilities, Fabric, World};
use onesided_lock_algos::{AnyLock, Held, IntentFn, LockAlgorithm, Mode, Owner, TestAndSet};

use crate::locks::context::{WindowLockContext, Words};
use crate::window::background::{poll_until, retry};
use crate::window::inner::Inner;
use crate::window::target::Target;
use crate::{Element, Epoch, Error, LockDesign, Request};

/// What happens to an exclusive owner that keeps a lock for longer than its lease: [`Builder::lease_policy`](crate::Builder::lease_policy)
/// chooses.
///
/// A lease alone is not safe: who was stopped does not know that time has passed, and no memory looks at tokens. So it takes one of
/// these. They need a lock whose word names its owner: [`LockDesign::TestAndSet`]; readers are never late. Every other combination
/// is an error when the window is made.
///
/// Who waits measures the lease from when it saw the owner first, by its own clock: so no clocks are compared, and nobody is late
/// too early.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum LeasePolicy {
    /// Nothing: who waits goes on waiting. The lock recovers from death, not from delay. For every design.
    #[default]
    None,
    /// Who waits takes the lock over, and the late owner's [commit](Epoch::commit) fails, and so does its unlock
    /// ([`Error::Late`]). What it *puts* is not kept from the memory: what counts is what was committed. Not for lock tables,
    /// [`Mutex`](crate::Mutex) and [`RwLock`](crate::RwLock), which have nothing to commit. A reader who takes a lock over has it alone, and
    /// a lease; a [`lock_all`](crate::Window::lock_all) gives it back at once and shares it: [`LockAll::previous_owner`](crate::LockAll::previous_owner)
    /// tells.
    VersionedCommit,
    /// Who waits kills the late owner's process (SIGKILL by a pidfd). Then it is dead, and all is as after any death: the lock is
    /// poisoned until it is [inherited](crate::LockRequest::recover). Where all ranks are processes of one host, on the shm
    /// fabric. Directly before, it looks once more whether the lock is still held by the same acquire; an owner that releases
    /// between that look and the kill is killed all the same. Who took the lock while the killer waited already has up to two leases.
    /// If there is no killing it, or it is there still after 5 s, the acquire ends with [`LeaseExpired`](FaultKind::LeaseExpired), the lock
    /// stays as it is, and whoever asks next tries again.
    /// **A rank that waits for a lock that it holds itself, with another thread or another guard, kills itself.**
    Kill,
    /// Who waits has the late owner's access to the target's memory revoked: the target's helper thread closes the owner's queue
    /// pair there, and says so, before anybody else has the lock; so nothing that the late owner has on its way, or does when it
    /// wakes up, takes effect there any more. Then all is as after a death: the lock is poisoned until it is
    /// [inherited](crate::LockRequest::recover), which gives [`PreviousOwner::LeaseExpired`](crate::PreviousOwner::LeaseExpired). Where all ranks reach
    /// one another by cards (verbs) and in simulation; not over mapped memory, from which nobody can be kept: there is
    /// [`Kill`](Self::Kill) for that.
    ///
    /// **It ends all between the late owner and the target**, in both directions, in all windows, messages and collective
    /// operations, for as long as both are in the world: each gets [`Revoked`](FaultKind::Revoked) for whatever needs the other,
    /// within a second of its going on. There is no way back but to leave the world. Neither is dead for the
    /// other ranks, with whom both go on; so a lock of the target's that the late owner holds in a window without this policy
    /// is held until it ends. An owner that is late with the lock of its *own* part is waited for: who would revoke its access
    /// is late himself, and so is one whose target is stopped, and another guard of the rank's own.
    Revoke,
}

impl LeasePolicy {
    /// Its name.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::None => "none",
            Self::VersionedCommit => "versioned commit",
            Self::Kill => "kill",
            Self::Revoke => "revoke",
        }
    }
}

impl fmt::Display for LeasePolicy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// The choice of a window that is to be made.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct LeaseChoice {
    pub(crate) policy: LeasePolicy,
    pub(crate) lease: Duration,
    /// Whether it is of something that commits nothing.
    pub(crate) plain: bool,
}

impl LeaseChoice {
    fn nanos(&self) -> u64 {
        u64::try_from(self.lease.as_nanos()).unwrap_or(u64::MAX)
    }

    /// Whether the policy can be had.
    pub(crate) fn check<F: Fabric>(
        &self,
        design: LockDesign,
        world: &World<F>,
        window: &Arc<str>,
    ) -> Result<(), Error> {
        let others =
            || (0..world.size()).filter(|rank| *rank != world.rank()).filter_map(|rank| world.fabric_rank(rank));
        let why = match self.policy {
            LeasePolicy::None => return Ok(()),
            _ if self.lease.is_zero() => "a lease of zero is over before it begins",
            _ if design != LockDesign::TestAndSet => "only the word of a test-and-set lock names its owner",
            LeasePolicy::VersionedCommit if self.plain => "there is nothing to commit",
            LeasePolicy::Kill if !others().all(|rank| world.fabric().can_kill(rank)) => {
                "the ranks are not processes of one host on the shm fabric"
            }
            LeasePolicy::Revoke if !others().all(|rank| world.fabric().can_revoke(rank)) => {
                "nobody can be kept from memory that it has mapped: that takes ranks that reach one another by cards alone"
            }
            LeasePolicy::VersionedCommit | LeasePolicy::Kill | LeasePolicy::Revoke => return Ok(()),
        };
        Err(Error::LeasePolicy { window: window.clone(), policy: self.policy, design, why })
    }

    /// What ranks compare.
    pub(crate) fn describe(&self, design: LockDesign) -> String {
        match self.policy {
            LeasePolicy::None => design.to_string(),
            policy => format!("{design}, late owners: {policy} after {:?}", self.lease),
        }
    }

    /// The lock that keeps to it.
    pub(crate) fn algorithm(&self, design: LockDesign, capabilities: &Capabilities) -> AnyLock {
        match (self.policy, design.algorithm(capabilities)) {
            (LeasePolicy::None, lock) => lock,
            (policy, AnyLock::TestAndSet(lock)) => {
                AnyLock::CheckedTestAndSet(lock.leased(self.nanos(), policy == LeasePolicy::VersionedCommit))
            }
            (_, lock) => lock,
        }
    }

    /// What a window keeps of it.
    pub(crate) fn leases(&self, slots: u16) -> Option<Leases> {
        let starts = || (0..slots).map(|_| AtomicU64::new(0)).collect();
        (self.policy != LeasePolicy::None).then(|| Leases {
            policy: self.policy,
            nanos: self.nanos(),
            starts: starts(),
        })
    }
}

/// The leases of this rank's owners.
pub(crate) struct Leases {
    pub(super) policy: LeasePolicy,
    nanos: u64,
    /// For each slot, a time before its owner's last compare-swap.
    starts: Box<[AtomicU64]>,
}

impl Leases {
    /// Says that an owner is about to try.
    pub(crate) fn begin_attempt(&self, slot: u16, now: u64) {
        if let Some(start) = self.starts.get(usize::from(slot)) {
            start.store(now, Ordering::Relaxed);
        }
    }
}

/// The commit word: version 24 bits | value 40 bits.
const VALUE: u64 = (1 << 40) - 1;
const VERSION: u64 = VALUE + 1;

impl<F: Fabric> Inner<F> {
    /// The contended rest of an acquire, and what becomes of a late owner.
    pub(crate) async fn contend<'m>(
        &'m self,
        context: WindowLockContext<'m, F>,
        words: Words<'m, F>,
        mode: Mode,
        mut first: Result<u64, Fault>,
        intent: IntentFn<'_>,
    ) -> Result<Held, Fault> {
        let (fabric, lock) = (self.fabric(), &self.locks.algorithm);
        let Some(leases) = &self.locks.leases else {
            return lock.contend(fabric, context, words, mode, first, intent).await;
        };
        let slot = Owner::from_bits(words.1).slot;
        // It is asked before each compare-swap.
        let asked: IntentFn<'_> = &|| {
            leases.begin_attempt(slot, fabric.now());
            intent()
        };
        loop {
            let fault = match lock.contend(fabric, context, words, mode, first, asked).await {
                Err(fault) => fault,
                Ok(held) => {
                    if self.locks.commits() && held.recovered.is_some() {
                        // From now on what the owner before commits fails, who may be dead, or only taken for dead, and have
                        // a compare-swap on its way. Before anything that was committed is read.
                        if let Err(fault) = self.raise_version(self.commit_word(context.target)?).await {
                            lock.release_poisoned(fabric, context, words, held).await?;
                            return Err(fault);
                        }
                    }
                    return Ok(held);
                }
            };
            let Some(rank) = fault.rank().filter(|_| fault.kind() == FaultKind::LeaseExpired) else {
                return Err(fault);
            };
            // No two acquires have the same word: so it is revoked, or killed, only if it has held the lock since `first` was seen.
            // Else the lease of whoever has it now is waited for.
            // What was seen first may be a count of readers, which comes again.
            let seen = first.ok().filter(|word| TestAndSet::owner(*word).is_some_and(|owner| owner.rank == rank));
            match (leases.policy, seen) {
                (LeasePolicy::Revoke, Some(seen)) => {
                    if let Some(held) = self.revoke_and_take(context, (words, seen), fault, intent).await? {
                        return Ok(held);
                    }
                }
                (LeasePolicy::Kill, Some(seen)) if fabric.read(words.0).await? == seen => {
                    if fabric.kill(rank).is_err() {
                        return Err(fault);
                    }
                    poll_until(fabric, words.0, fault, || fabric.liveness(rank) != Liveness::Alive).await?;
                }
                _ => {}
            }
            leases.begin_attempt(slot, fabric.now());
            first = lock.start(fabric, context, words, mode)?.await;
            if first.is_ok_and(|first| lock.holds::<F>(words, mode, first)) {
                return Ok(Held::cleanly(mode));
            }
        }
    }

    /// Has the access of an owner that was found late revoked, and takes the lock: not if it has another owner meanwhile.
    async fn revoke_and_take<'m>(
        &'m self,
        context: WindowLockContext<'m, F>,
        ((word, owner), seen): (Words<'m, F>, u64),
        fault: Fault,
        intent: IntentFn<'_>,
    ) -> Result<Option<Held>, Fault> {
        let fabric = self.fabric();
        // An owner at its own part is waited for, and so is another guard of this rank's.
        let is_kept = [fabric.rank(), context.target.fabric_rank()].map(Some).contains(&fault.rank());
        if is_kept || fabric.read(word).await? != seen {
            return Ok(None);
        }
        if !self.revoke(context.target, seen, || !intent().is_over()).await? {
            return Err(Fault::new(FaultKind::Closed));
        }
        if !intent().recovers {
            return Err(fault);
        }
        if let Some(leases) = &self.locks.leases {
            leases.begin_attempt(Owner::from_bits(owner).slot, fabric.now());
        }
        let held = Held::after(fault, Mode::Exclusive);
        match fabric.compare_swap(word, seen, owner).await {
            Ok(found) => Ok((found == seen).then_some(held)),
            // No two acquires have the same word: so it tells.
            Err(fault) if fault.is_unknown() => {
                let now = self.retry_unknown(word, || fabric.read(word)).await?;
                Ok((now == owner).then_some(held))
            }
            Err(fault) => Err(fault),
        }
    }

    /// Raises the version of what was committed: more often than once does no harm.
    async fn raise_version<'f>(&'f self, commit: F::Word<'f>) -> Result<u64, Fault> {
        self.retry_unknown(commit, || self.fabric().fetch_add(commit, VERSION)).await
    }

    /// Does what does no harm when it is done again, until somebody answers.
    async fn retry_unknown<'f>(&'f self, word: F::Word<'f>, post: impl Fn() -> F::Op) -> Result<u64, Fault> {
        let attempt = async || match post().await {
            Err(fault) if fault.is_unknown() => ControlFlow::Continue(fault),
            ended => ControlFlow::Break(ended),
        };
        retry(self.fabric(), word, attempt).await
    }

    fn commit_word<'w>(&'w self, target: &'w Target<F>) -> Result<F::Word<'w>, Fault> {
        self.fabric().word_in(&target.locks, self.locks.layout.commit())
    }

    /// The rich error of an owner that found out that it was late.
    #[cold]
    pub(crate) fn failed_or_expired(&self, operation: &'static str, target: u32, fault: Fault) -> Error {
        match fault.kind() {
            FaultKind::NotHeld if self.locks.leases.is_some() => {
                Error::Late { operation, target, window: self.name.clone() }
            }
            _ => self.failed(operation, target, fault),
        }
    }
}

impl<'w, T: Element, F: Fabric> Epoch<'w, T, F> {
    /// How much is left of the lease, of an exclusive lock in a window with a [policy](LeasePolicy): nothing once it is over. To be
    /// asked after every wait; it is never told too late, because the lease began before the lock was held. `None` where there
    /// is no lease.
    pub fn lease_left(&self) -> Option<Duration> {
        let (inner, ..) = self.lock_parts();
        let leases = inner.locks.leases.as_ref().filter(|_| self.mode() == Mode::Exclusive)?;
        let start = leases.starts.get(usize::from(self.owner().slot))?.load(Ordering::Relaxed);
        let held = inner.fabric().now().saturating_sub(start);
        Some(Duration::from_nanos(leases.nanos.saturating_sub(held)))
    }

    /// What was committed last under this lock, at first 0, when it is waited for. In a window with
    /// [`LeasePolicy::VersionedCommit`].
    ///
    /// # Errors
    /// When waited for: [`Error::Operation`], `Unsupported` in other windows.
    ///
    /// # Cancel safety
    /// Dropped before it is done it has done nothing.
    pub fn committed(&self) -> Request<'w, u64, F> {
        let (inner, target, _) = self.lock_parts();
        let read = async move {
            let word = committing(inner).and_then(|()| inner.commit_word(target));
            let found = match word {
                Ok(word) => inner.fabric().read(word).await,
                Err(fault) => Err(fault),
            };
            found.map(|found| found & VALUE).map_err(|fault| inner.failed("committed", target.rank, fault))
        };
        Request::new(inner.fabric().clone(), "committed", read)
    }

    /// Commits: makes a number below 2<sup>40</sup> the one that [`committed`](Self::committed) gives, if the lock is still this
    /// owner's, when it is waited for. Everything done under the lock before is complete at the target then. The number may say
    /// which of two places has the data that count: an owner writes the other one, and commits it.
    ///
    /// ```
    /// # use std::time::Duration;
    /// # use onesided_windows::{LeasePolicy, Window};
    /// # onesided_fabric::threads(2, |world| {
    /// let window = Window::<u64>::builder()
    ///     .lease_policy(LeasePolicy::VersionedCommit, Duration::from_millis(100))
    ///     .allocate(&world, 16)
    ///     .wait()?;
    /// let epoch = window.lock_exclusive(1).wait()?;
    /// let other = 1 - epoch.committed().wait()?;
    /// epoch.put(8 * other as usize, &[7; 8])?;
    /// epoch.commit(other).wait()?; // an error if another has the lock meanwhile
    /// epoch.unlock().wait()?;
    /// # window.close().wait()
    /// # }).unwrap().into_iter().collect::<Result<(), onesided_windows::Error>>().unwrap();
    /// ```
    ///
    /// How: the commit word has a version, which whoever takes a lock over raises before it goes on. An owner reads that word,
    /// then sees that the lock's word is its own, so that the version is of its own time, and then compares and swaps it; where
    /// that fails it reads both again. The version has 24 bits: an owner that is stopped between its look and its
    /// compare-swap while exactly a multiple of 2<sup>24</sup> commits and inheritances pass, the last with the same number, is not
    /// found out.
    ///
    /// # Errors
    /// When waited for: [`Error::Late`] if another has taken the lock over, and nothing is committed; [`Error::Operation`]:
    /// `OutOfRange`, `Unsupported` in other windows, the first failure of what was done under the lock, and `NotHeld` for a
    /// shared lock.
    ///
    /// # Cancel safety
    /// Dropped before it is done it has committed or not.
    pub fn commit(&self, value: u64) -> Request<'w, (), F> {
        let (inner, target, id) = self.lock_parts();
        let (mine, exclusive) = (self.held_word(), self.mode() == Mode::Exclusive);
        let commit = async move {
            committing(inner)?;
            if value > VALUE {
                return Err(Fault::of(FaultKind::OutOfRange, target.fabric_rank()));
            }
            let not_held = Err(Fault::of(FaultKind::NotHeld, target.fabric_rank()));
            if !exclusive {
                return not_held;
            }
            let fabric = inner.fabric();
            fabric.flush(target.fabric_rank()).await?;
            let word = inner.commit_word(target)?;
            let lock = onesided_lock_algos::LockContext::home(&inner.lock_context(target, id, mine), 0)?;
            let read = |word| Link::Read { word, waited: true };
            loop {
                let [version, holder] = fabric.post([read(word), read(lock)]).await?;
                // No two acquires have the same word.
                if holder != mine {
                    return not_held;
                }
                let new = (version & !VALUE).wrapping_add(VERSION) | value;
                if fabric.compare_swap(word, version, new).await? == version {
                    return Ok(());
                }
                // An heir that came before this owner, and was late itself, has raised the version only now: each of those once.
            }
        };
        Request::new(inner.fabric().clone(), "commit", async move {
            commit.await.map_err(|fault: Fault| match exclusive {
                true => inner.failed_or_expired("commit", target.rank, fault),
                false => inner.failed("commit", target.rank, fault),
            })
        })
    }
}

fn committing<F: Fabric>(inner: &Inner<F>) -> Result<(), Fault> {
    if inner.locks.commits() { Ok(()) } else { Err(Fault::of(FaultKind::Unsupported, inner.fabric().rank())) }
}
