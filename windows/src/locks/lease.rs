//! Leases: owners that hold a lock for too long because they are stopped or swapped out.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use onesided_fabric::{Fabric, Fence, World};
use onesided_lock_algos::AnyLock;

use crate::locks::window_lock::WindowLock;
use crate::{Error, LeasePolicy, LockDesign};

/// The lease policy of a window under construction.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct LeaseChoice {
    /// The policy and the lease.
    pub(crate) lease: Option<(LeasePolicy, Duration)>,
    /// Whether the lock has no commit protocol.
    pub(crate) plain: bool,
}

fn nanos(lease: Duration) -> u64 {
    u64::try_from(lease.as_nanos()).unwrap_or(u64::MAX)
}

impl LeaseChoice {
    pub(crate) fn policy(&self) -> Option<LeasePolicy> {
        self.lease.map(|(policy, _)| policy)
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
        let fence_of = |rank| world.fabric().fencing()?.fence_of(rank);
        let Some((policy, lease)) = self.lease else { return Ok(()) };
        let why = match policy {
            _ if lease.is_zero() => "the lease must be longer than zero",
            _ if design != LockDesign::TestAndSet => "only the word of a test-and-set lock names its owner",
            LeasePolicy::VersionedCommit if self.plain => "there is nothing to commit",
            LeasePolicy::Kill if !others().all(|rank| fence_of(rank) == Some(Fence::Kill)) => {
                "the ranks are not processes of one host on the shm fabric"
            }
            LeasePolicy::Revoke if !others().all(|rank| fence_of(rank) == Some(Fence::Revoke)) => {
                "access to mapped memory cannot be revoked: that takes ranks that reach one another by cards alone"
            }
            LeasePolicy::VersionedCommit | LeasePolicy::Kill | LeasePolicy::Revoke => return Ok(()),
        };
        Err(Error::LeasePolicy { window: window.clone(), policy, design, why })
    }

    /// The description that ranks compare.
    pub(crate) fn describe(&self, design: LockDesign) -> String {
        match self.lease {
            None => design.to_string(),
            Some((policy, lease)) => format!("{design}, lease policy: {policy} after {lease:?}"),
        }
    }

    /// The lock with this policy.
    pub(crate) fn lock<F: Fabric>(&self, lock: AnyLock) -> WindowLock<F> {
        match (self.lease, lock) {
            (Some((policy, after)), AnyLock::TestAndSet(lock)) => {
                WindowLock::other(lock.leased(nanos(after), policy == LeasePolicy::VersionedCommit))
            }
            (_, lock) => lock.into(),
        }
    }

    /// The lease state of a window.
    pub(crate) fn leases(&self, slots: u16) -> Option<Leases> {
        self.lease.map(|(policy, lease)| {
            let starts = (0..slots).map(|_| AtomicU64::new(0)).collect();
            Leases { policy, nanos: nanos(lease), starts }
        })
    }
}

/// The leases of this rank's owners.
pub(crate) struct Leases {
    pub(super) policy: LeasePolicy,
    pub(super) nanos: u64,
    /// For each slot, a time before its owner's last compare-and-swap.
    pub(super) starts: Box<[AtomicU64]>,
}

impl Leases {
    /// Records that an owner is about to try.
    pub(crate) fn begin_attempt(&self, slot: u16, now: u64) {
        if let Some(start) = self.starts.get(usize::from(slot)) {
            start.store(now, Ordering::Relaxed);
        }
    }
}
