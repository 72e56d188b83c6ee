//! Checked and leased locks.

use super::TestAndSet;

/// The lease of an exclusive owner.
#[derive(Clone, Copy, Debug)]
pub(super) struct Lease {
    pub(super) nanos: u64,
    /// Whether a waiter takes the lock when the lease expires; otherwise it fails.
    pub(super) takes: bool,
}

impl TestAndSet {
    /// The same lock, checked: exclusive owners release by compare-swap everywhere, and use their
    /// slots, so that no two acquires have the same owner. A release by a rank that does not hold
    /// the lock, or no longer does, fails with `NotHeld` and changes nothing. An unchecked lock
    /// relies on its guards for that.
    #[must_use]
    pub const fn checked(self) -> Self {
        Self { checked: true, ..self }
    }

    /// The same lock, [checked](Self::checked), with a lease of `nanos` nanoseconds. A waiter that
    /// has seen the same exclusive owner for longer takes the lock from it if `takes`
    /// ([`Held::recovered`](crate::Held::recovered) is `LeaseExpired` then), and otherwise fails
    /// with `LeaseExpired`.
    /// Readers have no lease: a count does not tell how long a reader has held the lock.
    ///
    /// The previous owner is not notified: fencing or revoked access has to keep its operations
    /// from doing harm. Its release fails.
    #[must_use]
    pub const fn leased(self, nanos: u64, takes: bool) -> Self {
        Self { checked: true, lease: Some(Lease { nanos, takes }), ..self }
    }
}
