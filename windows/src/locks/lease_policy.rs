//! The policies for expired leases.

use std::fmt;

/// What happens to an exclusive owner that keeps a lock for longer than its lease: [`Builder::lease_policy`](crate::Builder::lease_policy)
/// chooses.
///
/// A lease alone is not safe: who was stopped does not know that time has passed, and no memory looks at tokens. So it takes one of
/// these. They need a lock whose word names its owner: [`LockDesign::TestAndSet`](crate::LockDesign::TestAndSet); readers are never late. Every other combination
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
    /// Who waits takes the lock over, and the late owner's [commit](crate::Epoch::commit) fails, and so does its unlock
    /// ([`Error::Late`](crate::Error::Late)). What it *puts* is not kept from the memory: what counts is what was committed. Not for lock tables,
    /// [`Mutex`](crate::Mutex) and [`RwLock`](crate::RwLock), which have nothing to commit. A reader who takes a lock over has it alone, and
    /// a lease; a [`lock_all`](crate::Window::lock_all) gives it back at once and shares it: [`LockAll::previous_owner`](crate::LockAll::previous_owner)
    /// tells.
    VersionedCommit,
    /// Who waits kills the late owner's process (SIGKILL by a pidfd). Then it is dead, and all is as after any death: the lock is
    /// poisoned until it is [inherited](crate::LockRequest::recover). Where all ranks are processes of one host, on the shm
    /// fabric. Directly before, it looks once more whether the lock is still held by the same acquire; an owner that releases
    /// between that look and the kill is killed all the same. Who took the lock while the killer waited already has up to two leases.
    /// If there is no killing it, or it is there still after 5 s, the acquire ends with [`LeaseExpired`](onesided_fabric::remote_memory::FaultKind::LeaseExpired), the lock
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
    /// operations, for as long as both are in the world: each gets [`Revoked`](onesided_fabric::remote_memory::FaultKind::Revoked) for whatever needs the other,
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
