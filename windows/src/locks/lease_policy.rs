//! The policies for expired leases.

use onesided_fabric::entries;

entries! {
    /// What happens to an exclusive owner that holds a lock for longer than its lease; set by
    /// [`Builder::lease_policy`](crate::Builder::lease_policy). Without a policy waiters go on waiting:
    /// the lock recovers from death, not from delay.
    ///
    /// A lease alone is not safe: a stopped owner does not notice that time passes, and memory does not
    /// check tokens. Each policy adds what makes it safe. The policies need a lock whose word names its
    /// owner, [`LockDesign::TestAndSet`](crate::LockDesign::TestAndSet); leases of readers never
    /// expire. Every other combination is an error when the window is made.
    ///
    /// A waiter measures the lease by its own clock from the moment when it first saw the owner: clocks
    /// are not compared, and no lease expires early.
    #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
    #[non_exhaustive]
    pub enum LeasePolicy {
        /// A waiter takes the lock over, and the expired owner's [commit](crate::Epoch::commit) and
        /// unlock fail ([`Error::Late`](crate::Error::Late)). The owner's *puts* still reach the
        /// memory: only committed data count. Not for lock tables, [`Mutex`](crate::Mutex) and
        /// [`RwLock`](crate::RwLock), which have nothing to commit. A reader that takes a lock over
        /// holds it exclusively, with a lease; [`lock_all`](crate::Window::lock_all) releases it
        /// immediately and locks it shared: see
        /// [`LockAll::previous_owner`](crate::LockAll::previous_owner).
        VersionedCommit => "versioned commit",
        /// A waiter kills the expired owner's process (SIGKILL by a pidfd). What follows is as after
        /// any death: the lock is poisoned until it is
        /// [recovered](crate::handles::LockRequest::recover). Requires that all ranks are processes of
        /// one host, on the shm fabric. The waiter checks right before the kill that the same acquire
        /// still holds the lock; an owner that releases between check and kill is killed all the same.
        /// An owner that acquired while the waiter was already waiting has up to two leases. If the
        /// process cannot be killed, or still exists after 5 s, the acquire fails with
        /// [`LeaseExpired`](onesided_fabric::remote_memory::FaultKind::LeaseExpired), the lock stays as
        /// it is, and the next waiter tries again. **A rank that waits for a lock that it holds itself,
        /// by another thread or guard, kills itself.**
        Kill => "kill",
        /// A waiter has the expired owner's access to the target's memory revoked: the target's helper
        /// thread closes its queue pair to the owner and acknowledges before any other rank gets the
        /// lock, so no operation of the expired owner, in flight or later, takes effect there any more.
        /// What follows is as after a death: the lock is poisoned until it is
        /// [recovered](crate::handles::LockRequest::recover), which gives
        /// [`PreviousOwner::LeaseExpired`](crate::PreviousOwner::LeaseExpired). Requires that all ranks
        /// access each other through network cards (verbs), or the simulator. Access to mapped memory
        /// cannot be revoked: use [`Kill`](Self::Kill) there.
        ///
        /// **It ends all communication between the expired owner and the target**, in both directions,
        /// in all windows, messages and collective operations, for as long as both are in the world:
        /// each gets [`Revoked`](onesided_fabric::remote_memory::FaultKind::Revoked) for whatever needs
        /// the other, within a second after it runs again. The only way back is to leave the world.
        /// Neither is dead for the other ranks, which continue with both; so a lock of the target that
        /// the expired owner holds in a window without this policy stays held until the owner exits. An
        /// expired owner of the lock of its *own* window memory is waited for, because the helper
        /// thread that would revoke its access is stopped too; so is an owner whose target is stopped,
        /// and another guard of the waiter's own rank.
        Revoke => "revoke",
    }
    /// The policy's name.
    #[must_use]
    pub fn name;
}
