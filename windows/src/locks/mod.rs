//! The lock algorithms as windows use them: the design, its words in the hidden region, leases and
//! the lock server.

pub(crate) mod commit;
pub(crate) mod context;
pub(crate) mod design;
pub(crate) mod layout;
pub(crate) mod lease;
pub(crate) mod lease_policy;
pub(crate) mod notes;
pub(crate) mod owner;
pub(crate) mod parse;
pub(crate) mod revoke;
pub(crate) mod server;
pub(crate) mod slots;
pub(crate) mod state;
pub(crate) mod takeover;
pub(crate) mod window_lock;

/// Size of the lock words in the hidden region beside each rank's window memory: one cache line.
pub(crate) const LOCK_BYTES: u64 = 64;
