//! Unlocking all targets, step by step and without an allocation.

use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use onesided_fabric::remote_memory::Fault;
use onesided_fabric::{Drive, Fabric, handle, wait_for};

use crate::passive::lock_all::locked::{LockedRanks, RankLock};
use crate::{Element, Error, Unlock};

/// A pending unlock of every locked target: `.wait()` blocks, `.await` does not, `.test()` polls.
/// Does nothing before that. See [`LockAll::unlock_all`](crate::LockAll::unlock_all).
///
/// # Cancel safety
/// May be dropped at any point: it releases all locks as a drop of the guard does.
#[must_use = "dropping the unlock discards its errors"]
pub struct UnlockAll<'w, T: Element, F: Fabric> {
    held: LockedRanks<'w, T, F>,
    begun: bool,
    /// The number of targets that are done, and the operation on the next one: a flush or, if it
    /// has its own lock, the unlock.
    done: usize,
    flush: Option<F::Flush<'w>>,
    unlock: Option<Unlock<'w, T, F>>,
    outcome: Result<(), (u32, Fault)>,
}

impl<'w, T: Element, F: Fabric> UnlockAll<'w, T, F> {
    pub(crate) const fn new(held: LockedRanks<'w, T, F>) -> Self {
        Self { held, begun: false, done: 0, flush: None, unlock: None, outcome: Ok(()) }
    }
}

impl<T: Element, F: Drive> UnlockAll<'_, T, F> {
    /// Blocks until everything done under the locks is complete at the targets and the releases are
    /// posted.
    ///
    /// # Errors
    /// [`Error::Operation`] with the first failure of what was done under the locks. They are
    /// released all the same.
    pub fn wait(self) -> Result<(), Error> {
        wait_for(self.held.inner.fabric(), self)
    }
}

handle!(['w, T: Element, F], UnlockAll<'w, T, F>, (), Error, |all| all.held.inner.fabric());

// Nothing in it is pinned in place: the fabric's operations are `Unpin`.
impl<T: Element, F: Fabric> Unpin for UnlockAll<'_, T, F> {}

impl<T: Element, F: Fabric> Future for UnlockAll<'_, T, F> {
    type Output = Result<(), Error>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let Self { held, begun, done, flush, unlock, outcome } = &mut *self;
        let inner = held.inner;
        if !std::mem::replace(begun, true) {
            inner.begin_flushes(held.targets()); // starts all flushes
        }
        while let Some(lock) = held.ranks.get_mut(*done) {
            if let Some(RankLock::All(access)) = lock.get() {
                let begin = || inner.fabric().flush_before_release(access.target.fabric_rank());
                let flushed = ready!(Pin::new(flush.get_or_insert_with(begin)).poll(cx));
                *outcome = outcome.and(flushed.map_err(|fault| (access.target(), fault)));
                *flush = None;
            } else if let Some(RankLock::Own(epoch)) = lock.take() {
                *unlock = Some(epoch.unlock());
            }
            if let Some(under_way) = unlock {
                let unlocked = ready!(under_way.poll_released(cx));
                *outcome = outcome.and(unlocked.map_err(|fault| (under_way.rank(), fault)));
                *unlock = None;
            }
            *done += 1;
        }
        if let Some(all) = held.all.take() {
            all.unlock_unchanged();
        }
        Poll::Ready((*outcome).map_err(|(rank, fault)| inner.failed_or_expired("unlock_all", rank, fault)))
    }
}

impl<T: Element, F: Fabric> fmt::Debug for UnlockAll<'_, T, F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let left = self.held.ranks.len() - self.done;
        write!(f, "unlock_all of window \"{}\", {left} ranks left", self.held.inner.name)
    }
}
