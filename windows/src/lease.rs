//! Leases: owners that hold a lock for too long because they are stopped or swapped out.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use onesided_fabric::remote_memory::{Fault, FaultKind, Link, Liveness};
use onesided_fabric::{Capabilities, Fabric, World};
use onesided_lock_algos::{AnyLock, Held, IntentFn, LockAlgorithm, Mode, Owner, TestAndSet};

use crate::home::{Home, Words};
use crate::window::{Inner, SETTLE, TURN, Target};
use crate::{Element, Epoch, Error, LockDesign, Request};

/// What happens to an exclusive owner that holds a lock for longer than its lease; set by
/// [`Builder::lease_policy`](crate::Builder::lease_policy).
///
/// A lease alone is not safe: a stopped owner does not notice that time passes, and memory does not
/// check tokens. Each policy adds what makes it safe. The policies need a lock whose word names its
/// owner, [`LockDesign::TestAndSet`]; leases of readers never expire. Every other combination is an
/// error when the window is made.
///
/// A waiter measures the lease by its own clock from the moment when it first saw the owner: clocks
/// are not compared, and no lease expires early.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum LeasePolicy {
    /// None: waiters go on waiting. The lock recovers from death, not from delay. Works with every
    /// design.
    #[default]
    None,
    /// A waiter takes the lock over, and the expired owner's [commit](Epoch::commit) and unlock
    /// fail ([`Error::Late`]). The owner's *puts* still reach the memory: only committed data count.
    /// Not for lock tables, [`Mutex`](crate::Mutex) and [`RwLock`](crate::RwLock), which have nothing
    /// to commit. A reader that takes a lock over holds it exclusively, with a lease;
    /// [`lock_all`](crate::Window::lock_all) releases it immediately and locks it shared: see
    /// [`LockAll::previous_owner`](crate::LockAll::previous_owner).
    VersionedCommit,
    /// A waiter kills the expired owner's process (SIGKILL by a pidfd). What follows is as after
    /// any death: the lock is poisoned until it is [recovered](crate::LockRequest::recover).
    /// Requires that all ranks are processes of one host, on the shm fabric. The waiter checks
    /// right before the kill that the same acquire still holds the lock; an owner that releases
    /// between check and kill is killed all the same. An owner that acquired while the waiter was
    /// already waiting has up to two leases. If the process cannot be killed, or still exists after
    /// 5 s, the acquire fails with [`LeaseExpired`](FaultKind::LeaseExpired), the lock stays as it
    /// is, and the next waiter tries again. **A rank that waits for a lock that it holds itself, by
    /// another thread or guard, kills itself.**
    Kill,
    /// A waiter has the expired owner's access to the target's memory revoked: the target's helper
    /// thread closes its queue pair to the owner and acknowledges before any other rank gets the
    /// lock, so no operation of the expired owner, in flight or later, takes effect there any more.
    /// What follows is as after a death: the lock is poisoned until it is
    /// [recovered](crate::LockRequest::recover), which gives
    /// [`PreviousOwner::LeaseExpired`](crate::PreviousOwner::LeaseExpired). Requires that all ranks
    /// access each other through network cards (verbs), or the simulator. Access to mapped memory
    /// cannot be revoked: use [`Kill`](Self::Kill) there.
    ///
    /// **It ends all communication between the expired owner and the target**, in both directions,
    /// in all windows, messages and collective operations, for as long as both are in the world:
    /// each gets [`Revoked`](FaultKind::Revoked) for whatever needs the other, within a second
    /// after it runs again. The only way back is to leave the world. Neither is dead for the other
    /// ranks, which continue with both; so a lock of the target that the expired owner holds in a
    /// window without this policy stays held until the owner exits. An expired owner of the lock of
    /// its *own* window memory is waited for, because the helper thread that would revoke its
    /// access is stopped too; so is an owner whose target is stopped, and another guard of the
    /// waiter's own rank.
    Revoke,
}

impl LeasePolicy {
    /// The policy's name.
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

/// The lease policy of a window under construction.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Choice {
    pub(crate) policy: LeasePolicy,
    pub(crate) lease: Duration,
    /// Whether the lock has no commit protocol.
    pub(crate) plain: bool,
}

impl Choice {
    fn nanos(&self) -> u64 {
        u64::try_from(self.lease.as_nanos()).unwrap_or(u64::MAX)
    }

    /// Checks that the policy is available.
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
            _ if self.lease.is_zero() => "the lease must be longer than zero",
            _ if design != LockDesign::TestAndSet => "only the word of a test-and-set lock names its owner",
            LeasePolicy::VersionedCommit if self.plain => "there is nothing to commit",
            LeasePolicy::Kill if !others().all(|rank| world.fabric().can_kill(rank)) => {
                "the ranks are not processes of one host on the shm fabric"
            }
            LeasePolicy::Revoke if !others().all(|rank| world.fabric().can_revoke(rank)) => {
                "access to mapped memory cannot be revoked: that takes ranks that reach one another by cards alone"
            }
            LeasePolicy::VersionedCommit | LeasePolicy::Kill | LeasePolicy::Revoke => return Ok(()),
        };
        Err(Error::LeasePolicy { window: window.clone(), policy: self.policy, design, why })
    }

    /// The description that ranks compare.
    pub(crate) fn describe(&self, design: LockDesign) -> String {
        match self.policy {
            LeasePolicy::None => design.to_string(),
            policy => format!("{design}, lease policy: {policy} after {:?}", self.lease),
        }
    }

    /// The lock algorithm with this policy.
    pub(crate) fn algorithm(&self, design: LockDesign, capabilities: &Capabilities) -> AnyLock {
        match (self.policy, design.algorithm(capabilities)) {
            (LeasePolicy::None, lock) => lock,
            (policy, AnyLock::TestAndSet(lock)) => {
                AnyLock::CheckedTestAndSet(lock.leased(self.nanos(), policy == LeasePolicy::VersionedCommit))
            }
            (_, lock) => lock,
        }
    }

    /// The lease state of a window.
    pub(crate) fn kept(&self, slots: u16) -> Option<Late> {
        let starts = || (0..slots).map(|_| AtomicU64::new(0)).collect();
        (self.policy != LeasePolicy::None).then(|| Late { policy: self.policy, nanos: self.nanos(), starts: starts() })
    }
}

/// The leases of this rank's owners.
pub(crate) struct Late {
    policy: LeasePolicy,
    nanos: u64,
    /// For each slot, a time before its owner's last compare-and-swap.
    starts: Box<[AtomicU64]>,
}

impl Late {
    /// Records that an owner is about to try.
    pub(crate) fn tries(&self, slot: u16, now: u64) {
        if let Some(start) = self.starts.get(usize::from(slot)) {
            start.store(now, Ordering::Relaxed);
        }
    }
}

/// The commit word: version 24 bits | value 40 bits.
const VALUE: u64 = (1 << 40) - 1;
const VERSION: u64 = VALUE + 1;

impl<F: Fabric> Inner<F> {
    /// The contended rest of an acquire, with the policy for expired leases.
    pub(crate) async fn contend<'m>(
        &'m self,
        home: Home<'m, F>,
        words: Words<'m, F>,
        mode: Mode,
        mut first: Result<u64, Fault>,
        wish: IntentFn<'_>,
    ) -> Result<Held, Fault> {
        let (fabric, lock) = (self.fabric(), &self.algorithm);
        let Some(late) = &self.late else { return lock.contend(fabric, home, words, mode, first, wish).await };
        let slot = Owner::from_bits(words.1).slot;
        // Called before each compare-and-swap.
        let asked: IntentFn<'_> = &|| {
            late.tries(slot, fabric.now());
            wish()
        };
        loop {
            let fault = match lock.contend(fabric, home, words, mode, first, asked).await {
                Err(fault) => fault,
                Ok(held) => {
                    if self.commits() && held.recovered.is_some() {
                        // Commits of the previous owner fail from here on: it may be alive, or have
                        // a compare-and-swap in flight. This precedes every read of the committed
                        // value.
                        if let Err(fault) = self.raise(self.commit_word(home.target)?).await {
                            lock.release_poisoned(fabric, home, words, held).await?;
                            return Err(fault);
                        }
                    }
                    return Ok(held);
                }
            };
            let Some(rank) = fault.rank().filter(|_| fault.kind() == FaultKind::LeaseExpired) else {
                return Err(fault);
            };
            // Each acquire has its own lock word: the owner is revoked or killed only if it has
            // held the lock since `first` was seen. Otherwise the wait continues with the present
            // owner's lease. A count of readers is excluded: it can recur.
            let seen = first.ok().filter(|word| TestAndSet::owner(*word).is_some_and(|owner| owner.rank == rank));
            match (late.policy, seen) {
                (LeasePolicy::Revoke, Some(seen)) => {
                    if let Some(held) = self.take_from(home, (words, seen), fault, wish).await? {
                        return Ok(held);
                    }
                }
                (LeasePolicy::Kill, Some(seen)) if fabric.read(words.0).await? == seen => {
                    if fabric.kill(rank).is_err() {
                        return Err(fault);
                    }
                    let until = fabric.now().saturating_add(SETTLE);
                    while fabric.liveness(rank) == Liveness::Alive {
                        if fabric.now() >= until {
                            return Err(fault);
                        }
                        fabric.pause(words.0, TURN).await;
                    }
                }
                _ => {}
            }
            late.tries(slot, fabric.now());
            first = lock.start(fabric, home, words, mode)?.await;
            if first.is_ok_and(|first| lock.holds::<F>(words, mode, first)) {
                return Ok(Held::cleanly(mode));
            }
        }
    }

    /// Revokes the access of an owner whose lease has expired and takes the lock, unless it has
    /// another owner meanwhile.
    async fn take_from<'m>(
        &'m self,
        home: Home<'m, F>,
        ((word, owner), seen): (Words<'m, F>, u64),
        fault: Fault,
        wish: IntentFn<'_>,
    ) -> Result<Option<Held>, Fault> {
        let fabric = self.fabric();
        // An owner at its own rank is waited for, and so is another guard of this rank.
        let is_kept = [fabric.rank(), home.target.fabric_rank()].map(Some).contains(&fault.rank());
        if is_kept || fabric.read(word).await? != seen {
            return Ok(None);
        }
        if !self.revoke(home.target, seen, || !wish().is_over()).await? {
            return Err(Fault::new(FaultKind::Closed));
        }
        if !wish().recovers {
            return Err(fault);
        }
        if let Some(late) = &self.late {
            late.tries(Owner::from_bits(owner).slot, fabric.now());
        }
        let held = Held::after(fault, Mode::Exclusive);
        match fabric.compare_swap(word, seen, owner).await {
            Ok(found) => Ok((found == seen).then_some(held)),
            // Each acquire has its own lock word, so reading it resolves the compare-and-swap.
            Err(fault) if fault.is_unknown() => {
                let now = self.again(word, || fabric.read(word)).await?;
                Ok((now == owner).then_some(held))
            }
            Err(fault) => Err(fault),
        }
    }

    /// Raises the version of the commit word. Idempotent in effect: raising it twice is harmless.
    async fn raise<'f>(&'f self, commit: F::Word<'f>) -> Result<u64, Fault> {
        self.again(commit, || self.fabric().fetch_add(commit, VERSION)).await
    }

    /// Retries an idempotent operation until its outcome is known or the grace period ends.
    async fn again<'f>(&'f self, word: F::Word<'f>, post: impl Fn() -> F::Op) -> Result<u64, Fault> {
        let fabric = self.fabric();
        let until = fabric.now().saturating_add(SETTLE);
        loop {
            match post().await {
                Err(fault) if fault.is_unknown() && fabric.now() < until => fabric.pause(word, TURN).await,
                ended => return ended,
            }
        }
    }

    /// Whether the window has a commit word: then a living owner's lock may be taken over.
    pub(crate) fn commits(&self) -> bool {
        self.late.as_ref().is_some_and(|late| late.policy == LeasePolicy::VersionedCommit)
    }

    fn commit_word<'w>(&'w self, target: &'w Target<F>) -> Result<F::Word<'w>, Fault> {
        self.fabric().word_in(&target.locks, self.homes.commit())
    }

    /// The error of an owner whose lease has expired.
    #[cold]
    pub(crate) fn failed_late(&self, operation: &'static str, target: u32, fault: Fault) -> Error {
        match fault.kind() {
            FaultKind::NotHeld if self.late.is_some() => Error::Late { operation, target, window: self.name.clone() },
            _ => self.failed(operation, target, fault),
        }
    }
}

impl<'w, T: Element, F: Fabric> Epoch<'w, T, F> {
    /// How much is left of the lease of an exclusive lock in a window with a [lease
    /// policy](LeasePolicy): zero once it has expired. Check it after every wait. The result never
    /// exceeds what is really left, because the lease starts before the lock is held. `None` where
    /// there is no lease.
    pub fn lease_left(&self) -> Option<Duration> {
        let (inner, ..) = self.lock_parts();
        let late = inner.late.as_ref().filter(|_| self.mode() == Mode::Exclusive)?;
        let start = late.starts.get(usize::from(self.owner().slot))?.load(Ordering::Relaxed);
        let held = inner.fabric().now().saturating_sub(start);
        Some(Duration::from_nanos(late.nanos.saturating_sub(held)))
    }

    /// The value that was committed last under this lock, initially 0. Does nothing unless waited
    /// on or polled. Requires [`LeasePolicy::VersionedCommit`].
    ///
    /// # Errors
    /// When waited on: [`Error::Operation`], `Unsupported` in other windows.
    ///
    /// # Cancel safety
    /// If dropped before it completes, it has no effect.
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

    /// Commits: stores a number below 2<sup>40</sup> as the value that
    /// [`committed`](Self::committed) returns, if this owner still holds the lock. Everything done
    /// under the lock before is then complete at the target. Does nothing unless waited on or
    /// polled. The number may say which of two copies of the data is valid: an owner writes the
    /// other copy and commits it.
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
    /// epoch.commit(other).wait()?; // an error if another owner has the lock by now
    /// epoch.unlock().wait()?;
    /// # window.close().wait()
    /// # }).unwrap().into_iter().collect::<Result<(), onesided_windows::Error>>().unwrap();
    /// ```
    ///
    /// Protocol: the commit word has a version, which a rank that takes the lock over raises before
    /// it goes on. A committing owner reads the commit word, then checks that the lock word is
    /// still its own, so that the version belongs to its own ownership, and then compares and swaps
    /// the commit word; if that fails it reads both again. The version has 24 bits: the check
    /// misses an owner that is stopped between its read and its compare-and-swap while exactly a
    /// multiple of 2<sup>24</sup> commits and takeovers pass, the last with the same number.
    ///
    /// # Errors
    /// When waited on: [`Error::Late`] if another owner has taken the lock, and nothing is
    /// committed; [`Error::Operation`]: `OutOfRange`, `Unsupported` in other windows, the first
    /// failure of what was done under the lock, and `NotHeld` for a shared lock.
    ///
    /// # Cancel safety
    /// If dropped before it completes, it may or may not have committed.
    pub fn commit(&self, value: u64) -> Request<'w, (), F> {
        let (inner, target, which) = self.lock_parts();
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
            let lock = onesided_lock_algos::LockContext::home(&inner.home(target, which, mine), 0)?;
            let read = |word| Link::Read { word, waited: true };
            loop {
                let [version, holder] = fabric.post([read(word), read(lock)]).await?;
                // Each acquire has its own lock word.
                if holder != mine {
                    return not_held;
                }
                let new = (version & !VALUE).wrapping_add(VERSION) | value;
                if fabric.compare_swap(word, version, new).await? == version {
                    return Ok(());
                }
                // A recovering owner whose own lease expired may raise the version late; each such
                // owner raises it once.
            }
        };
        Request::new(inner.fabric().clone(), "commit", async move {
            commit.await.map_err(|fault: Fault| match exclusive {
                true => inner.failed_late("commit", target.rank, fault),
                false => inner.failed("commit", target.rank, fault),
            })
        })
    }
}

fn committing<F: Fabric>(inner: &Inner<F>) -> Result<(), Fault> {
    if inner.commits() { Ok(()) } else { Err(Fault::of(FaultKind::Unsupported, inner.fabric().rank())) }
}
