//! Commits under a lock with a lease: the commit word, and the time that is left.

use std::sync::atomic::Ordering;
use std::time::Duration;

use onesided_fabric::Fabric;
use onesided_fabric::remote_memory::{Fault, FaultKind, Link};
use onesided_lock_algos::Mode;

use crate::error::Lack;
use crate::window::inner::Inner;
use crate::window::target::Target;
use crate::{Element, Epoch, Request};

/// The commit word: version 24 bits | value 40 bits.
const VALUE: u64 = (1 << 40) - 1;
const VERSION: u64 = VALUE + 1;

impl<F: Fabric> Inner<F> {
    pub(super) fn commit_word<'w>(&'w self, target: &'w Target<F>) -> Result<F::Word<'w>, Fault> {
        self.fabric().word_in(&target.locks, self.locks.layout.commit())
    }

    /// Raises the version of the commit word.
    pub(super) async fn raise_version<'f>(&'f self, commit: F::Word<'f>) -> Result<u64, Fault> {
        self.fabric().fetch_add(commit, VERSION).await
    }
}

impl<'w, T: Element, F: Fabric> Epoch<'w, T, F> {
    /// How much is left of the lease of an exclusive lock in a window with a [lease
    /// policy](crate::LeasePolicy): zero once it has expired. Check it after every wait. The result
    /// never exceeds what is really left, because the lease starts before the lock is held. `None`
    /// where there is no lease.
    pub fn lease_left(&self) -> Option<Duration> {
        let (inner, ..) = self.lock_parts();
        let leases = inner.locks.leases.as_ref().filter(|_| self.mode() == Mode::Exclusive)?;
        let start = leases.starts.get(usize::from(self.owner().slot))?.load(Ordering::Relaxed);
        let held = inner.fabric().now().saturating_sub(start);
        Some(Duration::from_nanos(leases.nanos.saturating_sub(held)))
    }

    /// The value that was committed last under this lock, initially 0. Does nothing unless waited
    /// on or polled. Requires
    /// [`LeasePolicy::VersionedCommit`](crate::LeasePolicy::VersionedCommit).
    ///
    /// # Errors
    /// When waited on: [`Error::Operation`](crate::Error::Operation), `Unsupported` in other
    /// windows.
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
        Request::new(self.awaited(), "committed", read)
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
    /// When waited on: [`Error::Late`](crate::Error::Late) if another owner has taken the lock, and
    /// nothing is committed; [`Error::Operation`](crate::Error::Operation): `OutOfRange`,
    /// `Unsupported` in other windows, the first failure of what was done under the lock, and
    /// `NotHeld` for a shared lock.
    ///
    /// # Cancel safety
    /// If dropped before it completes, it may or may not have committed.
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
        Request::new(self.awaited(), "commit", async move {
            commit.await.map_err(|fault: Fault| match exclusive {
                true => inner.failed_or_expired("commit", target.rank, fault),
                false => inner.failed("commit", target.rank, fault),
            })
        })
    }
}

fn committing<F: Fabric>(inner: &Inner<F>) -> Result<(), Fault> {
    let none = || Lack::Commits.of(inner.fabric().rank());
    inner.locks.commits().then_some(()).ok_or_else(none)
}
